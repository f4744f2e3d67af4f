"""Which MetaWorld tasks suit a comparison of rewards: solved by an expert, seldom by chance, slowly by sparse SAC.

    python -m training.metaworld_tasks --out runs/metaworld_tasks                    # all tasks: expert and chance
    python -m training.metaworld_tasks --out runs/metaworld_tasks --learn 12000 handle-press-side-v3 coffee-button-v3

Every setting is that of configs/sac/metaworld.yaml: episodes of 100 steps, actions held for ten. Starts are of seeds
that no training or evaluation uses. On one core the first part takes about six seconds a task, five minutes for all
fifty; 12,000 steps of SAC take about a minute.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from rl_reward.envs import make
from rl_reward.envs.base import TaskEnv
from rl_reward.envs.experts import metaworld_expert
from rl_reward.envs.metaworld import TASKS
from rl_reward.envs.noise_space import NoiseSpace
from rl_reward.evaluation.intervals import wilson
from rl_reward.experiments.config import load
from rl_reward.experiments.sac import SacArm, SacConfig, run

CONFIG = "configs/sac/metaworld.yaml"
SEED, TUNING_SEED, POINTS = 8_000_000, 100, 4


def main(arguments: list[str] | None = None) -> None:
    """Screen, learn, print and write."""
    parser = argparse.ArgumentParser(description="which MetaWorld tasks suit a comparison of rewards")
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help="all of them by default")
    parser.add_argument("--out", type=Path, required=True, help="folder for screen.md and .json, learn.json and runs")
    parser.add_argument("--expert", type=int, default=10, help="episodes of the scripted expert")
    parser.add_argument("--chance", type=int, default=100, help="episodes of random actions, each held for a chunk")
    parser.add_argument("--learn", type=int, metavar="STEPS", help="train sparse SAC for so many steps instead")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    config: SacConfig = load(CONFIG)[0].settings

    # 1. Sparse SAC: success of the deterministic policy over the environment steps.
    if options.learn:
        curves = {task: learned(config, task, options.learn, options.out) for task in options.tasks}
        (options.out / "learn.json").write_text(json.dumps(curves, indent=1) + "\n")
        return

    # 2. Or the screening: how long an expert needs, and how often chance succeeds.
    rows = {task: screened(config, task, options.expert, options.chance) for task in tqdm(options.tasks)}
    lines = table(rows, options.expert, options.chance)
    print(*lines, sep="\n")
    (options.out / "screen.md").write_text("\n".join(lines) + "\n")
    (options.out / "screen.json").write_text(json.dumps(rows, indent=1) + "\n")


def table(rows: dict[str, dict[str, Any]], expert_episodes: int, chance_episodes: int) -> list[str]:
    """Return a line a task, the share that chance solves with its 95 % interval."""
    lines = [
        "| task | expert | its steps (median) | chance [95 %] | best progress by chance (median) |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for task, row in rows.items():
        found = wilson(row["chance"], chance_episodes)
        rate = f"{row['chance'] / chance_episodes:.2f} [{found.low:.2f}, {found.high:.2f}]"
        steps = "-" if row["steps"] is None else f"{row['steps']:.0f}"
        lines.append(f"| {task} | {row['expert']}/{expert_episodes} | {steps} | {rate} | {row['best']:.2f} |")
    return lines


def learned(config: SacConfig, task: str, steps: int, out: Path) -> dict[str, Any]:
    """Return the learning curve of sparse -1/0 SAC."""
    print(task)
    config = replace(
        config, env=f"metaworld/{task}", total_steps=steps, eval_every=steps // POINTS, eval_episodes=20, carry=None
    )
    result = run(config, SacArm("sparse -1/0"), TUNING_SEED, out / task, lambda done, total: None)
    return {"steps": list(result.steps), "success": list(result.success), "wall_seconds": result.wall_seconds}


def screened(config: SacConfig, task: str, expert_episodes: int, chance_episodes: int) -> dict[str, Any]:
    """Return how often the expert solves a task, its median steps (None: never), how often chance does, and how far."""
    env = make(f"metaworld/{task}", **{**config.options, "stride": config.chunk})
    expert = metaworld_expert(task)
    solved = [steps for i in range(expert_episodes) if (steps := played(env, SEED + i, expert.act)[0]) is not None]
    by_chance = [played(env, SEED + 10_000 + i, wandering(i, config.chunk)) for i in range(chance_episodes)]
    env.close()
    return {
        "expert": len(solved),
        "steps": float(np.median(solved)) if solved else None,
        "chance": sum(steps is not None for steps, _ in by_chance),
        "best": float(np.median([best for _, best in by_chance])),
    }


def wandering(seed: int, chunk: int) -> Callable[[Any, Any], Any]:
    """Return a policy of random actions, each held for `chunk` steps: what the learner does in its warm-up."""
    space, plan = NoiseSpace(1.0, 4), list[Any]()
    space.seed(seed)

    def act(truth: Any, obs: Any) -> Any:
        if not plan:
            plan.extend([space.sample()] * chunk)
        return plan.pop()

    return act


def played(env: TaskEnv, seed: int, act: Callable[[Any, Any], Any]) -> tuple[int | None, float]:
    """Return the steps until success, None without, and the best progress of one episode."""
    obs, info = env.reset(seed=seed)
    steps, best, over = 0, 0.0, False
    while not over:
        obs, _, terminated, truncated, info = env.step(act(None, obs))
        steps, over = steps + 1, terminated or truncated
        best = max(best, info["rl_reward"].data["progress"]) if "rl_reward" in info else best
    return (steps if info["is_success"] else None), best


if __name__ == "__main__":
    main()
