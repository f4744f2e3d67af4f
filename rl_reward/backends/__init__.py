"""Backends: who answers, and wrappers around them. Each loads its package on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_reward.backends.cache import Cached
    from rl_reward.backends.limits import RateLimited
    from rl_reward.backends.openai_compatible import OpenAICompatible
    from rl_reward.backends.simulated import Simulated
    from rl_reward.backends.transformers_local import TransformersLocal
    from rl_reward.backends.usage import UsageMeter

_HOMES = {
    "Cached": "cache",
    "OpenAICompatible": "openai_compatible",
    "RateLimited": "limits",
    "Simulated": "simulated",
    "TransformersLocal": "transformers_local",
    "UsageMeter": "usage",
}

__all__ = ["Cached", "OpenAICompatible", "RateLimited", "Simulated", "TransformersLocal", "UsageMeter"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"rl_reward.backends has no {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"rl_reward.backends.{_HOMES[name]}"), name)
