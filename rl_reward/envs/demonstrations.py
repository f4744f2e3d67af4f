"""Demonstrations on disk in robomimic's HDF5 layout, which robomimic and LeRobot's converters read.

data/demo_0/{obs/state [T, D], next_obs/state [T, D], actions [T, A], rewards [T], dones [T]}, one group per episode.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_reward.errors import ConfigError, MissingExtraError


@dataclass(frozen=True, eq=False)
class Demonstration:
    """One recorded episode."""

    obs_T1: NDArray[np.float32]
    """Observations, the one after the last action included, float32 [T+1, D]."""
    actions_T: NDArray[np.float32]
    """Actions, float32 [T, A]."""
    success: bool
    """Whether the task was solved at the end."""
    seed: int
    """Seed of the reset it began with."""

    def __post_init__(self) -> None:
        """Refuse arrays that do not belong together."""
        obs, actions = np.shape(self.obs_T1), np.shape(self.actions_T)
        if len(obs) != 2 or len(actions) != 2 or not 0 < actions[0] == obs[0] - 1:
            raise ConfigError(f"an episode needs actions [T, A] and observations [T+1, D], T > 0, got {actions}, {obs}")


def write(path: str | Path, demonstrations: Sequence[Demonstration], *, env: str, options: dict[str, Any]) -> None:
    """Write demonstrations to one HDF5 file.

    Args:
        path: The file, written anew; its folder must exist.
        demonstrations: What to write, in order.
        env: Name of the environment (see `rl_reward.envs.make`).
        options: Options it was built with; names and options go into the attribute "env_args".

    Raises:
        ConfigError: The file cannot be written.
        MissingExtraError: h5py is not installed.
    """
    h5py, env_args = _h5py(), json.dumps({"env_name": env, "env_kwargs": options, "type": "rl_reward"})
    try:
        with h5py.File(str(path), "w") as file:
            data = file.create_group("data")
            data.attrs.update(total=sum(len(demo.actions_T) for demo in demonstrations), env_args=env_args)
            for number, demo in enumerate(demonstrations):
                _write_one(data.create_group(f"demo_{number}"), demo)
    except OSError as error:
        raise ConfigError(f"cannot write demonstrations to {path}: {_one_line(error)}") from error


def read(path: str | Path) -> list[Demonstration]:
    """Return the demonstrations of a file that `write` wrote, in order.

    Raises:
        ConfigError: The file cannot be read or has another layout.
        MissingExtraError: h5py is not installed.
    """
    h5py = _h5py()
    try:
        with h5py.File(str(path), "r") as file:
            data = file["data"]
            names = sorted(data.keys(), key=lambda name: int(name.removeprefix("demo_")))
            return [_read_one(data[name]) for name in names]
    # A name that is an array where a group should be, or the reverse, lacks an attribute or is indexed wrongly.
    except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"cannot read demonstrations from {path}: {_one_line(error)}") from error


def _write_one(group: Any, demo: Demonstration) -> None:
    steps = len(demo.actions_T)
    group.attrs.update(num_samples=steps, seed=demo.seed, success=demo.success)
    last = np.arange(steps) == steps - 1
    group["obs/state"], group["next_obs/state"] = demo.obs_T1[:-1], demo.obs_T1[1:]
    group["actions"], group["dones"] = demo.actions_T, last.astype(np.int64)
    group["rewards"] = (last & demo.success).astype(np.float32)


def _read_one(group: Any) -> Demonstration:
    obs_T, next_obs_T = group["obs/state"][()], group["next_obs/state"][()]
    obs_T1 = np.concatenate([obs_T, next_obs_T[-1:]])
    return Demonstration(obs_T1, group["actions"][()], bool(group.attrs["success"]), int(group.attrs["seed"]))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _h5py() -> Any:
    try:
        return import_module("h5py")
    except ImportError as error:
        raise MissingExtraError("h5py", "libero") from error
