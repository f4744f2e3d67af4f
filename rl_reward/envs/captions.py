"""Scenes in words: what a camera would show, from positions alone, for judges that read text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward.envs.oracle import distance

NEARNESS = ((0.02, "at"), (0.05, "very close to"), (0.10, "close to"), (0.20, "some way from"), (np.inf, "far from"))
"""Distances in words, each with its upper limit in metres; the last one catches the rest."""
_VISIBLE = 0.02


@dataclass(frozen=True)
class Axes:
    """How to name the directions of the world, seen by the robot."""

    x: tuple[str, str]
    """Words for +x and -x, e.g. ("to the right", "to the left")."""
    y: tuple[str, str]
    """Words for +y and -y."""
    z: tuple[str, str]
    """Words for +z and -z."""


def reach_caption(hand: ArrayLike, goal: ArrayLike, *, axes: Axes, numbers: bool = True) -> str:
    """Describe a gripper and its target, positions float [3] in metres; without `numbers` no digit is printed."""
    return relation("target", goal, "gripper", hand, axes=axes, numbers=numbers)


def carry_caption(
    hand: ArrayLike,
    thing: ArrayLike,
    goal: ArrayLike,
    *,
    axes: Axes,
    name: str = "object",
    opening: float | None = None,
    numbers: bool = True,
) -> str:
    """Describe a gripper, a thing to move (called `name`) and the target, positions float [3] in metres.

    `opening` says how far the gripper is open, 0 closed to 1 open; None leaves it out (a gripper that cannot move).
    """
    fingers = [] if opening is None else [f"The gripper is {_opening_words(opening)}."]
    to_thing = relation(name, thing, "gripper", hand, axes=axes, numbers=numbers)
    to_goal = relation("target", goal, name, thing, axes=axes, numbers=numbers)
    return " ".join([*fingers, to_thing, to_goal])


def work_caption(
    hand: ArrayLike, thing: ArrayLike, *, axes: Axes, name: str, opening: float, numbers: bool = True
) -> str:
    """Describe a gripper and a thing that is worked where it is; arguments as for `carry_caption`."""
    to_thing = relation(name, thing, "gripper", hand, axes=axes, numbers=numbers)
    return f"The gripper is {_opening_words(opening)}. {to_thing}"


def relation(
    name: str, position: ArrayLike, origin_name: str, origin: ArrayLike, *, axes: Axes, numbers: bool = True
) -> str:
    """Say where `position` is from `origin`, both float [3] in metres, the longest direction first.

    "The target is 11 cm from the gripper: 8 cm to the left and 7 cm higher." Without `numbers`: "The target is some way
    from the gripper: to the left and higher."
    """
    gap = distance(position, origin)
    if numbers:
        where = f"{_cm(gap)} cm from" if _cm(gap) else "at"
    else:
        where = next(words for limit, words in NEARNESS if gap < limit)
    directions = [] if where == "at" else _directions(np.subtract(position, origin), axes, numbers)
    return f"The {name} is {where} the {origin_name}" + (f": {_listed(directions)}." if directions else ".")


def _directions(offset: NDArray[np.float64], axes: Axes, numbers: bool) -> list[str]:
    """Return one phrase per axis along which the offset can be seen, the longest first."""
    ways = [
        (abs(float(along)), words[0] if along > 0 else words[1])
        for along, words in zip(offset, (axes.x, axes.y, axes.z), strict=True)
    ]
    ways.sort(key=lambda way: -way[0])
    if numbers:
        return [f"{_cm(length)} cm {words}" for length, words in ways if _cm(length)]
    return [words for length, words in ways if length >= _VISIBLE]


def _listed(phrases: list[str]) -> str:
    """Return "a", "a and b" or "a, b and c"."""
    return " and ".join([", ".join(phrases[:-1]), phrases[-1]] if len(phrases) > 1 else phrases)


def _opening_words(opening: float) -> str:
    """Return how far open a gripper looks."""
    return "closed" if opening < 0.3 else "half open" if opening < 0.8 else "open"


def _cm(metres: float) -> int:
    """Return whole centimetres, rounded."""
    return round(100.0 * metres)
