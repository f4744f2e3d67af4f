"""Questions for a backend that talks to the stub server, and what their answers are worth."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from protocol_server import StubServer

from rl_reward.backends.base import Message, Reply, Request
from rl_reward.backends.openai_compatible import OpenAICompatible
from rl_reward.scale import ScoreScale
from rl_reward.verdict import read_score

T = TypeVar("T")
SCALE = ScoreScale.letters(20)
# T 0.9, S 0.05 and 0.05 off the scale, which is what the stub server says unless told otherwise.
T_SCORE = 1 - 0.05 / 0.95 / 19


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 20))


def question(
    text: str = "Rate it.", tags: tuple[str, ...] = ("score",), sampled: bool = False, draw: int = 0
) -> Request:
    form = " ".join(f"<{tag}>LEVEL</{tag}>" for tag in tags)
    messages = (Message("system", ("Judge.",)), Message("user", (text, f"Answer with {form}")))
    return Request("pointwise", messages, tags, SCALE, "task", "quality", ("candidate",) * len(tags), sampled, draw)


def backend(server: StubServer, **options: Any) -> OpenAICompatible:
    return OpenAICompatible(server.model, server.base_url, **{"api_key_env": None, "prefill": "never", **options})


def ask(server: StubServer, request: Request | None = None, **options: Any) -> Reply:
    async def once() -> Reply:
        judge = backend(server, **options)
        try:
            return await judge.reply(request or question())
        finally:
            await judge.aclose()

    return run(once())


def score(reply: Reply, tag: str = "score") -> float | None:
    return read_score(reply, tag, SCALE).value


class Naps:
    """Stands in for asyncio.sleep and notes how long it should have slept."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
