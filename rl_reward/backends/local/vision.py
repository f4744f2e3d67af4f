"""What a vision-language model sees: every image of a prompt as a run of tokens of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import torch
from transformers import PreTrainedModel, ProcessorMixin

from rl_reward.backends.images import decode
from rl_reward.errors import BackendError, ConfigError, Unscorable
from rl_reward.types import Image

_PER_TOKEN = ("input_ids", "attention_mask")
# Processors say under one of these names which tokens are images; a model that wants the name refuses to go without.
_KINDS = ("mm_token_type_ids", "token_type_ids")


@dataclass(frozen=True, eq=False)
class Picture:
    """One distinct image, in memory until `Vision.forget`."""

    image: Any
    """The image as PIL holds it, RGB."""
    text: str
    """What stands for it in a prompt: the image tokens and the marks around them."""
    first: int
    """The number of its first token; its tokens are first ... first + count - 1."""
    count: int
    """How many image tokens it has."""


class Vision:
    """The images of prompts.

    An image token has a number at or above the size of the vocabulary: one for each place of each distinct image. Equal
    numbers are equal inputs, so a token tree shares prefixes that hold images as it shares those that hold words.
    """

    def __init__(self, model: PreTrainedModel, processor: ProcessorMixin) -> None:
        """Show images to `model` as `processor` prepares them.

        Raises:
            ConfigError: The processor or the configuration names no image token.
        """
        self._model: Any = model
        self._processor: Any = processor
        self.placeholder = str(getattr(processor, "image_token", None) or "")
        """What stands for one image in a prompt that the chat template has written."""
        token: int | None = getattr(model.config, "image_token_id", None)
        if token is None or not self.placeholder:
            name = type(processor).__name__
            raise ConfigError(f"{name} and its model name no image token; pass tokenizer=... to read text alone")
        self.token = token
        """The token that the model replaces by what it sees."""
        self.vocabulary = int(cast(torch.Tensor, self._model.get_input_embeddings().weight).shape[0])
        """Numbers from here on are image tokens."""
        self.forget()

    @property
    def held(self) -> int:
        """How many image tokens have a number."""
        return sum(picture.count for picture in self._pictures.values())

    def forget(self) -> None:
        """Free the images; numbers given out before mean nothing afterwards."""
        self._pictures: dict[tuple[Any, ...], Picture] = {}
        self._unseen: list[tuple[Picture, dict[str, Any]]] = []
        weight: torch.Tensor = self._model.get_input_embeddings().weight
        self._rows = weight.new_empty(0, weight.shape[1])
        self._shown: tuple[list[Picture], dict[str, Any]] = ([], {})

    def expand(self, text: str, images: Sequence[Image]) -> tuple[str, tuple[Picture, ...]]:
        """Return the prompt `text` with what stands for each image in its place, and the images.

        Raises:
            BackendError: The chat template does not show as many images.
            ConfigError: An image cannot be read.
            Unscorable: The processor refuses an image.
        """
        between = text.split(self.placeholder)
        if len(between) != len(images) + 1:
            shown, given = len(between) - 1, len(images)
            raise BackendError(
                f"the chat template of the model shows {shown} of {given} images; use one that shows all"
            )
        pictures = tuple(self._picture(decode(image)) for image in images)
        texts = [picture.text for picture in pictures]
        return "".join(chain.from_iterable(zip(between, [*texts, ""], strict=True))), pictures

    def number(self, tokens: Sequence[int], pictures: Sequence[Picture]) -> list[int]:
        """Return `tokens` with the image tokens numbered, those of `pictures` in order."""
        numbers = chain.from_iterable(range(picture.first, picture.first + picture.count) for picture in pictures)
        return [next(numbers, token) if token == self.token else token for token in tokens]

    def embed(self, numbers: Sequence[int]) -> torch.Tensor:
        """Return what stands at the input of the language model, [1, Q, hidden]: words embedded, images as seen."""
        numbers_Q = torch.tensor(numbers, device=self._model.device)
        seen_Q = numbers_Q >= self.vocabulary
        inputs_QH = self._model.get_input_embeddings()(numbers_Q.masked_fill(seen_Q, self.token))
        inputs_QH[seen_Q] = self._seen()[numbers_Q[seen_Q] - self.vocabulary]
        return inputs_QH[None]

    def inputs(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return what the model takes for one whole sequence, its images included."""
        starts = {picture.first: picture for picture in self._pictures.values()}
        shown = [starts[number] for number in numbers if number in starts]
        if shown != self._shown[0]:
            self._shown = shown, self._prepared([picture.image for picture in shown])
        ids = torch.tensor([[min(number, self.vocabulary) for number in numbers]], device=self._model.device)
        seen = ids == self.vocabulary
        kinds = {name: seen.long() for name in _KINDS if name in self._shown[1]}
        return {"input_ids": ids.masked_fill(seen, self.token), **_pixels(self._shown[1]), **kinds}

    def _picture(self, image: Any) -> Picture:
        key = image.size, hashlib.sha256(image.tobytes()).digest()
        if key not in self._pictures:
            prepared = self._prepared([image])
            tokens: list[int] = prepared["input_ids"][0].tolist()
            # Spelled out, so that prompt and answer stay one text that is cut into tokens as the model learned it.
            text = str(self._processor.tokenizer.decode(tokens, clean_up_tokenization_spaces=False))
            first = self.vocabulary + self.held
            self._pictures[key] = Picture(image, text, first, tokens.count(self.token))
            self._unseen.append((self._pictures[key], _pixels(prepared)))
        return self._pictures[key]

    def _prepared(self, images: list[Any]) -> dict[str, Any]:
        """Return what the processor makes of a prompt that holds `images` and nothing else."""
        how = {"add_special_tokens": False, "return_tensors": "pt"}
        try:
            made = self._processor(text=[self.placeholder * len(images)], images=[images], **how)
        except Exception as error:  # processors check sizes, shapes and ratios, each in its own way
            sizes = ", ".join(f"{image.width}x{image.height}" for image in images)
            raise Unscorable(f"the processor of the model refuses images of {sizes} pixels: {error}") from error
        return dict(made.to(device=self._model.device, dtype=self._model.dtype))

    def _seen(self) -> torch.Tensor:
        """Return what the model sees of all images, [held, hidden], in the order of the numbers."""
        new = [self._look(picture, pixels) for picture, pixels in self._unseen]
        self._rows, self._unseen = torch.cat([self._rows, *new]), []
        return self._rows

    def _look(self, picture: Picture, pixels: dict[str, Any]) -> torch.Tensor:
        made = self._model.get_image_features(**pixels)
        made = getattr(made, "pooler_output", made)
        rows = made if isinstance(made, torch.Tensor) else torch.cat(list(made))
        rows = rows.reshape(-1, rows.shape[-1])
        if len(rows) != picture.count:
            raise ValueError(f"{picture.count} image tokens, and {len(rows)} rows of image features")
        return rows.to(self._rows.dtype)


def _pixels(prepared: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in prepared.items() if name not in (*_PER_TOKEN, *_KINDS)}
