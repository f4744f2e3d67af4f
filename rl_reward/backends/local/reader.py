"""Reads next-token distributions of many token sequences from one causal LM, each shared prefix once."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache, PreTrainedModel

from rl_reward.backends.local.prefixes import Ints, Pass, TokenTree
from rl_reward.backends.local.vision import Vision

_log = logging.getLogger(__name__)

# Rotary variants whose angles depend on the longest position in the batch: there a batch changes its members.
_BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")


class CausalReader:
    """Next-token log-probabilities, exact over the whole vocabulary.

    The tokens of a batch lie in one row. Each attends to its own prefix only (a mask) and stands at its own position
    (`position_ids`), so a prefix that many sequences share is one run of tokens. Keys and values stay until `forget`,
    and sequences that continue earlier ones cost their new tokens alone. A model that cannot do this (recurrent layers,
    positions by index) is found out once, here, and is then given one sequence at a time.

    Images are tokens with numbers of their own (`Vision`): each distinct one is looked at once, and what stands before
    and after it is shared like words. That is right where the language model takes an image as inputs in a row. A model
    that does more with it (attention both ways inside an image, positions in rows and columns) is found out by the
    first sequence with an image, which is read in both ways; sequences with images are then read one at a time.
    """

    def __init__(self, model: PreTrainedModel, *, pass_tokens: int, vision: Vision | None = None) -> None:
        """Read with `model`, at most `pass_tokens` tokens in one forward pass; `vision` holds the images."""
        self._model = model
        self._vision = vision
        self._pass_tokens = pass_tokens
        accepted = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        self._picks_rows = "logits_to_keep" in accepted
        self._windows = _windows(model)
        self.tokens_read = 0
        """Tokens that went through the model so far."""
        self.forget()
        self.shares_prefixes = self._check()
        """Whether shared prefixes are read once."""
        self.shares_images: bool | None = None if vision and self.shares_prefixes else False
        """Whether that holds with images in them; None until the first sequence with one."""

    def __len__(self) -> int:
        """Return the number of tokens whose keys and values are held."""
        return len(self._tree)

    def forget(self) -> None:
        """Free the keys and values."""
        self._tree = TokenTree()
        self._held: list[tuple[torch.Tensor, torch.Tensor]] = []

    @torch.inference_mode()
    def read(self, sequences: Sequence[list[int]]) -> torch.Tensor:
        """Return natural log-probabilities of the token after each sequence, float32 [N, V] on the model's device."""
        together = [i for i, tokens in enumerate(sequences) if self._can_share(tokens)]
        row_of = dict(zip(together, self._shared([sequences[i] for i in together]), strict=True))
        return torch.stack([row_of[i] if i in row_of else self._plain(t) for i, t in enumerate(sequences)])

    def _can_share(self, tokens: list[int]) -> bool:
        if self._sight(tokens) is None:
            return self.shares_prefixes
        if self.shares_images is None:
            self.shares_images = self._agrees("prompt with images", [tokens])
        return self.shares_images

    def _sight(self, tokens: list[int]) -> Vision | None:
        """Return what holds the images in `tokens`, None where there are none."""
        return self._vision if self._vision and max(tokens) >= self._vision.vocabulary else None

    def _plain(self, tokens: list[int]) -> torch.Tensor:
        """Return the log-probabilities [V] after one sequence, from one forward pass over all of it."""
        sight = self._sight(tokens)
        inputs = sight.inputs(tokens) if sight else self._words(tokens)
        return self._forward(tokens, np.array([len(tokens) - 1]), use_cache=False, **inputs)[0]

    def _shared(self, sequences: Sequence[list[int]]) -> list[torch.Tensor]:
        row_of: dict[int, torch.Tensor] = {}
        for step in self._tree.grow(sequences, self._pass_tokens):
            row_of.update(zip(step.sequences_R.tolist(), self._run(step), strict=True))
        return [row_of[i] for i in range(len(sequences))]

    def _run(self, step: Pass) -> torch.Tensor:
        """Run one pass, hold its keys and values, return the log-probabilities [R, V] at its ends."""
        stored, tokens = self._tensor(step.stored_C), step.tokens_Q.tolist()
        cache: Any = DynamicCache()
        for layer, (keys, values) in enumerate(self._held):
            cache.update(keys[:, :, stored], values[:, :, stored], layer)
        how = {"position_ids": self._tensor(step.positions_Q)[None], "attention_mask": self._mask(step)}
        sight = self._sight(tokens)
        how |= {"inputs_embeds": sight.embed(tokens)} if sight else self._words(tokens)
        logprobs = self._forward(tokens, step.rows_R, use_cache=True, **how, **{self._cache_name: cache})
        fresh = [(layer.keys[:, :, len(stored) :], layer.values[:, :, len(stored) :]) for layer in cache.layers]
        self._held = [_joined(old, new) for old, new in zip(self._held, fresh, strict=True)] if self._held else fresh
        return logprobs

    def _words(self, tokens: list[int]) -> dict[str, torch.Tensor]:
        return {"input_ids": self._tensor([tokens])}

    def _forward(self, tokens: list[int], rows_R: Ints, **how: Any) -> torch.Tensor:
        """Return the log-probabilities [R, V] at `rows_R` of one pass over `tokens`; `how` goes to the model."""
        rows = self._tensor(rows_R)
        if self._picks_rows:
            how["logits_to_keep"] = rows
        self.tokens_read += len(tokens)
        logits_QV = cast(torch.Tensor, self._model(**how).logits)[0]
        return torch.log_softmax((logits_QV if self._picks_rows else logits_QV[rows]).float(), dim=-1)

    def _mask(self, step: Pass) -> torch.Tensor | dict[str, torch.Tensor]:
        """Return what each kind of layer adds to its attention scores, float [1, 1, Q, K]: 0, or the lowest number."""
        distance_QK = step.positions_Q[:, None] - step.positions_K[None]
        masks = {
            kind: self._additive(step.visible_QK if window is None else step.visible_QK & (distance_QK < window))
            for kind, window in (self._windows or {}).items()
        }
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _additive(self, visible_QK: NDArray[np.bool_]) -> torch.Tensor:
        hidden = self._tensor(~visible_QK)
        # A float mask means the same to every attention kernel; a boolean one is added as 0 and 1 by the eager kernel.
        mask = torch.zeros(hidden.shape, dtype=self._model.dtype, device=hidden.device)
        return mask.masked_fill_(hidden, torch.finfo(mask.dtype).min)[None, None]

    def _tensor(self, values: Any) -> torch.Tensor:
        return torch.tensor(values, device=self._model.device)

    @torch.inference_mode()
    def _check(self) -> bool:
        """Return whether shared reading gives what plain reading gives on a few short sequences of this model."""
        if self._windows is None:
            return self._warn("prompt", "its layers or positions do not allow it")
        vocabulary = cast(torch.Tensor, self._model.get_input_embeddings().weight).shape[0]
        tokens: list[int] = np.random.default_rng(0).integers(vocabulary, size=30).tolist()
        return self._agrees(
            "prompt", [tokens[:12], tokens[:7] + tokens[12:18], tokens[:7] + tokens[12:15] + tokens[20:24], tokens[24:]]
        )

    def _agrees(self, what: str, sequences: list[list[int]]) -> bool:
        """Return whether shared and plain reading of `sequences` agree; say so in the log if not."""
        limit = 1e-3 if self._model.dtype == torch.float32 else 0.5
        try:
            plain = torch.stack([self._plain(tokens) for tokens in sequences])
            gap = float((torch.stack(self._shared(sequences)) - plain).abs().max())
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # model code of any origin: whatever it raises means that it cannot do this
            return self._warn(what, f"{type(error).__name__}: {error}")
        finally:
            self.forget()
        return gap <= limit or self._warn(what, f"log-probabilities with shared prefixes differ by {gap:.2g}")

    def _warn(self, what: str, why: str) -> bool:
        _log.warning("%s is given one %s at a time: %s", type(self._model).__name__, what, why)
        return False


Pair = tuple[torch.Tensor, torch.Tensor]


def _joined(old: Pair, new: Pair) -> Pair:
    return torch.cat([old[0], new[0]], dim=2), torch.cat([old[1], new[1]], dim=2)


def _windows(model: PreTrainedModel) -> dict[str, int | None] | None:
    """Return the attention window of each kind of layer (None: unlimited), or None if there are other kinds."""
    config = cast(Any, model.config).get_text_config()
    window = getattr(config, "sliding_window", None)
    kinds: set[str] = set(getattr(config, "layer_types", None) or ["sliding_attention" if window else "full_attention"])
    rope = repr(getattr(config, "rope_parameters", None))
    if not kinds <= {"full_attention", "sliding_attention"} or any(name in rope for name in _BATCH_DEPENDENT_ROPE):
        return None
    return {kind: window if kind == "sliding_attention" else None for kind in kinds}
