"""Writes the answers of a local model: an analysis where one is asked for, then each tag and the score behind it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import torch

from rl_reward.backends.base import Reply, Request, Token
from rl_reward.backends.local.prefixes import groups
from rl_reward.backends.local.reader import CausalReader
from rl_reward.backends.local.text import LevelTokens, LocalText, close_thinking
from rl_reward.backends.local.vision import Picture, Vision
from rl_reward.errors import BackendError, RlRewardError, Unscorable
from rl_reward.types import Usage

# Room for the tags and levels behind a prompt.
_ANSWER_TOKENS = 64
_OFF_SCALE_SHOWN = 5


@dataclass(eq=False)
class Job:
    """One request on its way to a reply."""

    request: Request
    """The request."""
    future: Future[Reply] = field(default_factory=lambda: Future[Reply]())
    """Where the reply, or the error, is awaited."""
    prompt: list[int] = field(default_factory=lambda: list[int]())
    """The tokens of the prompt."""
    text: str = ""
    """Prompt and answer so far."""
    pictures: tuple[Picture, ...] = ()
    """The images of the prompt, in order."""
    stream: list[Token] = field(default_factory=lambda: list[Token]())
    """The answer so far."""

    def write(self, *tokens: Token) -> None:
        """Append `tokens` to the answer."""
        self.stream.extend(tokens)
        self.text += "".join(token.text for token in tokens)

    def finish(self, seconds: float) -> None:
        """Hand the answer over, unless the job has failed."""
        if not self.future.done():
            content = "".join(token.text for token in self.stream)
            usage = Usage(1, len(self.prompt), len(self.stream), seconds)
            self.future.set_result(Reply(tuple(self.stream), content, usage=usage))

    def fail(self, error: Exception) -> None:
        """Hand an error over, unless the job is done."""
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(frozen=True)
class AnswerLimits:
    """How much a model may hold and write."""

    cached_tokens: int
    """Tokens whose keys and values are held at once."""
    analysis_tokens: int
    """The longest analysis."""
    temperature: float
    """Of analyses, above 0."""


class Answerer:
    """A model in memory that answers jobs."""

    def __init__(
        self,
        reader: CausalReader,
        text: LocalText,
        vision: Vision | str,
        *,
        stops: frozenset[int],
        context: int | None,
        limits: AnswerLimits,
    ) -> None:
        """Answer with `reader`; `vision` shows it images, or says why it sees none.

        Tokens in `stops` end an analysis, and no sequence may be longer than `context`.
        """
        self.reader = reader
        self._text = text
        self.vision = vision
        # An image that the model asks for in its own words does not exist.
        self._stops = stops if isinstance(vision, str) else stops | {vision.token}
        self._context = context
        self._limits = limits
        self._levels: dict[tuple[str, tuple[str, ...]], LevelTokens] = {}

    def answer(self, jobs: Sequence[Job]) -> None:
        """Finish or fail every job, those that share prefixes together."""
        if isinstance(self.vision, Vision) and self.vision.held > self._limits.cached_tokens:
            self.forget()
        jobs = [job for job in jobs if self._prepare(job)]
        growth = [self._growth(job) for job in jobs]
        for group in groups([job.prompt for job in jobs], growth, self._limits.cached_tokens):
            if len(self.reader) + group.tokens > self._limits.cached_tokens:
                self.reader.forget()
            self._answer_group([jobs[i] for i in group.members])

    def forget(self) -> None:
        """Free keys, values and images; nothing may be waiting for an answer."""
        self.reader.forget()
        if isinstance(self.vision, Vision):
            self.vision.forget()

    def _growth(self, job: Job) -> int:
        return _ANSWER_TOKENS + (self._limits.analysis_tokens if job.request.sampled else 0)

    def _prepare(self, job: Job) -> bool:
        """Write the prompt of `job`; False, and the job failed, where it cannot be asked."""
        try:
            job.text = self._text.prompt(job.request.messages)
            images = [part for message in job.request.messages for part in message.parts if not isinstance(part, str)]
            if images and isinstance(self.vision, str):
                raise BackendError(self.vision)
            if images and isinstance(self.vision, Vision):
                job.text, job.pictures = self.vision.expand(job.text, images)
            job.prompt = self._tokens(job)
            needed = len(job.prompt) + self._growth(job)
            if self._context is not None and needed > self._context:
                raise Unscorable(f"prompt and answer take {needed} tokens, the model reads {self._context}; shorten it")
        except RlRewardError as error:
            job.fail(error)
        return not job.future.done()

    def _tokens(self, job: Job) -> list[int]:
        """Return the tokens of prompt and answer so far, image tokens numbered."""
        tokens = self._text.encode(job.text)
        return self.vision.number(tokens, job.pictures) if isinstance(self.vision, Vision) else tokens

    def _answer_group(self, jobs: Sequence[Job]) -> None:
        started = time.perf_counter()
        self._write_analyses([job for job in jobs if job.request.sampled])
        for slot in range(max(len(job.request.tags) for job in jobs)):
            self._write_scores([job for job in jobs if slot < len(job.request.tags)], slot)
        seconds = (time.perf_counter() - started) / len(jobs)
        for job in jobs:
            job.finish(seconds)

    def _write_analyses(self, jobs: Sequence[Job]) -> None:
        """Let the model write until it stops, opens its first tag, or has written as much as it may."""
        written = [list[int]() for _ in jobs]
        rngs = [np.random.default_rng(job.request.draw) for job in jobs]
        unfinished = list(range(len(jobs)))
        for _ in range(self._limits.analysis_tokens):
            if not unfinished:
                break
            rows_NV = self.reader.read([jobs[i].prompt + written[i] for i in unfinished])
            probs_NV = torch.softmax(rows_NV.double() / self._limits.temperature, dim=-1).cpu().numpy()
            for i, probs_V in zip(unfinished, probs_NV, strict=True):
                written[i].append(int(rngs[i].choice(len(probs_V), p=probs_V)))
            unfinished = [i for i in unfinished if not self._ended(jobs[i], written[i])]
        for job, tokens in zip(jobs, written, strict=True):
            words = self._text.decode([i for i in tokens if i not in self._stops])
            words = self._text.without_marks(words.split(f"<{job.request.tags[0]}>")[0].rstrip())
            if words:
                job.write(*(Token(piece) for piece in self._text.split(words)), Token(close_thinking(words) or "\n"))

    def _ended(self, job: Job, written: list[int]) -> bool:
        # The tag may be spread over several tokens, though not over more than it has characters.
        opening = f"<{job.request.tags[0]}>"
        return written[-1] in self._stops or opening in self._text.decode(written[-len(opening) - 1 :])

    def _write_scores(self, jobs: Sequence[Job], slot: int) -> None:
        """Write the tag number `slot` into every answer, read the level there, write it and close the tag."""
        for job in jobs:
            job.write(Token(f"<{job.request.tags[slot]}>"))
        read = [(job, levels) for job in jobs if (levels := self._level_tokens(job, slot))]
        if not read:
            return
        rows_NV = self.reader.read([self._tokens(job) for job, _ in read])
        for (job, levels), row_V in zip(read, rows_NV, strict=True):
            job.write(_score(row_V, levels, job.request, self._text), Token(f"</{job.request.tags[slot]}>"))

    def _level_tokens(self, job: Job, slot: int) -> LevelTokens | None:
        """Return the level tokens at the end of `job.text`; None, and the job failed, where a level has none."""
        key = (job.request.tags[slot], job.request.scale.levels)
        try:
            if key not in self._levels:
                self._levels[key] = LevelTokens.after(job.text, job.request.scale, self._text)
        except RlRewardError as error:
            job.fail(error)
        return self._levels.get(key)


def _score(row_V: torch.Tensor, levels: LevelTokens, request: Request, text: LocalText) -> Token:
    """Return the most likely level; its alternatives are all spellings of all levels and the likeliest other tokens."""
    logprobs_V = row_V.cpu().numpy()
    spellings = list(levels.level_of)
    mass_L = np.bincount(list(levels.level_of.values()), np.exp(logprobs_V[spellings]), len(request.scale))
    best = int(mass_L.argmax())
    top = row_V.topk(min(len(spellings) + _OFF_SCALE_SHOWN, len(row_V))).indices.cpu().numpy()
    others = top[~np.isin(top, spellings)][:_OFF_SCALE_SHOWN]
    shown = np.concatenate([np.array(spellings), others])
    shown = shown[np.argsort(-logprobs_V[shown], kind="stable")]
    return Token(
        text=request.scale.levels[best],
        logprob=float(logprobs_V[levels.plain_L[best]]),
        alternatives=tuple((text.piece(int(i)), float(logprobs_V[i])) for i in shown),
    )
