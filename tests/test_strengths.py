"""Bradley-Terry strengths from the comparisons of a tournament."""

import sys

import numpy as np
import pytest

from rl_reward import MissingExtraError
from rl_reward.strengths import bradley_terry, check_installed
from rl_reward.tournament import Comparison, Pairing, anchored, pivot_tournament, play


def said(*comparisons):
    return [Comparison(Pairing(a, b, "ring"), p) for a, b, p in comparisons]


def logistic(strengths):
    return lambda a, b: 1 / (1 + np.exp(strengths[b] - strengths[a]))


def test_four_wins_to_one_are_log_four_apart():
    np.testing.assert_allclose(bradley_terry(said((0, 1, 0.8)), 2), [np.log(4) / 2, -np.log(4) / 2], atol=1e-3)


def test_strengths_are_found_again_whoever_was_met():
    strengths = np.random.default_rng(0).normal(size=12)
    played = play(pivot_tournament(12, 2, np.random.default_rng(0)), logistic(strengths))
    np.testing.assert_allclose(bradley_terry(played, 12), strengths - strengths.mean(), atol=0.02)


def test_references_are_fitted_and_not_reported():
    strengths = np.array([1.0, -0.5, 0.3, 5.0])
    found = bradley_terry(play(anchored(3, 1), logistic(strengths)), 3)
    np.testing.assert_allclose(found, strengths[:3] - strengths[:3].mean(), atol=0.02)


def test_unread_comparisons_count_for_nobody():
    read = said((0, 1, 0.8), (1, 2, 0.6))
    unread = said((2, 0, float("nan")), (0, 2, float("nan")))
    np.testing.assert_array_equal(bradley_terry(read + unread, 3), bradley_terry(read, 3))


def test_certain_preferences_stay_finite_and_in_order():
    found = bradley_terry(said((0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 0, 0.0)), 4)
    assert np.isfinite(found).all() and (np.diff(found) < 0).all()


def test_who_is_not_joined_to_the_others_has_no_strength():
    found = bradley_terry(said((0, 1, 0.8), (1, 4, 0.5), (2, 3, 0.9)), 6)
    assert np.isnan(found).tolist() == [False, False, True, True, False, True]
    assert np.nanmean(found) == pytest.approx(0)


def test_nothing_read_fits_nothing_and_one_alone_is_average():
    assert np.isnan(bradley_terry(said((0, 1, float("nan"))), 2)).all()
    assert bradley_terry([], 1).tolist() == [0.0]


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "choix", None)
    with pytest.raises(MissingExtraError, match=r'choix is not installed; run: pip install "rl-reward\[rank\]"'):
        check_installed()
    with pytest.raises(MissingExtraError):
        bradley_terry(said((0, 1, 0.8)), 2)
