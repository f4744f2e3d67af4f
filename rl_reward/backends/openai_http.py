"""One server, many requests: retries, deadlines, and a key that shows nowhere."""

from __future__ import annotations

import asyncio
import email.utils
import itertools
import json
import math
import os
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from rl_reward.backends.openai_wire import Malformed, NoLogprobs, complaint
from rl_reward.backends.per_loop import PerLoop
from rl_reward.backends.untrusted import one_line, without
from rl_reward.errors import BackendError, MissingExtraError, Unscorable
from rl_reward.types import Usage

try:
    import httpx2
    import openai
except ImportError:
    raise MissingExtraError("openai", "openai") from None

T = TypeVar("T")

ANSWERED = 200
"""The status of failures that are about what the answer says."""

_RETRIED = {408, 409, 429}
_BACKOFF, _DOUBLINGS = 0.5, 4
_CONNECT_SECONDS = 10.0
# A client looks through all of its connections at every request: with fifty of them that is half of its work.
_SHARE = 8
_REASON = 300
_MAX_BYTES = 64 * 2**20
# Shorter keys are placeholders such as EMPTY; masking a key "T" would eat the verdicts.
_SECRET_LENGTH = 6
# The user's own random state must not move because a server was busy.
_jitter = random.SystemRandom()


class Key:
    """A key that shows in no repr and no pickle: copies in other processes read it from the environment again."""

    def __init__(self, value: str | None, variable: str | None) -> None:
        """Hold `value`; None: read it from the environment variable when it is needed."""
        self._value = value
        self.variable = variable

    def reveal(self) -> str:
        """Return the key, empty if there is none.

        Raises:
            BackendError: It cannot be a key.
        """
        key = (self._value or (os.environ.get(self.variable, "") if self.variable else "")).strip()
        # The HTTP library would refuse such a header with a message that holds it.
        if not (key.isascii() and key.isprintable()):
            raise BackendError("the key holds characters that no key has; copy it again into " + self.source)
        return key

    @property
    def source(self) -> str:
        """Where the key comes from, in words."""
        return f"api_key or ${self.variable}" if self.variable else "api_key"

    def scrub(self, text: str) -> str:
        """Return `text` without the key."""
        key = self.reveal()
        return text.replace(key, "***") if key else text

    def decoded(self, body: bytes) -> Any:
        """Return the JSON in `body`, the key masked in its texts.

        Raises:
            Malformed: It is no JSON.
        """
        key = self.reveal()
        try:
            text = body.decode("utf-8-sig")
            answer = json.loads(text)
            # An escape may hide the key from a search.
            echoes = len(key) >= _SECRET_LENGTH and (key in text or "\\" in text)
            return without(key, answer) if echoes else answer
        except (ValueError, RecursionError):
            raise Malformed(f"the answer is no valid JSON: {body.decode(errors='replace')}") from None

    def __repr__(self) -> str:
        return f"Key({self.variable or '***'})"

    def __reduce__(self) -> tuple[type[Key], tuple[None, str | None]]:
        return Key, (None, self.variable)


@dataclass(frozen=True)
class Failure:
    """Why one try failed."""

    reason: str
    """In words, without the key."""
    status: int | None = None
    """The HTTP status, None when nothing answered."""
    passing: bool = True
    """Whether another try may help; if not, the server refuses the request, or is not there."""
    wait: float = 0.0
    """Seconds the server asks to wait."""


class Endpoint:
    """Posts JSON to one server over connections that stay open.

    The headers and HTTP clients are those of the `openai` package. Its own `post` is left out: it would
    retry and parse, which is done here, and take as much CPU again for its preparations.
    """

    def __init__(
        self,
        base_url: str,
        key: Key,
        *,
        deadline: float,
        try_timeout: float | None,
        max_retries: int,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """Configure; see `OpenAICompatible` for the meaning. Nothing is opened yet."""
        self.base_url, self.key = base_url, key
        self._deadline, self._try_timeout = deadline, try_timeout
        self._max_retries, self._sleep = max_retries, sleep
        self._reached = False
        self._owed = Usage()
        self._clients = PerLoop(self._connect)

    async def post(self, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T | Failure:
        """Post `body` and return what `read` makes of the decoded answer, or why no try will ever succeed.

        Raises:
            TimeoutError: The deadline passed, retries included.
            Unscorable: Every try failed in passing.
        """
        try:
            async with asyncio.timeout(self._deadline) as limit:
                for tries in itertools.count(1):
                    outcome = await self._try(path, body, read)
                    if not isinstance(outcome, Failure) or not outcome.passing:
                        return outcome
                    await self._pause(self._wait_after(outcome, tries), limit)
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"no answer within {self._deadline:g} s") from None
        raise AssertionError("unreachable: the loop above has no end")

    async def get(self, path: str, read: Callable[[Any], T]) -> T | Failure:
        """Return what `read` makes of the answer to one GET, or why there is none."""
        try:
            async with asyncio.timeout(self._deadline):
                return await self._try(path, None, read)
        except TimeoutError:
            return Failure(f"no answer within {self._deadline:g} s")

    def bill(self) -> Usage:
        """Return the tries and seconds nobody has paid yet: those of the caller, and of requests that failed since."""
        owed, self._owed = self._owed, Usage()
        return owed

    def owe(self, usage: Usage) -> None:
        """Leave `usage` for the next bill."""
        self._owed += usage

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        clients = self._clients.pop()
        if clients is not None:
            await clients.aclose()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_owed": Usage()}

    async def _try(self, path: str, body: dict[str, Any] | None, read: Callable[[Any], T]) -> T | Failure:
        """Ask once. Failures are values: an exception raised while handling another would drag its body along."""
        started = time.perf_counter()
        try:
            response = await self._send(path, body)
            self._reached = True
            if not response.is_success:
                failure = _status_failure(response)
            else:
                answer = self.key.decoded(response.content)
                if isinstance(answer, dict) and "error" in answer and "choices" not in answer:
                    raise Malformed(f"the server answers with an error: {complaint(answer)}")
                return read(answer)
        except httpx2.TimeoutException:
            failure = Failure("the connection timed out")
        except httpx2.RequestError as error:
            # Once a server has answered, one that cannot be reached is restarting; before, it is not there.
            absent = not self._reached and isinstance(error, httpx2.ConnectError)
            failure = Failure(f"the connection failed ({_root(error)})", passing=not absent)
        except NoLogprobs as error:
            failure = Failure(str(error), ANSWERED, passing=False)
        except Malformed as error:
            failure = Failure(str(error), ANSWERED)
        finally:
            if body is not None:
                self._owed += Usage(calls=1, seconds=time.perf_counter() - started)
        return replace(failure, reason=one_line(self.key.scrub(failure.reason)[:_REASON]))

    async def _send(self, path: str, body: dict[str, Any] | None) -> httpx2.Response:
        with self._clients.get().one() as client:
            if body is None:
                return await client.get(self.base_url + path)
            content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
            return await client.post(self.base_url + path, content=content)

    def _wait_after(self, failure: Failure, tries: int) -> float:
        """Return the seconds to wait after the `tries`-th failure: doubling, with jitter, at least what was asked."""
        if tries > self._max_retries:
            raise Unscorable(f"{failure.reason} ({tries} {'try' if tries == 1 else 'tries'})")
        return max(failure.wait, _BACKOFF * 2 ** min(tries - 1, _DOUBLINGS) * _jitter.uniform(0.5, 1.0))

    async def _pause(self, seconds: float, limit: asyncio.Timeout) -> None:
        left = (limit.when() or math.inf) - asyncio.get_running_loop().time()
        if seconds >= left:
            raise TimeoutError(f"the next try is due in {seconds:.1f} s, the deadline is in {left:.1f} s")
        await self._sleep(seconds)

    def _connect(self) -> _Clients:
        # Reading the certificates takes longer than a hundred requests: once is enough.
        return _Clients(partial(self._open, httpx2.create_ssl_context()))

    def _open(self, certificates: ssl.SSLContext) -> httpx2.AsyncClient:
        timeout = openai.Timeout(self._try_timeout, connect=min(self._try_timeout or math.inf, _CONNECT_SECONDS))
        # The key and the questions are meant for `base_url`; whoever it redirects to is named, not asked.
        http = openai.DefaultAsyncHttpxClient(
            verify=certificates, timeout=timeout, follow_redirects=False, event_hooks={"response": [_read_bounded]}
        )
        # Local servers want no key and the client insists on one.
        key = self.key.reveal() or "none"
        client = openai.AsyncOpenAI(base_url=self.base_url, api_key=key, http_client=http)
        headers = {"Authorization": f"Bearer {key}", **client.default_headers}
        http.headers.update({name: value for name, value in headers.items() if isinstance(value, str)})
        return http


class _Clients:
    """HTTP clients with few connections each, opened as they are needed."""

    def __init__(self, open_one: Callable[[], httpx2.AsyncClient]) -> None:
        self._open_one = open_one
        self._busy: dict[httpx2.AsyncClient, int] = {}

    @contextmanager
    def one(self) -> Generator[httpx2.AsyncClient]:
        """Lend a client that has a connection to spare: the first such, so that few requests use few connections."""
        client = next((client for client, busy in self._busy.items() if busy < _SHARE), None) or self._open_one()
        self._busy[client] = self._busy.get(client, 0) + 1
        try:
            yield client
        finally:
            self._busy[client] -= 1

    async def aclose(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(client.aclose() for client in self._busy))


async def _read_bounded(response: Any) -> None:
    """Read the body of an HTTP response, as far as it may go, before the client would read all of it.

    Raises:
        Malformed: The body is too long.
    """
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _MAX_BYTES:
            raise Malformed(f"the answer is longer than {_MAX_BYTES} bytes")
    # Where the response looks for a body that was read.
    response._content = bytes(body)


def _status_failure(response: httpx2.Response) -> Failure:
    status, headers = response.status_code, response.headers
    passing = status in _RETRIED or status >= 500
    said = f"a redirect to {headers.get('location')}" if status < 400 else _said(response)
    return Failure(f"HTTP {status}: {said}", status, passing, _retry_after(headers))


def _said(response: httpx2.Response) -> str:
    """Return what the body of a refusal says."""
    try:
        return complaint(response.json())
    except (ValueError, RecursionError):
        return response.text


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that `Retry-After` asks for, a number or a date; 0 without one."""
    asked = headers.get("retry-after", "")
    try:
        date = email.utils.parsedate_tz(asked)
        seconds = email.utils.mktime_tz(date) - time.time() if date else float(asked)
    except (ValueError, OverflowError):
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _root(error: BaseException) -> str:
    """Return the innermost cause in words, e.g. "Connection refused"."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
