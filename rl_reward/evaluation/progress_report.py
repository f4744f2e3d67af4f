"""How well judges read progress: over labelled episodes, one row per judge. Curves in, numbers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward._checks import check_number
from rl_reward.errors import ConfigError
from rl_reward.evaluation.agreement import auroc, false_positive_rate, unscored_rate
from rl_reward.progress import spearman, value_order_correlation

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ProgressRow:
    """What one judge made of a set of episodes. None: there was nothing to compute it from."""

    judge: str
    """Its name."""
    voc: float | None
    """Value-Order Correlation, mean over episodes that have one, in [-1, 1]: a flat curve has no order."""
    voc_success: float | None
    """The same over successes: near 1 for a good judge."""
    voc_failure: float | None
    """The same over failures: a judge that climbs there as well follows the clock."""
    auroc: float | None
    """Chance that a success ends on a higher score than a failure, ties half, in [0, 1]."""
    false_positives: float | None
    """Share of failures that end at or above the threshold, in [0, 1]."""
    final_success: float | None
    """Mean final score of successes, in [0, 1]."""
    final_failure: float | None
    """Mean final score of failures, in [0, 1]."""
    agreement: float | None
    """Spearman correlation with the reference judge over all steps that both scored, in [-1, 1]."""
    change_agreement: float | None
    """Pearson correlation of the changes from step to step with those of the reference, in [-1, 1]: what `difference`
    and `potential` shaping pay. A judge may order whole episodes well and still be noise here."""
    flat: float
    """Share of episodes whose curve has no order: constant, or fewer than three scores."""
    unscored: float
    """Share of all steps without a score."""


@dataclass(frozen=True)
class ProgressReport:
    """Judges side by side on the same episodes."""

    rows: tuple[ProgressRow, ...]
    """One per judge."""
    threshold: float
    """From which final score on an episode counts as judged a success."""
    reference: str
    """The judge that `agreement` is with, "" for none."""
    successes: int
    """Episodes that succeeded."""
    failures: int
    """Episodes that did not."""

    def table(self) -> str:
        """Return a table for the terminal, a note on each column below it."""
        heads = (
            "judge",
            "VOC",
            "VOC+",
            "VOC-",
            "AUROC",
            "FP",
            "final+",
            "final-",
            "agree",
            "change",
            "flat",
            "unscored",
        )
        cells = [heads, *(_cells(row) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]
        told = f"; agree, change: correlation of scores, and of their changes, with {self.reference}"
        with_whom = told if self.reference else ""
        note = f"+ {self.successes} successes, - {self.failures} failures; FP: failures ending at {self.threshold:g} or"
        return "\n".join([*lines, f"{note} above{with_whom}"])


def progress_report(
    curves: Mapping[str, Sequence[ArrayLike]],
    successes: Sequence[bool],
    *,
    threshold: float = 0.5,
    reference: str = "",
) -> ProgressReport:
    """Compare judges by their progress curves of the same labelled episodes.

    Args:
        curves: By judge, the curve of every episode, each float [S] in [0, 1], NaN where a step has no score; S may
            differ between episodes and not between judges.
        successes: Whether each episode succeeded, by the environment's own word.
        threshold: From which final score on an episode counts as judged a success, in [0, 1].
        reference: The judge in `curves` to agree with, e.g. "caption-rule".

    Raises:
        ConfigError: There is no episode, the judges saw different ones, or the reference is no judge.
    """
    check_number("threshold", threshold, least=0, most=1)
    arrays = {judge: [np.asarray(curve, dtype=np.float64) for curve in rows] for judge, rows in curves.items()}
    won = np.asarray(successes, dtype=np.bool_)
    _check(arrays, won.size, reference)
    other = arrays[reference] if reference else None
    rows = tuple(_row(judge, episodes, won, threshold, other) for judge, episodes in arrays.items())
    return ProgressReport(rows, threshold, reference, int(won.sum()), int((~won).sum()))


def _check(arrays: Mapping[str, Sequence[Array]], episodes: int, reference: str) -> None:
    lengths = {judge: [curve.shape for curve in rows] for judge, rows in arrays.items()}
    if not episodes or not arrays:
        raise ConfigError(f"a report needs at least 1 judge and 1 episode, got {len(arrays)} and {episodes}")
    first = next(iter(lengths.values()))
    for judge, shapes in lengths.items():
        if shapes != first or len(shapes) != episodes or any(len(shape) != 1 or not shape[0] for shape in shapes):
            raise ConfigError(
                f"every judge needs one curve [S], S >= 1, for each of the {episodes} episodes, as long as those of "
                f"the others; {judge!r} has {len(shapes)}: {shapes!s:.80}"
            )
    if reference and reference not in arrays:
        raise ConfigError(f"reference must be one of {', '.join(arrays)}, got {reference!r}")


def _row(
    judge: str, curves: Sequence[Array], won: NDArray[np.bool_], threshold: float, other: Sequence[Array] | None
) -> ProgressRow:
    orders = [value_order_correlation(curve) for curve in curves]
    voc_N = np.array([np.nan if order is None else order for order in orders])
    final_N = np.array([curve[-1] for curve in curves])
    return ProgressRow(
        judge=judge,
        voc=_mean(voc_N),
        voc_success=_mean(voc_N[won]),
        voc_failure=_mean(voc_N[~won]),
        auroc=auroc(final_N, won),
        false_positives=false_positive_rate(final_N, won, threshold=threshold),
        final_success=_mean(final_N[won]),
        final_failure=_mean(final_N[~won]),
        agreement=None if other is None else spearman(np.concatenate(list(curves)), np.concatenate(list(other))),
        change_agreement=None if other is None else _correlation(_changes(curves), _changes(other)),
        flat=float(np.isnan(voc_N).mean()),
        unscored=unscored_rate(np.concatenate(list(curves))),
    )


def _changes(curves: Sequence[Array]) -> Array:
    return np.concatenate([np.diff(curve) for curve in curves])


def _correlation(x: Array, y: Array) -> float | None:
    """Return Pearson's correlation over pairs that are both known, None where either does not vary."""
    known = ~(np.isnan(x) | np.isnan(y))
    x, y = x[known], y[known]
    return float(np.corrcoef(x, y)[0, 1]) if x.size > 1 and np.ptp(x) > 0 and np.ptp(y) > 0 else None


def _mean(values_N: Array) -> float | None:
    """Return the mean of what is known, None where nothing is."""
    known = values_N[~np.isnan(values_N)]
    return float(known.mean()) if known.size else None


def _cells(row: ProgressRow) -> tuple[str, ...]:
    numbers = [getattr(row, field.name) for field in fields(row)[1:]]
    return (row.judge, *("-" if number is None else f"{number:.2f}" for number in numbers))
