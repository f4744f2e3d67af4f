"""The verifier: tasks and candidates in, scores out; criteria x repeats, bounded concurrency, nothing asked twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from rl_reward._asking import Answer, Limits, ask
from rl_reward._checks import check_int, check_number, check_text
from rl_reward._loop import arun, run
from rl_reward.backends.base import Backend, Request
from rl_reward.criteria import Criteria, load
from rl_reward.distribution import MIN_COVERAGE
from rl_reward.errors import ConfigError
from rl_reward.progress import checkpoints
from rl_reward.prompts import Exemplar
from rl_reward.questions import Plan, Questions, Style
from rl_reward.ranking import Judged, checked, groups_of, judged_of, rank_groups
from rl_reward.readings import Bill, Reader
from rl_reward.scale import ScoreScale
from rl_reward.scores import PairScore, ProgressCurve, Ranking, Score, curve_of, pair_score_of, score_of
from rl_reward.tournament import Budget, Method, call_budget
from rl_reward.types import Candidate, Step, Trajectory

Analysis = Literal["none", "sampled"]
Answers = dict[str, Answer]


class Verifier:
    """Reads scores in [0, 1] off a language model's score-token expectation (arXiv 2607.05391, Sec. 3).

        R(x, tau) = 1/(CK) sum_c sum_k sum_g p(v_g | x, c, tau) phi(v_g)

    Every method has an asynchronous twin with an `a` in front. A failed request gives an unscored result with its
    reason; a model that cannot serve scores at all raises BackendError on first use.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        criteria: Criteria | None = None,
        scale: ScoreScale | None = None,
        repeats: int = 1,
        analysis: Analysis = "none",
        exemplars: Sequence[Exemplar] = (),
        style: Style = "instructions",
        max_images: int | None = None,
        min_coverage: float = MIN_COVERAGE,
        allow_text: bool = False,
        preference_temperature: float = 1.0,
        max_concurrency: int = 50,
        deadline: float | None = None,
        batch_deadline: float | None = None,
        seed: int = 0,
    ) -> None:
        """Configure the verifier; nothing is asked yet.

        Args:
            backend: Who answers.
            criteria: A built-in set ("math", "agent", "manipulation"), a .toml or .md file, a dict or a list.
            scale: The levels; the paper's 20 letters by default.
            repeats: K, >= 1. A repeat re-draws what is random: a sampled analysis, the slot order of a pair, the order
                of exemplars. Where nothing is random one call is made.
            analysis: "sampled": the model writes an analysis before the verdict (the paper's way); "none": the verdict
                alone, at a fraction of the cost.
            exemplars: Judged examples put before the question.
            style: "instructions": the question in full; "completion": nothing but the examples and the candidate in
                plain lines, for base models and very small ones. It needs exemplars, which are all that says what to
                judge by, and asks about single candidates.
            max_images: Images of one trajectory in a prompt at most, >= 1: the first, the last and evenly spaced ones
                between, as servers limit their number. None: all.
            min_coverage: Floor of the probability on the scale, in [0, 1]; below it a reading is unreadable.
            allow_text: Accept the literal level where no distribution can be read (status "text").
            preference_temperature: Divisor in the Bradley-Terry preference, > 0.
            max_concurrency: Requests in flight at once, >= 1.
            deadline: Seconds for one request, its retries included, waiting for a free place not. None: the backend's
                own (60 s over HTTP; a local model has none, since loading it and large batches take their time).
            batch_deadline: Seconds for one whole call of a method; None: no limit.
            seed: Seed of the order of exemplars and of the rings of tournaments.

        Raises:
            ConfigError: A value is outside its range.
        """
        check_int("repeats", repeats, least=1)
        check_int("max_concurrency", max_concurrency, least=1)
        check_int("seed", seed, least=0)
        if max_images is not None:
            check_int("max_images", max_images, least=1)
        check_number("preference_temperature", preference_temperature, above=0)
        for name, seconds in (("deadline", deadline), ("batch_deadline", batch_deadline)):
            if seconds is not None:
                check_number(name, seconds, above=0)
        check_number("min_coverage", min_coverage, least=0, most=1)
        if not isinstance(scale, ScoreScale | None):
            raise ConfigError(f"scale must be a ScoreScale, got {scale!r}; try ScoreScale.letters(20)")
        if analysis not in get_args(Analysis):
            raise ConfigError(f"analysis must be one of {', '.join(get_args(Analysis))}, got {analysis!r}")
        if style not in get_args(Style):
            raise ConfigError(f"style must be one of {', '.join(get_args(Style))}, got {style!r}")
        loaded = load(criteria)
        if style == "completion" and (analysis == "sampled" or not exemplars or len(loaded) > 1):
            raise ConfigError('style="completion" needs exemplars, one criterion and analysis="none"')
        self.backend, self.scale = backend, scale or ScoreScale.letters()
        odd = [shot.level for shot in exemplars if self.scale.index(shot.level) is None]
        if odd:
            raise ConfigError(f"exemplar level {odd[0]!r} is not on the scale {self.scale.first}..{self.scale.last}")
        self.min_coverage, self.allow_text = min_coverage, allow_text
        self.preference_temperature = preference_temperature
        self.max_concurrency, self.deadline, self.batch_deadline = max_concurrency, deadline, batch_deadline
        self._questions = Questions(
            loaded,
            self.scale,
            repeats,
            analysis == "sampled",
            tuple(exemplars),
            seed,
            backend.sees_data,
            style,
            max_images,
        )
        self._slots: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    @property
    def name(self) -> str:
        """Who judges, for tables, plots and logs."""
        return self.backend.name

    def score(self, task: str, candidate: Candidate) -> Score:
        """Return the score of one candidate."""
        return self.score_many([(task, candidate)])[0]

    def score_many(self, pairs: Sequence[tuple[str, Candidate]], *, criteria: Criteria | None = None) -> list[Score]:
        """Return the scores of (task, candidate) pairs, in order; `criteria` replaces the verifier's for this call."""
        return run(self._score_many(pairs, criteria))

    def compare(self, task: str, first: Candidate, second: Candidate) -> PairScore:
        """Return the scores of two candidates judged side by side, in both slot orders."""
        return self.compare_many([(task, first, second)])[0]

    def compare_many(self, triples: Sequence[tuple[str, Candidate, Candidate]]) -> list[PairScore]:
        """Return the comparisons of (task, first, second) triples, in order."""
        return run(self._compare_many(triples))

    def rank(
        self,
        task: str,
        candidates: Sequence[Candidate],
        *,
        pivots: int = 2,
        method: Method = "pivots",
        references: Sequence[Candidate] | None = None,
        criteria: Criteria | None = None,
    ) -> Ranking:
        """Return the ranking of N candidates by tournament; see `rank_many`."""
        pools = None if references is None else [references]
        return self.rank_many([(task, candidates)], pivots=pivots, method=method, references=pools, criteria=criteria)[
            0
        ]

    def rank_many(
        self,
        groups: Sequence[tuple[str, Sequence[Candidate]]],
        *,
        pivots: int = 2,
        method: Method = "pivots",
        references: Sequence[Sequence[Candidate]] | None = None,
        criteria: Criteria | None = None,
    ) -> list[Ranking]:
        """Return one ranking for each (task, candidates) group; a round of all groups is asked at once.

        A comparison is one slot order: the tournament deals the slots, `compare` judges both.

        Args:
            groups: Tasks and their candidates, at least one each.
            pivots: k of the pivot tournament, >= 0; more than there are candidates is all of them.
            method: "pivots": Probabilistic Pivot Tournament, N + k(N - k) + k(k - 1)/2 comparisons; "round_robin": all
                pairs in both slot orders; "anchored": everyone against `references` in both slot orders.
            references: For "anchored" one pool for each group, at least one reference each; they are not ranked.
            criteria: Replaces the verifier's for this call.

        Raises:
            ConfigError: A value is outside its range, or references do not fit the method.
        """
        return run(self._rank_many(groups, pivots, method, references, criteria))

    def call_budget(
        self,
        candidates: int,
        *,
        pivots: int = 2,
        method: Method = "pivots",
        references: int = 0,
        criteria: Criteria | None = None,
    ) -> Budget:
        """Return what `rank` will ask about a group of `candidates`, `references` being the size of the pool."""
        questions = self._judged_by(criteria)
        return call_budget(
            candidates,
            method=method,
            pivots=pivots,
            references=references,
            criteria=len(questions.criteria),
            repeats=questions.distinct_draws,
        )

    def track(self, task: str, steps: Sequence[str | Step], *, every: int = 1) -> ProgressCurve:
        """Return the causal progress after each step: the score of step t sees steps up to t and nothing later."""
        return self.track_many([(task, steps)], every=every)[0]

    def track_many(
        self, episodes: Sequence[tuple[str, Sequence[str | Step]]], *, every: int = 1
    ) -> list[ProgressCurve]:
        """Return the curves of (task, steps) episodes; every `every`-th step, the first and the last are asked."""
        return run(self._track_many(episodes, every))

    async def ascore(self, task: str, candidate: Candidate) -> Score:
        """Return the score of one candidate."""
        return (await self.ascore_many([(task, candidate)]))[0]

    async def ascore_many(
        self, pairs: Sequence[tuple[str, Candidate]], *, criteria: Criteria | None = None
    ) -> list[Score]:
        """Return the scores of (task, candidate) pairs, in order."""
        return await arun(self._score_many(pairs, criteria))

    async def acompare(self, task: str, first: Candidate, second: Candidate) -> PairScore:
        """Return the scores of two candidates judged side by side."""
        return (await self.acompare_many([(task, first, second)]))[0]

    async def acompare_many(self, triples: Sequence[tuple[str, Candidate, Candidate]]) -> list[PairScore]:
        """Return the comparisons of (task, first, second) triples, in order."""
        return await arun(self._compare_many(triples))

    async def arank(
        self,
        task: str,
        candidates: Sequence[Candidate],
        *,
        pivots: int = 2,
        method: Method = "pivots",
        references: Sequence[Candidate] | None = None,
        criteria: Criteria | None = None,
    ) -> Ranking:
        """Return the ranking of N candidates by tournament."""
        pools = None if references is None else [references]
        rankings = await self.arank_many(
            [(task, candidates)], pivots=pivots, method=method, references=pools, criteria=criteria
        )
        return rankings[0]

    async def arank_many(
        self,
        groups: Sequence[tuple[str, Sequence[Candidate]]],
        *,
        pivots: int = 2,
        method: Method = "pivots",
        references: Sequence[Sequence[Candidate]] | None = None,
        criteria: Criteria | None = None,
    ) -> list[Ranking]:
        """Return one ranking for each (task, candidates) group; see `rank_many`."""
        return await arun(self._rank_many(groups, pivots, method, references, criteria))

    async def atrack(self, task: str, steps: Sequence[str | Step], *, every: int = 1) -> ProgressCurve:
        """Return the causal progress after each step."""
        return (await self.atrack_many([(task, steps)], every=every))[0]

    async def atrack_many(
        self, episodes: Sequence[tuple[str, Sequence[str | Step]]], *, every: int = 1
    ) -> list[ProgressCurve]:
        """Return the progress curves of (task, steps) episodes."""
        return await arun(self._track_many(episodes, every))

    def close(self) -> None:
        """Free the backend's connections and models."""
        run(self.backend.aclose())

    async def _score_many(self, pairs: Sequence[tuple[str, Candidate]], criteria: Criteria | None) -> list[Score]:
        questions = self._judged_by(criteria)
        plans = [
            questions.single("pointwise", check_text("task", task), checked(candidate)) for task, candidate in pairs
        ]
        return self._scores(plans, await self._ask(plans), _weights(questions))

    async def _track_many(
        self, episodes: Sequence[tuple[str, Sequence[str | Step]]], every: int
    ) -> list[ProgressCurve]:
        shown = [(check_text("task", task), Trajectory.of(steps).steps) for task, steps in episodes]
        asked = [checkpoints(len(steps), every) for _, steps in shown]
        plans = [
            self._questions.single("progress", task, Trajectory(steps[: last + 1]))
            for (task, steps), lasts in zip(shown, asked, strict=True)
            for last in lasts
        ]
        scores = iter(self._scores(plans, await self._ask(plans), _weights(self._questions)))
        return [
            curve_of({last: next(scores) for last in lasts}, len(steps))
            for (_, steps), lasts in zip(shown, asked, strict=True)
        ]

    async def _compare_many(self, triples: Sequence[tuple[str, Candidate, Candidate]]) -> list[PairScore]:
        self._check_compares()
        plans = [
            self._questions.pair(check_text("task", task), checked(first), checked(second))
            for task, first, second in triples
        ]
        answers = await self._ask(plans)
        bill, read = Bill(answers), self._reader(answers)
        weights, temperature = _weights(self._questions), self.preference_temperature
        return [pair_score_of(read.pair(plan), weights, bill.charge(plan), temperature=temperature) for plan in plans]

    async def _rank_many(
        self,
        groups: Sequence[tuple[str, Sequence[Candidate]]],
        pivots: int,
        method: Method,
        references: Sequence[Sequence[Candidate]] | None,
        criteria: Criteria | None,
    ) -> list[Ranking]:
        self._check_compares()
        checked_groups = groups_of(groups, references, method=method, pivots=pivots)
        questions = self._judged_by(criteria)
        weights, temperature = _weights(questions), self.preference_temperature
        known: Answers = {}
        started = time.monotonic()

        async def judge(plans: Sequence[Plan]) -> list[Judged]:
            new = await self._ask(plans, known, spent=time.monotonic() - started)
            known.update(new)
            bill, read = Bill(new), self._reader(known)
            return [
                judged_of(read.directed(plan), weights, bill.charge(plan), temperature=temperature) for plan in plans
            ]

        return await rank_groups(checked_groups, questions, judge, method=method, pivots=pivots, seed=questions.seed)

    def _judged_by(self, criteria: Criteria | None) -> Questions:
        return self._questions if criteria is None else replace(self._questions, criteria=load(criteria))

    def _check_compares(self) -> None:
        if self._questions.style == "completion":
            raise ConfigError('style="completion" scores single candidates; compare with style="instructions"')

    async def _ask(self, plans: Sequence[Plan], known: Mapping[str, Answer] = {}, spent: float = 0.0) -> Answers:
        """Ask what is not `known`; `spent` seconds of the batch deadline are gone."""
        loop = asyncio.get_running_loop()
        # A semaphore belongs to its event loop, and a forked process has another one.
        if self._slots is None or self._slots[0] is not loop:
            self._slots = loop, asyncio.Semaphore(self.max_concurrency)
        asked = [one for plan in plans for repeats in plan.values() for one in repeats if isinstance(one, Request)]
        left = None if self.batch_deadline is None else max(self.batch_deadline - spent, 0.0)
        requests = [one for one in asked if one.key not in known]
        return await ask(self.backend, requests, Limits(self._slots[1], self.deadline, left))

    def _scores(self, plans: Sequence[Plan], answers: Answers, weights: Mapping[str, float]) -> list[Score]:
        bill, read = Bill(answers), self._reader(answers)
        return [score_of(read.single(plan), weights, bill.charge(plan)) for plan in plans]

    def _reader(self, answers: Answers) -> Reader:
        return Reader(answers, self.scale, self.min_coverage, self.allow_text)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_slots": None}


def _weights(questions: Questions) -> dict[str, float]:
    return {criterion.name: criterion.weight for criterion in questions.criteria}
