"""The rows that wait outside the ring until every episode they belong to is scored. numpy only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rl_reward.adapters.sb3.records import Episode, Records, label
from rl_reward.scores import ProgressCurve
from rl_reward.types import Step

Observation = Any
"""An array, or a dict of arrays."""


@dataclass(frozen=True, eq=False)
class Row:
    """One env step of all envs."""

    obs: Observation
    """Observations before, [n_envs, ...]."""
    next_obs: Observation
    """Observations after; the last one of an episode, not the first of the next."""
    action: NDArray[Any]
    """Actions as the learner stores them, [n_envs, A]."""
    records: Records
    """What relabelling knows of the transitions, [n_envs]."""


@dataclass(frozen=True, eq=False)
class Finished:
    """An episode that ended and has no labels yet."""

    env: int
    """Its column."""
    end: int
    """Number of the row after its last one, counted over all rows ever stored."""
    episode: Episode
    """What the judge reads."""

    @property
    def start(self) -> int:
        """Number of its first row without labels."""
        return self.end - self.episode.unlabelled


@dataclass
class WaitingRows:
    """Rows in the order they came, the episodes that run, and those that ended and wait for their score."""

    rows: list[Row] = field(default_factory=list[Row])
    """The rows themselves."""
    left: int = 0
    """Rows that were taken; the number of `rows[0]`."""
    running: list[Episode] = field(default_factory=list[Episode])
    """The episode of each env."""
    finished: list[Finished] = field(default_factory=list[Finished])
    """Ended and unlabelled, in the order they ended."""
    announced: dict[int, Episode] | None = None
    """The episodes that begin after the next row, by env; None before they are known."""

    @property
    def total(self) -> int:
        """Rows ever stored."""
        return self.left + len(self.rows)

    @property
    def labelled(self) -> int:
        """Rows at the front whose columns all belong to labelled episodes."""
        starts = [self.total, *(ended.start for ended in self.finished)]
        starts += [self.total - episode.unlabelled for episode in self.running]
        return min(starts) - self.left

    def store(self, row: Row, steps: Sequence[Step | None]) -> None:
        """Append `row`; `steps` are the checkpoints its transitions lead to, by env."""
        resets, self.announced = self.announced or {}, None
        self.rows.append(row)
        for env, (episode, step) in enumerate(zip(self.running, steps, strict=True)):
            episode.length += 1
            if step is not None:
                episode.steps[episode.length] = step
            if row.records["done"][env]:
                self.finished.append(Finished(env, self.total, episode))
                self.running[env] = resets[env]

    def close(self, *, env_goes_on: bool) -> None:
        """End the running episodes as truncated; with `env_goes_on` each goes on, read from its beginning."""
        for env, episode in enumerate(self.running):
            if episode.unlabelled:
                self.rows[-1].records["done"][env] = True
                episode.closed = True
                self.finished.append(Finished(env, self.total, episode))
        self.running = [episode.continued() for episode in self.running] if env_goes_on else []
        self.announced = None

    def label(self, curves: Sequence[ProgressCurve | None]) -> None:
        """Label the oldest finished episodes with `curves`, in order; None leaves one unscored."""
        for ended, curve in zip(self.finished, curves, strict=False):
            if curve is not None:
                self._write(ended, curve)
        del self.finished[: len(curves)]

    def take(self, count: int) -> list[Row]:
        """Remove and return the `count` oldest rows."""
        taken, self.rows = self.rows[:count], self.rows[count:]
        self.left += len(taken)
        return taken

    def drop(self) -> int:
        """Remove all rows, and what was to be scored for them, and return how many; running episodes go on."""
        self.finished = []
        self.running = [episode.continued() for episode in self.running]
        return len(self.take(len(self.rows)))

    def _write(self, ended: Finished, curve: ProgressCurve) -> None:
        rows = self.rows[ended.start - self.left : ended.end - self.left]
        records_T = np.array([row.records[ended.env] for row in rows])
        label(records_T, ended.episode, curve)
        for row, record in zip(rows, records_T, strict=True):
            row.records[ended.env] = record


def each(function: Callable[..., Any], *observations: Observation) -> Observation:
    """Return `function(*observations)`, key by key where they are dicts."""
    if isinstance(observations[0], Mapping):
        keys = list(cast("Mapping[str, Any]", observations[0]))
        return {key: function(*(obs[key] for obs in observations)) for key in keys}
    return function(*observations)
