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

    What sequences share is read first, what branches off it in rows beside each other. Each token attends to its own
    prefix only (a mask) and stands at its own position (`position_ids`), so several branches fit into a row. Keys and
    values stay until `forget`, and sequences that continue earlier ones cost their new tokens alone. A model that
    cannot do this (recurrent layers, positions by index) is found out once, here, and is then given one sequence at a
    time.

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
        self._picks_columns = "logits_to_keep" in accepted
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
        self._held: list[tuple[torch.Tensor, ...]] = []

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
        inputs = sight.inputs(tokens) if sight else {"input_ids": self._tensor([tokens])}
        self.tokens_read += len(tokens)
        return self._forward(np.array([0]), np.array([len(tokens) - 1]), use_cache=False, **inputs)[0]

    def _shared(self, sequences: Sequence[list[int]], limit: int | None = None) -> list[torch.Tensor]:
        row_of: dict[int, torch.Tensor] = {}
        for step in self._tree.grow(sequences, limit or self._pass_tokens):
            row_of.update(zip(step.sequences_R.tolist(), self._run(step), strict=True))
        return [row_of[i] for i in range(len(sequences))]

    def _run(self, step: Pass) -> torch.Tensor:
        """Run one pass, hold its keys and values, return the log-probabilities [R, V] at its ends."""
        cache: Any = DynamicCache()
        stored_BC = self._tensor(step.stored_BC)
        for layer, pair in enumerate(self._held):
            cache.update(*(held[:, stored_BC].transpose(0, 1) for held in pair), layer)
        how = {"position_ids": self._tensor(step.positions_BQ), "attention_mask": self._mask(step)}
        tokens = step.tokens_BQ.flatten().tolist()
        if sight := self._sight(tokens):
            how["inputs_embeds"] = sight.embed(tokens).reshape(*step.tokens_BQ.shape, -1)
        else:
            how["input_ids"] = self._tensor(step.tokens_BQ)
        self.tokens_read += int((step.nodes_BQ >= 0).sum())
        logprobs = self._forward(step.rows_R, step.columns_R, use_cache=True, **how, **{self._cache_name: cache})
        self._hold(step, cache)
        return logprobs

    def _hold(self, step: Pass, cache: Any) -> None:
        """Keep the new keys and values of `cache`, by node."""
        real_BQ = step.nodes_BQ >= 0
        nodes, (b, q) = self._tensor(step.nodes_BQ[real_BQ]), map(self._tensor, np.nonzero(real_BQ))
        if not self._held:
            self._held = [(_none_of(layer.keys), _none_of(layer.values)) for layer in cache.layers]
        self._held = [tuple(_roomy(held, len(self._tree)) for held in pair) for pair in self._held]
        for pair, layer in zip(self._held, cache.layers, strict=True):
            for held, seen in zip(pair, (layer.keys, layer.values), strict=True):
                held[:, nodes] = seen.transpose(0, 1)[:, b, q + step.stored_BC.shape[1]]

    def _forward(self, rows_R: Ints, columns_R: Ints, **how: Any) -> torch.Tensor:
        """Return the log-probabilities [R, V] at these places of one pass; `how` goes to the model."""
        if self._picks_columns:
            columns, columns_R = np.unique(columns_R, return_inverse=True)
            how["logits_to_keep"] = self._tensor(columns)
        logits_BQV = cast(torch.Tensor, self._model(**how).logits)
        return torch.log_softmax(logits_BQV[self._tensor(rows_R), self._tensor(columns_R)].float(), dim=-1)

    def _mask(self, step: Pass) -> torch.Tensor | dict[str, torch.Tensor]:
        """Return what each kind of layer adds to its attention scores, float [B, 1, Q, K]: 0, or the lowest number."""
        distance_BQK = step.positions_BQ[:, :, None] - step.positions_BK[:, None]
        masks = {
            kind: self._additive(step.visible_BQK if window is None else step.visible_BQK & (distance_BQK < window))
            for kind, window in (self._windows or {}).items()
        }
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _additive(self, visible_BQK: NDArray[np.bool_]) -> torch.Tensor:
        hidden = self._tensor(~visible_BQK)
        # A float mask means the same to every attention kernel; a boolean one is added as 0 and 1 by the eager kernel.
        mask = torch.zeros(hidden.shape, dtype=self._model.dtype, device=hidden.device)
        return mask.masked_fill_(hidden, torch.finfo(mask.dtype).min)[:, None]

    def _tensor(self, values: Any) -> torch.Tensor:
        return torch.tensor(values, device=self._model.device)

    @torch.inference_mode()
    def _check(self) -> bool:
        """Return whether shared reading gives what plain reading gives on a few short sequences of this model."""
        if self._windows is None:
            return self._warn("prompt", "its layers or positions do not allow it")
        vocabulary = cast(torch.Tensor, self._model.get_input_embeddings().weight).shape[0]
        tokens: list[int] = np.random.default_rng(0).integers(vocabulary, size=30).tolist()
        asked = [tokens[:12], tokens[:7] + tokens[12:18], tokens[:7] + tokens[12:15] + tokens[20:24], tokens[24:]]
        # A few tokens in a pass, so that there are stored tokens, several rows and padding.
        return self._agrees("prompt", asked, limit=min(12, self._pass_tokens))

    def _agrees(self, what: str, sequences: list[list[int]], limit: int | None = None) -> bool:
        """Return whether shared and plain reading of `sequences` agree; say so in the log if not."""
        allowed = 1e-3 if self._model.dtype == torch.float32 else 0.5
        try:
            plain = torch.stack([self._plain(tokens) for tokens in sequences])
            gap = float((torch.stack(self._shared(sequences, limit)) - plain).abs().max())
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # model code of any origin: whatever it raises means that it cannot do this
            return self._warn(what, f"{type(error).__name__}: {error}")
        finally:
            self.forget()
        return gap <= allowed or self._warn(what, f"log-probabilities with shared prefixes differ by {gap:.2g}")

    def _warn(self, what: str, why: str) -> bool:
        _log.warning("%s is given one %s at a time: %s", type(self._model).__name__, what, why)
        return False


def _none_of(seen_BHKD: torch.Tensor) -> torch.Tensor:
    """Return room for keys or values, [H, nodes, D], for none as yet."""
    return seen_BHKD.new_empty(seen_BHKD.shape[1], 0, seen_BHKD.shape[3])


def _roomy(held: torch.Tensor, nodes: int) -> torch.Tensor:
    """Return `held` with room for `nodes`; what it holds is copied once for all passes of a `read`."""
    missing = nodes - held.shape[1]
    # Padding points at nodes that may not be read yet: masked or not, a NaN left in memory would spread.
    return torch.cat([held, held.new_zeros(held.shape[0], missing, held.shape[2])], dim=1) if missing > 0 else held


def _windows(model: PreTrainedModel) -> dict[str, int | None] | None:
    """Return the attention window of each kind of layer (None: unlimited), or None if there are other kinds."""
    config = cast(Any, model.config).get_text_config()
    window = getattr(config, "sliding_window", None)
    kinds: set[str] = set(getattr(config, "layer_types", None) or ["sliding_attention" if window else "full_attention"])
    rope = repr(getattr(config, "rope_parameters", None))
    if not kinds <= {"full_attention", "sliding_attention"} or any(name in rope for name in _BATCH_DEPENDENT_ROPE):
        return None
    return {kind: window if kind == "sliding_attention" else None for kind in kinds}
