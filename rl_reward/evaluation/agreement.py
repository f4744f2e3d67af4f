"""How well a judge's scores agree with the truth. Unscored items (NaN) are counted apart, never as wrong or half."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward.errors import ConfigError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PairCounts:
    """Verdicts on pairs in which one side is known to be better."""

    right: int
    """Pairs in which the better side got the higher score."""
    wrong: int
    """Pairs in which it got the lower score."""
    ties: int
    """Pairs with equal scores."""
    unscored: int
    """Pairs in which a score is missing; they enter no rate."""

    @property
    def scored(self) -> int:
        """Pairs with both scores."""
        return self.right + self.wrong + self.ties

    @property
    def accuracy(self) -> float | None:
        """The share of scored pairs that are right; a tie is not right. None without a scored pair."""
        return self.right / self.scored if self.scored else None

    @property
    def accuracy_ties_half(self) -> float | None:
        """The same with each tie as half right: what breaking ties by a coin would give."""
        return (self.right + self.ties / 2) / self.scored if self.scored else None

    @property
    def tie_rate(self) -> float | None:
        """The share of scored pairs that tie. None without a scored pair."""
        return self.ties / self.scored if self.scored else None


def pair_counts(better: ArrayLike, worse: ArrayLike) -> PairCounts:
    """Count the verdicts of scores [N] given to the better and to the worse side of N pairs."""
    better_N, worse_N = _same_length(better, worse)
    return PairCounts(
        right=int((better_N > worse_N).sum()),
        wrong=int((better_N < worse_N).sum()),
        ties=int((better_N == worse_N).sum()),
        unscored=int((np.isnan(better_N) | np.isnan(worse_N)).sum()),
    )


def signal_to_noise(correct: ArrayLike, incorrect: ArrayLike) -> float | None:
    """Return SNR = E[s_c - s_i] / sqrt(Var(s_c - s_i)) over pairs of scores [N] (paper Sec. 4), population variance.

    None for fewer than two scored pairs or differences that are all equal.
    """
    correct_N, incorrect_N = _same_length(correct, incorrect)
    gap_N = (correct_N - incorrect_N)[~np.isnan(correct_N - incorrect_N)]
    return float(gap_N.mean() / gap_N.std()) if gap_N.size >= 2 and np.ptp(gap_N) > 0 else None


def auroc(scores: ArrayLike, labels: ArrayLike) -> float | None:
    """Return the chance that a positive scores above a negative, a tie counting half (its definition), in [0, 1].

    Args:
        scores: Scores [N]; NaN entries are left out (see `unscored_rate`).
        labels: True or 1 for positives, [N].

    Returns:
        The area under the ROC curve; None unless both classes have a scored entry.
    """
    scores_N, labels_N = _same_length(scores, labels)
    positive, negative = scores_N[_scored(scores_N, labels_N == 1)], scores_N[_scored(scores_N, labels_N == 0)]
    if not (positive.size and negative.size):
        return None
    gap_PN = positive[:, None] - negative[None, :]
    return float((gap_PN > 0).mean() + 0.5 * (gap_PN == 0).mean())


def false_positive_rate(scores: ArrayLike, labels: ArrayLike, *, threshold: float) -> float | None:
    """Return the share of scored negatives with a score at or above `threshold`; None without a scored negative.

    False positives hurt a policy more than false negatives (arXiv 2409.15922): they are what it learns to seek.
    """
    scores_N, labels_N = _same_length(scores, labels)
    negative = scores_N[_scored(scores_N, labels_N == 0)]
    return float((negative >= threshold).mean()) if negative.size else None


def unscored_rate(scores: ArrayLike) -> float:
    """Return the share of scores [N] that are missing (NaN)."""
    scores_N = np.asarray(scores, dtype=np.float64)
    if not scores_N.size:
        raise ConfigError("an unscored rate needs at least 1 score, got 0")
    return float(np.isnan(scores_N).mean())


def _scored(scores_N: Array, mask_N: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the entries of `mask_N` that have a score."""
    return mask_N & ~np.isnan(scores_N)


def _same_length(first: ArrayLike, second: ArrayLike) -> tuple[Array, Array]:
    """Return both as float arrays [N]; raise ConfigError where their shapes differ."""
    first_N, second_N = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if first_N.shape != second_N.shape or first_N.ndim != 1:
        raise ConfigError(f"two arrays [N] of one length are needed, got {first_N.shape} and {second_N.shape}")
    return first_N, second_N
