"""Step credit: numbers worked by hand, then the laws of the formulas."""

from __future__ import annotations

import numpy as np
import pytest

from rl_reward.step_credit import EPSILON, credit, credits_of, spread_of

NAN = float("nan")
FORMS = ("difference", "to_go", "min", "sum")
SPLIT_PROOF = ("difference", "to_go")
# Solved, stuck and failed runs of reference/grpo.md, from a prompt that is worth nothing yet.
SOLVED, STUCK, FAILED = [0.0, 0.2, 0.6, 1.0], [0.0, *[0.5] * 12], [0.0, *[0.1] * 3]


def curves(*rows):
    return [np.array(row, dtype=np.float64) for row in rows]


def credited(*rows, form="difference", floor=0.02):
    return credits_of(curves(*rows), form=form, floor=floor)


def random_group(rng, n=4):
    start = rng.uniform(0, 0.3)
    return [np.array([start, *rng.uniform(size=rng.integers(2, 7))]) for _ in range(n)]


# ---------------------------------------------------------------------------------------------------- the numbers


def test_differences_by_hand():
    # gains .6 and .2: sigma = .4 / sqrt(2)
    sigma = 0.4 / 2**0.5 + EPSILON
    first, second = credited([0.1, 0.5, 0.3, 0.7], [0.1, 0.3])
    np.testing.assert_allclose(first, np.array([0.4, -0.2, 0.4]) / sigma)
    np.testing.assert_allclose(second, np.array([0.2]) / sigma)


def test_to_go_by_hand():
    # The mean gain is .4; to go from each step of the first: .6, .2, .4.
    sigma = 0.4 / 2**0.5 + EPSILON
    first, second = credited([0.1, 0.5, 0.3, 0.7], [0.1, 0.3], form="to_go")
    np.testing.assert_allclose(first, np.array([0.2, -0.2, 0.0]) / sigma, atol=1e-12)
    np.testing.assert_allclose(second, np.array([-0.2]) / sigma)


def test_min_by_hand():
    # Lowest scores .3 and .2, mean .25; the lowest from each step on: .3, .3, .7.
    sigma = 0.5 / 2**0.5 + EPSILON
    first, second = credited([0.1, 0.5, 0.3, 0.7], [0.1, 0.2], form="min")
    np.testing.assert_allclose(first, np.array([0.05, 0.05, 0.45]) / sigma)
    np.testing.assert_allclose(second, np.array([-0.05]) / sigma)


def test_sum_pays_the_stuck_run_more_than_the_solved_one():
    first_tokens = [steps[0] for steps in credited(SOLVED, STUCK, FAILED, form="sum")]
    assert first_tokens == pytest.approx([2.15, 2.87, -5.03], abs=0.01)


def test_sum_pays_for_splitting():
    whole, _ = credited([0, 1, 1], [0, 0, 0], form="sum")
    split, _ = credited([0, 1, 1, 1, 1], [0, 0, 0], form="sum")
    assert (whole[0], split[0]) == pytest.approx((2.0, 2.83), abs=0.01)


def test_statistics_leave_out_what_was_not_scored():
    group = spread_of(curves([0.0, 0.2, 0.4], [0.0, NAN, 0.8], [0.0, 0.1, NAN], [NAN, NAN]))
    assert group.sigma == pytest.approx(0.4 / 2**0.5)
    assert group.mean_gain == pytest.approx(0.6)
    assert group.mean_lowest == pytest.approx((0.2 + 0.8 + 0.1) / 3)
    assert group.mean_score == pytest.approx((0.2 + 0.4 + 0.8 + 0.1) / 4)


# -------------------------------------------------------------------------------------------------------- the laws


def test_the_stuck_run_never_beats_the_solved_one():
    solved, stuck, failed = credited(SOLVED, STUCK, FAILED)
    assert solved.sum() > stuck.sum() > failed.sum(), "differences telescope to 1.0, .5 and .1"
    assert solved.mean() > stuck.mean(), "per step too, and per token where steps are as long"
    assert np.all(stuck[1:] == 0.0) and np.all(solved[1:] > 0.0), "standing still earns nothing"
    solved, stuck, failed = credited(SOLVED, STUCK, FAILED, form="to_go")
    assert solved[0] > stuck[0] > failed[0]
    assert solved.sum() > stuck.sum()
    assert solved.min() > stuck[1:].max(), "every step of the solved run beats every step of standing still"


@pytest.mark.parametrize("form", FORMS)
def test_equal_curves_add_exactly_zero(form):
    for steps in credited(*[[0.1, 0.7, 0.3, 0.5]] * 3, form=form, floor=0.3):
        np.testing.assert_array_equal(steps, np.zeros(3))


@pytest.mark.parametrize("form", ("difference", "to_go", "min"))
def test_rounding_is_no_spread(form):
    tenths = [[0.1, 0.1 + 0.2], [0.1, 0.3], [0.1, 0.3]]
    assert tenths[0][1] != tenths[1][1]
    assert all(np.all(steps == 0.0) for steps in credited(*tenths, form=form, floor=1e-300))


@pytest.mark.parametrize("form", FORMS)
def test_below_the_floor_nothing_is_credited(form):
    group = ([0.5, 0.6, 0.500], [0.5, 0.6, 0.510], [0.5, 0.6, NAN])
    for steps, row in zip(credited(*group, form=form, floor=0.2), group, strict=True):
        np.testing.assert_array_equal(np.nan_to_num(steps), np.zeros(len(row) - 1))
    assert any(np.any(np.nan_to_num(steps) != 0.0) for steps in credited(*group, form=form, floor=0.001))


@pytest.mark.parametrize("form", SPLIT_PROOF)
def test_splitting_a_step_leaves_all_others(form):
    rng = np.random.default_rng(0)
    for _ in range(50):
        group = random_group(rng)
        at = int(rng.integers(1, group[0].size))
        split = np.insert(group[0], at, rng.uniform())  # step `at` becomes two
        before, after = (credits_of([first, *group[1:]], form=form) for first in (group[0], split))
        np.testing.assert_array_equal(np.delete(after[0], [at - 1, at]), np.delete(before[0], at - 1))
        for others_before, others_after in zip(before[1:], after[1:], strict=True):
            np.testing.assert_array_equal(others_after, others_before)


def test_min_withstands_a_split_unless_it_finds_a_new_low():
    rng = np.random.default_rng(0)
    for _ in range(50):
        group = random_group(rng)
        at = int(rng.integers(1, group[0].size))
        neighbours = group[0][max(at - 1, 1) : at + 1]  # rho_0 is no step's score
        split = np.insert(group[0], at, rng.uniform(neighbours.min(), 1.0))
        before, after = (credits_of([first, *group[1:]], form="min") for first in (group[0], split))
        np.testing.assert_array_equal(np.delete(after[0], [at - 1, at]), np.delete(before[0], at - 1))
        np.testing.assert_array_equal(after[1], before[1])
    whole, low = (credited([0.1, 0.5, 0.9], [0.1, *rest, 0.4], form="min") for rest in ([0.6], [0.2, 0.6]))
    assert low[0][0] != whole[0][0], "a lower score between changes everybody's baseline"


def test_the_parts_of_a_split_step_share_its_difference():
    (whole, _), (split, _) = (credited(row, [0.0, 0.9]) for row in ([0.0, 0.6, 0.5], [0.0, 0.2, 0.6, 0.5]))
    assert split[:2].sum() == pytest.approx(whole[0])


def test_with_one_step_to_go_is_the_standardised_score():
    scores = np.array([0.9, 0.1, NAN, 0.5])
    steps = credited(*[[0.3, score] for score in scores], form="to_go")
    expected = (scores - 0.5) / (0.4 + EPSILON)
    np.testing.assert_allclose([float(step[0]) for step in steps], expected, atol=1e-12)


@pytest.mark.parametrize("form", ("difference", "to_go", "min"))
def test_a_missing_score_shifts_no_other_step(form):
    whole = ([0.1, 0.8, 0.3, 0.6, 0.9], [0.1, 0.5, 0.2], [0.1, 0.4])
    torn = ([0.1, 0.8, NAN, 0.6, 0.9], *whole[1:])
    expected, found = credited(*whole, form=form)[0], credited(*torn, form=form)
    assert np.isnan(found[0][1]), "the step without a score"
    kept = {"difference": [0, 3], "to_go": [0, 3], "min": [2, 3]}[form]  # the others need the missing score
    if form != "min":
        np.testing.assert_array_equal(found[0][kept], expected[kept])
        assert np.isnan(found[0][2]), "nobody knows where the step after it began"
    else:
        assert not np.isnan(found[0][kept]).any(), "the lowest of what is known"
    for row, same in zip(found[1:], credited(*whole, form=form)[1:], strict=True):
        if form != "min":
            np.testing.assert_array_equal(row, same)


def test_a_completion_without_a_final_score_does_not_vote():
    without = credited([0.1, 0.5, 0.9], [0.1, 0.3], form="to_go")
    found = credited([0.1, 0.5, 0.9], [0.1, 0.7, NAN], [0.1, 0.3], form="to_go")
    np.testing.assert_array_equal(found[0], without[0])
    np.testing.assert_array_equal(found[2], without[1])
    assert np.isnan(found[1]).all(), "nobody knows where it went"
    np.testing.assert_allclose(
        credited([0.1, 0.5, 0.9], [0.1, 0.7, NAN], [0.1, 0.3])[1][0],
        0.6 / (spread_of(curves([0.1, 0.5, 0.9], [0.1, 0.3])).sigma + EPSILON),
    )


def test_a_lonely_completion_and_an_unscored_prompt_get_nothing():
    np.testing.assert_array_equal(credited([0.1, 0.9])[0], [0.0])
    steps, _ = credited([NAN, 0.5, 0.9], [NAN, 0.1])
    assert np.isnan(steps[0]) and steps[1] == 0.0, "no spread is known"


def test_a_step_that_lowers_progress_gets_less_than_one_that_raises_it():
    rng = np.random.default_rng(1)
    for _ in range(20):
        group = random_group(rng)
        for curve in group:
            steps, change = credit(curve, spread_of(group)), np.diff(curve)
            assert steps[change < 0].max(initial=-9.0) < steps[change > 0].min(initial=9.0)
