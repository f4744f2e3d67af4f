"""Group arithmetic: numbers worked by hand, then properties."""

from __future__ import annotations

import numpy as np
import pytest

from rl_reward.groups import (
    centred,
    deadband,
    deviations,
    is_flat,
    kept_in_class,
    pair_gaps,
    spread,
    within_group_correlation,
)

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


def test_the_deadband_in_standard_errors_by_hand():
    # Root mean square of .03 and .04 is .0354; the unknown one does not count.
    errors = np.array([0.03, NAN, 0.04])
    assert deadband(errors, 0.02, 2.0) == pytest.approx(2 * np.sqrt(0.00125))
    assert deadband(errors, 0.2, 2.0) == 0.2, "the larger of the two decides"
    assert deadband(errors, 0.02, 0.0) == 0.02
    assert deadband(np.full(3, NAN), 0.02, 2.0) == 0.02, "unknown errors are no errors of 0, and none to go by"


RIGHT_AND_WRONG = np.array([1.0, 1.0, 0.0, 0.0, 0.0, NAN])


def inside(scores, classes=RIGHT_AND_WRONG, *, standardize=False, min_spread=0.02):
    return centred(np.array(scores), standardize=standardize, min_spread=min_spread, classes_G=np.array(classes))


def test_centred_inside_classes_by_hand():
    scores = [0.2, 0.4, 0.5, 0.9, NAN, 0.7]
    # Right: mean .3; wrong: mean .7; of unknown class: compared with nobody.
    np.testing.assert_allclose(inside(scores), [-0.1, 0.1, -0.2, 0.2, NAN, 0.0])
    # Pooled: (.01 + .01 + .04 + .04) / (4 rows - 2 classes)
    assert spread(np.array(scores), RIGHT_AND_WRONG) == pytest.approx(np.sqrt(0.05))
    np.testing.assert_allclose(inside(scores, standardize=True), np.array([-0.1, 0.1, -0.2, 0.2, NAN, 0.0]) / 0.05**0.5)


def test_one_class_is_the_whole_group():
    scores = np.array([0.1, 0.7, NAN, 0.4])
    np.testing.assert_array_equal(inside(scores, np.zeros(4), standardize=True), standardized(scores))
    assert spread(scores, np.zeros(4)) == spread(scores)


def test_a_class_of_one_has_nobody_to_compare_with():
    np.testing.assert_array_equal(inside([0.9, 0.1, NAN], [1.0, 0.0, 0.0]), [0.0, 0.0, NAN])
    assert np.isnan(spread(np.array([0.9, 0.1]), np.array([1.0, 0.0])))


def test_a_gap_between_flat_classes_is_no_spread():
    np.testing.assert_array_equal(inside([0.9, 0.901, 0.1, 0.101], [1.0, 1.0, 0.0, 0.0], standardize=True), np.zeros(4))


def test_the_means_of_all_classes_are_zero_whatever_the_scores():
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores, classes = rng.uniform(size=8), rng.choice([0.0, 0.5, 1.0], size=8)
        scores[rng.integers(8)] = NAN
        rewards = kept_in_class(5.0 * inside(scores, classes, standardize=True), classes)
        for one in np.unique(classes):
            assert np.nansum(rewards[classes == one]) == pytest.approx(0.0, abs=1e-9)
        total = classes + np.nan_to_num(rewards)
        order = np.sign(classes[:, None] - classes[None, :])
        assert np.all((order == 0) | (np.sign(total[:, None] - total[None, :]) == order)), "nobody overtakes a class"


def test_rewards_are_scaled_down_only_where_they_would_overtake():
    rewards = np.array([-0.8, 0.8, -0.4, 0.4])
    # Under half of the smallest distance of two classes, here .5.
    np.testing.assert_allclose(kept_in_class(rewards, np.array([1.0, 1.0, 0.5, 0.5])), rewards * 0.49 * 0.5 / 0.8)
    np.testing.assert_array_equal(kept_in_class(rewards, np.array([4.0, 4.0, 0.0, 0.0])), rewards)
    np.testing.assert_array_equal(kept_in_class(rewards, np.zeros(4)), rewards)


def test_gaps_of_pairs_by_hand():
    scores, classes = np.array([0.9, 0.5, 0.6, NAN, 0.1]), np.array([1.0, 1.0, 0.0, 0.0, NAN])
    np.testing.assert_allclose(pair_gaps(scores, classes), [0.3, -0.1])
    assert pair_gaps(scores, np.zeros(5)).size == 0
    np.testing.assert_allclose(deviations(scores, classes), [0.2, -0.2, 0.0, NAN, NAN])
