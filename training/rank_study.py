"""Which order is better: mean preference or Bradley-Terry, few pivots or many, side by side or one at a time?

    python -m training.rank_study --out training/results/rank_study

A simulated judge, whose true qualities are known, ranks groups of 16; Kendall's tau and how often the first is the
truly best, for every way to order and every judge. About two minutes on one core; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rl_reward import Ranking, Score, ScoreScale, Verifier
from rl_reward.backends import Simulated
from rl_reward.backends.base import Request
from rl_reward.scores import ranking_of
from rl_reward.tournament import call_budget, pivot_tournament, play
from rl_reward.types import Usage

Array = NDArray[np.float64]

N = 16
REPEATS = (1, 2, 3, 5)
PIVOTS = (0, 1, 2, 4, N)
JUDGES = {
    "no noise": {},
    "noise .1": {"noise": 0.1},
    "noise .3": {"noise": 0.3},
    "noise .2, slot bias .2": {"noise": 0.2, "slot_bias": 0.2},
    "noise .1, drift .2": {"noise": 0.1, "drift": 0.2},
}
"""Standard deviations: noise is drawn for every score read, drift for every request (both scores of a pair alike)."""


@dataclass(frozen=True)
class Quality:
    """How well one order of one group agrees with the truth."""

    tau: float
    """Kendall's tau with the true qualities."""
    top: float
    """Whether the candidate put first is the truly best one (ties: its share of the first place)."""


def main(arguments: list[str] | None = None) -> None:
    """Measure every order under every judge and write the tables."""
    parser = argparse.ArgumentParser(description="orders of simulated judges")
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="training/results/rank_study", help="folder of the tables")
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    started = time.process_time()
    measured = {name: measure(faults, options.groups, options.seed) for name, faults in JUDGES.items()}
    seconds = time.process_time() - started
    command = shlex.join(["python", "-m", "training.rank_study", *given])
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tables.md").write_text(report(measured, options.groups, command, seconds))
    print((folder / "tables.md").read_text())


def measure(faults: dict[str, float], n_groups: int, seed: int) -> dict[tuple[str, int], list[Quality]]:
    """Return the quality of every (order, calls) in every group."""
    random = np.random.default_rng(seed)
    truths = random.uniform(size=(n_groups, N))
    drift = faults.get("drift", 0.0)

    def truth(request: Request) -> float:
        group, candidate = int(request.task.split()[-1]), int(request.text.split()[-1])
        return float(np.clip(truths[group, candidate] + drift * shared_error(request), 0.0, 1.0))

    judge = Simulated(truth, seed=seed, **{name: size for name, size in faults.items() if name != "drift"})
    groups = [(f"task {group}", [f"candidate {i}" for i in range(N)]) for group in range(n_groups)]
    # The expectation of the simulated judge is the same on every scale; few letters are quick.
    scale = ScoreScale.letters(4)
    # A directed comparison is one question: the round robin holds the answers of every smaller tournament.
    robins = Verifier(judge, scale=scale).rank_many(groups, method="round_robin")
    singles = Verifier(judge, scale=scale, analysis="sampled", repeats=max(REPEATS))
    found: dict[tuple[str, int], list[Quality]] = {}
    for truth_N, robin, (task, candidates) in zip(truths, robins, groups, strict=True):
        alone = singles.score_many([(task, candidate) for candidate in candidates])
        for key, scores in {**tournaments(robin, random), **pointwise(alone)}.items():
            found.setdefault(key, []).append(quality(scores, truth_N))
    return found


def shared_error(request: Request) -> float:
    """Return a standard normal number that both candidates of a pair share."""
    told = "".join(message.text for message in request.messages) + str(request.draw)
    return float(np.random.default_rng(zlib.crc32(told.encode())).standard_normal())


def tournaments(robin: Ranking, random: np.random.Generator) -> dict[tuple[str, int], Array]:
    """Return the scores of one group by w/c and by Bradley-Terry strength, for every number of pivots."""
    known = {(pair.pairing.slot_a, pair.pairing.slot_b): pair.preference for pair in robin.pairs}
    scores: dict[tuple[str, int], Array] = {}
    for k in PIVOTS:
        ranking = ranking_of(play(pivot_tournament(N, k, random), lambda a, b: known[a, b]), N, Usage())
        name = "ring only" if k == 0 else f"{k} pivot{'s' * (k > 1)}"
        calls = call_budget(N, pivots=k).calls
        scores[f"{name}, w/c", calls] = ranking.scores
        scores[f"{name}, Bradley-Terry", calls] = ranking.strengths
    scores["round robin, w/c", len(robin.pairs)] = robin.scores
    scores["round robin, Bradley-Terry", len(robin.pairs)] = robin.strengths
    return scores


def pointwise(alone: list[Score]) -> dict[tuple[str, int], Array]:
    """Return the mean of the first K readings of each candidate, judged one at a time."""
    means = [[d.mean for read in score.distributions.values() for d in read] for score in alone]
    return {(f"pointwise, K={k}", k * N): np.mean([row[:k] for row in means], axis=1) for k in REPEATS}


def quality(scores_N: Array, truth_N: Array) -> Quality:
    """Return how well `scores_N` order the candidates of `truth_N`."""
    scores = np.round(scores_N, 9)
    first = scores == scores.max()
    # Pairs in the right order less those in the wrong one; the truth has no ties, a tie of the scores counts 0.
    agree = np.sign(scores[:, None] - scores) * np.sign(truth_N[:, None] - truth_N)
    tau = float(agree.sum()) / (N * (N - 1))
    return Quality(tau, float(first[truth_N.argmax()]) / int(first.sum()))


def report(
    measured: dict[str, dict[tuple[str, int], list[Quality]]], n_groups: int, command: str, seconds: float
) -> str:
    """Return the two tables as markdown."""
    told = f"{n_groups} groups of {N}; mean ± standard error over groups. `{command}`, {seconds:.0f} CPU seconds."
    taus = {judge: {key: [q.tau for q in rows] for key, rows in of.items()} for judge, of in measured.items()}
    tops = {judge: {key: [q.top for q in rows] for key, rows in of.items()} for judge, of in measured.items()}
    return f"{told}\n\n{_table('Kendall tau', taus)}\n\n{_table('The best is first', tops)}\n"


def _table(title: str, measured: dict[str, dict[tuple[str, int], list[float]]]) -> str:
    orders = sorted(next(iter(measured.values())), key=lambda key: (key[1], key[0]))
    lines = [f"### {title}", "", f"| order | calls | {' | '.join(measured)} |", f"|---|---|{'---|' * len(measured)}"]
    for name, calls in orders:
        cells = [_mean(of[name, calls]) for of in measured.values()]
        lines.append(f"| {name} | {calls} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.3f}"


if __name__ == "__main__":
    main()
