"""Finds a causal LM on this machine and loads it; nothing is ever fetched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub import try_to_load_from_cache
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from rl_reward.errors import ConfigError


@dataclass(frozen=True)
class Location:
    """Where a model is."""

    source: str
    """A folder, or the hub id of a downloaded model."""
    gguf_file: str | None
    """Its GGUF file, where it is one."""


def locate(source: str | Path, gguf_file: str | None) -> Location:
    """Find a model.

    Args:
        source: A folder with config.json and weights, a GGUF file or a folder with one, or a downloaded hub id.
        gguf_file: Which GGUF file of a folder that holds several.

    Raises:
        ConfigError: There is none.
    """
    path = Path(source).expanduser()
    try:
        path.stat()
    except FileNotFoundError:
        pass  # it may be a hub id
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot look for a model at {str(source)[:200]!r}: {error}") from error
    if path.is_file() and path.suffix == ".gguf":
        return Location(str(path.parent), path.name)
    if path.is_dir():
        if gguf_file is None and (path / "config.json").is_file():
            return Location(str(path), None)
        found = [file.name for file in sorted(path.glob("*.gguf")) if gguf_file in (None, file.name)]
        if len(found) == 1:
            return Location(str(path), found[0])
        wanted = "config.json or one GGUF file" if gguf_file is None else gguf_file
        raise ConfigError(f"{path} should hold {wanted}, it holds {_names(path)}; pass gguf_file=... to choose one")
    is_hub_id = re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", str(source)) is not None
    if is_hub_id and isinstance(try_to_load_from_cache(str(source), "config.json"), str):
        return Location(str(source), gguf_file)
    raise ConfigError(
        f"no model at {str(source)!r}; expected a folder with config.json and weights, a GGUF file or its folder, "
        "or the hub id of a model that is already downloaded"
    )


def load(
    location: Location, tokenizer: PreTrainedTokenizerBase | None, device: str | None, dtype: torch.dtype | str | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the model, and its tokenizer unless one is given.

    Args:
        location: Where it is.
        tokenizer: Used instead of the one beside the model.
        device: By default CUDA where there is one, else "cpu".
        dtype: By default float32 on CPU, elsewhere that of the checkpoint.

    Raises:
        ConfigError: The files do not make a causal LM, or there is no such device.
    """
    place = _device(device)
    dtype = dtype or (torch.float32 if place.type == "cpu" else "auto")
    where: dict[str, Any] = {"gguf_file": location.gguf_file, "local_files_only": True}
    # The factories are typed for their class attributes, not for what they return.
    tokenizers: Any = AutoTokenizer
    models: Any = AutoModelForCausalLM
    try:
        tokenizer = tokenizer or tokenizers.from_pretrained(location.source, **where)
        model = models.from_pretrained(location.source, dtype=dtype, **where)
    except Exception as error:  # a broken file shows as any kind of error
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ConfigError(f"{location.source} does not load as a causal LM: {reason}") from error
    assert tokenizer is not None
    return model.to(place), tokenizer


def _device(name: str | None) -> torch.device:
    has_cuda = torch.cuda.is_available()
    try:
        device = torch.device(name or ("cuda" if has_cuda else "cpu"))
    except RuntimeError as error:
        raise ConfigError(f'device must be like "cpu" or "cuda:0", got {name!r}') from error
    if device.type == "cuda" and not has_cuda:
        raise ConfigError(f'device={name!r}, but torch sees no CUDA here; use device="cpu"')
    return device


def stops(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the tokens that end an answer."""
    ends = cast(list[int | list[int] | None], [getattr(model.generation_config, "eos_token_id", None)])
    ends.append(cast(Any, tokenizer).eos_token_id)
    return frozenset(i for end in ends if end is not None for i in (end if isinstance(end, list) else [end]))


def context(model: PreTrainedModel) -> int | None:
    """Return the longest sequence that `model` reads, None where it does not say."""
    return getattr(cast(Any, model.config).get_text_config(), "max_position_embeddings", None)


def _names(folder: Path) -> str:
    names = [file.name for file in sorted(folder.iterdir())]
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") or "nothing"
