"""How well judges read the progress of robot episodes: successes, and failures of two kinds.

    rl-reward fetch-model gemma-3-270m
    python -m training.judge_report --out FOLDER                                      # LIBERO's ketchup task
    python -m training.judge_report --config configs/sac/metaworld.yaml --task metaworld_coffee_button --out FOLDER

The config is one of SAC whose `carry` says what the language model reads captions of. Episodes are those of
`training.judge_episodes`, from starts that no training or evaluation uses. On one core the ketchup task takes some
minutes, one of MetaWorld's less than one, and --repeats as many times that; --cache keeps the language model's answers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from rl_reward.envs import make
from rl_reward.errors import ConfigError
from rl_reward.evaluation.intervals import Interval, percentiles
from rl_reward.evaluation.progress_report import progress_report
from rl_reward.experiments.config import Experiment, load
from rl_reward.experiments.sac import SacArm, SacConfig, check_captions
from rl_reward.rewards import ProgressJudge
from training.judge_episodes import CARRIED, PUSHED, Episode, kinds_of, phases_of

CONFIG = "configs/sac/libero_ketchup.yaml"
# Changes of the true progress in one decision that count as none, and as a step ahead.
STILL, AHEAD = 0.01, 0.05
DRAWS = 2_000
Curves = dict[str, list[NDArray[np.float64]]]


def main(arguments: list[str] | None = None) -> None:
    """Play, judge, print and write."""
    parser = argparse.ArgumentParser(description="how well judges read progress")
    parser.add_argument("--config", default=CONFIG, help="YAML file of a SAC experiment with carry")
    parser.add_argument("--task", help="name of the experiment, where the file holds several")
    parser.add_argument("--out", type=Path, required=True, help="folder for report.md and report.json")
    parser.add_argument("--model", default="gemma-3-270m", help="fetched model, or the folder of one")
    parser.add_argument("--repeats", type=int, nargs="+", default=[1], help="how often it is asked about a caption")
    parser.add_argument("--each", type=int, default=15, help="episodes of each kind")
    parser.add_argument("--threshold", type=float, default=0.8, help="final score that counts as judged a success")
    parser.add_argument("--cache", help="file that keeps the language model's answers")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    config: SacConfig = chosen(load(options.config), options.task).settings

    # 1. Episodes, with captions that print numbers and with captions in words only.
    starts = {"starts": "sampled"} if "starts" in config.options else {}
    env = make(config.env, **{**config.options, **starts, "stride": config.chunk})
    arms = arms_of(options.model, options.repeats, options.cache)
    for arm in arms.values():
        check_captions(config, arm, env)
    kinds = kinds_of(env, config, options.each)
    episodes = [episode for kind in kinds.values() for episode in kind]

    # 2. Judges.
    print(f"{len(episodes)} episodes, {sum(len(steps) for steps, _ in episodes)} states", flush=True)
    curves: Curves = {}
    for name, arm in arms.items():
        judge = arm.judge_of(config, 0)
        assert judge is not None
        curves[name] = judged(judge, env.task, episodes, name)
    env.close()

    # 3. The report: over all, and with each kind of failure alone.
    solved = [success for _, success in episodes]
    lines: list[str] = []
    records: dict[str, Any] = {}
    for against in [kind for kind in kinds if kind != "success"]:
        picked = [i for kind, members in indices(kinds).items() if kind in ("success", against) for i in members]
        report = progress_report(
            {name: [curves[name][i] for i in picked] for name in curves},
            [solved[i] for i in picked],
            threshold=options.threshold,
            reference="caption-rule",
        )
        lines += [f"Successes against {against} episodes:", "", "```", report.table(), "```", ""]
        records[against] = asdict(report)
    changes = [changes_of(name, curves) for name in curves]
    records["changes"] = [asdict(row) for row in changes]
    lines += ["Mean score (standard deviation) by what is going on:", "", *by_phase(episodes, curves), ""]
    lines += ["Changes from one decision to the next, which is what potential shaping pays:", "", *table(changes)]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "report.md").write_text("\n".join(lines) + "\n")
    (options.out / "report.json").write_text(json.dumps(records, indent=1) + "\n")
    print("\n".join(lines))


@dataclass(frozen=True)
class Changes:
    """How the changes of a judge's scores from one decision to the next go with those of the true progress."""

    judge: str
    """Its name."""
    correlation: float | None
    """Pearson correlation with the true changes, over all episodes, in [-1, 1]; None where either does not vary."""
    interval: Interval | None
    """95 % interval of it: whole episodes are drawn again."""
    noise: float | None
    """Standard deviation of the changes where the truth moves less than `STILL`; None where it never does."""
    falls: float | None
    """Share of the changes that are negative where the truth gains more than `AHEAD`; None where it never does."""
    changes: int
    """Changes that have a score at both ends."""
    still: int
    """Those where the truth moves less than `STILL`."""
    ahead: int
    """Those where it gains more than `AHEAD`."""


def chosen(experiments: Sequence[Experiment], task: str | None) -> Experiment:
    """Return the experiment called `task`, or the only one."""
    found = [one for one in experiments if task in (None, one.name)]
    if len(found) != 1:
        names = ", ".join(one.name for one in experiments)
        raise ConfigError(f"--task must name one of the experiments {names}, got {task!r}")
    if not isinstance(found[0].settings, SacConfig):
        raise ConfigError(f"{found[0].name} must be an experiment of kind sac, got {found[0].kind}")
    return found[0]


def arms_of(model: str, repeats: Sequence[int], cache: str | None) -> dict[str, SacArm]:
    """Return the judges by name, each as an arm would have it."""
    reader = SacArm(model, judge=f"local:{model}", reads="captions", cache=cache, weight=1.0)
    readers = {model if k == 1 else f"{model} x {k}": replace(reader, repeats=k) for k in repeats}
    return {
        "oracle": SacArm("oracle", judge="oracle", weight=1.0),
        "simulated(noise=0.1)": SacArm("simulated(noise=0.1)", judge="simulated", noise=0.1, weight=1.0),
        "caption-rule": SacArm("caption-rule", judge="caption-rule", weight=1.0),
        **readers,
    }


def judged(judge: ProgressJudge, task: str, episodes: Sequence[Episode], name: str) -> list[NDArray[np.float64]]:
    """Return the curves of all episodes, one call each so that the bar moves."""
    return [judge.track_many([(task, steps)])[0].values for steps, _ in tqdm(episodes, name)]


def by_phase(episodes: Sequence[Episode], curves: Curves) -> list[str]:
    """Return a table of what each judge says in each phase, over all states of all episodes."""
    found = np.array([phase for episode in episodes for phase in phases_of(episode)])
    rows = [f"| phase | states | {' | '.join(curves)} |", f"| --- | ---: |{' ---: |' * len(curves)}"]
    for name in CARRIED if set(found) <= set(CARRIED) else PUSHED:
        here = found == name
        scores = [np.concatenate(episode_curves)[here] for episode_curves in curves.values()]
        cells = [f"{np.nanmean(one):.2f} ({np.nanstd(one):.2f})" if here.any() else "-" for one in scores]
        rows.append(f"| {name} | {here.sum()} | {' | '.join(cells)} |")
    return rows


def changes_of(judge: str, curves: Curves) -> Changes:
    """Return how the changes of `judge` go with those of the oracle, over all episodes."""
    pairs = [known_changes(own, true) for own, true in zip(curves[judge], curves["oracle"], strict=True)]
    again: list[list[int]] = np.random.default_rng(0).integers(len(pairs), size=(DRAWS, len(pairs))).tolist()
    draws = [correlation([pairs[i] for i in episodes]) for episodes in again]
    known = np.array([draw for draw in draws if draw is not None])
    own, true = (np.concatenate([pair[which] for pair in pairs]) for which in (0, 1))
    still, ahead = np.abs(true) < STILL, true > AHEAD
    return Changes(
        judge=judge,
        correlation=correlation(pairs),
        interval=Interval(*map(float, percentiles(known))) if known.size else None,
        noise=float(own[still].std()) if still.any() else None,
        falls=float(np.mean(own[ahead] < 0)) if ahead.any() else None,
        changes=own.size,
        still=int(still.sum()),
        ahead=int(ahead.sum()),
    )


def known_changes(own: NDArray[np.float64], true: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the changes of two curves side by side, [2, S], where both have a score before and after."""
    changes = np.diff(np.stack([own, true]))
    return changes[:, ~np.isnan(changes).any(axis=0)]


def correlation(pairs: Sequence[NDArray[np.float64]]) -> float | None:
    """Return Pearson's correlation of two judges' changes, one pair [2, S] an episode; None where one is constant."""
    both = np.concatenate(list(pairs), axis=1)
    if not both.size or not (np.ptp(both, axis=1) > 0).all():
        return None
    matrix: Any = np.corrcoef(both)
    return float(matrix[0, 1])


def table(rows: Sequence[Changes]) -> list[str]:
    """Return the table of changes, its counts below."""
    lines = [
        f"| judge | correlation [95 %] | deviation where the truth moves less than {STILL} "
        f"| falls where it gains {AHEAD} |",
        "| --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        within = f" [{row.interval.low:.2f}, {row.interval.high:.2f}]" if row.interval else ""
        cells = ("-" if one is None else f"{one:.2f}" for one in (row.noise, row.falls))
        found = "-" if row.correlation is None else f"{row.correlation:.2f}{within}"
        lines.append(f"| {row.judge} | {found} | {' | '.join(cells)} |")
    return [*lines, "", f"{rows[0].changes} changes, {rows[0].still} of them still, {rows[0].ahead} ahead"]


def indices(kinds: dict[str, list[Episode]]) -> dict[str, list[int]]:
    """Return where the episodes of each kind stand in the list of all."""
    ends = np.cumsum([len(members) for members in kinds.values()])
    return {kind: list(range(end - len(kinds[kind]), end)) for kind, end in zip(kinds, ends.tolist(), strict=True)}


if __name__ == "__main__":
    main()
