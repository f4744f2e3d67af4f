"""The distribution over the score levels at one token position: all of it is kept, not its mean alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rl_reward._checks import check_number
from rl_reward.errors import ConfigError, Unscorable
from rl_reward.scale import ScoreScale

MIN_COVERAGE = 0.05
"""Default floor of the probability on the scale; below it an expectation is noise."""

_ROUNDING = 1e-3
# Servers write -9999 for "not computed"; it is no probability.
_NOT_COMPUTED = -9999.0


@dataclass(frozen=True, eq=False)
class ScoreDistribution:
    """Probabilities of the levels of `scale`, renormalised on it, and the mass that was on it before.

    R = sum_g p(v_g) phi(v_g) (paper Eq. 1) is `mean`.
    """

    scale: ScoreScale
    """The levels."""
    probs: NDArray[np.float64]
    """Probability of each level, float [L], sums to 1."""
    coverage: float
    """Mass on the scale before renormalising, in (0, 1]; 1 - coverage went to other tokens."""

    def __post_init__(self) -> None:
        """Refuse probabilities of another length than the scale, negative ones, or ones that do not sum to 1."""
        shape_fits = self.probs.shape == (len(self.scale),)
        if not shape_fits or not np.all(self.probs >= 0) or not math.isclose(self.probs.sum(), 1.0, abs_tol=1e-6):
            raise ConfigError(f"probs must be {len(self.scale)} numbers >= 0 that sum to 1, got {self.probs.tolist()}")
        check_number("coverage", self.coverage, above=0, most=1)

    @classmethod
    def from_alternatives(
        cls,
        scale: ScoreScale,
        alternatives: Iterable[tuple[str, float]],
        *,
        sampled: tuple[str, float] | None = None,
        min_coverage: float = MIN_COVERAGE,
    ) -> ScoreDistribution:
        """Read the levels from a server's (token, natural logprob) alternatives at the score position.

        Args:
            scale: The levels; spellings of one level add up (see `ScoreScale.index`).
            alternatives: The top tokens of the position. Equal strings add: they are different tokens of a vocabulary.
            sampled: The token the model emitted, added only if its string is not among the alternatives.
            min_coverage: Floor of the mass on the scale, in [0, 1].

        Raises:
            ConfigError: `min_coverage` is outside [0, 1].
            Unscorable: The numbers are not a distribution, carry no information, or miss the scale.
        """
        check_number("min_coverage", min_coverage, least=0, most=1)
        entries = list(alternatives)
        _check_logprobs([*entries, *([sampled] if sampled else [])])
        if sampled is not None and all(token != sampled[0] for token, _ in entries):
            entries.append(sampled)
        entries = _readable(entries)
        mass_L = np.zeros(len(scale))
        for token, logprob in entries:
            level = scale.index(token)
            if level is not None:
                mass_L[level] += math.exp(logprob)
        coverage = min(float(mass_L.sum()), 1.0)
        if coverage <= 0.0 or coverage < min_coverage:
            raise Unscorable(f"only {coverage:.2g} of the probability is on the scale, the floor is {min_coverage:g}")
        return cls(scale, mass_L / mass_L.sum(), coverage)

    @property
    def mean(self) -> float:
        """The expectation of phi, the score, in [0, 1]."""
        return float(self.probs @ self.scale.values)

    @property
    def variance(self) -> float:
        """The variance of phi, in [0, 1/4]."""
        return float(self.probs @ (self.scale.values - self.mean) ** 2)

    @property
    def entropy(self) -> float:
        """The entropy of the level in nats, in [0, ln L]."""
        positive = self.probs[self.probs > 0]
        return float(-(positive @ np.log(positive))) + 0.0

    def coarsen(self, granularity: int) -> ScoreDistribution:
        """Merge neighbouring levels into `granularity` ones, as if the judge had had a coarser scale."""
        merged = np.zeros(granularity)
        np.add.at(merged, self.scale.bins(granularity), self.probs)
        return ScoreDistribution(self.scale.coarsen(granularity), merged, self.coverage)


def _check_logprobs(entries: list[tuple[str, float]]) -> None:
    """Raise Unscorable where a number is no logprob: the server's other numbers cannot be trusted either."""
    if any(math.isnan(logprob) for _, logprob in entries):
        raise Unscorable("a logprob is NaN")
    too_high = max((logprob for _, logprob in entries), default=0.0)
    if too_high > _ROUNDING:
        raise Unscorable(f"a logprob is {too_high:g}, above 0")


def _readable(entries: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return the entries that carry probability, rounding clipped; raise Unscorable when they are no distribution."""
    kept = [(token, min(logprob, 0.0)) for token, logprob in entries if logprob > _NOT_COMPUTED]
    if not kept:
        raise Unscorable("the position has no alternatives with a probability")
    if len(kept) == 1 and kept[0][1] == 0.0:
        raise Unscorable(f"the server reports {kept[0][0]!r} with probability 1 and nothing else: no distribution")
    total = sum(math.exp(logprob) for _, logprob in kept)
    if total > 1.0 + _ROUNDING:
        raise Unscorable(f"the alternatives sum to {total:.4g}, above 1")
    return kept
