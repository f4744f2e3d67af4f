"""What never reaches the judge, and what the known correctness of answers does to rewards and metrics."""

from __future__ import annotations

import pytest
from trl_toys import advantages_of, call, first_is_right, reward_of, trainer_with, wrong

from rl_reward.adapters.trl.gates import Gates, copied, repeated
from rl_reward.errors import ConfigError

PROMPT = "A train leaves at nine and drives for three hours at eighty kilometres an hour. How far does it get?"
HONEST = "It drives for three hours, and 3 x 80 = 240, so it gets two hundred and forty kilometres far by noon."


def test_shares_by_hand():
    # 64 characters have 33 windows of 32. In "a" * 64 all but the first are repeats.
    assert repeated("a" * 64) == pytest.approx(32 / 33)
    assert repeated("a" * 63) == 0.0, "too short to tell"
    assert copied(PROMPT, "  a TRAIN " + PROMPT[7:] + "\n") == 1.0
    assert copied("2+2=", "2+2=") == 1.0 and copied("is it 4 or 5?", "4") == 0.0
    assert copied(PROMPT, HONEST) == repeated(HONEST) == 0.0


@pytest.mark.parametrize(
    ("answer", "signs"),
    [
        (HONEST, ()),
        ("", ("empty",)),
        ("\u200b\u3164 \n", ("empty",)),
        (PROMPT, ("copied",)),
        (PROMPT + " 240.", ("copied",)),
        ("So the answer is 240. " * 9, ("repeated",)),
        (HONEST + " Wait, let me check that again." * 9, ("repeated",)),
        (". " * 99, ("repeated",)),
        (" ".join(f"Case n={i}: {i}^2 + 1 = {i * i + 1}, so it does not divide." for i in range(20)), ()),
    ],
)
def test_what_an_answer_shows(answer, signs):
    assert Gates().signs(PROMPT, answer, clipped=False) == signs
    assert "clipped" in Gates().signs(PROMPT, answer, clipped=True)


def test_by_default_all_are_judged_and_their_shares_logged():
    metrics, reward = {}, reward_of(0.1, 0.2, 0.3, 0.4)
    call(reward, [PROMPT] * 4, ["", PROMPT, "so it is 240. " * 9, HONEST], log_metric=metrics.__setitem__)
    assert len(reward.verifier.asked) == 4
    rates = [metrics[f"verifier/{gate}_rate"] for gate in ("empty", "copied", "repeated", "clipped", "gated")]
    assert rates == [0.25, 0.25, 0.25, 0.0, 0.0]


def test_a_stopped_row_is_the_worst_answer_or_none():
    answers = ["", HONEST, PROMPT, "240"]
    for earns, rewards, scores in (
        # 0 .6 0 .2: mean .2; without the stopped ones mean .4
        ("lowest", [-0.2, 0.4, -0.2, 0.0], [0.0, 0.6, 0.0, 0.2]),
        ("unscored", [None, 0.2, None, -0.2], [None, 0.6, None, 0.2]),
    ):
        reward, metrics, extra = reward_of(0.6, 0.2, gates=Gates(("empty", "copied"), earns)), {}, {}
        paid = call(reward, [PROMPT] * 4, answers, log_metric=metrics.__setitem__, log_extra=extra.__setitem__)
        assert [None if one is None else pytest.approx(one) for one in rewards] == paid
        assert extra["verifier/score"] == scores
        assert [answer for _, answer in reward.verifier.asked] == [HONEST, "240"]
        assert metrics["verifier/score_mean"] == pytest.approx(0.4), "the judge never said 0"
        assert (metrics["verifier/gated_rate"], metrics["verifier/unscored_rate"]) == (0.5, 0.0)


def test_stopped_rows_are_no_failures_of_the_judge():
    reward = reward_of(0.5, gates=Gates(("empty",), "unscored"), max_unscored=0.0, window=1)
    assert call(reward, completions=[""] * 4) == [None] * 4


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"stop": ("emty",)}, "did you mean 'empty'"),
        ({"stop": "empty"}, "stop must be several gates, got 'empty'"),
        ({"earns": "zero"}, "earns must be one of lowest, unscored, got 'zero'"),
        ({"copied_share": 0.0}, "copied_share must be a finite number > 0 and <= 1, got 0.0"),
        ({"repeated_share": 2}, "repeated_share must be a finite number > 0 and <= 1, got 2"),
    ],
)
def test_bad_gates_are_refused(bad, message):
    with pytest.raises(ConfigError, match=message):
        Gates(**bad)


def test_only_the_trainer_knows_what_is_clipped(tmp_path):
    with pytest.raises(ConfigError, match='the gate "clipped" needs completion_ids and a trainer'):
        call(reward_of(0.5, gates=Gates(("clipped",))))
    reward = reward_of(0.1, 0.2, 0.3, 0.4, gates=Gates(("clipped",), "unscored"))
    trainer = trainer_with(tmp_path, wrong, reward)
    trainer.train()
    log = trainer.state.log_history[0]
    assert log["verifier/clipped_rate"] == log["verifier/gated_rate"] == log["completions/clipped_ratio"] > 0


# -------------------------------------------------------------------------------------------- known correctness


def right(completions, **_):
    return [float("r" in answer) for answer in completions]


MIXED = ["r1", "r2", "w1", "w2"]


def test_the_gap_and_the_agreement_by_hand():
    for correct, columns in ((right, {}), ("gold", {"gold": [True, True, False, False]})):
        metrics = {}
        call(
            reward_of(0.9, 0.5, 0.6, 0.2, correct=correct), ["q"] * 4, MIXED, log_metric=metrics.__setitem__, **columns
        )
        assert metrics["verifier/score_correct_gap"] == pytest.approx(0.3)
        assert metrics["verifier/correct_agreement"] == 0.75
        assert metrics["verifier/score_minus_correct"] == pytest.approx(0.05)


def test_only_answers_of_one_class_are_ordered():
    scores = (0.1, 0.3, 0.9, 0.5)  # the judge prefers the wrong ones
    inside = {"correct": right, "group_size": 4}
    assert call(reward_of(*scores, order_within="correctness", **inside), ["q"] * 4, MIXED) == pytest.approx(
        [-0.1, 0.1, 0.2, -0.2]
    )
    assert call(reward_of(*scores, order_within="right", **inside), ["q"] * 4, MIXED) == pytest.approx(
        [-0.1, 0.1, 0.0, 0.0]
    )
    huge = call(reward_of(*scores, order_within="correctness", weight=99.0, **inside), ["q"] * 4, MIXED)
    assert huge == pytest.approx([-0.245, 0.245, 0.49, -0.49]), "under half of what right pays more than wrong"


def test_the_order_of_classes_survives_in_the_real_trainer(tmp_path):
    judge = {"weight": 9.0, "standardize": True}
    fooled = advantages_of(tmp_path, first_is_right, reward_of(0.1, 0.9, 0.5, 0.6, **judge))
    assert fooled[0] < min(fooled[1:])
    kept = {"correct": first_is_right, "order_within": "correctness"} | judge
    ours = advantages_of(tmp_path, first_is_right, reward_of(0.1, 0.9, 0.5, 0.6, **kept))
    assert ours[0] > max(ours[1:]) and ours[1] > ours[3] > ours[2]


def no_list(**_):
    return 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"correct": "gold"}, "correct column 'gold' is not in the dataset; it has \\['answer'\\]"),
        ({"correct": no_list}, "correct must return a list of 4 numbers or None, got float"),
        ({"correct": "answer"}, "the correctness of an answer must be a number, a bool or None, got 'four'"),
        ({"order_within": "correctness"}, "order_within='correctness' needs correct="),
        ({"order_within": "class", "correct": right}, "order_within must be one of group, correctness, right"),
        ({"gates": ("empty",)}, "gates must be Gates"),
    ],
)
def test_bad_correctness_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        call(reward_of(0.5, **options), answer=["four"] * 4)
