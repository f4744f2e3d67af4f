"""What relabelling refuses before training starts, each with its reason."""

from __future__ import annotations

import math
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from rl_reward.adapters.sb3.buffer import RelabelReplayBuffer
from rl_reward.errors import ConfigError
from rl_reward.rewards import ProgressJudge


def check_model(model: BaseAlgorithm, judge: ProgressJudge | None) -> None:
    """Raise ConfigError, in one line, where `model` cannot train on relabelled rewards."""
    buffer = getattr(model, "replay_buffer", None)
    if isinstance(buffer, HerReplayBuffer):
        raise ConfigError(
            "HerReplayBuffer recomputes the rewards of most transitions it samples, so relabelled ones would be lost; "
            "use replay_buffer_class=RelabelReplayBuffer"
        )
    if not isinstance(buffer, RelabelReplayBuffer):
        raise ConfigError(
            f"RelabelCallback needs replay_buffer_class=RelabelReplayBuffer, the model has {type(buffer).__name__}"
        )
    env = model.get_env()
    assert env is not None
    if env.num_envs != buffer.n_envs:
        raise ConfigError(f"the buffer was made for {buffer.n_envs} envs, got {env.num_envs}; use as many")
    _check_normalize(model)
    _check_shaping(model, buffer, judge)
    _check_learning_starts(model, buffer, env)


def _check_normalize(model: BaseAlgorithm) -> None:
    normalize = model.get_vec_normalize_env()
    if normalize is not None and normalize.norm_reward:
        raise ConfigError(
            "VecNormalize(norm_reward=True) scales by returns that were never relabelled; set norm_reward=False"
        )


def _check_shaping(model: Any, buffer: RelabelReplayBuffer, judge: ProgressJudge | None) -> None:
    shaping = buffer.shaping
    if judge is None and shaping.weight != 0.0:
        raise ConfigError(f"shaping weight {shaping.weight:g} needs a judge, got None; only weight 0 does without")
    if shaping.form == "potential" and not math.isclose(shaping.gamma, model.gamma):
        raise ConfigError(f"potential shaping needs the model's gamma {model.gamma:g}, got {shaping.gamma:g}")
    if model.n_steps not in (1, buffer.n_steps):
        raise ConfigError(
            f"the model ignores n_steps={model.n_steps} beside a custom buffer; "
            f"pass replay_buffer_kwargs=dict(n_steps={model.n_steps}, ...)"
        )
    if buffer.n_steps > 1 and not math.isclose(buffer.gamma, model.gamma):
        raise ConfigError(
            f"n-step returns need the model's gamma {model.gamma:g}, got {buffer.gamma:g}; "
            f"pass replay_buffer_kwargs=dict(gamma={model.gamma:g}, ...)"
        )


def _check_learning_starts(model: Any, buffer: RelabelReplayBuffer, env: VecEnv) -> None:
    limit = _time_limit(env)
    if limit is None or buffer.size() or buffer.waiting.rows:
        return
    least = env.num_envs * limit + buffer.lag
    if model.learning_starts < least:
        raise ConfigError(
            f"learning_starts must be at least {least} = n_envs ({env.num_envs}) x longest episode ({limit}) + lag "
            f"({buffer.lag}), got {model.learning_starts}: before that no episode may be scored"
        )


def _time_limit(env: VecEnv) -> int | None:
    """Return the longest episode of `env` in steps, None where it does not say."""
    # The env's own word, then gymnasium's TimeLimit, which `gym.make` adds from the spec.
    for name in ("max_episode_steps", "_max_episode_steps"):
        limits: list[Any] = env.get_attr(name) if env.has_attr(name) else [None]
        if all(isinstance(limit, int) for limit in limits):
            return max(limits)
    return None
