"""The control for a language model that reads captions: a fixed rule on the same captions' words and numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rl_reward._checks import check_number
from rl_reward.envs.captions import NEARNESS
from rl_reward.envs.oracle import closeness, staged
from rl_reward.progress import checkpoints, hold
from rl_reward.scores import ProgressCurve
from rl_reward.types import Step

_WORDS = dict(zip((words for _, words in NEARNESS), (0.0, 0.035, 0.075, 0.15, 0.30), strict=True))
"""What the words for nearness stand for, in metres: the middle of their range, and 30 cm for the last."""
ROOM = 5.0
"""Metres beyond which a position or a length is none of a robot arm's, and most likely centimetres."""
# "The puck is 10 cm from the gripper" or "The puck is close to the gripper"; a name may be several words.
_RELATION = re.compile(rf"The ([\w '-]+?) is (?:(\d+) cm from|({'|'.join(_WORDS)})) the ([\w '-]+?)[:.]")


@dataclass(frozen=True)
class CaptionRule:
    """A `ProgressJudge` that takes the distances out of a caption of `envs.captions`; no model, no episode, no truth.

        approach = clip(1 - d(gripper, thing) / reach, 0, 1)      placed = clip(1 - d(thing, target) / carry, 0, 1)
        progress = placed + (1 - placed) * 0.3 * approach

    A caption without a thing to carry gives `clip(1 - d(gripper, target) / reach, 0, 1)`. Distances in words count as
    the middle of their range: at 0, very close to 3.5, close to 7.5, some way from 15, far from 30 cm. Any other text
    is unscored. The lengths are fixed, since a single caption does not say how far away things were in the beginning.
    """

    reach: float = 0.30
    """Distance from gripper to thing at which nothing is achieved, in metres, above 0, at most `ROOM`."""
    carry: float = 0.40
    """Distance from thing to target at which nothing is achieved, in metres, above 0, at most `ROOM`."""
    name: str = field(default="caption-rule", init=False)
    """As tables call it."""

    def __post_init__(self) -> None:
        """Refuse lengths that are not positive, or no metres."""
        check_number("reach, in metres,", self.reach, above=0, most=ROOM)
        check_number("carry, in metres,", self.carry, above=0, most=ROOM)

    def track_many(self, episodes: Sequence[tuple[str, Sequence[Step]]], *, every: int = 1) -> list[ProgressCurve]:
        """Return the curves that the captions spell out."""
        return [self._curve(steps, every) for _, steps in episodes]

    def progress(self, caption: str) -> float | None:
        """Return the progress in [0, 1] that one caption tells, None where it tells none."""
        distances = relations(caption)
        if len(distances) == 1 and ("target", "gripper") in distances:
            return closeness(distances["target", "gripper"], self.reach)
        thing = thing_in(caption)
        if len(distances) != 2 or thing is None:
            return None
        approach = closeness(distances[thing, "gripper"], self.reach)
        return staged(approach, closeness(distances["target", thing], self.carry))

    def _curve(self, steps: Sequence[Step], every: int) -> ProgressCurve:
        held = hold({i: self.progress(steps[i].text) for i in checkpoints(len(steps), every)}, len(steps))
        return ProgressCurve(held.values_S, held.scored_S)


def relations(caption: str) -> dict[tuple[str, str], float]:
    """Return the distances that a caption of `envs.captions` tells, in metres, by (name, what it is seen from)."""
    return {(name, origin): _metres(cm, words) for name, cm, words, origin in _RELATION.findall(caption)}


def thing_in(caption: str) -> str | None:
    """Return what a caption of carrying calls the thing to move, None where it tells of no single one."""
    told = relations(caption)
    things = [name for name, origin in told if origin == "gripper" and ("target", name) in told]
    return things[0] if len(things) == 1 else None


def _metres(cm: str, words: str) -> float:
    return int(cm) / 100 if cm else _WORDS[words]
