"""From answers to readings: where a score stands in a reply, and who pays for the reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rl_reward._asking import Answer, usage_of
from rl_reward.backends.base import Request
from rl_reward.errors import Unscorable
from rl_reward.prompts import PAIR_TAGS, TAG
from rl_reward.questions import Plan
from rl_reward.scale import ScoreScale
from rl_reward.scores import PairReading, Reading, Unread
from rl_reward.types import Usage
from rl_reward.verdict import read_score


@dataclass(frozen=True)
class Reader:
    """Reads the answers to plans."""

    answers: Mapping[str, Answer]
    """Answers by `Request.key`."""
    scale: ScoreScale
    """The levels."""
    min_coverage: float
    """Floor of the probability on the scale, in [0, 1]."""
    allow_text: bool
    """Whether a literal level counts where no distribution can be read."""

    def single(self, plan: Plan) -> dict[str, list[Reading | Unread]]:
        """Return the readings of a plan about one candidate."""
        return {name: [self._read(one, TAG) for one in repeats] for name, repeats in plan.items()}

    def pair(self, plan: Plan) -> dict[str, list[PairReading | Unread]]:
        """Return the readings of `Questions.pair`, which alternates the slot orders, the caller's own first."""
        return {
            name: [self._pair(one, swapped=k % 2 == 1) for k, one in enumerate(repeats)]
            for name, repeats in plan.items()
        }

    def directed(self, plan: Plan) -> dict[str, list[PairReading | Unread]]:
        """Return the readings of `Questions.directed`, all in the caller's own slot order."""
        return {name: [self._pair(one, swapped=False) for one in repeats] for name, repeats in plan.items()}

    def _pair(self, asked: Request | Unread, *, swapped: bool) -> PairReading | Unread:
        slot_a, slot_b = (self._read(asked, tag) for tag in PAIR_TAGS)
        if isinstance(slot_a, Unread):
            return slot_a
        if isinstance(slot_b, Unread):
            return slot_b
        return PairReading(slot_b, slot_a, swapped) if swapped else PairReading(slot_a, slot_b, swapped)

    def _read(self, asked: Request | Unread, tag: str) -> Reading | Unread:
        answer = asked if isinstance(asked, Unread) else self.answers[asked.key]
        if isinstance(answer, Unread):
            return answer
        try:
            return read_score(answer, tag, self.scale, min_coverage=self.min_coverage, allow_text=self.allow_text)
        except Unscorable as failure:
            return Unread("unreadable", str(failure))


class Bill:
    """Charges every answer to the first plan that asked for it."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        """Nothing is paid yet."""
        self._unpaid = {key: usage_of(answer) for key, answer in answers.items()}

    def charge(self, plan: Plan) -> Usage:
        """Return what the answers to `plan` cost that nobody has paid."""
        keys = [one.key for repeats in plan.values() for one in repeats if isinstance(one, Request)]
        return sum((self._unpaid.pop(key, Usage()) for key in keys), Usage())
