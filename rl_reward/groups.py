"""Group arithmetic of GRPO: what a group's scores are worth relative to each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Equal scores differ by rounding after the mean is taken away; dividing by that would make +-1 of nothing.
_ROUNDING = 1e-9
_UNDER_HALF = 0.49


def deviations(scores_G: Array, classes_G: Array | None = None) -> Array:
    """Return each score minus the mean of the scored rows of its class in the group, float [G].

    Without classes the group is one class. NaN where the score or the class is unknown.
    """
    if classes_G is None:
        classes_G = np.zeros(len(scores_G))
    deviations_G = np.full(len(scores_G), np.nan)
    for one in np.unique(classes_G[~np.isnan(classes_G + scores_G)]):
        members_G = classes_G == one
        deviations_G[members_G] = scores_G[members_G] - np.nanmean(scores_G[members_G])
    return deviations_G


def spread(scores_G: Array, classes_G: Array | None = None) -> float:
    """Return the sample standard deviation of the scored rows of one group (ddof 1, as TRL has it).

    With classes it is the pooled one inside them: sqrt(sum of squared deviations / (rows - classes)). NaN where no
    class has two scored rows.
    """
    deviations_G = deviations(scores_G, classes_G)
    known_G = ~np.isnan(deviations_G)
    classes = 1 if classes_G is None else len(np.unique(classes_G[known_G]))
    spare = int(known_G.sum()) - classes
    return float(np.sqrt(np.nansum(deviations_G**2) / spare)) if spare >= 1 else float("nan")


def deadband(std_errors_G: Array, min_spread: float, min_spread_se: float) -> float:
    """Return the spread under which a group is flat: max(min_spread, min_spread_se * rms std_error).

    The root mean square is over the rows whose standard error is known (not NaN). Where none is, `min_spread` alone
    decides.
    """
    known = std_errors_G[~np.isnan(std_errors_G)]
    return max(min_spread, min_spread_se * float(np.sqrt(np.mean(known**2)))) if known.size else min_spread


def is_flat(scores_G: Array, min_spread: float, classes_G: Array | None = None) -> bool:
    """Return whether there are rows to compare and their spread is under `min_spread`."""
    return spread(scores_G, classes_G) < max(min_spread, _ROUNDING)


def centred(scores_G: Array, *, standardize: bool, min_spread: float, classes_G: Array | None = None) -> Array:
    """Return each score minus the mean of the group's scored rows, divided by their spread if `standardize`, float [G].

    Rows without a score (NaN) stay NaN and vote in nothing: [1, NaN, 0, 0] gives [2/3, NaN, -1/3, -1/3]. Where there
    is nothing to compare (one scored row, or a flat group) the scored rows are 0. A floor on the divisor would not do:
    the trainer rescales what it gets.

    With classes, float [G], mean and spread are those inside each class, so that the means of all classes are 0. A row
    of unknown class (NaN) is compared with nobody and gets 0.
    """
    spread_G = spread(scores_G, classes_G)
    if np.isnan(spread_G) or is_flat(scores_G, min_spread, classes_G):
        return np.where(np.isnan(scores_G), np.nan, 0.0)
    deviations_G = deviations(scores_G, classes_G) / (spread_G if standardize else 1.0)
    return np.where(np.isnan(scores_G), np.nan, np.nan_to_num(deviations_G, nan=0.0))


def kept_in_class(rewards_G: Array, classes_G: Array) -> Array:
    """Return the rewards, scaled down where one of a lower class could overtake one of a higher class, float [G].

    Added to the values of the classes themselves, rewards under half the smallest distance of two classes of the group
    leave the order of the classes as it is. One factor for the group: means of 0 stay 0.
    """
    steps = np.diff(np.unique(classes_G[~np.isnan(classes_G)]))
    largest = float(np.nanmax(np.abs(rewards_G), initial=0.0))
    if not steps.size or largest == 0.0:
        return rewards_G
    return rewards_G * min(1.0, _UNDER_HALF * float(steps.min()) / largest)


def pair_gaps(scores_G: Array, classes_G: Array) -> Array:
    """Return score(i) - score(j) for all pairs of the group in which i is of a higher class than j, float [pairs].

    With two classes their mean is the mean score of the one minus that of the other. Rows whose score or class is NaN
    are in no pair.
    """
    higher_GG = classes_G[:, None] > classes_G[None, :]
    gaps = (scores_G[:, None] - scores_G[None, :])[higher_GG]
    return gaps[~np.isnan(gaps)]


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
