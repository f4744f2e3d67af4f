"""One event loop per process, in a thread of its own: the synchronous face works in scripts and in notebooks alike.

Connection pools belong to the loop they were opened on, so asynchronous callers are served by the same loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_loops: dict[int, asyncio.AbstractEventLoop] = {}
_lock = threading.Lock()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the process's loop and wait for it; Ctrl-C cancels it."""
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def arun(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the process's loop from a coroutine of any loop."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _loop()))


def _loop() -> asyncio.AbstractEventLoop:
    # Keyed by process: after a fork the parent's loop has no thread here.
    with _lock:
        if os.getpid() not in _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="rl_reward", daemon=True).start()
            _loops[os.getpid()] = loop
        return _loops[os.getpid()]
