"""Looks for what silently spoils training on shaped rewards: in an environment, in the settings beside it, in versions.

for finding in examine(make_env, Training(learning_starts=1000, shaping=Shaping("potential", gamma=0.99))).findings:
    print(finding.severity, finding.check, finding.text)

It plays a few random episodes within a time limit and imports nothing heavy itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rl_reward._checks import check_int, check_number
from rl_reward.doctor.behaviour import behaviour
from rl_reward.doctor.finding import Finding
from rl_reward.doctor.settings import Training, settings
from rl_reward.doctor.versions import versions
from rl_reward.doctor.visit import Bounds, Visit, visit
from rl_reward.doctor.wrappers import wrappers

__all__ = ["Examination", "Finding", "Training", "Visit", "examine", "versions"]


@dataclass(frozen=True)
class Examination:
    """What was seen of an environment and what was found."""

    seen: Visit
    """The random episodes."""
    findings: tuple[Finding, ...]
    """What every check said, "ok" included."""


def examine(
    make_env: Callable[[], Any],
    training: Training | None = None,
    *,
    episodes: int = 3,
    max_steps: int = 2000,
    seconds: float = 120.0,
    seed: int = 0,
) -> Examination:
    """Build the environment, play it at random and check what it did.

    Args:
        make_env: Builds a gymnasium env or a VecEnv of stable-baselines3 (the first of its envs is watched).
        training: What the trainer is told; what is None there is not checked.
        episodes: Random episodes, >= 1.
        max_steps: Steps after which an episode counts as endless, >= 1; a declared time limit is waited for.
        seconds: Wall seconds, > 0, for building and playing. An env that hangs longer is a finding, and left hanging.
        seed: Of the resets and the actions.

    Raises:
        ConfigError: A bound is out of its range, or `make_env` raised it; so with every error of this package.
    """
    check_int("episodes", episodes, least=1)
    check_int("max_steps", max_steps, least=1)
    check_number("seconds", seconds, above=0)
    training = training or Training()
    seen = visit(make_env, Bounds(episodes, max_steps, seconds, seed))
    return Examination(seen, (*wrappers(seen), *behaviour(seen, training), *settings(seen, training)))
