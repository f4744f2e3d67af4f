from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rl_reward.errors import ConfigError
from rl_reward.progress import (
    anchor,
    average_ranks,
    checkpoints,
    hold,
    interpolate_for_plot,
    spearman,
    value_order_correlation,
)

nan = np.nan


def test_checkpoints_begin_with_the_first_and_end_with_the_last_step() -> None:
    assert checkpoints(10, 4) == (0, 4, 8, 9)
    assert checkpoints(9, 4) == (0, 4, 8)
    assert checkpoints(3) == (0, 1, 2)
    assert checkpoints(1, 5) == (0,)


@pytest.mark.parametrize(("n_steps", "every"), [(0, 1), (5, 0), (5, -2)])
def test_checkpoints_refuse_nonsense(n_steps: int, every: int) -> None:
    with pytest.raises(ConfigError, match="at least 1 step"):
        checkpoints(n_steps, every)


def test_unasked_steps_hold_the_last_score_and_unreadable_ones_are_nan() -> None:
    curve = hold({0: 0.2, 2: None, 4: 0.6}, 6)
    np.testing.assert_array_equal(curve.values_S, [0.2, 0.2, nan, 0.2, 0.6, 0.6])
    np.testing.assert_array_equal(curve.scored_S, [True, False, False, False, True, False])


def test_nothing_is_carried_back_to_before_the_first_score() -> None:
    curve = hold({0: None, 2: 0.5}, 4)
    np.testing.assert_array_equal(curve.values_S, [nan, nan, 0.5, 0.5])


def test_a_score_of_zero_is_a_score() -> None:
    curve = hold({0: 0.7, 1: 0.0}, 3)
    np.testing.assert_array_equal(curve.values_S, [0.7, 0.0, 0.0])
    assert curve.scored_S[1]


def test_anchoring_stretches_a_weak_judge_and_clips() -> None:
    np.testing.assert_allclose(anchor([0.33, 0.36, 0.39, 0.2, 0.9], start=0.33, goal=0.39), [0, 0.5, 1, 0, 1])


def test_anchoring_keeps_a_flat_episode_flat_and_low_and_nan_nan() -> None:
    np.testing.assert_allclose(anchor([0.34, 0.34, nan, 0.34], start=0.33, goal=0.39), [1 / 6, 1 / 6, nan, 1 / 6])


@pytest.mark.parametrize("goal", [0.509, 0.5, 0.4, nan])
def test_anchoring_refuses_a_judge_that_does_not_tell_goal_from_start(goal: float) -> None:
    with pytest.raises(ConfigError, match=r"the goal must score at least 0\.01 above the start"):
        anchor([0.5], start=0.5, goal=goal)


def test_interpolation_joins_scored_steps_and_leaves_the_rest_open() -> None:
    curve = hold({1: 0.2, 3: 0.6, 4: None}, 5)
    np.testing.assert_allclose(interpolate_for_plot(curve.values_S, curve.scored_S), [nan, 0.2, 0.4, 0.6, nan])
    assert np.isnan(interpolate_for_plot([nan, nan], [False, False])).all()


def test_voc_by_hand() -> None:
    assert value_order_correlation([0.1, 0.2, 0.7, 0.9]) == pytest.approx(1.0)
    assert value_order_correlation([0.9, 0.5, 0.1]) == pytest.approx(-1.0)
    # Ranks 0.5, 0.5, 2 against 0, 1, 2: 1.5 / (sqrt(2) * sqrt(1.5)).
    assert value_order_correlation([0.1, 0.1, 0.3]) == pytest.approx(np.sqrt(3) / 2)


def test_voc_does_not_exist_for_short_or_constant_curves() -> None:
    assert value_order_correlation([]) is None
    assert value_order_correlation([0.1, 0.9]) is None
    assert value_order_correlation([0.5, 0.5, 0.5, 0.5]) is None
    assert value_order_correlation([0.1, nan, 0.9]) is None


def test_voc_leaves_unreadable_checkpoints_out() -> None:
    assert value_order_correlation([0.1, nan, 0.2, 0.0]) == value_order_correlation([0.1, 0.2, 0.0])


def test_ranks_and_spearman_agree_with_scipy_on_ties() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        first, second = rng.integers(0, 5, size=(2, 12)).astype(float)
        np.testing.assert_array_equal(average_ranks(first), stats.rankdata(first) - 1)
        assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)


def test_spearman_refuses_unequal_lengths() -> None:
    with pytest.raises(ConfigError, match=r"\(3,\) and \(2,\)"):
        spearman([1, 2, 3], [1, 2])
