"""What every wrapper shares: a backend around a backend."""

from __future__ import annotations

from rl_reward.backends.base import Backend, Reply, Request


class Wrapper:
    """Passes everything on to `backend`; subclasses add one concern each to `reply`.

    Wrappers nest: `UsageMeter(Cached(RateLimited(OpenAICompatible(...))))`.
    """

    def __init__(self, backend: Backend) -> None:
        """Wrap `backend`."""
        self.backend = backend
        self.name = backend.name
        self.sees_data = backend.sees_data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.backend!r})"

    @property
    def identity(self) -> str | None:
        """What tells the model behind this backend from every other one; None where nothing does."""
        return getattr(self.backend, "identity", None)

    async def reply(self, request: Request) -> Reply:
        """Answer one request; see `Backend.reply`."""
        return await self.backend.reply(request)

    async def aclose(self) -> None:
        """Free the backend's connections and models."""
        await self.backend.aclose()
