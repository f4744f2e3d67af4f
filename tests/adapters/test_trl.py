"""VerifierReward: rewards worked by hand, then the advantages of a real GRPOTrainer."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import pytest
from trl_toys import (
    ScriptedJudge,
    advantages_of,
    call,
    fine_format,
    first_is_right,
    reward_of,
    trainer_with,
    wrong,
)

from rl_reward import Verifier
from rl_reward.adapters.trl import EMPTY_COMPLETION, VerifierReward
from rl_reward.backends import Simulated
from rl_reward.errors import BackendError, ConfigError

INF, NAN = float("inf"), float("nan")


# ---------------------------------------------------------------------------------------------------- the numbers


def test_a_failed_row_does_not_vote():
    minus_a_third = pytest.approx(-1 / 3)
    assert call(reward_of(1.0, None, 0.0, 0.0)) == [pytest.approx(2 / 3), None, minus_a_third, minus_a_third]


def test_standardized_and_weighted():
    # Mean .5, sample std .3.
    rewards = call(reward_of(None, 0.2, 0.8, 0.5, weight=0.1, standardize=True))
    assert rewards == [None, pytest.approx(-0.1), pytest.approx(0.1), pytest.approx(0.0)]


def test_a_flat_group_and_a_lonely_row_earn_nothing():
    assert call(reward_of(0.800, 0.801, None, 0.803, standardize=True)) == [0.0, 0.0, None, 0.0]
    assert call(reward_of(None, 0.9, None, None)) == [None, 0.0, None, None]


def test_identical_prompts_are_two_groups_by_position():
    rewards = call(reward_of(0.0, 1.0, 0.2, 0.4, group_size=2))
    assert rewards == pytest.approx([-0.5, 0.5, -0.1, 0.1])


@pytest.mark.parametrize("broken", [INF, -INF, NAN])
def test_no_value_that_is_not_finite_gets_through(broken):
    extra = {}
    rewards = call(reward_of(broken, 0.2, 0.8, 0.5), log_extra=extra.__setitem__)
    assert rewards == [None, pytest.approx(-0.3), pytest.approx(0.3), pytest.approx(0.0)]
    assert extra == {"verifier/score": [None, 0.2, 0.8, 0.5]}


def test_the_weight_follows_training():
    state = SimpleNamespace(global_step=50, max_steps=100)
    rewards = call(reward_of(0.0, 1.0, group_size=2, weight=(0.4, 0.0)), trainer_state=state)
    assert rewards == pytest.approx([-0.1, 0.1, -0.1, 0.1])


# -------------------------------------------------------------------------------------------- what the judge reads


def test_equal_answers_and_empty_ones_are_judged_once():
    reward, metrics, extra = reward_of(0.1, 0.9, 0.2, group_size=6), {}, {}
    chat = [{"role": "assistant", "content": " \n"}]
    answers = ["4", "", [{"role": "assistant", "content": "4"}], chat, "\u200b\u3164", "5"]
    call(
        reward,
        prompts=["2+2="] * 6,
        completions=answers,
        log_metric=metrics.__setitem__,
        log_extra=extra.__setitem__,
    )
    assert [answer for _, answer in reward.verifier.asked] == ["4", EMPTY_COMPLETION, "5"]
    assert extra["verifier/score"] == [0.1, 0.9, 0.1, 0.9, 0.9, 0.2]
    assert metrics["verifier/calls"] == 3.0, "what is shared is paid once"
    assert metrics["verifier/duplicate_rate"] == 0.5

    other = reward_of(0.5)
    call(other, completions=["4", "5", "4", "6"], prompts=["2+2=", "2+2=", "1+3=", "1+3="])
    assert len(other.verifier.asked) == 4, "the same answer to another task is another answer"


def test_the_reference_follows_the_task():
    reward = reward_of(0.5, reference="answer")
    call(reward, answer=[4, 4, None, "four"])
    assert [task for task, _ in reward.verifier.asked] == [
        "2+2=\n\nReference answer:\n4",
        "2+2=\n\nReference answer:\n4",
        "2+2=",
        "2+2=\n\nReference answer:\nfour",
    ]


def test_rows_are_judged_by_their_own_criteria_and_come_back_in_order():
    sums, style = {"Sum": "Is it 4?", "Style": None}, {"Sum": None, "Style": "Is it neat?"}  # as Arrow hands them over
    reward = reward_of(0.1, 0.2, 0.3, 0.4, group_size=2, min_spread=0.0, criteria="rubric")
    extra = {}
    call(reward, rubric=[sums, style, style, sums], log_extra=extra.__setitem__)
    assert reward.verifier.criteria == [{"Sum": "Is it 4?"}, {"Style": "Is it neat?"}]
    assert [answer for _, answer in reward.verifier.asked] == ["a", "dddd", "bb", "ccc"]
    # The two calls run side by side; the fake gives its values in the order of the calls.
    assert extra["verifier/score"] == [0.1, 0.3, 0.4, 0.2]


def test_a_cell_without_criteria_uses_the_verifiers_own():
    reward = reward_of(0.5, criteria="rubric")
    call(reward, rubric=[None, {"Sum": None}, "math", ["Is it 4?"]])
    assert reward.verifier.criteria == [None, "math", ["Is it 4?"]], "one call for the two rows without"


# ------------------------------------------------------------------------------------------------ errors and limits


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_size": 1}, "group_size must be an integer of at least 2, got 1"),
        ({"eval_group_size": 0}, "eval_group_size must be an integer of at least 1, got 0"),
        ({"weight": -0.1}, "weight must be a finite number >= 0, got -0.1"),
        ({"min_spread": NAN}, "min_spread must be a finite number >= 0, got nan"),
        ({"max_unscored": 1.5}, "max_unscored must be a finite number >= 0 and <= 1, got 1.5"),
        ({"window": 0}, "window must be an integer of at least 1, got 0"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        reward_of(0.5, **options)


def test_a_missing_column_is_named_with_those_there_are():
    for argument in ("reference", "criteria"):
        with pytest.raises(ConfigError, match=f"{argument} column 'gold' is not in the dataset; it has \\['a', 'b'\\]"):
            call(reward_of(0.5, **{argument: "gold"}), a=[1] * 4, b=[2] * 4)


def test_rows_that_fill_no_groups_are_refused_before_they_are_judged():
    reward = reward_of(0.5, group_size=3)
    with pytest.raises(ConfigError, match=r"4 rows of 1 process(es)? do not fill groups of 3"):
        call(reward)
    assert reward.verifier.asked == []


def test_processes_that_do_not_know_each_other_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"WORLD_SIZE is 2 but torch\.distributed knows of 1 process"):
        call(reward_of(0.5))


def test_a_failing_judge_stops_training():
    reward = reward_of(0.5, None, None, None, max_unscored=0.4, window=20)
    call(reward), call(reward)
    with pytest.raises(BackendError, match="verifier: 9 of the last 12 rows are unscored"):
        call(reward)


def test_the_verifiers_own_error_passes_through():
    class Down(ScriptedJudge):
        async def ascore_many(self, pairs, *, criteria=None):
            raise BackendError("no such model: m")

    class Short(ScriptedJudge):
        async def ascore_many(self, pairs, *, criteria=None):
            return (await super().ascore_many(pairs))[:-1]

    with pytest.raises(BackendError, match="no such model: m"):
        call(VerifierReward(Down(), weight=1.0, group_size=4))
    with pytest.raises(BackendError, match="3 scores for 4 answers"):
        call(VerifierReward(Short(0.5), weight=1.0, group_size=4))


# ------------------------------------------------------------------------------------------------------- the metrics


def test_metrics_by_hand():
    metrics, extra = {}, {}
    call(
        reward_of(0.1, 0.3, None, 0.5, weight=0.2, name="judge"),
        completion_ids=[[1], [1, 2], [1, 2, 3], [1, 2, 3]],
        log_metric=metrics.__setitem__,
        log_extra=extra.__setitem__,
    )
    assert extra == {"judge/score": [0.1, 0.3, None, 0.5]}
    assert metrics == pytest.approx(
        {
            "judge/unscored_rate": 0.25,
            "judge/calls": 4.0,
            "judge/seconds": metrics["judge/seconds"],
            "judge/tokens": 128.0,
            "judge/score_length_correlation": 1.0,
            "judge/score_mean": 0.3,
            "judge/score_std": 0.2,
            "judge/flat_groups": 0.0,
            "judge/duplicate_rate": 0.0,
            "judge/gated_rate": 0.0,
            "judge/empty_rate": 0.0,
            "judge/clipped_rate": 0.0,
            "judge/copied_rate": 0.0,
            "judge/repeated_rate": 0.0,
            "judge/weight": 0.2,
        }
    )


def test_coverage_and_flat_groups_are_counted_with_the_real_verifier():
    judge = Verifier(Simulated(lambda request: 0.9 if request.text == "right" else 0.1))
    metrics = {}
    reward = VerifierReward(judge, weight=1.0, group_size=2)
    rewards = call(reward, completions=("right", "wrong", "wrong", "wrong"), log_metric=metrics.__setitem__)
    # Two values of a standardised pair stand at +-1 / sqrt(2).
    assert rewards == pytest.approx([0.5**0.5, -(0.5**0.5), 0.0, 0.0], abs=1e-6)
    assert metrics["verifier/coverage"] == pytest.approx(0.98)
    assert metrics["verifier/flat_groups"] == 0.5
    assert metrics["verifier/score_mean"] == pytest.approx(0.3)
    assert metrics["verifier/calls"] == 2.0, "the wrong answer is asked once, of two groups too"


def test_copies_and_pickles_keep_everything():
    reward = VerifierReward(
        Verifier(Simulated(str_length)), weight=(0.1, 0.0), group_size=4, name="judge", max_unscored=0.5
    )
    state = SimpleNamespace(global_step=1, max_steps=2)
    expected = call(reward, trainer_state=state)
    for twin in (pickle.loads(pickle.dumps(reward)), copy.deepcopy(reward)):
        assert twin.__name__ == "judge"
        assert call(twin, trainer_state=state) == expected


def str_length(request):
    return len(request.text) / 10


# --------------------------------------------------------------------------------------------------- the real trainer


def test_an_unscored_row_gets_the_advantage_of_a_row_at_the_mean(tmp_path):
    async def uncentred(completions, **_):
        return [0.08, 0.07, None, 0.06]

    naive = advantages_of(tmp_path, wrong, uncentred, fine_format)
    assert naive[2] == pytest.approx(-1.457, abs=0.001), "None alone counts as 0 in TRL's sum"

    ours = advantages_of(tmp_path, wrong, fine_format, reward_of(0.8, 0.7, None, 0.6, weight=0.1))
    assert ours[2] == pytest.approx(ours[1], abs=1e-3)
    # .01 / (.008165 + 1e-4)
    assert ours == pytest.approx([1.210, 0.0, 0.0, -1.210], abs=1e-3)


def test_neutral_also_where_correctness_differs(tmp_path):
    ours = advantages_of(tmp_path, first_is_right, fine_format, reward_of(0.8, 0.7, None, 0.6, weight=0.1))
    assert ours[2] == pytest.approx(ours[1], abs=1e-5), "both are wrong, one at the verifier's mean, one unscored"
    assert ours[0] > ours[1] > ours[3]


def test_trl_gets_the_right_advantages_for_one_failure(tmp_path):
    ours = advantages_of(tmp_path, wrong, fine_format, reward_of(1.0, None, 0.0, 0.0), scale_rewards="none")
    assert ours == pytest.approx([2 / 3, 0.0, -1 / 3, -1 / 3], abs=1e-5)


def test_a_row_without_any_reward_leaves_the_others_alone(tmp_path):
    ours = advantages_of(tmp_path, reward_of(None, 0.2, 0.8, 0.5, standardize=True))
    assert ours == pytest.approx([0.0, -1.0, 1.0, 0.0], abs=1e-3)


def test_a_flat_group_moves_nothing(tmp_path):
    flat = (0.800, 0.801, 0.802, 0.803)
    assert advantages_of(tmp_path, wrong, fine_format, reward_of(*flat, standardize=True)) == [0.0] * 4
    ungated = advantages_of(tmp_path, wrong, fine_format, reward_of(*flat, standardize=True, min_spread=0.0))
    assert max(ungated) == pytest.approx(1.162, abs=0.01), "without the gate noise trains like a real difference"


@pytest.mark.parametrize(("scale_rewards", "ratio"), [("group", 1.0), ("batch", 1.0), ("none", 10.0)])
def test_where_beta_bites(tmp_path, scale_rewards, ratio):
    small, large = (
        advantages_of(
            tmp_path, wrong, reward_of(0.2, 0.4, 0.6, 0.8, weight=w, standardize=True), scale_rewards=scale_rewards
        )
        for w in (0.1, 1.0)
    )
    assert large[3] / small[3] == pytest.approx(ratio, rel=0.01)


def test_several_verifiers_a_schedule_tables_and_conversations(tmp_path):
    steady = reward_of(0.8, 0.7, None, 0.6, weight=0.1, reference="answer", standardize=True)
    fading = reward_of(0.1, 0.2, 0.3, 0.4, weight=(1.0, 0.0), criteria="rubric", name="style")
    simulated = VerifierReward(
        Verifier(Simulated(str_length)), weight=0.1, group_size=4, criteria="rubric", name="simulated"
    )
    trainer = trainer_with(
        tmp_path, wrong, steady, fading, simulated,
        prompts=[[{"role": "user", "content": "1+1="}]],
        columns={"answer": ["2"], "rubric": [{"Style": "Is it neat?"}]},
        max_steps=2, log_completions=True,
    )  # fmt: skip
    trainer.train()
    logs = trainer.state.log_history
    assert trainer.reward_func_names == ["wrong", "verifier", "style", "simulated"]
    assert [log["style/weight"] for log in logs[:2]] == [1.0, 0.5]
    assert [log["verifier/unscored_rate"] for log in logs[:2]] == [0.25, 0.25]
    assert logs[0]["verifier/score_mean"] == pytest.approx(0.7)
    assert logs[0]["simulated/coverage"] == pytest.approx(0.98)
    assert list(trainer._logs["extra"]["verifier/score"])[:4] == [0.8, 0.7, None, 0.6]
    assert {task for task, _ in steady.verifier.asked} == {"1+1=\n\nReference answer:\n2"}
    assert fading.verifier.criteria == [{"Style": "Is it neat?"}] * 2


def test_evaluation_has_its_own_group_size(tmp_path):
    # Standardised, because TRL centres again: a mean over the wrong rows alone would not show.
    reward = reward_of(0.0, 1.0, 0.2, 0.4, eval_group_size=2, standardize=True)
    evaluation = {"num_generations_eval": 2, "per_device_eval_batch_size": 4, "eval_strategy": "steps", "eval_steps": 1}
    trainer = trainer_with(
        tmp_path, reward, prompts=("1+1=", "1+2="), evaluate=True, scale_rewards="none", **evaluation
    )
    trainer.train()
    train, held_out = trainer.seen
    assert train == pytest.approx([-0.926, 1.389, -0.463, 0.0], abs=1e-3)
    assert held_out == pytest.approx([-(0.5**0.5), 0.5**0.5] * 2, abs=1e-5)
    assert trainer.state.log_history[1]["eval_verifier/score_mean"] == pytest.approx(0.4)


def test_the_trainer_must_agree_on_groups_and_names(tmp_path):
    with pytest.raises(ConfigError, match="group_size must equal the trainer's num_generations, 4, got 2"):
        trainer_with(tmp_path, reward_of(0.5, group_size=2)).train()
    with pytest.raises(ConfigError, match="eval_group_size must equal the trainer's num_generations_eval, 4, got 2"):
        trainer_with(tmp_path, reward_of(0.5, eval_group_size=2)).train()
    with pytest.raises(ConfigError, match="2 reward functions are named 'verifier'"):
        trainer_with(tmp_path, reward_of(0.5), reward_of(0.5)).train()


def test_a_dead_judge_ends_training(tmp_path):
    reward = reward_of(None, max_unscored=0.2, window=32)
    with pytest.raises(BackendError, match="7 of the last 7 rows are unscored"):
        trainer_with(tmp_path, wrong, reward, max_steps=50).train()
