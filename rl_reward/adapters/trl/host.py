"""What a reward function can learn of the trainer that calls it: TRL passes neither the mode nor the group size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from rl_reward.errors import ConfigError


class Trainer(Protocol):
    """The part of GRPOTrainer that is read through the bound method `log_metric`."""

    model: Any
    num_generations: int
    num_generations_eval: int
    reward_func_names: Sequence[str]
    accelerator: Any


def trainer_behind(log_metric: Callable[[str, float], None] | None) -> Trainer | None:
    """Return the trainer that owns `log_metric`.

    TRL tells a reward function neither the mode nor the group size. It picks them itself by `trainer.model.training`,
    so that is asked here too.
    """
    owner = getattr(log_metric, "__self__", None)
    return cast(Trainer, owner) if hasattr(owner, "num_generations_eval") else None


def check_size(argument: str, given: int, trainer_argument: str, expected: int) -> None:
    """Raise ConfigError unless a size of ours equals the trainer's."""
    if given != expected:
        raise ConfigError(f"{argument} must equal the trainer's {trainer_argument}, {expected}, got {given}")


def check(holds: bool, message: str) -> None:
    """Raise ConfigError with `message` unless it holds."""
    if not holds:
        raise ConfigError(message)
