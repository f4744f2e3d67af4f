"""A local HTTP server that speaks the OpenAI chat-completions protocol, faults to order.

`python tests/protocol_server.py --latency 0.02` serves until it is killed and prints its base URL first.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import re
import string
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from aiohttp import web

Body = dict[str, Any]
Letters = Callable[[list[Body], str], Mapping[str, float]]
Fault = Callable[[web.Request, Body], web.StreamResponse]

ANALYSIS = ("Let", " me", " see", ".", " B", " is", " a", " letter", ",", " 7", " a", " digit", ".", " ")


def letter_t(messages: list[Body], tag: str) -> Mapping[str, float]:
    """Return T with 0.9, S with 0.05, and another token with the rest: a score of 1 less 0.05 / 0.95 / 19."""
    return {"T": 0.9, "S": 0.05, "The": 0.05}


class StubServer:
    """Serves one model in a thread; use it as a context manager.

    `letters(messages, tag)` gives the probability of each token at the score. `script` holds the faults of the coming
    requests, in order of arrival; None is a request without one. What arrived is in `bodies`.
    """

    def __init__(
        self,
        letters: Letters = letter_t,
        *,
        latency: float = 0.0,
        model: str = "stub",
        key: str | None = None,
        prefill: Literal["honoured", "refused", "ignored"] = "honoured",
        logprobs: Literal["full", "none", "no alternatives"] = "full",
        alternatives: int = 20,
        images: Literal["seen", "refused", "dropped"] = "seen",
        reasoning_field: str | None = None,
        parser_swallows: bool = False,
        stop_token: str | None = None,
        script: Sequence[Fault | None] = (),
    ) -> None:
        self.letters, self.latency, self.model, self.key, self.prefill = letters, latency, model, key, prefill
        self.logprobs, self.alternatives, self.images = logprobs, alternatives, images
        self.reasoning_field, self.parser_swallows, self.stop_token = reasoning_field, parser_swallows, stop_token
        self.script: deque[Fault | None] = deque(script)
        self.bodies: list[Body] = []
        self.connections: set[Any] = set()
        self.in_flight = self.max_in_flight = 0
        self.base_url = ""
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def requests(self) -> int:
        """How many chat requests arrived."""
        return len(self.bodies)

    def __enter__(self) -> StubServer:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving; closing again does nothing."""
        if self._runner is None:
            return
        runner, self._runner = self._runner, None
        asyncio.run_coroutine_threadsafe(runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=2**28)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return self._forbidden(request) or web.json_response({"object": "list", "data": [{"id": self.model}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.connections.add(request.transport)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.latency)
            fault = self.script.popleft() if self.script else None
            if fault is hang:
                await asyncio.sleep(3600)
            return fault(request, body) if fault else self._answered(request, body)
        finally:
            self.in_flight -= 1

    def _answered(self, request: web.Request, body: Body) -> web.StreamResponse:
        if refused := self._forbidden(request):
            return refused
        if body["model"] != self.model:
            return error(404, f"The model `{body['model']}` does not exist.")
        if body.get("continue_final_message") and self.prefill == "refused":
            return error(400, "continue_final_message cannot be used in thinking mode")
        if _image_count(body) and self.images == "refused":
            return error(400, f"{self.model} is not a multimodal model")
        return web.json_response(self.completion(body))

    def _forbidden(self, request: web.Request) -> web.StreamResponse | None:
        sent = request.headers.get("Authorization", "")
        if self.key is None or sent == f"Bearer {self.key}":
            return None
        return error(401, f"Incorrect API key provided: {sent.removeprefix('Bearer ')}")

    def completion(self, body: Body) -> Body:
        """Return the answer to `body`, cut to its max_tokens."""
        chance = random.Random(body.get("seed"))
        tokens = self._analysis(body) + self._verdict(body, chance)
        cut = tokens[: body["max_tokens"]]
        reasoned = len(self._analysis(body)) if self.reasoning_field else 0
        text = ["".join(token for token, _ in part) for part in (cut[:reasoned], cut[reasoned:])]
        if self.reasoning_field and self.parser_swallows:
            text = ["".join(text), ""]
        if self.stop_token and len(cut) == len(tokens):
            cut = [*cut, (self.stop_token, {self.stop_token: 1.0})]
        message = {"role": "assistant", "content": text[1] or None}
        if self.reasoning_field:
            message[self.reasoning_field] = text[0]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None if self.logprobs == "none" else {"content": [self._entry(*token) for token in cut]},
            "finish_reason": "stop" if len(cut) >= len(tokens) else "length",
        }
        seen = 64 * _image_count(body) if self.images == "seen" else 0
        usage = {"prompt_tokens": len(_text(body)) // 4 + seen, "completion_tokens": len(cut)}
        return {"id": "stub", "object": "chat.completion", "model": self.model, "choices": [choice], "usage": usage}

    def _analysis(self, body: Body) -> list[tuple[str, Mapping[str, float]]]:
        sampled = body["temperature"] > 0 and not self._continues(body)
        return [(token, {token: 0.9, " other": 0.1}) for token in ANALYSIS] if sampled else []

    def _verdict(self, body: Body, chance: random.Random) -> list[tuple[str, Mapping[str, float]]]:
        """Return tokens and their distributions: "<", "score", ">", "T", "</", "score", ">", and for pairs again."""
        messages = body["messages"]
        tags = list(dict.fromkeys(re.findall(r"<(score\w*)>", _text(body))))
        begun = _open_tag(body) if self._continues(body) else None
        if begun is not None:
            tags = tags[tags.index(begun) :]
        tokens: list[tuple[str, Mapping[str, float]]] = []
        for tag in tags:
            probabilities = self.letters(messages, tag)
            level = max(probabilities, key=lambda token: probabilities[token])
            if body["temperature"] > 0:
                level = chance.choices(list(probabilities), list(probabilities.values()))[0]
            tokens += [*_certain("<", tag, ">"), (level, probabilities), *_certain("</", tag, ">")]
        return tokens[3:] if self._continues(body) else tokens

    def _continues(self, body: Body) -> bool:
        """Return whether the answer goes on from the last message: analysis and opening tag stand there already."""
        return bool(body.get("continue_final_message")) and self.prefill == "honoured"

    def _entry(self, token: str, probabilities: Mapping[str, float]) -> Body:
        top = sorted(probabilities.items(), key=lambda pair: -pair[1])[: self.alternatives]
        shown = [] if self.logprobs == "no alternatives" else [_logprob(*pair) for pair in top]
        return {**_logprob(token, probabilities[token]), "top_logprobs": shown}


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an error as OpenAI and vLLM write it."""
    return web.json_response({"error": {"message": message, "code": status}}, status=status, headers=headers)


def fails(status: int, message: str = "try later", **headers: str) -> Fault:
    """Return the fault of an HTTP error; `retry_after="7"` becomes the header `Retry-After: 7`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request, body: error(status, message, named)


def answers(body: str | bytes, status: int = 200, compressed: bool = False, **headers: str) -> Fault:
    """Return the fault of an answer of these very bytes, whatever they are."""
    content = body.encode() if isinstance(body, str) else body

    def fault(request: web.Request, asked: Body) -> web.StreamResponse:
        response = web.Response(body=content, status=status, headers=headers, content_type="application/json")
        if compressed:
            response.enable_compression(web.ContentCoding.gzip)
        return response

    return fault


def hang(request: web.Request, body: Body) -> web.StreamResponse:
    """Never answer."""
    raise NotImplementedError("the server waits instead")


def truncated(request: web.Request, body: Body) -> web.StreamResponse:
    """Answer with JSON that ends in the middle."""
    return web.Response(text='{"choices": [{"message": {"content": "<score>T</sc', content_type="application/json")


def html(request: web.Request, body: Body) -> web.StreamResponse:
    """Answer with a web page, as gateways do."""
    return web.Response(text="<html>busy</html>", content_type="text/html")


def hung_up(request: web.Request, body: Body) -> web.StreamResponse:
    """Close the connection without an answer."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def uniform(count: int = 20) -> Letters:
    """Return equal probabilities on the first `count` letters."""
    return lambda messages, tag: dict.fromkeys(string.ascii_uppercase[:count], 1.0 / count)


def _certain(*tokens: str) -> list[tuple[str, Mapping[str, float]]]:
    return [(token, {token: 1.0}) for token in tokens]


def _logprob(token: str, probability: float) -> Body:
    # Python's JSON writes and reads NaN, as servers do.
    logprob = math.log(probability) if probability > 0 else -9999.0 if probability == 0 else math.nan
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _open_tag(body: Body) -> str | None:
    """Return the tag that the last message ends with."""
    found = re.search(r"<(score\w*)>$", body["messages"][-1]["content"])
    return found[1] if found else None


def _parts(body: Body) -> list[Body]:
    contents = [message["content"] for message in body["messages"]]
    return [part for content in contents if isinstance(content, list) for part in content]


def _image_count(body: Body) -> int:
    return sum(part["type"] == "image_url" for part in _parts(body))


def _text(body: Body) -> str:
    plain = [message["content"] for message in body["messages"] if isinstance(message["content"], str)]
    return "\n".join(plain + [part["text"] for part in _parts(body) if part["type"] == "text"])


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    with StubServer(latency=parser.parse_args().latency) as server:
        print(server.base_url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
