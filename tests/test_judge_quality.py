"""How good a simulated judge is, measured in the mode it is used in."""

import asyncio

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from rl_reward.evaluation.efficiency import PairedDifference
from rl_reward.evaluation.intervals import Interval
from rl_reward.experiments.additions.task import partial_credit, problems
from rl_reward.experiments.grpo import GrpoArm, GrpoConfig
from training.judge_quality import Measured, accuracy, grouped, judged, table

GROUPS = []
for problem in problems("evaluation")[:40]:
    ones, tens, _ = problem.numbers
    # Three, two, one and no number right, malformed; the first twice, as in groups.
    workings = ("{}", f"{ones};{tens}#1", f"{ones};0#1", "0;0#1", "7", "{}")
    GROUPS.append([(problem.prompt, working.format(problem.working)) for working in workings])
TRUTH = [np.array([partial_credit(*pair) for pair in group]) for group in GROUPS]
USES = {
    "pointwise": {"weight": 0.1},
    "tournament": {"weight": 0.1, "mode": "tournament"},
    "step credit": {"credit": "difference", "credit_weight": 0.1},
}


def scores_of(use: str, **faults):
    arm = GrpoArm("simulated", judge="simulated", **USES[use], **faults)
    return asyncio.run(judged(GrpoConfig(), arm, GROUPS))


def test_answers_are_grouped_by_their_problem_however_many_there_are():
    rounds = [("1+1=", "2;0#2"), ("2+2=", ""), ("3+3=", "6;0#6")] * 2 + [("1+1=", "3;0#3")]
    groups = grouped(rounds)
    assert [len(group) for group in groups] == [3, 2, 2]
    assert all(len({prompt for prompt, _ in group}) == 1 for group in groups)
    assert groups[0][2] == ("1+1=", "3;0#3") and groups[1][0][1], "an empty answer is heard as the reward hears it"


def test_accuracy_by_hand():
    # Four pairs differ in truth: right, tied, wrong, right.
    scores = [np.array([0.9, 0.5, 0.1]), np.array([0.3, 0.3]), np.array([0.2, 0.8]), np.array([0.7, 0.7])]
    truth = [np.array([1.0, 1.0, 0.0]), np.array([1.0, 0.0]), np.array([1.0, 0.0]), np.array([1.0, 1.0])]
    assert accuracy(scores, truth) == pytest.approx((2 + 0.5 + 0) / 4)


@pytest.mark.parametrize("use", USES)
def test_a_judge_without_faults_is_never_wrong_in_any_mode(use: str):
    scores = scores_of(use)
    assert scores[0].shape == (6,) and scores[0][0] == scores[0][5], "equal answers share their score"
    assert accuracy(scores, TRUTH) == 1.0


@pytest.mark.parametrize("use", USES)
def test_noise_costs_accuracy_and_a_shuffled_judge_knows_nothing(use: str):
    assert 0.4 < accuracy(scores_of(use, noise=1.0), TRUTH) < 0.9
    assert 0.35 < accuracy(scores_of(use, shuffled=True), TRUTH) < 0.65


def test_a_length_bias_shows_and_a_slot_bias_evens_out():
    assert accuracy(scores_of("pointwise", length_bias=-200), TRUTH) < 0.6
    assert accuracy(scores_of("tournament", slot_bias=0.3), TRUTH) > 0.8


def test_the_table_says_accuracy_and_endpoint():
    one = Measured(
        "simulated", "pointwise", "noise", 0.2, 0.9, 0.8, PairedDifference(0.01, Interval(-0.02, 0.04), 0.5, 5)
    )
    assert table([one]).markdown().endswith("| simulated | 0.90 | 0.80 | +0.010 [-0.020, +0.040] |")
