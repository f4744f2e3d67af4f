"""Judge one group of 16 beside the peer `llm-verifier` 0.3.0, and on a local model beside one prompt at a time.

    python -m training.bench_peer [http] [local] [--rounds N] [--latency S ...] [--local-model FOLDER] [--out FOLDER]

Both sides ask the same local server, 50 requests in flight, 3 criteria, 4 repeats, 2 pivots. Each runs in a process of
its own, after a warm-up, so that its CPU seconds are its own; the server counts what arrives. Idle, `http` with three
rounds takes half a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median, mode
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_reward import Verifier
from rl_reward.backends import OpenAICompatible
from rl_reward.experiments.facts import command, facts

ROOT = Path(__file__).parent.parent
PEER = "llm-verifier"
CRITERIA = {
    "Right": "Is every step of the work so far right, and does it serve the task?",
    "Complete": "How much of what the task asks for is there?",
    "Careful": "Are slips noticed and mended before the work goes on?",
}
N, PIVOTS, REPEATS, CONCURRENCY = 16, 2, 4, 50
BEST = 11
"""The candidate that the server finds best."""
TASK = "Add 17 and 25, and say how you did it."
WARM_UP = "Warm up: add 1 and 1."
PEER_SAYS = "expert evaluator of AI coding agents"
QUALITY = r"quality (\d+) of 16"
ROWS = ("requests", "connections", "most_in_flight", "seconds", "cpu_seconds", "cpu_ms_per_request", "wall_over_ideal")

Judged = Callable[[str, list[str]], int]
"""Task and candidates in, the number of the best one out."""


def group() -> list[str]:
    """Return the 16 candidates of one group; the server reads how good each is."""
    return [f"{17 + 25 + i - BEST}, as 7 + 5 = 12 and 10 + 20 = 30; quality {quality(i)} of 16." for i in range(N)]


def quality(candidate: int) -> int:
    """Return how good a candidate is, 1 to 16."""
    return (candidate - BEST - 1) % N + 1


# -- The arms: each is made, warmed up and timed in its own process


def peer(url: str) -> Judged:
    """Return the peer's selection over its own client."""
    llm_verifier, openai = import_module("llm_verifier"), import_module("openai")
    client = openai.OpenAI(base_url=url, api_key="none")
    settings = {"criteria": CRITERIA, "model": "stub", "client": client, "max_workers": CONCURRENCY}

    def select(task: str, candidates: list[str]) -> int:
        found = llm_verifier.select(
            task, candidates, n_evaluations=REPEATS, pivots=PIVOTS, on_error="raise", **settings
        )
        return int(found.index)

    return select


def verifier(url: str, analysis: Any) -> Verifier:
    """Return ours with the peer's settings."""
    judge = OpenAICompatible("stub", base_url=url, api_key_env=None)
    return Verifier(judge, criteria=CRITERIA, repeats=REPEATS, analysis=analysis, max_concurrency=CONCURRENCY)


def ours(url: str, analysis: Any) -> Judged:
    """Return our ranking of one group."""
    judge = verifier(url, analysis)
    return lambda task, candidates: judge.rank(task, candidates, pivots=PIVOTS).order[0]


def eight_groups(url: str, analysis: Any) -> Judged:
    """Return our ranking of eight groups at once, as a trainer's batch asks."""
    judge = verifier(url, analysis)

    def rank(task: str, candidates: list[str]) -> int:
        groups = [(task, [f"Try {n}. {one}" for one in candidates]) for n in range(8)]
        # Where the ring leaves the best candidate out of the pivots, another may win.
        best = mode(found.order[0] for found in judge.rank_many(groups, pivots=PIVOTS))
        return best

    return rank


ARMS: dict[str, Callable[[str], Judged]] = {
    "peer": peer,
    "ours, no analysis": lambda url: ours(url, "none"),
    "ours, sampled analysis": lambda url: ours(url, "sampled"),
    "ours, eight groups, no analysis": lambda url: eight_groups(url, "none"),
    "ours, eight groups, sampled analysis": lambda url: eight_groups(url, "sampled"),
}


def run_arm(name: str, url: str) -> None:
    """Judge the group and print what it took."""
    judged = ARMS[name](url)
    judged(WARM_UP, ["1 + 1 = 2", "1 + 1 = 3"])
    wall, cpu = time.perf_counter(), cpu_seconds()
    best = judged(TASK, group())
    print(json.dumps({"seconds": time.perf_counter() - wall, "cpu_seconds": cpu_seconds() - cpu, "best": best}))


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, all threads, user and system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# -- The server's side


def letters(messages: list[dict[str, Any]], tag: str) -> Mapping[str, float]:
    """Return a sharp distribution at the letter that says how good the candidate in the slot of `tag` is."""
    question = messages[-1 if messages[-1]["role"] == "user" else -2]["content"]
    found = [int(quality) for quality in re.findall(QUALITY, question)]
    if len(found) < 2:
        return {"T": 0.9, "The": 0.1}
    good = found[tag.endswith("B")]
    # The peer's scale runs the other way: A is best.
    level = 19 - good if PEER_SAYS in question else good
    return {chr(ord("A") + level): 0.9, "The": 0.1}


def measured(arm: str, latency: float) -> dict[str, float]:
    """Run one arm against a server of its own and return what it took and what the server saw."""
    sys.path.insert(0, str(ROOT / "tests"))
    with import_module("protocol_server").StubServer(letters, latency=latency) as server:
        command = [sys.executable, "-m", "training.bench_peer", "--arm", arm, "--url", server.base_url]
        said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
        requests = sum(WARM_UP not in json.dumps(body["messages"]) for body in server.bodies)
        seen = {"connections": len(server.connections), "most_in_flight": server.max_in_flight}
    took = json.loads(said.splitlines()[-1])
    if took["best"] != BEST:
        raise AssertionError(f"{arm} found candidate {took['best']} best, the server says {BEST}")
    return {
        "requests": requests,
        **seen,
        **took,
        "cpu_ms_per_request": 1000 * took["cpu_seconds"] / requests,
        "wall_over_ideal": took["seconds"] / (latency * requests / CONCURRENCY),
        "load": os.getloadavg()[0],
    }


def http(latency: float, rounds: int) -> dict[str, Any]:
    """Return the medians of every arm, and how many times fewer ours takes than the peer; arms alternate."""
    found: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
    for _ in range(rounds):
        for arm in ARMS:
            found[arm].append(measured(arm, latency))
            print(arm, found[arm][-1], file=sys.stderr, flush=True)
    arms = {arm: {row: median(one[row] for one in runs) for row in (*ROWS, "load")} for arm, runs in found.items()}
    return {"latency": latency, "rounds": rounds, "arms": arms, "fewer": fewer(found), "runs": found}


def fewer(found: Mapping[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the medians over rounds of the peer's requests and seconds over ours."""
    sides = [arm for arm in found if arm.startswith("ours") and "eight" not in arm]
    rows = ("requests", "seconds", "cpu_seconds")
    return {
        arm: {
            row: median(theirs[row] / one[row] for theirs, one in zip(found["peer"], found[arm], strict=True))
            for row in rows
        }
        for arm in sides
    }


# -- A local model: the group of 16 in one go against one prompt at a time


def local(folder: str | None, rounds: int) -> dict[str, Any]:
    """Return what one group takes, scored one by one and as a tournament, in both ways of asking, sides in turn."""
    from rl_reward.backends import TransformersLocal
    from training.bench import random_model

    model = folder or random_model()
    criteria = dict(list(CRITERIA.items())[:1])
    asks: dict[str, Callable[[Verifier], Sequence[float | None]]] = {
        "pointwise, 3 criteria": lambda judge: [
            score.value for score in judge.score_many([(TASK, one) for one in group()])
        ],
        "tournament, 1 criterion": lambda judge: judge.rank_many([(TASK, group())], pivots=PIVOTS, criteria=criteria)[
            0
        ].scores.tolist(),
    }
    sides = {
        "together": Verifier(TransformersLocal(model), criteria=CRITERIA, min_coverage=0.0, max_concurrency=1000),
        # Room for one token keeps nothing from one prompt to the next.
        "one_at_a_time": Verifier(
            TransformersLocal(model, max_cached_tokens=1), criteria=CRITERIA, min_coverage=0.0, max_concurrency=1
        ),
    }
    for judge in sides.values():
        judge.score("Warm up.", "Ready.")
    results = {name: compared(sides, ask, rounds) for name, ask in asks.items()}
    return {"model": Path(model).name if folder else "small LLaMA, random weights", "rounds": rounds, **results}


def compared(
    sides: Mapping[str, Verifier], ask: Callable[[Verifier], Sequence[float | None]], rounds: int
) -> dict[str, float | list[float]]:
    """Return seconds and CPU seconds of every round of both sides, the median ratios, and how far scores differ."""
    took: dict[str, list[float]] = {f"{kind}_{side}": [] for kind in ("seconds", "cpu_seconds") for side in sides}
    said: dict[str, NDArray[np.float64]] = {}
    for _ in range(rounds):
        for side, judge in sides.items():
            wall, cpu = time.perf_counter(), cpu_seconds()
            said[side] = np.array(ask(judge), np.float64)
            took[f"seconds_{side}"].append(time.perf_counter() - wall)
            took[f"cpu_seconds_{side}"].append(cpu_seconds() - cpu)
    ratios = {
        f"fewer_{kind}": median(
            alone / shared
            for alone, shared in zip(took[f"{kind}_one_at_a_time"], took[f"{kind}_together"], strict=True)
        )
        for kind in ("seconds", "cpu_seconds")
    }
    gap = float(np.abs(np.subtract(*said.values())).max())
    print(took, ratios, gap, file=sys.stderr, flush=True)
    return {**took, **ratios, "largest_difference": gap}


# -- The report


def table(result: Mapping[str, Any]) -> str:
    """Return one latency's medians as a Markdown table."""
    lines = [
        f"## {1000 * result['latency']:g} ms, {result['rounds']} rounds, medians",
        "",
        f"| | {' | '.join(row.replace('_', ' ') for row in ROWS)} |",
        f"|---{'|---' * len(ROWS)}|",
    ]
    lines += [f"| {arm} | {' | '.join(f'{took[row]:.4g}' for row in ROWS)} |" for arm, took in result["arms"].items()]
    for arm, times in result["fewer"].items():
        lines += [
            "",
            f"{arm}: " + ", ".join(f"{value:.3g}x fewer {row.replace('_', ' ')}" for row, value in times.items()),
        ]
    return "\n".join([*lines, ""])


def main() -> None:
    """Run what is named on the command line, by default the HTTP arms, and write `peer.json` and `peer.md`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=("http", "local"), default="http")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", type=float, nargs="+", default=(0.02, 0.2), help="seconds before each answer")
    parser.add_argument("--local-model", help="folder of a causal language model; default: random weights")
    parser.add_argument("--out", type=Path, help="write the numbers to peer.json in this folder, keeping others there")
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm:
        return run_arm(options.arm, options.url)
    kept = options.out / "peer.json" if options.out else None
    results: dict[str, Any] = json.loads(kept.read_text()) if kept and kept.exists() else {}
    head = {**facts(), PEER: version(PEER), "command": command("python -m training.bench_peer")}
    if "http" in options.which:
        latencies = [http(latency, options.rounds) for latency in options.latency]
        results["http"] = {"facts": head, "latencies": latencies}
        print(*map(table, latencies), sep="\n")
    if "local" in options.which:
        results["local"] = {"facts": head, "load": os.getloadavg()[0], **local(options.local_model, options.rounds)}
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
