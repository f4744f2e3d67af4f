"""What relabelling knows of each transition, and how curves become records and records become rewards. numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_reward.errors import ConfigError
from rl_reward.rewards import ProgressJudge
from rl_reward.scores import ProgressCurve, Score
from rl_reward.shaping import Shaping
from rl_reward.types import STEP_KEY, Step

RECORD = np.dtype(
    [
        ("env_reward", np.float32),  # what the environment paid
        ("progress", np.float32),  # of the state after the transition; NaN: asked and unreadable, or never scored
        ("spread", np.float32),  # standard deviation of that score's distribution; NaN where none is known
        ("anchor", np.float32),  # the last known progress at or before the state the transition starts from, or NaN
        ("age", np.int32),  # transitions between the anchor and that state
        ("scored", np.bool_),  # whether the state after the transition was asked and read
        ("done", np.bool_),  # the episode ended here
        ("terminated", np.bool_),  # ... in a true terminal state; a time limit bootstraps
    ]
)
"""One transition beside what SB3 stores of it. `anchor` and `age` are what `shaping` needs of the past, so a reward can
be computed anew even after the ring has overwritten the episode's beginning."""

Records = NDArray[np.void]


@dataclass
class Episode:
    """An episode while it runs: what the judge will read, and how far its transitions are labelled."""

    task: str
    """The task in words."""
    steps: dict[int, Step]
    """Steps by time; 0 is the reset state, t the state after t transitions."""
    length: int = 0
    """Transitions so far."""
    labelled: int = 0
    """Transitions labelled already, when the episode was closed while it went on."""
    closed: bool = False
    """Ended for scoring, while the environment had not ended it."""

    @property
    def unlabelled(self) -> int:
        """Transitions without labels."""
        return self.length - self.labelled

    def continued(self) -> Episode:
        """Return the episode as it goes on after everything so far is labelled."""
        return replace(self, steps=dict(self.steps), labelled=self.length, closed=False)


def judged(judge: ProgressJudge, episodes: Sequence[Episode], every: int) -> list[ProgressCurve]:
    """Return the curve of each episode over its steps, asked in one call.

    Raises:
        ConfigError: An episode has no step at its start or at its end, or the judge returned curves of another length.
    """
    for episode in episodes:
        if 0 not in episode.steps or not (episode.closed or episode.length in episode.steps):
            where = "done" if 0 in episode.steps else "reset"
            raise ConfigError(f"the {where} info has no Step; put one into info[{STEP_KEY!r}] at reset and at done")
    curves = judge.track_many([(e.task, list(e.steps.values())) for e in episodes], every=every)
    if [len(curve.values) for curve in curves] != [len(episode.steps) for episode in episodes]:
        raise ConfigError(
            f"{judge.name} must return one value per step for {len(episodes)} episodes of "
            f"{[len(e.steps) for e in episodes]} steps, got {[len(c.values) for c in curves]}"
        )
    return curves


def label(records_T: Records, episode: Episode, curve: ProgressCurve) -> None:
    """Write progress, spread, anchor, age and scored of the episode's unlabelled transitions into `records_T`."""
    times_S = np.array(list(episode.steps))
    state_T1 = np.arange(episode.length + 1)
    latest_T1 = np.searchsorted(times_S, state_T1, side="right") - 1
    known_S = _latest(~np.isnan(curve.values))
    progress_T1 = np.where(known_S >= 0, curve.values[known_S], np.nan)[latest_T1]
    progress_T1[times_S] = curve.values
    spread_T1, scored_T1 = np.full(state_T1.shape, np.nan), np.zeros(state_T1.shape, dtype=np.bool_)
    spread_T1[times_S] = [_spread(curve.scores.get(i)) for i in range(len(times_S))]
    scored_T1[times_S] = curve.scored
    anchor_T = _latest(~np.isnan(progress_T1))[:-1]
    new = slice(episode.labelled, episode.length)
    for name, array_T1 in (("progress", progress_T1), ("spread", spread_T1), ("scored", scored_T1)):
        records_T[name] = array_T1[1:][new]
    records_T["anchor"] = np.where(anchor_T >= 0, progress_T1[anchor_T], np.nan)[new]
    records_T["age"] = np.where(anchor_T >= 0, state_T1[:-1] - anchor_T, 0)[new]


def rewards(records_TN: Records, shaping: Shaping) -> NDArray[np.float32]:
    """Return the total reward of each transition, float32 [T, n_envs]; each column is one env in time order."""
    return np.stack([_column(records_TN[:, i], shaping) for i in range(records_TN.shape[1])], axis=1)


def unlabelled(n: int | tuple[int, ...]) -> Records:
    """Return records of `n` transitions that hold no score."""
    records = np.zeros(n, dtype=RECORD)
    for name in ("progress", "spread", "anchor"):
        records[name] = np.nan
    return records


def _column(records_T: Records, shaping: Shaping) -> NDArray[np.float32]:
    ends = np.flatnonzero(records_T["done"][:-1]) + 1
    parts = np.split(records_T, ends)
    return np.concatenate([_part(part, shaping) for part in parts]).astype(np.float32)


def _part(records_T: Records, shaping: Shaping) -> NDArray[np.float64]:
    """Return the rewards of transitions of one episode; the states between its anchor and its start are unread."""
    age = int(records_T["age"][0])
    env = np.concatenate([np.zeros(age), records_T["env_reward"]])
    progress = np.concatenate([records_T["anchor"][:1], np.full(age, np.nan), records_T["progress"]])
    return shaping(env, progress, terminated=bool(records_T["terminated"][-1]))[age:]


def _latest(known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each index the last known index at or before it, -1 where there is none."""
    return np.maximum.accumulate(np.where(known, np.arange(known.size), -1))


def _spread(score: Score | None) -> float:
    """Return the root of the mean variance of the distributions behind `score`, NaN without any."""
    variances = [d.variance for ds in score.distributions.values() for d in ds] if score is not None else []
    return float(np.sqrt(np.mean(variances))) if variances else float("nan")


def step_of(info: dict[str, Any]) -> Step | None:
    """Return the `Step` in `info`, None where there is none."""
    step = info.get(STEP_KEY)
    if step is not None and not isinstance(step, Step):
        raise ConfigError(f"info[{STEP_KEY!r}] must be a rl_reward Step, got {type(step).__name__}")
    return step
