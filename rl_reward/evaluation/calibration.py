"""Prediction-powered inference: a true rate from few labels and many judge scores, with an interval that is valid."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from rl_reward.errors import ConfigError
from rl_reward.evaluation.intervals import Interval


@dataclass(frozen=True)
class Calibrated:
    """An estimate of the mean of the truth."""

    mean: float
    """theta = mean(y) + weight * (mean(g) - mean(f))."""
    interval: Interval
    """mean +- z * sqrt(weight^2 var(g) / N + var(y - weight f) / n)."""
    judge_weight: float
    """How far the judge is trusted: 1 in plain PPI, fitted in PPI++, 0 is the labels alone."""


def prediction_powered_mean(
    labels: ArrayLike,
    judged_labelled: ArrayLike,
    judged_unlabelled: ArrayLike,
    *,
    tune: bool = True,
    level: float = 0.95,
) -> Calibrated:
    """Return the mean truth of a population, e.g. a policy's success rate, from labels and a judge's scores.

    Plain PPI (arXiv 2301.09633, as in ARES): theta = mean(g) - mean(f - y). PPI++ (arXiv 2311.01453) weighs the judge
    by the lambda in [0, 1] that gives the least variance, so a useless judge costs nothing over the labels alone.

    Args:
        labels: y, truth of n labelled items, float [n]; at least 50 are advised, 2 needed.
        judged_labelled: f, the judge's scores of the same items, float [n].
        judged_unlabelled: g, its scores of N further items from the same population, float [N].
        tune: Fit lambda (PPI++) instead of lambda = 1 (PPI).
        level: Coverage asked for, in (0, 1).

    Raises:
        ConfigError: Shapes do not fit, or a score is missing. Unscored items differ from scored ones, so leaving them
            out would bias the estimate: label or rescore them.
    """
    y, f, g = (np.asarray(values, dtype=np.float64) for values in (labels, judged_labelled, judged_unlabelled))
    if y.shape != f.shape or min(y.size, g.size) < 2 or y.ndim != 1 or g.ndim != 1:
        raise ConfigError(
            f"labels and their scores must be [n], further scores [N], at least 2; got {y.shape}, {f.shape}, {g.shape}"
        )
    if not all(np.isfinite(values).all() for values in (y, f, g)):
        raise ConfigError("every item needs a finite label or score, got NaN; label or rescore the unscored ones")
    var_f, var_g = float(np.var(f, ddof=1)) / y.size, float(np.var(g, ddof=1)) / g.size
    weight = 1.0
    if tune:
        gain = float(np.cov(y, f, ddof=1)[0, 1]) / y.size
        weight = min(1.0, max(0.0, gain / (var_f + var_g))) if var_f + var_g > 0 else 0.0
    mean = float(y.mean() + weight * (g.mean() - f.mean()))
    variance = weight**2 * var_g + float(np.var(y - weight * f, ddof=1)) / y.size
    half = NormalDist().inv_cdf(0.5 + level / 2) * variance**0.5
    return Calibrated(mean, Interval(mean - half, mean + half), weight)
