"""Backends by their short names, as the command line and configurations write them."""

from __future__ import annotations

from pathlib import Path

import rl_reward.models as models
from rl_reward.backends.base import Backend
from rl_reward.errors import ConfigError

FORMS = "openai:MODEL or local:FOLDER"
# Experiments ask again and again behind the same examples, seconds apart.
_KEEP_SECONDS = 60.0


def is_model(spec: str) -> bool:
    """Return whether `spec` names a language model: openai:MODEL or local:FOLDER."""
    kind, _, name = spec.partition(":")
    return kind in ("openai", "local") and bool(name)


def model_backend(spec: str, *, base_url: str | None = None) -> Backend:
    """Return the backend that `spec` names; local:NAME also finds a model that `rl-reward fetch-model NAME` fetched.

    Raises:
        ConfigError: It has another form, a local model comes with an address, or is not fetched yet.
        MissingExtraError: The packages of the backend are not installed.
    """
    kind, _, name = spec.partition(":")
    if not is_model(spec):
        raise ConfigError(f"a judge must be {FORMS}, got {spec!r}")
    if kind == "local" and base_url is not None:
        raise ConfigError(f"base_url belongs to openai:MODEL, got it with {spec!r}; leave it out")
    # Imported here because each needs packages the other does without.
    if kind == "openai":
        from rl_reward.backends.openai_compatible import OpenAICompatible

        return OpenAICompatible(name, base_url=base_url)
    from rl_reward.backends.transformers_local import TransformersLocal

    return TransformersLocal(fetched(name), keep_seconds=_KEEP_SECONDS)


def fetched(name: str) -> str | Path:
    """Return where the local model `name` is: what the user has here comes before the models we know by name.

    Raises:
        ConfigError: We know it by name, and it is not fetched yet.
    """
    return models.folder(name) if name in models.MODELS and not Path(name).exists() else name
