"""Task environments by name; simulators are imported and built late, in the process that steps them."""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rl_reward._checks import check_known
from rl_reward.errors import ConfigError

if TYPE_CHECKING:
    from rl_reward.envs.base import TaskConfig, TaskEnv
    from rl_reward.envs.captions import Axes

FAMILIES = {
    "fetch": "rl_reward.envs.fetch:FetchTask",
    "metaworld": "rl_reward.envs.metaworld:MetaWorldTask",
    "libero_object": "rl_reward.envs.libero:LiberoObject",
    "libero_spatial": "rl_reward.envs.libero:LiberoSpatial",
    "libero_goal": "rl_reward.envs.libero:LiberoGoal",
    "libero_10": "rl_reward.envs.libero:Libero10",
    "libero_90": "rl_reward.envs.libero:Libero90",
    "robosuite": "rl_reward.envs.robosuite:RobosuiteTask",
}
"""Where the class of each family of tasks lives."""


def make(name: str, **options: Any) -> TaskEnv:
    """Build a task environment, in the process that calls this.

    Args:
        name: Family and task, e.g. "fetch/FetchReach-v4" or "metaworld/reach-v3".
        options: Fields of the family's configuration (`TaskConfig` and its subclass), e.g. `stride=5, frames=True`.

    Raises:
        ConfigError: No such family, task or option, or a value out of its range.
        MissingExtraError: The simulator is not installed.
    """
    task_type, task = _found(name)
    return task_type(task, config_of(name, **options))  # pyright: ignore[reportCallIssue]


def config_of(name: str, **options: Any) -> TaskConfig:
    """Return the whole configuration that `make(name, **options)` would use, without building a simulator."""
    task_type, _ = _found(name)
    for option in options:
        check_known(option, [field.name for field in fields(task_type.Config)], f"option of {name}")
    return task_type.Config(**options)


def axes_of(name: str) -> Axes:
    """Return how the captions of a task environment name directions; `name` as for `make`."""
    return _found(name)[0].axes


def _found(name: str) -> tuple[type[TaskEnv], str]:
    """Return the class of a task environment, and the task."""
    family, slash, task = name.partition("/")
    if not slash:
        raise ConfigError(f"a task is named family/task, like fetch/FetchReach-v4 or metaworld/reach-v3, got {name!r}")
    check_known(family, FAMILIES, f"environment family in {name!r}")
    task_type = _load(FAMILIES[family])
    check_known(task, task_type.names(), f"task of the family {family}")
    return task_type, task


def _load(address: str) -> Any:
    """Return the class at "module:name"."""
    module, _, name = address.partition(":")
    return getattr(importlib.import_module(module), name)
