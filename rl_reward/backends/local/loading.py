"""Finds a causal LM, or one that sees, on this machine and loads it; nothing is ever fetched."""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub import try_to_load_from_cache
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from rl_reward.errors import ConfigError

_log = logging.getLogger(__name__)

_CONTENT = {".json", ".safetensors", ".gguf", ".bin", ".jinja", ".model", ".txt"}
_PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")


@dataclass(frozen=True)
class Location:
    """Where a model is."""

    source: str
    """A folder, or the hub id of a downloaded model."""
    gguf_file: str | None
    """Its GGUF file, where it is one."""

    @cached_property
    def fingerprint(self) -> str | None:
        """A hash of the files in the folder, or of the GGUF file; None for a hub id, which names no version."""
        folder = Path(self.source)
        if not folder.is_dir():
            return None
        digest = hashlib.sha256()
        for file in [folder / self.gguf_file] if self.gguf_file else sorted(folder.glob("*.*")):
            if file.suffix in _CONTENT:
                digest.update(file.name.encode())
                with file.open("rb") as opened:
                    digest.update(hashlib.file_digest(opened, "sha256").digest())
        return digest.hexdigest()

    @property
    def sees(self) -> bool:
        """Whether it is an image-text-to-text model that has its image processor with it."""
        configs: Any = PreTrainedConfig
        try:
            config: dict[str, Any] = configs.get_config_dict(self.source, local_files_only=True)[0]
        except (OSError, ValueError):
            return False  # it has none, or loading it will say what is wrong with it
        known = config.get("model_type") in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
        return known and self.gguf_file is None and any(_has(self.source, name) for name in _PROCESSOR_FILES)


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


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model in memory."""

    model: PreTrainedModel
    """The model."""
    tokenizer: PreTrainedTokenizerBase
    """Its tokenizer."""
    processor: ProcessorMixin | None = None
    """What prepares images for it, None where it reads text alone."""
    blind: str = "describe the steps in words, or use a model that sees"
    """Why it reads text alone, or what to do about it."""

    @classmethod
    def of(cls, model: PreTrainedModel, reads: PreTrainedTokenizerBase | ProcessorMixin, blind: str = "") -> Loaded:
        """Return `model` with a tokenizer, or with a processor and the tokenizer in it."""
        if isinstance(reads, ProcessorMixin):
            return cls(model, cast(Any, reads).tokenizer, reads)
        return cls(model, reads, blind=blind or cls.blind)


def load(
    location: Location,
    reads: PreTrainedTokenizerBase | ProcessorMixin | None,
    device: str | None,
    dtype: torch.dtype | str | None,
) -> Loaded:
    """Load the model and what prepares its prompts.

    Args:
        location: Where it is.
        reads: Used instead of what is beside the model; a model that sees reads text alone with a mere tokenizer.
        device: By default CUDA where there is one, else "cpu".
        dtype: By default float32 on CPU, elsewhere that of the checkpoint.

    Raises:
        ConfigError: The files do not make a causal LM, or there is no such device.
    """
    place, blind, sees = _device(device), "", location.sees
    dtype = dtype or (torch.float32 if place.type == "cpu" else "auto")
    if reads is None and sees:
        reads, blind = _processor(location)
    where: dict[str, Any] = {"gguf_file": location.gguf_file, "local_files_only": True}
    # The factories are typed for their class attributes, not for what they return.
    tokenizers: Any = AutoTokenizer
    models: Any = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    try:
        reads = reads or tokenizers.from_pretrained(location.source, **where)
        model = models.from_pretrained(location.source, dtype=dtype, **where)
    except Exception as error:  # a broken file shows as any kind of error
        raise ConfigError(f"{location.source} does not load as a causal LM: {_reason(error)}") from error
    assert reads is not None
    return Loaded.of(model.to(place), reads, blind)


def _processor(location: Location) -> tuple[ProcessorMixin | None, str]:
    """Return the processor of a model that sees; None and the reason where it does not load, for text is still read."""
    processors: Any = AutoProcessor
    try:
        return processors.from_pretrained(location.source, local_files_only=True), ""
    except Exception as error:  # such as a package that this processor wants, often torchvision
        reason = f"its processor does not load, install what it lacks: {_reason(error).partition('. ')[0]}"
        _log.warning("%s reads text alone: %s", location.source, reason)
        return None, reason


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _has(source: str, name: str) -> bool:
    """Return whether a folder or a downloaded model holds the file `name`."""
    folder = Path(source)
    return (folder / name).is_file() if folder.is_dir() else isinstance(try_to_load_from_cache(source, name), str)


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
