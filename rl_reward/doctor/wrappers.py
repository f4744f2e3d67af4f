"""What the order of the wrappers spoils. Wrappers are known by their class names, so no host is imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rl_reward.doctor.finding import Finding
from rl_reward.doctor.visit import Visit, limit_of


def wrappers(seen: Visit) -> Iterator[Finding]:
    """Return what the wrappers around the environment do to rewards, ends and time limits."""
    names = [_name(layer) for layer in seen.layers]
    if not names:
        return
    problems = [*_resetting(names), *_monitor(seen.layers, names), *_limits(seen.layers, names)]
    yield from problems or [Finding("ok", "wrapper order", " > ".join(names))]
    yield from _normalised(seen.layers, names)


def _normalised(layers: list[Any], names: list[str]) -> Iterator[Finding]:
    for layer, name in zip(layers, names, strict=True):
        if name == "VecNormalize" and getattr(layer, "norm_reward", False):
            text = "VecNormalize(norm_reward=True) scales by returns that were never relabelled; set norm_reward=False"
            yield Finding("error", "reward normalisation", text)
        if name == "NormalizeReward":
            text = "NormalizeReward scales by returns that were never relabelled; remove it"
            yield Finding("error", "reward normalisation", text)


def _resetting(names: list[str]) -> Iterator[Finding]:
    for name in names:
        if name.lower() == "autoreset":
            text = f"{name} resets the env itself, so SB3's VecEnv never sees the last step of an episode; remove it"
            yield Finding("error", "wrapper order", text)


def _monitor(layers: list[Any], names: list[str]) -> Iterator[Finding]:
    """A Monitor must see the rewards and the ends that the agent sees."""
    if "Monitor" not in names:
        return
    outside = list(zip(layers, names, strict=True))[: names.index("Monitor")]
    for layer, name in outside:
        if name == "TimeLimit":
            text = "TimeLimit is outside Monitor, which then misses every episode that ends by time; put it inside"
            yield Finding("error", "wrapper order", text)
        elif _changes_rewards(layer):
            text = f"{name} is outside Monitor, so ep_rew_mean is not what the agent is paid; put Monitor outermost"
            yield Finding("warn", "wrapper order", text)


def _limits(layers: list[Any], names: list[str]) -> Iterator[Finding]:
    limits = [limit_of(layer) for layer, name in zip(layers, names, strict=True) if name == "TimeLimit"]
    if len(set(limits)) > 1:
        text = f"{len(limits)} TimeLimits, of {', '.join(map(str, limits))} steps from the outside in; keep one"
        yield Finding("warn", "wrapper order", text)


def _changes_rewards(layer: Any) -> bool:
    return any(kind.__name__ in ("RewardWrapper", "NormalizeReward") for kind in type(layer).__mro__)


def _name(layer: Any) -> str:
    return type(layer).__name__
