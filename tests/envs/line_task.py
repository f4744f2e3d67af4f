"""A task small enough to follow by hand: walk along a line from 1, 2 or 3 to 0."""

import gymnasium as gym
import numpy as np

from rl_reward.envs.base import TaskConfig, TaskEnv


class Line(gym.Env):
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    observation_space = gym.spaces.Box(-100, 100, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = float(self.np_random.integers(0, 4))
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x -= float(np.round(action[0]))
        return np.array([self.x], np.float32), 123.0, False, False, {}


class LineTask(TaskEnv):
    def __init__(self, **options):
        super().__init__(Line(), "Walk to 0.", TaskConfig(**options))
        self.frames_rendered = 0

    @classmethod
    def names(cls):
        return ("line",)

    def frame(self):
        self.frames_rendered += 1
        return np.zeros((self.config.frame_size, self.config.frame_size, 3), np.uint8)

    def _begin(self):
        self.start = abs(self._obs[0])

    def _solved(self):
        return bool(self._obs[0] == 0)

    def _truth(self):
        return {"progress": float(max(0.0, 1 - abs(self._obs[0]) / self.start))}

    def _caption(self, truth):
        return "A walker on a line."


def walk(env, actions, seed=0):
    """Reset and take these actions until the end; return the reset info and what `step` gave, observations left out."""
    _, first = env.reset(seed=seed)
    steps = []
    for action in actions:
        _, *rest = env.step(np.array([action]))
        steps.append(rest)
        if rest[1] or rest[2]:
            break
    return first, steps
