"""Judging of whole groups: rows in, verdicts out; equal answers of a group are judged once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from rl_reward.adapters.trl.gates import Earns, Gate
from rl_reward.criteria import Criteria
from rl_reward.errors import BackendError, ConfigError
from rl_reward.prompts import defuse
from rl_reward.scores import Ranking, Score, Status
from rl_reward.types import Candidate, Usage

Mode = Literal["pointwise", "tournament", "anchored"]

EMPTY_COMPLETION = "(empty answer)"
"""What the judge reads where the policy wrote nothing that can be seen."""


@dataclass(frozen=True)
class Row:
    """One completion with all that judging and paying it takes; rows travel between processes, so they pickle."""

    task: str
    """What the judge is told: the prompt, and the reference answer where one is shown."""
    answer: str
    """What the judge reads of the completion."""
    length: int
    """Tokens of the completion, characters where the trainer gives no token ids."""
    criteria: Criteria | None = None
    """What this row is judged by; None: the verifier's own criteria."""
    references: tuple[str, ...] = ()
    """The pool that an anchored comparison is made with."""
    correctness: float | None = None
    """The class of the answer, higher is better; None: unknown."""
    signs: tuple[Gate, ...] = ()
    """What the gates saw in the answer, whether or not that stops it."""
    gate: Gate | None = None
    """What keeps the row from the judge; None: it is judged."""


@dataclass(frozen=True)
class Verdict:
    """What judging one row gave."""

    value: float | None
    """The score in [0, 1], or the mean preference over the comparisons; None: there is none."""
    std_error: float | None = None
    """Standard error of `value`; None where it is unknown."""
    coverage: float | None = None
    """Mean probability that stood on the scale, in [0, 1]; None where nothing tells."""
    status: Status | Literal["gated"] = "logprob"
    """How the value was read, else why there is none; "gated": the judge was not asked."""
    reason: str = ""
    """Why there is no value."""
    usage: Usage = field(default_factory=Usage)
    """What this row cost; where answers are shared the first pays."""
    reward: float | None = None
    """What the trainer gets, weight included; None where there is no value."""


class AsyncVerifier(Protocol):
    """What `VerifierReward` asks of a verifier."""

    async def ascore_many(
        self, pairs: Sequence[tuple[str, Candidate]], /, *, criteria: Criteria | None = None
    ) -> Sequence[Score]:
        """Return one score for each (task, candidate), in order; `criteria` replaces the verifier's own."""
        ...


@runtime_checkable
class AsyncRanker(Protocol):
    """What `VerifierReward` asks of a verifier in its modes "tournament" and "anchored"."""

    async def arank_many(
        self,
        groups: Sequence[tuple[str, Sequence[Candidate]]],
        /,
        *,
        pivots: int = 2,
        method: Literal["pivots", "anchored"] = "pivots",
        references: Sequence[Sequence[Candidate]] | None = None,
        criteria: Criteria | None = None,
    ) -> Sequence[Ranking]:
        """Return one ranking for each (task, candidates), in order; `references` holds a pool for each group."""
        ...


Group = Sequence[Row]
T = TypeVar("T")
Result = TypeVar("Result")


@dataclass(frozen=True)
class GroupJudge:
    """Judges groups: every distinct answer of a group once, all groups side by side."""

    verifier: AsyncVerifier | AsyncRanker
    """Who judges."""
    mode: Mode
    """One by one, in a tournament, or against a pool of references."""
    pivots: int
    """k of the tournament."""
    earns: Earns
    """What a row scores that a gate stopped."""

    async def __call__(self, groups: Sequence[Group]) -> list[list[Verdict]]:
        """Return a verdict for each row of each group, their `reward` still open.

        Raises:
            ConfigError: The rows of a group that is to be compared differ in task, criteria or references; a reference
                pool is empty.
            BackendError: The verifier cannot serve, or returned another number of results than it was asked for.
        """
        entries = [distinct(group) for group in groups]
        asked = [list(entry.values()) for entry in entries]
        judged = await (self._scored(asked) if self.mode == "pointwise" else self._ranked(asked))
        return [
            self._shared(group, dict(zip(entry, verdicts, strict=True)))
            for group, entry, verdicts in zip(groups, entries, judged, strict=True)
        ]

    def _shared(self, group: Group, verdicts: dict[Hashable, Verdict]) -> list[Verdict]:
        """Return the verdict of each row; of equal answers the first bears the cost."""
        shared: list[Verdict] = []
        for row in group:
            if row.gate is not None:
                shared.append(Verdict(0.0 if self.earns == "lowest" else None, status="gated", reason=row.gate))
                continue
            shared.append(verdicts[_key(row)])
            verdicts[_key(row)] = replace(verdicts[_key(row)], usage=Usage())
        return shared

    async def _scored(self, asked: Sequence[Group]) -> list[list[Verdict]]:
        rows = [row for group in asked for row in group]

        async def scores_of(some: Sequence[Row], criteria: Criteria | None) -> Sequence[Score]:
            return await cast(AsyncVerifier, self.verifier).ascore_many(
                [(row.task, shown(row)) for row in some], criteria=criteria
            )

        scores = iter(await _by_criteria(rows, lambda row: row.criteria, scores_of, "scores", "answers"))
        return [[_verdict(next(scores)) for _ in group] for group in asked]

    async def _ranked(self, asked: Sequence[Group]) -> list[list[Verdict]]:
        contests = [group for group in asked if group]
        for group in contests:
            self._check_comparable(group)

        async def rankings_of(some: Sequence[Group], criteria: Criteria | None) -> Sequence[Ranking]:
            pools = {"references": [group[0].references for group in some]} if self.mode == "anchored" else {}
            return await cast(AsyncRanker, self.verifier).arank_many(
                [(group[0].task, [shown(row) for row in group]) for group in some],
                pivots=self.pivots,
                method="anchored" if self.mode == "anchored" else "pivots",
                criteria=criteria,
                **pools,
            )

        rankings = iter(
            await _by_criteria(contests, lambda group: group[0].criteria, rankings_of, "rankings", "groups")
        )
        return [_verdicts(next(rankings), len(group)) if group else [] for group in asked]

    def _check_comparable(self, group: Group) -> None:
        for part, values in (
            ("prompts", {row.task for row in group}),
            ("criteria", {repr(row.criteria) for row in group}),
            ("references", {row.references for row in group}),
        ):
            if len(values) > 1:
                raise ConfigError(f"the answers of a group are compared, but it holds {len(values)} different {part}")
        if self.mode == "anchored" and not group[0].references:
            raise ConfigError('mode="anchored" compares with references, but a row of the dataset has none; give one')


def distinct(group: Group) -> dict[Hashable, Row]:
    """Return the rows that are to be judged, the first of those with the same task, text and criteria."""
    rows: dict[Hashable, Row] = {}
    for row in group:
        if row.gate is None:
            rows.setdefault(_key(row), row)
    return rows


def shown(row: Row) -> str:
    """Return what the judge reads of a row."""
    return row.answer if defuse(row.answer).strip() else EMPTY_COMPLETION


def _key(row: Row) -> Hashable:
    return row.task, shown(row), repr(row.criteria)


async def _by_criteria(
    asked: Sequence[T],
    criteria_of: Callable[[T], Criteria | None],
    ask: Callable[[Sequence[T], Criteria | None], Awaitable[Sequence[Result]]],
    results: str,
    things: str,
) -> list[Result]:
    """Return one result for each that is asked, with one concurrent call for each distinct value of the criteria."""
    numbers_by_criteria: dict[str, list[int]] = {}
    for number, one in enumerate(asked):
        numbers_by_criteria.setdefault(repr(criteria_of(one)), []).append(number)
    calls = list(numbers_by_criteria.values())
    tasks = [
        asyncio.ensure_future(ask([asked[number] for number in numbers], criteria_of(asked[numbers[0]])))
        for numbers in calls
    ]
    try:
        answers = await asyncio.gather(*tasks)
    finally:
        for task in tasks:  # one that raised must not leave the others asking
            task.cancel()
    by_number: dict[int, Result] = {}
    for numbers, given in zip(calls, answers, strict=True):
        if len(given) != len(numbers):
            raise BackendError(f"the verifier returned {len(given)} {results} for {len(numbers)} {things}")
        by_number.update(zip(numbers, given, strict=True))
    return [by_number[number] for number in range(len(asked))]


def _verdict(score: Score) -> Verdict:
    """Return the verdict of a score, unscored if its value is not finite: one inf would silence its group in TRL."""
    coverages = [read.coverage for reads in score.distributions.values() for read in reads]
    verdict = Verdict(
        value=score.value,
        std_error=score.std_error if math.isfinite(score.std_error or 0.0) else None,
        coverage=float(np.mean(coverages)) if coverages else None,
        status=score.status,
        reason=score.reason,
        usage=score.usage,
    )
    if score.value is None or math.isfinite(score.value):
        return verdict
    return replace(verdict, value=None, status="error", reason=f"the verifier returned {score.value}")


def _verdicts(ranking: Ranking, entered: int) -> list[Verdict]:
    """Return the verdicts of the answers that entered a tournament; the first bears its cost."""
    if len(ranking.scores) != entered:
        raise BackendError(f"the verifier ranked {len(ranking.scores)} answers of {entered}")
    reasons = [pair.reason for pair in ranking.pairs if pair.reason]
    lost = f"none of its comparisons was read; {reasons[-1] if reasons else 'no reason given'}"
    return [
        Verdict(
            value=float(score) if math.isfinite(score) else None,
            std_error=float(error) if math.isfinite(error) else None,
            status="logprob" if math.isfinite(score) else "unreadable",
            reason="" if math.isfinite(score) else lost,
            usage=Usage() if number else ranking.usage,
        )
        for number, (score, error) in enumerate(zip(ranking.scores, ranking.std_errors, strict=True))
    ]
