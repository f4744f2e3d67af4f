"""The Fetch arm of gymnasium-robotics behind the TaskEnv contract: reach, push, pick and place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward.envs.base import Success, TaskConfig, TaskEnv, gym
from rl_reward.envs.captions import Axes, carry_caption, reach_caption
from rl_reward.envs.headless import choose_gl
from rl_reward.envs.oracle import closeness, distance, staged
from rl_reward.errors import MissingExtraError

try:
    import gymnasium_robotics  # pyright: ignore[reportMissingTypeStubs]
except ImportError as error:
    raise MissingExtraError("gymnasium-robotics", "fetch") from error

TASKS = {
    "FetchReach-v4": "Move the gripper to the red target and keep it there.",
    "FetchPush-v4": "Push the block across the table to the red target.",
    "FetchPickAndPlace-v4": "Bring the block to the red target, which may be in the air.",
}
"""The instruction of each task."""

# The robot looks along +x, so its left is +y.
_AXES = Axes(x=("farther ahead", "nearer the robot"), y=("to the left", "to the right"), z=("higher", "lower"))
_FINGER_OPEN = 0.05
_CAMERA = {"distance": 1.4, "azimuth": 132.0, "elevation": -25.0, "lookat": np.array([1.3, 0.75, 0.5])}


@dataclass(frozen=True)
class FetchConfig(TaskConfig):
    """Options of the Fetch tasks. Success is read at the last step: passing through the target does not count."""

    success: Success = "final"
    """As in `TaskConfig`; random actions pass through the reach target in one episode of six."""
    max_steps: int = 50
    """As in `TaskConfig`."""
    flat: bool = False
    """Observations as one vector float32 (observation, then desired goal) instead of the goal dictionary."""


class FetchTask(TaskEnv):
    """One Fetch task. Solved means less than 5 cm from the target; the simulator itself never terminates.

    Progress of reach is 1 - d / d_0 for the distance d of gripper and target; a state just solved has 1 - 5 cm / d_0.
    With a block it is `staged`: the share of the block's way to the target and, before that, of the gripper's way to
    the block.
    """

    Config: ClassVar[type[TaskConfig]] = FetchConfig
    axes = _AXES
    config: FetchConfig

    def __init__(self, task: str, config: FetchConfig | None = None) -> None:
        """Build the simulator of `task`, one of `names()`."""
        config = config or FetchConfig()
        gym.register_envs(gymnasium_robotics)
        size = config.frame_size
        # The bare simulator: the time limit and the checks around it are this class's own.
        env = gym.make(task, render_mode="rgb_array", width=size, height=size, default_camera_config=_CAMERA).unwrapped
        super().__init__(env, TASKS[task], config)
        self._robot: Any = env
        self._initial: tuple[float, float] = (0.0, 0.0)
        if config.flat:
            self.observation_space = _flat_space(env.observation_space)
        else:
            # Hosts take whatever has this name for a goal environment, which a flat one is not.
            self.compute_reward = self._goal_reward

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the tasks of this family."""
        return tuple(TASKS)

    def frame(self) -> NDArray[np.uint8]:
        """Render the current state, RGB uint8 [frame_size, frame_size, 3]."""
        choose_gl()
        solver: NDArray[np.float64] = self._robot.data.qacc_warmstart
        before = solver.copy()
        image: NDArray[np.uint8] = self._robot.render()
        solver[:] = before  # rendering runs the solver, and an episode must not depend on who watches it
        return image

    def _goal_reward(self, achieved_goal: ArrayLike, desired_goal: ArrayLike, info: Any) -> NDArray[np.float64]:
        """Return the sparse reward of goals [3] or [N, 3], for hindsight relabelling (stable-baselines3's HER)."""
        gap = np.linalg.norm(np.subtract(achieved_goal, desired_goal), axis=-1)
        return (gap < self._robot.distance_threshold) - (1.0 if self.config.reward == "minus_one_zero" else 0.0)

    def _observe(self, obs: Mapping[str, NDArray[np.float64]]) -> Any:
        if not self.config.flat:
            return obs
        return np.concatenate([obs["observation"], obs["desired_goal"]], dtype=np.float32)

    def _begin(self) -> None:
        self._initial = self._distances()

    def _solved(self) -> bool:
        return distance(self._obs["achieved_goal"], self._obs["desired_goal"]) < self._robot.distance_threshold

    def _distances(self) -> tuple[float, float]:
        """Return the distances in metres from gripper to block (0 without one) and from block or gripper to target."""
        moved = self._obs["achieved_goal"]
        return distance(self._hand, moved), distance(moved, self._obs["desired_goal"])

    @property
    def _hand(self) -> NDArray[np.float64]:
        return self._obs["observation"][:3]

    def _truth(self) -> dict[str, Any]:
        to_block, to_goal = self._distances()
        placed = closeness(to_goal, self._initial[1])
        goal = self._obs["desired_goal"]
        truth: dict[str, Any] = {"distance": to_goal, "hand": _plain(self._hand), "goal": _plain(goal)}
        if not self._robot.has_object:
            return {**truth, "progress": placed}
        approach = closeness(to_block, self._initial[0])
        return {**truth, "progress": staged(approach, placed), "object": _plain(self._obs["achieved_goal"])}

    def _caption(self, truth: Mapping[str, Any]) -> str:
        hand, goal, numbers = truth["hand"], truth["goal"], self.config.numbers
        if "object" not in truth:
            return reach_caption(hand, goal, axes=_AXES, numbers=numbers)
        fingers = None if self._robot.block_gripper else float(self._obs["observation"][9:11].mean()) / _FINGER_OPEN
        return carry_caption(hand, truth["object"], goal, axes=_AXES, name="block", opening=fingers, numbers=numbers)


def _flat_space(space: Any) -> gym.spaces.Box:
    """Return the space of the flat observation."""
    size = space["observation"].shape[0] + space["desired_goal"].shape[0]
    return gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)


def _plain(position: NDArray[np.float64]) -> tuple[float, ...]:
    """Return a position as plain floats, which pickle the same everywhere."""
    return tuple(position.tolist())
