"""What judging cost, and how often it failed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rl_reward.backends.base import Backend, Reply, Request
from rl_reward.backends.wrapper import Wrapper
from rl_reward.errors import BackendError, Unscorable
from rl_reward.types import Usage


class UsageMeter(Wrapper):
    """Adds up the usage of every reply and counts the failures by kind."""

    def __init__(self, backend: Backend) -> None:
        """Start at zero."""
        super().__init__(backend)
        # Replaced as a whole by the event loop's thread, so any thread may read them at any time.
        self._total = Usage()
        self._failures: Mapping[str, int] = {}

    @property
    def total(self) -> Usage:
        """The usage so far; what failed requests cost reaches it with the backend's next reply."""
        return self._total

    @property
    def failures(self) -> Mapping[str, int]:
        """The failures so far by kind: "timeout", "unscorable", "backend"."""
        return MappingProxyType(self._failures)

    async def reply(self, request: Request) -> Reply:
        """Answer one request; see `Backend.reply`."""
        try:
            reply = await self.backend.reply(request)
        except TimeoutError:
            self._count("timeout")
            raise
        except Unscorable:
            self._count("unscorable")
            raise
        except BackendError:
            self._count("backend")
            raise
        self._total += reply.usage
        return reply

    def _count(self, kind: str) -> None:
        self._failures = {**self._failures, kind: self._failures.get(kind, 0) + 1}
