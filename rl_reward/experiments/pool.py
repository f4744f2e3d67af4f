"""Runs in processes of their own: a few at a time, one progress bar, and a failing run does not stop the others."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from tqdm import tqdm

from rl_reward.errors import ConfigError, MissingExtraError
from rl_reward.experiments.runs import Run

_BAR = "{desc} {percentage:3.0f}% |{bar:30}| {elapsed} gone, {remaining} left{postfix}"
_WHOLE = 1000
# Thread pools are sized when their library loads, before any code of ours could set them.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Failure:
    """A run that did not finish."""

    run: Run
    """The run."""
    reason: str
    """Why, in one line."""

    def __str__(self) -> str:
        """Return run, reason and log in one line."""
        return f"{self.run} failed: {self.reason}; see {self.run.log}"


@dataclass(frozen=True)
class _Message:
    """What a process tells the one that started it: progress in thousandths, or how it failed."""

    done: int = 0
    error: str = ""
    hopeless: bool = False


@dataclass
class _Worker:
    process: SpawnProcess
    run: Run
    done: int = 0
    reason: str = ""


def run_all(runs: Sequence[Run], *, jobs: int, name: str, finished: int = 0) -> list[Failure]:
    """Execute `runs`, `jobs` at a time, in order, and return those that failed.

    A configuration error would strike every run, so it stops all of them. An interrupt ends all processes; what is
    finished stays.

    Args:
        runs: What to execute.
        jobs: Processes at the same time, >= 1.
        name: Shown before the bar.
        finished: Runs that were finished before, for the bar.

    Raises:
        ConfigError: A run was configured wrongly.
    """
    waiting, failures = deque(runs), list[Failure]()
    workers: dict[Connection, _Worker] = {}
    with _bar(name, len(runs) + finished, finished) as bar:
        try:
            while waiting or workers:
                while waiting and len(workers) < jobs:
                    workers.update([_start(waiting.popleft())])
                for link in wait(list(workers), timeout=bar.mininterval):
                    assert isinstance(link, Connection)
                    failures += _hear(link, workers, bar)
                running = "; ".join(f"{worker.run} {worker.done / _WHOLE:.0%}" for worker in workers.values())
                bar.set_postfix_str(running, refresh=False)
                bar.update(0)  # prints where it is time to
        finally:
            for worker in workers.values():
                worker.process.kill()
                worker.process.join()
    return failures


def _start(run: Run) -> tuple[Connection, _Worker]:
    run.log.parent.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(run, there))
    with _environment(dict.fromkeys(_THREADS, str(run.settings.threads))):
        process.start()
    # Only the child may hold this end: its death must be heard as the end of the stream.
    there.close()
    return here, _Worker(process, run)


def _hear(link: Connection, workers: dict[Connection, _Worker], bar: tqdm[Any]) -> Iterator[Failure]:
    """Take one message, or the end of a process; yield its failure."""
    worker = workers[link]
    try:
        message: _Message = link.recv()
    except EOFError:
        worker.process.join()
        del workers[link]
        bar.update(_WHOLE - worker.done)
        if worker.process.exitcode:
            failure = Failure(worker.run, worker.reason or f"its process ended with code {worker.process.exitcode}")
            bar.write(str(failure), file=sys.stderr)
            yield failure
        return
    if message.hopeless:
        raise ConfigError(message.error)
    worker.reason = message.error
    if not message.error:
        bar.update(message.done - worker.done)
        worker.done = message.done


def _work(run: Run, link: Connection) -> None:
    """Execute `run` in this process, all output going to its log."""
    # Ctrl-C reaches the whole process group; the one that started this process ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with run.log.open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        run.execute(lambda done, total: link.send(_Message(_WHOLE * done // total)))
    except Exception as error:
        traceback.print_exc()
        lines = str(error).splitlines() or [""]
        text = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {lines[0]}"
        with contextlib.suppress(BrokenPipeError):
            link.send(_Message(error=text, hopeless=isinstance(error, (ConfigError, MissingExtraError))))
        sys.exit(1)


def _bar(name: str, total: int, initial: int) -> tqdm[Any]:
    """Return the bar over all runs; its rate is the mean, since runs of different arms take different times."""
    return tqdm(
        desc=name,
        total=_WHOLE * total,
        initial=_WHOLE * initial,
        bar_format=_BAR,
        smoothing=0.0,
        mininterval=0.5 if sys.stderr.isatty() else 10.0,
        miniters=0,
    )


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Generator[None]:
    """Set environment variables for what starts inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
