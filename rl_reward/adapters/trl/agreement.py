"""One outcome for all processes: what each found out, or one error that all of them raise."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any, Protocol, TypeVar

from rl_reward.errors import BackendError, ConfigError

T = TypeVar("T")

MAX_BYTES = 2**29
"""Most that one process may hand to the others in one exchange; every process holds that of all."""


class Processes(Protocol):
    """What `judged_together` asks of the processes of a training."""

    @property
    def rank(self) -> int:
        """This process, in [0, size)."""
        ...

    @property
    def size(self) -> int:
        """How many processes there are."""
        ...

    @property
    def judge_timeout_s(self) -> float | None:
        """Seconds after which a judge is given up; None waits for as long as the judge takes."""
        ...

    def exchange(self, message: bytes) -> list[bytes]:
        """Return the message of every process, in rank order; blocks until all have called this.

        Raises:
            BackendError: A process is gone, or has sent nothing in time; the message names it.
        """
        ...


async def agreed(work: Awaitable[T], procs: Processes) -> list[T]:
    """Return what `work` gives on every process, in rank order.

    All processes must come here in the same order. An error on one becomes an error on all: otherwise the others would
    go on to the next collective of the training and wait there for the one that raised.

    Args:
        work: What this process does; its result must pickle where there are others.
        procs: From `processes`.

    Raises:
        ConfigError: A process raised it; the message names the process and is the same on all.
        BackendError: A process raised it, or any other exception; or a process is gone.
    """
    if procs.size == 1:
        return [await work]
    cause = None
    try:
        message = _packed(await work)
    except Exception as error:
        cause, message = error, pickle.dumps(_Failure.of(procs.rank, error))
    try:
        told = await _in_a_thread(lambda: procs.exchange(message))
    except BackendError as lost:
        raise lost from cause
    outcomes: list[Any] = [pickle.loads(one) for one in told]
    failures = [outcome for outcome in outcomes if isinstance(outcome, _Failure)]
    if failures:
        raise failures[0].as_error(others=failures[1:]) from cause
    return outcomes


@dataclass(frozen=True)
class _Failure:
    """An exception as data: the exception itself need not pickle."""

    rank: int
    """Where it was raised."""
    kind: type[ConfigError] | type[BackendError]
    """What it is raised as."""
    message: str
    """One line."""

    @classmethod
    def of(cls, rank: int, error: Exception) -> _Failure:
        line = " ".join(str(error).split())
        for kind in (ConfigError, BackendError):
            if isinstance(error, kind):
                return cls(rank, kind, line)
        return cls(rank, BackendError, f"{type(error).__name__}: {line}")

    def as_error(self, *, others: Sequence[_Failure]) -> ConfigError | BackendError:
        more = f" (process {', '.join(str(other.rank) for other in others)} raised an error too)" if others else ""
        return self.kind(f"process {self.rank}: {self.message}{more}")


def _packed(value: object) -> bytes:
    try:
        message = pickle.dumps(value)
    except Exception as error:
        raise ConfigError(
            f"what one process tells the others must pickle, got {type(error).__name__}: {error}"
        ) from error
    if len(message) > MAX_BYTES:
        raise ConfigError(
            f"one process may tell the others {MAX_BYTES} bytes in one batch, got {len(message)}; use smaller batches"
        )
    return message


async def _in_a_thread(work: Callable[[], T]) -> T:
    """Run blocking `work` beside the loop.

    Not asyncio.to_thread: its few threads are shared with the judges, and at its end Python waits for them.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="rl_reward exchange", daemon=True).start()
    return await asyncio.wrap_future(future)
