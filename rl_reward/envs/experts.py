"""Scripted experts: who shows a frozen policy what to imitate, and that a task can be solved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_GAIN = 12.0
_ABOVE_THING = 0.12
_AT_THING = 0.03
_ABOVE_PLACE = 0.28
_CLOSE = 0.015
_ROUGHLY = 0.03
_GRASP_STEPS = 6
_OPEN, _SHUT = -1.0, 1.0


class Expert(Protocol):
    """Plays one task from privileged truth."""

    def begin(self) -> None:
        """Forget the last episode."""
        ...

    def act(self, truth: Mapping[str, Any]) -> Array:
        """Return the action for the state behind `truth` (the `data` of its `Step`)."""
        ...


class PickAndPlace:
    """Puts one object into an open container with a robosuite arm: action float [7], rotation never used.

    Above the object, down, close the fingers for `_GRASP_STEPS` steps, lift, over the container, open. Each way is a
    proportional controller, clip(12 * error in metres, -1, 1). Solves LIBERO's ketchup task in about 105 steps.
    """

    def __init__(self) -> None:
        """Make an expert at the start of an episode."""
        self.begin()

    def begin(self) -> None:
        """Forget the last episode."""
        self._phase = 0
        self._grasping = 0
        self._lifted_from: Array = np.zeros(3)

    @property
    def grasped(self) -> bool:
        """Whether the fingers have begun to close."""
        return self._phase >= 2

    def act(self, truth: Mapping[str, Any]) -> Array:
        """Return the action, float [7] in [-1, 1], for a state with "hand", "thing_at" and "place_at"."""
        hand, thing, place = (np.asarray(truth[key], dtype=np.float64) for key in ("hand", "thing_at", "place_at"))
        over = place + _up(_ABOVE_PLACE)
        if self._phase == 0:
            return self._go(hand, thing + _up(_ABOVE_THING), _OPEN, _CLOSE)
        if self._phase == 1:
            return self._go(hand, thing + _up(_AT_THING), _OPEN, _CLOSE)
        if self._phase == 2:
            self._grasping += 1
            self._phase += self._grasping >= _GRASP_STEPS
            self._lifted_from = hand
            return _action(np.zeros(3), _SHUT)
        if self._phase == 3:
            return self._go(hand, [*self._lifted_from[:2], over[2]], _SHUT, _ROUGHLY)
        if self._phase == 4:
            return self._go(hand, over, _SHUT, _CLOSE)
        return _action(np.zeros(3), _OPEN)

    def _go(self, hand: Array, target: ArrayLike, fingers: float, near: float) -> Array:
        """Return the action towards `target`; the next phase begins once it is `near` metres."""
        error = np.subtract(target, hand)
        self._phase += bool(np.abs(error).max() < near)
        return _action(_GAIN * error, fingers)


def _up(metres: float) -> Array:
    return np.array([0.0, 0.0, metres])


def _action(move: ArrayLike, fingers: float) -> Array:
    return np.concatenate([np.clip(move, -1.0, 1.0), np.zeros(3), [fingers]])
