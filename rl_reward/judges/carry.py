"""Examples and anchors for a small model that judges captions of carrying something: scenes as positions, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rl_reward._checks import check_number
from rl_reward.backends.base import Backend
from rl_reward.criteria import Criterion
from rl_reward.envs.captions import Axes, carry_caption
from rl_reward.envs.oracle import distance
from rl_reward.errors import ConfigError
from rl_reward.judges.captions import Anchors, CaptionJudge
from rl_reward.judges.rule import ROOM, thing_in
from rl_reward.prompts import Exemplar
from rl_reward.scale import ScoreScale
from rl_reward.verifier import Verifier

Point = tuple[float, float, float]

TASK = "Put the block on the shelf."
"""The task of the examples: another thing and another place than those judged."""
# How a caption begins that says how far the gripper is open.
_GRIPPER = "The gripper is "
_CRITERION = Criterion("Progress", "How far the task has come.")
# The models this is made for put .99 on the digits; less than half means that the pattern was not seen.
_MIN_COVERAGE = 0.5


@dataclass(frozen=True)
class Scene:
    """What a caption of carrying is made from; positions in metres, each number in [-5, 5]."""

    hand: Point
    """The gripper."""
    thing: Point
    """What is carried."""
    place: Point
    """Where it belongs."""
    opening: float | None
    """How far the gripper is open, 0 closed to 1 open; None where the captions leave that out."""

    def __post_init__(self) -> None:
        """Refuse positions that are not three numbers of metres, and an opening outside [0, 1]."""
        for name in ("hand", "thing", "place"):
            point = getattr(self, name)
            if len(point) != 3:
                raise ConfigError(f"{name} of a scene must be 3 numbers in metres, got {point!r:.80}")
            for number in point:
                check_number(f"{name} of a scene, in metres,", number, least=-ROOM, most=ROOM)
        if self.opening is not None:
            check_number("opening of a scene", self.opening, least=0, most=1)

    @property
    def left(self) -> float:
        """How far the thing is from its place, in metres."""
        return distance(self.thing, self.place)

    def caption(self, name: str, *, axes: Axes, numbers: bool) -> str:
        """Return the caption that an environment would give, the thing being called `name`."""
        return carry_caption(
            self.hand, self.thing, self.place, axes=axes, name=name, opening=self.opening, numbers=numbers
        )


_SHELF = (0.0, -0.25, 0.25)
_BLOCK = (-0.1, 0.05, 0.02)
_PLACED = (0.0, -0.25, 0.26)
_DROPPED = (-0.05, -0.10, 0.02)
# The order is part of the prompt: of eight sets and orders tried on scripted scenes (never a robot's), with captions in
# words, this one ranked them best. A small model is swayed by order: measure a new set of examples anew.
_SHOTS = (
    (Scene((0.1, 0.2, 0.4), _BLOCK, _SHELF, 1.0), 0),
    (Scene((0.0, -0.25, 0.55), _PLACED, _SHELF, 1.0), 9),
    (Scene((-0.1, 0.05, 0.03), _BLOCK, _SHELF, 0.4), 4),
    (Scene((-0.25, 0.05, 0.27), _BLOCK, _SHELF, 1.0), 0),
    (Scene((0.0, -0.25, 0.37), _PLACED, _SHELF, 1.0), 9),
    (Scene((0.0, -0.25, 0.50), (0.0, -0.25, 0.49), _SHELF, 0.4), 7),
    (Scene((-0.05, -0.10, 0.47), _DROPPED, _SHELF, 0.05), 1),
    (Scene((-0.1, 0.05, 0.08), _BLOCK, _SHELF, 1.0), 2),
    (Scene((0.0, -0.25, 0.37), (0.0, -0.25, 0.36), _SHELF, 0.4), 8),
    (Scene((-0.1, -0.2, 0.42), _PLACED, _SHELF, 1.0), 9),
    (Scene((0.0, -0.25, 0.50), _DROPPED, _SHELF, 1.0), 1),
    (Scene((-0.05, -0.10, 0.40), (-0.05, -0.10, 0.39), _SHELF, 0.4), 6),
)


def carry_exemplars(*, axes: Axes, numbers: bool) -> tuple[Exemplar, ...]:
    """Return twelve judged captions of `TASK`, levels "0" to "9", worded as an environment with these settings does."""
    return tuple(
        Exemplar(TASK, scene.caption("block", axes=axes, numbers=numbers), str(level)) for scene, level in _SHOTS
    )


def carry_anchors(name: str, starts: Sequence[Scene], goals: Sequence[Scene], *, axes: Axes, numbers: bool) -> Anchors:
    """Return the captions of the ends of a task, from scenes that the task defines and no episode.

    Args:
        name: What the environment calls the thing.
        starts: Scenes before anything is done, e.g. of the init states set aside for this.
        goals: Scenes of the solved task.
        axes: The environment's words for directions.
        numbers: Whether its captions print numbers.

    Raises:
        ConfigError: An end has no scene.
    """
    ends = ([scene.caption(name, axes=axes, numbers=numbers) for scene in scenes] for scenes in (starts, goals))
    return Anchors(*map(tuple, ends))


def check_words(anchors: Anchors, caption: str) -> None:
    """Raise ConfigError unless the anchors speak of the same things as `caption`, which the environment wrote.

    A judge with anchors of something else would stretch its scores by them all the same, and nothing would show.
    """
    thing = thing_in(caption)
    if thing is None:
        raise ConfigError(
            f"the environment's captions tell of no thing to move and its target, got {caption!r:.120}; carry is for "
            "tasks that do: leave it out, and set reads: steps"
        )
    for anchor in (*anchors.start, *anchors.goal):
        if (other := thing_in(anchor)) != thing:
            raise ConfigError(f"thing of carry is {other!r}, the environment's captions call it {thing!r}; write that")
        if (_GRIPPER in anchor) != (_GRIPPER in caption):
            does, fix = ("do not", "null") if _GRIPPER in anchor else ("do", "a number in [0, 1]")
            raise ConfigError(
                f"the environment's captions {does} say how far the gripper is open, got {caption!r:.120}; write "
                f"{fix} as the opening of every scene"
            )


def carry_judge(
    backend: Backend,
    *,
    axes: Axes,
    numbers: bool,
    anchors: Anchors | None = None,
    exemplars: Sequence[Exemplar] | None = None,
    repeats: int = 1,
) -> CaptionJudge:
    """Return a judge of carry captions for a small base model: short examples, digits, no instructions.

    Args:
        backend: E.g. `TransformersLocal(models.folder("gemma-3-270m"))`.
        axes: The environment's words for directions.
        numbers: Whether its captions print numbers.
        anchors: See `CaptionJudge` and `carry_anchors`.
        exemplars: Judged captions, worded as the environment words them; `carry_exemplars` by default.
        repeats: K, times a caption is asked, >= 1: the examples in their order, then in orders drawn anew. The order
            sways a small model; the mean over orders is less so.
    """
    verifier = Verifier(
        backend,
        criteria=[_CRITERION],
        scale=ScoreScale.digits(),
        exemplars=carry_exemplars(axes=axes, numbers=numbers) if exemplars is None else exemplars,
        repeats=repeats,
        style="completion",
        min_coverage=_MIN_COVERAGE,
    )
    return CaptionJudge(verifier, anchors=anchors)
