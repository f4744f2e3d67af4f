"""A limit on how fast a backend is asked."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from rl_reward._checks import check_number
from rl_reward.backends.base import Backend, Reply, Request
from rl_reward.backends.per_loop import PerLoop
from rl_reward.backends.wrapper import Wrapper


class RateLimited(Wrapper):
    """Lets requests through one by one, evenly spaced; how many are in flight is not its concern.

    The limit holds for this object, in this process. Waiting counts towards the deadline of whoever waits.
    """

    def __init__(
        self,
        backend: Backend,
        requests_per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Configure the limit.

        Args:
            backend: Who answers.
            requests_per_second: The limit, > 0.
            clock: What tells the time in seconds; tests put their own.
            sleep: What waits.

        Raises:
            ConfigError: The limit is not a finite number above 0.
        """
        super().__init__(backend)
        self._interval = 1.0 / check_number("requests_per_second", requests_per_second, above=0.0)
        self._clock, self._sleep = clock, sleep
        self._next = -math.inf
        self._turn = PerLoop(asyncio.Lock)

    async def reply(self, request: Request) -> Reply:
        """Answer one request when its turn has come."""
        # A queue and not a reserved time: who gives up waiting leaves no gap.
        async with self._turn.get():
            await self._sleep(max(self._next - self._clock(), 0.0))
            self._next = self._clock() + self._interval
        return await self.backend.reply(request)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_next": -math.inf}
