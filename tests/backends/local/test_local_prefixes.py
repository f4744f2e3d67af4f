"""Every distinct prefix is laid out once, and a token sees its own prefix and nothing else."""

import numpy as np
import pytest

from rl_reward.backends.local.prefixes import TokenTree, groups


def sequences_of(seed, count=12):
    """Sequences that branch off each other at random depths, one of them twice."""
    rng = np.random.default_rng(seed)
    made = [rng.integers(9, size=20).tolist()]
    for _ in range(count):
        trunk = made[rng.integers(len(made))]
        made.append(trunk[: rng.integers(len(trunk) + 1)] + rng.integers(9, size=rng.integers(1, 6)).tolist())
    return [*made, made[3]]


def test_two_sequences_with_one_prefix_by_hand():
    (step,) = TokenTree().grow([[5, 6, 7], [5, 6, 8]], limit=10)
    assert step.tokens_Q.tolist() == [5, 6, 7, 8]
    assert step.positions_Q.tolist() == [0, 1, 2, 2]
    assert step.visible_QK.astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]]
    assert dict(zip(step.sequences_R.tolist(), step.rows_R.tolist(), strict=True)) == {0: 2, 1: 3}


def test_a_later_sequence_looks_back_at_what_is_stored():
    tree = TokenTree()
    tree.grow([[5, 6, 7], [5, 6, 8]], limit=10)
    (step,) = tree.grow([[5, 6, 8, 9]], limit=10)
    assert step.tokens_Q.tolist() == [9]
    assert step.positions_Q.tolist() == [3]
    assert step.stored_C.tolist() == [0, 1, 3]
    assert step.visible_QK.tolist() == [[True] * 4]


@pytest.mark.parametrize("limit", [1, 5, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_what_a_row_sees_is_its_sequence(seed, limit):
    sequences = sequences_of(seed)
    tree, stored, ends = TokenTree(), [], {}
    for step in tree.grow(sequences, limit):
        assert len(step.tokens_Q) <= limit
        keys = [*(stored[i] for i in step.stored_C), *step.tokens_Q.tolist()]
        stored += step.tokens_Q.tolist()
        for row, sequence in zip(step.rows_R, step.sequences_R, strict=True):
            seen = np.flatnonzero(step.visible_QK[row])
            assert step.positions_K[seen].tolist() == list(range(len(seen)))
            ends[int(sequence)] = [keys[i] for i in seen]
    assert [ends[i] for i in range(len(sequences))] == sequences


@pytest.mark.parametrize("seed", range(5))
def test_every_prefix_is_read_once_and_every_end_has_a_row_of_its_own(seed):
    sequences = sequences_of(seed)
    inner = {tuple(s[:n]) for s in sequences for n in range(1, len(s))}
    tree = TokenTree()
    tree.grow(sequences, limit=7)
    ends_that_go_on = sum(tuple(s) in inner for s in {tuple(s) for s in sequences})
    assert len(inner) + len(sequences) - ends_that_go_on <= len(tree) <= len(inner) + len(sequences)


def test_groups_keep_neighbours_together_within_the_limit():
    sequences = [[1, 2, 3, 4], [7, 8, 9], [1, 2, 3, 5], [7, 8, 6]]
    found = list(groups(sequences, growth=[1, 1, 1, 1], limit=7))
    assert [sorted(group.members) for group in found] == [[0, 2], [1, 3]]
    assert [group.tokens for group in found] == [7, 6]


def test_a_sequence_longer_than_the_limit_is_a_group_of_its_own():
    found = list(groups([[1] * 50, [2, 3], [2, 4]], growth=[0, 0, 0], limit=10))
    assert [group.members for group in found] == [(0,), (1, 2)]


def test_groups_leave_room_for_growth():
    assert [g.tokens for g in groups([[1, 2], [1, 3]], growth=[5, 5], limit=13)] == [13]
    assert [g.tokens for g in groups([[1, 2], [1, 3]], growth=[5, 5], limit=12)] == [7, 7]
