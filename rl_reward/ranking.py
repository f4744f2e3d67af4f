"""Tournaments of many groups at once: one round of all of them goes to the judge together."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rl_reward._checks import check_text
from rl_reward.errors import ConfigError
from rl_reward.preference import preference
from rl_reward.questions import Plan, Questions
from rl_reward.scores import PairReading, Ranking, Reading, Score, Unread, ranking_of, score_of
from rl_reward.tournament import Comparison, Method, Pairing, check_method, rounds_of
from rl_reward.types import Candidate, Trajectory, Usage


@dataclass(frozen=True)
class Group:
    """The candidates of one task."""

    task: str
    """The task."""
    candidates: tuple[Candidate, ...]
    """N candidates, at least one."""
    references: tuple[Candidate, ...]
    """The pool of an anchored tournament; empty otherwise."""


@dataclass(frozen=True)
class Judged:
    """What the judge said of one pairing."""

    preference: float
    """P(slot A beats slot B) in [0, 1]; NaN where it could not be read."""
    reason: str
    """Why it could not be read."""
    usage: Usage
    """What it cost."""


Judge = Callable[[Sequence[Plan]], Awaitable[Sequence[Judged]]]
"""Answers a round of pairings, concurrently."""


async def rank_groups(
    groups: Sequence[Group], questions: Questions, judge: Judge, *, method: Method, pivots: int, seed: int
) -> list[Ranking]:
    """Return the ranking of every group, each round of all groups judged together.

    The ring is drawn from `seed` and the group's own content: equal groups have equal rings whatever was asked before,
    in whatever order their candidates stand.
    """
    games = [_Game(group, questions, method, pivots, seed) for group in groups]
    while playing := [game for game in games if game.pairings]:
        plans = [game.plans() for game in playing]
        judged = iter(await judge([plan for of_game in plans for plan in of_game]))
        for game, of_game in zip(playing, plans, strict=True):
            game.take([next(judged) for _ in of_game])
    return [game.ranking() for game in games]


def judged_of(
    repeats: Mapping[str, Sequence[PairReading | Unread]],
    weights: Mapping[str, float],
    usage: Usage,
    *,
    temperature: float,
) -> Judged:
    """Return the preference of a pair read in one slot order, from the repeats in which both slots were read."""
    slot_a = _slot_score(repeats, weights, lambda pair: pair.first)
    slot_b = _slot_score(repeats, weights, lambda pair: pair.second)
    if slot_a.value is None or slot_b.value is None:
        return Judged(math.nan, slot_a.reason, usage)
    return Judged(preference(slot_a.value, slot_b.value, temperature), "", usage)


def groups_of(
    groups: Sequence[tuple[str, Sequence[Candidate]]],
    references: Sequence[Sequence[Candidate]] | None,
    *,
    method: Method,
    pivots: int,
) -> list[Group]:
    """Return the groups, checked.

    Raises:
        ConfigError: No candidate, a candidate of another type, or references that do not fit the method.
    """
    check_method(method, pivots)
    if (references is not None) is not (method == "anchored"):
        given = "none" if references is None else "some"
        raise ConfigError(f'method="anchored" needs references, the others take none; got {given} with {method!r}')
    pools = [()] * len(groups) if references is None else references
    if len(pools) != len(groups):
        raise ConfigError(f"give one pool of references for each group, got {len(pools)} for {len(groups)} groups")
    return [
        Group(
            check_text("task", task),
            _several("candidates", candidates),
            _several("references", pool) if method == "anchored" else (),
        )
        for (task, candidates), pool in zip(groups, pools, strict=True)
    ]


def checked(candidate: Candidate) -> Candidate:
    """Return `candidate`; ConfigError unless it is a str or a Trajectory."""
    if not isinstance(candidate, str | Trajectory):
        raise ConfigError(f"a candidate must be a str or a Trajectory, got {type(candidate).__name__}")
    return candidate


class _Game:
    """The tournament of one group while it is played."""

    def __init__(self, group: Group, questions: Questions, method: Method, pivots: int, seed: int) -> None:
        self._questions, self._task = questions, group.task
        self._shown = (*group.candidates, *group.references)
        self._n = len(group.candidates)
        prints = [questions.fingerprint(group.task, candidate) for candidate in group.candidates]
        # The tournament numbers candidates by content, so that their order in the batch decides nothing.
        places = sorted(range(self._n), key=lambda i: prints[i])
        self._numbers = [*places, *range(self._n, len(self._shown))]
        content = hashlib.sha256("".join(sorted(prints)).encode()).hexdigest()
        self._rounds = rounds_of(
            self._n,
            method=method,
            pivots=pivots,
            references=len(group.references),
            rng=np.random.default_rng([seed, int(content[:16], 16)]),
        )
        self._comparisons: list[Comparison] = []
        self._usage = Usage()
        self.pairings: Sequence[Pairing] = next(self._rounds, ())

    def plans(self) -> list[Plan]:
        """Return what to ask in this round."""
        slots = [(self._numbers[one.slot_a], self._numbers[one.slot_b]) for one in self.pairings]
        return [self._questions.directed(self._task, self._shown[a], self._shown[b]) for a, b in slots]

    def take(self, judged: Sequence[Judged]) -> None:
        """Take the answers of this round and go on to the next."""
        for one, said in zip(self.pairings, judged, strict=True):
            pairing = Pairing(self._numbers[one.slot_a], self._numbers[one.slot_b], one.stage)
            self._comparisons.append(Comparison(pairing, said.preference, said.reason))
            self._usage += said.usage
        try:
            self.pairings = self._rounds.send([said.preference for said in judged])
        except StopIteration:
            self.pairings = ()

    def ranking(self) -> Ranking:
        """Return the ranking once nothing is left to ask."""
        return ranking_of(self._comparisons, self._n, self._usage)


def _slot_score(
    repeats: Mapping[str, Sequence[PairReading | Unread]],
    weights: Mapping[str, float],
    slot: Callable[[PairReading], Reading],
) -> Score:
    readings = {name: [row if isinstance(row, Unread) else slot(row) for row in rows] for name, rows in repeats.items()}
    return score_of(readings, weights, Usage())


def _several(name: str, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    if isinstance(candidates, str | Trajectory) or not isinstance(candidates, Sequence):
        raise ConfigError(f"{name} must be a list of str or Trajectory, got {type(candidates).__name__}")
    if not candidates:
        raise ConfigError(f"a tournament needs at least 1 of {name}, got 0")
    return tuple(checked(candidate) for candidate in candidates)
