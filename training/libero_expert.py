"""The scripted expert on every published init state of a LIBERO task that puts one object into the basket.

    python -m training.libero_expert [pick_up_the_ketchup_and_place_it_in_the_basket ...]

One line per task; for the ketchup about a minute on one core.
"""

from __future__ import annotations

import argparse

import numpy as np
from tqdm import tqdm

from rl_reward.envs import make
from rl_reward.envs.base import TaskEnv
from rl_reward.envs.experts import PickAndPlace

KETCHUP = "pick_up_the_ketchup_and_place_it_in_the_basket"
INIT_STATES = 50


def main(arguments: list[str] | None = None) -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description="the scripted expert on LIBERO's init states")
    parser.add_argument("tasks", nargs="*", default=[KETCHUP], help="tasks of the suite libero_object")
    parser.add_argument("--lite-physics", action="store_true", help="as in LiberoConfig; the published one otherwise")
    options = parser.parse_args(arguments)
    for task in options.tasks:
        env = make(f"libero_object/{task}", lite_physics=options.lite_physics)
        lengths = [length for i in tqdm(range(INIT_STATES), task) if (length := steps_to_success(env, i)) is not None]
        median = f", {np.median(lengths):.0f} steps (median)" if lengths else ""
        print(f"{task}: {len(lengths)} of {INIT_STATES} init states solved{median}", flush=True)
        env.close()


def steps_to_success(env: TaskEnv, init_state: int) -> int | None:
    """Return the steps the expert needs from one init state, None where it fails."""
    expert, steps, over = PickAndPlace(), 0, False
    _, info = env.reset(options={"init_state": init_state})
    while not over:
        _, _, terminated, truncated, info = env.step(expert.act(info["rl_reward"].data).astype(np.float32))
        steps, over = steps + 1, terminated or truncated
    return steps if info["is_success"] else None


if __name__ == "__main__":
    main()
