"""A bar of the calls that were answered, for what takes long."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from rl_reward.backends.base import Backend, Reply, Request
from rl_reward.backends.wrapper import Wrapper

_SECONDS_BEFORE_IT_SHOWS = 2.0


class _Counted(Wrapper):
    """Moves a bar on with every request that is done."""

    def __init__(self, backend: Backend, bar: tqdm[int]) -> None:
        super().__init__(backend)
        self._bar = bar

    async def reply(self, request: Request) -> Reply:
        try:
            return await super().reply(request)
        finally:
            self._bar.update()


@contextmanager
def counted(backend: Backend, calls: int) -> Generator[Backend]:
    """Give the backend that shows its progress towards `calls` on a terminal's error stream."""
    form: dict[str, Any] = {"unit": "call", "delay": _SECONDS_BEFORE_IT_SHOWS, "disable": None, "leave": False}
    with tqdm(range(0), total=calls, file=sys.stderr, **form) as bar:
        yield _Counted(backend, bar)
