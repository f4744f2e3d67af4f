import numpy as np
import pytest

from rl_reward.errors import ConfigError
from rl_reward.evaluation.progress_report import progress_report

NAN = float("nan")
CURVES = {
    "judge": [[0.1, 0.5, 0.9], [0.2, 0.4, 0.3], [0.6, 0.5, 0.4], [0.3, 0.3, 0.3]],
    "rule": [[0.0, 0.5, 1.0], [0.0, 0.2, 0.1], [0.3, 0.2, 0.1], [0.0, 0.0, 0.0]],
}
SUCCESSES = [True, True, False, False]


def test_a_report_by_hand():
    judge, rule = progress_report(CURVES, SUCCESSES, threshold=0.35, reference="rule").rows
    assert (judge.voc_success, judge.voc_failure) == (pytest.approx(0.75), pytest.approx(-1.0))
    assert judge.voc == pytest.approx((1.0 + 0.5 - 1.0) / 3), "the flat episode has no order"
    assert judge.flat == 0.25
    # Finals .9 and .3 against .4 and .3: three pairs of four, one of them a tie.
    assert judge.auroc == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert judge.false_positives == 0.5
    assert (judge.final_success, judge.final_failure) == (pytest.approx(0.6), pytest.approx(0.35))
    assert rule.agreement == pytest.approx(1.0)
    assert judge.agreement is not None and 0 < judge.agreement < 1
    assert judge.unscored == 0.0
    # Changes .4 .4 | .2 -.1 | -.1 -.1 | 0 0 beside .5 .5 | .2 -.1 | -.1 -.1 | 0 0.
    assert judge.change_agreement == pytest.approx(0.39125 / (0.32875 * 0.46875) ** 0.5)
    assert rule.change_agreement == pytest.approx(1.0)


def test_a_judge_may_order_episodes_well_and_be_noise_from_step_to_step():
    truth = np.repeat(np.linspace(0, 1, 6), 2)
    jumpy = truth + np.tile([0.0, 0.15], 6)  # up where nothing happens, down where something does
    judge, _ = progress_report({"jumpy": [jumpy], "truth": [truth]}, [True], reference="truth").rows
    assert judge.voc > 0.9 and judge.agreement > 0.9 and judge.change_agreement < -0.9


def test_unscored_steps_are_counted_and_enter_nothing():
    (row,) = progress_report({"judge": [[0.1, NAN, 0.2, 0.3], [0.1, 0.2, 0.3, NAN]]}, [True, False]).rows
    assert row.voc == pytest.approx(1.0)
    assert row.unscored == 0.25
    assert (row.auroc, row.false_positives, row.final_failure) == (None, None, None)
    assert (row.agreement, row.change_agreement) == (None, None), "no reference was named"


def test_the_table_shows_what_is_missing_as_a_dash():
    report = progress_report({"judge": [[0.1, 0.2, 0.3]]}, [True])
    head, row, note = report.table().splitlines()
    assert " ".join(head.split()) == "judge VOC VOC+ VOC- AUROC FP final+ final- agree change flat unscored"
    assert " ".join(row.split()) == "judge 1.00 1.00 - - - 0.30 - - - 0.00 0.00"
    assert note == "+ 1 successes, - 0 failures; FP: failures ending at 0.5 or above"


def test_a_judge_that_follows_the_clock_is_found_out_by_failures():
    clock, constant = np.linspace(0, 1, 20), np.full(20, 0.5)
    rows = progress_report({"clock": [clock] * 4, "constant": [constant] * 4}, SUCCESSES).rows
    assert (rows[0].voc_failure, rows[0].auroc, rows[0].false_positives) == (pytest.approx(1.0), 0.5, 1.0)
    assert (rows[1].voc, rows[1].flat) == (None, 1.0)


@pytest.mark.parametrize(
    ("curves", "successes", "how", "message"),
    [
        ({}, [True], {}, "0 and 1"),
        ({"a": []}, [], {}, "1 and 0"),
        ({"a": [[0.1]]}, [True, False], {}, "each of the 2 episodes"),
        ({"a": [[0.1]], "b": [[0.1, 0.2]]}, [True], {}, "'b'"),
        ({"a": [[]]}, [True], {}, "S >= 1"),
        ({"a": [[0.1]]}, [True], {"reference": "b"}, "one of a, got 'b'"),
        ({"a": [[0.1]]}, [True], {"threshold": 2}, "threshold"),
    ],
)
def test_what_cannot_be_reported_is_one_line(curves, successes, how, message):
    with pytest.raises(ConfigError, match=message):
        progress_report(curves, successes, **how)
