"""Episodes to measure judges on: of a scripted expert, of chance, and of an expert that gives up short of the goal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rl_reward.envs.base import TaskEnv
from rl_reward.envs.experts import Expert, PickAndPlace, metaworld_expert
from rl_reward.envs.noise_space import NoiseSpace
from rl_reward.errors import ConfigError
from rl_reward.experiments.frozen import HOLD, frozen_policy
from rl_reward.experiments.sac import SacConfig
from rl_reward.types import Step

SEED = 7_000_000
"""Of the first success; failures, wandering and near episodes follow at distances of ten thousand."""
NOISE = 0.15
"""Standard deviation of what is added to each of an expert's three moves."""
GIVES_UP = (0.7, 1.0)
"""Share of the steps to success after which an expert gives up, drawn uniformly."""
# Metres: where the ketchup stands in the beginning, and what counts as near, lifted, lost, above and moved.
STARTS, STANDS = np.array([-0.12, -0.24]), 0.072
NEAR, LIFTED, LOST, ABOVE, MOVED = 0.08, 0.02, 0.06, 0.08, 0.01
CARRIED = (
    *("far from the bottle", "at the bottle", "carried", "above the basket", "in the basket"),
    "dropped or pushed away",
)
PUSHED = ("far from the thing", "near the thing", "on its way", "solved")

Episode = tuple[list[Step], bool]
Act = Callable[[Any, Any], Any]


def kinds_of(env: TaskEnv, config: SacConfig, each: int) -> dict[str, list[Episode]]:
    """Return `each` episodes of every kind, successes first, from starts that no training or evaluation uses.

    Where a frozen policy is steered, failures are its own and wandering is random moves. Where the agent acts on the
    robot, failures are random actions, each held for a chunk, and near is the expert that gives up.
    """
    if config.steering is None:
        raise ConfigError(f"episodes are played decision by decision; add steering to the sac of {config.env}")
    expert = expert_of(config.env)
    found = {"success": successes(env, expert, each), "failure": failures(env, config, each)}
    if config.steering.policy == HOLD:
        return {**found, "near": [near(env, expert, SEED + 30_000 + 100 * i) for i in range(each)]}
    return {**found, "wandering": [wandering(env, SEED + 20_000 + i) for i in range(each)]}


def expert_of(name: str) -> Expert:
    """Return the scripted expert of the task environment `name`."""
    family, _, task = name.partition("/")
    if family == "metaworld":
        return metaworld_expert(task)
    if family == "libero_object":
        return PickAndPlace()
    raise ConfigError(f"there is a scripted expert for the tasks of metaworld and libero_object, not for {name}")


def successes(env: TaskEnv, expert: Expert, count: int) -> list[Episode]:
    """Return episodes of the expert with noise on its moves, those that succeed."""
    found: list[Episode] = []
    seed = SEED
    while len(found) < count:
        episode, _ = played(env, seed, noisy(env, expert, seed))
        found += [episode] if episode[1] else []
        seed += 1
    return found


def failures(env: TaskEnv, config: SacConfig, count: int) -> list[Episode]:
    """Return episodes of the policy under its own noise, those that fail."""
    found: list[Episode] = []
    seed = SEED + 10_000
    decide = held(env, config) if config.steering and config.steering.policy == HOLD else frozen(config)
    while len(found) < count:
        episode, _ = played(env, seed, in_chunks(decide, seed))
        found += [] if episode[1] else [episode]
        seed += 1
    return found


def near(env: TaskEnv, expert: Expert, seed: int) -> Episode:
    """Return a failure of the noisy expert that gives up after a share of its way: from then on, noise alone."""
    while True:
        (_, solved), steps = played(env, seed, noisy(env, expert, seed))
        last = int(steps * np.random.default_rng([seed, 1]).uniform(*GIVES_UP))
        episode, _ = played(env, seed, noisy(env, expert, seed, last))
        if solved and not episode[1]:
            return episode
        seed += 1


def wandering(env: TaskEnv, seed: int) -> Episode:
    """Return an episode of random moves of a LIBERO arm, each held for a while."""
    rng, move = np.random.default_rng(seed), np.zeros(7)

    def act(obs: Any, truth: Any) -> Any:
        if rng.random() < 0.15:
            move[:] = rng.uniform(-1, 1, 7) * [1, 1, 1, 0, 0, 0, 1]
        return move

    return played(env, seed, act)[0]


def noisy(env: TaskEnv, expert: Expert, seed: int, last: int | None = None) -> Act:
    """Return the expert with noise on its moves; after `last` steps it stands still but for the noise."""
    rng, size, taken = np.random.default_rng(seed), int(np.prod(env.action_space.shape or ())), 0
    wanted = np.zeros(size)
    expert.begin()

    def act(obs: Any, truth: Any) -> Any:
        nonlocal taken, wanted
        still = last is not None and taken >= last
        wanted = np.append(np.zeros(size - 1), wanted[-1]) if still else expert.act(truth, obs)
        taken += 1
        return wanted + np.append(NOISE * rng.normal(size=3), np.zeros(size - 3))

    return act


def frozen(config: SacConfig) -> Callable[[Any, Any], Any]:
    """Return what the frozen policy does next under its own noise."""
    assert config.steering is not None
    policy: Any = frozen_policy(config.steering.policy)
    return lambda obs, rng: policy.act(obs, policy.draw(rng))


def held(env: TaskEnv, config: SacConfig) -> Callable[[Any, Any], Any]:
    """Return a random action as often as it is held: what the learner does in its warm-up."""
    assert config.steering is not None
    space = NoiseSpace(config.steering.noise_bound, int(np.prod(env.action_space.shape or ())))

    def decide(obs: Any, rng: np.random.Generator) -> Any:
        space.seed(int(rng.integers(2**31)))
        return [space.sample()] * config.chunk

    return decide


def in_chunks(decide: Callable[[Any, Any], Any], seed: int) -> Act:
    """Return a policy that plays the actions of one decision before it takes the next."""
    rng, plan = np.random.default_rng(seed), list[Any]()

    def act(obs: Any, truth: Any) -> Any:
        if not plan:
            plan.extend(decide(obs, rng))
        return plan.pop(0)

    return act


def played(env: TaskEnv, seed: int, act: Act) -> tuple[Episode, int]:
    """Return one episode, the judge's steps and whether it succeeded, and how many low-level steps it took."""
    obs, info = env.reset(seed=seed)
    steps, over, truth, taken = [info["rl_reward"]], False, env.truth(), 0
    while not over:
        obs, _, terminated, truncated, info = env.step(np.clip(act(obs, truth), -1, 1).astype(np.float32))
        steps += [info["rl_reward"]] if "rl_reward" in info else []
        over, truth, taken = terminated or truncated, env.truth(), taken + 1
    return ([replace(step, image=None) for step in steps], bool(info["is_success"])), taken


def phases_of(episode: Episode) -> list[str]:
    """Return what is going on in each state, one of `CARRIED` on the ketchup task, of `PUSHED` on MetaWorld's."""
    steps = [step.data for step in episode[0]]
    return [carried(truth) if "thing_at" in truth else pushed(truth, steps[0]) for truth in steps]


def carried(truth: Any) -> str:
    """Return what is going on in a state of the ketchup task."""
    hand, thing, place = (np.array(truth[key]) for key in ("hand", "thing_at", "place_at"))
    if truth["solved"]:
        return "in the basket"
    if thing[2] - STANDS > LIFTED:
        return "above the basket" if np.abs(thing - place)[:2].max() < ABOVE else "carried"
    away = float(np.linalg.norm(hand - thing))
    if np.linalg.norm(thing[:2] - STARTS) > LOST:
        return "dropped or pushed away"
    return "far from the bottle" if away > NEAR else "at the bottle"


def pushed(truth: Any, first: Any) -> str:
    """Return what is going on in a state of a MetaWorld task, `first` being the one its episode began with."""
    if truth["solved"]:
        return "solved"
    if first["distance"] - truth["distance"] > MOVED:
        return "on its way"
    # By share and not by metres: a finger presses a button while the middle of the gripper is 13 cm from it.
    away, at_first = (np.linalg.norm(np.subtract(one["hand"], one["object"])) for one in (truth, first))
    return "far from the thing" if away > at_first / 2 else "near the thing"
