"""The seam between judges and learners: who can score progress, and dense rewards of whole episodes offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward._checks import check_number
from rl_reward.errors import ConfigError
from rl_reward.progress import checkpoints, hold
from rl_reward.scores import ProgressCurve
from rl_reward.shaping import Shaping
from rl_reward.types import Step, Usage

Array = NDArray[np.float64]


class ProgressJudge(Protocol):
    """Anything that reads the progress of episodes: a `Verifier`, an oracle, a control."""

    @property
    def name(self) -> str:
        """Who judges, as tables, plots and logs call it."""
        ...

    def track_many(self, episodes: Sequence[tuple[str, Sequence[Step]]], *, every: int = 1) -> list[ProgressCurve]:
        """Return the causal progress curves of (task, steps) episodes; every `every`-th step and the last are asked."""
        ...


@dataclass(frozen=True, eq=False)
class StepRewards:
    """The dense rewards of one episode of T transitions."""

    reward_T: Array
    """Total reward of each transition, env reward included, float [T]."""
    progress_T1: Array
    """Progress of each state, the reset state first, float [T+1] in [0, 1]; NaN where asked and unreadable."""
    scored_T1: NDArray[np.bool_]
    """Where a score was asked and read, bool [T+1]."""
    usage: Usage = field(default_factory=Usage)
    """What judging cost."""


class StepReward(Protocol):
    """Turns one recorded episode into a reward per transition."""

    def __call__(self, task: str, env_T: ArrayLike, steps_T1: Sequence[Step], *, terminated: bool) -> StepRewards:
        """Return the rewards of an episode: env rewards [T], steps [T+1] with the reset step first."""
        ...


@dataclass(frozen=True)
class VerifierStepReward:
    """A judge's progress through a shaping form: r_t = r_env,t + the form's bonus (paper Eq. 7.1 and `shaping`)."""

    judge: ProgressJudge
    """Who scores the states."""
    shaping: Shaping
    """How progress becomes reward."""
    every: int = 1
    """The reset, every `every`-th and the last step are asked; the others hold the last score."""

    def __call__(self, task: str, env_T: ArrayLike, steps_T1: Sequence[Step], *, terminated: bool) -> StepRewards:
        """Return the rewards of one episode, whole; use the relabelling buffer inside SB3.

        Args:
            task: The task in words.
            env_T: Environment rewards, float [T].
            steps_T1: What happened, [T+1], the reset step first.
            terminated: The episode ended in a true terminal state, not at a time limit.
        """
        (curve,) = self.judge.track_many([(task, steps_T1)], every=self.every)
        reward_T = self.shaping(env_T, curve.values, terminated=terminated)
        return StepRewards(reward_T, curve.values, curve.scored, curve.usage)


@dataclass(frozen=True)
class Oracle:
    """A judge that reads the true progress from `Step.data[key]`: the upper bound, never a verifier."""

    key: str = "progress"
    """Where the truth stands in `Step.data`, a number in [0, 1]."""
    name: str = "oracle"
    """As tables call it."""

    def track_many(self, episodes: Sequence[tuple[str, Sequence[Step]]], *, every: int = 1) -> list[ProgressCurve]:
        """Return the true curves, held between the steps that are asked."""
        return [self._curve(steps, every) for _, steps in episodes]

    def _curve(self, steps: Sequence[Step], every: int) -> ProgressCurve:
        return _curve({step: self._truth(steps[step]) for step in checkpoints(len(steps), every)}, len(steps))

    def _truth(self, step: Step) -> float:
        data: Any = step.data
        if not isinstance(data, Mapping) or self.key not in data:
            raise ConfigError(f"the oracle needs Step.data[{self.key!r}] in [0, 1], got {data!r:.80}")
        return check_number(f"Step.data[{self.key!r}]", step.data[self.key], least=0, most=1)


@dataclass(frozen=True)
class Constant:
    """A judge that gives every state the same score: the control for a reward that carries no information."""

    value: float
    """The score, in [0, 1]."""

    def __post_init__(self) -> None:
        """Refuse a value outside [0, 1]."""
        check_number("value", self.value, least=0, most=1)

    @property
    def name(self) -> str:
        """As tables call it."""
        return f"constant({self.value:g})"

    def track_many(self, episodes: Sequence[tuple[str, Sequence[Step]]], *, every: int = 1) -> list[ProgressCurve]:
        """Return flat curves."""
        lengths = [len(steps) for _, steps in episodes]
        return [_curve(dict.fromkeys(checkpoints(n, every), self.value), n) for n in lengths]


class Shuffled:
    """The control in which progress tells nothing about the episode: each gets the curve of another, earlier one.

    The curve is drawn uniformly from all earlier episodes, cut to length, or its last value held. Scores keep their
    values and their growth over an episode; only the tie to what happened is gone. The very first episode has no
    earlier one: it gets its own scores in random order.
    """

    def __init__(self, judge: ProgressJudge, *, seed: int = 0) -> None:
        """Shuffle the curves of `judge`; equal seeds and equal episodes give equal curves."""
        self.judge = judge
        self._random = np.random.default_rng(seed)
        self._earlier: list[ProgressCurve] = []

    @property
    def name(self) -> str:
        """As tables call it."""
        return f"shuffled({self.judge.name})"

    def track_many(self, episodes: Sequence[tuple[str, Sequence[Step]]], *, every: int = 1) -> list[ProgressCurve]:
        """Ask the judge about `episodes`, in order, and return to each the curve of an earlier one, at its own cost."""
        return [self._swap(curve) for curve in self.judge.track_many(episodes, every=every)]

    def _swap(self, own: ProgressCurve) -> ProgressCurve:
        other, length = self._other(own), len(own.values)
        scored = np.zeros(length, dtype=np.bool_)
        scored[: len(other.scored)] = other.scored[:length]
        self._earlier.append(ProgressCurve(own.values, own.scored))
        return ProgressCurve(_to_length(other.values, length), scored, usage=own.usage)

    def _other(self, own: ProgressCurve) -> ProgressCurve:
        if self._earlier:
            return self._earlier[self._random.integers(len(self._earlier))]
        order = self._random.permutation(len(own.values))
        return ProgressCurve(own.values[order], own.scored[order])


def _curve(asked: Mapping[int, float | None], n_steps: int) -> ProgressCurve:
    held = hold(asked, n_steps)
    return ProgressCurve(held.values_S, held.scored_S)


def _to_length(values_S: Array, length: int) -> Array:
    """Return `values_S` cut to `length`, or its last value held."""
    return values_S[np.minimum(np.arange(length), len(values_S) - 1)]
