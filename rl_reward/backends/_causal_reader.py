"""Reads next-token distributions of many token sequences from one causal LM, each shared prefix once."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from rl_reward.backends._shared_prefix import Pass, TokenTree

_log = logging.getLogger(__name__)

# Rotary variants whose angles depend on the longest sequence of the batch, so that a batch changes its members.
_BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")


class CausalReader:
    """Next-token log-probabilities, exact over the whole vocabulary.

    All sequences of a batch lie in one row of tokens. A token attends to its own prefix only (a mask) and stands at its
    own position (`position_ids`), so a prefix shared by many sequences is one run of tokens in that row. Keys and values
    stay until `forget`, so sequences that continue earlier ones cost their new tokens alone. A model that cannot do
    this (recurrent layers, positions by index) is found out once, here, and then reads one sequence at a time.
    """

    def __init__(self, model: PreTrainedModel, *, pass_tokens: int) -> None:
        """Read with `model`, at most `pass_tokens` tokens in one forward pass."""
        self._model = model
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

    def __len__(self) -> int:
        """Return the number of tokens whose keys and values are held."""
        return len(self._tree)

    def forget(self) -> None:
        """Free the keys and values."""
        self._tree = TokenTree()
        self._keys_values: list[tuple[torch.Tensor, torch.Tensor]] = []

    @torch.inference_mode()
    def read(self, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return the natural log-probabilities of the token after each sequence, float32 [N, V] on the model's device."""
        return self._shared(sequences) if self.shares_prefixes else self._plain(sequences)

    def _plain(self, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
        rows = [self._forward(np.array(tokens), np.array([len(tokens) - 1]), use_cache=False) for tokens in sequences]
        return torch.cat(rows)

    def _shared(self, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
        rows_N: list[torch.Tensor | None] = [None] * len(sequences)
        for step in self._tree.grow(sequences, self._pass_tokens):
            for i, row in zip(step.sequences_R.tolist(), self._run(step), strict=True):
                rows_N[i] = row
        return torch.stack([row for row in rows_N if row is not None])

    def _run(self, step: Pass) -> torch.Tensor:
        """Run one pass, store its keys and values, return the log-probabilities [R, V] at its ends."""
        stored = torch.from_numpy(step.stored_C).to(self._model.device)
        cache = DynamicCache()
        for layer, (keys, values) in enumerate(self._keys_values):
            cache.update(keys[:, :, stored], values[:, :, stored], layer)
        positions = torch.from_numpy(step.positions_Q)[None].to(self._model.device)
        logprobs = self._forward(
            step.tokens_Q,
            step.rows_R,
            use_cache=True,
            position_ids=positions,
            attention_mask=self._mask(step),
            **{self._cache_name: cache},
        )
        self._store(cache, len(step.stored_C))
        return logprobs

    def _forward(self, tokens_Q: Any, rows_R: Any, **inputs: Any) -> torch.Tensor:
        device = self._model.device
        rows = torch.from_numpy(rows_R).to(device)
        if self._picks_rows:
            inputs["logits_to_keep"] = rows
        self.tokens_read += len(tokens_Q)
        logits = cast(torch.Tensor, self._model(torch.from_numpy(tokens_Q)[None].to(device), **inputs).logits)[0]
        return torch.log_softmax((logits if self._picks_rows else logits[rows]).float(), dim=-1)

    def _store(self, cache: DynamicCache, known: int) -> None:
        """Append to each layer the keys and values behind the first `known` of `cache`."""
        fresh = [
            (cast(torch.Tensor, layer.keys)[:, :, known:], cast(torch.Tensor, layer.values)[:, :, known:])
            for layer in cache.layers
        ]
        held = self._keys_values
        self._keys_values = [
            (torch.cat([k, new_k], dim=2), torch.cat([v, new_v], dim=2))
            for (k, v), (new_k, new_v) in zip(held, fresh, strict=True)
        ] if held else fresh

    def _mask(self, step: Pass) -> torch.Tensor | dict[str, torch.Tensor]:
        """Return what each kind of layer adds to its attention scores, float [1, 1, Q, K]: 0, or the lowest number."""
        distance_QK = step.positions_Q[:, None] - step.positions_K[None]
        masks = {
            kind: self._additive(step.visible_QK if window is None else step.visible_QK & (distance_QK < window))
            for kind, window in (self._windows or {}).items()
        }
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _additive(self, visible_QK: Any) -> torch.Tensor:
        visible = torch.from_numpy(visible_QK).to(self._model.device)
        # A float mask means the same to every attention kernel; a boolean one is added as 0 and 1 by the eager kernel.
        mask = torch.zeros(visible.shape, dtype=self._model.dtype, device=visible.device)
        return mask.masked_fill_(~visible, torch.finfo(mask.dtype).min)[None, None]

    @torch.inference_mode()
    def _check(self) -> bool:
        """Return whether shared reading gives what plain reading gives on a few short sequences of this model."""
        if self._windows is None:
            return False
        vocabulary = self._model.get_input_embeddings().weight.shape[0]
        tokens = np.random.default_rng(0).integers(vocabulary, size=30).tolist()
        sequences = [tokens[:12], tokens[:7] + tokens[12:18], tokens[:7] + tokens[12:15] + tokens[20:24], tokens[24:]]
        limit = 1e-3 if self._model.dtype == torch.float32 else 0.5
        try:
            gap = float((self._shared(sequences) - self._plain(sequences)).abs().max())
        except Exception as error:  # other people's model code: any failure means that it cannot do this
            gap, why = float("inf"), f"{type(error).__name__}: {error}"
        else:
            why = f"log-probabilities differ by {gap:.2g}"
        self.forget()
        self.tokens_read = 0
        if gap > limit:
            _log.warning("%s reads one prompt at a time, shared prefixes again: %s", type(self._model).__name__, why)
        return gap <= limit


def _windows(model: PreTrainedModel) -> dict[str, int | None] | None:
    """Return the attention window of each kind of layer (None: unlimited), or None if there are other kinds."""
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ["sliding_attention" if window else "full_attention"])
    rope = repr(getattr(config, "rope_parameters", None))
    if not kinds <= {"full_attention", "sliding_attention"} or any(name in rope for name in _BATCH_DEPENDENT_ROPE):
        return None
    return {kind: window if kind == "sliding_attention" else None for kind in kinds}
