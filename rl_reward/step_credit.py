"""Step credit: what each step of a completion did for its progress, in units of the group's spread.

A completion of S steps has the curve rho_0, ..., rho_S: progress before any work, then after each step. With sigma the
standard deviation of rho_S - rho_0 in the group of completions of one prompt, step s is credited with C_s / sigma:

    difference   C_s = rho_s - rho_{s-1}
    to_go        C_s = (rho_S - rho_{s-1}) - mean_j (rho_{j,S} - rho_{j,0})
    min          C_s = min_{u>=s} rho_u - mean_j min_u rho_{j,u}                     (PURE, arXiv 2504.15275)
    sum          C_s / sigma = sum_{u>=s} (rho_u - mean) / std                      (DeepSeekMath 2402.03300, 4.1.3)

u runs over 1, ..., S; mean and std of `sum` are over all rho_{j,u} of the group. What was not scored (NaN) votes in
nothing: a step has credit where its own score was read, and for `difference` and `to_go` every score the formula names;
`min` and `sum` leave out later steps that were not scored. Elsewhere it is NaN.

Which one: `difference` and `to_go` do not care how finely a text is split: a step split in two leaves all others as
they are, whatever the score between. `difference` sums to rho_S - rho_0 over a completion; `to_go` gives the first
step all of it, less the group's mean. `min` withstands splits whose new score is no lower than one of the two beside
it (rho_0 not counted), and can pay a run that stands still more in all than one that arrives. `sum` takes values of
states for rewards of steps, so it pays for writing more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rl_reward.groups import spread

Array = NDArray[np.float64]

Form = Literal["difference", "to_go", "min", "sum"]

EPSILON = 1e-4
"""Added to sigma, as TRL adds it to the standard deviation of a group's rewards."""


@dataclass(frozen=True)
class GroupSpread:
    """What the curves of one group have in common; everything is over what was scored, NaN where nothing was."""

    sigma: float
    """Sample standard deviation (ddof 1) of rho_S - rho_0; NaN for fewer than two scored completions."""
    mean_gain: float
    """Mean of rho_S - rho_0."""
    mean_lowest: float
    """Mean over completions of the lowest rho_u, u >= 1."""
    mean_score: float
    """Mean of all rho_u, u >= 1, of the group."""
    score_std: float
    """Population standard deviation (ddof 0) of the same."""

    def is_flat(self, form: Form, floor: float) -> bool:
        """Return whether the group's spread is under `floor` (progress units), or unknown: then nothing is credited."""
        return not (self.score_std if form == "sum" else self.sigma) >= max(floor, _ROUNDING)


# Equal curves differ by rounding; dividing by that would make credit of nothing.
_ROUNDING = 1e-9


def spread_of(curves_G: Sequence[Array]) -> GroupSpread:
    """Return the statistics of the curves of one group, each float [S+1] in [0, 1] with rho_0 first, S >= 1."""
    gains_G = np.array([curve[-1] - curve[0] for curve in curves_G])
    lowest_G = np.array([np.nan if np.isnan(curve[1:]).all() else np.nanmin(curve[1:]) for curve in curves_G])
    scores = np.concatenate([curve[1:] for curve in curves_G])
    return GroupSpread(spread(gains_G), _mean(gains_G), _mean(lowest_G), _mean(scores), _std(scores))


def credit(curve: Array, group: GroupSpread, *, form: Form = "difference", floor: float = 0.02) -> Array:
    """Return C_s / sigma of each step of one completion, float [S]; NaN for steps without credit of their own.

    Args:
        curve: rho_0, ..., rho_S, float [S+1] in [0, 1], NaN where not scored.
        group: The statistics of its group.
        form: Which formula.
        floor: Groups whose sigma (for `sum`: whose std) is under this are credited with 0, in progress units.
    """
    before_S, after_S = curve[:-1], curve[1:]
    if form == "difference":
        raw_S, unit = after_S - before_S, group.sigma
    elif form == "to_go":
        raw_S, unit = (curve[-1] - before_S) - group.mean_gain, group.sigma
    elif form == "min":
        raw_S, unit = _from_the_end(np.fmin, after_S) - group.mean_lowest, group.sigma
    else:
        raw_S, unit = _from_the_end(np.add, np.nan_to_num(after_S - group.mean_score)), group.score_std
    raw_S = np.where(np.isnan(after_S), np.nan, raw_S)
    if group.is_flat(form, floor):
        return np.where(np.isnan(raw_S), np.nan, 0.0)
    return raw_S / (unit + EPSILON)


def credits_of(curves_G: Sequence[Array], *, form: Form = "difference", floor: float = 0.02) -> list[Array]:
    """Return the credit of every completion of one group, each float [S] (see `credit`)."""
    group = spread_of(curves_G)
    return [credit(curve, group, form=form, floor=floor) for curve in curves_G]


def _from_the_end(add_up: np.ufunc, values_S: Array) -> Array:
    """Return `add_up` over the values from each one to the last, float [S]."""
    return add_up.accumulate(values_S[::-1])[::-1]


def _mean(values: Array) -> float:
    scored = values[~np.isnan(values)]
    return float(scored.mean()) if scored.size else float("nan")


def _std(values: Array) -> float:
    scored = values[~np.isnan(values)]
    return float(scored.std()) if scored.size else float("nan")
