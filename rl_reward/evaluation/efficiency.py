"""Sample efficiency: area under the curve, steps to a target with censoring, and how two arms compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_reward.errors import ConfigError
from rl_reward.evaluation.intervals import Interval, bootstrap, iqm, percentiles, resample, sign_flip_p

Array = NDArray[np.float64]

CONSECUTIVE = 2
"""A target counts as reached at the first of this many consecutive evaluations at or above it."""

# Rates are ratios of counts and targets are sums: 0.3 + 0.1 must not miss a rate of 0.4 by rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class SpeedUp:
    """(steps the sparse arm needs) / (steps the dense arm needs); above 1 the dense arm is faster.

    An arm that never reaches the target within the budget is censored: all that is known is "> budget".
    """

    at_least: float
    """The ratio of the two IQM curves; where the sparse arm is censored budget / T_dense, where the dense one is, 0."""
    at_most: float
    """The same ratio; where the sparse arm is censored inf, where the dense one is, T_sparse / budget."""
    interval: Interval | None
    """Interval over resampled seed pairs; an end at 0 or inf is open. None: under 2 pairs, or no draw reaches it."""
    undefined: float
    """Share of draws in which neither arm reaches the target: their ratio can be anything in (0, inf)."""

    @property
    def defined(self) -> bool:
        """Whether at least one of the two IQM curves reaches the target."""
        return not np.isnan(self.at_least)


@dataclass(frozen=True)
class PairedDifference:
    """Mean difference of two arms over the seeds both have."""

    mean: float
    """Mean of first - second."""
    interval: Interval | None
    """Whole-run bootstrap interval of the mean; None for fewer than 2 pairs."""
    p_value: float | None
    """Two-sided sign-flip permutation p; None for fewer than 2 pairs."""
    pairs: int
    """Number of common seeds."""


def area(steps_S: NDArray[Any], success_NS: Array) -> Array:
    """Return the area under each curve [N] divided by the span of x: the mean success over training, in [0, 1].

    Args:
        steps_S: x of the evaluations, strictly increasing [S], S >= 2.
        success_NS: Success of each run at each evaluation, float [N, S].
    """
    if len(steps_S) < 2 or not (np.diff(steps_S) > 0).all():
        raise ConfigError(f"an area needs at least 2 evaluations at increasing steps, got {list(steps_S)}")
    return np.asarray(np.trapezoid(success_NS, steps_S, axis=-1) / float(steps_S[-1] - steps_S[0]))


def steps_to_target(steps_S: NDArray[Any], success: Array, target: float, *, consecutive: int = CONSECUTIVE) -> Array:
    """Return the steps [...] at which each curve [..., S] first is at or above `target` `consecutive` times in a row.

    inf where it never is: the curve is censored at the last evaluation.
    """
    above = success >= target - _ROUNDING
    if above.shape[-1] < consecutive:
        return np.full(above.shape[:-1], np.inf)
    held = np.lib.stride_tricks.sliding_window_view(above, consecutive, axis=-1).all(axis=-1)
    return np.where(held.any(axis=-1), np.asarray(steps_S, dtype=np.float64)[held.argmax(axis=-1)], np.inf)


def speed_up(
    steps_S: NDArray[Any],
    sparse_NS: Array,
    dense_NS: Array,
    target: float,
    rng: np.random.Generator,
    *,
    draws: int = 5000,
) -> SpeedUp:
    """Return T_sparse / T_dense at `target` on the arms' IQM curves, with a 95 % interval over seed pairs.

    Args:
        steps_S: x of the evaluations, shared by both arms [S]; the last one is the budget.
        sparse_NS: Curves of the sparse arm, row i of both arms having the same seed, float [N, S].
        dense_NS: Curves of the dense arm, float [N, S].
        target: Success to reach.
        rng: Source of the resampling.
        draws: Number of resamples.
    """
    low, high = _ratio_bounds(steps_S, iqm(sparse_NS), iqm(dense_NS), target)
    if len(sparse_NS) < 2:
        return SpeedUp(float(low), float(high), None, float(np.isnan(low)))
    pairs_B2NS = resample(np.stack([sparse_NS, dense_NS], axis=1), rng, draws=draws)
    curves_B2S = iqm(pairs_B2NS, axis=1)
    low_B, high_B = _ratio_bounds(steps_S, curves_B2S[:, 0], curves_B2S[:, 1], target)
    known_B = ~np.isnan(low_B)
    interval = None
    if known_B.any():
        # A draw in which neither arm reaches the target says nothing: it opens the interval at both ends.
        low_B, high_B = np.where(known_B, low_B, 0.0), np.where(known_B, high_B, np.inf)
        interval = Interval(float(percentiles(low_B)[0]), float(percentiles(high_B)[1]))
    return SpeedUp(float(low), float(high), interval, 1.0 - float(known_B.mean()))


def paired_difference(first_N: Array, second_N: Array, rng: np.random.Generator) -> PairedDifference:
    """Return the mean of first - second over seeds [N], entry i of both being the same seed, with interval and p."""
    differences = first_N - second_N
    if not differences.size:
        raise ConfigError("a paired difference needs at least 1 common seed, got 0; run both arms on the same seeds")
    if differences.size < 2:
        return PairedDifference(float(differences.mean()), None, None, differences.size)
    interval = bootstrap(differences, rng, statistic=np.mean)
    return PairedDifference(float(differences.mean()), interval, sign_flip_p(differences, rng), differences.size)


def _ratio_bounds(steps_S: NDArray[Any], sparse: Array, dense: Array, target: float) -> tuple[Array, Array]:
    """Return what is known of T_sparse / T_dense from below and from above, NaN in both where it is undefined."""
    budget = float(steps_S[-1])
    sparse_T, dense_T = (steps_to_target(steps_S, curve, target) for curve in (sparse, dense))
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.minimum(sparse_T, budget) / dense_T, sparse_T / np.minimum(dense_T, budget)
    undefined = (np.isinf(sparse_T) & np.isinf(dense_T)) | np.isnan(low) | np.isnan(high)
    return np.where(undefined, np.nan, low), np.where(undefined, np.nan, high)
