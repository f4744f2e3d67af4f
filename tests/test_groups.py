"""Group arithmetic: numbers worked by hand, then properties."""

from __future__ import annotations

import numpy as np
import pytest

from rl_reward.errors import ConfigError
from rl_reward.groups import by_position, centred, is_flat, spread, within_group_correlation

NAN = float("nan")


def plain(scores, min_spread=0.02):
    return centred(np.array(scores), standardize=False, min_spread=min_spread)


def standardized(scores, min_spread=0.02):
    return centred(np.array(scores), standardize=True, min_spread=min_spread)


def test_a_failed_row_does_not_vote():
    np.testing.assert_allclose(plain([1.0, NAN, 0.0, 0.0]), [2 / 3, NAN, -1 / 3, -1 / 3])


def test_standardizing_by_hand():
    # mean .5, deviations -.3 .3 0, sample variance .18 / 2
    np.testing.assert_allclose(standardized([NAN, 0.2, 0.8, 0.5]), [NAN, -1.0, 1.0, 0.0], atol=1e-12)


def test_one_scored_row_earns_nothing():
    np.testing.assert_array_equal(standardized([NAN, 0.9, NAN]), [NAN, 0.0, NAN])
    np.testing.assert_array_equal(standardized([NAN, NAN]), [NAN, NAN])


def test_a_flat_group_earns_nothing():
    flat = [0.800, 0.801, NAN, 0.803]
    assert is_flat(np.array(flat), 0.02)
    np.testing.assert_array_equal(standardized(flat), [0.0, 0.0, NAN, 0.0])
    assert np.nanmax(standardized(flat, min_spread=0.001)) > 1.0


def test_rounding_is_no_spread():
    equal = np.full(3, 0.1)
    assert spread(equal) > 0.0, "the case needs scores whose mean is not exact"
    np.testing.assert_array_equal(standardized(equal, min_spread=0.0), np.zeros(3))


def test_centred_rewards_ignore_shift_and_scale():
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.2, 0.8, size=8)
    scores[[1, 5]] = NAN
    rewards = standardized(scores)
    assert np.nansum(rewards) == pytest.approx(0.0, abs=1e-12)
    assert spread(rewards) == pytest.approx(1.0)
    np.testing.assert_allclose(standardized(0.5 * scores + 0.1), rewards)
    np.testing.assert_allclose(plain(0.5 * scores + 0.1), 0.5 * plain(scores))


def test_groups_are_neighbours():
    np.testing.assert_array_equal(by_position([1, 2, 3, 4, 5, 6], 3), [[1, 2, 3], [4, 5, 6]])
    with pytest.raises(ConfigError, match="6 rows do not fill groups of 4"):
        by_position([1, 2, 3, 4, 5, 6], 4)


def test_correlation_is_taken_inside_groups():
    lengths = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    scores = np.array([[0.9, 0.8, 0.7], [0.3, 0.2, 0.1]])
    falling = within_group_correlation(lengths, scores)
    # deviations 1, 10 and -.1, -.1: (.2 + 2) / (sqrt(202) * .2)
    assert falling == pytest.approx(-2.2 / (np.sqrt(202) * 0.2))
    hard_prompts_are_long = np.array([[0.9, 0.9, 0.9], [0.1, 0.1, 0.1]])
    assert np.isnan(within_group_correlation(lengths, hard_prompts_are_long))
    one_missing = np.array([[0.9, NAN, 0.7]])
    assert within_group_correlation(lengths[:1], one_missing) == pytest.approx(-1.0)
