"""Episodes recorded elsewhere become rows of the relabelling buffer, without an env. numpy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward.adapters.sb3.records import Episode, label, unlabelled
from rl_reward.adapters.sb3.waiting import Observation, Row, each
from rl_reward.errors import ConfigError
from rl_reward.scores import ProgressCurve
from rl_reward.types import Step


@dataclass(frozen=True, eq=False)
class RecordedEpisode:
    """One episode recorded elsewhere: a demonstration, or the past of another run."""

    task: str
    """The task in words."""
    observations_T1: Observation
    """Observations, array [T+1, ...] or dict of such arrays, the last state included."""
    actions_T: ArrayLike
    """Actions as the learner stores them, scaled to [-1, 1], [T, A]."""
    rewards_T: ArrayLike
    """Environment rewards, float [T]."""
    terminated: bool
    """Whether it ended in a true terminal state; otherwise the learner bootstraps from its last state."""
    steps: Mapping[int, Step] = field(default_factory=dict[int, Step])
    """Steps by time: 0 is the reset state, T the last one. Only a buffer with weight 0 does without."""

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit together."""
        lengths = each(len, self.observations_T1)
        states: set[int] = {*lengths.values()} if isinstance(lengths, dict) else {lengths}
        actions = len(np.asarray(self.actions_T))
        if self.length < 1 or actions != self.length or states != {self.length + 1}:
            raise ConfigError(
                f"an episode of T >= 1 rewards needs T actions and T+1 observations, "
                f"got {self.length}, {actions} and {lengths}"
            )
        if not all(0 <= time <= self.length for time in self.steps):
            raise ConfigError(f"times of steps must be in 0..{self.length}, got {sorted(self.steps)}")

    @property
    def length(self) -> int:
        """Transitions T."""
        return len(np.asarray(self.rewards_T))

    def episode(self) -> Episode:
        """Return what the judge reads."""
        return Episode(self.task, dict(sorted(self.steps.items())), self.length)

    def rows(self, curve: ProgressCurve | None) -> list[Row]:
        """Return its transitions, without an env axis, labelled with `curve` if there is one."""
        records_T = unlabelled(self.length)
        records_T["env_reward"] = self.rewards_T
        records_T["done"][-1], records_T["terminated"][-1] = True, self.terminated
        if curve is not None:
            label(records_T, self.episode(), curve)
        actions = np.asarray(self.actions_T)
        return [Row(self._obs(t), self._obs(t + 1), actions[t], records_T[t]) for t in range(self.length)]

    def _obs(self, time: int) -> Observation:
        return each(itemgetter(time), self.observations_T1)


def dealt(episodes: Sequence[Sequence[Row]], n_envs: int) -> list[Row]:
    """Return rows [n_envs]: each episode goes to the shortest column, and all columns are cut to the shortest one.

    The last row ends every column: an episode cut there counts as truncated.
    """
    columns: list[list[Row]] = [[] for _ in range(n_envs)]
    for rows in episodes:
        min(columns, key=len).extend(rows)
    joined = [_joined(cells) for cells in zip(*columns, strict=False)]
    if joined:
        joined[-1].records["done"] = True
    return joined


def _joined(cells: Sequence[Row]) -> Row:
    return Row(
        each(_stack, *(cell.obs for cell in cells)),
        each(_stack, *(cell.next_obs for cell in cells)),
        np.stack([cell.action for cell in cells]),
        np.array([cell.records for cell in cells]),
    )


def _stack(*arrays: ArrayLike) -> NDArray[Any]:
    return np.stack([np.asarray(array) for array in arrays])
