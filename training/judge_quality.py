"""How good must a judge be? The primary endpoint of `configs/grpo/judge_quality.yaml` against each judge's accuracy.

    rl-reward compare configs/grpo/judge_quality.yaml --out training/results --jobs 2
    python -m training.judge_quality training/results/judge_quality

Every judge is simulated: it knows the truth, and errs by a known amount. Its accuracy is measured in the mode of its
arm, on answers of the pretrained policy to held-out problems. About a minute on one core.
"""

# matplotlib leaves its keyword arguments untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from matplotlib.transforms import offset_copy
from numpy.typing import NDArray

from rl_reward.adapters.trl.judging import EMPTY_COMPLETION
from rl_reward.evaluation.agreement import pair_counts
from rl_reward.evaluation.efficiency import PairedDifference
from rl_reward.experiments.additions.task import Addition, correct, partial_credit, problems
from rl_reward.experiments.config import load
from rl_reward.experiments.grpo import GrpoArm, GrpoConfig
from rl_reward.experiments.grpo_judges import judge_of
from rl_reward.experiments.results import Comparison
from rl_reward.experiments.summary import Summary, summarize
from rl_reward.experiments.tables import Table, signed
from rl_reward.steps import separated_by
from training.build_additions import written

Array = NDArray[np.float64]
CONFIG = "configs/grpo/judge_quality.yaml"
GROUP = 8
USES = ("pointwise", "tournament", "step credit")
FAULTS = {
    "noise": ("o", "#0072B2"),
    "length bias": ("^", "#009E73"),
    "slot bias": ("s", "#E69F00"),
    "shuffled": ("X", "#8C8C8C"),
}


@dataclass(frozen=True)
class Measured:
    """One arm: how good its judge is, and what came of it."""

    name: str
    """The arm."""
    use: str
    """One of `USES`."""
    fault: str
    """One of `FAULTS`."""
    size: float
    """How much of it; 0: none, or the judge is shuffled."""
    right_above_wrong: float
    """Share of pairs of a right and a wrong answer that the judge orders right, ties one half."""
    better_above_worse: float
    """The same for pairs with different shares of right numbers, in groups without a right answer."""
    difference: PairedDifference
    """Area of the arm minus that of the sparse one, paired over seeds."""


def main(arguments: list[str] | None = None) -> None:
    """Measure the judges, and write table and figure."""
    parser = argparse.ArgumentParser(description="accuracy of simulated judges, and what training on them gives")
    parser.add_argument("folder", type=Path, help="where `rl-reward compare` wrote results.json")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    experiment = load(CONFIG)[0]
    summary = summarize(Comparison.load(options.folder / "results.json"))

    # 1. Answers of the policy that training starts from: every held-out problem eight times.
    torch.manual_seed(3)
    dataset = experiment.settings.dataset
    groups = grouped(written(dataset, "evaluation", GROUP * len(problems("evaluation", dataset)), 1.0))

    # 2. Every judge on them.
    arms = [arm for name, arm in experiment.arms.items() if name in summary.against]
    measured = [measure(experiment.settings, arm, groups, summary) for arm in arms]

    # 3. What came out.
    report = table(measured).markdown()
    (options.folder / "accuracy.md").write_text(report + "\n")
    figure(measured, summary).savefig(options.folder / "accuracy.png", format="png")
    print(report)


def grouped(answers: Sequence[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Return (prompt, working) pairs as the reward hears them, those of one prompt together."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for prompt, working in answers:
        groups.setdefault(prompt, []).append((prompt, working or EMPTY_COMPLETION))
    return list(groups.values())


def measure(
    config: GrpoConfig, arm: GrpoArm, groups: Sequence[Sequence[tuple[str, str]]], summary: Summary
) -> Measured:
    """Return how well the judge of `arm` orders the answers of each group, beside the arm's endpoint."""
    scores = asyncio.run(judged(config, arm, groups))
    right = [np.array([correct(w, Addition.parse(p).answer) for p, w in group], dtype=float) for group in groups]
    share = [np.array([partial_credit(p, w) for p, w in group]) for group in groups]
    hopeless = [not right_G.any() for right_G in right]
    difference = summary.against[arm.name].difference
    assert difference is not None
    fault, size = fault_of(arm)
    return Measured(
        arm.name,
        "step credit" if arm.credit != "none" else arm.mode,
        fault,
        size,
        accuracy(scores, right),
        accuracy(*([one for one, h in zip(of, hopeless, strict=True) if h] for of in (scores, share))),
        difference,
    )


def fault_of(arm: GrpoArm) -> tuple[str, float]:
    """Return what is wrong with the judge of `arm`, and how much."""
    if arm.shuffled:
        return "shuffled", 0.0
    biases = {"length bias": arm.length_bias, "slot bias": arm.slot_bias}
    return next(((fault, size) for fault, size in biases.items() if size), ("noise", arm.noise))


async def judged(config: GrpoConfig, arm: GrpoArm, groups: Sequence[Sequence[tuple[str, str]]]) -> list[Array]:
    """Return the scores of each group, asked as the arm asks."""
    judge: Any = judge_of(config, arm, seed=0)
    if arm.mode == "tournament":
        # Equal answers enter once, as in training.
        entries = [list(dict.fromkeys(w for _, w in group)) for group in groups]
        rankings = await judge.arank_many([(g[0][0], e) for g, e in zip(groups, entries, strict=True)], pivots=2)
        found = [dict(zip(e, r.scores, strict=True)) for e, r in zip(entries, rankings, strict=True)]
        return [np.array([of[w] for _, w in group]) for of, group in zip(found, groups, strict=True)]
    flat = [pair for group in groups for pair in group]
    if arm.credit != "none":
        split = separated_by(";", "#")
        curves = await judge.atrack_many([(p, [w[start:end] for start, end in split(w)]) for p, w in flat])
        values = [curve.values[-1] for curve in curves]
    else:
        values = [score.value for score in await judge.ascore_many(flat)]
    return list(np.array(values, dtype=float).reshape(len(groups), -1))


def accuracy(scores: Sequence[Array], truth: Sequence[Array]) -> float:
    """Return the share of pairs inside groups whose truth differs that the scores order alike, ties one half."""
    better: list[Array] = []
    worse: list[Array] = []
    for scores_G, truth_G in zip(scores, truth, strict=True):
        above_GG = truth_G[:, None] > truth_G[None, :]
        first, second = np.nonzero(above_GG)
        better.append(scores_G[first])
        worse.append(scores_G[second])
    found = pair_counts(np.concatenate(better), np.concatenate(worse)).accuracy_ties_half
    assert found is not None
    return found


def table(measured: Sequence[Measured]) -> Table:
    """Return accuracy and endpoint of every arm."""
    head = ("arm", "right above wrong", "better above worse, all wrong", "area minus sparse [95 %]")
    rows = [
        (one.name, f"{one.right_above_wrong:.2f}", f"{one.better_above_worse:.2f}", signed(one.difference))
        for one in measured
    ]
    return Table(head, rows)


def figure(measured: Sequence[Measured], summary: Summary) -> Figure:
    """Return the endpoint over the accuracy, one panel for each way to use a judge, one marker for each fault."""
    picture = Figure(figsize=(10.5, 4.2), dpi=160, layout="constrained")
    panels = picture.subplots(1, len(USES), sharex=True, sharey=True)
    # By hand, because markers that are moved aside do not count when limits are found.
    ends = [end for one in measured if (around := one.difference.interval) for end in (around.low, around.high)]
    panels[0].set(xlim=(0.46, 1.08), ylim=(min(ends) - 0.01, max(ends) + 0.01))
    for axes, use in zip(panels, USES, strict=True):
        axes.axhline(0.0, color="black", lw=1)
        axes.axvline(0.5, color="#999999", lw=0.8, ls=":")
        for one in (one for one in measured if one.use == use):
            mark(axes, one)
        axes.set_title(use)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    seeds = len(summary.arms[0].seeds)
    panels[0].set_ylabel(f"area under the accuracy curve minus\nthat of the sparse arm ({seeds} seeds, 95 % interval)")
    picture.supxlabel("pairs of a right and a wrong answer that the simulated judge orders right", fontsize=10)
    for fault, (marker, color) in FAULTS.items():
        panels[0].plot([], [], marker, color=color, label=fault)
    panels[0].legend(frameon=False, title="fault, its size beside it;\ndotted: chance", loc="lower left")
    return picture


def mark(axes: Any, one: Measured) -> None:
    """Draw one arm, beside others of the same accuracy rather than over them."""
    marker, color = FAULTS[one.fault]
    biased = "bias" in one.fault
    x, y, around = one.right_above_wrong, one.difference.mean, one.difference.interval
    assert around is not None, "judge quality needs several seeds"
    beside = offset_copy(axes.transData, axes.figure, 7 * biased, units="points")
    axes.plot((x, x), (around.low, around.high), color=color, lw=1, transform=beside)
    axes.plot(x, y, marker, color=color, transform=beside)
    if one.fault != "shuffled":
        small = {"ha": "left" if biased else "right", "size": 7, "color": color}
        axes.annotate(f"{one.size:g}", (x, y), (12 if biased else -5, 3), textcoords="offset points", **small)


if __name__ == "__main__":
    main()
