"""Scripted episodes, a random walk and a judge that reads what the steps hold, for the tests of the SB3 adapter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3 import SAC

from rl_reward.adapters.sb3 import RelabelCallback, RelabelReplayBuffer
from rl_reward.scores import ProgressCurve
from rl_reward.shaping import Shaping
from rl_reward.types import Step, Usage

NAN = float("nan")
ABSENT = "no Step here"
HALF = Shaping("potential", weight=2.0, gamma=0.5)

# Two episodes: (env reward, progress after it), the progress at reset first. NaN is asked and unreadable.
SOLVED = (0.2, [(0.0, 0.5), (1.0, 1.0)], "terminated")
TIMED_OUT = (0.1, [(0.0, ABSENT), (0.0, NAN), (0.0, 0.6)], "truncated")

# By hand, gamma .5 and weight 2. SOLVED: 2(.5*.5 - .2) and 1 + 2(0 - .5), the potential of a terminal state being 0.
# TIMED_OUT: .1 is held at t=1, so 2(.5*.1 - .1); nothing at the unread state; the gap of 2 closes: 2(.25*.6 - .1).
PAID = [0.1, 0.0, -0.1, 0.0, 0.1]
PAID_REVERSED = PAID[2:] + PAID[:2]


class Scripted(gym.Env[Any, Any]):
    """Plays the given episodes over and over; the observation is (episode number, time)."""

    task = "follow the script"
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, *episodes: Any, dict_obs: bool = False) -> None:
        box = gym.spaces.Box(-100, 100, (2,), np.float32)
        self.observation_space = gym.spaces.Dict(state=box, copy=box) if dict_obs else box
        self.episodes, self.number, self.dict_obs = episodes, -1, dict_obs

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.number += 1
        self.time = 0
        self.start, self.transitions, self.end = self.episodes[self.number % len(self.episodes)]
        return self._obs(), self._info(self.start)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, progress = self.transitions[self.time]
        self.time += 1
        over = self.time == len(self.transitions)
        return (
            self._obs(),
            reward,
            over and self.end == "terminated",
            over and self.end == "truncated",
            self._info(progress),
        )

    def _obs(self) -> Any:
        state = np.array([self.number, self.time], dtype=np.float32)
        return {"state": state, "copy": state} if self.dict_obs else state

    def _info(self, progress: Any) -> dict[str, Any]:
        return {} if progress == ABSENT else {"rl_reward": Step(f"at {progress}", data=progress)}


class Reader:
    """Reads Step.data; NaN is unreadable. Refuses to be pickled, as a client would."""

    name = "reader"

    def __init__(self) -> None:
        self.asked: list[list[float]] = []
        self.tasks: list[str] = []

    def track_many(self, episodes: Sequence[tuple[str, Sequence[Step]]], *, every: int = 1) -> list[ProgressCurve]:
        self.tasks += [task for task, _ in episodes]
        self.asked += [[step.data for step in steps] for _, steps in episodes]
        values = [np.array([step.data for step in steps]) for _, steps in episodes]
        return [ProgressCurve(v, ~np.isnan(v), usage=Usage(calls=len(v))) for v in values]

    def __reduce__(self) -> Any:
        raise TypeError("a judge must not be pickled")


class Wander(gym.Env[Any, Any]):
    """A random walk with seeded lengths, some terminal, some cut at 12 steps; a Step every third step."""

    task = "wander"
    max_episode_steps = 12
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, dict_obs: bool = False) -> None:
        box = gym.spaces.Box(-10, 10, (2,), np.float32)
        self.observation_space = gym.spaces.Dict(state=box) if dict_obs else box
        self.dict_obs = dict_obs

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.state = 0, self.np_random.normal(size=2).astype(np.float32)
        return self._obs(), self._info(True)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.state = np.clip(self.state + self.np_random.normal(size=2).astype(np.float32) + action[0], -10, 10)
        solved, late = bool(self.state[0] > 2), self.time == 12
        return self._obs(), float(solved), solved, late, self._info(solved or late or self.time % 3 == 0)

    def _obs(self) -> Any:
        return {"state": self.state} if self.dict_obs else self.state

    def _info(self, emit: bool) -> dict[str, Any]:
        return {"rl_reward": Step("walking", data={"progress": self.time / 12})} if emit else {}


def make_model(env: Any, algorithm: Any = SAC, **kwargs: Any) -> Any:
    settings: dict[str, Any] = {"shaping": HALF, **kwargs.pop("buffer", {})}
    kwargs = {"replay_buffer_class": RelabelReplayBuffer, "replay_buffer_kwargs": settings, "gamma": 0.5, **kwargs}
    kwargs = {"learning_starts": 10_000, "buffer_size": 1000, "seed": 0, "device": "cpu", **kwargs}
    inner = env.observation_space
    policy = "MultiInputPolicy" if isinstance(inner, gym.spaces.Dict) else "MlpPolicy"
    return algorithm(policy, env, policy_kwargs={"net_arch": [8]}, batch_size=8, **kwargs)


def played(steps: int, *episodes: Any, judge: Any = None, **kwargs: Any) -> Any:
    """Return a model that has played `steps` steps of `episodes` in one env."""
    model = make_model(Scripted(*episodes), **kwargs)
    return model.learn(steps, callback=RelabelCallback(judge or Reader()))


def in_ring(buffer: Any, name: str = "rewards", env: int = 0) -> list[float]:
    return getattr(buffer, name)[: buffer.size(), env].tolist()
