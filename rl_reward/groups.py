"""Group arithmetic of GRPO: what a group's scores are worth relative to each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward.errors import ConfigError

Array = NDArray[np.float64]

# Equal scores differ by rounding after the mean is taken away; dividing by that would make +-1 of nothing.
_ROUNDING = 1e-9


def by_position(values_N: ArrayLike, group_size: int) -> Array:
    """Return the rows as groups of `group_size` neighbours, float [M, G].

    Position alone tells groups apart: a dataset may repeat a prompt.

    Raises:
        ConfigError: The rows do not fill whole groups.
    """
    values = np.asarray(values_N, dtype=np.float64)
    if values.size % group_size:
        raise ConfigError(f"{values.size} rows do not fill groups of {group_size}; set the trainer's group size")
    return values.reshape(-1, group_size)


def spread(scores_G: Array) -> float:
    """Return the sample standard deviation of the scored rows of one group (ddof 1, as TRL has it).

    NaN for fewer than two scored rows.
    """
    scored = scores_G[~np.isnan(scores_G)]
    return float(scored.std(ddof=1)) if scored.size >= 2 else float("nan")


def is_flat(scores_G: Array, min_spread: float) -> bool:
    """Return whether two or more rows are scored and their spread is under `min_spread`."""
    return spread(scores_G) < max(min_spread, _ROUNDING)


def centred(scores_G: Array, *, standardize: bool, min_spread: float) -> Array:
    """Return each score minus the mean of the group's scored rows, divided by their spread if `standardize`, float [G].

    Rows without a score (NaN) stay NaN and vote in nothing: [1, NaN, 0, 0] gives [2/3, NaN, -1/3, -1/3]. Where there
    is nothing to compare (one scored row, or a flat group) the scored rows are 0. A floor on the divisor would not do:
    the trainer rescales what it gets.
    """
    if is_flat(scores_G, min_spread) or np.isnan(spread(scores_G)):
        return np.where(np.isnan(scores_G), np.nan, 0.0)
    centred_G = scores_G - np.nanmean(scores_G)
    return centred_G / spread(scores_G) if standardize else centred_G


def within_group_correlation(x_MG: Array, y_MG: Array) -> float:
    """Return Pearson's correlation of x and y pooled over groups, each less its group mean, in [-1, 1].

    Between groups it would measure how hard the prompts are. Pairs with a NaN are left out. NaN where x or y is
    constant inside every group.
    """
    both_MG = ~(np.isnan(x_MG) | np.isnan(y_MG))
    count_M1 = np.maximum(both_MG.sum(axis=1, keepdims=True), 1)

    def deviations(values_MG: Array) -> Array:
        kept_MG = np.where(both_MG, values_MG, 0.0)
        return np.where(both_MG, kept_MG - kept_MG.sum(axis=1, keepdims=True) / count_M1, 0.0)

    x, y = deviations(x_MG), deviations(y_MG)
    size = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float((x * y).sum()) / size if size > _ROUNDING else float("nan")
