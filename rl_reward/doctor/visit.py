"""Builds an environment, plays random episodes of it and writes down what happened; it never waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from rl_reward.doctor.finding import Finding
from rl_reward.errors import RlRewardError
from rl_reward.types import STEP_KEY


@dataclass(frozen=True)
class Bounds:
    """How long a visit may last."""

    episodes: int
    """Random episodes."""
    max_steps: int
    """Steps after which an episode counts as endless, where no longer limit is declared."""
    seconds: float
    """Wall seconds for everything."""
    seed: int
    """Of the resets and the actions."""


@dataclass(eq=False)
class Episode:
    """One random episode as it was seen, whole or in part."""

    start: Mapping[str, Any]
    """The info of the reset."""
    rewards: list[float] = field(default_factory=list[float])
    """What every step paid."""
    success: list[Any] = field(default_factory=list[Any])
    """`info["is_success"]` of every step; None where it is absent."""
    terminated: bool = False
    """As the last step said."""
    truncated: bool = False
    """As the last step said."""
    end: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The info of the last step."""

    @property
    def length(self) -> int:
        """Steps played."""
        return len(self.rewards)

    @property
    def over(self) -> bool:
        """Whether it ended."""
        return self.terminated or self.truncated

    @property
    def solved(self) -> bool:
        """Whether some step said success."""
        return any(value is not None and bool(value) for value in self.success)


@dataclass(eq=False)
class Visit:
    """All that was seen."""

    bounds: Bounds
    """How long it could last."""
    layers: list[Any] = field(default_factory=list[Any])
    """The environment, its outermost wrapper first, the simulator last."""
    episodes: list[Episode] = field(default_factory=list[Episode])
    """Episodes in the order they were played; the last one may be cut."""
    trouble: Finding | None = None
    """What broke the visit off."""
    frames: list[Any] = field(default_factory=list[Any])
    """What the first episode looked like at its reset and at its end, where that can be seen."""
    refusal: RlRewardError | None = None
    """Why this package would not build it."""
    blind: str = ""
    """Why nothing could be rendered, where that failed."""

    @property
    def limit(self) -> int | None:
        """The declared time limit in steps, the shortest where there are several; None where none is declared."""
        limits = [found for layer in self.layers if (found := limit_of(layer)) is not None]
        return min(limits) if limits else None

    @property
    def finished(self) -> list[Episode]:
        """Episodes that ended."""
        return [episode for episode in self.episodes if episode.over]


def limit_of(layer: Any) -> int | None:
    """Return the time limit that one wrapper or simulator declares, in its own steps."""
    for name in ("max_episode_steps", "_max_episode_steps"):
        # Only its own: a wrapper may pass the question on.
        if name in getattr(layer, "__dict__", {}) or hasattr(cast(Any, type(layer)), name):
            value: Any = getattr(layer, name)
            if isinstance(value, int):
                return value
    return None


def visit(make_env: Callable[[], Any], bounds: Bounds) -> Visit:
    """Return what was seen of the environment; trouble of any kind is written down, not raised.

    Raises:
        RlRewardError: `make_env` raised it: what it was told is wrong.
    """
    seen = Visit(bounds)
    deadline = time.monotonic() + bounds.seconds
    # A thread, because only a thread can be left behind where an env hangs in reset or step.
    worker = threading.Thread(target=_guarded, args=(make_env, seen, deadline), daemon=True, name="rl_reward_doctor")
    worker.start()
    worker.join(bounds.seconds + _grace(bounds))
    if worker.is_alive():
        where = f"step {seen.episodes[-1].length + 1}" if seen.episodes else "reset or while it was built"
        text = f"stuck at {where} for {bounds.seconds:g} s; find what it waits for, or allow more seconds"
        # A copy: the thread may still write into the other one.
        finding = Finding("error", "playing", text)
        return Visit(bounds, list(seen.layers), list(seen.episodes), finding, list(seen.frames))
    if seen.refusal is not None:
        raise seen.refusal
    return seen


def _grace(bounds: Bounds) -> float:
    """Return how much longer than the deadline one step may take before the env counts as stuck."""
    return max(1.0, bounds.seconds / 10)


def _guarded(make_env: Callable[[], Any], seen: Visit, deadline: float) -> None:
    try:
        try:
            env = make_env()
        except RlRewardError as error:
            seen.refusal = error
            return
        try:
            seen.layers = layers_of(env)
            _play(env, seen, deadline)
        finally:
            env.close()
    except Exception as error:
        at = f"in step {seen.episodes[-1].length + 1}" if seen.episodes else "before the first step"
        text = f"{type(error).__name__} {at}: {' '.join(str(error).split())[:200]}; mend the environment first"
        seen.trouble = Finding("error", "playing", text)


def _play(env: Any, seen: Visit, deadline: float) -> None:
    face = _VecFace(env) if hasattr(env, "step_wait") else _Face(env)
    face.seed(seen.bounds.seed)
    for number in range(seen.bounds.episodes):
        start = face.reset(seen.bounds.seed + number)
        _film(env, seen, start)
        episode = Episode(start)
        seen.episodes.append(episode)
        for _ in range(max(seen.bounds.max_steps, (seen.limit or 0) + 1)):
            _note(episode, face.step())
            if episode.over:
                _film(env, seen, episode.end)
                break
            if time.monotonic() > deadline:
                text = f"stopped after {seen.bounds.seconds:g} s in episode {number + 1}; allow more seconds to see all"
                seen.trouble = Finding("warn", "playing", text)
                return
        else:
            return


def _note(episode: Episode, step: tuple[float, bool, bool, Mapping[str, Any]]) -> None:
    reward, episode.terminated, episode.truncated, episode.end = step
    episode.rewards.append(reward)
    episode.success.append(episode.end.get("is_success"))


class _Face:
    """A gymnasium env."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def seed(self, seed: int) -> None:
        self.env.action_space.seed(seed)

    def reset(self, seed: int) -> Mapping[str, Any]:
        answer = self.env.reset(seed=seed)
        if not (isinstance(answer, tuple) and len(cast("tuple[Any, ...]", answer)) == 2):
            raise TypeError("reset must return (observation, info)")
        return cast("tuple[Any, Mapping[str, Any]]", answer)[1]

    def step(self) -> tuple[float, bool, bool, Mapping[str, Any]]:
        answer = self.env.step(self.env.action_space.sample())
        if not (isinstance(answer, tuple) and len(cast("tuple[Any, ...]", answer)) == 5):
            raise TypeError("step must return (observation, reward, terminated, truncated, info)")
        _, reward, terminated, truncated, info = cast("tuple[Any, ...]", answer)
        return float(reward), bool(terminated), bool(truncated), info


class _VecFace:
    """A VecEnv of stable-baselines3, of which the first env is watched."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def seed(self, seed: int) -> None:
        self.env.action_space.seed(seed)

    def reset(self, seed: int) -> Mapping[str, Any]:
        self.env.seed(seed)
        self.env.reset()
        return self.env.unwrapped.reset_infos[0]

    def step(self) -> tuple[float, bool, bool, Mapping[str, Any]]:
        actions = np.stack([self.env.action_space.sample() for _ in range(self.env.num_envs)])
        _, rewards, dones, infos = self.env.step(actions)
        truncated = bool(infos[0].get("TimeLimit.truncated", False))
        return float(rewards[0]), bool(dones[0]) and not truncated, truncated, infos[0]


def layers_of(env: Any) -> list[Any]:
    """Return `env` and what it wraps, outermost first; of a VecEnv in this process, the first env goes on."""
    return list(_walk(env))


def _walk(env: Any) -> Iterator[Any]:
    layer: Any = env
    while layer is not None:
        yield layer
        own: dict[str, Any] = getattr(layer, "__dict__", {})
        layer = own.get("venv", own.get("env", (own.get("envs") or [None])[0]))


def _film(env: Any, seen: Visit, info: Mapping[str, Any]) -> None:
    """Keep what the judge would see, or else what the env renders, of both ends of the first episode."""
    if len(seen.frames) == 2 or len(seen.episodes) > 1 or seen.blind:
        return
    image = getattr(info.get(STEP_KEY), "image", None)
    # A VecEnv has reset its envs by the time an episode is known to be over.
    if image is None and getattr(env, "render_mode", None) == "rgb_array" and not hasattr(env, "step_wait"):
        try:
            image = env.render()
        except Exception as error:  # without a display the rest can be checked all the same
            seen.blind = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if image is not None:
        seen.frames.append(image)
