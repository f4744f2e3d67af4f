"""Scripted experts: who shows a frozen policy what to imitate, and that a task can be solved."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward.errors import ConfigError, MissingExtraError

Array = NDArray[np.float64]

_GAIN = 12.0
_ABOVE_THING = 0.12
_AT_THING = 0.03
_ABOVE_PLACE = 0.28
_CLOSE = 0.015
_ROUGHLY = 0.03
_GRASP_STEPS = 6
_OPEN, _SHUT = -1.0, 1.0
_METAWORLD_OBS = 39


class Expert(Protocol):
    """Plays one task from what is known of a state: privileged truth and the observation. It may need only one."""

    def begin(self) -> None:
        """Forget the last episode."""
        ...

    def act(self, truth: Mapping[str, Any], obs: Any) -> Array:
        """Return the action, float [A] in [-1, 1], for the state behind `truth` (`env.truth()`) and `obs`."""
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

    def act(self, truth: Mapping[str, Any], obs: Any = None) -> Array:
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


class MetaWorldExpert:
    """One of MetaWorld's own scripted policies: action float [4] in [-1, 1]. They keep no memory."""

    def __init__(self, policy: Any) -> None:
        """Play with `policy`, one of `metaworld.policies`; `metaworld_expert` finds it."""
        self._policy = policy

    def begin(self) -> None:
        """Forget the last episode: nothing is remembered."""

    def act(self, truth: Mapping[str, Any], obs: ArrayLike) -> Array:
        """Return the action for the raw observation, float [39], goal included; `truth` is unread."""
        seen = np.asarray(obs, dtype=np.float64)
        if seen.shape != (_METAWORLD_OBS,):
            raise ConfigError(f"MetaWorld's experts read its own observation [{_METAWORLD_OBS}], got {seen.shape}")
        with warnings.catch_warnings():
            # Their gains are high on purpose; each step would warn that the action is clipped, as it is here.
            warnings.simplefilter("ignore")
            return np.clip(self._policy.get_action(seen), -1.0, 1.0).astype(np.float64)


def metaworld_expert(task: str) -> MetaWorldExpert:
    """Return the scripted expert of a MetaWorld task, named as in `MetaWorldTask.names()`, e.g. "drawer-close-v3".

    Raises:
        ConfigError: No such task.
        MissingExtraError: MetaWorld is not installed.
    """
    try:
        policies: Mapping[str, Any] = import_module("metaworld.policies").ENV_POLICY_MAP
    except ImportError as error:
        raise MissingExtraError("metaworld", "metaworld") from error
    if task not in policies:
        nearest = difflib.get_close_matches(task, policies, n=1, cutoff=0.0)
        raise ConfigError(f"no MetaWorld task is called {task!r}; did you mean {nearest[0]!r}?")
    return MetaWorldExpert(policies[task]())


def _up(metres: float) -> Array:
    return np.array([0.0, 0.0, metres])


def _action(move: ArrayLike, fingers: float) -> Array:
    return np.concatenate([np.clip(move, -1.0, 1.0), np.zeros(3), [fingers]])
