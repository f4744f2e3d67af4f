"""What the verdicts of one group are worth as rewards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rl_reward.adapters.trl.judging import Row, Verdict
from rl_reward.groups import Array, centred, deadband, is_flat, kept_in_class

OrderWithin = Literal["group", "correctness", "right"]


@dataclass(frozen=True)
class Judged:
    """A whole group and its verdicts, as arrays over its G rows."""

    rows: Sequence[Row]
    """The rows."""
    verdicts: Sequence[Verdict]
    """Theirs, in order."""

    @property
    def scores_G(self) -> Array:
        """What counts in the group, float [G]; NaN: no score. A row that a gate stopped may count as 0."""
        return _floats(verdict.value for verdict in self.verdicts)

    @property
    def judged_G(self) -> Array:
        """What the judge itself said, float [G]; NaN where it said nothing readable or was not asked."""
        return _floats(None if verdict.status == "gated" else verdict.value for verdict in self.verdicts)

    @property
    def std_errors_G(self) -> Array:
        """Standard errors of the scores, float [G]; NaN: unknown."""
        return _floats(verdict.std_error for verdict in self.verdicts)

    @property
    def lengths_G(self) -> Array:
        """Lengths of the completions, float [G]."""
        return _floats(row.length for row in self.rows)

    @property
    def classes_G(self) -> Array:
        """Classes of correctness, float [G]; NaN: unknown."""
        return _floats(row.correctness for row in self.rows)


@dataclass(frozen=True)
class Payout:
    """How the scores of a group become rewards; see `VerifierReward`."""

    standardize: bool
    """Divide by the spread of the scores."""
    min_spread: float
    """Groups that differ less earn 0, in units of the score."""
    min_spread_se: float
    """Groups that differ less earn 0, in root mean square standard errors of their scores."""
    order_within: OrderWithin
    """Who is compared with whom: the whole group, answers of the same class, or right answers of the same class."""

    def paid(self, judged: Judged, weight: float) -> list[Verdict]:
        """Return the verdicts with the rewards of their rows, None where there is no score."""
        rewards_G = weight * centred(
            judged.scores_G,
            standardize=self.standardize,
            min_spread=self._deadband(judged),
            classes_G=self._classes(judged),
        )
        if self.order_within != "group":
            rewards_G = kept_in_class(rewards_G, judged.classes_G)
        return [
            replace(verdict, reward=None if math.isnan(reward) else float(reward))
            for verdict, reward in zip(judged.verdicts, rewards_G, strict=True)
        ]

    def is_flat(self, judged: Judged) -> bool:
        """Return whether the group earns nothing because its scores differ too little."""
        return is_flat(judged.scores_G, self._deadband(judged), self._classes(judged))

    def _deadband(self, judged: Judged) -> float:
        return deadband(judged.std_errors_G, self.min_spread, self.min_spread_se)

    def _classes(self, judged: Judged) -> Array | None:
        """Return the classes inside which answers are compared; NaN: with nobody."""
        if self.order_within == "group":
            return None
        wrong_G = judged.classes_G <= 0
        return np.where(wrong_G, np.nan, judged.classes_G) if self.order_within == "right" else judged.classes_G


def _floats(values: Iterable[float | None]) -> Array:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)
