"""The TaskEnv contract: one face for every simulator, so that rewards, judges and curves never ask which one it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rl_reward._checks import check_int
from rl_reward.envs.captions import Axes
from rl_reward.errors import ConfigError, MissingExtraError, RlRewardError
from rl_reward.types import STEP_KEY, Step

try:
    import gymnasium as gym
except ImportError as error:
    raise MissingExtraError("gymnasium", "sb3") from error

Success = Literal["latched", "final"]
Reward = Literal["zero_one", "minus_one_zero"]

_MAX_REDRAWS = 100


@dataclass(frozen=True)
class TaskConfig:
    """What every task environment lets its user choose; families set the defaults to their own usage."""

    reward: Reward = "zero_one"
    """The sparse reward of a step: 1 where the task is solved and 0 elsewhere, or 0 there and -1 elsewhere."""
    success: Success = "latched"
    """What `info["is_success"]` says: solved at some step so far (latched), or solved at this step (final)."""
    max_steps: int = 500
    """Steps until the episode is truncated, >= 1."""
    terminate_on_success: bool = False
    """Whether the first solved step ends the episode (`terminated`)."""
    stride: int = 1
    """A `Step` for the judge is emitted at reset, at every `stride`-th step and at the last one, >= 1."""
    frames: bool = False
    """Whether those steps carry an image; no other frame is ever rendered."""
    frame_size: int = 224
    """Height and width of a frame in pixels, >= 16."""
    numbers: bool = True
    """Whether captions print centimetres; without them distances are in words ("close to")."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        for name, allowed in (("reward", get_args(Reward)), ("success", get_args(Success))):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        for name, least in (("max_steps", 1), ("stride", 1), ("frame_size", 16)):
            check_int(name, getattr(self, name), least=least)
        for name in ("terminate_on_success", "frames", "numbers"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be true or false, got {getattr(self, name)!r}")


class TaskEnv(gym.Env[Any, Any], ABC):
    """A simulator behind the contract; a new one implements the abstract methods below.

    - `task` is the instruction in words; `frame()` renders the scene as it is now.
    - `info["is_success"]` is the headline metric, one of `info["is_success_latched"]` and `info["is_success_final"]`,
      which are always there (bool).
    - The reward is sparse (see `TaskConfig.reward`); `terminated` means solved or failed for good, `truncated` the time
      limit; both may hold at one step.
    - `info["rl_reward"]` is a `Step` at reset, at every `stride`-th step and at the last one; elsewhere it is absent.
      Its `data` holds privileged truth: "progress" in [0, 1], a function of the current and the initial state alone,
      "solved" (bool), and what the family adds, as plain Python values.
    - A start that is solved already is drawn again; `reset(seed=...)` fixes the whole initial state, redraws included.
    """

    Config: ClassVar[type[TaskConfig]] = TaskConfig
    """The configuration class of the family."""
    axes: ClassVar[Axes]
    """How its captions name directions."""

    def __init__(self, simulator: gym.Env[Any, Any], task: str, config: TaskConfig) -> None:
        """Put `simulator`, without a time limit below `config.max_steps`, behind the contract.

        It is held, not wrapped: what hosts find on an unwrapped simulator (a goal interface, a reward of its own) is
        not what this environment offers.
        """
        self.simulator = simulator
        """The simulator itself."""
        self.task = task
        """The instruction in words."""
        self.config = config
        """The options."""
        self.observation_space = simulator.observation_space
        self.action_space = simulator.action_space
        self.metadata = {**simulator.metadata, "render_modes": ["rgb_array"]}
        self.render_mode = "rgb_array"
        self._obs: Any = None  # what the simulator said last, for the methods a task implements
        self._sim: Mapping[str, Any] = {}
        self._steps = 0
        self._latched = False
        self._over = True
        self._closed = False

    @property
    def max_episode_steps(self) -> int:
        """Steps until the episode is truncated; where hosts look for the time limit."""
        return self.config.max_steps

    @classmethod
    @abstractmethod
    def names(cls) -> tuple[str, ...]:
        """Return the tasks of this family."""

    @abstractmethod
    def frame(self) -> NDArray[np.uint8]:
        """Render the current state, RGB uint8 [frame_size, frame_size, 3]."""

    @abstractmethod
    def _begin(self) -> None:
        """Note the initial state, from `self._obs` and `self._sim`; called once per episode."""

    @abstractmethod
    def _solved(self) -> bool:
        """Return whether the task is solved in the current state; called after every reset and every step."""

    @abstractmethod
    def _truth(self) -> dict[str, Any]:
        """Return privileged facts of the current state as plain values, "progress" in [0, 1] among them."""

    @abstractmethod
    def _caption(self, truth: Mapping[str, Any]) -> str:
        """Say in words what a camera would show of the state behind `truth`."""

    def _restart(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Reset the simulator; `seed` must fix the initial state, and None must go on in the same random stream."""
        return self.simulator.reset(seed=seed, options=options)

    def _observe(self, obs: Any) -> Any:
        """Return the observation the agent gets."""
        return obs

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; `seed` fixes the initial state. See `gymnasium.Env.reset`."""
        if self._closed:
            raise RlRewardError("the environment is closed; make another one")
        super().reset(seed=seed)
        self._draw(seed, options)
        self._begin()
        self._steps, self._latched, self._over = 0, False, False
        return self._observe(self._obs), {**self._sim, STEP_KEY: self._checkpoint(solved=False)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance one low-level step. See the class for what `info` holds."""
        if self._over:
            raise RlRewardError("the episode is over or has not begun; call reset() before step()")
        self._obs, _, terminated, truncated, self._sim = self.simulator.step(action)
        self._steps += 1
        solved = self._solved()
        self._latched = self._latched or solved
        terminated = terminated or (solved and self.config.terminate_on_success)
        truncated = truncated or self._steps >= self.config.max_steps
        self._over = terminated or truncated
        return self._observe(self._obs), self._reward(solved), terminated, truncated, self._info(solved)

    def render(self) -> NDArray[np.uint8]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return `frame()`; the rewards and the `Step`s never call this."""
        return self.frame()

    def truth(self) -> dict[str, Any]:
        """Return privileged facts of the current state, for experts and tests; a judge never sees them."""
        return self._truth()

    def close(self) -> None:
        """Free the simulator and its rendering context; a second call does nothing."""
        if not self._closed:
            self.simulator.close()
        self._closed = self._over = True

    def _draw(self, seed: int | None, options: dict[str, Any] | None) -> None:
        """Restart until the start is not solved."""
        for attempt in range(_MAX_REDRAWS):
            self._obs, self._sim = self._restart(seed if attempt == 0 else None, options)
            if not self._solved():
                return
        raise RlRewardError(f"{_MAX_REDRAWS} starts in a row were solved already; this task has nothing left to learn")

    def _reward(self, solved: bool) -> float:
        """Return the sparse reward of one step."""
        return float(solved) - (1.0 if self.config.reward == "minus_one_zero" else 0.0)

    def _info(self, solved: bool) -> dict[str, Any]:
        """Return the simulator's info of one step with the keys of the contract added."""
        headline = self._latched if self.config.success == "latched" else solved
        success = {"is_success": headline, "is_success_latched": self._latched, "is_success_final": solved}
        info: dict[str, Any] = {**self._sim, **success}
        if self._over or self._steps % self.config.stride == 0:
            info[STEP_KEY] = self._checkpoint(solved)
        return info

    def _checkpoint(self, solved: bool) -> Step:
        """Return the current state as the judge sees it."""
        truth = {**self._truth(), "solved": solved}
        return Step(self._caption(truth), self.frame() if self.config.frames else None, truth)
