"""Progress curves: which steps to ask, how unasked steps are filled, anchoring, and Value-Order Correlation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward.errors import ConfigError

Array = NDArray[np.float64]

MIN_SPAN = 0.01
"""Least distance of the scores that `anchor` stretches over [0, 1]."""


@dataclass(frozen=True, eq=False)
class HeldCurve:
    """Scores of some steps, carried forward to all steps."""

    values_S: Array
    """Progress after each step, float [S]; NaN where asked and unreadable, or where nothing was scored yet."""
    scored_S: NDArray[np.bool_]
    """Where a score was asked and read, bool [S]."""


def checkpoints(n_steps: int, every: int = 1) -> tuple[int, ...]:
    """Return the step indices to ask: 0, every, 2 * every, ... and always the last, `n_steps` - 1."""
    if n_steps < 1:
        raise ConfigError(f"progress needs at least 1 step, got {n_steps}")
    if every < 1:
        raise ConfigError(f"every must be at least 1 step, got {every}; 1 asks after each step")
    return (*range(0, n_steps - 1, every), n_steps - 1)


def hold(asked: Mapping[int, float | None], n_steps: int) -> HeldCurve:
    """Return the curve [S] in which steps that were not asked hold the last score read before them.

    Causal: a score is carried forward only, never back and never interpolated.

    Args:
        asked: Score in [0, 1] by step index; None where the reply held no readable score.
        n_steps: S, the number of steps of the episode.
    """
    values_S, scored_S = np.full(n_steps, np.nan), np.zeros(n_steps, dtype=np.bool_)
    last = np.nan
    for step in range(n_steps):
        value = asked.get(step)
        scored_S[step] = value is not None
        last = last if value is None else value
        values_S[step] = np.nan if step in asked and value is None else last
    return HeldCurve(values_S, scored_S)


def anchor(scores: ArrayLike, *, start: float, goal: float) -> Array:
    """Return clip((scores - start) / (goal - start), 0, 1): the judge's scale stretched over [0, 1], NaN kept.

    A weak judge says .33 at the start and .39 at the goal; anchored, those are 0 and 1. Both anchors come from the
    task, scored once. They never come from the episode: its own minimum and maximum would turn a flat, failed episode
    into ones.

    Args:
        scores: Raw scores, any shape.
        start: Score of the task's start state.
        goal: Score of the task's goal state, at least `MIN_SPAN` above `start`.

    Raises:
        ConfigError: The judge hardly tells goal from start, so stretching would show nothing but its noise.
    """
    if not goal >= start + MIN_SPAN:
        raise ConfigError(
            f"the goal must score at least {MIN_SPAN} above the start, got goal {goal:.4f} and start {start:.4f}; "
            "change the judge, or the captions of both ends"
        )
    return np.clip((np.asarray(scores, dtype=np.float64) - start) / (goal - start), 0.0, 1.0)


def interpolate_for_plot(values_S: ArrayLike, scored_S: ArrayLike) -> Array:
    """Return the curve [S] with straight lines between scored steps and NaN outside them; for plots only.

    A line between two checkpoints knows the later one, so it must never become a reward.
    """
    values, scored = np.asarray(values_S, dtype=np.float64), np.asarray(scored_S, dtype=np.bool_)
    known = np.flatnonzero(scored)
    if not known.size:
        return np.full(values.shape, np.nan)
    return np.interp(np.arange(values.size), known, values[known], left=np.nan, right=np.nan)


def value_order_correlation(values: ArrayLike) -> float | None:
    """Return the Spearman correlation of step index and score, in [-1, 1] (Value-Order Correlation, paper Sec. 6).

    Unreadable entries (NaN) are left out. None for fewer than three scores or a constant curve.
    """
    values_S = np.asarray(values, dtype=np.float64)
    return spearman(np.arange(values_S.size), values_S)


def spearman(first: ArrayLike, second: ArrayLike) -> float | None:
    """Return the Spearman rank correlation of two arrays [N], in [-1, 1], ties sharing their average rank.

    Pairs with a NaN are left out. None for fewer than three pairs or where either side is constant.
    """
    first_N, second_N = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if first_N.shape != second_N.shape or first_N.ndim != 1:
        raise ConfigError(f"spearman needs two arrays [N] of one length, got {first_N.shape} and {second_N.shape}")
    both = ~np.isnan(first_N) & ~np.isnan(second_N)
    ranks_1, ranks_2 = average_ranks(first_N[both]), average_ranks(second_N[both])
    if both.sum() < 3 or np.ptp(ranks_1) == 0 or np.ptp(ranks_2) == 0:
        return None
    return float(np.corrcoef(ranks_1, ranks_2)[0, 1])


def average_ranks(values_N: Array) -> Array:
    """Return ranks 0 ... N-1 of `values_N`, equal values sharing the mean of their ranks."""
    _, group_N, count_U = np.unique(values_N, return_inverse=True, return_counts=True)
    last_rank_U = np.cumsum(count_U) - 1
    return (last_rank_U - (count_U - 1) / 2)[group_N]
