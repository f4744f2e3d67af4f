"""The tournaments as pure functions: who meets whom, in which slot, and what it says of the candidates."""

from collections import Counter

import numpy as np
import pytest

from rl_reward import ConfigError, Usage
from rl_reward.scores import ranking_of
from rl_reward.tournament import (
    Comparison,
    Pairing,
    anchored,
    call_budget,
    mean_preferences,
    pivot_tournament,
    play,
    round_robin,
    std_errors,
)

WORTH = np.array([0.9, 0.5, 0.3, 0.1])


class InOrder:
    """Draws the ring 0, 1, ... N - 1."""

    def permutation(self, n):
        return np.arange(n)


def linear(worth, *, slot=0.0, noise=0.0, random=None):
    """Return a judge whose preferences are additive in the candidates' worth."""

    def compare(a, b):
        error = noise * random.standard_normal() if noise else 0.0
        return 0.5 + (worth[a] - worth[b]) / 2 + slot + error

    return compare


def slots(comparisons, stage=None):
    pairings = [one.pairing for one in comparisons]
    return [(one.slot_a, one.slot_b) for one in pairings if stage in (None, one.stage)]


def lean(pairs):
    found = Counter(a for a, _ in pairs)
    found.subtract(b for _, b in pairs)
    return found


def test_four_candidates_and_one_pivot_by_hand():
    played = play(pivot_tournament(4, 1, InOrder()), linear(WORTH))
    assert slots(played, "ring") == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert sorted(slots(played, "pivots")) == [(0, 3), (1, 0), (2, 0)]
    np.testing.assert_allclose([one.preference for one in played[:4]], [0.7, 0.6, 0.6, 0.1])
    ranking = ranking_of(played, 4, Usage())
    np.testing.assert_allclose(ranking.ring_scores, [1.6 / 2, 0.9 / 2, 1.0 / 2, 0.5 / 2])
    np.testing.assert_allclose(ranking.scores, [4.0 / 5, 1.2 / 3, 1.2 / 3, 0.6 / 3])
    assert ranking.order == (0, 1, 2, 3)
    assert ranking.ranks == (1, 2, 2, 4)
    assert (ranking.comparisons, ranking.unscored) == (7, 0)


@pytest.mark.parametrize("n", [3, 4, 5, 6, 7, 8, 12, 16, 17])
@pytest.mark.parametrize("k", [0, 1, 2, 3, 4, 16, 99])
def test_the_law_of_the_count_and_the_balance_of_slots(n, k):
    kept = min(k, n)
    for seed in range(20):
        worth = np.random.default_rng([seed, 1]).random(n)
        played = play(pivot_tournament(n, k, np.random.default_rng(seed)), linear(worth))
        assert len(played) == n + kept * (n - kept) + kept * (kept - 1) // 2 == call_budget(n, pivots=k).comparisons
        ring, rest = slots(played, "ring"), slots(played, "pivots")
        assert sorted(a for a, _ in ring) == sorted(b for _, b in ring) == list(range(n))
        assert len(set(map(frozenset, rest))) == len(rest)
        # A pair that meets twice meets in both slot orders.
        assert len(set(ring + rest)) == len(played)
        ring_scores = mean_preferences([one for one in played if one.pairing.stage == "ring"], n)
        pivots = set(np.argsort(-ring_scores)[:kept].tolist())
        assert all(pivots & set(pair) for pair in rest)
        assert all(lean(rest)[i] in ((0,) if kept % 2 == 0 else (-1, 1)) for i in set(range(n)) - pivots)
        assert all(abs(lean(rest)[i]) <= 3 for i in pivots)


def test_every_ring_is_equally_likely():
    def ring(seed):
        following = dict(slots(play(pivot_tournament(4, 0, np.random.default_rng(seed)), linear(WORTH))))
        cycle = [0]
        while len(cycle) < 4:
            cycle.append(following[cycle[-1]])
        return tuple(cycle)

    seen = Counter(ring(seed) for seed in range(1200))
    assert len(seen) == 6
    assert all(abs(count - 200) < 5 * np.sqrt(200 * 5 / 6) for count in seen.values())


def test_ties_for_pivot_are_left_to_the_ring_not_to_the_number():
    def pivot(seed):
        rest = slots(play(pivot_tournament(5, 1, np.random.default_rng(seed)), lambda a, b: 0.5), "pivots")
        return Counter(i for pair in rest for i in pair).most_common(1)[0][0]

    assert {pivot(seed) for seed in range(60)} == set(range(5))


def test_one_candidate_is_neutral_and_meets_nobody():
    for rounds in (pivot_tournament(1, 2, np.random.default_rng(0)), round_robin(1)):
        played = play(rounds, linear(WORTH))
        assert played == []
        assert mean_preferences(played, 1).tolist() == [0.5]
    assert call_budget(1).comparisons == call_budget(1, method="round_robin").comparisons == 0


@pytest.mark.parametrize("k", [0, 1, 2, 5])
def test_two_candidates_meet_once_in_each_slot_order(k):
    played = play(pivot_tournament(2, k, np.random.default_rng(0)), linear(WORTH, slot=0.2))
    assert sorted(slots(played)) == [(0, 1), (1, 0)]
    np.testing.assert_allclose(mean_preferences(played, 2), [0.7, 0.3])
    assert call_budget(2, pivots=k).comparisons == 2


def test_unread_comparisons_count_for_nobody():
    def compare(a, b):
        return float("nan") if {a, b} == {2, 3} else linear(WORTH)(a, b)

    ranking = ranking_of(play(pivot_tournament(4, 0, InOrder()), compare), 4, Usage())
    np.testing.assert_allclose(ranking.scores, [0.8, 0.45, 0.4, 0.1])
    assert (ranking.comparisons, ranking.unscored) == (4, 1)


def test_who_was_never_read_has_no_score_no_rank_and_is_no_pivot():
    def compare(a, b):
        return float("nan") if 0 in (a, b) else linear(WORTH)(a, b)

    played = play(pivot_tournament(4, 4, InOrder()), compare)
    ranking = ranking_of(played, 4, Usage())
    assert np.isnan(ranking.scores[0]) and np.isnan(ranking.std_errors[0])
    assert ranking.order[-1] == 0 and ranking.ranks[0] is None
    assert all(a != 0 or b != 0 for a, b in slots(played, "pivots"))
    assert not np.isnan(ranking.scores[1:]).any()


def test_a_ring_without_one_readable_comparison_is_the_end():
    played = play(pivot_tournament(4, 2, InOrder()), lambda a, b: float("nan"))
    assert len(played) == 4
    assert np.isnan(mean_preferences(played, 4)).all()


def test_round_robin_judges_every_pair_in_both_orders():
    played = play(round_robin(4), linear(WORTH, slot=0.1))
    assert sorted(slots(played)) == [(a, b) for a in range(4) for b in range(4) if a != b]
    np.testing.assert_allclose(mean_preferences(played, 4), 0.5 + (WORTH * 4 - WORTH.sum()) / 6)
    assert call_budget(4, method="round_robin").comparisons == 12


def test_references_are_met_in_both_orders_and_are_not_ranked():
    worth = np.array([0.9, 0.1, 0.4, 0.6])
    played = play(anchored(2, 2), linear(worth, slot=0.1))
    assert sorted(slots(played)) == [(0, 2), (0, 3), (1, 2), (1, 3), (2, 0), (2, 1), (3, 0), (3, 1)]
    np.testing.assert_allclose(mean_preferences(played, 2), [0.7, 0.3])
    assert call_budget(2, method="anchored", references=2).comparisons == 8
    alone = play(anchored(1, 2), linear(np.array([0.9, 0.4, 0.6])))
    np.testing.assert_allclose(mean_preferences(alone, 1), [0.7])


def test_opponents_and_slot_bias_are_no_noise():
    played = play(pivot_tournament(8, 2, np.random.default_rng(0)), linear(np.linspace(0, 0.4, 8), slot=0.1))
    np.testing.assert_allclose(std_errors(played, 8), 0.0, atol=1e-12)


def test_the_standard_error_is_how_far_the_score_moves_when_judged_again():
    random = np.random.default_rng(1)
    worth = np.array([0, 0.05, 0.1, 0.15, 0.2, 0.25, 1.5, 1.9])
    judge = linear(worth, noise=0.05, random=random)
    runs = [play(pivot_tournament(8, 2, np.random.default_rng(3)), judge) for _ in range(400)]
    assert len({tuple(slots(run)) for run in runs}) == 1
    scores = np.array([mean_preferences(run, 8) for run in runs])
    errors = np.array([std_errors(run, 8) for run in runs])
    np.testing.assert_allclose(np.sqrt((errors**2).mean(axis=0)), scores.std(axis=0, ddof=1), rtol=0.12)


@pytest.mark.parametrize(("n", "k"), [(2, 2), (3, 0)])
def test_too_few_comparisons_leave_the_standard_error_unknown(n, k):
    played = play(pivot_tournament(n, k, np.random.default_rng(0)), linear(WORTH))
    assert np.isnan(std_errors(played, n)).all()


def test_the_budget_multiplies_criteria_and_repeats():
    assert call_budget(16, pivots=2).comparisons == 45
    assert call_budget(16, pivots=2, criteria=3, repeats=4).calls == 45 * 12


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n": 0}, "candidates must be an integer of at least 1, got 0"),
        ({"pivots": -1}, "pivots must be an integer of at least 0, got -1"),
        ({"pivots": True}, "pivots must be an integer of at least 0, got True"),
        ({"method": "swiss"}, "method must be one of pivots, round_robin, anchored, got 'swiss'"),
        ({"method": "anchored"}, "references must be an integer of at least 1, got 0"),
        ({"references": 2}, "references belong to method \"anchored\", got 2 with 'pivots'"),
        ({"criteria": 0}, "criteria must be an integer of at least 1, got 0"),
        ({"repeats": 0}, "repeats must be an integer of at least 1, got 0"),
    ],
)
def test_a_wrong_budget_is_one_line(wrong, message):
    with pytest.raises(ConfigError) as caught:
        call_budget(**{"n": 4, **wrong})
    assert str(caught.value) == message


def test_scores_that_differ_by_rounding_share_a_rank():
    ring = [(0, 1, 0.1 + 0.2), (1, 2, 0.3), (2, 0, 0.3)]
    ranking = ranking_of([Comparison(Pairing(a, b, "ring"), p) for a, b, p in ring], 3, Usage())
    assert ranking.ranks == (1, 1, 1) and ranking.order == (0, 1, 2)
