"""The seam between questions and models: a Request goes in, a Reply of tokens with their alternatives comes out."""

from __future__ import annotations

import hashlib
import io
import pickle
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from rl_reward.errors import ConfigError
from rl_reward.scale import ScoreScale
from rl_reward.types import Candidate, Image, Step, Trajectory, Usage

Kind = Literal["pointwise", "pairwise", "progress"]


@dataclass(frozen=True, eq=False)
class Message:
    """One chat message: texts and images in order."""

    role: Literal["system", "user", "assistant"]
    """Who speaks."""
    parts: tuple[str | Image, ...]
    """The texts (str) and images (anything else; paths as `Path`)."""

    @property
    def text(self) -> str:
        """The texts alone, joined by newlines."""
        return "\n".join(part for part in self.parts if isinstance(part, str))


@dataclass(frozen=True, eq=False)
class Request:
    """One question for a score (two scores for a pair), ready to be sent.

    `messages` is what a language model reads. `task`, `criterion` and `candidates` say what the question is about; a
    simulated judge reads those instead.
    """

    kind: Kind
    """pointwise: one candidate; pairwise: two; progress: one, a trajectory up to a checkpoint."""
    messages: tuple[Message, ...]
    """The prompt; exemplars are earlier user and assistant turns."""
    tags: tuple[str, ...]
    """Where the scores stand in the answer: ("score",) is `<score>LEVEL</score>`; a pair has ("score_A", "score_B")."""
    scale: ScoreScale
    """The levels."""
    task: str
    """The task, as the caller gave it."""
    criterion: str
    """The name of the criterion."""
    candidates: tuple[Candidate, ...]
    """The candidates in slot order; steps keep their `data` only for backends with `sees_data`."""
    sampled: bool = False
    """Whether the model writes an analysis at temperature > 0 before the verdict."""
    draw: int = 0
    """Which repeat this is; also the sampling seed."""

    @property
    def candidate(self) -> Candidate:
        """The (first) candidate."""
        return self.candidates[0]

    @property
    def text(self) -> str:
        """The text of the (first) candidate."""
        return self.candidate if isinstance(self.candidate, str) else self.candidate.text

    @cached_property
    def subject(self) -> str:
        """A digest of what is asked about, however the prompt words it: kind, task, criterion, candidates, repeat."""
        digest = hashlib.sha256()
        for piece in (self.kind, self.tags, self.task, self.criterion, self.sampled, self.draw):
            digest.update(repr(piece).encode("utf-8", "surrogatepass") + b"\0")
        for candidate in self.candidates:
            digest.update(b"candidate\0" + (_content(candidate) if isinstance(candidate, str) else b""))
            for step in _steps(candidate):
                image = Path(step.image) if isinstance(step.image, str) else step.image
                for piece in (_content(step.text), b"" if image is None else _content(image), _pickled(step.data)):
                    digest.update(piece + b"\0")
        return digest.hexdigest()

    @cached_property
    def key(self) -> str:
        """A digest of everything that could change the answer; equal keys are one question."""
        digest = hashlib.sha256()
        for piece in (self.kind, self.tags, self.scale.levels, self.task, self.criterion, self.sampled, self.draw):
            digest.update(repr(piece).encode("utf-8", "surrogatepass") + b"\0")
        for message in self.messages:
            digest.update(message.role.encode() + b"\0")
            for part in message.parts:
                digest.update(_content(part) + b"\0")
        for candidate in self.candidates:
            for step in _steps(candidate):
                digest.update(_pickled(step.data) + b"\0")
        return digest.hexdigest()


@dataclass(frozen=True)
class Token:
    """One token of an answer."""

    text: str
    """Its string."""
    logprob: float | None = None
    """Natural log of its probability; None where the server gave none, or the token was prefilled."""
    alternatives: tuple[tuple[str, float], ...] = ()
    """The (string, logprob) of the most likely tokens at this position."""


@dataclass(frozen=True)
class Reply:
    """What a model answered."""

    tokens: tuple[Token, ...]
    """Every token in order: reasoning, answer, and what was prefilled (the opening tag), as one stream."""
    content: str
    """The answer proper, without reasoning; empty when the server put all of it into `reasoning`."""
    reasoning: str = ""
    """What the server's reasoning field held."""
    finish_reason: str = "stop"
    """"length" when the answer was cut off."""
    usage: Usage = field(default_factory=Usage)
    """What it cost."""


class Backend(Protocol):
    """Something that answers requests. Wrappers (cache, meter, limits) are backends around a backend."""

    name: str
    """Shown in tables, plots and logs, e.g. "openai:qwen3-32b" or "simulated(noise=0.1)"."""
    sees_data: bool
    """False for every real model: `Step.data` is removed before a request is made."""

    async def reply(self, request: Request) -> Reply:
        """Answer one request.

        Called concurrently on one event loop. A backend may gather concurrent requests into batches.

        Raises:
            BackendError: The backend cannot serve scores at all; the run stops.
            TimeoutError: This request took too long.
            Unscorable: This request failed for good (retries used up, truncated answer); the message is the reason.
        """
        ...

    async def aclose(self) -> None:
        """Free connections and models."""
        ...


def _steps(candidate: Candidate) -> tuple[Step, ...]:
    return candidate.steps if isinstance(candidate, Trajectory) else ()


def _pickled(data: Any) -> bytes:
    """Return the pickle of `data` without back references: equal values give equal bytes, whoever holds them."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    pickler.fast = True
    pickler.dump(data)
    return buffer.getvalue()


def _content(part: str | Image) -> bytes:
    """Return bytes that tell `part` apart from every other text and image; a file counts by what it holds."""
    if isinstance(part, np.ndarray):
        return b"frame" + repr(part.shape).encode() + part.tobytes()
    if isinstance(part, bytes):
        return b"image" + part
    if isinstance(part, str):
        return b"text" + part.encode("utf-8", "surrogatepass")
    try:
        return b"image" + part.read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the image {str(part)!r}: {error}; check the path") from error
