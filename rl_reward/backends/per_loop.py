"""Values that live and die with an event loop: locks, tasks, pooled connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """A value made anew for each running loop.

    One loop at a time: the value of the loop before is forgotten, not used. So a second `asyncio.run`, and a process
    forked from one that was at work, begin afresh. Pickles hold no value.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        """Say how a value is made; nothing is made yet."""
        self._make = make
        self._bound: tuple[asyncio.AbstractEventLoop, T] | None = None

    def get(self) -> T:
        """Return the value of the running loop."""
        loop = asyncio.get_running_loop()
        if self._bound is None or self._bound[0] is not loop:
            self._bound = loop, self._make()
        return self._bound[1]

    def pop(self) -> T | None:
        """Forget the value and return it; None where the running loop has none."""
        bound, self._bound = self._bound, None
        return bound[1] if bound is not None and bound[0] is asyncio.get_running_loop() else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bound": None}
