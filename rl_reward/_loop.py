"""One event loop per process, in a thread of its own: the synchronous face works in scripts and in notebooks alike.

Connection pools belong to the loop they were opened on, so asynchronous callers are served by the same loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from rl_reward.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class _Runner:
    """A loop and the thread that runs it."""

    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    pid: int

    @property
    def runs(self) -> bool:
        # After a fork the parent's loop has no thread in the child.
        return self.thread.is_alive() and self.pid == os.getpid()


_runner: _Runner | None = None
_lock = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock()))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the process's loop and wait for it; Ctrl-C cancels it.

    Raises:
        ConfigError: The caller is on that loop itself, as the truth function of a simulated judge is.
    """
    loop = _loop()
    if _running() is loop:
        work.close()
        raise ConfigError("a synchronous call from inside a judge would wait for itself; await the a... twin instead")
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def arun(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the process's loop from a coroutine of any loop."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _loop()))


def _loop() -> asyncio.AbstractEventLoop:
    global _runner
    with _lock:
        if _runner is None or not _runner.runs:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="rl_reward", daemon=True)
            thread.start()
            _runner = _Runner(loop, thread, os.getpid())
        return _runner.loop


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
