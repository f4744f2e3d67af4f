"""Asking many requests at once: each distinct one once, a bounded number in flight, failures as data."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rl_reward.backends.base import Backend, Reply, Request
from rl_reward.errors import BackendError, RlRewardError, Unscorable
from rl_reward.scores import Unread
from rl_reward.types import Usage

Answer = Reply | Unread


@dataclass(frozen=True)
class Limits:
    """How hard a backend may be pressed."""

    slots: asyncio.Semaphore
    """Places for requests in flight."""
    deadline: float | None
    """Seconds for one request once it has a place, its retries included; None: the backend's own."""
    batch_deadline: float | None
    """Seconds for all of them; None: no limit."""


async def ask(backend: Backend, requests: Iterable[Request], limits: Limits) -> dict[str, Answer]:
    """Return the answers by `Request.key`; equal keys are asked once.

    Raises:
        BackendError: The backend cannot serve at all; requests still under way are cancelled.
    """
    distinct = {request.key: request for request in requests}
    tasks = {key: asyncio.create_task(_ask_one(backend, request, limits)) for key, request in distinct.items()}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=limits.batch_deadline, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks.values():
            if task.done() and (error := task.exception()):
                raise error
        late = Unread("timeout", f"no reply before the batch deadline of {limits.batch_deadline} s")
        return {key: task.result() if task.done() else late for key, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()
        # Cancelled requests must have left their places before anyone else asks.
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def usage_of(answer: Answer) -> Usage:
    """Return what an answer cost; what failed tries cost stands on the bill of the backend's next reply."""
    return answer.usage if isinstance(answer, Reply) else Usage()


async def _ask_one(backend: Backend, request: Request, limits: Limits) -> Answer:
    async with limits.slots:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(limits.deadline):
                reply = await backend.reply(request)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            return Unread("error", f"{backend.name} was closed before it answered")
        except TimeoutError as error:
            return Unread("timeout", str(error) or f"no reply within the deadline of {limits.deadline} s")
        except Unscorable as failure:
            return Unread("error", str(failure))
        except RlRewardError:
            raise
        except (SystemExit, KeyboardInterrupt) as error:
            # Either would end the thread of the event loop, and every later call would wait for ever.
            raise BackendError(f"{type(error).__name__} inside {backend.name}") from error
        # What one request or reply does to a backend must not take the others with it.
        except Exception as error:
            return Unread("error", f"{type(error).__name__} in {backend.name}: {error}")
    if not isinstance(reply, Reply):
        return Unread("error", f"{backend.name} returned {type(reply).__name__}, not a Reply")
    if reply.usage.calls and not reply.usage.seconds:
        return replace(reply, usage=replace(reply.usage, seconds=time.perf_counter() - started))
    return reply
