"""The numbers of a comparison: what every arm reached, when, and how it stands against the better sparse arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_reward.errors import ConfigError
from rl_reward.evaluation.efficiency import (
    PairedDifference,
    SpeedUp,
    area,
    paired_difference,
    speed_up,
    steps_to_target,
)
from rl_reward.evaluation.intervals import Band, Interval, bootstrap, bootstrap_band, iqm, wilson
from rl_reward.experiments.results import Comparison, RunResult

Array = NDArray[np.float64]

GAINS = (0.1, 0.2, 0.3, 0.4)
"""Targets, as gains over the base level."""


@dataclass(frozen=True)
class Reached:
    """When an arm reached one target; inf where it did not within the budget."""

    curve: float
    """Steps at which the IQM curve of the arm reached it."""
    runs: int
    """Runs that reached it by themselves."""
    median: float
    """Median steps over the runs, those that did not reach it counting as inf."""


@dataclass(frozen=True)
class Cost:
    """Means per run."""

    judge_calls: float
    """Requests the judge answered."""
    judge_seconds: float
    """Wall seconds spent judging."""
    wall_seconds: float
    """Wall seconds of the run."""
    unscored_rate: float | None
    """Share of judgements without a readable score, over the runs that report it in `extra`; None where none does."""
    correct_agreement: float | None
    """Share of pairs of a right and a wrong answer of one group that the judge ordered right in training; likewise."""


@dataclass(frozen=True, eq=False)
class ArmSummary:
    """One arm over its seeds. Intervals are 95 %, None for a single run."""

    name: str
    """Name of the arm."""
    judge: str
    """Name of its judge."""
    seeds: tuple[int, ...]
    """Its seeds, sorted."""
    success_NS: Array
    """Success of run n at evaluation s, float [N, S], in the order of `seeds`."""
    areas_N: Array
    """Normalised area under each run's curve, float [N]."""
    iqm_S: Array
    """Interquartile mean of the runs at each evaluation, float [S]."""
    band: Band | None
    """Whole-run bootstrap band of `iqm_S`."""
    area_interval: Interval | None
    """Whole-run bootstrap interval of the mean area."""
    final_interval: Interval | None
    """Whole-run bootstrap interval of the final success, `iqm_S[-1]`."""
    solved: int
    """Evaluation episodes solved at the last checkpoint, all runs together."""
    episodes: int
    """Evaluation episodes at the last checkpoint, all runs together."""
    solved_interval: Interval
    """Wilson interval of solved / episodes."""
    reached: tuple[Reached, ...]
    """One entry per target."""
    cost: Cost
    """What a run cost."""

    @property
    def base(self) -> float:
        """Mean success at the first evaluation."""
        return float(self.success_NS[:, 0].mean())

    @property
    def area(self) -> float:
        """Mean area under the curve; differences of means are means of paired differences."""
        return float(self.areas_N.mean())

    @property
    def final(self) -> float:
        """IQM success at the last checkpoint, which is not the best one."""
        return float(self.iqm_S[-1])


@dataclass(frozen=True)
class Against:
    """One arm against the comparator, over the seeds both have."""

    seeds: tuple[int, ...]
    """The common seeds."""
    difference: PairedDifference | None
    """Area of the arm minus area of the comparator; None without a common seed."""
    speed_ups: tuple[SpeedUp, ...]
    """T_comparator / T_arm, one per target; empty without a common seed."""


@dataclass(frozen=True, eq=False)
class Summary:
    """All numbers of one comparison."""

    comparison: Comparison
    """The comparison itself."""
    steps_S: NDArray[np.int64]
    """x of the evaluations, shared by all runs, int [S]."""
    base: float
    """Mean first evaluation over all runs of all arms."""
    targets: tuple[float, ...]
    """base + GAINS, those above 1 left out."""
    arms: tuple[ArmSummary, ...]
    """The arms in the order of their first run."""
    comparator: str
    """The sparse arm with the larger area."""
    against: Mapping[str, Against]
    """Every other arm against the comparator, by name."""

    def arm(self, name: str) -> ArmSummary:
        """Return the arm called `name`."""
        return next(arm for arm in self.arms if arm.name == name)


def summarize(comparison: Comparison, *, seed: int = 0) -> Summary:
    """Return all numbers of `comparison`; `seed` drives the resampling, so equal files give equal numbers.

    Raises:
        ConfigError: Runs were evaluated at different steps, a success is no number in [0, 1], an arm has a seed twice,
            or the primary arm or all baselines have no run.
    """
    rng = np.random.default_rng(seed)
    runs_by_arm = _runs_by_arm(comparison)
    steps_S = np.asarray(comparison.runs[0].steps, dtype=np.int64)
    base = float(np.mean([run.success[0] for run in comparison.runs]))
    targets = tuple(base + gain for gain in GAINS if base + gain <= 1.0)
    arms = tuple(_arm(name, runs, steps_S, targets, rng) for name, runs in runs_by_arm.items())
    comparator = max((arm for arm in arms if arm.name in comparison.baselines), key=lambda arm: arm.area)
    against = {arm.name: _against(arm, comparator, steps_S, targets, rng) for arm in arms if arm is not comparator}
    return Summary(comparison, steps_S, base, targets, arms, comparator.name, against)


def _runs_by_arm(comparison: Comparison) -> dict[str, list[RunResult]]:
    """Return the runs of each arm sorted by seed, after checking that they can be compared."""
    if not comparison.runs:
        raise ConfigError(f"{comparison.name} has no finished run, at least 1 is needed; run rl-reward compare first")
    by_arm: dict[str, list[RunResult]] = {}
    for run in comparison.runs:
        _check_run(run, comparison.runs[0])
        by_arm.setdefault(run.arm, []).append(run)
    for name, runs in by_arm.items():
        runs.sort(key=lambda run: run.seed)
        if len({run.seed for run in runs}) < len(runs):
            raise ConfigError(f"arm {name!r} has a seed twice: {[run.seed for run in runs]}; keep one run of each")
    if comparison.primary not in by_arm:
        raise ConfigError(
            f"the primary arm {comparison.primary!r} has no run, only {list(by_arm)} have; finish it first"
        )
    if not set(comparison.baselines) & set(by_arm):
        raise ConfigError(f"none of the baselines {list(comparison.baselines)} has a run; finish one of them first")
    return by_arm


def _check_run(run: RunResult, first: RunResult) -> None:
    """Raise ConfigError where a run has other evaluations than the first one, or a success outside [0, 1]."""
    who = f"arm {run.arm!r} seed {run.seed}"
    if list(run.steps) != list(first.steps):
        raise ConfigError(
            f"{who} was evaluated at {_grid(run)}, arm {first.arm!r} seed {first.seed} at {_grid(first)}; "
            "curves are compared point by point, so rerun with one evaluation grid"
        )
    if len(run.success) != len(run.steps):
        raise ConfigError(f"{who} has {len(run.success)} successes for {len(run.steps)} evaluations; rerun it")
    if not all(0.0 <= value <= 1.0 for value in run.success):
        raise ConfigError(f"{who} has a success outside [0, 1]: {list(run.success)}; rerun it")


def _grid(run: RunResult) -> str:
    """Return the evaluation grid of `run` in words."""
    return f"{len(run.steps)} points from {run.steps[0]} to {run.steps[-1]}" if run.steps else "no point"


def _arm(
    name: str, runs: Sequence[RunResult], steps_S: NDArray[np.int64], targets: Sequence[float], rng: np.random.Generator
) -> ArmSummary:
    """Return the summary of one arm."""
    success_NS = np.asarray([run.success for run in runs], dtype=np.float64)
    areas_N, several = area(steps_S, success_NS), len(runs) > 1
    solved, episodes = sum(round(run.success[-1] * run.episodes) for run in runs), sum(run.episodes for run in runs)
    return ArmSummary(
        name=name,
        judge=" / ".join(dict.fromkeys(run.judge for run in runs)),
        seeds=tuple(run.seed for run in runs),
        success_NS=success_NS,
        areas_N=areas_N,
        iqm_S=iqm(success_NS),
        band=bootstrap_band(success_NS, rng) if several else None,
        area_interval=bootstrap(areas_N, rng, statistic=np.mean) if several else None,
        final_interval=bootstrap(success_NS[:, -1], rng) if several else None,
        solved=solved,
        episodes=episodes,
        solved_interval=wilson(solved, episodes),
        reached=tuple(_reached(steps_S, success_NS, target) for target in targets),
        cost=_cost(runs),
    )


def _reached(steps_S: NDArray[Any], success_NS: Array, target: float) -> Reached:
    """Return when an arm reached `target`."""
    steps_N = steps_to_target(steps_S, success_NS, target)
    curve = steps_to_target(steps_S, iqm(success_NS), target)
    return Reached(float(curve), int(np.isfinite(steps_N).sum()), float(np.median(steps_N)))


def _against(
    arm: ArmSummary,
    comparator: ArmSummary,
    steps_S: NDArray[np.int64],
    targets: Sequence[float],
    rng: np.random.Generator,
) -> Against:
    """Return how `arm` stands against `comparator` over their common seeds."""
    seeds = tuple(seed for seed in arm.seeds if seed in comparator.seeds)
    if not seeds:
        return Against((), None, ())
    ours, theirs = ([side.seeds.index(seed) for seed in seeds] for side in (arm, comparator))
    sparse_NS, dense_NS = comparator.success_NS[theirs], arm.success_NS[ours]
    return Against(
        seeds,
        paired_difference(arm.areas_N[ours], comparator.areas_N[theirs], rng),
        tuple(speed_up(steps_S, sparse_NS, dense_NS, target, rng) for target in targets),
    )


def _cost(runs: Sequence[RunResult]) -> Cost:
    """Return the mean cost of `runs`."""

    def reported(name: str) -> float | None:
        values = [float(run.extra[name]) for run in runs if name in run.extra]
        return float(np.mean(values)) if values else None

    return Cost(
        judge_calls=float(np.mean([run.judge_calls for run in runs])),
        judge_seconds=float(np.mean([run.judge_seconds for run in runs])),
        wall_seconds=float(np.mean([run.wall_seconds for run in runs])),
        unscored_rate=reported("unscored_rate"),
        correct_agreement=reported("correct_agreement"),
    )
