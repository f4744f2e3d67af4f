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
    max_completion_length: int | None
    eos_token_ids: Sequence[int]
    reward_func_names: Sequence[str]
    accelerator: Any


def trainer_behind(log_metric: Callable[[str, float], None] | None) -> Trainer | None:
    """Return the trainer that owns `log_metric`.

    TRL tells a reward function neither the mode nor the group size. It picks them itself by `trainer.model.training`,
    so that is asked here too.
    """
    owner = getattr(log_metric, "__self__", None)
    return cast(Trainer, owner) if hasattr(owner, "num_generations_eval") else None


def check_host(
    trainer: Trainer | None, *, name: str, group_size: int, eval_group_size: int | None, processes: int
) -> None:
    """Refuse a trainer that groups, counts processes or names its rewards in another way.

    Raises:
        ConfigError: A group size or the number of processes is not the trainer's, or two rewards share `name`.
    """
    if trainer is None:
        return
    check_size("group_size", group_size, "num_generations", trainer.num_generations)
    given = eval_group_size or trainer.num_generations_eval
    check_size("eval_group_size", given, "num_generations_eval", trainer.num_generations_eval)
    namesakes = list(trainer.reward_func_names).count(name)
    check(namesakes <= 1, f"{namesakes} reward functions are named {name!r}; give each its own name=")
    seen = trainer.accelerator.num_processes
    check(seen == processes, f"the trainer runs {seen} processes but torch.distributed knows of {processes}")


def group_size_now(trainer: Trainer | None, group_size: int) -> int:
    """Return the group size of this call; without a trainer to ask (TRL's async one) it is a training call."""
    return group_size if trainer is None or trainer.model.training else trainer.num_generations_eval


def check_size(argument: str, given: int, trainer_argument: str, expected: int) -> None:
    """Raise ConfigError unless a size of ours equals the trainer's."""
    if given != expected:
        raise ConfigError(f"{argument} must equal the trainer's {trainer_argument}, {expected}, got {given}")


def check(holds: bool, message: str) -> None:
    """Raise ConfigError with `message` unless it holds."""
    if not holds:
        raise ConfigError(message)
