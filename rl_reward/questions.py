"""What is asked about a candidate: criteria x repeats, where a repeat re-draws what is random and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from rl_reward.backends.base import Kind, Message, Request
from rl_reward.criteria import Criterion
from rl_reward.prompts import PAIR_TAGS, TAG, Exemplar, completion, pairwise, pointwise, progress
from rl_reward.scale import ScoreScale
from rl_reward.scores import Unread
from rl_reward.types import Candidate, Image, Step, Trajectory

Style = Literal["instructions", "completion"]
"""How a question is put: in full, or as the last of a row of examples."""

Plan = dict[str, list[Request | Unread]]
"""By criterion, the repeats to ask; Unread where there is nothing to ask about."""


@dataclass(frozen=True)
class Questions:
    """Turns candidates into requests."""

    criteria: tuple[Criterion, ...]
    """What to judge by."""
    scale: ScoreScale
    """The levels."""
    repeats: int
    """K, the repeats of each criterion, as far as anything is random."""
    sampled: bool
    """Whether each reply holds a sampled analysis."""
    exemplars: tuple[Exemplar, ...]
    """Judged examples; their order is re-drawn by repeats."""
    seed: int
    """Seed of that order."""
    sees_data: bool
    """Whether the judge may see the privileged `data` of steps; a real one never does."""
    style: Style = "instructions"
    """How questions about one candidate are put."""
    max_images: int | None = None
    """Images shown of one trajectory at most; None: all."""

    def single(self, kind: Literal["pointwise", "progress"], task: str, candidate: Candidate) -> Plan:
        """Return what to ask about one candidate: the distinct repeats of each criterion."""
        candidate = self._shown(candidate)
        if _is_empty(candidate):
            return self._nothing("the candidate is empty")
        return {criterion.name: self._repeats(kind, task, candidate, criterion) for criterion in self.criteria}

    def pair(self, task: str, first: Candidate, second: Candidate) -> Plan:
        """Return what to ask about a pair: repeats in alternating slot order, as many of each."""
        first, second = self._shown(first), self._shown(second)
        if _is_empty(first) or _is_empty(second):
            return self._nothing("a candidate is empty")
        draws = range(math.ceil(self.distinct_draws / 2))
        orders = ((first, second), (second, first))
        return {
            criterion.name: [self._compare(task, slots, criterion, draw) for draw in draws for slots in orders]
            for criterion in self.criteria
        }

    def directed(self, task: str, slot_a: Candidate, slot_b: Candidate) -> Plan:
        """Return what to ask about a pair in this slot order only; a tournament deals the slots over its pairs."""
        slots = self._shown(slot_a), self._shown(slot_b)
        if any(map(_is_empty, slots)):
            return self._nothing("a candidate is empty")
        draws = range(self.distinct_draws)
        return {
            criterion.name: [self._compare(task, slots, criterion, k) for k in draws] for criterion in self.criteria
        }

    @property
    def distinct_draws(self) -> int:
        """Repeats of a pair in one slot order that can differ."""
        return self.repeats if self.sampled else 1

    def fingerprint(self, task: str, candidate: Candidate) -> str:
        """Return a digest of the task and of all the judge sees of a candidate."""
        shown = self._shown(candidate)
        steps = (Step(shown),) if isinstance(shown, str) else shown.steps
        messages = tuple(Message("user", _parts(step)) for step in steps)
        return Request("pairwise", messages, PAIR_TAGS, self.scale, task, "", (shown,)).key

    def _shown(self, candidate: Candidate) -> Candidate:
        if isinstance(candidate, str):
            return candidate
        shown = candidate if self.max_images is None else candidate.with_images(self.max_images)
        return shown if self.sees_data else shown.without_data()

    def _nothing(self, reason: str) -> Plan:
        return {criterion.name: [Unread("unreadable", reason)] for criterion in self.criteria}

    def _repeats(
        self, kind: Literal["pointwise", "progress"], task: str, candidate: Candidate, criterion: Criterion
    ) -> list[Request | Unread]:
        distinct: dict[str, Request | Unread] = {}
        for draw in range(self.repeats):
            shots = self._order_of_exemplars(draw)
            messages = self._words(kind, task, candidate, criterion, shots)
            request = self._request(kind, messages, (TAG,), task, (candidate,), criterion, draw)
            distinct.setdefault(request.key, request)
        return list(distinct.values())

    def _words(
        self,
        kind: Literal["pointwise", "progress"],
        task: str,
        candidate: Candidate,
        criterion: Criterion,
        shots: Sequence[Exemplar],
    ) -> tuple[Message, ...]:
        if self.style == "completion":
            return completion(task, candidate, exemplars=shots)
        build = pointwise if kind == "pointwise" else progress
        return build(task, candidate, criterion, self.scale, exemplars=shots, analysis=self.sampled)

    def _compare(self, task: str, slots: tuple[Candidate, Candidate], criterion: Criterion, draw: int) -> Request:
        messages = pairwise(task, *slots, criterion, self.scale, analysis=self.sampled)
        return self._request("pairwise", messages, PAIR_TAGS, task, slots, criterion, draw)

    def _request(
        self,
        kind: Kind,
        messages: tuple[Message, ...],
        tags: tuple[str, ...],
        task: str,
        candidates: tuple[Candidate, ...],
        criterion: Criterion,
        draw: int,
    ) -> Request:
        # Without a sampled analysis a draw changes nothing by itself: equal prompts must be one request.
        draw = draw if self.sampled else 0
        return Request(kind, messages, tags, self.scale, task, criterion.name, candidates, self.sampled, draw)

    def _order_of_exemplars(self, draw: int) -> Sequence[Exemplar]:
        if draw == 0:
            return self.exemplars
        order = np.random.default_rng([self.seed, draw]).permutation(len(self.exemplars))
        return [self.exemplars[int(i)] for i in order]


def _parts(step: Step) -> tuple[str | Image, ...]:
    if step.image is None:
        return (step.text,)
    return step.text, Path(step.image) if isinstance(step.image, str) else step.image


def _is_empty(candidate: Candidate) -> bool:
    if isinstance(candidate, Trajectory):
        return all(not step.text.strip() and step.image is None and step.data is None for step in candidate.steps)
    return not candidate.strip()
