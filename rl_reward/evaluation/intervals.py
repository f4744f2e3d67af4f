"""Intervals around curves and rates: runs are resampled whole, because the points of one run are not independent."""

# scipy ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward.errors import ConfigError, MissingExtraError

try:
    from scipy import stats
except ImportError as missing:
    raise MissingExtraError("scipy", "plots") from missing

Array = NDArray[np.float64]
Statistic = Callable[..., Any]
"""Reduces one axis, as np.mean does: called as statistic(values, axis=...)."""

EXACT_PAIRS = 16
"""Up to this many pairs the sign-flip test runs through all 2^n sign patterns."""


@dataclass(frozen=True)
class Interval:
    """An interval around one number."""

    low: float
    """Lower end."""
    high: float
    """Upper end; inf where it is open."""


@dataclass(frozen=True, eq=False)
class Band:
    """An interval around each point of a curve."""

    low_S: Array
    """Lower ends, float [S]."""
    high_S: Array
    """Upper ends, float [S]."""


def iqm(values: ArrayLike, axis: int = 0) -> Any:
    """Return the interquartile mean along `axis`: the mean without the floor(N/4) lowest and highest values.

    With fewer than four values nothing is dropped and it is the plain mean.
    """
    return stats.trim_mean(np.asarray(values, dtype=np.float64), 0.25, axis=axis)


def resample(runs: Array, rng: np.random.Generator, *, draws: int = 5000) -> Array:
    """Return `draws` samples [draws, N, ...] of the N runs with replacement, each run keeping its whole curve.

    Raises:
        ConfigError: Fewer than 2 runs: their spread, and so any interval, is unknown.
    """
    if len(runs) < 2:
        raise ConfigError(f"an interval over runs needs at least 2 runs, got {len(runs)}; add seeds")
    return runs[rng.integers(len(runs), size=(draws, len(runs)))]


def percentiles(draws_B: Array, *, level: float = 0.95) -> tuple[Any, Any]:
    """Return the low and the high end holding the middle `level` of the draws along the first axis.

    Ends are draws themselves: interpolating between them would turn the infinities of censored draws into NaN.
    """
    ordered = np.sort(draws_B, axis=0)
    tail = int((1.0 - level) / 2.0 * len(ordered))
    return ordered[tail], ordered[-1 - tail]


def bootstrap(
    values_N: ArrayLike, rng: np.random.Generator, *, statistic: Statistic = iqm, draws: int = 5000, level: float = 0.95
) -> Interval:
    """Return the percentile bootstrap interval of `statistic` over one number per run.

    The percentile method stays finite when all runs agree, where the bias-corrected one gives NaN.

    Args:
        values_N: One number per run (an area, a final success), float [N], N >= 2.
        rng: Source of the resampling.
        statistic: What is estimated; takes an `axis`.
        draws: Number of resamples.
        level: Coverage asked for, in (0, 1).
    """
    draws_B = statistic(resample(np.asarray(values_N, dtype=np.float64), rng, draws=draws), axis=1)
    low, high = percentiles(draws_B, level=level)
    return Interval(float(low), float(high))


def bootstrap_band(
    curves_NS: Array, rng: np.random.Generator, *, statistic: Statistic = iqm, draws: int = 5000, level: float = 0.95
) -> Band:
    """Return the whole-run percentile bootstrap band of `statistic` over curves [N, S]; arguments as in `bootstrap`."""
    low_S, high_S = percentiles(statistic(resample(curves_NS, rng, draws=draws), axis=1), level=level)
    return Band(low_S, high_S)


def wilson(successes: int, trials: int, *, level: float = 0.95) -> Interval:
    """Return the Wilson score interval of a success rate: 17 of 20 is [.64, .95]."""
    if not 0 <= successes <= trials or trials < 1:
        raise ConfigError(f"wilson needs 0 <= successes <= trials and trials >= 1, got {successes} of {trials}")
    interval: Any = stats.binomtest(successes, trials).proportion_ci(level, method="wilson")
    return Interval(float(interval.low), float(interval.high))


def sign_flip_p(differences_N: ArrayLike, rng: np.random.Generator) -> float:
    """Return the two-sided p of paired differences [N] against the null that each could as well be its negative.

    Exact up to EXACT_PAIRS pairs (the least it can be is 2 / 2^N), by 2^16 random sign patterns beyond.
    """
    differences = np.asarray(differences_N, dtype=np.float64)
    if differences.size < 2:
        raise ConfigError(f"a sign-flip test needs at least 2 pairs, got {differences.size}; add common seeds")
    test = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=2**EXACT_PAIRS, vectorized=True, rng=rng
    )
    return float(test.pvalue)
