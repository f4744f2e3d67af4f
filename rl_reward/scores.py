"""What a verifier returns: Score, PairScore, Ranking, ProgressCurve, and the arithmetic that makes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rl_reward.distribution import ScoreDistribution
from rl_reward.preference import preference
from rl_reward.progress import hold, value_order_correlation
from rl_reward.strengths import bradley_terry
from rl_reward.tournament import Comparison, mean_preferences, std_errors
from rl_reward.types import Usage

Failure = Literal["unreadable", "timeout", "error"]
Status = Literal["logprob", "text", "unreadable", "timeout", "error"]


@dataclass(frozen=True)
class Reading:
    """A score that was read."""

    value: float
    """The score in [0, 1]."""
    distribution: ScoreDistribution | None
    """The distribution whose mean it is; None when only the literal level could be read."""


@dataclass(frozen=True)
class Unread:
    """A score that could not be read, and why. There is no number to fall back on."""

    status: Failure
    """unreadable: the reply holds no score; timeout: no reply in time; error: no reply at all."""
    reason: str
    """One line for the user."""


@dataclass(frozen=True)
class PairReading:
    """One repeat of a comparison in which both slots were read."""

    first: Reading
    """The candidate the caller gave first, whichever slot it stood in."""
    second: Reading
    """The candidate the caller gave second."""
    swapped: bool
    """Whether the second candidate stood in slot A."""


@dataclass(frozen=True)
class Score:
    """The score of one candidate: R(x, tau) = 1/(CK) sum_c sum_k sum_g p(v_g) phi(v_g), weighted over c."""

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
class Ranking:
    """What a tournament says of the N candidates of one group."""

    scores: NDArray[np.float64]
    """The mean preference w/c over a candidate's read comparisons, float [N] in [0, 1]; 0.5 is average, NaN unread."""
    std_errors: NDArray[np.float64]
    """Standard errors of `scores` (`rl_reward.tournament.std_errors`), float [N]; NaN where they cannot be known."""
    ring_scores: NDArray[np.float64]
    """`scores` after the ring pass alone, float [N]; NaN for methods without a ring."""
    pairs: tuple[Comparison, ...]
    """Every comparison; reference m of an anchored tournament is number N + m."""
    usage: Usage = field(default_factory=Usage)
    """What it cost; shared answers are paid by the first that asked."""

    @property
    def order(self) -> tuple[int, ...]:
        """The candidates' numbers, best first; ties by number, unread ones last."""
        return tuple(int(i) for i in np.argsort(-_without_rounding(self.scores), kind="stable"))

    @property
    def ranks(self) -> tuple[int | None, ...]:
        """The place of each candidate from 1; equal scores share the better place, an unread one has none."""
        scores = _without_rounding(self.scores)
        return tuple(None if math.isnan(s) else 1 + int(np.sum(scores > s)) for s in scores)

    @property
    def comparisons(self) -> int:
        """Comparisons asked, unread ones included."""
        return len(self.pairs)

    @property
    def unscored(self) -> int:
        """Comparisons that could not be read; they add to no score."""
        return sum(math.isnan(pair.preference) for pair in self.pairs)

    @cached_property
    def strengths(self) -> NDArray[np.float64]:
        """Bradley-Terry log-strengths fitted to all read comparisons, mean 0, float [N]; NaN where not fitted.

        Needs the extra "rank"; MissingExtraError without it.
        """
        return bradley_terry(self.pairs, len(self.scores))


@dataclass(frozen=True, eq=False)
class ProgressCurve:
    """Causal progress of one episode: the score of step t sees steps up to t and nothing later."""

    values: NDArray[np.float64]
    """Progress after each step, float [S] in [0, 1]. NaN: asked and unreadable. Steps not asked hold the last score."""
    scored: NDArray[np.bool_]
    """Where a checkpoint was asked and read, bool [S]."""
    scores: Mapping[int, Score] = field(default_factory=dict[int, Score])
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
        return value_order_correlation(self.values[self.scored])


def score_of(repeats: Mapping[str, Sequence[Reading | Unread]], weights: Mapping[str, float], usage: Usage) -> Score:
    """Return the score of one candidate from its repeats by criterion; `weights` sum to 1."""
    read = {name: [r for r in rows if isinstance(r, Reading)] for name, rows in repeats.items()}
    values = {name: [r.value for r in rows] for name, rows in read.items()}
    lost = _lost(repeats, values)
    return Score(
        value=None if lost else _mean(values, weights),
        std_error=None if lost else _std_error(values, weights),
        by_criterion={name: float(np.mean(v)) if v else None for name, v in values.items()},
        distributions={name: tuple(r.distribution for r in rows if r.distribution) for name, rows in read.items()},
        repeats_used=min(map(len, values.values())),
        status=lost.status if lost else _status(r for rows in read.values() for r in rows),
        reason=lost.reason if lost else "",
        usage=usage,
    )


def pair_score_of(
    repeats: Mapping[str, Sequence[PairReading | Unread]],
    weights: Mapping[str, float],
    usage: Usage,
    *,
    temperature: float,
) -> PairScore:
    """Return the scores of two candidates from their repeats by criterion; `weights` sum to 1."""
    read = {name: [r for r in rows if isinstance(r, PairReading)] for name, rows in repeats.items()}
    lost = _lost(repeats, read) or _one_sided(repeats, read)
    used = min(map(len, read.values()))
    if lost:
        return PairScore(None, None, None, None, used, lost.status, lost.reason, usage)
    first = _mean({name: _over_orders(rows, lambda r: r.first.value) for name, rows in read.items()}, weights)
    second = _mean({name: _over_orders(rows, lambda r: r.second.value) for name, rows in read.items()}, weights)
    return PairScore(
        first=first,
        second=second,
        p_first=preference(first, second, temperature=temperature),
        std_error=_std_error({n: [r.first.value - r.second.value for r in rows] for n, rows in read.items()}, weights),
        repeats_used=used,
        status=_status(slot for rows in read.values() for r in rows for slot in (r.first, r.second)),
        usage=usage,
    )


def ranking_of(comparisons: Sequence[Comparison], n: int, usage: Usage) -> Ranking:
    """Return the ranking of `n` candidates from the comparisons of their tournament."""
    ring = [one for one in comparisons if one.pairing.stage == "ring"]
    return Ranking(
        scores=mean_preferences(comparisons, n),
        std_errors=std_errors(comparisons, n),
        ring_scores=mean_preferences(ring, n) if ring else np.full(n, np.nan),
        pairs=tuple(comparisons),
        usage=usage,
    )


def curve_of(checkpoints: Mapping[int, Score], n_steps: int) -> ProgressCurve:
    """Return the curve over `n_steps` steps from the scores of its checkpoints by step index."""
    held = hold({step: score.value for step, score in checkpoints.items()}, n_steps)
    usage = sum((score.usage for score in checkpoints.values()), Usage())
    return ProgressCurve(held.values_S, held.scored_S, dict(checkpoints), usage)


def _without_rounding(scores_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the scores without the last digits: sums in another order are no other score."""
    return np.round(scores_N, 9)


def _lost(repeats: Mapping[str, Sequence[object]], read: Mapping[str, Sequence[object]]) -> Unread | None:
    """Return the failure of the first criterion without a readable repeat, the criterion named in its reason."""
    for name, rows in repeats.items():
        failures = [row for row in rows if isinstance(row, Unread)]
        if not read[name] and failures:
            return Unread(failures[-1].status, f"{name}: {failures[-1].reason}")
    return None


def _one_sided(
    repeats: Mapping[str, Sequence[PairReading | Unread]], read: Mapping[str, Sequence[PairReading]]
) -> Unread | None:
    """Return why a criterion was read in one slot order only: its preference would be the judge's slot bias."""
    for name, rows in read.items():
        if len({r.swapped for r in rows}) == 1:
            failure = next(row for row in repeats[name] if isinstance(row, Unread))
            return Unread(failure.status, f"{name}: only one slot order was read; {failure.reason}")
    return None


def _over_orders(rows: Sequence[PairReading], value: Callable[[PairReading], float]) -> list[float]:
    """Return the mean of `value` in either slot order; both orders weigh the same however many repeats were read."""
    return [float(np.mean([value(r) for r in rows if r.swapped is swapped])) for swapped in (False, True)]


def _mean(values: Mapping[str, Sequence[float]], weights: Mapping[str, float]) -> float:
    # Weights that sum to 1 up to rounding must not carry a perfect score above 1.
    return min(float(sum(weights[name] * np.mean(v) for name, v in values.items())), 1.0)


def _std_error(values: Mapping[str, Sequence[float]], weights: Mapping[str, float]) -> float | None:
    """Return sqrt(sum_c w_c^2 s_c^2 / K_c), s_c with K_c - 1; None where a criterion has fewer than two repeats."""
    if any(len(v) < 2 for v in values.values()):
        return None
    return math.sqrt(sum(weights[name] ** 2 * float(np.var(v, ddof=1)) / len(v) for name, v in values.items()))


def _status(readings: Iterable[Reading]) -> Status:
    return "logprob" if all(reading.distribution for reading in readings) else "text"
