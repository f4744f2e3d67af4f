"""What VerifierReward logs of one call."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rl_reward.adapters.trl.gates import GATES
from rl_reward.adapters.trl.judging import distinct
from rl_reward.adapters.trl.paying import Judged, Payout
from rl_reward.groups import Array, pair_gaps, spread, within_group_correlation
from rl_reward.types import Usage


def metrics_of(groups: Sequence[Judged], payout: Payout, processes: int) -> dict[str, float]:
    """Return what is logged of the groups that this process judged; what is undefined there is left out.

    Groups and not rows of this process: a correlation inside a part of a group is another one. TRL averages over the
    processes that log a metric. So the sums are logged times the number of processes, by every one of them: their
    average is the sum over the batch.
    """
    usage = sum((verdict.usage for group in groups for verdict in group.verdicts), Usage())
    sums = {"calls": float(usage.calls), "tokens": float(usage.prompt_tokens + usage.completion_tokens)}
    means = {} if not groups else _shares(groups) | _scores(groups, payout) | _correct(groups)
    return {name: value * processes for name, value in sums.items()} | {
        name: value for name, value in means.items() if not math.isnan(value)
    }


def _shares(groups: Sequence[Judged]) -> dict[str, float]:
    """Return the shares of rows: not judged, not scored, judged with another, and what the gates saw."""
    rows = [row for group in groups for row in group.rows]
    verdicts = [verdict for group in groups for verdict in group.verdicts]
    asked = [verdict for verdict in verdicts if verdict.status != "gated"]
    duplicates = len(asked) - sum(len(distinct(group.rows)) for group in groups)
    return {
        "unscored_rate": _mean([verdict.value is None for verdict in asked]),
        "duplicate_rate": duplicates / len(rows),
        "gated_rate": 1.0 - len(asked) / len(rows),
        **{f"{gate}_rate": _mean([gate in row.signs for row in rows]) for gate in GATES},
    }


def _scores(groups: Sequence[Judged], payout: Payout) -> dict[str, float]:
    """Return what the judge said, stopped rows left out, and how many groups it could not tell apart."""
    scores_MG = np.stack([group.judged_G for group in groups])
    lengths_MG = np.stack([group.lengths_G for group in groups])
    return {
        "coverage": _mean([v.coverage for group in groups for v in group.verdicts if v.coverage is not None]),
        "score_mean": _mean(scores_MG[~np.isnan(scores_MG)]),
        "score_std": spread(scores_MG.ravel()),
        "score_length_correlation": within_group_correlation(lengths_MG, scores_MG),
        "flat_groups": _mean([payout.is_flat(group) for group in groups]),
    }


def _correct(groups: Sequence[Judged]) -> dict[str, float]:
    """Return how scores and classes go together, stopped rows left out."""
    return correctness([group.judged_G for group in groups], [group.classes_G for group in groups])


def correctness(scores_MG: Sequence[Array], classes_MG: Sequence[Array]) -> dict[str, float]:
    """Return how the judge's scores and the known classes of the answers of M groups go together; NaN: undefined."""
    gaps = [pair_gaps(scores_G, classes_G) for scores_G, classes_G in zip(scores_MG, classes_MG, strict=True)]
    scores_N, classes_N = np.concatenate(scores_MG), np.concatenate(classes_MG)
    both_N = ~np.isnan(scores_N + classes_N)
    return {
        "score_correct_gap": _mean([_mean(gap) for gap in gaps if gap.size]),
        "correct_agreement": _mean([_mean((gap > 0) + 0.5 * (gap == 0)) for gap in gaps if gap.size]),
        "score_minus_correct": _mean((scores_N - classes_N)[both_N]),
    }


def _mean(values: Sequence[float] | Array) -> float:
    return float(np.mean(values)) if len(values) else math.nan
