import warnings

import numpy as np
import pytest

from rl_reward import ConfigError, Shaping, shaping

NAN = float("nan")


def test_additive_by_hand():
    np.testing.assert_allclose(shaping.additive([0, 1], [0.1, 0.5, 1.0], weight=0.1), [0.05, 1.1])


def test_step_cost_subtracts_one_itself():
    np.testing.assert_allclose(shaping.step_cost([0, 1], [0.1, 0.5, 1.0], weight=0.1), [-0.95, 0.1])
    with pytest.raises(ConfigError, match=r"0 and 1 .* got -1"):
        shaping.step_cost([-1, 0], [0.1, 0.5, 1.0], weight=0.1)


def test_difference_telescopes():
    paid = shaping.difference([0, 0, 0], [0.2, 0.1, 0.7, 0.6], weight=2.0)
    np.testing.assert_allclose(paid, [-0.2, 1.2, -0.2])
    assert paid.sum() == pytest.approx(2.0 * (0.6 - 0.2))


def test_potential_is_zeroed_at_a_true_terminal_only():
    ended = shaping.potential([0, 1], [0.2, 0.5, 0.9], gamma=0.9, weight=1.0, terminated=True)
    np.testing.assert_allclose(ended, [0.9 * 0.5 - 0.2, 1 - 0.5])
    cut = shaping.potential([0, 1], [0.2, 0.5, 0.9], gamma=0.9, weight=1.0, terminated=False)
    np.testing.assert_allclose(cut, [0.9 * 0.5 - 0.2, 1 + 0.9 * 0.9 - 0.5])


def test_potential_adds_minus_the_first_potential_to_the_discounted_return_of_any_terminated_episode():
    random = np.random.default_rng(0)
    progress, gamma = random.random(9), 0.97
    paid = shaping.potential(np.zeros(8), progress, gamma=gamma, weight=1.0, terminated=True)
    assert gamma ** np.arange(8) @ paid == pytest.approx(-progress[0])


def test_unscored_states_earn_nothing_and_the_next_scored_one_closes_the_gap():
    progress = [0.2, NAN, 0.6, NAN]
    np.testing.assert_allclose(shaping.additive([0, 0, 0], progress, weight=1.0), [0, 0.6, 0])
    np.testing.assert_allclose(shaping.difference([0, 0, 0], progress, weight=1.0), [0, 0.4, 0])
    paid = shaping.potential([0, 0, 0], progress, gamma=0.9, weight=1.0, terminated=False)
    np.testing.assert_allclose(paid, [0, 0.9**2 * 0.6 - 0.2, 0])


def test_an_unread_terminal_state_still_has_potential_zero():
    paid = shaping.potential([0, 0], [0.2, 0.6, NAN], gamma=0.9, weight=1.0, terminated=True)
    np.testing.assert_allclose(paid, [0.9 * 0.6 - 0.2, -0.6])


def test_an_unread_reset_state_gives_no_bonus_before_two_states_are_scored():
    np.testing.assert_allclose(shaping.difference([0, 0], [NAN, 0.6, 0.7], weight=1.0), [0, 0.1])
    np.testing.assert_allclose(shaping.difference([0, 0], [NAN, NAN, NAN], weight=1.0), [0, 0])


@pytest.mark.parametrize("form", ["additive", "step_cost", "difference", "potential"])
def test_weight_zero_is_the_sparse_reward(form):
    paid = Shaping(form, weight=0.0)([0, 1, 0], [0.1, NAN, 0.3, 1.0], terminated=True)
    np.testing.assert_array_equal(paid, [-1, 0, -1] if form == "step_cost" else [0, 1, 0])


def test_hovering_pays_more_than_finishing_and_the_warning_has_both_numbers():
    with pytest.warns(UserWarning, match=r"hovering at progress 0\.9 is worth 4\.50, finishing 1\.05"):
        Shaping("additive", weight=0.05, gamma=0.99)


def test_with_rewards_of_minus_one_the_potential_is_zero_at_the_goal() -> None:
    shaping = Shaping("potential", weight=10.0, gamma=0.9, env_reward="minus_one_zero")
    # Phi = rho - 1: -0.8, -0.5, then 0 after the goal; 10 * (0.9 * -0.5 + 0.8) and 10 * (0 + 0.5).
    np.testing.assert_allclose(shaping([-1.0, 0.0], [0.2, 0.5, 1.0], terminated=True), [-1.0 + 3.5, 5.0])
    # At a time limit the potential stays: 10 * (0.9 * -0.1 + 0.5).
    np.testing.assert_allclose(shaping([-1.0, -1.0], [0.2, 0.5, 0.9], terminated=False), [2.5, -1.0 + 4.1])


@pytest.mark.parametrize("zero", [0.0, 0.3, 1.0])
def test_potential_shaping_adds_what_no_policy_can_change(zero: float) -> None:
    progress, gamma = np.array([0.1, 0.7, 0.4, 1.0]), 0.9
    shaped = shaping.potential([-1.0, -1.0, 0.0], progress, gamma=gamma, weight=2.0, terminated=True, zero=zero)
    gained = (shaped - [-1.0, -1.0, 0.0]) @ gamma ** np.arange(3)
    assert gained == pytest.approx(-2.0 * (0.1 - zero))  # the start alone


@pytest.mark.parametrize(
    "safe",
    [
        {"form": "additive", "weight": 0.05, "gamma": 0.99, "terminates_on_success": False},
        {"form": "additive", "weight": 0.005, "gamma": 0.99},
        {"form": "step_cost", "weight": 1.0, "gamma": 0.99},
        {"form": "additive", "weight": 1.0, "gamma": 0.99, "env_reward": "minus_one_zero"},
        {"form": "difference", "weight": 5.0, "gamma": 0.99},
        {"form": "potential", "weight": 5.0, "gamma": 0.99},
    ],
)
def test_no_warning_where_finishing_wins(safe):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Shaping(**safe)


@pytest.mark.parametrize(
    ("env", "progress", "message"),
    [
        ([0, 0], [0.1, 0.2], r"\[T\+1\]"),
        ([0], [0.1, 1.2], r"\[0, 1\] or NaN, got 1\.2"),
        ([np.inf], [0.1, 0.2], "finite"),
    ],
)
def test_bad_arrays_are_refused(env, progress, message):
    with pytest.raises(ConfigError, match=message):
        shaping.additive(env, progress, weight=1.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"form": "bonus"}, "must be one of additive, step_cost, difference, potential, got 'bonus'"),
        ({"weight": -1.0}, "weight must be a finite number >= 0, got -1"),
        ({"form": "step_cost", "env_reward": "minus_one_zero"}, "step_cost takes env rewards of 0 and 1"),
        ({"env_reward": "dense"}, "env_reward must be one of zero_one, minus_one_zero, got 'dense'"),
        ({"gamma": 0.0}, "gamma must be a finite number > 0 and <= 1, got 0"),
    ],
)
def test_bad_fields_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        Shaping(**fields)
