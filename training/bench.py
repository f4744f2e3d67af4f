"""Benchmarks, as ratios within one run: HTTP judging, shared prefixes of a local model, the relabelling buffer.

    python -m training.bench [http] [local] [sac] [overlap] [memory] [libero] [--local-model FOLDER] [--out FILE]

The machine's other work moves seconds, and ratios less; every comparison alternates its two sides.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from rl_reward import Shaping, Step, Verifier
from rl_reward.backends import OpenAICompatible, Simulated, TransformersLocal
from rl_reward.envs import make
from rl_reward.envs.base import TaskEnv
from rl_reward.experiments.facts import facts
from rl_reward.judges.captions import CaptionJudge
from rl_reward.rewards import Oracle
from rl_reward.scores import ProgressCurve
from rl_reward.types import Usage

ROOT = Path(__file__).parent.parent
KETCHUP = "libero_object/pick_up_the_ketchup_and_place_it_in_the_basket"
CRITERIA = {
    "Right": "Is every step of the work so far right, and does it serve the task?",
    "Complete": "How much of what the task asks for is there?",
    "Careful": "Are slips noticed and mended before the work goes on?",
}


# -- HTTP: 16 candidates x 3 criteria x 4 sampled repeats against a stub server that answers after 20 ms


def http(latency: float = 0.02, concurrency: int = 50) -> dict[str, float]:
    """Return requests per second and CPU seconds per request of one group judged over HTTP."""
    with stub_server(latency) as base_url:
        judge = OpenAICompatible("stub", base_url=base_url, api_key_env=None)
        verifier = Verifier(judge, criteria=CRITERIA, repeats=4, analysis="sampled", max_concurrency=concurrency)
        pairs = [("Add 17 and 25.", f"17 + 25 = {40 + n}") for n in range(16)]
        verifier.score_many([("Warm up.", f"{n}") for n in range(concurrency)])
        wall, cpu, scores = timed(lambda: verifier.score_many(pairs))
    requests = sum((score.usage for score in scores), Usage()).calls
    return {
        "requests": requests,
        "seconds": wall,
        "requests_per_second": requests / wall,
        "cpu_seconds_per_request": cpu / requests,
        "wall_over_ideal": wall / (latency * requests / concurrency),
    }


@contextmanager
def stub_server(latency: float) -> Generator[str]:
    """Serve in a process of its own, so that CPU seconds here are the client's alone."""
    command = [sys.executable, str(ROOT / "tests" / "protocol_server.py"), "--latency", str(latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


# -- Local model: 20 checkpoints x 3 criteria in one go against one prompt at a time


def local(model: str | None, checkpoints: int = 20) -> dict[str, float]:
    """Return the seconds of one tracked episode, shared prefixes against one prompt at a time."""
    folder = model or random_model()
    steps = [
        Step(
            f"{t}: the gripper moves {3 * t} cm towards the red cube, slows down and stops above it; the cube stays "
            "where it is, the bowl is empty, and nothing else on the table has moved since the step before."
        )
        for t in range(checkpoints)
    ]
    settings: dict[str, Any] = {"criteria": CRITERIA, "min_coverage": 0.0}
    together = Verifier(TransformersLocal(folder), **settings, max_concurrency=1000)
    # Room for one token keeps nothing from one prompt to the next.
    alone = Verifier(TransformersLocal(folder, max_cached_tokens=1), **settings, max_concurrency=1)
    task = "Pick up the red cube and put it into the bowl."
    for verifier in (together, alone):
        verifier.track("Warm up.", ["Ready."])
    shared_wall, shared_cpu, shared = timed(lambda: together.track(task, steps))
    single_wall, single_cpu, single = timed(lambda: alone.track(task, steps))
    return {
        "prompts": checkpoints * len(CRITERIA),
        "seconds_shared": shared_wall,
        "seconds_one_at_a_time": single_wall,
        "speed_up": single_wall / shared_wall,
        "speed_up_in_cpu_seconds": single_cpu / shared_cpu,
        "largest_difference": float(np.abs(shared.values - single.values).max()),
    }


# -- SAC: the relabelling buffer with an instant judge against stable-baselines3's own buffer


def sac(steps: int = 1500, rounds: int = 3) -> dict[str, float]:
    """Return environment steps per second with either buffer, and the ratio of their medians."""
    sides: dict[str, Callable[[], None]] = {
        "own_buffer": lambda: train(False, steps),
        "relabelled": lambda: train(True, steps),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            seconds[name].append(timed(side)[0])
    speeds = {f"steps_per_second_{name}": steps / float(np.median(values)) for name, values in seconds.items()}
    return {**speeds, "ratio": float(np.median(seconds["own_buffer"]) / np.median(seconds["relabelled"]))}


def train(relabelled: bool, steps: int) -> None:
    """Run SAC on FetchReach with the same settings and either buffer."""
    learn(steps, **(relabelling(Oracle(), Shaping("potential", gamma=0.95)) if relabelled else {}))


def learn(steps: int, callback: Any = None, env: Any = None, **extra: Any) -> None:
    """Run SAC on FetchReach."""
    from stable_baselines3 import SAC

    from rl_reward.envs import make

    env = env or make("fetch/FetchReach-v4", flat=True, reward="minus_one_zero")
    settings: dict[str, Any] = {"gamma": 0.95, "learning_starts": 100, "buffer_size": steps, **extra}
    model = SAC("MlpPolicy", env, policy_kwargs={"net_arch": [64, 64]}, seed=0, **settings)
    model.learn(steps, callback=callback)  # pyright: ignore[reportUnknownMemberType]
    env.close()


def relabelling(judge: Any, shaping: Shaping, **settings: Any) -> dict[str, Any]:
    """Return the arguments of `learn` that put the relabelling buffer in."""
    from rl_reward.adapters.sb3 import RelabelCallback, RelabelReplayBuffer

    kwargs = {"shaping": shaping, **settings}
    callback = RelabelCallback(judge)
    return {"callback": callback, "replay_buffer_class": RelabelReplayBuffer, "replay_buffer_kwargs": kwargs}


# -- Overlap: a judge as slow as an episode, beside the simulator and in its way, against no judge at all


EPISODE = 50


@dataclass(frozen=True)
class Slow:
    """The oracle, late: it sleeps before it answers, as one that waits for a server does."""

    seconds: float
    """Wall seconds an episode takes."""
    name: str = "slow(oracle)"
    """As tables call it."""
    megabytes: list[float] = field(default_factory=list[float])
    """Resident memory of the process at each call."""

    def track_many(self, episodes: Sequence[tuple[str, Sequence[Step]]], *, every: int = 1) -> list[ProgressCurve]:
        """Sleep, and answer."""
        self.megabytes.append(psutil.Process().memory_info().rss / 2**20)
        time.sleep(self.seconds * len(episodes))
        return Oracle().track_many(episodes, every=every)


def overlap(steps: int = 2000, rounds: int = 3) -> dict[str, float]:
    """Return the speed with a judge as slow as an episode over the speed without, in the background and at once."""
    dense, sparse, lag = Shaping("potential", gamma=0.95), Shaping(weight=0.0, gamma=0.95), 3 * EPISODE
    ratios: dict[str, list[float]] = {"background": [], "at_once": []}
    unjudged: list[float] = []
    for _ in range(rounds):
        alone = speed(steps, relabelling(None, sparse, lag=lag))
        unjudged.append(alone)
        for name, held in (("background", lag), ("at_once", 0)):
            judged = relabelling(Slow(EPISODE / alone), dense, lag=held)
            ratios[name].append(speed(steps, judged) / alone)
    medians = {f"ratio_{name}": float(np.median(found)) for name, found in ratios.items()}
    return {**medians, "lag_in_env_steps": lag, "steps_per_second_unjudged": float(np.median(unjudged))}


def speed(steps: int, extra: dict[str, Any]) -> float:
    """Return env steps per second of a run, its last answers included."""
    return steps / timed(lambda: learn(steps, learning_starts=4 * EPISODE, **extra))[0]


# -- Memory: resident set over 200 episodes whose steps carry frames


def memory(episodes: int = 200, settled: int = 20) -> dict[str, float]:
    """Return the largest resident memory after the first `settled` episodes over that at their end."""
    from rl_reward.envs import make

    env: Any = make("fetch/FetchReach-v4", flat=True, stride=5, frames=True)
    random = np.random.default_rng(0)
    env.frame = lambda: random.integers(256, size=(224, 224, 3), dtype=np.uint8)  # no simulator renders that fast
    judge = Slow(0.01)
    extra = relabelling(judge, Shaping("potential", gamma=0.95), lag=3 * EPISODE)
    options: dict[str, Any] = {"learning_starts": 4 * EPISODE, "buffer_size": 10 * EPISODE, "train_freq": EPISODE}
    learn(episodes * EPISODE, env=env, gradient_steps=10, **options, **extra)
    megabytes = judge.megabytes
    frames = len(megabytes) * (EPISODE // 5 + 1)
    return {
        "ratio": max(megabytes[settled:]) / megabytes[settled],
        "megabytes_at_the_end": megabytes[-1],
        "megabytes_of_frames_seen": frames * 224 * 224 * 3 / 2**20,
    }


# -- Shared


# -- LIBERO: steps per second under both physics; frames and questions, neither wasted


def libero(steps: int = 200, rounds: int = 3) -> dict[str, float]:
    """Return steps per second with the published and the lite physics, and what one judged episode asks for."""
    envs = {name: make(KETCHUP, lite_physics=name == "lite", stride=10**9) for name in ("published", "lite")}
    moves = np.random.default_rng(0).uniform(-1, 1, (steps, 7)).astype(np.float32)
    speeds: dict[str, list[float]] = {name: [] for name in envs}
    for _ in range(rounds):
        for name, env in envs.items():
            env.reset(seed=0)
            speeds[name].append(steps / timed(lambda env=env: [env.step(move) for move in moves])[0])
    for env in envs.values():
        env.close()
    published, lite = (float(np.median(speeds[name])) for name in envs)
    return {
        "steps_per_second_published": published,
        "steps_per_second_lite": lite,
        "ratio": lite / published,
        **asked(),
    }


def asked(episodes: int = 5) -> dict[str, float]:
    """Return frames rendered per frame judged, and judge calls per distinct caption, over whole episodes."""
    env = make(KETCHUP, lite_physics=True, stride=10, frames=True, frame_size=64, numbers=False)
    draw, rendered = env.frame, [0]

    def counted() -> Any:
        rendered[0] += 1
        return draw()

    env.frame = counted
    judge = CaptionJudge(Verifier(Simulated(lambda request: 0.5)))
    judged, captions = 0, set[str]()
    for episode in range(episodes):
        steps = walk(env, episode)
        judged += len(steps)
        captions |= {step.text for step in steps}
        judge.track_many([(env.task, steps)])
    env.close()
    return {"frames_per_frame_judged": rendered[0] / judged, "calls_per_caption": judge.asked / len(captions)}


def walk(env: TaskEnv, seed: int) -> list[Step]:
    """Return the judge's steps of one episode of random moves."""
    env.action_space.seed(seed)
    _, info = env.reset(seed=seed)
    steps, over = [info["rl_reward"]], False
    while not over:
        *_, terminated, truncated, info = env.step(env.action_space.sample())
        steps += [info["rl_reward"]] if "rl_reward" in info else []
        over = terminated or truncated
    return steps


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return wall seconds, CPU seconds and result of `work`."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def random_model() -> str:
    """Write a small untrained LLaMA and return its folder: speed does not depend on what the weights say."""
    sys.path.insert(0, str(ROOT / "tests"))
    tiny_models: Any = import_module("tiny_models")
    return str(tiny_models.save_small(Path(tempfile.mkdtemp(prefix="rl-reward-bench-"))))


def main() -> None:
    """Run the benchmarks named on the command line, by default all that need no LIBERO, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("http", "local", "sac", "overlap", "memory")
    parser.add_argument("which", nargs="*", choices=(*names, "libero"), default=names)
    parser.add_argument(
        "--local-model", help="folder of a causal language model; default: a small one with random weights"
    )
    parser.add_argument("--out", type=Path, help="write the numbers as JSON to this file")
    options = parser.parse_args()
    benchmarks = {"http": http, "local": lambda: local(options.local_model), "sac": sac}
    benchmarks |= {"overlap": overlap, "memory": memory, "libero": libero}
    results: dict[str, Any] = {**facts(), "command": f"python -m training.bench {' '.join(options.which)}"}
    for name in options.which:
        results[name] = benchmarks[name]()
        print(name, *(f"  {key:<28} {value:.4g}" for key, value in results[name].items()), sep="\n", flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
