"""Steering a frozen policy: the action is the noise it starts from, one decision per chunk (DSRL, arXiv 2506.15799).

env = SteeringEnv(make("fetch/FetchReach-v4", flat=True, stride=5), policy, chunk=5, gamma=0.99)
model = SAC("MlpPolicy", env, gamma=env.decision_gamma, ...)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward._checks import check_int, check_number
from rl_reward.envs.base import TaskConfig, TaskEnv, gym
from rl_reward.envs.noise_space import NoiseSpace
from rl_reward.errors import ConfigError, RlRewardError
from rl_reward.policies import FrozenPolicy

Pays = Literal["sum", "last"]

_TOLERANCE = 1e-6  # an agent that computes in float32 may miss its own bound by a rounding


class SteeringEnv(gym.Env[Any, Any]):
    """A task whose action is the noise of a frozen policy, and whose step is one decision.

    A decision hands the noise to the policy and plays the first `chunk` of the actions it returns. It stops where the
    task does, with `terminated` and `truncated` as they were there.

    - The reward of a decision is sum_i gamma^i r_i over the low-level rewards r_i it earned, or the last of them (see
      `pays`). The state after it lies `chunk` steps on, so the learner's own discount, and that of `Shaping`, must be
      `decision_gamma` = gamma^chunk. Only a time limit inside a chunk bootstraps from fewer steps than that.
    - `info` is that of the last low-level step, success keys and `Step` included, and `info["env_steps"]` counts the
      low-level steps of this decision. Curves count those, never decisions.
    - The judge sees the states after decisions; what lies inside a chunk is dropped. A task that renders frames should
      have `stride=chunk`, so that none is rendered in vain.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        policy: FrozenPolicy,
        *,
        chunk: int | None = None,
        noise_bound: float = 1.5,
        gamma: float = 1.0,
        pays: Pays = "sum",
        policy_obs: Callable[[Any], Any] | None = None,
    ) -> None:
        """Steer `policy` in `env`.

        Args:
            env: A `TaskEnv`, or a wrapped one, with actions in [-1, 1].
            policy: The frozen policy.
            chunk: Actions played per decision, in [1, policy.chunk]; all of them by default. The env's stride must
                divide it, or be a multiple of it, or be too long to matter.
            noise_bound: The agent's noise is in [-noise_bound, noise_bound], > 0. Far from 0 is far from what the
                policy was trained on: |N(0, 1)| stays below 1.5 in 87 % of the draws.
            gamma: Discount per low-level step, in (0, 1].
            pays: What a decision earns: the discounted sum of its low-level rewards, or the last of them. "last" keeps
                sparse rewards of -1/0 and 0/1 what they are, at one unit per decision.
            policy_obs: Returns the part of the agent's observation that the policy reads; all of it by default.

        Raises:
            ConfigError: A value is outside its range, or the policy does not fit the env.
        """
        check_number("noise_bound", noise_bound, above=0)
        if not isinstance(policy, FrozenPolicy):
            raise ConfigError(f"the policy must have chunk, action_dim, noise_shape and act, got {policy!r:.80}")
        self.env = env
        """The task that is steered in."""
        self._task_env = _task_env(env)
        self.policy = policy
        """The frozen policy."""
        self.chunk = policy.chunk if chunk is None else check_int("chunk", chunk, least=1, most=policy.chunk)
        """Actions played per decision, fewer where the episode ends."""
        self.gamma = check_number("gamma", gamma, above=0, most=1)
        """Discount per low-level step."""
        if pays not in get_args(Pays):
            raise ConfigError(f"pays must be one of {', '.join(get_args(Pays))}, got {pays!r}")
        self.pays: Pays = pays
        """What a decision earns."""
        self._policy_obs = policy_obs or _same
        _check_actions(env.action_space, policy.action_dim)
        _check_observations(env.observation_space, policy, policy_obs)
        _check_stride(self.config, self.chunk)
        self.observation_space = env.observation_space
        bound = np.float32(noise_bound)
        self.noise_bound = float(bound)
        """Largest absolute value of the noise."""
        self.action_space = NoiseSpace(self.noise_bound, math.prod(policy.noise_shape))
        self.metadata, self.render_mode = env.metadata, env.render_mode
        self._obs: Any = None

    @property
    def decision_gamma(self) -> float:
        """The discount per decision, gamma^chunk: what the learner and its shaping must use."""
        return self.gamma**self.chunk

    @property
    def task(self) -> str:
        """The instruction in words."""
        return self._task_env.task

    @property
    def config(self) -> TaskConfig:
        """The options of the task, in low-level steps."""
        return self._task_env.config

    @property
    def max_episode_steps(self) -> int:
        """Decisions until the episode is truncated; where hosts look for the time limit."""
        return math.ceil(self._task_env.max_episode_steps / self.chunk)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode of the task, which gets `seed` and `options`."""
        super().reset(seed=seed)
        self._obs, info = self.env.reset(seed=seed, options=options)
        return self._obs, info

    def step(self, action: ArrayLike) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one decision.

        Args:
            action: The flattened noise, float [prod(noise_shape)] in [-noise_bound, noise_bound]. It is never clipped.

        Raises:
            ConfigError: The noise is outside its box.
            RlRewardError: There is no episode, or the policy returned no actions of its own sizes.
        """
        if self._obs is None:
            raise RlRewardError("the episode is over or has not begun; call reset() before step()")
        actions = self._actions(self._noise(action))
        reward, played = 0.0, 0
        terminated = truncated = False
        info: dict[str, Any] = {}
        while played < self.chunk and not (terminated or truncated):
            self._obs, paid, terminated, truncated, info = self.env.step(actions[played])
            reward = reward + self.gamma**played * float(paid) if self.pays == "sum" else float(paid)
            played += 1
        obs = self._obs
        if terminated or truncated:
            self._obs = None
        return obs, reward, terminated, truncated, {**info, "env_steps": played}

    def render(self) -> NDArray[np.uint8]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the frame of the task."""
        return cast("NDArray[np.uint8]", self.env.render())

    def close(self) -> None:
        """Close the task."""
        self.env.close()

    def _noise(self, action: ArrayLike) -> NDArray[np.float32]:
        """Return the noise in the policy's shape."""
        noise = np.asarray(action, dtype=np.float32)
        if noise.shape != self.action_space.shape:
            raise ConfigError(f"noise must have shape {self.action_space.shape}, got {noise.shape}")
        outside = noise[~(np.abs(noise) <= self.noise_bound + _TOLERANCE)]
        if outside.size:
            bound = self.noise_bound
            fix = "; raise noise_bound" if np.isfinite(outside[0]) else ""
            raise ConfigError(f"noise must be in [-{bound:g}, {bound:g}], got {outside[0]:g}{fix}")
        return noise.reshape(self.policy.noise_shape)

    def _actions(self, noise: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what the policy does from here."""
        actions = self.policy.act(self._policy_obs(self._obs), noise)
        wanted = (self.policy.chunk, self.policy.action_dim)
        if np.shape(actions) != wanted or not np.isfinite(actions).all():
            raise RlRewardError(f"the policy must return finite actions of shape {wanted}, got {np.shape(actions)}")
        return actions


def _same(obs: Any) -> Any:
    return obs


def _task_env(env: Any) -> TaskEnv:
    """Return the task inside `env`, or raise ConfigError."""
    task_env = getattr(env, "unwrapped", env)
    if not isinstance(task_env, TaskEnv):
        raise ConfigError(f"SteeringEnv needs a TaskEnv, as rl_reward.envs.make builds, got {type(task_env).__name__}")
    return task_env


def _check_actions(space: Any, action_dim: int) -> None:
    """Raise ConfigError unless the env takes the policy's actions."""
    shape = getattr(space, "shape", None)
    if shape != (action_dim,):
        raise ConfigError(f"the policy makes actions of {action_dim} numbers, the env takes shape {shape}")
    if not (np.all(space.low == -1.0) and np.all(space.high == 1.0)):
        raise ConfigError(
            f"the env must take actions in [-1, 1], got [{space.low.min():g}, {space.high.max():g}]; "
            "wrap it in gymnasium's RescaleAction(env, -1, 1)"
        )


def _check_observations(space: gym.Space[Any], policy: FrozenPolicy, policy_obs: Callable[[Any], Any] | None) -> None:
    """Raise ConfigError unless the policy can read what the agent sees; one that names no size reads what it likes."""
    size = getattr(policy, "obs_dim", None)
    if size is None:
        return
    shape = space.shape if policy_obs is None else np.shape(policy_obs(space.sample()))
    if shape != (size,):
        what = "the env's have" if policy_obs is None else "policy_obs makes"
        fix = "; choose a part of them with policy_obs" if policy_obs is None else ""
        raise ConfigError(f"the policy reads observations of {size} numbers, {what} shape {shape}{fix}")


def _check_stride(config: TaskConfig, chunk: int) -> None:
    """Raise ConfigError where the judge would be shown states inside a chunk and not those after it."""
    stride = config.stride
    if chunk % stride and stride % chunk and stride < config.max_steps:
        raise ConfigError(f"the env's stride must divide the chunk of {chunk} steps, got {stride}; use stride={chunk}")
