"""A causal LM in this process: exact score distributions over the whole vocabulary, shared prefixes read once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from rl_reward.backends.base import Reply, Request, Token
from rl_reward.errors import BackendError, ConfigError, MissingExtraError, RlRewardError, Unscorable
from rl_reward.types import Usage

try:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rl_reward.backends.local.loading import load, locate
    from rl_reward.backends.local.prefixes import groups
    from rl_reward.backends.local.reader import CausalReader
    from rl_reward.backends.local.text import LevelTokens, LocalText, close_thinking
except ImportError as error:
    raise MissingExtraError(error.name or "transformers", "local") from error

# Requests of one burst arrive within this time; waiting for them costs less than reading their prefix twice.
_GATHER_SECONDS = 0.005
# Room for the tags and levels behind a prompt.
_ANSWER_TOKENS = 64
_OFF_SCALE_SHOWN = 5


@dataclass(eq=False)
class _Job:
    """One request on its way to a reply."""

    request: Request
    future: Future[Reply] = field(default_factory=lambda: Future[Reply]())
    prompt: list[int] = field(default_factory=lambda: list[int]())
    text: str = ""
    stream: list[Token] = field(default_factory=lambda: list[Token]())

    def write(self, *tokens: Token) -> None:
        """Append `tokens` to the answer."""
        self.stream.extend(tokens)
        self.text += "".join(token.text for token in tokens)

    def finish(self, seconds: float) -> None:
        """Hand the answer over."""
        content = "".join(token.text for token in self.stream)
        usage = Usage(1, len(self.prompt), len(self.stream), seconds)
        self.future.set_result(Reply(tuple(self.stream), content, usage=usage))


@dataclass(frozen=True, eq=False)
class _Loaded:
    """A model in memory."""

    reader: CausalReader
    text: LocalText
    stops: frozenset[int]
    """Tokens that end an answer."""
    context: int | None
    """The longest sequence it reads, where it says so."""
    levels: dict[tuple[str, tuple[str, ...]], LevelTokens] = field(
        default_factory=lambda: dict[tuple[str, tuple[str, ...]], LevelTokens]()
    )
    """Level tokens by tag and levels, filled on first use."""


class TransformersLocal:
    """Any causal LM that transformers loads, with or without a chat template. Text only; nothing is ever fetched.

    Concurrent requests are gathered and run one batch at a time in a worker thread. Prefixes that requests share (those
    of criteria, causal checkpoints, repeats, the two scores of a pair) go through the model once.
    """

    sees_data = False

    def __init__(
        self,
        model: str | Path | PreTrainedModel,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        device: str | None = None,
        dtype: torch.dtype | str | None = None,
        max_batch_tokens: int = 1024,
        max_cached_tokens: int = 16384,
        max_analysis_tokens: int = 256,
        temperature: float = 1.0,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        gguf_file: str | None = None,
    ) -> None:
        """Find the model; the first request loads it.

        Args:
            model: A folder with config.json and weights, a GGUF file or a folder with one, the hub id of a model that
                is already downloaded, or a model object (used where and as it is, in eval mode; not picklable).
            tokenizer: Needed with a model object; otherwise the one beside the model is used.
            device: Such as "cpu" or "cuda:1"; by default CUDA where there is one.
            dtype: By default float32 on CPU, elsewhere that of the checkpoint.
            max_batch_tokens: New tokens of one forward pass, at least 1.
            max_cached_tokens: Tokens whose keys and values are held at once, at least 1.
            max_analysis_tokens: The longest analysis of a sampled request, at least 1.
            temperature: Of sampled analyses, above 0. Scores are always read at temperature 1.
            chat_template_kwargs: Passed to the chat template, e.g. {"enable_thinking": False}.
            gguf_file: Which GGUF file of a folder that holds several.

        Raises:
            ConfigError: There is no model there, or a value is out of its range.
        """
        for name in ("max_batch_tokens", "max_cached_tokens", "max_analysis_tokens"):
            if locals()[name] < 1:
                raise ConfigError(f"{name} must be at least 1, got {locals()[name]}")
        if not temperature > 0:
            raise ConfigError(f"temperature must be above 0, got {temperature}")
        if not isinstance(model, (str, Path)) and tokenizer is None:
            raise ConfigError("a model object needs its tokenizer; pass tokenizer=..., or the path of its folder")
        self._model = locate(model, gguf_file) if isinstance(model, (str, Path)) else model
        self.name = f"local:{_title(model)}"
        """Shown in tables, plots and logs."""
        self._tokenizer = tokenizer
        self._device, self._dtype = device, dtype
        self._max_batch_tokens, self._max_cached_tokens = max_batch_tokens, max_cached_tokens
        self._max_analysis_tokens, self._temperature = max_analysis_tokens, temperature
        self._chat_template_kwargs = dict(chat_template_kwargs or {})
        self._start()

    def _start(self) -> None:
        self._loaded: _Loaded | None = None
        self._lock = threading.Lock()
        self._pending: list[_Job] = []
        self._worker: ThreadPoolExecutor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings; whoever gets them loads the model again."""
        if isinstance(self._model, PreTrainedModel):
            raise ConfigError(f"{self.name} holds a model object, which is not picklable; pass the path of its folder")
        return self.__dict__ | {"_loaded": None, "_lock": None, "_pending": [], "_worker": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the settings over."""
        self.__dict__.update(state)
        self._start()

    async def reply(self, request: Request) -> Reply:
        """Answer one request, in one batch with those that arrive at the same time.

        `usage.seconds` is the request's share of its batch, so that usages add up to the time of the model.

        Raises:
            BackendError: The request holds an image, the chat template refuses it, or memory is short.
            ConfigError: The model does not load, or a level is not one token of its vocabulary.
            Unscorable: The prompt is longer than the model reads.
        """
        if any(not isinstance(part, str) for message in request.messages for part in message.parts):
            raise BackendError(f"{self.name} reads no images; describe the steps in words, or use a model that sees")
        return await asyncio.wrap_future(self._submit(request))

    async def aclose(self) -> None:
        """Free the model once it has answered what is waiting; a later request loads it again."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            await asyncio.to_thread(worker.shutdown)
        self._loaded = None

    def _submit(self, request: Request) -> Future[Reply]:
        job = _Job(request)
        with self._lock:
            self._pending.append(job)
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, thread_name_prefix=self.name)
            if len(self._pending) == 1:
                self._worker.submit(self._drain)
        return job.future

    def _drain(self) -> None:
        """Answer everything that waits; runs in the worker thread."""
        time.sleep(_GATHER_SECONDS)
        with self._lock:
            jobs, self._pending = self._pending, []
        jobs = [job for job in jobs if job.future.set_running_or_notify_cancel()]
        try:
            self._answer(jobs)
        except torch.OutOfMemoryError as error:
            fix = f"lower max_cached_tokens ({self._max_cached_tokens}) or max_batch_tokens ({self._max_batch_tokens})"
            _fail(jobs, BackendError(f"{self.name} ran out of memory; {fix}: {error}"))
        except Exception as error:  # it belongs to whoever awaits the replies
            _fail(jobs, error)
        # While requests keep coming the prefixes stay: a burst that was cut in two shares them.
        if self._loaded is not None and not self._pending:
            self._loaded.reader.forget()

    def _answer(self, jobs: Sequence[_Job]) -> None:
        if self._loaded is None:
            self._loaded = self._load()
        loaded = self._loaded
        jobs = [job for job in jobs if self._prepare(job, loaded)]
        growth = [self._growth(job) for job in jobs]
        for group in groups([job.prompt for job in jobs], growth, self._max_cached_tokens):
            if len(loaded.reader) + group.tokens > self._max_cached_tokens:
                loaded.reader.forget()
            self._answer_group([jobs[i] for i in group.members], loaded)

    def _load(self) -> _Loaded:
        if isinstance(self._model, PreTrainedModel):
            model, tokenizer = self._model, cast(PreTrainedTokenizerBase, self._tokenizer)
        else:
            model, tokenizer = load(self._model, self._tokenizer, self._device, self._dtype)
        model.eval()
        config: Any = model.config.get_text_config()
        stop: Any = getattr(model.generation_config, "eos_token_id", None)
        stops = {*(stop if isinstance(stop, list) else [stop]), tokenizer.eos_token_id} - {None}
        return _Loaded(
            reader=CausalReader(model, pass_tokens=self._max_batch_tokens),
            text=LocalText(tokenizer, self._chat_template_kwargs),
            stops=frozenset(cast(set[int], stops)),
            context=getattr(config, "max_position_embeddings", None),
        )

    def _prepare(self, job: _Job, loaded: _Loaded) -> bool:
        """Write the prompt of `job`; False, and the job failed, where it cannot be asked."""
        try:
            job.text = loaded.text.prompt(job.request.messages)
            job.prompt = loaded.text.encode(job.text)
            needed = len(job.prompt) + self._growth(job)
            if loaded.context is not None and needed > loaded.context:
                raise Unscorable(f"prompt and answer need {needed} tokens, {self.name} reads {loaded.context}; shorten them")
        except RlRewardError as error:
            _fail([job], error)
        return not job.future.done()

    def _growth(self, job: _Job) -> int:
        return _ANSWER_TOKENS + (self._max_analysis_tokens if job.request.sampled else 0)

    def _answer_group(self, jobs: Sequence[_Job], loaded: _Loaded) -> None:
        started = time.perf_counter()
        self._write_analyses([job for job in jobs if job.request.sampled], loaded)
        for slot in range(max(len(job.request.tags) for job in jobs)):
            asked = [job for job in jobs if slot < len(job.request.tags) and not job.future.done()]
            _write_scores(asked, slot, loaded)
        seconds = (time.perf_counter() - started) / len(jobs)
        for job in jobs:
            if not job.future.done():
                job.finish(seconds)

    def _write_analyses(self, jobs: Sequence[_Job], loaded: _Loaded) -> None:
        """Let the model write until it stops, opens its first tag, or has written `max_analysis_tokens`."""
        written = [list[int]() for _ in jobs]
        rngs = [np.random.default_rng(job.request.draw) for job in jobs]
        unfinished = list(range(len(jobs)))
        for _ in range(self._max_analysis_tokens):
            if not unfinished:
                break
            rows_NV = loaded.reader.read([jobs[i].prompt + written[i] for i in unfinished])
            probs_NV = torch.softmax(rows_NV.double() / self._temperature, dim=-1).cpu().numpy()
            for i, probs_V in zip(unfinished, probs_NV, strict=True):
                written[i].append(int(rngs[i].choice(len(probs_V), p=probs_V)))
            unfinished = [i for i in unfinished if not _ended(jobs[i], written[i], loaded)]
        for job, tokens in zip(jobs, written, strict=True):
            words = loaded.text.decode([i for i in tokens if i not in loaded.stops])
            words = words.split(f"<{job.request.tags[0]}>")[0].rstrip()
            if words:
                job.write(*(Token(piece) for piece in loaded.text.split(words)), Token(close_thinking(words) or "\n"))


def _title(model: str | Path | PreTrainedModel) -> str:
    if isinstance(model, (str, Path)):
        return Path(model).expanduser().resolve().name
    return Path(model.config.name_or_path).name or type(model).__name__


def _fail(jobs: Sequence[_Job], error: Exception) -> None:
    for job in jobs:
        if not job.future.done():
            job.future.set_exception(error)


def _ended(job: _Job, written: list[int], loaded: _Loaded) -> bool:
    # The tag may be spread over several tokens, though not over more than it has characters.
    opening = f"<{job.request.tags[0]}>"
    return written[-1] in loaded.stops or opening in loaded.text.decode(written[-len(opening) - 1 :])


def _write_scores(jobs: Sequence[_Job], slot: int, loaded: _Loaded) -> None:
    """Write the tag number `slot` into every answer, read the level there, write it and close the tag."""
    for job in jobs:
        job.write(Token(f"<{job.request.tags[slot]}>"))
    read = [(job, levels) for job in jobs if (levels := _level_tokens(job, slot, loaded))]
    if not read:
        return
    rows_NV = loaded.reader.read([loaded.text.encode(job.text) for job, _ in read])
    for (job, levels), row_V in zip(read, rows_NV, strict=True):
        job.write(_score(row_V, levels, job.request, loaded.text), Token(f"</{job.request.tags[slot]}>"))


def _level_tokens(job: _Job, slot: int, loaded: _Loaded) -> LevelTokens | None:
    """Return the level tokens at the end of `job.text`; None, and the job failed, where a level is not one token."""
    key = (job.request.tags[slot], job.request.scale.levels)
    try:
        if key not in loaded.levels:
            loaded.levels[key] = LevelTokens.after(job.text, job.request.scale, loaded.text)
    except ConfigError as error:
        _fail([job], error)
    return loaded.levels.get(key)


def _score(row_V: torch.Tensor, levels: LevelTokens, request: Request, text: LocalText) -> Token:
    """Return the most likely level; its alternatives are all spellings of all levels and the likeliest other tokens."""
    logprobs_V = row_V.cpu().numpy()
    spellings = list(levels.level_of)
    mass_L = np.bincount(list(levels.level_of.values()), np.exp(logprobs_V[spellings]), len(request.scale))
    best = int(mass_L.argmax())
    shown = [i for i in np.argsort(-logprobs_V)[: len(spellings) + _OFF_SCALE_SHOWN].tolist() if i not in levels.level_of]
    tokens = [*spellings, *shown[:_OFF_SCALE_SHOWN]]
    tokens.sort(key=lambda i: -logprobs_V[i])
    return Token(
        text=request.scale.levels[best],
        logprob=float(logprobs_V[levels.plain_L[best]]),
        alternatives=tuple((text.piece(i), float(logprobs_V[i])) for i in tokens),
    )
