"""VerifierReward in its three modes: what is asked, what it pays, and what a real GRPOTrainer makes of it."""

from __future__ import annotations

import asyncio
import copy
import pickle

import numpy as np
import pytest
from trl_toys import advantages_of, call, fine_format, reward_of, wrong

from rl_reward import Verifier
from rl_reward.adapters.trl import VerifierReward
from rl_reward.backends import Simulated
from rl_reward.errors import BackendError, ConfigError
from rl_reward.scores import Ranking, Score
from rl_reward.tournament import Comparison, Pairing
from rl_reward.types import Usage

NAN = float("nan")


class ScriptedRanker:
    """Gives every answer the mean preference in `scores` (0.5 for others), and remembers what it was asked."""

    def __init__(self, scores, errors=NAN):
        self.scores, self.errors, self.asked = scores, errors, []

    async def arank_many(self, groups, *, pivots=2, method="pivots", references=None, criteria=None):
        self.asked.append({"groups": groups, "method": method, "references": references, "criteria": criteria})
        self.pivots = pivots
        await asyncio.sleep(0)
        return [self._ranking(candidates) for _, candidates in groups]

    def _ranking(self, candidates):
        scores = np.array([self.scores.get(candidate, 0.5) for candidate in candidates])
        unread = (Comparison(Pairing(0, 1, "ring"), NAN, "no tag"),)
        pairs = unread if np.isnan(scores).any() else ()
        return Ranking(scores, np.full(len(scores), self.errors), scores, pairs, Usage(3, 30, 3, 1e6))


def tournament(scores, *, errors=NAN, mode="tournament", standardize=False, group_size=4, **options):
    judge = ScriptedRanker(scores, errors)
    return VerifierReward(
        judge, weight=1.0, group_size=group_size, mode=mode, standardize=standardize, max_unscored=1.0, **options
    )


# ------------------------------------------------------------------------------------------------- the tournament


def test_a_tournament_pays_mean_preferences_by_hand():
    metrics, extra = {}, {}
    reward = tournament({"a": 0.7, "bb": 0.5, "ccc": NAN, "dddd": 0.3}, pivots=1)
    rewards = call(reward, log_metric=metrics.__setitem__, log_extra=extra.__setitem__)
    assert rewards == [pytest.approx(0.2), pytest.approx(0.0), None, pytest.approx(-0.2)]
    assert extra["verifier/score"] == [0.7, 0.5, None, 0.3]
    assert reward.verifier.pivots == 1
    assert reward.verifier.asked[0]["groups"] == [("2+2=", ["a", "bb", "ccc", "dddd"])]
    assert (metrics["verifier/calls"], metrics["verifier/tokens"]) == (3.0, 33.0)
    assert 0.0 < metrics["verifier/seconds"] < 1e6, "what was waited, not the seconds of requests side by side"
    assert metrics["verifier/unscored_rate"] == 0.25


def test_equal_answers_enter_a_tournament_once_and_share_the_score():
    reward = tournament({"4": 0.6, "5": 0.2})
    rewards = call(reward, completions=["4", "5", "4", [{"role": "assistant", "content": "4"}]])
    assert reward.verifier.asked[0]["groups"] == [("2+2=", ["4", "5"])]
    assert rewards == pytest.approx([0.1, -0.3, 0.1, 0.1]), "each of them counts in the mean of the group"


def test_a_group_of_equal_answers_asks_nothing_and_earns_nothing():
    extra = {}
    judge = Verifier(Simulated(lambda request: 0.5))
    reward = VerifierReward(judge, weight=1.0, group_size=4, mode="tournament")
    metrics = {}
    assert call(reward, completions=["4"] * 4, log_metric=metrics.__setitem__, log_extra=extra.__setitem__) == [0.0] * 4
    assert extra["verifier/score"] == [0.5] * 4
    assert metrics["verifier/calls"] == 0.0


def test_groups_with_other_criteria_are_other_calls_and_come_back_in_order():
    sums, style = {"Sum": "Is it 4?", "Style": None}, {"Sum": None, "Style": "Is it neat?"}
    reward = tournament({"a": 0.7, "bb": 0.3, "ccc": 0.6, "dddd": 0.4}, group_size=2, criteria="rubric")
    rewards = call(reward, rubric=[sums, sums, style, style])
    assert [asked["criteria"] for asked in reward.verifier.asked] == [{"Sum": "Is it 4?"}, {"Style": "Is it neat?"}]
    assert rewards == pytest.approx([0.2, -0.2, 0.1, -0.1])


def test_what_differs_inside_a_group_is_not_compared():
    with pytest.raises(ConfigError, match="holds 2 different prompts"):
        call(tournament({}), prompts=["1+1=", "1+1=", "1+1=", "1+2="])
    with pytest.raises(ConfigError, match="holds 2 different criteria"):
        call(tournament({}, criteria="rubric"), rubric=["math", "math", "math", "agent"])


def test_a_tournament_with_the_real_verifier_orders_by_quality_and_counts_its_calls():
    judge = Verifier(Simulated(lambda request: len(request.text) / 10))
    reward = VerifierReward(judge, weight=1.0, group_size=4, mode="tournament", pivots=2)
    metrics = {}
    rewards = call(reward, log_metric=metrics.__setitem__)
    assert rewards == sorted(rewards) and rewards[0] < -1.0 < 1.0 < rewards[3]
    # N + k(N - k) + k(k - 1)/2
    assert metrics["verifier/calls"] == 4 + 2 * 2 + 1
    for twin in (pickle.loads(pickle.dumps(tournament({"a": 0.9}))), copy.deepcopy(tournament({"a": 0.9}))):
        assert call(twin) == call(tournament({"a": 0.9}))


def test_a_ranker_that_loses_answers_is_an_error():
    class Short(ScriptedRanker):
        async def arank_many(self, groups, **options):
            return (await super().arank_many(groups, **options))[:-1]

    class Narrow(ScriptedRanker):
        def _ranking(self, candidates):
            return super()._ranking(candidates[:-1])

    for judge, message in ((Short({}), "0 rankings for 1 groups"), (Narrow({}), "ranked 3 answers of 4")):
        with pytest.raises(BackendError, match=message):
            call(VerifierReward(judge, weight=1.0, group_size=4, mode="tournament"))


def test_a_judge_that_reads_no_comparison_stops_training_with_its_reason():
    reward = VerifierReward(
        ScriptedRanker(dict.fromkeys(["a", "bb", "ccc", "dddd"], NAN)),
        weight=1.0,
        group_size=4,
        mode="tournament",
        window=4,
    )
    with pytest.raises(BackendError, match="none of its comparisons was read; no tag"):
        call(reward)


# ----------------------------------------------------------------------------------------------------- the anchors


def test_anchors_come_from_a_column():
    reward = tournament({"a": 0.7, "bb": 0.3}, mode="anchored", group_size=2, references="pool")
    call(reward, pool=[["4", "four"], ["4", "four"], "4", "4"])
    (asked,) = reward.verifier.asked
    assert (asked["method"], list(asked["references"])) == ("anchored", [("4", "four"), ("4",)])


def test_anchored_with_the_real_verifier():
    judge = Verifier(Simulated(lambda request: len(request.text) / 10))
    reward = VerifierReward(judge, weight=1.0, group_size=4, mode="anchored", references="pool", standardize=False)
    extra, metrics = {}, {}
    call(reward, pool=[["xx", "xxxx"]] * 4, log_extra=extra.__setitem__, log_metric=metrics.__setitem__)
    scores = extra["verifier/score"]
    assert scores == sorted(scores)
    # Three letters stand in the middle of two and four.
    assert scores[2] == pytest.approx(0.5, abs=1e-6)
    assert metrics["verifier/calls"] == pytest.approx(2 * 4 * 2, abs=4), "a comparison with oneself may be free"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "pairwise"}, "mode must be one of pointwise, tournament, anchored, got 'pairwise'"),
        ({"mode": "anchored"}, 'mode="anchored" needs references='),
        ({"mode": "tournament", "references": "pool"}, "references= is for mode=\"anchored\", got mode='tournament'"),
        ({"mode": "tournament", "pivots": -1}, "pivots must be an integer of at least 0, got -1"),
        ({"mode": "pointwise"}, "mode='pointwise' needs a verifier with ascore_many, got ScriptedRanker"),
    ],
)
def test_modes_and_columns_that_do_not_belong_together(options, message):
    with pytest.raises(ConfigError, match=message):
        tournament({}, **options)
    with pytest.raises(ConfigError, match="mode='tournament' needs a verifier with arank_many, got ScriptedJudge"):
        reward_of(0.5, mode="tournament")


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        ([[]] * 4, "a row of the dataset has none"),
        ([None] * 4, "a row of the dataset has none"),
        ([["4"], ["4"], ["4"], ["5"]], "holds 2 different references"),
        ([[4]] * 4, "references column 'pool' must hold a text or a list of texts"),
    ],
)
def test_a_pool_that_is_none(pool, message):
    with pytest.raises(ConfigError, match=message):
        call(tournament({}, mode="anchored", references="pool"), pool=pool)
    with pytest.raises(ConfigError, match="references column 'pool' is not in the dataset; it has \\['answer'\\]"):
        call(tournament({}, mode="anchored", references="pool"), answer=[1] * 4)


# ---------------------------------------------------------------------------------------------------- the deadband


class Doubtful:
    """Pointwise scores with a standard error."""

    def __init__(self, *errors):
        self.errors = errors

    async def ascore_many(self, pairs, *, criteria=None):
        assert len(pairs) == len(self.errors)
        return [Score(0.2 * i, error, {}, {}, 2, "logprob") for i, error in enumerate(self.errors)]


@pytest.mark.parametrize(("se", "flat"), [(0.0, False), (2.5, False), (2.6, True)])
def test_a_group_must_differ_by_more_than_its_scores_are_unsure(se, flat):
    # Scores 0 .2 .4 .6, sample std .258; root mean square error .1.
    reward = VerifierReward(Doubtful(0.1, 0.1, 0.1, 0.1), weight=1.0, group_size=4, min_spread_se=se)
    metrics = {}
    assert (call(reward, log_metric=metrics.__setitem__) == [0.0] * 4) is flat
    assert metrics["verifier/flat_groups"] == float(flat)


def test_unknown_standard_errors_leave_it_to_the_spread():
    assert call(VerifierReward(Doubtful(None, None, None, None), weight=1.0, group_size=4, min_spread_se=99.0))[3] > 1
    assert call(tournament({"a": 0.6}, min_spread_se=99.0))[0] > 0
    assert call(tournament({"a": 0.6}, errors=0.01, min_spread_se=99.0)) == [0.0] * 4


def test_preferences_have_a_smaller_spread_by_default():
    # Sample std .0058: under the .02 of scores, over the .005 of preferences.
    narrow = {"a": 0.505, "bb": 0.495, "ccc": 0.505, "dddd": 0.495}
    assert call(tournament(narrow))[0] > 0
    assert call(tournament(narrow, min_spread=0.02)) == [0.0] * 4
    assert call(reward_of(0.505, 0.495, 0.505, 0.495)) == [0.0] * 4
    with pytest.raises(ConfigError, match="min_spread_se must be a finite number >= 0, got -1"):
        reward_of(0.5, min_spread_se=-1)


# ------------------------------------------------------------------------------------------------ the real trainer


def spelled(request):
    """Quality of a text of random letters: any fixed order will do."""
    return sum(map(ord, request.text)) % 97 / 96


@pytest.mark.parametrize("mode", ["pointwise", "tournament", "anchored"])
def test_a_group_whose_answers_are_all_wrong_still_trains(tmp_path, mode):
    pool = {"references": "pool"} if mode == "anchored" else {}
    reward = VerifierReward(Verifier(Simulated(spelled)), weight=0.1, group_size=4, mode=mode, **pool)
    ours = advantages_of(tmp_path, wrong, fine_format, reward, columns={"pool": [["3", "11"]]})
    assert np.std(ours, ddof=1) == pytest.approx(1.0, abs=0.01)
    assert sum(ours) == pytest.approx(0.0, abs=1e-4)

    blind = VerifierReward(Verifier(Simulated(lambda request: 0.5)), weight=0.1, group_size=4, mode=mode, **pool)
    assert advantages_of(tmp_path, wrong, fine_format, blind, columns={"pool": [["3", "11"]]}) == [0.0] * 4
