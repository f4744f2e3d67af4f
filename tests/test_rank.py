"""Tournaments of the verifier over the simulated judge, whose true answers are known."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from rl_reward import ConfigError, Exemplar, Step, Trajectory, Verifier
from rl_reward.backends import Simulated

WORTH = {f"answer {i}": i / 9 for i in range(10)}
CANDIDATES = list(WORTH)


class Counting(Simulated):
    """Remembers every request, and how many were in flight at once."""

    def __init__(self, truth=lambda request: WORTH[request.text], **faults):
        super().__init__(truth, **faults)
        self.requests, self.flying, self.most = [], 0, 0

    async def reply(self, request):
        self.requests.append(request)
        self.flying += 1
        self.most = max(self.most, self.flying)
        await asyncio.sleep(0.001)
        self.flying -= 1
        return await super().reply(request)


def pairs(ranking, stage=None):
    pairings = [pair.pairing for pair in ranking.pairs]
    return [(one.slot_a, one.slot_b) for one in pairings if stage in (None, one.stage)]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_two_candidates_by_hand():
    ranking = Verifier(Simulated(lambda request: 0.8 if request.text == "b" else 0.3)).rank("t", ["a", "b"])
    np.testing.assert_allclose(ranking.scores, [sigmoid(-0.5), sigmoid(0.5)])
    assert ranking.order == (1, 0) and ranking.comparisons == 2 and ranking.usage.calls == 2


def test_the_temperature_and_the_criteria_go_into_the_preference():
    def by_criterion(request):
        return {"Right": 1.0, "Tidy": 0.2}[request.criterion] if request.text == "a" else 0.5

    criteria = {"Right": {"description": "?", "weight": 3}, "Tidy": "?"}
    verifier = Verifier(Simulated(by_criterion), criteria=criteria, preference_temperature=0.5)
    assert verifier.rank("t", ["a", "b"]).scores[0] == pytest.approx(sigmoid((0.8 - 0.5) / 0.5))
    only = verifier.rank("t", ["a", "b"], criteria={"Tidy": "?"})
    assert only.scores[0] == pytest.approx(sigmoid((0.2 - 0.5) / 0.5))
    assert (only.usage.calls, verifier.call_budget(2, criteria={"Tidy": "?"}).calls) == (2, 2)


def test_a_comparison_asks_one_slot_order_and_every_criterion_and_repeat():
    judge = Counting(noise=0.05)
    verifier = Verifier(judge, criteria="math", repeats=2, analysis="sampled")
    ranking = verifier.rank("t", CANDIDATES, pivots=2)
    told = verifier.call_budget(10, pivots=2)
    assert ranking.comparisons == told.comparisons == 10 + 16 + 1
    assert ranking.usage.calls == len(judge.requests) == told.calls == 27 * 3 * 2
    first = [(r.candidates, r.criterion, r.draw) for r in judge.requests]
    assert len(set(first)) == len(first)


def test_the_ranking_is_that_of_the_truth_when_strengths_are_asked():
    ranking = Verifier(Simulated(lambda request: WORTH[request.text])).rank("t", CANDIDATES)
    np.testing.assert_allclose(ranking.strengths, np.linspace(-0.5, 0.5, 10), atol=1e-3)


def test_equal_groups_have_equal_rings_whatever_was_asked_before():
    groups = [("t", CANDIDATES), ("other", CANDIDATES[:4]), ("t", CANDIDATES)]
    first, _, again = Verifier(Counting()).rank_many(groups)
    alone = Verifier(Counting()).rank("t", CANDIDATES)
    assert pairs(first) == pairs(again) == pairs(alone)
    assert pairs(Verifier(Counting(), seed=1).rank("t", CANDIDATES)) != pairs(alone)
    assert pairs(Verifier(Counting()).rank("u", CANDIDATES)) != pairs(alone)


def test_the_order_of_the_candidates_decides_nothing():
    shuffled = np.random.default_rng(0).permutation(10)
    verifier = Verifier(Counting(noise=0.3))
    straight, mixed = verifier.rank_many([("t", CANDIDATES), ("t", [CANDIDATES[i] for i in shuffled])])
    np.testing.assert_array_equal(mixed.scores, straight.scores[shuffled])
    np.testing.assert_allclose(mixed.std_errors, straight.std_errors[shuffled], rtol=1e-12)
    assert {(shuffled[a], shuffled[b]) for a, b in pairs(mixed)} == set(pairs(straight))


def test_a_round_of_all_groups_is_asked_at_once_and_nothing_twice():
    judge = Counting()
    rankings = Verifier(judge).rank_many([("t", CANDIDATES), ("u", CANDIDATES), ("t", CANDIDATES)])
    assert judge.most == 16 * 2 + 2  # the second round of the two groups that differ: 27 - 10 each
    assert [ranking.usage.calls for ranking in rankings] == [27, 27, 0]
    assert len({request.key for request in judge.requests}) == len(judge.requests) == 54
    np.testing.assert_array_equal(rankings[0].scores, rankings[2].scores)


def test_what_the_ring_has_asked_is_not_asked_again():
    judge = Counting(slot_bias=0.3)
    ranking = Verifier(judge).rank("t", ["answer 3"] * 6, pivots=6)
    assert (ranking.comparisons, len(judge.requests), ranking.usage.calls) == (21, 1, 1)
    assert ranking.ring_scores.tolist() == pytest.approx([0.5] * 6)


def test_equal_candidates_tie():
    ranking = Verifier(Counting()).rank("t", ["answer 2", "answer 5", "answer 5"], method="round_robin")
    assert ranking.order == (1, 2, 0) and ranking.ranks == (3, 1, 1)


@pytest.mark.parametrize("method", ["pivots", "round_robin"])
def test_a_slot_bias_changes_no_order(method):
    fair = Verifier(Simulated(lambda request: 0.5 * WORTH[request.text])).rank("t", CANDIDATES, method=method)
    biased = Verifier(Simulated(lambda request: 0.5 * WORTH[request.text], slot_bias=0.3)).rank(
        "t", CANDIDATES, method=method
    )
    assert biased.order == fair.order
    np.testing.assert_allclose(biased.scores, fair.scores, atol=0.01)


def test_one_candidate_is_neutral_and_costs_nothing():
    judge = Counting()
    ranking = Verifier(judge).rank("t", ["alone"])
    assert (ranking.scores.tolist(), ranking.order, ranking.ranks) == ([0.5], (0,), (1,))
    assert np.isnan(ranking.std_errors).all() and not judge.requests and ranking.usage.calls == 0


def test_candidates_are_held_against_the_references_of_their_group():
    groups = [("t", ["answer 8", "answer 2"]), ("u", ["answer 5"])]
    pools = [["answer 4", "answer 6"], ["answer 5"]]
    judge = Counting(slot_bias=0.05)
    first, second = Verifier(judge).rank_many(groups, method="anchored", references=pools)
    assert len(first.scores) == 2 and first.comparisons == 8 and first.order == (0, 1)
    assert first.scores[0] == pytest.approx(np.mean([sigmoid(2 / 9), sigmoid(4 / 9)]), abs=1e-3)
    assert second.scores[0] == pytest.approx(0.5) and second.usage.calls == 1
    assert np.isnan(first.ring_scores).all()
    assert Verifier(judge).call_budget(2, method="anchored", references=2).calls == 8
    alone = Verifier(judge).rank("t", groups[0][1], method="anchored", references=pools[0])
    np.testing.assert_array_equal(alone.scores, first.scores)


def test_an_unread_comparison_says_why_and_counts_for_nobody():
    ranking = Verifier(Simulated(lambda request: WORTH[request.text], unscored_rate=0.3)).rank("t", CANDIDATES)
    unread = [pair for pair in ranking.pairs if np.isnan(pair.preference)]
    assert 0 < ranking.unscored == len(unread) < ranking.comparisons
    assert all("Correctness" in pair.reason for pair in unread)
    read = [pair for pair in ranking.pairs if not pair.reason]
    won = [p.preference if p.pairing.slot_a == 9 else 1 - p.preference for p in read if 9 in vars(p.pairing).values()]
    assert ranking.scores[9] == pytest.approx(np.mean(won))


def test_an_empty_candidate_is_unread_and_harms_nobody():
    ranking = Verifier(Counting()).rank("t", ["answer 1", "", "answer 8", "answer 5"])
    assert ranking.order[-1] == 1 and np.isnan(ranking.scores[1])
    assert ranking.order[:3] == (2, 3, 0)


def test_trajectories_are_told_apart_by_what_the_judge_sees():
    class Real(Counting):
        sees_data = False

    def steps(*data):
        return [Trajectory((Step("same", data=d),)) for d in data]

    judge = Real(lambda request: 0.5)
    first, second = Verifier(judge).rank_many([("t", steps(1, 2, 3)), ("t", steps(4, 5, 6))])
    assert pairs(first) == pairs(second) and len(judge.requests) == 1
    sighted = Verifier(Simulated(lambda request: request.candidate.steps[0].data / 10)).rank("t", steps(1, 9, 4))
    assert sighted.order == (1, 2, 0)


def test_the_batch_deadline_is_for_both_rounds_together(monkeypatch):
    judge, clock = Counting(), iter([0.0, 1.0, 1000.0])
    monkeypatch.setattr("rl_reward.verifier.time", SimpleNamespace(monotonic=lambda: next(clock)))
    ranking = Verifier(judge, batch_deadline=600).rank("t", CANDIDATES[:4], pivots=1)
    assert {pair.pairing.stage: bool(pair.reason) for pair in ranking.pairs} == {"ring": False, "pivots": True}


def test_the_asynchronous_twins_say_the_same():
    async def both():
        verifier = Verifier(Counting())
        one = await verifier.arank("t", CANDIDATES, pivots=1)
        many = await verifier.arank_many([("t", CANDIDATES)], pivots=1)
        held = await verifier.arank("t", ["answer 1"], method="anchored", references=["answer 9"])
        return one, many[0], held

    one, many, held = asyncio.run(both())
    np.testing.assert_array_equal(one.scores, many.scores)
    assert one.comparisons == 10 + 9 and held.scores[0] < 0.5


def test_no_groups_are_no_rankings():
    assert Verifier(Counting()).rank_many([]) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"candidates": []}, "a tournament needs at least 1 of candidates, got 0"),
        ({"candidates": "text"}, "candidates must be a list of str or Trajectory, got str"),
        ({"candidates": ["a", None]}, "a candidate must be a str or a Trajectory, got NoneType"),
        ({"task": " "}, "task must be a text that is not empty, got ' '"),
        ({"pivots": 1.0}, "pivots must be an integer of at least 0, got 1.0"),
        ({"method": "best"}, "method must be one of pivots, round_robin, anchored, got 'best'"),
        (
            {"method": "anchored"},
            "method=\"anchored\" needs references, the others take none; got none with 'anchored'",
        ),
        ({"references": ["r"]}, "method=\"anchored\" needs references, the others take none; got some with 'pivots'"),
        ({"method": "anchored", "references": []}, "a tournament needs at least 1 of references, got 0"),
    ],
)
def test_wrong_input_is_one_line_and_asks_nobody(arguments, message):
    judge = Counting()
    with pytest.raises(ConfigError) as caught:
        Verifier(judge).rank(**{"task": "t", "candidates": ["a", "b"], **arguments})
    assert str(caught.value) == message and not judge.requests


def test_a_pool_for_every_group():
    with pytest.raises(ConfigError, match="one pool of references for each group, got 1 for 2 groups"):
        Verifier(Counting()).rank_many([("t", ["a"]), ("u", ["b"])], method="anchored", references=[["r"]])


def test_prompts_of_examples_alone_cannot_compare():
    verifier = Verifier(Counting(), style="completion", exemplars=[Exemplar("t", "x", "T")])
    with pytest.raises(ConfigError, match="scores single candidates"):
        verifier.rank("t", ["a", "b"])
