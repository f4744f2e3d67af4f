"""A causal LM in this process: exact score distributions over the whole vocabulary, shared prefixes read once."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from rl_reward._checks import check_int, check_number
from rl_reward.backends.base import Reply, Request
from rl_reward.errors import BackendError, ConfigError, MissingExtraError

try:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

    from rl_reward.backends.local.answers import Answerer, AnswerLimits, Job
    from rl_reward.backends.local.loading import Loaded, Location, context, load, locate, stops
    from rl_reward.backends.local.reader import CausalReader
    from rl_reward.backends.local.text import LocalText
    from rl_reward.backends.local.vision import Vision
except ImportError as error:
    raise MissingExtraError(error.name or "transformers", "local") from error

# Requests of one burst arrive within this time; waiting for them costs less than reading their prefix twice.
_GATHER_SECONDS = 0.005


class TransformersLocal:
    """Any causal LM that transformers loads, with or without a chat template, seeing or not; nothing is ever fetched.

    Concurrent requests are gathered and run one batch at a time in a worker thread. Prefixes that requests share (those
    of criteria, causal checkpoints, repeats, the two scores of a pair) go through the model once.

    A folder of an image-text-to-text model with its processor reads images too. Every distinct image is prepared and
    looked at once, and prefixes are shared across it where the language model takes an image as inputs in a row
    (Idefics3, SmolVLM, LLaVA). Models that attend both ways inside an image (Gemma 3) or place it in rows and columns
    (Qwen-VL) are found out by the first request with an image, a warning says so, and requests with images are then
    read one at a time, each from its first token. Text is shared in any case.
    """

    sees_data = False

    def __init__(
        self,
        model: str | Path | PreTrainedModel,
        *,
        tokenizer: PreTrainedTokenizerBase | ProcessorMixin | None = None,
        device: str | None = None,
        dtype: torch.dtype | str | None = None,
        max_batch_tokens: int = 512,
        max_cached_tokens: int = 16384,
        keep_seconds: float = 0.2,
        max_analysis_tokens: int = 256,
        temperature: float = 1.0,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        gguf_file: str | None = None,
    ) -> None:
        """Find the model; the first request loads it.

        Args:
            model: A folder with config.json and weights, a GGUF file or a folder with one, the hub id of a model that
                is already downloaded, or a model object (used where and as it is, in eval mode; not picklable).
            tokenizer: Needed with a model object, the processor if images are to be read; otherwise what is beside the
                model is used. With a mere tokenizer a model that sees reads text alone.
            device: Such as "cpu" or "cuda:1"; by default CUDA where there is one.
            dtype: By default float32 on CPU, elsewhere that of the checkpoint.
            max_batch_tokens: New tokens of one forward pass, at least 1.
            max_cached_tokens: Tokens whose keys and values are held at once, at least 1.
            keep_seconds: Seconds for which they are held for requests to come, at least 0. The default is enough for a
                burst that bounded concurrency cuts in two. With a minute, a judge that is asked again and again behind
                the same examples reads them once and not at every call, and holds the memory.
            max_analysis_tokens: The longest analysis of a sampled request, at least 1.
            temperature: Of sampled analyses, above 0. Scores are always read at temperature 1.
            chat_template_kwargs: Passed to the chat template, e.g. {"enable_thinking": False}.
            gguf_file: Which GGUF file of a folder that holds several.

        Raises:
            ConfigError: There is no model there, or a value is out of its range.
        """
        limits = (("batch", max_batch_tokens), ("cached", max_cached_tokens), ("analysis", max_analysis_tokens))
        for name, value in limits:
            check_int(f"max_{name}_tokens", value, least=1)
        check_number("keep_seconds", keep_seconds, least=0, most=threading.TIMEOUT_MAX)
        check_number("temperature", temperature, above=0)
        if not isinstance(model, (str, Path)) and tokenizer is None:
            raise ConfigError("a model object needs its tokenizer; pass tokenizer=..., or the path of its folder")
        self._model = locate(model, gguf_file) if isinstance(model, (str, Path)) else model
        self.name = f"local:{_title(model)}"
        """Shown in tables, plots and logs."""
        self._tokenizer = tokenizer
        self._device, self._dtype = device, dtype
        self._max_batch_tokens, self._keep_seconds = max_batch_tokens, keep_seconds
        self._limits = AnswerLimits(max_cached_tokens, max_analysis_tokens, temperature)
        self._chat_template_kwargs = dict(chat_template_kwargs or {})
        self._start()

    @property
    def identity(self) -> str | None:
        """What tells this model and its settings from every other one, for `Cached`; None where its files do not."""
        files = self._model.fingerprint if isinstance(self._model, Location) and self._tokenizer is None else None
        settings = (self._dtype, self._limits.temperature, self._limits.analysis_tokens, self._chat_template_kwargs)
        return None if files is None else f"local {files} {settings}"

    @property
    def sees_images(self) -> bool:
        """Whether requests may hold images: until the model is loaded, what its files say."""
        if (loaded := self._loaded) is not None:
            return isinstance(loaded.vision, Vision)
        if self._tokenizer is None and isinstance(self._model, Location):
            return self._model.sees
        return isinstance(self._tokenizer, ProcessorMixin)

    def _start(self) -> None:
        self._pid = os.getpid()
        self._loaded: Answerer | None = None
        self._arrival = threading.Lock()
        self._pending: list[Job] = []
        self._worker: ThreadPoolExecutor | None = None
        self._in_use = threading.Lock()
        self._forgetting: threading.Timer | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings; whoever gets them loads the model again."""
        if not isinstance(self._model, Location):
            raise ConfigError(f"{self.name} holds a model object, which is not picklable; pass the path of its folder")
        running = {"_loaded": None, "_arrival": None, "_worker": None, "_in_use": None, "_forgetting": None}
        return self.__dict__ | running | {"_pending": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the settings over."""
        self.__dict__.update(state)
        self._start()

    async def reply(self, request: Request) -> Reply:
        """Answer one request, in one batch with those that arrive at the same time.

        `usage.seconds` is the request's share of its batch, so that usages add up to the time of the model.

        Raises:
            BackendError: The request holds an image and the model sees none, the chat template refuses it, or memory
                is short.
            ConfigError: The model or an image does not load, or a level is not one token of its vocabulary.
            Unscorable: The prompt is longer than the model reads, or its processor refuses an image.
        """
        if self._pid != os.getpid():
            self._start()  # a forked process has no worker thread, and may find the lock taken
        job = Job(request)
        with self._arrival:
            self._pending.append(job)
            is_first = len(self._pending) == 1
        try:
            if is_first:
                await asyncio.sleep(_GATHER_SECONDS)
        finally:
            # Given up on or not, the first request of a batch sends it off: others wait for it.
            if is_first:
                self._send_off()
        return await asyncio.wrap_future(job.future)

    async def aclose(self) -> None:
        """Free the model once it has answered what is waiting; a later request loads it again."""
        with self._arrival:
            worker, self._worker = self._worker, None
        if worker is not None:
            await asyncio.to_thread(worker.shutdown)
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._loaded = None

    def _send_off(self) -> None:
        with self._arrival:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, thread_name_prefix=self.name)
            self._worker.submit(self._answer_pending)

    def _answer_pending(self) -> None:
        """Answer everything that waits; runs in the worker thread."""
        with self._arrival:
            jobs, self._pending = self._pending, []
        jobs = [job for job in jobs if job.future.set_running_or_notify_cancel()]
        with self._in_use:
            self._answer(jobs)
        self._forget_later()

    def _answer(self, jobs: Sequence[Job]) -> None:
        try:
            self._loaded = self._loaded or self._load()
            self._loaded.answer(jobs)
        except torch.OutOfMemoryError as error:
            held, new = self._limits.cached_tokens, self._max_batch_tokens
            fix = f"lower max_cached_tokens={held} or max_batch_tokens={new}"
            self._fail(jobs, BackendError(f"{self.name} ran out of memory; {fix}: {error}"))
        except Exception as error:  # it belongs to whoever awaits the replies
            self._fail(jobs, error)

    def _fail(self, jobs: Sequence[Job], error: Exception) -> None:
        # A batch that broke off has laid out tokens whose keys and values are missing.
        if self._loaded is not None:
            self._loaded.forget()
        for job in jobs:
            job.fail(error)

    def _forget_later(self) -> None:
        """Free keys and values in `keep_seconds`, unless more is answered until then."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = threading.Timer(self._keep_seconds, self._forget_if_idle)
        self._forgetting.daemon = True  # an interpreter that ends waits for no timer
        self._forgetting.start()

    def _forget_if_idle(self) -> None:
        if self._in_use.acquire(blocking=False):
            try:
                if (loaded := self._loaded) is not None:  # read once: `aclose` may run meanwhile
                    loaded.forget()
            finally:
                self._in_use.release()

    def _load(self) -> Answerer:
        if isinstance(self._model, Location):
            loaded = load(self._model, self._tokenizer, self._device, self._dtype)
        else:
            loaded = Loaded.of(self._model, cast("PreTrainedTokenizerBase | ProcessorMixin", self._tokenizer))
        model, tokenizer, processor = loaded.model.eval(), loaded.tokenizer, loaded.processor
        vision = Vision(model, processor) if processor is not None else None
        return Answerer(
            CausalReader(model, pass_tokens=self._max_batch_tokens, vision=vision),
            LocalText(tokenizer, self._chat_template_kwargs, processor=processor),
            vision or f"{self.name} reads no images: {loaded.blind}",
            stops=stops(model, tokenizer),
            context=context(model),
            limits=self._limits,
        )


def _title(model: str | Path | PreTrainedModel) -> str:
    if isinstance(model, (str, Path)):
        return Path(model).expanduser().resolve().name
    return Path(str(model.config.name_or_path)).name or type(model).__name__
