"""A causal LM in this process: exact score distributions over the whole vocabulary, shared prefixes read once."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from rl_reward.backends._shared_prefix import groups
from rl_reward.backends.base import Reply, Request, Token
from rl_reward.errors import BackendError, ConfigError, MissingExtraError, RlRewardError, Unscorable
from rl_reward.types import Usage

try:
    import torch
    from huggingface_hub import try_to_load_from_cache
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

    from rl_reward.backends._causal_reader import CausalReader
    from rl_reward.backends._local_text import LevelTokens, LocalText, close_thinking
except ImportError as error:
    raise MissingExtraError(error.name or "transformers", "local") from error

# Requests of one burst arrive within this time; waiting for them costs less than reading their prefix twice.
_GATHER_SECONDS = 0.005
_OFF_SCALE_SHOWN = 5
# Room for the tags and levels that follow a prompt.
_ANSWER_TOKENS = 64


@dataclass(eq=False)
class _Job:
    """One request on its way to a reply."""

    request: Request
    future: Future[Reply] = field(default_factory=lambda: Future[Reply]())
    text: str = ""
    prompt_ids: list[int] = field(default_factory=lambda: list[int]())
    stream: list[Token] = field(default_factory=lambda: list[Token]())

    def write(self, tokens: Sequence[Token]) -> None:
        """Append `tokens` to the answer."""
        self.stream.extend(tokens)
        self.text += "".join(token.text for token in tokens)


@dataclass(frozen=True, eq=False)
class _Loaded:
    """A model that is in memory."""

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
    """Any causal LM that transformers loads: a folder, a GGUF file or folder, a downloaded hub model, a model object.

    Concurrent requests are gathered into batches and run one batch at a time in a worker thread. Prefixes that requests
    share (criteria, causal checkpoints, repeats, the first score of a pair) go through the model once. Text only.
    Nothing is ever fetched from a network.
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
        """Remember where the model is; it is loaded by the first request.

        Args:
            model: A folder with config.json and weights, a GGUF file or a folder with one, the hub id of a model that
                is already downloaded, or a model object (used as it is, in eval mode; not picklable).
            tokenizer: Needed with a model object, otherwise read from the folder.
            device: Such as "cpu" or "cuda"; by default CUDA where there is one.
            dtype: By default float32 on CPU, elsewhere that of the checkpoint.
            max_batch_tokens: New tokens of one forward pass, at least 1; more is faster until memory is short.
            max_cached_tokens: Tokens whose keys and values are held at once, at least 1.
            max_analysis_tokens: Longest analysis of a sampled request, at least 1.
            temperature: Of a sampled analysis, above 0. Scores are always read at temperature 1.
            chat_template_kwargs: Passed to the chat template, e.g. {"enable_thinking": False}.
            gguf_file: Which GGUF file of the folder, where it holds several.

        Raises:
            ConfigError: There is no model there, or a value is out of its range.
        """
        limits = {
            "max_batch_tokens": max_batch_tokens,
            "max_cached_tokens": max_cached_tokens,
            "max_analysis_tokens": max_analysis_tokens,
        }
        for name, value in limits.items():
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
        if not temperature > 0:
            raise ConfigError(f"temperature must be above 0, got {temperature}")
        if isinstance(model, (str, Path)):
            self._source, self._gguf_file = _located(model, gguf_file)
            title = Path(self._source).name
        elif tokenizer is None:
            raise ConfigError("a model object needs its tokenizer; pass tokenizer=..., or the path of the model's folder")
        else:
            self._source, self._gguf_file = model, None
            title = Path(model.config.name_or_path).name or type(model).__name__
        self.name = f"local:{title}"
        self._tokenizer = tokenizer
        self._device = device
        self._dtype = dtype
        self._max_batch_tokens = max_batch_tokens
        self._max_cached_tokens = max_cached_tokens
        self._max_analysis_tokens = max_analysis_tokens
        self._temperature = temperature
        self._chat_template_kwargs = dict(chat_template_kwargs or {})
        self._start()

    def _start(self) -> None:
        self._loaded: _Loaded | None = None
        self._lock = threading.Lock()
        self._pending: list[_Job] = []
        self._worker: ThreadPoolExecutor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings; the model is loaded again where they arrive."""
        if not isinstance(self._source, str):
            raise ConfigError(f"{self.name} holds a model object, which is not picklable; pass the path of its folder")
        running = {"_loaded", "_lock", "_pending", "_worker"}
        return {name: value for name, value in self.__dict__.items() if name not in running}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the settings over, without a model."""
        self.__dict__.update(state)
        self._start()

    async def reply(self, request: Request) -> Reply:
        """Answer one request, in a batch with those that arrive at the same time.

        `usage.seconds` is the request's share of the time of its batch, so that usages add up to the time of the model.

        Raises:
            BackendError: The request holds images, or memory is short.
            ConfigError: A level is not one token of this vocabulary.
            Unscorable: The prompt is longer than the model's context.
        """
        if any(not isinstance(part, str) for message in request.messages for part in message.parts):
            raise BackendError(f"{self.name} reads no images; give the steps captions, or use a vision-language model")
        return await asyncio.wrap_future(self._submit(request))

    async def aclose(self) -> None:
        """Free the model; a later request loads it again."""
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
        """Answer everything that is waiting; runs in the worker thread."""
        time.sleep(_GATHER_SECONDS)
        with self._lock:
            jobs, self._pending = self._pending, []
        jobs = [job for job in jobs if job.future.set_running_or_notify_cancel()]
        try:
            self._answer(jobs)
        except torch.OutOfMemoryError as error:
            fix = f"lower max_cached_tokens ({self._max_cached_tokens}) or max_batch_tokens ({self._max_batch_tokens})"
            _fail(jobs, BackendError(f"{self.name} ran out of memory; {fix}: {error}"))
        except Exception as error:  # goes to whoever awaits the replies
            _fail(jobs, error)
        # Held while requests keep coming: the next of a burst share the prefixes of these.
        if self._loaded is not None and not self._pending:
            self._loaded.reader.forget()

    def _answer(self, jobs: Sequence[_Job]) -> None:
        if self._loaded is None:
            self._loaded = self._load()
        loaded = self._loaded
        jobs = [job for job in jobs if self._prepare(job, loaded)]
        growth = [self._growth(job) for job in jobs]
        for group in groups([job.prompt_ids for job in jobs], growth, self._max_cached_tokens):
            if len(loaded.reader) + group.tokens > self._max_cached_tokens:
                loaded.reader.forget()
            self._answer_group([jobs[i] for i in group.members], loaded)

    def _growth(self, job: _Job) -> int:
        return _ANSWER_TOKENS + (self._max_analysis_tokens if job.request.sampled else 0)

    def _prepare(self, job: _Job, loaded: _Loaded) -> bool:
        """Write the prompt of `job`; False where it cannot be asked."""
        job.text = loaded.text.prompt(job.request.messages)
        job.prompt_ids = loaded.text.ids(job.text)
        needed = len(job.prompt_ids) + self._growth(job)
        if loaded.context is not None and needed > loaded.context:
            reason = f"the prompt and its answer take {needed} tokens, {self.name} reads {loaded.context}"
            job.future.set_exception(Unscorable(f"{reason}; shorten the candidate, or use another model"))
        return not job.future.done()

    def _answer_group(self, jobs: Sequence[_Job], loaded: _Loaded) -> None:
        started = time.perf_counter()
        self._write_analyses([job for job in jobs if job.request.sampled], loaded)
        for slot in range(max(len(job.request.tags) for job in jobs)):
            asked = [job for job in jobs if slot < len(job.request.tags) and not job.future.done()]
            self._read_scores(asked, slot, loaded)
        seconds = (time.perf_counter() - started) / len(jobs)
        for job in jobs:
            if not job.future.done():
                usage = Usage(1, len(job.prompt_ids), len(job.stream), seconds)
                content = "".join(token.text for token in job.stream)
                job.future.set_result(Reply(tuple(job.stream), content, usage=usage))

    def _read_scores(self, jobs: Sequence[_Job], slot: int, loaded: _Loaded) -> None:
        """Write the tag number `slot` into every answer, read the level there and write it."""
        for job in jobs:
            job.write([Token(f"<{job.request.tags[slot]}>")])
        levels = [_levels(job, job.request.tags[slot], loaded) for job in jobs]
        rows_NV = loaded.reader.read([loaded.text.ids(job.text) for job in jobs]) if jobs else ()
        for job, tokens, row_V in zip(jobs, levels, rows_NV, strict=True):
            if tokens is not None:
                job.write([_level_token(row_V, tokens, job.request, loaded.text), Token(f"</{job.request.tags[slot]}>")])

    def _write_analyses(self, jobs: Sequence[_Job], loaded: _Loaded) -> None:
        """Let the model write until it ends, reaches its first tag, or has written `max_analysis_tokens`."""
        written = [list[int]() for _ in jobs]
        rngs = [np.random.default_rng(job.request.draw) for job in jobs]
        open_jobs = list(range(len(jobs)))
        for _ in range(self._max_analysis_tokens):
            if not open_jobs:
                break
            rows_NV = loaded.reader.read([jobs[i].prompt_ids + written[i] for i in open_jobs])
            probs_NV = torch.softmax(rows_NV / self._temperature, dim=-1).double().cpu().numpy()
            for i, probs_V in zip(open_jobs, probs_NV, strict=True):
                written[i].append(int(rngs[i].choice(len(probs_V), p=probs_V / probs_V.sum())))
            open_jobs = [i for i in open_jobs if not self._ended(jobs[i], written[i], loaded)]
        for job, ids in zip(jobs, written, strict=True):
            job.write(_analysis(job, [i for i in ids if i not in loaded.stops], loaded.text))

    def _ended(self, job: _Job, written: list[int], loaded: _Loaded) -> bool:
        tail = loaded.text.tokenizer.decode(written[-_ANSWER_TOKENS:])
        return written[-1] in loaded.stops or f"<{job.request.tags[0]}>" in tail

    def _load(self) -> _Loaded:
        if isinstance(self._source, str):
            model, tokenizer = self._from_disk(self._source)
        else:
            model, tokenizer = self._source, cast(PreTrainedTokenizerBase, self._tokenizer)
        model.eval()
        stops = getattr(model.generation_config, "eos_token_id", None)
        stops = stops if isinstance(stops, list) else [stops]
        return _Loaded(
            reader=CausalReader(model, pass_tokens=self._max_batch_tokens),
            text=LocalText.of(tokenizer, self._chat_template_kwargs),
            stops=frozenset(i for i in [*stops, tokenizer.eos_token_id] if i is not None),
            context=getattr(model.config.get_text_config(), "max_position_embeddings", None),
        )

    def _from_disk(self, source: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
        dtype = self._dtype or (torch.float32 if device == "cpu" else "auto")
        where: dict[str, Any] = {"gguf_file": self._gguf_file, "local_files_only": True}
        try:
            tokenizer = self._tokenizer or AutoTokenizer.from_pretrained(source, **where)
            model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **where)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{source} does not load as a causal LM: {' '.join(str(error).split())}") from error
        return model.to(device), tokenizer


def _located(source: str | Path, gguf_file: str | None) -> tuple[str, str | None]:
    """Return the folder or hub id of a model, and its GGUF file where it is one."""
    path = Path(source).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return str(path.parent), path.name
    if path.is_dir():
        found = [gguf_file] if gguf_file else [file.name for file in sorted(path.glob("*.gguf"))]
        if gguf_file is None and (path / "config.json").is_file():
            return str(path), None
        if len(found) == 1 and (path / found[0]).is_file():
            return str(path), found[0]
        raise ConfigError(f"{path} holds no config.json and not one GGUF file but {found}; pass gguf_file=...")
    is_hub_id = re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", str(source)) is not None
    if is_hub_id and isinstance(try_to_load_from_cache(str(source), "config.json"), str):
        return str(source), gguf_file
    raise ConfigError(
        f"no model at {str(source)!r}; expected a folder with config.json and weights, a GGUF file or its folder, "
        "or the hub id of a model that is already downloaded"
    )


def _fail(jobs: Sequence[_Job], error: Exception) -> None:
    for job in jobs:
        if not job.future.done():
            job.future.set_exception(error)


def _levels(job: _Job, tag: str, loaded: _Loaded) -> LevelTokens | None:
    """Return the level tokens at the end of `job.text`; None, and the job failed, where a level is not one token."""
    key = (tag, job.request.scale.levels)
    try:
        if key not in loaded.levels:
            loaded.levels[key] = LevelTokens.after(loaded.text, job.text, job.request.scale)
    except RlRewardError as error:
        job.future.set_exception(error)
    return loaded.levels.get(key)


def _level_token(row_V: torch.Tensor, levels: LevelTokens, request: Request, text: LocalText) -> Token:
    """Return the most likely level, with every spelling of every level and the likeliest other tokens beside it."""
    ids = list(levels.level_of)
    spelled: list[float] = row_V[ids].tolist()
    top = row_V.topk(min(len(ids) + _OFF_SCALE_SHOWN, len(row_V)))
    others = [(i, p) for i, p in zip(top.indices.tolist(), top.values.tolist(), strict=True) if i not in levels.level_of]
    alternatives = sorted([*zip(ids, spelled, strict=True), *others[:_OFF_SCALE_SHOWN]], key=lambda pair: -pair[1])
    mass_L = np.zeros(len(request.scale))
    np.add.at(mass_L, list(levels.level_of.values()), np.exp(spelled))
    best = int(mass_L.argmax())
    return Token(
        text=request.scale.levels[best],
        logprob=float(row_V[levels.plain_L[best]]),
        alternatives=tuple((text.piece(i), logprob) for i, logprob in alternatives),
    )


def _analysis(job: _Job, ids: list[int], text: LocalText) -> list[Token]:
    """Return the analysis as tokens, cut before a tag the model wrote itself and ready for a tag to follow."""
    words = text.tokenizer.decode(ids).split(f"<{job.request.tags[0]}>")[0]
    words += close_thinking(words) or ("" if words.endswith("\n") else "\n")
    return [Token(text.piece(i)) for i in text.tokenizer(words, add_special_tokens=False)["input_ids"]]
