"""Backends: who answers. Each loads its package on first use, so importing this module costs nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_reward.backends.openai_compatible import OpenAICompatible
    from rl_reward.backends.simulated import Simulated
    from rl_reward.backends.transformers_local import TransformersLocal

_HOMES = {
    "OpenAICompatible": "openai_compatible",
    "Simulated": "simulated",
    "TransformersLocal": "transformers_local",
}

__all__ = ["OpenAICompatible", "Simulated", "TransformersLocal"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"rl_reward.backends has no {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"rl_reward.backends.{_HOMES[name]}"), name)
