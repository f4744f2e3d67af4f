"""Token sequences that share prefixes, laid out so that a model reads every distinct prefix once.

What many sequences share is read first. What branches off it follows in rows beside each other, each row with the keys
it sees and few others: in one long row the tokens of a group would look, masked, at all the other answers too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


# A pass has about this many rows: keys that a row has and a token does not see cost as much as those it sees.
_ROWS = 4
# Each row has a copy of the stored keys it sees: at most this many keys for each token of a pass, or one row's.
_COPIED = 16


@dataclass(frozen=True, eq=False)
class Pass:
    """One run of the model: B rows of Q new tokens look back at C stored ones and at their row (K = C + Q keys).

    Short rows are padded on the left, among the stored tokens and among the new ones.
    """

    nodes_BQ: Ints
    """The nodes of the new tokens; -1 is padding."""
    tokens_BQ: Ints
    """The new tokens; 0 where padded."""
    positions_BQ: Ints
    """Their positions in the sequences they belong to."""
    stored_BC: Ints
    """The nodes of earlier passes that any new token of the row sees; 0 where padded."""
    positions_BK: Ints
    """The positions of the keys, stored ones first."""
    visible_BQK: NDArray[np.bool_]
    """True where the key is the token itself or one before it in its own sequence; padding sees itself."""
    rows_R: Ints
    """Rows, in [0, B), in which a sequence ends."""
    columns_R: Ints
    """Where in [0, Q) it ends there."""
    sequences_R: Ints
    """The index of that sequence."""


@dataclass(frozen=True)
class Row:
    """New nodes that are read beside each other."""

    stored: list[int]
    """The nodes of earlier passes that they see, in increasing order."""
    nodes: list[int]
    """The new ones, in increasing order."""


class TokenTree:
    """A tree of tokens: a node is a token after its prefix, numbered in the order of arrival, parents first."""

    def __init__(self) -> None:
        """Make an empty tree."""
        self._child: dict[tuple[int, int], int] = {}
        self._parent: list[int] = []
        self._token: list[int] = []
        self._position: list[int] = []

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._token)

    def grow(self, sequences: Sequence[list[int]], limit: int) -> list[Pass]:
        """Add `sequences` and return the passes of at most `limit` tokens that read what is new in them."""
        first = len(self)
        end_of = {self.add(sequences[i]): i for i in _neighbours_together(sequences)}
        waves = self._waves(list(range(first, len(self))), limit)
        return [self._pass(rows, end_of) for wave in waves for rows in self._batches(wave, limit)]

    def add(self, tokens: list[int]) -> int:
        """Add the tokens of one sequence, at least 1, and return the node of the last.

        That one is always new: whoever asks for the sequence needs a row to read the answer from.
        """
        node = -1
        for position, token in enumerate(tokens):
            known = self._child.get((node, token)) if position < len(tokens) - 1 else None
            node = self._new(node, token, position) if known is None else known
        return node

    def _new(self, parent: int, token: int, position: int) -> int:
        node = len(self)
        self._child.setdefault((parent, token), node)
        self._parent.append(parent)
        self._token.append(token)
        self._position.append(position)
        return node

    def _waves(self, nodes: list[int], limit: int) -> list[list[list[int]]]:
        """Return waves of rows of `nodes`, in increasing order: a row needs earlier waves and itself, no other row.

        The subtrees of at most `width` nodes are the last wave, and what stands above them comes before it.
        """
        waves, width = list[list[list[int]]](), max(limit // _ROWS, 1)
        while len(nodes) > limit:
            size = self._sizes(nodes)
            waves.append(self._rows([node for node in nodes if size[node] <= width], width))
            nodes = [node for node in nodes if size[node] > width]
            width = min(2 * width, limit)
        return [self._rows(nodes, max(len(nodes) // _ROWS, 1)), *reversed(waves)]

    def _sizes(self, nodes: list[int]) -> dict[int, int]:
        """Return how many of `nodes` are each of them or below it."""
        size = dict.fromkeys(nodes, 1)
        for node in reversed(nodes):
            if (parent := self._parent[node]) in size:
                size[parent] += size[node]
        return size

    def _rows(self, nodes: list[int], width: int) -> list[list[int]]:
        """Make a row of each subtree of those that make up `nodes`, small ones together up to `width`."""
        inside, subtrees = set(nodes), list[list[int]]()
        for node in nodes:
            subtrees[-1].append(node) if self._parent[node] in inside else subtrees.append([node])
        rows = list[list[int]]()
        for subtree in subtrees:
            rows[-1].extend(subtree) if rows and len(rows[-1]) + len(subtree) <= width else rows.append(subtree)
        return rows

    def _batches(self, rows: list[list[int]], limit: int) -> Iterator[list[Row]]:
        """Put `rows` together as far as `limit` tokens reach, padding included; rows of like length meet."""
        batch, most = list[Row](), 0
        for row in (Row(self._before(nodes), nodes) for nodes in sorted(rows, key=len)):
            count, most = len(batch) + 1, max(most, len(row.stored))
            if batch and (count * len(row.nodes) > limit or count * most > limit * _COPIED):
                yield batch
                batch, most = [], len(row.stored)
            batch.append(row)
        if batch:
            yield batch

    def _pass(self, rows: Sequence[Row], end_of: Mapping[int, int]) -> Pass:
        """Lay out `rows`; nodes in `end_of` end the sequence it names."""
        nodes_BQ, stored_BC = _padded([row.nodes for row in rows]), _padded([row.stored for row in rows])
        keys_BK = np.concatenate([stored_BC, nodes_BQ], axis=1)
        visible_BQK = np.zeros((*nodes_BQ.shape, keys_BK.shape[1]), np.bool_)
        for b, keys_K in enumerate(keys_BK.tolist()):
            self._see(keys_K, visible_BQK[b])
        # A node -1 is the last entry of a list, so that one takes what padding gets.
        positions, tokens = np.array([*self._position, 0], np.int64), np.array([*self._token, 0], np.int64)
        ends = [
            (b, q, end_of[node])
            for b, row in enumerate(nodes_BQ.tolist())
            for q, node in enumerate(row)
            if node in end_of
        ]
        rows_R, columns_R, sequences_R = np.array(ends, np.int64).reshape(-1, 3).T
        return Pass(
            nodes_BQ=nodes_BQ,
            tokens_BQ=tokens[nodes_BQ],
            positions_BQ=positions[nodes_BQ],
            stored_BC=np.maximum(stored_BC, 0),
            positions_BK=positions[keys_BK],
            visible_BQK=visible_BQK,
            rows_R=rows_R,
            columns_R=columns_R,
            sequences_R=sequences_R,
        )

    def _before(self, row: list[int]) -> list[int]:
        """Return the nodes outside `row` that its nodes see, in increasing order."""
        inside, seen = set(row), set[int]()
        for node in row:
            node = self._parent[node]
            while node >= 0 and node not in inside and node not in seen:
                seen.add(node)
                node = self._parent[node]
        return sorted(seen)

    def _see(self, keys_K: list[int], visible_QK: NDArray[np.bool_]) -> None:
        """Mark which of the keys each of the last Q keys sees."""
        stored, place = len(keys_K) - len(visible_QK), {node: k for k, node in enumerate(keys_K) if node >= 0}
        for row, visible_K in enumerate(visible_QK, start=stored):
            parent = self._parent[keys_K[row]] if keys_K[row] >= 0 else -1
            if place.get(parent, -1) >= stored:
                visible_K |= visible_QK[place[parent] - stored]
            else:
                while parent >= 0:
                    visible_K[place[parent]] = True
                    parent = self._parent[parent]
            visible_K[row] = True


def _padded(rows: Sequence[list[int]]) -> Ints:
    """Return `rows` as one array, filled up with -1 on the left: ends meet there, and so do the rows read from."""
    width = max(map(len, rows))
    return np.array([[-1] * (width - len(row)) + row for row in rows], np.int64).reshape(len(rows), width)


@dataclass(frozen=True)
class Group:
    """Sequences that are read together."""

    members: tuple[int, ...]
    """Their indices."""
    tokens: int
    """Distinct tokens they may need, growth included."""


def groups(sequences: Sequence[list[int]], growth: Sequence[int], limit: int) -> Iterator[Group]:
    """Cut `sequences` into groups that need at most `limit` distinct tokens each, neighbours by prefix together.

    Args:
        sequences: Tokens of each sequence.
        growth: How many tokens each of them may still grow by.
        limit: The most tokens of a group; one sequence longer than this is a group of its own.
    """
    members: list[int] = []
    tree, reserve = TokenTree(), 0
    for i in _neighbours_together(sequences):
        before = len(tree)
        tree.add(sequences[i])
        if members and len(tree) + reserve + growth[i] > limit:
            yield Group(tuple(members), before + reserve)
            members, tree, reserve = [], TokenTree(), 0
            tree.add(sequences[i])
        members.append(i)
        reserve += growth[i]
    if members:
        yield Group(tuple(members), len(tree) + reserve)


def _neighbours_together(sequences: Sequence[list[int]]) -> list[int]:
    """Return the indices in lexicographic order: all sequences below one node follow each other."""
    return sorted(range(len(sequences)), key=lambda i: sequences[i])
