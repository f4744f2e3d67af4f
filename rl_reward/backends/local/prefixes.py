"""Token sequences that share prefixes, laid out so that a model reads every distinct prefix once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pass:
    """One run of the model: Q new tokens look back at C stored ones and at each other (K = C + Q keys)."""

    tokens_Q: Ints
    """The new tokens."""
    positions_Q: Ints
    """Their positions in the sequences they belong to."""
    stored_C: Ints
    """The nodes of earlier passes that any new token sees."""
    positions_K: Ints
    """The positions of the keys, stored ones first."""
    visible_QK: NDArray[np.bool_]
    """True where the key is the token itself or one before it in its own sequence."""
    rows_R: Ints
    """Rows, in [0, Q), at which a sequence ends."""
    sequences_R: Ints
    """The index of the sequence that ends there."""


@dataclass(frozen=True, eq=False)
class Run:
    """A sequence in the tree; its nodes from `start` on are new and numbered one after another."""

    sequence: int
    """Its index."""
    path_T: Ints
    """Its nodes, in increasing order."""
    start: int
    """How many of them were there before."""


class TokenTree:
    """A tree of tokens: a node is a token after its prefix, numbered in the order of arrival, parents first."""

    def __init__(self) -> None:
        """Make an empty tree."""
        self._child: dict[tuple[int, int], int] = {}
        self._token: list[int] = []
        self._position: list[int] = []

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._token)

    def grow(self, sequences: Sequence[list[int]], limit: int) -> list[Pass]:
        """Add `sequences` and return the passes of at most `limit` tokens that read what is new in them."""
        first = len(self)
        runs = [self.add(i, sequences[i]) for i in _neighbours_together(sequences)]
        return [self._pass(runs, start, min(start + limit, len(self))) for start in range(first, len(self), limit)]

    def add(self, sequence: int, tokens: list[int]) -> Run:
        """Add the tokens of one sequence, at least 1.

        Its last token is always a new node: whoever asks for the sequence needs a row to read the answer from.
        """
        path: list[int] = []
        for token in tokens[:-1]:
            node = self._child.get((path[-1] if path else -1, token))
            if node is None:
                break
            path.append(node)
        start = len(path)
        for position in range(start, len(tokens)):
            self._child.setdefault((path[-1] if path else -1, tokens[position]), len(self))
            path.append(len(self))
            self._token.append(tokens[position])
            self._position.append(position)
        return Run(sequence, np.array(path, np.int64), start)

    def _pass(self, runs: Sequence[Run], start: int, stop: int) -> Pass:
        """Lay out the nodes start ... stop - 1, all of them new nodes of `runs`."""
        here = [run for run in runs if run.path_T[run.start] < stop and run.path_T[-1] >= start]
        stored_C = np.unique(np.concatenate([run.path_T[run.path_T < start] for run in here]))
        positions = np.array(self._position, np.int64)
        ends = [(run.path_T[-1] - start, run.sequence) for run in here if run.path_T[-1] < stop]
        return Pass(
            tokens_Q=np.array(self._token[start:stop], np.int64),
            positions_Q=positions[start:stop],
            stored_C=stored_C,
            positions_K=np.concatenate([positions[stored_C], positions[start:stop]]),
            visible_QK=_visible(here, stored_C, start, stop),
            rows_R=np.array([row for row, _ in ends], np.int64),
            sequences_R=np.array([sequence for _, sequence in ends], np.int64),
        )


def _visible(runs: Sequence[Run], stored_C: Ints, start: int, stop: int) -> NDArray[np.bool_]:
    """Return which keys, the nodes `stored_C` and start ... stop - 1, each of the nodes start ... stop - 1 sees."""
    visible_QK = np.zeros((stop - start, len(stored_C) + stop - start), np.bool_)
    for run in runs:
        path_T = run.path_T[run.path_T < stop]
        keys_T = np.where(path_T < start, np.searchsorted(stored_C, path_T), path_T - start + len(stored_C))
        # A run that an earlier pass began is new here only from the node `start` on.
        first = max(run.start, int(np.searchsorted(path_T, start)))
        rows = path_T[first:] - start
        visible_QK[rows[:, None], keys_T[None]] = np.tri(len(rows), len(path_T), first, dtype=np.bool_)
    return visible_QK


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
        tree.add(i, sequences[i])
        if members and len(tree) + reserve + growth[i] > limit:
            yield Group(tuple(members), before + reserve)
            members, tree, reserve = [], TokenTree(), 0
            tree.add(i, sequences[i])
        members.append(i)
        reserve += growth[i]
    if members:
        yield Group(tuple(members), len(tree) + reserve)


def _neighbours_together(sequences: Sequence[list[int]]) -> list[int]:
    """Return the indices in lexicographic order: all sequences below one node follow each other."""
    return sorted(range(len(sequences)), key=lambda i: sequences[i])
