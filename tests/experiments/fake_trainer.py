"""A kind of experiment whose runs take no time and behave as their arm says."""

import os
import time
from dataclasses import dataclass

from rl_reward.errors import ConfigError
from rl_reward.experiments.results import RunResult


@dataclass(frozen=True)
class FakeConfig:
    x_label = "steps"
    y_label = "success"

    points: tuple[int, ...] = (0, 10)
    threads: int = 1


@dataclass(frozen=True)
class FakeArm:
    name: str
    final: float = 1.0
    behaviour: str = "finish"


def run(config, arm, seed, out, tick):
    """Leave a trace of having run, then finish or fail."""
    with (out.parent.parent / "order.txt").open("a") as trace:
        trace.write(f"{arm.name} {seed}\n")
    tick(1, 2)
    if arm.behaviour == "raise":
        raise ValueError("no luck\nat all")
    if arm.behaviour == "misconfigured":
        raise ConfigError("the size must be at least 1, got 0")
    if arm.behaviour == "die once" and not (out / "died").exists():
        out.mkdir(parents=True)
        (out / "died").touch()
        os._exit(9)
    (out.parent / "pid.txt").write_text(str(os.getpid()))
    while arm.behaviour == "hang":
        time.sleep(0.1)
        tick(1, 2)
    threads = int(os.environ["OMP_NUM_THREADS"])
    return RunResult(arm.name, seed, config.points, (0.0, arm.final), episodes=4, extra={"threads": threads})
