from __future__ import annotations

import numpy as np
import pytest

from rl_reward.errors import ConfigError
from rl_reward.evaluation.agreement import auroc, false_positive_rate, pair_counts, signal_to_noise, unscored_rate

nan = np.nan


def test_a_tie_is_not_right_and_an_unscored_pair_is_no_pair() -> None:
    counts = pair_counts(better=[0.9, 0.8, 0.5, 0.2, nan], worse=[0.1, 0.3, 0.5, 0.6, 0.1])
    assert (counts.right, counts.wrong, counts.ties, counts.unscored) == (2, 1, 1, 1)
    assert counts.accuracy == 2 / 4
    assert counts.accuracy_ties_half == 2.5 / 4
    assert counts.tie_rate == 1 / 4


def test_the_discrete_judge_of_the_paper_mostly_ties() -> None:
    """Case query-optimize, 100 repeats at G=5: 12 right, 88 ties."""
    counts = pair_counts(better=[0.75] * 12 + [0.5] * 88, worse=[0.5] * 100)
    assert (counts.accuracy, counts.accuracy_ties_half, counts.tie_rate) == (0.12, 0.56, 0.88)


def test_without_a_scored_pair_there_is_no_rate() -> None:
    counts = pair_counts([nan], [0.3])
    assert (counts.accuracy, counts.accuracy_ties_half, counts.tie_rate, counts.unscored) == (None, None, None, 1)


def test_auroc_by_hand() -> None:
    # Positives .9, .5 against negatives .5, .1: three wins and one tie of four.
    assert auroc([0.9, 0.5, 0.5, 0.1], [1, 1, 0, 0]) == pytest.approx(3.5 / 4)
    assert auroc([0.1, 0.9], [True, False]) == 0.0


def test_auroc_leaves_unscored_items_out_and_needs_both_classes() -> None:
    assert auroc([0.9, nan, 0.5, nan], [1, 1, 0, 0]) == 1.0
    assert auroc([0.9, nan], [1, 0]) is None


def test_false_positive_rate_counts_scored_negatives_at_or_above_the_threshold() -> None:
    scores, labels = [0.9, 0.8, 0.7, 0.2, nan, 0.99], [0, 0, 0, 0, 0, 1]
    assert false_positive_rate(scores, labels, threshold=0.8) == 2 / 4
    assert false_positive_rate([0.9], [1], threshold=0.5) is None


def test_signal_to_noise_by_hand() -> None:
    # Gaps .1, .3: mean .2, population deviation .1.
    assert signal_to_noise([0.5, 0.6, nan], [0.4, 0.3, 0.1]) == pytest.approx(2.0)
    assert signal_to_noise([0.5, 0.75], [0.25, 0.5]) is None


def test_unscored_rate() -> None:
    assert unscored_rate([0.1, None, nan, 0.4]) == 0.5
    with pytest.raises(ConfigError, match="at least 1 score"):
        unscored_rate([])


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\(2,\) and \(1,\)"):
        pair_counts([0.1, 0.2], [0.1])
