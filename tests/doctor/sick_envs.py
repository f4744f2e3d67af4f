"""A small healthy environment, and what can be wrong with it."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np

from rl_reward.types import Step


class Healthy(gym.Env[Any, Any]):
    """Solved at step `solved_at` of episodes with even numbers; says all that is needed, and declares its limit."""

    task = "Do the thing."
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    observation_space = gym.spaces.Box(-100, 100, (1,), np.float32)
    max_episode_steps: int | None = 8
    ends_at = 8
    solved_at = 4
    ends_when_solved = True

    def __init__(self) -> None:
        self.number = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.number, self.time = self.number + 1, 0
        return self._obs(), self._info(0)

    def step(self, action: Any) -> Any:
        self.time += 1
        solved = self.number % 2 == 0 and self.time >= self.solved_at
        terminated, truncated = solved and self.ends_when_solved, self.time == self.ends_at
        return self._obs(), float(solved), terminated, truncated, self._info(solved)

    def _obs(self) -> Any:
        return np.array([self.time], np.float32)

    def _info(self, solved: Any) -> dict[str, Any]:
        return {"is_success": bool(solved), "rl_reward": Step(f"time {self.time}", self._image())}

    def _image(self) -> Any:
        return None


class NoLimit(Healthy):
    max_episode_steps = None


class Endless(NoLimit):
    ends_at = 0
    solved_at = 10**9


class Overruns(Healthy):
    ends_at = 12
    solved_at = 10**9


class LateIsTerminal(Healthy):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, False, info


class LateIsTerminalUndeclared(LateIsTerminal):
    max_episode_steps = None
    solved_at = 10**9


class OldTimeLimit(LateIsTerminalUndeclared):
    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return *rest, {**info, "TimeLimit.truncated": self.time == self.ends_at}


class NoSuccessKey(Healthy):
    def _info(self, solved: Any) -> Any:
        return {"rl_reward": Step("mute")}


class SuccessInWords(Healthy):
    def _info(self, solved: Any) -> Any:
        return {**super()._info(solved), "is_success": "yes"}


class NotLatched(Healthy):
    ends_when_solved = False

    def _info(self, solved: Any) -> Any:
        return {**super()._info(solved), "is_success": self.time == self.solved_at}


class GoesOn(Healthy):
    ends_when_solved = False


class NoSteps(Healthy):
    def _info(self, solved: Any) -> Any:
        return {"is_success": bool(solved)}


class NoStepAtDone(Healthy):
    def _info(self, solved: Any) -> Any:
        info = super()._info(solved)
        return info if self.time == 0 else {"is_success": bool(solved)}


class NoTask(Healthy):
    task = ""


class PaysNaN(Healthy):
    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, float("nan"), *rest


class PaysDistance(Healthy):
    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, -0.25, *rest


class Filmed(Healthy):
    def _image(self) -> Any:
        image = np.zeros((16, 24, 3), np.uint8)
        image[self.time] = 255
        return image


class Dark(Healthy):
    def _image(self) -> Any:
        return np.zeros((16, 24, 3), np.uint8)


class Frozen(Healthy):
    def _image(self) -> Any:
        return np.arange(16 * 24 * 3, dtype=np.uint8).reshape(16, 24, 3)


class Floats(Healthy):
    render_mode = "rgb_array"

    def render(self) -> Any:
        return np.zeros((16, 24, 3))


class Blind(Healthy):
    render_mode = "rgb_array"

    def render(self) -> Any:
        raise RuntimeError("no display")


Upside = type("Upside", (Filmed,), {"__module__": "robosuite.environments.base"})


class OldReset(Healthy):
    def reset(self, **kwargs: Any) -> Any:
        return super().reset(**kwargs)[0]


class OldStep(Healthy):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


class Breaks(Healthy):
    def step(self, action: Any) -> Any:
        if self.time == 2:
            raise RuntimeError("the gripper\nfell off")
        return super().step(action)


class HangsInReset(Healthy):
    def reset(self, **kwargs: Any) -> Any:
        time.sleep(600)


class HangsInStep(Healthy):
    def step(self, action: Any) -> Any:
        if self.time == 3:
            time.sleep(600)
        return super().step(action)


class Slow(Healthy):
    def step(self, action: Any) -> Any:
        time.sleep(0.3)
        return super().step(action)
