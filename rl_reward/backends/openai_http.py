"""One server, many requests: retries, deadlines, and a key that shows nowhere."""

from __future__ import annotations

import asyncio
import email.utils
import itertools
import json
import math
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rl_reward.backends.openai_wire import Malformed, NoLogprobs, complaint
from rl_reward.backends.per_loop import PerLoop
from rl_reward.backends.untrusted import one_line, without
from rl_reward.errors import BackendError, MissingExtraError, Unscorable
from rl_reward.types import Usage

try:
    import openai
except ImportError:
    raise MissingExtraError("openai", "openai") from None

T = TypeVar("T")

ANSWERED = 200
"""The status of failures that are about what the answer says."""

_RETRIED = {408, 409, 429}
_BACKOFF, _DOUBLINGS = 0.5, 4
_CONNECT_SECONDS = 10.0
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
    """Posts JSON to one server through one pooled client."""

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
        self._client = PerLoop(self._open)

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
        client = self._client.pop()
        if client is not None:
            await client.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_owed": Usage()}

    async def _try(self, path: str, body: dict[str, Any] | None, read: Callable[[Any], T]) -> T | Failure:
        """Ask once. Failures are values: an exception raised while handling another would drag its body along."""
        client, started = self._client.get(), time.perf_counter()
        try:
            sent = client.get(path, cast_to=bytes) if body is None else client.post(path, cast_to=bytes, body=body)
            answer = self.key.decoded(await sent)
            self._reached = True
            if isinstance(answer, dict) and "error" in answer and "choices" not in answer:
                raise Malformed(f"the server answers with an error: {complaint(answer)}")
            return read(answer)
        except openai.APIStatusError as error:
            failure = self._status_failure(error)
        except openai.APITimeoutError:
            failure = Failure("the connection timed out")
        except openai.APIConnectionError as error:
            # Once a server has answered, one that cannot be reached is restarting; before, it is not there.
            absent = not self._reached and type(error.__cause__).__name__ == "ConnectError"
            failure = Failure(f"the connection failed ({_root(error)})", passing=not absent)
        except NoLogprobs as error:
            failure = Failure(str(error), ANSWERED, passing=False)
        except Malformed as error:
            failure = Failure(str(error), ANSWERED)
        finally:
            if body is not None:
                self._owed += Usage(calls=1, seconds=time.perf_counter() - started)
        return replace(failure, reason=one_line(self.key.scrub(failure.reason)[:_REASON]))

    def _status_failure(self, error: openai.APIStatusError) -> Failure:
        self._reached = True
        status = error.status_code
        passing = status in _RETRIED or status >= 500
        headers = error.response.headers
        said = f"a redirect to {headers.get('location')}" if status < 400 else complaint(error.body or error.message)
        return Failure(f"HTTP {status}: {said}", status, passing, _retry_after(headers))

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

    def _open(self) -> openai.AsyncOpenAI:
        timeout = openai.Timeout(self._try_timeout, connect=min(self._try_timeout or math.inf, _CONNECT_SECONDS))
        # The key and the questions are meant for `base_url`; whoever it redirects to is named, not asked.
        http = openai.DefaultAsyncHttpxClient(
            timeout=timeout, follow_redirects=False, event_hooks={"response": [_read_bounded]}
        )
        # Local servers want no key and the client insists on one.
        key = self.key.reveal() or "none"
        return openai.AsyncOpenAI(base_url=self.base_url, api_key=key, max_retries=0, timeout=timeout, http_client=http)


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
