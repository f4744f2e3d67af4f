"""A check of the TaskEnv contract, for every environment here and for those users bring."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rl_reward.envs.base import TaskConfig, TaskEnv
from rl_reward.errors import RlRewardError
from rl_reward.types import STEP_KEY, Step


class ContractError(RlRewardError):
    """An environment breaks the TaskEnv contract; the message says where and how."""


def check_task_env(make_env: Callable[[], TaskEnv], *, episodes: int = 2, seed: int = 0) -> None:
    """Play random episodes of the environment `make_env` builds and compare all it says with `TaskEnv`.

    Args:
        make_env: Builds the environment; called once.
        episodes: Episodes to play, >= 1.
        seed: Seed of the resets and of the actions.

    Raises:
        ContractError: What breaks the contract first.
    """
    env = make_env()
    try:
        _expect(isinstance(env.task, str) and bool(env.task.strip()), f"task must be an instruction, got {env.task!r}")
        env.action_space.seed(seed)
        for episode in range(episodes):
            _check_reset(env, seed + episode)
            _check_episode(env)
    finally:
        env.close()


def _check_reset(env: TaskEnv, seed: int) -> None:
    """Check the reset infos, and that a seed fixes the initial state whatever was played before."""
    first, _ = env.reset(seed=seed)
    env.step(env.action_space.sample())
    again, info = env.reset(seed=seed)
    _expect(_equal(first, again), f"reset(seed={seed}) must give the same observation each time")
    _expect(env.observation_space.contains(again), "the observation of reset is not in observation_space")
    _check_step(info.get(STEP_KEY), env.config, "reset")
    _expect(not info[STEP_KEY].data["solved"], "an episode must not start solved")


def _check_episode(env: TaskEnv) -> None:
    """Check every step of one episode of random actions; `env` has just been reset."""
    config, solved_before = env.config, False
    for t, (reward, terminated, truncated, info) in enumerate(_play(env), start=1):
        where = f"step {t}"
        _check_success(info, config, solved_before, where)
        solved, solved_before = info["is_success_final"], info["is_success_latched"]
        wanted = float(solved) - (config.reward == "minus_one_zero")
        _expect(reward == wanted, f"{where}: the {config.reward} reward must be {wanted:g} here, got {reward}")
        if config.terminate_on_success and solved:
            _expect(terminated, f"{where}: solved with terminate_on_success must set terminated")
        _expect(truncated or t < config.max_steps, f"{where}: max_steps is reached and truncated is not set")
        if terminated or truncated or t % config.stride == 0:
            _check_step(info.get(STEP_KEY), config, where)
            _expect(info[STEP_KEY].data["solved"] == solved, f"{where}: data['solved'] differs from is_success_final")
        else:
            _expect(STEP_KEY not in info, f"{where}: a Step is emitted off the stride of {config.stride}")


def _play(env: TaskEnv) -> Iterator[tuple[float, bool, bool, Mapping[str, Any]]]:
    """Yield reward, both end flags and info of random steps until the episode ends."""
    terminated = truncated = False
    while not (terminated or truncated):
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        _expect(env.observation_space.contains(obs), "an observation of step is not in observation_space")
        yield float(reward), terminated, truncated, info


def _check_success(info: Mapping[str, Any], config: TaskConfig, solved_before: bool, where: str) -> None:
    """Check the three success keys of one step."""
    for key in ("is_success", "is_success_latched", "is_success_final"):
        _expect(isinstance(info.get(key), bool), f"{where}: info[{key!r}] must be a bool, got {info.get(key)!r}")
    latched, final = info["is_success_latched"], info["is_success_final"]
    _expect(latched == (solved_before or final), f"{where}: is_success_latched must stay once a step was solved")
    headline = latched if config.success == "latched" else final
    _expect(info["is_success"] == headline, f"{where}: is_success must be is_success_{config.success}")


def _check_step(step: Any, config: TaskConfig, where: str) -> None:
    """Check what is emitted for the judge at one checkpoint."""
    _expect(isinstance(step, Step), f"{where}: info[{STEP_KEY!r}] must be a Step, got {step!r}")
    _expect(bool(step.text.strip()), f"{where}: the caption is empty")
    _expect(config.numbers or not any(map(str.isdigit, step.text)), f"{where}: digits in a caption without numbers")
    shape = (config.frame_size, config.frame_size, 3) if config.frames else None
    _expect(getattr(step.image, "shape", None) == shape, f"{where}: the image must be {shape}, got {step.image!r:.60}")
    data: Any = step.data
    _expect({"progress", "solved"} <= set(data or ()), f"{where}: data lacks progress or solved")
    _expect(0.0 <= data["progress"] <= 1.0, f"{where}: progress must be in [0, 1], got {data['progress']}")
    _expect(pickle.loads(pickle.dumps(data)) == data, f"{where}: data must hold plain values that pickle")


def _equal(a: Any, b: Any) -> bool:
    """Return whether two observations, arrays or dictionaries of arrays, are equal."""
    if hasattr(a, "keys"):
        return all(np.array_equal(a[name], b[name]) for name in a)
    return np.array_equal(a, b)


def _expect(holds: bool, message: str) -> None:
    """Raise ContractError with `message` unless `holds`."""
    if not holds:
        raise ContractError(message)
