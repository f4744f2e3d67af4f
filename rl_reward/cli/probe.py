"""What `rl-reward probe` finds out about a judge, whatever kind of backend it is."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from rl_reward.backends.base import Backend, Request
from rl_reward.backends.capabilities import Capabilities
from rl_reward.cli.tables import one_line
from rl_reward.criteria import DEFAULT
from rl_reward.distribution import MIN_COVERAGE
from rl_reward.errors import BackendError, Unscorable
from rl_reward.prompts import TAG, pointwise
from rl_reward.scale import ScoreScale
from rl_reward.types import Candidate, Step, Trajectory
from rl_reward.verdict import read_score

_TASK = "What is 2 + 2?"


@dataclass(frozen=True)
class Findings:
    """The result of a probe."""

    table: str
    """Lines for the user."""
    serves: bool
    """Whether scores can be read from this judge."""


async def findings(backend: Backend) -> Findings:
    """Ask the judge a small question, and a server what else it can do.

    Raises:
        BackendError: It cannot be reached, has no such model or refuses the question.
    """
    from rl_reward.backends.openai_compatible import OpenAICompatible

    return _server(await backend.capabilities()) if isinstance(backend, OpenAICompatible) else await _model(backend)


def _server(found: Capabilities) -> Findings:
    rows = {
        "logprobs": _yes(found.logprobs),
        "alternatives": str(found.alternatives),
        "coverage": "unread" if found.coverage is None else f"{found.coverage:.3f} of the probability on the letters",
        "prefill": _yes(found.prefill),
        "images": _yes(found.images),
        "latency": f"{1000 * found.latency:.0f} ms a score",
        "models": ", ".join(found.models[:10]) or "not listed",
        "verdict": found.problem or "serves scores",
    }
    return Findings(_table(rows), not found.problem)


async def _model(backend: Backend) -> Findings:
    scale, request = ScoreScale.letters(), _request("2 + 2 = 4")
    await backend.reply(request)
    started = time.perf_counter()
    reply = await backend.reply(request)
    rows = {"latency": f"{1000 * (time.perf_counter() - started):.0f} ms a score"}
    try:
        read = read_score(reply, TAG, scale, min_coverage=0.0).distribution
    except Unscorable as failure:
        return Findings(_table({**rows, "verdict": f"no score can be read: {failure}"}), False)
    coverage = read.coverage if read else 0.0
    serves = coverage >= MIN_COVERAGE
    rows["alternatives"] = str(max(len(token.alternatives) for token in reply.tokens))
    rows["coverage"] = f"{coverage:.3f} of the probability on the letters"
    if hasattr(backend, "sees_images"):
        rows["images"] = await _images(backend)
    rows["verdict"] = (
        "serves scores" if serves else f"coverage below {MIN_COVERAGE:g}: give exemplars or take another model"
    )
    return Findings(_table(rows), serves)


def _request(candidate: Candidate) -> Request:
    scale = ScoreScale.letters()
    messages = pointwise(_TASK, candidate, DEFAULT, scale)
    return Request("pointwise", messages, (TAG,), scale, _TASK, DEFAULT.name, (candidate,))


async def _images(backend: Backend) -> str:
    """Return whether images reach the model: a black and a white one must not be the same to it."""
    frames = [np.full((64, 64, 3), light, np.uint8) for light in (0, 255)]
    try:
        black, white = [await backend.reply(_request(Trajectory((Step(image=frame),)))) for frame in frames]
    except (BackendError, Unscorable) as failure:
        return f"no: {failure}"
    return _yes(black.tokens != white.tokens)


def _yes(found: bool) -> str:
    return "yes" if found else "no"


def _table(rows: dict[str, str]) -> str:
    return "\n".join(f"{name:<14} {one_line(value)}" for name, value in rows.items())
