"""Task environments by name; simulators are imported and built late, in the process that steps them."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Collection
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rl_reward.errors import ConfigError

if TYPE_CHECKING:
    from rl_reward.envs.base import TaskEnv
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
    family, slash, task = name.partition("/")
    if not slash:
        raise ConfigError(f"a task is named family/task, like fetch/FetchReach-v4 or metaworld/reach-v3, got {name!r}")
    _known(family, FAMILIES, f"environment family in {name!r}")
    task_type = _load(FAMILIES[family])
    _known(task, task_type.names(), f"task of the family {family}")
    for option in options:
        _known(option, [field.name for field in fields(task_type.Config)], f"option of {name}")
    return task_type(task, task_type.Config(**options))  # pyright: ignore[reportCallIssue]


def axes_of(name: str) -> Axes:
    """Return how the captions of a task environment name directions; `name` as for `make`."""
    family = name.partition("/")[0]
    _known(family, FAMILIES, f"environment family in {name!r}")
    return _load(FAMILIES[family]).axes


def _load(address: str) -> Any:
    """Return the class at "module:name"."""
    module, _, name = address.partition(":")
    return getattr(importlib.import_module(module), name)


def _known(name: str, names: Collection[str], what: str) -> None:
    """Raise ConfigError, with the nearest name or all of them, unless `name` is one of `names`."""
    if name not in names:
        nearest = difflib.get_close_matches(name, names, n=1)
        fix = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(sorted(names))}"
        raise ConfigError(f"no {what} is called {name!r}; {fix}")
