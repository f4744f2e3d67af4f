"""How well judges read the progress of robot episodes: successes, failures and wandering on the ketchup task.

    rl-reward fetch-model gemma-3-270m
    python -m training.judge_report --out training/results/judges

Episodes are those of the frozen policy under its own noise, of the scripted expert, and of random moves, from starts
that no training or evaluation uses. About ten minutes on one core, most of it the language model.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from rl_reward.envs import make
from rl_reward.envs.base import TaskEnv
from rl_reward.envs.experts import PickAndPlace
from rl_reward.evaluation.progress_report import progress_report
from rl_reward.experiments.config import load
from rl_reward.experiments.frozen import frozen_policy
from rl_reward.experiments.sac import SacArm, SacConfig
from rl_reward.rewards import ProgressJudge
from rl_reward.types import Step

CONFIG = "configs/sac/libero_ketchup.yaml"
SEED = 7_000_000
# Metres: where the bottle stands in the beginning, and what counts as near, lifted, lost and above.
STARTS, STANDS = np.array([-0.12, -0.24]), 0.072
NEAR, LIFTED, LOST, ABOVE = 0.08, 0.02, 0.06, 0.08
# Changes of the true progress in one decision that count as none, and as a step ahead.
STILL, AHEAD = 0.01, 0.05
PHASES = (
    *("far from the bottle", "at the bottle", "carried", "above the basket", "in the basket"),
    "dropped or pushed away",
)
Episode = tuple[list[Step], bool]


def main(arguments: list[str] | None = None) -> None:
    """Play, judge, print and write."""
    parser = argparse.ArgumentParser(description="how well judges read progress")
    parser.add_argument("--out", type=Path, required=True, help="folder for report.md and report.json")
    parser.add_argument("--model", default="gemma-3-270m", help="fetched model, or the folder of one")
    parser.add_argument("--each", type=int, default=15, help="successes, failures and wandering episodes, of each")
    parser.add_argument("--threshold", type=float, default=0.8, help="final score that counts as judged a success")
    parser.add_argument("--cache", help="file that keeps the language model's answers")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    config: SacConfig = load(CONFIG)[0].settings
    assert config.steering is not None

    # 1. Episodes, with captions that print numbers and with captions in words only.
    env = make(config.env, **{**config.options, "starts": "sampled", "stride": config.steering.chunk})
    kinds = {"success": successes(env, options.each), "failure": failures(env, config, options.each)}
    kinds["wandering"] = [wandering(env, SEED + 20_000 + i) for i in range(options.each)]
    episodes = [episode for kind in kinds.values() for episode in kind]

    # 2. Judges.
    print(f"{len(episodes)} episodes, {sum(len(steps) for steps, _ in episodes)} states", flush=True)
    arms = {
        "oracle": SacArm("oracle", judge="oracle", weight=1.0),
        "simulated(noise=0.1)": SacArm("simulated(noise=0.1)", judge="simulated", noise=0.1, weight=1.0),
        "caption-rule": SacArm("caption-rule", judge="caption-rule", weight=1.0),
        options.model: SacArm(
            options.model, judge=f"local:{options.model}", reads="captions", cache=options.cache, weight=1.0
        ),
    }
    curves: dict[str, list[Any]] = {}
    for name, arm in arms.items():
        judge = arm.judge_of(config, 0)
        assert judge is not None
        curves[name] = judged(judge, env.task, episodes, name)
    env.close()

    # 3. The report: over all, and with each kind of failure alone.
    solved = [success for _, success in episodes]
    lines: list[str] = []
    records: dict[str, Any] = {}
    for against in ("failure", "wandering"):
        chosen = [i for kind, members in indices(kinds).items() if kind in ("success", against) for i in members]
        report = progress_report(
            {name: [curves[name][i] for i in chosen] for name in curves},
            [solved[i] for i in chosen],
            threshold=options.threshold,
            reference="caption-rule",
        )
        lines += [f"Successes against {against} episodes:", "", "```", report.table(), "```", ""]
        records[against] = asdict(report)
    lines += ["Mean score (standard deviation) by what is going on:", "", *by_phase(episodes, curves), ""]
    lines += ["Changes from one decision to the next, which is what potential shaping pays:", "", *by_change(curves)]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "report.md").write_text("\n".join(lines))
    (options.out / "report.json").write_text(json.dumps(records, indent=1) + "\n")
    print("\n".join(lines))


def judged(judge: ProgressJudge, task: str, episodes: Sequence[Episode], name: str) -> list[np.ndarray[Any, Any]]:
    """Return the curves of all episodes, one call each so that the bar moves."""
    return [judge.track_many([(task, steps)])[0].values for steps, _ in tqdm(episodes, name)]


def by_phase(episodes: Sequence[Episode], curves: dict[str, list[Any]]) -> list[str]:
    """Return a table of what each judge says in each phase, over all states of all episodes."""
    found = np.array([phase(step.data) for steps, _ in episodes for step in steps])
    rows = [f"| phase | states | {' | '.join(curves)} |", f"| --- | ---: |{' ---: |' * len(curves)}"]
    for name in PHASES:
        chosen = found == name
        scores = [np.concatenate(episode_curves)[chosen] for episode_curves in curves.values()]
        cells = [f"{np.nanmean(one):.2f} ({np.nanstd(one):.2f})" if chosen.any() else "-" for one in scores]
        rows.append(f"| {name} | {chosen.sum()} | {' | '.join(cells)} |")
    return rows


def by_change(curves: dict[str, list[Any]]) -> list[str]:
    """Return a table of how the changes of each judge go with those of the oracle, over all episodes."""
    changes = {name: np.concatenate([np.diff(curve) for curve in episodes]) for name, episodes in curves.items()}
    truth = changes["oracle"]
    still, ahead = np.abs(truth) < STILL, truth > AHEAD
    rows = [
        f"| judge | correlation | deviation where the truth moves less than {STILL} | falls where it gains {AHEAD} |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, change in changes.items():
        correlation = np.corrcoef(change, truth)[0, 1]
        rows.append(f"| {name} | {correlation:.2f} | {change[still].std():.2f} | {np.mean(change[ahead] < 0):.2f} |")
    return [*rows, "", f"{truth.size} changes, {still.sum()} of them still, {ahead.sum()} ahead"]


def phase(truth: Any) -> str:
    """Return what is going on in a state."""
    hand, thing, place = (np.array(truth[key]) for key in ("hand", "thing_at", "place_at"))
    if truth["solved"]:
        return "in the basket"
    if thing[2] - STANDS > LIFTED:
        return "above the basket" if np.abs(thing - place)[:2].max() < ABOVE else "carried"
    away = float(np.linalg.norm(hand - thing))
    if np.linalg.norm(thing[:2] - STARTS) > LOST:
        return "dropped or pushed away"
    return "far from the bottle" if away > NEAR else "at the bottle"


def indices(kinds: dict[str, list[Episode]]) -> dict[str, list[int]]:
    """Return where the episodes of each kind stand in the list of all."""
    ends = np.cumsum([len(members) for members in kinds.values()])
    return {kind: list(range(end - len(kinds[kind]), end)) for kind, end in zip(kinds, ends.tolist(), strict=True)}


def successes(env: TaskEnv, count: int) -> list[Episode]:
    """Return episodes of the scripted expert with noise on its moves."""
    found: list[Episode] = []
    seed = SEED
    while len(found) < count:
        expert, rng = PickAndPlace(), np.random.default_rng(seed)

        def act(obs: Any, truth: Any, expert: PickAndPlace = expert, rng: np.random.Generator = rng) -> Any:
            return expert.act(truth) + np.array([*(0.15 * rng.normal(size=3)), 0.0, 0.0, 0.0, 0.0])

        episode = played(env, seed, act)
        found += [episode] if episode[1] else []
        seed += 1
    return found


def failures(env: TaskEnv, config: SacConfig, count: int) -> list[Episode]:
    """Return episodes of the frozen policy under its own noise that fail."""
    found: list[Episode] = []
    seed = SEED + 10_000
    assert config.steering is not None
    policy: Any = frozen_policy(config.steering.policy)
    while len(found) < count:
        rng, plan = np.random.default_rng(seed), []

        def act(obs: Any, truth: Any, rng: Any = rng, plan: list[Any] = plan) -> Any:
            if not plan:
                plan.extend(policy.act(obs, policy.draw(rng)))
            return plan.pop(0)

        episode = played(env, seed, act)
        found += [] if episode[1] else [episode]
        seed += 1
    return found


def wandering(env: TaskEnv, seed: int) -> Episode:
    """Return an episode of random moves, each held for a while."""
    rng, move = np.random.default_rng(seed), np.zeros(7)

    def act(obs: Any, truth: Any) -> Any:
        if rng.random() < 0.15:
            move[:] = rng.uniform(-1, 1, 7) * [1, 1, 1, 0, 0, 0, 1]
        return move

    return played(env, seed, act)


def played(env: TaskEnv, seed: int, act: Any) -> Episode:
    """Return the judge's steps of one episode, and whether it succeeded."""
    obs, info = env.reset(seed=seed)
    steps, over, truth = [info["rl_reward"]], False, env.truth()
    while not over:
        obs, _, terminated, truncated, info = env.step(np.clip(act(obs, truth), -1, 1).astype(np.float32))
        steps += [info["rl_reward"]] if "rl_reward" in info else []
        over, truth = terminated or truncated, env.truth()
    return [replace(step, image=None) for step in steps], bool(info["is_success"])


if __name__ == "__main__":
    main()
