import math

import numpy as np
import pytest

from rl_reward import Usage
from rl_reward.scores import PairReading, Reading, Unread, curve_of, pair_score_of, score_of

LOST = Unread("timeout", "no reply within 1 s")


def r(value):
    return Reading(value, None)


def test_mean_over_repeats_then_weighted_over_criteria_with_its_standard_error():
    score = score_of({"a": [r(0.2), r(0.4)], "b": [r(1.0), r(0.6)]}, {"a": 0.75, "b": 0.25}, Usage(calls=4))
    assert score.value == pytest.approx(0.75 * 0.3 + 0.25 * 0.8)
    # s_a^2 = .02, s_b^2 = .08, two repeats each
    assert score.std_error == pytest.approx(math.sqrt(0.75**2 * 0.02 / 2 + 0.25**2 * 0.08 / 2))
    assert (score.repeats_used, score.usage.calls) == (2, 4)


def test_unread_repeats_are_left_out_not_counted_as_a_number():
    score = score_of({"a": [r(0.2), LOST, r(0.4)]}, {"a": 1.0}, Usage())
    assert (score.value, score.repeats_used) == (pytest.approx(0.3), 2)


def test_losing_one_criterion_loses_the_score():
    score = score_of({"easy": [r(1.0)], "hard": [LOST]}, {"easy": 0.5, "hard": 0.5}, Usage())
    assert (score.value, score.std_error, score.status) == (None, None, "timeout")
    assert score.by_criterion == {"easy": 1.0, "hard": None}
    assert score.reason == "hard: no reply within 1 s"


def test_one_repeat_has_no_standard_error():
    assert score_of({"a": [r(0.2)]}, {"a": 1.0}, Usage()).std_error is None


def test_a_pair_averages_both_slot_orders():
    repeats = {"a": [PairReading(r(0.9), r(0.5), False), PairReading(r(0.7), r(0.7), True)]}
    pair = pair_score_of(repeats, {"a": 1.0}, Usage(), temperature=0.5)
    assert (pair.first, pair.second) == (pytest.approx(0.8), pytest.approx(0.6))
    assert pair.p_first == pytest.approx(1 / (1 + math.exp(-0.2 / 0.5)))
    assert pair.std_error == pytest.approx(math.sqrt(np.var([0.4, 0.0], ddof=1) / 2))


def test_a_pair_repeat_counts_only_if_both_slots_were_read():
    read = [
        PairReading(r(0.9), r(0.5), False),
        PairReading(r(0.5), r(0.5), False),
        LOST,
        PairReading(r(0.3), r(0.1), True),
    ]
    pair = pair_score_of({"a": read}, {"a": 1.0}, Usage(), temperature=1.0)
    # Both orders weigh the same: (.9 + .5) / 2 = .7 in the caller's order, .3 in the other.
    assert (pair.first, pair.second, pair.repeats_used) == (pytest.approx(0.5), pytest.approx(0.3), 3)
    lost = pair_score_of({"a": [LOST, LOST]}, {"a": 1.0}, Usage(), temperature=1.0)
    assert (lost.first, lost.second, lost.p_first, lost.status) == (None, None, None, "timeout")


def test_a_pair_read_in_one_slot_order_is_unscored_because_slot_bias_would_decide():
    repeats = {"a": [PairReading(r(0.8), r(0.5), False), LOST]}
    pair = pair_score_of(repeats, {"a": 1.0}, Usage(), temperature=1.0)
    assert (pair.first, pair.p_first, pair.status) == (None, None, "timeout")
    assert pair.reason == "a: only one slot order was read; no reply within 1 s"


def test_a_perfect_score_under_many_weights_is_not_above_one():
    weights = {str(n): 1 / 9 for n in range(9)}
    assert score_of({name: [r(1.0)] for name in weights}, weights, Usage()).value == 1.0


def test_a_curve_holds_scores_between_checkpoints_and_keeps_unread_ones_as_nan():
    def read(value):
        return score_of({"a": [LOST if value is None else r(value)]}, {"a": 1.0}, Usage(calls=1))

    curve = curve_of({0: read(0.1), 2: read(None), 4: read(0.8)}, 5)
    np.testing.assert_array_equal(curve.values, [0.1, 0.1, np.nan, 0.1, 0.8])
    np.testing.assert_array_equal(curve.scored, [True, False, False, False, True])
    assert curve.usage.calls == 3
    assert curve.voc is None


def test_value_order_correlation_ignores_steps_that_were_not_asked():
    def read(value):
        return score_of({"a": [r(value)]}, {"a": 1.0}, Usage())

    assert curve_of({0: read(0.1), 3: read(0.2), 6: read(0.9)}, 7).voc == pytest.approx(1.0)
    assert curve_of({0: read(0.5), 3: read(0.5), 6: read(0.5)}, 7).voc is None
