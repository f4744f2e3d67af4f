"""The small LLaMA-style policies of the additions: characters in, a working out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_reward.errors import MissingExtraError
from rl_reward.experiments.additions.task import ALPHABET

try:
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
except ImportError as error:
    raise MissingExtraError("transformers", "trl") from error

POLICIES = {"additions": Path(__file__).parent / "policy", "long-additions": Path(__file__).parent / "long_policy"}
"""The folder of the pretrained policy of each dataset, as `from_pretrained` reads it."""

MAX_NEW_TOKENS = {"additions": 12, "long-additions": 20}
"""Workings have at most 9 or 17 characters, and an end."""


def character_tokenizer(letters: str = "") -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token for each character of problems and workings, and for each of `letters`."""
    vocabulary = ["<pad>", "<eos>", "<unk>", *ALPHABET, *letters]
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(vocabulary)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def fresh_model(tokenizer: Any) -> LlamaForCausalLM:
    """Return an untrained model of 0.86 M parameters; its weights come from torch's global seed."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def load_policy(folder: Path = POLICIES["additions"]) -> tuple[Any, Any]:
    """Return the model in `folder`, in float32, and its tokenizer."""
    # Untyped: what transformers declares for these does not hold for every version.
    model_class: Any = LlamaForCausalLM
    tokenizer_class: Any = PreTrainedTokenizerFast
    return model_class.from_pretrained(folder, dtype=torch.float32), tokenizer_class.from_pretrained(folder)
