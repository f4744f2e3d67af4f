"""The weight of a verifier reward (beta of the paper) over training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rl_reward._checks import check_number
from rl_reward.errors import ConfigError

Weight = float | tuple[float, float] | Callable[[float], float]
"""A constant, (start, end) of a line over training, or a function of progress in [0, 1]. Weights are >= 0."""


class TrainerState(Protocol):
    """The part of transformers' TrainerState that a schedule reads."""

    global_step: int
    """Optimizer steps done."""
    max_steps: int
    """Optimizer steps of the whole training; 0 or less before it starts."""


def checked_weight(weight: Weight) -> Weight:
    """Return the weight as floats.

    Raises:
        ConfigError: It is negative or not finite, or a line without exactly a start and an end.
    """
    if callable(weight):
        return weight
    if not isinstance(weight, (tuple, list)):
        return _checked(weight)
    if len(weight) != 2:
        raise ConfigError(f"a weight that changes is (start, end), got {weight}")
    return _checked(weight[0]), _checked(weight[1])


def weight_at(weight: Weight, state: TrainerState | None) -> float:
    """Return the weight now.

    Raises:
        ConfigError: The weight changes but there is no `state` to tell the progress, or a function gave a bad weight.
    """
    if isinstance(weight, (int, float)):
        return weight
    if state is None:
        raise ConfigError("this trainer passes no trainer_state, so a changing weight is unknown; give a constant one")
    progress = min(state.global_step / state.max_steps, 1.0) if state.max_steps > 0 else 0.0
    if callable(weight):
        return _checked(weight(progress))
    start, end = weight
    return start + (end - start) * progress


def _checked(weight: float) -> float:
    return check_number("weight", weight, least=0)
