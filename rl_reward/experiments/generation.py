"""What a causal language model writes for a batch of prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_reward.adapters.trl import Text
from rl_reward.errors import MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "trl") from error


def completions(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Text],
    *,
    max_new_tokens: int,
    temperature: float | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return a completion of each prompt: greedy, or sampled at `temperature` with torch's global seed.

    Prompts are all text or all messages; messages go through the chat template.
    """
    batch = encode(tokenizer, prompts, chat_template_kwargs or {}).to(model.device)
    sampling = {"do_sample": temperature is not None, "temperature": temperature, "top_k": 0 if temperature else None}
    with torch.inference_mode():
        written_NT = model.generate(**batch, **sampling, top_p=None, max_new_tokens=max_new_tokens)
    return tokenizer.batch_decode(written_NT[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)


def encode(tokenizer: Any, prompts: Sequence[Text], chat_template_kwargs: Mapping[str, Any]) -> Any:
    """Return token ids and attention mask of the prompts, int [N, L], padded on the left."""
    plain = isinstance(prompts[0], str)
    options = {**chat_template_kwargs, "tokenize": False, "add_generation_prompt": True}
    texts = [prompt if plain else tokenizer.apply_chat_template(prompt, **options) for prompt in prompts]
    return tokenizer(
        texts,
        padding=True,
        padding_side="left",
        add_special_tokens=plain,  # a chat template writes its own
        return_token_type_ids=False,
        return_tensors="pt",
    )
