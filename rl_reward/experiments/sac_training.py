"""One SAC run: stable-baselines3's own algorithm, the relabelling buffer, evaluation on the unshaped task."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rl_reward.adapters.sb3 import LayerNormSACPolicy, RelabelCallback, RelabelReplayBuffer
from rl_reward.envs import make
from rl_reward.envs.base import TaskEnv
from rl_reward.envs.steering import SteeringEnv
from rl_reward.errors import MissingExtraError
from rl_reward.experiments.frozen import frozen_policy
from rl_reward.experiments.results import RunResult
from rl_reward.experiments.sac import SacArm, SacConfig, check_captions

try:
    import gymnasium as gym
    import torch
    from stable_baselines3 import SAC, HerReplayBuffer
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize
except ImportError as error:
    raise MissingExtraError("stable-baselines3", "sb3") from error

_TICKS = 100


def train(config: SacConfig, arm: SacArm, seed: int, out: Path, tick: Callable[[int, int], None]) -> RunResult:
    """Train one agent and return its curve (see `rl_reward.experiments.sac.run`)."""
    torch.set_num_threads(config.threads)
    began = time.perf_counter()
    judge = arm.judge_of(config, seed)
    model = build_model(config, arm, seed)
    examiner = Examiner(config, arm, tick)
    check_captions(config, arm, examiner.env)
    relabel = None if arm.her else RelabelCallback(judge, every=config.every)
    callbacks: list[BaseCallback] = [examiner] if relabel is None else [relabel, examiner]
    model.learn(config.total_steps, callback=callbacks)  # pyright: ignore[reportUnknownMemberType]
    save(model, out)
    return _result(config, arm, seed, examiner, relabel, time.perf_counter() - began)


def _result(
    config: SacConfig, arm: SacArm, seed: int, examiner: Examiner, relabel: RelabelCallback | None, wall: float
) -> RunResult:
    """Return the curve of a run and what its judge cost."""
    judge = relabel.judge if relabel else None
    usage = relabel.usage if relabel else None
    return RunResult(
        arm=arm.name,
        seed=seed,
        steps=examiner.steps,
        success=examiner.success["is_success"],
        episodes=config.eval_episodes,
        judge=judge.name if judge else "none",
        judge_calls=usage.calls if usage else 0,
        judge_seconds=relabel.seconds if relabel else 0.0,
        wall_seconds=wall,
        extra={
            "latched_success": examiner.success["is_success_latched"],
            "final_step_success": examiner.success["is_success_final"],
            "eval_seconds": examiner.seconds,
            "prompt_tokens": usage.prompt_tokens if usage else 0,
            **({"unscored_rate": 1.0 - relabel.read / relabel.asked} if relabel and relabel.asked else {}),
            **({"waited_seconds": relabel.waited} if relabel else {}),
        },
    )


def build_env(config: SacConfig, arm: SacArm, **options: Any) -> TaskEnv | SteeringEnv:
    """Return one environment that pays the arm's sparse reward, its action the noise of a frozen policy if so set."""
    if arm.her:
        options["flat"] = False  # hindsight needs the goals apart
    steering = config.steering
    if steering is None:
        return make(config.env, **{**config.options, "reward": arm.reward, **options})
    env = make(config.env, **{"stride": steering.chunk, **config.options, "reward": arm.reward, **options})
    policy = frozen_policy(steering.policy, chunk=steering.chunk, action_dim=math.prod(env.action_space.shape or ()))
    bound = steering.noise_bound
    return SteeringEnv(env, policy, chunk=steering.chunk, noise_bound=bound, gamma=config.gamma, pays=steering.pays)


def build_model(config: SacConfig, arm: SacArm, seed: int) -> SAC:
    """Return the untrained agent with its training environments."""
    env: VecEnv = DummyVecEnv([lambda: build_env(config, arm)] * config.n_envs)
    if config.normalize_obs:
        env = VecNormalize(env, norm_reward=False)
    if arm.her:
        buffer: dict[str, Any] = {"replay_buffer_class": HerReplayBuffer}
    else:
        settings = {"shaping": arm.shaping(config), "lag": config.lag}
        buffer = {"replay_buffer_class": RelabelReplayBuffer, "replay_buffer_kwargs": settings}
    space: Any = cast(Any, env).observation_space
    plain = "MultiInputPolicy" if isinstance(space, gym.spaces.Dict) else "MlpPolicy"
    return SAC(
        LayerNormSACPolicy if config.layer_norm else plain,
        env,
        seed=seed,
        device="cpu",
        learning_starts=config.learning_starts // config.chunk,
        train_freq=config.train_freq,
        gradient_steps=config.gradient_steps,
        learning_rate=config.learning_rate,
        gamma=config.gamma**config.chunk,
        tau=config.tau,
        batch_size=config.batch_size,
        buffer_size=config.buffer_size,
        ent_coef=config.ent_coef,
        target_entropy=config.target_entropy,
        policy_kwargs={"net_arch": list(config.net_arch), "n_critics": config.n_critics},
        **buffer,
    )


class Average:
    """The running average of an actor's weights, which is what evaluations look at: it wavers less than the actor."""

    def __init__(self, actor: Any, share: float) -> None:
        """Begin with the weights of `actor`; at each `follow` they move into the average by `share`."""
        self._weights: list[Any] = list(actor.parameters())
        self._average = [weights.detach().clone() for weights in self._weights]
        self._share = share

    def follow(self) -> None:
        """Let the average follow the actor."""
        with torch.no_grad():
            for average, weights in zip(self._average, self._weights, strict=True):
                average.lerp_(weights, self._share)

    @contextmanager
    def in_place(self) -> Generator[None]:
        """Put the average into the actor for a while."""
        own = [weights.detach().clone() for weights in self._weights]
        self._copy(self._average)
        try:
            yield
        finally:
            self._copy(own)

    def _copy(self, source: list[Any]) -> None:
        with torch.no_grad():
            for weights, values in zip(self._weights, source, strict=True):
                weights.copy_(values)


class Examiner(BaseCallback):
    """Evaluates on the unshaped task: before the first step, every `eval_every` steps, after the last update.

    Steps are low-level ones. A decision may cross the point of an evaluation; the curve has the point itself, so all
    curves share their points, and the agent is at most a chunk (of each environment) further.
    """

    def __init__(self, config: SacConfig, arm: SacArm, tick: Callable[[int, int], None]) -> None:
        """Build the evaluation environment; it renders and describes nothing in between."""
        super().__init__()
        self.config, self.tick = config, tick
        self.env = build_env(config, arm, **{**config.eval_options, "stride": 10**9, "frames": False})
        self.env_steps = 0
        self.steps: list[int] = []
        self.success: dict[str, list[float]] = {}
        self.seconds = 0.0

    def examine(self, point: int) -> None:
        """Add one point to every curve."""
        began = time.perf_counter()
        with self.average.in_place():
            episodes = [self._episode(self.config.eval_seed + i) for i in range(self.config.eval_episodes)]
        self.steps.append(point)
        for key in ("is_success", "is_success_latched", "is_success_final"):
            self.success.setdefault(key, []).append(float(np.mean([info[key] for info in episodes])))
        self.seconds += time.perf_counter() - began
        print(f"{point} environment steps: success {self.success['is_success'][-1]:.2f}", flush=True)

    def _episode(self, seed: int) -> dict[str, Any]:
        """Return the last info of one episode of the deterministic policy."""
        obs, info = self.env.reset(seed=seed)
        over = False
        while not over:
            obs, _, terminated, truncated, info = self.env.step(self._act(obs))
            over = terminated or truncated
        return info

    def _act(self, obs: Any) -> NDArray[np.float32]:
        normalize = self.model.get_vec_normalize_env()
        seen = obs if normalize is None else normalize.normalize_obs(obs)
        return cast("NDArray[np.float32]", self.model.predict(seen, deterministic=True)[0])

    def _init_callback(self) -> None:
        self.average = Average(cast(SAC, self.model).actor, self.config.average)

    def _on_training_start(self) -> None:
        self.examine(0)

    def _on_step(self) -> bool:
        total, every, before = self.config.total_steps, self.config.eval_every, self.env_steps
        self.average.follow()
        self.env_steps += sum(info.get("env_steps", 1) for info in self.locals["infos"])
        if self.env_steps * _TICKS // total > before * _TICKS // total:
            self.tick(min(self.env_steps, total), total)
        point = self.env_steps // every * every
        if before < point < total:
            self.examine(point)
        # Counted in steps, stable-baselines3 stops by itself, after a last update.
        return self.config.steering is None or self.env_steps < total

    def _on_training_end(self) -> None:
        self.average.follow()
        self.examine(self.config.total_steps)


def save(model: SAC, out: Path) -> None:
    """Write the last checkpoint, and the observation scales where there are any, into the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    model.save(out / "policy.zip")
    normalize = model.get_vec_normalize_env()
    if normalize is not None:
        normalize.save(str(out / "observation_scales.pkl"))
