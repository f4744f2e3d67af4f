"""What a verifier returns: Score, PairScore, ProgressCurve, and the arithmetic that makes them from readings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rl_reward.distribution import ScoreDistribution
from rl_reward.types import Usage

Status = Literal["logprob", "text", "unreadable", "timeout", "error"]


@dataclass(frozen=True)
class Reading:
    """One attempt to read one score of one reply."""

    value: float | None
    """The score in [0, 1], None when there is none."""
    status: Status
    """logprob: an expectation; text: the literal level; the rest are unscored."""
    distribution: ScoreDistribution | None = None
    """The whole distribution, with status logprob."""
    reason: str = ""
    """Why there is no score."""


@dataclass(frozen=True)
class Score:
    """The score of one candidate: R(x, tau) = 1/(CK) sum_c sum_k sum_g p(v_g) phi(v_g) (paper Eq. 1), weighted over c."""

    value: float | None
    """The weighted mean over criteria in [0, 1]; None unless every criterion has a readable repeat."""
    std_error: float | None
    """sqrt(sum_c w_c^2 s_c^2 / K_c); None where a criterion has fewer than two readable repeats."""
    by_criterion: Mapping[str, float | None]
    """The mean over readable repeats of each criterion."""
    distributions: Mapping[str, tuple[ScoreDistribution, ...]]
    """The distributions read, by criterion."""
    repeats_used: int
    """Readable repeats of the criterion that has the fewest."""
    status: Status
    """logprob or text when there is a value, else why there is none."""
    reason: str = ""
    """Why there is no value, naming the criterion."""
    usage: Usage = field(default_factory=Usage)
    """What it cost; shared answers are paid by the first that asked."""


@dataclass(frozen=True)
class PairScore:
    """The scores of two candidates judged side by side, slot orders balanced."""

    first: float | None
    """Score in [0, 1] of the candidate given first, whichever slot it stood in."""
    second: float | None
    """Score in [0, 1] of the candidate given second."""
    p_first: float | None
    """Bradley-Terry probability that the first is better: sigmoid((first - second) / preference_temperature)."""
    std_error: float | None
    """Standard error of first - second."""
    repeats_used: int
    """Repeats in which both slots were read, in the criterion that has the fewest."""
    status: Status
    """logprob or text when there are values, else why there are none."""
    reason: str = ""
    """Why there are none."""
    usage: Usage = field(default_factory=Usage)
    """What it cost."""


@dataclass(frozen=True, eq=False)
class ProgressCurve:
    """Causal progress of one episode: the score of step t sees steps up to t and nothing later."""

    values: NDArray[np.float64]
    """Progress after each step, float [S] in [0, 1]. NaN: asked and unreadable. Steps not asked hold the last score."""
    scored: NDArray[np.bool_]
    """Where a checkpoint was asked and read, bool [S]."""
    scores: Mapping[int, Score] = field(default_factory=dict)
    """The full score of each checkpoint by step index."""
    usage: Usage = field(default_factory=Usage)
    """What it cost."""

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The step indices that were asked."""
        return tuple(sorted(self.scores))

    @property
    def voc(self) -> float | None:
        """Value-Order Correlation: Spearman of step index and score over scored checkpoints (paper Sec. 6).

        None for fewer than three scored checkpoints or a constant curve.
        """
        from rl_reward.progress import value_order_correlation

        return value_order_correlation(self.values[self.scored])


def mean_score(readings: Mapping[str, Sequence[Reading]], weights: Mapping[str, float], usage: Usage) -> Score:
    """Return the Score of one candidate from its readings by criterion; weights sum to 1."""
    read = {name: [r for r in rows if r.value is not None] for name, rows in readings.items()}
    means = {name: _mean([r.value for r in rows if r.value is not None]) for name, rows in read.items()}
    lost = next((name for name, mean in means.items() if mean is None), None)
    if lost is not None:
        failure = readings[lost][-1]
        status, reason = failure.status, f"{lost}: {failure.reason}"
    else:
        status, reason = ("text" if any(r.status == "text" for rows in read.values() for r in rows) else "logprob"), ""
    return Score(
        value=None if lost is not None else sum(weights[name] * (mean or 0.0) for name, mean in means.items()),
        std_error=None if lost is not None else _std_error([(weights[n], [r.value or 0.0 for r in rows]) for n, rows in read.items()]),
        by_criterion=means,
        distributions={n: tuple(r.distribution for r in rows if r.distribution is not None) for n, rows in read.items()},
        repeats_used=min(len(rows) for rows in read.values()),
        status=status,
        reason=reason,
        usage=usage,
    )
