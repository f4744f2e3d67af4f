"""SAC with dense rewards, top to bottom: one arm, one seed, its learning curve on the screen.

    python -m training.sac configs/sac/fetch_reach.yaml --arm oracle --seed 0

`rl-reward compare` runs the same steps for all arms and seeds. About a minute on one core.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rl_reward.adapters.sb3 import LayerNormSACPolicy, RelabelCallback, RelabelReplayBuffer
from rl_reward.envs import make
from rl_reward.envs.steering import SteeringEnv
from rl_reward.errors import ConfigError
from rl_reward.experiments.config import arm_called, load
from rl_reward.experiments.frozen import frozen_policy
from rl_reward.experiments.sac import check_captions
from rl_reward.experiments.sac_training import Average


def main(arguments: list[str] | None = None) -> list[float]:
    """Train one agent and return its success rate at every evaluation."""
    parser = argparse.ArgumentParser(description="SAC on one task with one reward")
    parser.add_argument("config", help="YAML file with a SAC experiment")
    parser.add_argument("--arm", required=True, help="name of an arm, or how it begins")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="write the trained policy to this file")
    options = parser.parse_args(arguments)

    # 1. The experiment: what all arms share, and the arm.
    experiment = next(one for one in load(options.config) if one.kind == "sac")
    config, arm = experiment.settings, arm_called(options.arm, experiment)
    torch.set_num_threads(config.threads)

    # 2. The task. Its info["rl_reward"] tells the judge what happened; its reward is sparse. Where a frozen policy is
    # steered, the action is that policy's noise and one step of the agent is a decision: a chunk of low-level steps.
    steering, chunk = config.steering, config.chunk

    def task(**differing: Any) -> Any:
        """Return one environment."""
        task_options = {**config.options, "reward": arm.reward, **differing}
        if arm.her:
            task_options["flat"] = False  # hindsight needs the goals apart
        if steering is None:
            return make(config.env, **task_options)
        low_level, bound = make(config.env, **{"stride": chunk, **task_options}), steering.noise_bound
        policy = frozen_policy(steering.policy, chunk=chunk, action_dim=math.prod(low_level.action_space.shape or ()))
        return SteeringEnv(low_level, policy, chunk=chunk, noise_bound=bound, gamma=config.gamma, pays=steering.pays)

    env = DummyVecEnv([task] * config.n_envs)
    if config.normalize_obs:
        env = VecNormalize(env, norm_reward=False)

    # 3. The reward: who scores progress, and how a score becomes reward. Its discount is the agent's, per decision.
    judge = arm.judge_of(config, options.seed)
    shaping = arm.shaping(config)
    relabelling = RelabelCallback(judge, every=config.every)

    # 4. The agent: stable-baselines3's own, with the relabelling buffer. Hindsight is the reference without it.
    buffer: dict[str, Any] = {
        "replay_buffer_class": RelabelReplayBuffer,
        "replay_buffer_kwargs": {"shaping": shaping, "lag": config.lag},
    }
    if arm.her:
        buffer = {"replay_buffer_class": HerReplayBuffer}
    space = cast(Any, env).observation_space
    plain = "MultiInputPolicy" if isinstance(space, spaces.Dict) else "MlpPolicy"
    model = SAC(
        LayerNormSACPolicy if config.layer_norm else plain,
        env,
        seed=options.seed,
        device="cpu",
        learning_starts=config.learning_starts // chunk,
        train_freq=config.train_freq,
        gradient_steps=config.gradient_steps,
        learning_rate=config.learning_rate,
        gamma=config.gamma**chunk,
        tau=config.tau,
        batch_size=config.batch_size,
        buffer_size=config.buffer_size,
        ent_coef=config.ent_coef,
        target_entropy=config.target_entropy,
        policy_kwargs={"net_arch": list(config.net_arch), "n_critics": config.n_critics},
        **buffer,
    )

    # 5. Evaluation: the unshaped task, the same starts every time, never one of training. It looks at a running average
    #    of the actor, which wavers less than the actor.
    average = Average(model.actor, config.average)
    exam = task(**{**config.eval_options, "stride": 10**9, "frames": False})
    check_captions(config, arm, exam)

    def success_rate() -> float:
        """Return the share of evaluation episodes the deterministic policy solves."""
        solved: list[bool] = []
        for episode in range(config.eval_episodes):
            obs, info = exam.reset(seed=config.eval_seed + episode)
            over = False
            while not over:
                seen = env.normalize_obs(obs) if isinstance(env, VecNormalize) else obs
                obs, _, terminated, truncated, info = exam.step(model.predict(seen, deterministic=True)[0])
                over = terminated or truncated
            solved.append(info["is_success"])
        return float(np.mean(solved))

    curve: list[float] = []

    class Examiner(BaseCallback):
        """Measures before the first step, every `eval_every` low-level steps and after the last update."""

        env_steps = 0

        def measure(self, point: int) -> None:
            with average.in_place():
                curve.append(success_rate())
            print(f"{point:>7} steps   success {curve[-1]:.2f}", flush=True)

        def _on_training_start(self) -> None:
            self.measure(0)

        def _on_step(self) -> bool:
            before = self.env_steps
            average.follow()
            self.env_steps += sum(info.get("env_steps", 1) for info in self.locals["infos"])
            point = self.env_steps // config.eval_every * config.eval_every
            if before < point < config.total_steps:
                self.measure(point)
            # Stable-baselines3 counts decisions and would go on.
            return steering is None or self.env_steps < config.total_steps

        def _on_training_end(self) -> None:
            average.follow()
            self.measure(config.total_steps)

    # 6. Training.
    print(f"{experiment.name}: {arm.name}, seed {options.seed}, judge: {judge.name if judge else 'none'}")
    callbacks: list[BaseCallback] = [Examiner()] if arm.her else [relabelling, Examiner()]
    model.learn(config.total_steps, callback=callbacks)  # pyright: ignore[reportUnknownMemberType]
    print(f"judge: {relabelling.usage.calls} calls, {relabelling.seconds:.1f} s")
    if options.out:
        model.save(options.out)
    return curve


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        sys.exit(f"error: {error}")
