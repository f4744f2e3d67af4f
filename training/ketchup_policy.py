"""Build the frozen policy of the ketchup experiment, top to bottom: demonstrations, flow matching, how good it is.

    python -m training.ketchup_policy --out runs/ketchup_policy

The demonstrations are those of a miscalibrated pupil. In every episode the scripted expert reaches for a point that is
off along x by 2.2 cm on average (standard deviation 2 cm) and lets go at one that is off by -7 cm (6 cm), with noise on
its moves. Fingers more than 2 cm off miss the bottle, and a bottle let go more than 6.5 cm off misses the basket, so
about one episode in five succeeds; all are kept. That is how the policy is weakened: it can do the task, its noise
decides whether it does, and the noise that helps to grasp is not the one that helps to let go. About four minutes on
one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from rl_reward.envs import make
from rl_reward.envs.base import TaskEnv
from rl_reward.envs.demonstrations import Demonstration, write
from rl_reward.envs.experts import PickAndPlace
from rl_reward.envs.steering import SteeringEnv
from rl_reward.evaluation.intervals import wilson
from rl_reward.policies.flow import FlowPolicy, chunked, fit

ENV = "libero_object/pick_up_the_ketchup_and_place_it_in_the_basket"
CHUNK, MAX_STEPS, DEMO_STEPS = 10, 150, 130
# Metres along x, y and z: means and standard deviations of where the pupil grasps and where it lets go.
GRASP = np.array([0.022, 0.0, 0.0]), np.array([0.02, 0.008, 0.0])
PLACE = np.array([-0.07, 0.0, 0.0]), np.array([0.06, 0.02, 0.0])
MOVE_NOISE = 0.15
# Starts are random placements by seed, none shared with training (small seeds) or evaluation (published init states).
DEMO_SEED, SELECTION_SEED = 5_000_000, 6_000_000


def main(arguments: list[str] | None = None) -> None:
    """Record, train, evaluate, write."""
    parser = argparse.ArgumentParser(description="the frozen policy of the ketchup experiment")
    parser.add_argument("--out", type=Path, required=True, help="folder for demonstrations and policy")
    parser.add_argument("--demonstrations", type=int, default=100)
    parser.add_argument("--steps", type=int, default=4000, help="gradient steps")
    parser.add_argument("--episodes", type=int, default=100, help="episodes that measure the policy")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)

    # 1. Demonstrations, from privileged truth; what they hold is the state observation and the action.
    env_options = {"starts": "sampled", "max_steps": DEMO_STEPS, "lite_physics": True}
    seeds = range(DEMO_SEED, DEMO_SEED + options.demonstrations)
    env = make(ENV, **env_options)
    demos = [demonstration(env, seed) for seed in tqdm(seeds, "demonstrations")]
    env.close()
    write(options.out / "demonstrations.hdf5", demos, env=ENV, options=env_options)
    print(f"demonstrations: {np.mean([demo.success for demo in demos]):.0%} of {len(demos)} succeed")

    # 2. The policy: noise of seven numbers, shared by the ten actions of a chunk.
    pairs = [chunked(demo.obs_T1[:-1], demo.actions_T, CHUNK) for demo in demos]
    obs_N, chunks_N = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    policy = fit(obs_N, chunks_N, steps=options.steps, seed=0)
    policy.save(options.out / "ketchup.safetensors")

    # 3. How good it is, under its own noise and under none.
    task = make(ENV, starts="sampled", max_steps=MAX_STEPS, lite_physics=True, stride=CHUNK)
    steered = SteeringEnv(task, policy, noise_bound=10.0)
    for name, scale in (("its own noise, N(0, 1)", 1.0), ("no noise", 0.0)):
        episodes = range(SELECTION_SEED, SELECTION_SEED + options.episodes)
        solved = [rollout(steered, policy, seed, scale) for seed in tqdm(episodes, name)]
        interval = wilson(sum(solved), len(solved))
        print(f"{name}: success {np.mean(solved):.2f} [{interval.low:.2f}, {interval.high:.2f}]")
    steered.close()


def demonstration(env: TaskEnv, seed: int) -> Demonstration:
    """Return one episode of the miscalibrated pupil."""
    expert, rng = PickAndPlace(), np.random.default_rng(seed)
    obs, info = env.reset(seed=seed)
    grasp_off, place_off = (off + spread * rng.normal(size=3) for off, spread in (GRASP, PLACE))
    seen: list[NDArray[np.float32]] = [obs]
    actions: list[NDArray[np.float32]] = []
    over = False
    while not over:
        truth = dict(info["rl_reward"].data)
        truth["place_at"] = truth["place_at"] + place_off
        if not expert.grasped:
            truth["thing_at"] = truth["thing_at"] + grasp_off
        move = expert.act(truth)
        move[:3] += MOVE_NOISE * rng.normal(size=3)
        actions.append(np.clip(move, -1.0, 1.0).astype(np.float32))
        obs, _, terminated, truncated, info = env.step(actions[-1])
        seen.append(obs)
        over = terminated or truncated
    return Demonstration(np.array(seen), np.array(actions), bool(info["is_success"]), seed)


def rollout(env: SteeringEnv, policy: FlowPolicy, seed: int, scale: float) -> bool:
    """Return whether one episode with the policy's own noise times `scale` succeeds."""
    rng, over, info = np.random.default_rng(seed), False, env.reset(seed=seed)[1]
    while not over:
        _, _, terminated, truncated, info = env.step(scale * policy.draw(rng))
        over = terminated or truncated
    return bool(info["is_success"])


if __name__ == "__main__":
    main()
