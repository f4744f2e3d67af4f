"""SAC with dense rewards, top to bottom: one arm, one seed, its learning curve on the screen.

    python -m training.sac configs/sac/fetch_reach.yaml --arm oracle --seed 0

`rl-reward compare` runs the same steps for all arms and seeds. About a minute on one core.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import torch
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rl_reward import Shaping
from rl_reward.adapters.sb3 import RelabelCallback, RelabelReplayBuffer
from rl_reward.envs import make
from rl_reward.errors import ConfigError
from rl_reward.experiments.config import arm_called, load


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

    # 2. The task. Its info["rl_reward"] tells the judge what happened; its reward is sparse.
    task_options = {**config.options, "reward": arm.reward}
    if arm.her:
        task_options["flat"] = False  # hindsight needs the goals apart
    env = DummyVecEnv([lambda: make(config.env, **task_options)] * config.n_envs)
    if config.normalize_obs:
        env = VecNormalize(env, norm_reward=False)

    # 3. The reward: who scores progress, and how a score becomes reward.
    judge = arm.judge_of(config, options.seed)
    shaping = Shaping(
        arm.form,
        arm.weight,
        config.gamma,
        terminates_on_success=bool(config.options.get("terminate_on_success", False)),
    )
    relabelling = RelabelCallback(judge, every=config.every)

    # 4. The agent: stable-baselines3's own, with the relabelling buffer. Hindsight is the reference without it.
    buffer: dict[str, Any] = {
        "replay_buffer_class": RelabelReplayBuffer,
        "replay_buffer_kwargs": {"shaping": shaping, "lag": config.lag},
    }
    if arm.her:
        buffer = {"replay_buffer_class": HerReplayBuffer}
    model = SAC(
        "MultiInputPolicy" if arm.her else "MlpPolicy",
        env,
        seed=options.seed,
        device="cpu",
        learning_starts=config.learning_starts,
        train_freq=config.train_freq,
        gradient_steps=config.gradient_steps,
        learning_rate=config.learning_rate,
        gamma=config.gamma,
        tau=config.tau,
        batch_size=config.batch_size,
        buffer_size=config.buffer_size,
        ent_coef=config.ent_coef,
        policy_kwargs={"net_arch": list(config.net_arch)},
        **buffer,
    )

    # 5. Evaluation: the unshaped task, the same starts every time, never one of training.
    exam = make(config.env, **{**task_options, "stride": 10**9, "frames": False})

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
        """Measures before the first step, every `eval_every` steps and after the last update."""

        def measure(self) -> bool:
            curve.append(success_rate())
            print(f"{self.num_timesteps:>7} steps   success {curve[-1]:.2f}", flush=True)
            return True

        def _on_training_start(self) -> None:
            self.measure()

        def _on_step(self) -> bool:
            due = self.num_timesteps % config.eval_every == 0 and self.num_timesteps < config.total_steps
            return self.measure() if due else True

        def _on_training_end(self) -> None:
            self.measure()

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
