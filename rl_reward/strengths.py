"""Bradley-Terry strengths from the comparisons of a tournament (choix), beside the mean preference w/c.

The w/c of a pivot is a mean over everybody and that of the rest a mean over the ring and the pivots: not one scale.
Strengths know who was met.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rl_reward.errors import MissingExtraError
from rl_reward.tournament import Comparison

Array = NDArray[np.float64]

# Certain preferences (0 or 1) have no finite maximum; this little of a tie with everybody bounds it.
_PRIOR = 1e-6
_MAX_ITER = 100_000


def check_installed() -> None:
    """Raise MissingExtraError where choix is not installed."""
    try:
        import choix  # noqa: F401  # pyright: ignore[reportUnusedImport, reportMissingTypeStubs]
    except ImportError as error:
        raise MissingExtraError("choix", "rank") from error


def bradley_terry(comparisons: Sequence[Comparison], n: int) -> Array:
    """Return the maximum-likelihood log-strengths of the first `n` numbers, mean 0 over those fitted, float [N].

    P(i beats j) = 1 / (1 + exp(-(s_i - s_j))); a preference p counts as p wins of one and 1 - p of the other. A
    prior of 1e-6 wins for each pair keeps strengths finite and moves very decided ones by hundredths. NaN for who is
    not joined by read comparisons to the largest set of candidates and references that are.

    Raises:
        MissingExtraError: choix is not installed.
    """
    check_installed()
    from choix import ilsr_pairwise_dense

    wins = _wins(comparisons, n)
    joined = _largest_joined(wins)
    strengths = np.full(len(wins), np.nan)
    if len(joined) > 1:
        strengths[joined] = ilsr_pairwise_dense(wins[np.ix_(joined, joined)], alpha=_PRIOR, max_iter=_MAX_ITER)
    elif n == 1 and not comparisons:
        strengths[0] = 0.0
    fitted = strengths[:n][~np.isnan(strengths[:n])]
    return strengths[:n] - (fitted.mean() if fitted.size else 0.0)


def _wins(comparisons: Sequence[Comparison], n: int) -> Array:
    """Return wins[i, j]: the preferences for i over j, added up; references follow the candidates."""
    size = max([n, *(1 + max(one.pairing.slot_a, one.pairing.slot_b) for one in comparisons)])
    wins = np.zeros((size, size))
    for one in comparisons:
        if not np.isnan(one.preference):
            wins[one.pairing.slot_a, one.pairing.slot_b] += one.preference
            wins[one.pairing.slot_b, one.pairing.slot_a] += 1.0 - one.preference
    return wins


def _largest_joined(wins: Array) -> list[int]:
    """Return the largest set in which comparisons lead from everyone to everyone."""
    met = (wins + wins.T) > 0
    left, largest = set(range(len(wins))), list[int]()
    while left:
        reached, edge = set[int](), {min(left)}
        while edge:
            reached |= edge
            edge = {int(j) for i in edge for j in np.flatnonzero(met[i])} - reached
        left -= reached
        largest = max(largest, sorted(reached), key=len)
    return largest
