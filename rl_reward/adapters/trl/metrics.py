"""What VerifierReward logs of one call."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rl_reward.groups import Array, is_flat, spread, within_group_correlation
from rl_reward.scores import Score
from rl_reward.types import Usage


def metrics_of(scores: Sequence[Score], scores_MG: Array, lengths_MG: Array, min_spread: float) -> dict[str, float]:
    """Return what is logged of one call; what is undefined there is left out."""
    usage = sum((score.usage for score in scores), Usage())
    coverages = [read.coverage for score in scores for reads in score.distributions.values() for read in reads]
    scored_N = scores_MG[~np.isnan(scores_MG)]
    metrics = {
        "coverage": float(np.mean(coverages)) if coverages else math.nan,
        "unscored_rate": 1.0 - scored_N.size / scores_MG.size,
        "calls": float(usage.calls),
        "seconds": usage.seconds,
        "tokens": float(usage.prompt_tokens + usage.completion_tokens),
        "score_length_correlation": within_group_correlation(lengths_MG, scores_MG),
        "score_mean": float(scored_N.mean()) if scored_N.size else math.nan,
        "score_std": spread(scored_N),
        "gated_groups": float(np.mean([is_flat(scores_G, min_spread) for scores_G in scores_MG])),
    }
    return {metric: value for metric, value in metrics.items() if not math.isnan(value)}
