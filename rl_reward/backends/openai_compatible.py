"""Judges behind the OpenAI chat-completions protocol: vLLM, SGLang, llama.cpp and hosted models."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import numpy as np

from rl_reward._checks import check_int, check_number
from rl_reward.backends.base import Message, Reply, Request
from rl_reward.backends.capabilities import Capabilities
from rl_reward.backends.openai_http import ANSWERED, Endpoint, Failure, Key
from rl_reward.backends.openai_wire import (
    chat_messages,
    follows_prefill,
    model_names,
    reply_of,
    usage_of,
    with_prefill,
)
from rl_reward.distribution import MIN_COVERAGE
from rl_reward.errors import BackendError, ConfigError, Unscorable
from rl_reward.scale import ScoreScale
from rl_reward.verdict import read_score

Prefill = Literal["auto", "always", "never"]

_OPENAI = "https://api.openai.com/v1"
_CHAT = "/chat/completions"
_TAG = "score"
_NEEDS = "take a server and a model that return the logprobs of letters (vLLM, SGLang, some hosted ones)"
# A level and its closing tag; of the tag a part is enough. A pair writes two of them and one opening tag.
_PREFILLED_TOKENS = {1: 4, 2: 32}
_BAD_REQUEST = {400, 413, 422}
_MODELS_SHOWN = 20
_URL = r"https?://(\[[\da-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?(/[!-~]*)?"


class OpenAICompatible:
    """Asks one model of one server for verdicts and the logprobs of their tokens.

    Without a sampled analysis the answer is begun for the model with the opening tag where the server allows it
    (`continue_final_message` of vLLM and SGLang): a score then costs a few tokens. Whether it does is asked once, with
    a tiny question before the first request. Elsewhere, and after an analysis, the tags are the model's own.

    The key and the questions are sent to `base_url` and not to where it redirects. The key appears in no message, repr,
    pickle or answer, also where the server repeats it; a copy in another process reads it from the environment again.
    """

    sees_data = False

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        api_key_env: str | None = "OPENAI_API_KEY",
        top_logprobs: int = 20,
        temperature: float = 1.0,
        max_analysis_tokens: int = 1024,
        max_answer_tokens: int = 64,
        prefill: Prefill = "auto",
        extra_body: Mapping[str, Any] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        deadline: float = 60.0,
        try_timeout: float | None = None,
        max_retries: int = 4,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Configure the backend; nothing is opened yet.

        Args:
            model: Name of the model, as the server calls it.
            base_url: Address up to and with "/v1"; None: $OPENAI_BASE_URL or OpenAI's own.
            api_key: The key; None: from the environment.
            api_key_env: The variable that holds the key; None: no key is sent.
            top_logprobs: Alternatives asked for at each token, 1 to 20 on most servers.
            temperature: Of sampled analyses, > 0. Verdicts without one are asked at temperature 0.
            max_analysis_tokens: Limit of an analysis with its verdict, >= 1.
            max_answer_tokens: Limit of a verdict whose tags the model writes itself, >= 1.
            prefill: "auto": asked once; "always" and "never": not asked.
            extra_body: Further fields of every request, as JSON has them; a field given as None is left out of it.
            chat_template_kwargs: Passed to the chat template, e.g. {"enable_thinking": False}.
            deadline: Seconds for one request, its retries included, > 0.
            try_timeout: Seconds without a byte after which one try counts as failed; None: only the deadline counts.
            max_retries: Tries after the first one, >= 0. Retried are 408, 409, 429, 5xx, lost connections, timeouts and
                broken answers, with growing pauses and as late as `Retry-After` asks.
            sleep: What waits between tries; tests put their own.

        Raises:
            ConfigError: A value is outside its range.
        """
        if not isinstance(model, str) or not model or not model.isprintable():
            raise ConfigError(f"model must be a name the server knows, got {model!r}")
        if prefill not in get_args(Prefill):
            raise ConfigError(f"prefill must be one of {', '.join(get_args(Prefill))}, got {prefill!r}")
        self.name, self.model, self.prefill = f"openai:{model}", model, prefill
        self.base_url = _checked_url(base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI)
        self.top_logprobs = check_int("top_logprobs", top_logprobs, least=1)
        self.temperature = check_number("temperature", temperature, above=0.0)
        self.max_analysis_tokens = check_int("max_analysis_tokens", max_analysis_tokens, least=1)
        self.max_answer_tokens = check_int("max_answer_tokens", max_answer_tokens, least=1)
        self.extra_body = _json_object("extra_body", extra_body)
        self.chat_template_kwargs = _json_object("chat_template_kwargs", chat_template_kwargs)
        self._endpoint = Endpoint(
            self.base_url,
            Key(api_key, api_key_env),
            deadline=check_number("deadline", deadline, above=0.0),
            try_timeout=None if try_timeout is None else check_number("try_timeout", try_timeout, above=0.0),
            max_retries=check_int("max_retries", max_retries, least=0),
            sleep=sleep,
        )
        self._served = False
        self._prefills: bool | None = None if prefill == "auto" else prefill == "always"
        self._probing: asyncio.Task[bool] | None = None

    def __repr__(self) -> str:
        return f"OpenAICompatible(model={self.model!r}, base_url={self.base_url!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_probing": None}

    @property
    def identity(self) -> str:
        """Everything about this backend that could change an answer; the key is no part of it."""
        settings = (self.top_logprobs, self.temperature, self.max_analysis_tokens, self.max_answer_tokens, self.prefill)
        extras = json.dumps([self.extra_body, self.chat_template_kwargs], sort_keys=True)
        return f"{self.name} at {self.base_url} {settings} {extras}"

    async def reply(self, request: Request) -> Reply:
        """Answer one request; see `Backend.reply`.

        A refusal (HTTP 400, no logprobs) is a BackendError on first use; once requests have been served it is the fault
        of this request, for example too long for the model, and leaves it unscored.
        """
        reply = await self._answer(request)
        if isinstance(reply, Failure):
            raise await self._explained(reply)
        self._served = True
        return reply

    async def capabilities(self) -> Capabilities:
        """Ask a few tiny questions and return what was found.

        Raises:
            BackendError: There is no such server or model, or it refuses the key or the question.
            TimeoutError: The server is too slow.
            Unscorable: The server fails.
        """
        question = _question()
        models = await self._endpoint.get("/models", model_names)
        prefill = await self._can_prefill()
        images = await self._sees_images()
        started = time.perf_counter()
        reply = await self._answer(question)
        latency = time.perf_counter() - started
        if isinstance(reply, Failure) and reply.status != ANSWERED:
            raise await self._explained(reply)
        tokens = () if isinstance(reply, Failure) else reply.tokens
        coverage, problem = _coverage(reply, question.scale)
        return Capabilities(
            logprobs=any(token.logprob is not None for token in tokens),
            alternatives=max((len(token.alternatives) for token in tokens), default=0),
            coverage=coverage,
            prefill=prefill,
            images=images,
            latency=latency,
            models=() if isinstance(models, Failure) else models,
            problem=problem,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        probing, self._probing = self._probing, None
        if probing is not None and probing.get_loop() is asyncio.get_running_loop():
            probing.cancel()
        await self._endpoint.aclose()

    async def _answer(self, request: Request) -> Reply | Failure:
        prefills = not request.sampled and await self._can_prefill()
        reply = await self._ask(self._body(request, prefills), () if prefills else request.tags)
        if isinstance(reply, Failure):
            return reply
        reply = replace(reply, usage=reply.usage + self._endpoint.bill())
        return with_prefill(reply, request.tags, request.scale) if prefills else reply

    async def _ask(self, body: dict[str, Any], tags: Sequence[str]) -> Reply | Failure:
        return await self._endpoint.post(_CHAT, body, lambda answer: reply_of(answer, tags))

    def _body(self, request: Request, prefills: bool) -> dict[str, Any]:
        """Return the JSON of `request`."""
        messages = chat_messages(request.messages)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "logprobs": True,
            "top_logprobs": self.top_logprobs,
            "temperature": 0.0,
            "max_tokens": self.max_answer_tokens,
        }
        if request.sampled:
            body |= {"temperature": self.temperature, "max_tokens": self.max_analysis_tokens, "seed": request.draw}
        if prefills:
            messages.append({"role": "assistant", "content": f"<{request.tags[0]}>"})
            body |= {"continue_final_message": True, "add_generation_prompt": False}
            body["max_tokens"] = _PREFILLED_TOKENS[len(request.tags)]
        if self.chat_template_kwargs:
            body["chat_template_kwargs"] = self.chat_template_kwargs
        return {name: value for name, value in {**body, **self.extra_body}.items() if value is not None}

    async def _can_prefill(self) -> bool:
        """Return whether answers can be begun for the model; all who want to know at first wait for one question."""
        if self._prefills is not None:
            return self._prefills
        probing = self._probing
        # A fork or another `asyncio.run` leaves a task behind that will never be done.
        if probing is None or probing.done() or probing.get_loop() is not asyncio.get_running_loop():
            self._probing = probing = asyncio.create_task(self._probe_prefill())
        # Shielded: one of those who wait may be cancelled, the others still want the answer.
        self._prefills = found = await asyncio.shield(probing)
        return found

    async def _probe_prefill(self) -> bool:
        """Ask a tiny question with its answer begun: servers refuse that, go on from it, or silently ignore it."""
        question = _question()
        reply = await self._ask(self._body(question, prefills=True), ())
        if isinstance(reply, Failure):
            if reply.status in _BAD_REQUEST or reply.status == ANSWERED:
                return False
            raise await self._explained(reply)
        self._endpoint.owe(reply.usage)
        return follows_prefill(reply, question.scale)

    async def _sees_images(self) -> bool:
        """Return whether an image costs prompt tokens; some servers refuse images, others drop them silently."""
        image = np.full((64, 64, 3), 128, np.uint8)
        tokens: list[int] = []
        for parts in (("Answer yes.",), ("Answer yes.", image)):
            body = self._body(replace(_question(), messages=(Message("user", parts),)), prefills=False)
            usage = await self._endpoint.post(_CHAT, body, usage_of)
            if isinstance(usage, Failure):
                return False
            tokens.append(usage.prompt_tokens)
        return tokens[1] > tokens[0]

    async def _explained(self, failure: Failure) -> BackendError | Unscorable:
        """Return the error that says what was refused and what to change."""
        if failure.status is None:
            return BackendError(f"no server at {self.base_url}: {failure.reason}; start it or correct base_url")
        if 300 <= failure.status < 400:
            return BackendError(f"{self.base_url} answers {failure.reason}; give the address it stands for as base_url")
        if failure.status in (401, 403):
            return BackendError(f"{self.base_url} refuses the key ({failure.reason}); {self._key_advice()}")
        if self._served and (failure.status in _BAD_REQUEST or failure.status == ANSWERED):
            return Unscorable(failure.reason)
        if failure.status == ANSWERED:
            return BackendError(f"{self.name} at {self.base_url}: {failure.reason}; {_NEEDS}")
        models = await self._endpoint.get("/models", model_names)
        if isinstance(models, tuple) and models and self.model not in models:
            shown = ", ".join(models[:_MODELS_SHOWN]) + (", ..." if len(models) > _MODELS_SHOWN else "")
            return BackendError(f"no model {self.model!r} at {self.base_url}; it serves: {shown}")
        if failure.status == 404:
            return BackendError(f"{self.base_url}{_CHAT}: {failure.reason}; base_url usually ends in /v1")
        return BackendError(f"{self.name} refuses the question ({failure.reason}); {self._body_advice(failure.reason)}")

    def _key_advice(self) -> str:
        key = self._endpoint.key
        if key.reveal():
            return f"check {key.source}"
        return f"give {key.source} (a key given as api_key stays in its process)"

    def _body_advice(self, reason: str) -> str:
        if "logprob" in reason.lower():
            return f"lower top_logprobs (now {self.top_logprobs}) or take a model that returns logprobs"
        return "change it with extra_body; a field given as None is left out"


def _question() -> Request:
    """Return a tiny question whose answer any model knows."""
    scale = ScoreScale.letters()
    text = (
        f"Is it true that 2 + 2 = 4? Rate it from {scale.first} (false) to {scale.last} (true). "
        f"Answer with <{_TAG}>LETTER</{_TAG}> and nothing else."
    )
    return Request("pointwise", (Message("user", (text,)),), (_TAG,), scale, text, "truth", ("2 + 2 = 4",))


def _coverage(reply: Reply | Failure, scale: ScoreScale) -> tuple[float | None, str]:
    """Return the probability on the scale, and why no score can be read where none can."""
    if isinstance(reply, Failure):
        return None, f"{reply.reason}; {_NEEDS}"
    try:
        reading = read_score(reply, _TAG, scale, min_coverage=0.0)
    except Unscorable as error:
        return None, f"{error}; the model wrote {reply.content[:80]!r}"
    coverage = reading.distribution.coverage if reading.distribution is not None else 0.0
    if coverage >= MIN_COVERAGE:
        return coverage, ""
    return coverage, f"only {coverage:.2g} of the probability is on the letters, {MIN_COVERAGE:g} is needed; {_NEEDS}"


def _checked_url(url: str) -> str:
    if not isinstance(url, str) or any(mark in url for mark in "@?#"):
        raise ConfigError("base_url must be an address without key, user name or query; give api_key or its variable")
    if not re.fullmatch(_URL, url, re.ASCII) or not _has_host(url):
        raise ConfigError("base_url must look like http://host:port/v1; it is not shown, for it may hold a key")
    return url.rstrip("/")


def _has_host(url: str) -> bool:
    """Return whether the port is in range and what looks like an IP address is one."""
    try:
        host, port = urlsplit(url).hostname or "", urlsplit(url).port
        if re.fullmatch(r"[\d.]+|.*:.*", host):
            ipaddress.ip_address(host)
        return host != "" and port != 0
    except ValueError:
        return False


def _json_object(name: str, fields: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of `fields` that JSON can hold."""
    try:
        return json.loads(json.dumps(dict(fields or {}), ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name} must hold what JSON can hold: names, texts, finite numbers; {error}") from None
