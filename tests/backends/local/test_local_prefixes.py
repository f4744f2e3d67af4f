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
    assert step.tokens_BQ.tolist() == [[5, 6, 7, 8]]
    assert step.positions_BQ.tolist() == [[0, 1, 2, 2]]
    assert step.visible_BQK[0].astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]]
    assert dict(zip(step.sequences_R.tolist(), step.columns_R.tolist(), strict=True)) == {0: 2, 1: 3}


def test_the_last_tokens_of_branches_are_rows_beside_each_other_by_hand():
    # Seven tokens in a pass make rows of one. The nodes: 1 2 3 are 0 1 2, 4 5 are 3 4, 6 7 are 5 6, 8 is 7.
    above, below = TokenTree().grow([[1, 2, 3, 4, 5], [1, 2, 3, 6, 7], [1, 2, 3, 8]], limit=7)
    assert above.nodes_BQ.tolist() == [[0, 1, 2, 3, 5]] and not len(above.rows_R)
    assert below.tokens_BQ.tolist() == [[5], [7], [8]]
    assert below.stored_BC.tolist() == [[0, 1, 2, 3], [0, 1, 2, 5], [0, 0, 1, 2]]
    assert below.visible_BQK[:, 0].astype(int).tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1]]
    assert (below.rows_R.tolist(), below.columns_R.tolist(), below.sequences_R.tolist()) == (
        [0, 1, 2],
        [0] * 3,
        [0, 1, 2],
    )


def test_a_later_sequence_looks_back_at_what_is_stored():
    tree = TokenTree()
    tree.grow([[5, 6, 7], [5, 6, 8]], limit=10)
    (step,) = tree.grow([[5, 6, 8, 9]], limit=10)
    assert step.tokens_BQ.tolist() == [[9]]
    assert step.positions_BQ.tolist() == [[3]]
    assert step.stored_BC.tolist() == [[0, 1, 3]]
    assert step.visible_BQK.tolist() == [[[True] * 4]]


@pytest.mark.parametrize("limit", [1, 5, 12, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_what_a_row_sees_is_its_sequence(seed, limit):
    sequences = sequences_of(seed)
    tree, token_of, ends = TokenTree(), {}, {}
    for step in tree.grow(sequences, limit):
        assert step.nodes_BQ.size <= limit
        stored_seen_BC = step.visible_BQK[:, :, : step.stored_BC.shape[1]].any(1)
        assert set(step.stored_BC[stored_seen_BC].tolist()) <= token_of.keys(), "read in an earlier pass"
        new = step.nodes_BQ >= 0
        token_of.update(zip(step.nodes_BQ[new].tolist(), step.tokens_BQ[new].tolist(), strict=True))
        keys_BK = np.concatenate([step.stored_BC, step.nodes_BQ], axis=1)
        assert step.visible_BQK.any(2).all(), "a token that sees nothing has no attention weights"
        for row, column, sequence in zip(step.rows_R, step.columns_R, step.sequences_R, strict=True):
            seen = np.flatnonzero(step.visible_BQK[row, column])
            assert sorted(step.positions_BK[row, seen]) == list(range(len(seen)))
            path = sorted(keys_BK[row, seen].tolist(), key=lambda node: tree._position[node])
            ends[int(sequence)] = [token_of[node] for node in path]
    assert [ends[i] for i in range(len(sequences))] == sequences


@pytest.mark.parametrize("limit", [1, 5, 12, 1000])
def test_every_node_is_in_one_pass(limit):
    tree = TokenTree()
    nodes = np.concatenate([step.nodes_BQ[step.nodes_BQ >= 0] for step in tree.grow(sequences_of(0, 40), limit)])
    assert sorted(nodes) == list(range(len(tree)))


def test_short_branches_share_a_row_and_do_not_see_each_other():
    steps = TokenTree().grow([[*range(30), 50 + i] for i in range(32)], limit=32)
    branches = steps[-1]
    assert branches.tokens_BQ.shape == (4, 8)
    assert (branches.visible_BQK[:, :, branches.stored_BC.shape[1] :] == np.eye(8, dtype=bool)).all()


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
