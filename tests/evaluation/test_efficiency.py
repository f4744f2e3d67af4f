from __future__ import annotations

import numpy as np
import pytest

from rl_reward.errors import ConfigError
from rl_reward.evaluation.efficiency import area, paired_difference, speed_up, steps_to_target

STEPS = np.array([0, 100, 200, 300, 400])
FAST = [0.0, 0.5, 0.5, 0.5, 0.5]
SLOW = [0.0, 0.0, 0.5, 0.5, 0.5]
SLOWER = [0.0, 0.0, 0.0, 0.5, 0.5]
NEVER = [0.0, 0.0, 0.0, 0.0, 0.0]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def curves(*rows: list[float]) -> np.ndarray:
    return np.array(rows)


def test_area_is_the_mean_success_over_the_span_of_x() -> None:
    uneven = np.array([1000, 1100, 1500])
    # Trapezoids: 100 * .25 + 400 * .5 over a span of 500.
    np.testing.assert_allclose(area(uneven, curves([0.0, 0.5, 0.5], [1.0, 1.0, 1.0])), [0.45, 1.0])


@pytest.mark.parametrize("steps", [[100], [0, 0], [100, 0]])
def test_area_needs_increasing_steps(steps: list[int]) -> None:
    with pytest.raises(ConfigError, match="at least 2 evaluations at increasing steps"):
        area(np.array(steps), np.zeros((1, len(steps))))


def test_a_target_is_reached_at_the_first_of_two_consecutive_evaluations() -> None:
    lucky_then_held = [0.0, 0.5, 0.0, 0.6, 0.5]
    lucky_at_the_end = [0.0, 0.5, 0.0, 0.0, 0.9]
    steps = steps_to_target(STEPS, curves(lucky_then_held, lucky_at_the_end, FAST), 0.5)
    np.testing.assert_array_equal(steps, [300, np.inf, 100])
    assert steps_to_target(STEPS, np.array(lucky_then_held), 0.5, consecutive=1) == 100


def test_a_target_that_is_a_sum_is_not_missed_by_rounding() -> None:
    assert 0.1 + 0.2 > 0.3
    assert steps_to_target(STEPS, np.full(5, 0.3), 0.1 + 0.2) == 0


def test_fewer_evaluations_than_asked_in_a_row_reach_nothing() -> None:
    assert np.isinf(steps_to_target(np.array([0]), np.array([1.0]), 0.5))


def test_speed_up_by_hand(rng: np.random.Generator) -> None:
    ratio = speed_up(STEPS, curves(SLOWER, SLOWER, SLOWER), curves(FAST, FAST, FAST), 0.5, rng)
    assert ratio.at_least == ratio.at_most == 3.0
    assert ratio.interval is not None and (ratio.interval.low, ratio.interval.high) == (3.0, 3.0)
    assert ratio.undefined == 0.0


def test_a_censored_sparse_arm_makes_the_ratio_a_lower_bound_with_an_open_end(rng: np.random.Generator) -> None:
    ratio = speed_up(STEPS, curves(NEVER, NEVER, NEVER), curves(FAST, SLOW, FAST), 0.3, rng)
    assert (ratio.at_least, ratio.at_most) == (4.0, np.inf)
    assert ratio.interval is not None and (ratio.interval.low, ratio.interval.high) == (2.0, np.inf)


def test_a_censored_dense_arm_makes_it_an_upper_bound(rng: np.random.Generator) -> None:
    ratio = speed_up(STEPS, curves(FAST, FAST), curves(NEVER, NEVER), 0.5, rng)
    assert (ratio.at_least, ratio.at_most) == (0.0, 0.25)
    assert ratio.interval is not None and (ratio.interval.low, ratio.interval.high) == (0.0, 0.25)


def test_no_arm_reaching_is_undefined_and_counted(rng: np.random.Generator) -> None:
    ratio = speed_up(STEPS, curves(NEVER, NEVER), curves(NEVER, NEVER), 0.5, rng)
    assert not ratio.defined and ratio.interval is None and ratio.undefined == 1.0

    # Both arms reach 0.5 only on seed 0. Of two pairs a draw misses it with probability 1/4; seed 0 once gives a mean
    # of .25 < .5, so only (0, 0) is defined: 3/4 undefined, and the interval is open at both ends.
    mixed = speed_up(STEPS, curves(SLOW, NEVER), curves(FAST, NEVER), 0.5, rng)
    assert mixed.undefined == pytest.approx(0.75, abs=0.03)
    assert mixed.interval is not None and (mixed.interval.low, mixed.interval.high) == (0.0, np.inf)


def test_pairs_are_resampled_together(rng: np.random.Generator) -> None:
    """On each seed the dense arm is twice as fast. A mean of two runs reaches .5 with the later of the two."""
    sparse = curves([0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5])
    dense = curves([0.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], [0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5])
    ratio = speed_up(np.arange(0, 700, 100), sparse, dense, 0.5, rng)
    assert ratio.interval is not None and (ratio.interval.low, ratio.interval.high) == (2.0, 2.0)


def test_a_single_pair_has_a_ratio_and_no_interval(rng: np.random.Generator) -> None:
    ratio = speed_up(STEPS, curves(SLOW), curves(FAST), 0.5, rng)
    assert ratio.at_least == 2.0 and ratio.interval is None


def test_paired_difference_by_hand(rng: np.random.Generator) -> None:
    difference = paired_difference(np.array([0.5, 0.7, 0.9]), np.array([0.4, 0.5, 0.6]), rng)
    assert difference.mean == pytest.approx(0.2)
    assert difference.p_value == pytest.approx(0.25)
    assert difference.interval is not None
    assert (difference.interval.low, difference.interval.high) == pytest.approx((0.1, 0.3))


def test_pairing_removes_what_seeds_share(rng: np.random.Generator) -> None:
    luck = np.linspace(0.0, 0.8, 8)
    difference = paired_difference(luck + 0.1, luck, rng)
    assert difference.interval is not None
    assert (difference.interval.low, difference.interval.high) == pytest.approx((0.1, 0.1))


def test_one_pair_shows_a_difference_and_nothing_more(rng: np.random.Generator) -> None:
    difference = paired_difference(np.array([0.5]), np.array([0.4]), rng)
    assert (difference.interval, difference.p_value, difference.pairs) == (None, None, 1)


def test_no_common_seed_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(ConfigError, match="at least 1 common seed, got 0"):
        paired_difference(np.array([]), np.array([]), rng)
