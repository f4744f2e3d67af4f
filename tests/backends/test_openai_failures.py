from __future__ import annotations

import asyncio
import email.utils
import logging
import math
import pickle
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from openai_questions import SCALE, T_SCORE, Naps, ask, backend, question, run, score
from protocol_server import StubServer, fails, hang, html, hung_up, truncated, uniform

from rl_reward.backends.base import Reply
from rl_reward.backends.openai_compatible import OpenAICompatible
from rl_reward.backends.openai_wire import reply_of
from rl_reward.errors import BackendError, Unscorable
from rl_reward.verdict import read_score

KEY = "sk-very-secret-1234"
PASSING = [fails(429), fails(408), fails(409), fails(500), fails(503), truncated, html, hung_up]


# Failures: none becomes a number


@pytest.mark.parametrize(
    "fault", [fails(429), fails(408), fails(409), fails(500), fails(503), truncated, html, hung_up]
)
def test_a_passing_failure_is_tried_again(fault: Any):
    naps = Naps()
    with StubServer(script=[fault, fault]) as server:
        reply = ask(server, sleep=naps)
    assert score(reply) == pytest.approx(T_SCORE)
    assert reply.usage.calls == server.requests == 3
    first, second = naps.seconds
    assert 0.25 <= first <= 0.5 and 0.5 <= second <= 1.0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (fails(429, "slow down"), r"HTTP 429: slow down \(5 tries\)"),
        (fails(500), r"HTTP 500: try later \(5 tries\)"),
        (truncated, r"no valid JSON: .* \(5 tries\)"),
        (html, r"no valid JSON: <html>busy</html> \(5 tries\)"),
        (hung_up, r"connection failed .*\(5 tries\)"),
    ],
)
def test_a_lasting_failure_is_unscorable_with_its_reason(fault: Any, reason: str):
    with StubServer(script=[fault] * 5) as server, pytest.raises(Unscorable, match=reason):
        ask(server, sleep=Naps())
    assert server.requests == 5


def test_retry_after_is_honoured_as_seconds_and_as_a_date():
    naps = Naps()
    past, future = (email.utils.formatdate(time.time() + seconds, usegmt=True) for seconds in (-1000, 30))
    with StubServer(script=[fails(503, retry_after=when) for when in ("7", past, future, "soon")]) as server:
        ask(server, sleep=naps)
    assert naps.seconds[0] == 7.0
    assert naps.seconds[1] <= 1.0 and 20.0 < naps.seconds[2] <= 30.0 and naps.seconds[3] <= 4.0


def test_a_wait_beyond_the_deadline_is_a_timeout_at_once():
    naps = Naps()
    with StubServer(script=[fails(429, retry_after="3600")]) as server, pytest.raises(TimeoutError, match="in 3600"):
        ask(server, sleep=naps)
    assert naps.seconds == []


def test_a_hang_past_the_deadline_is_a_timeout():
    with StubServer(script=[hang]) as server, pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"):
        ask(server, deadline=0.2)


def test_a_hanging_try_is_tried_again_where_tries_have_a_timeout():
    with StubServer(script=[hang]) as server:
        assert score(ask(server, try_timeout=0.2, sleep=Naps())) == pytest.approx(T_SCORE)
    assert server.requests == 2


def test_the_caller_can_cancel_and_go_on():
    async def cancelled(judge: OpenAICompatible, server: StubServer) -> Reply:
        first = asyncio.create_task(judge.reply(question()))
        while not server.requests:
            await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await judge.reply(question())

    with StubServer(script=[hang]) as server:
        reply = run(cancelled(backend(server), server))
    assert score(reply) == pytest.approx(T_SCORE)
    assert reply.usage.calls == 2, "the try that was cancelled is paid as well"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"logprobs": "none"}, "no logprobs"), ({"logprobs": "no alternatives"}, "no alternatives")],
)
def test_a_server_without_logprobs_is_refused_at_first_use(options: Any, message: str):
    with StubServer(**options) as server, pytest.raises(BackendError, match=message):
        ask(server)
    assert server.requests == 1


def test_no_such_model_names_those_served():
    with StubServer(model="qwen") as server:
        judge = OpenAICompatible("gwen", server.base_url, api_key_env=None)
        with pytest.raises(BackendError, match=f"no model 'gwen' at {server.base_url}; it serves: qwen"):
            run(judge.reply(question()))


def test_a_wrong_path_says_how_base_urls_end():
    with StubServer() as server:
        judge = OpenAICompatible("stub", server.base_url.removesuffix("/v1"), api_key_env=None)
        with pytest.raises(BackendError, match=r"HTTP 404.*base_url usually ends in /v1"):
            run(judge.reply(question()))


def test_no_server_is_refused_at_first_use_without_retries():
    naps = Naps()
    with StubServer() as server:
        url = server.base_url
    with pytest.raises(BackendError, match=f"no server at {url}: .*; start it or correct base_url"):
        run(OpenAICompatible("stub", url, api_key_env=None, sleep=naps).reply(question()))
    assert naps.seconds == []


def test_a_server_that_was_there_and_is_gone_is_tried_again():
    async def gone(judge: OpenAICompatible, stop: Callable[[], Awaitable[None]]) -> None:
        await judge.reply(question())
        await stop()
        with pytest.raises(Unscorable, match=r"connection failed .*\(5 tries\)"):
            await judge.reply(question())

    with StubServer() as server:
        run(gone(backend(server, sleep=Naps()), lambda: asyncio.to_thread(server.close)))


def test_a_refusal_stops_the_run_at_first_and_later_leaves_one_request_unscored():
    async def twice(judge: OpenAICompatible) -> None:
        with pytest.raises(BackendError, match="HTTP 400: prompt too long"):
            await judge.reply(question())
        await judge.reply(question())
        with pytest.raises(Unscorable, match="HTTP 400: prompt too long"):
            await judge.reply(question())

    with StubServer(script=[fails(400, "prompt too long"), None, fails(400, "prompt too long")]) as server:
        run(twice(backend(server)))
    assert server.requests == 3


def test_nan_does_not_become_a_number():
    with StubServer(letters=lambda messages, tag: {"T": 0.9, "S": math.nan}) as server:
        reply = ask(server)
    assert math.isnan(dict(reply.tokens[3].alternatives)["S"])
    with pytest.raises(Unscorable, match="NaN"):
        score(reply)


def test_a_null_logprob_is_not_read_as_impossible():
    with StubServer() as server:
        answer = server.completion({"messages": [{"content": "<score>"}], "temperature": 0, "max_tokens": 64})
    answer["choices"][0]["logprobs"]["content"][3]["top_logprobs"][1]["logprob"] = None
    with pytest.raises(Unscorable, match="NaN"):
        score(reply_of(answer))


def test_entries_not_computed_and_short_lists_pass_through():
    with StubServer(letters=lambda messages, tag: {"T": 0.9, "S": 0.0}) as server:
        assert dict(ask(server).tokens[3].alternatives)["S"] == -9999.0
    with StubServer(letters=uniform(20), alternatives=5) as server:
        reply = ask(server)
    assert len(reply.tokens[3].alternatives) == 5
    assert read_score(reply, "score", SCALE).distribution.coverage == pytest.approx(0.25)


def test_an_empty_answer_is_unreadable():
    with StubServer(letters=lambda messages, tag: {"": 1.0}) as server:
        reply = ask(server, prefill="always", extra_body={"max_tokens": 0})
    with pytest.raises(Unscorable):
        score(reply)


# The key


def every_text(error: BaseException | None) -> str:
    if error is None:
        return ""
    shown = "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))
    return shown + every_text(error.__cause__) + every_text(error.__context__)


@pytest.mark.parametrize("key", [f"{KEY}\x00", f"{KEY[:6]}\n{KEY[6:]}", f"{KEY}é"])
def test_a_key_that_would_make_a_bad_header_is_refused_unseen(key: str):
    with StubServer() as server, pytest.raises(BackendError, match="characters that no key has") as caught:
        ask(server, api_key=key)
    assert KEY[:6] not in every_text(caught.value) and server.requests == 0


def test_a_line_end_after_the_key_is_left_off():
    with StubServer(key=KEY) as server:
        assert score(ask(server, api_key=f"{KEY}\n")) == pytest.approx(T_SCORE)


def test_the_key_is_sent_and_shows_nowhere(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    caplog.set_level(logging.DEBUG)
    with StubServer(key=KEY) as server:
        judge = backend(server, api_key=KEY)
        assert score(run(judge.reply(question()))) == pytest.approx(T_SCORE)
        shown = f"{judge!r} {judge.name} {judge.identity} {vars(judge)} {vars(judge._endpoint)} {caplog.text}"
        assert KEY not in shown and KEY.encode() not in pickle.dumps(judge)

        lost = pickle.loads(pickle.dumps(backend(server, api_key=KEY, api_key_env="MY_KEY")))
        with pytest.raises(BackendError, match=r"refuses the key .*; give api_key or \$MY_KEY"):
            run(lost.reply(question()))
        monkeypatch.setenv("MY_KEY", KEY)
        again = pickle.loads(pickle.dumps(backend(server, api_key_env="MY_KEY")))
        assert score(run(again.reply(question()))) == pytest.approx(T_SCORE)


@pytest.mark.parametrize(
    ("faults", "raised"),
    [
        ([], BackendError),
        ([fails(403, f"no access for {KEY}")], BackendError),
        ([fails(400, f"{'x' * 290} {KEY}")], BackendError),
        ([fails(500, f"Bearer {KEY}")] * 5, Unscorable),
    ],
)
def test_an_error_that_echoes_the_key_is_scrubbed(
    faults: Any, raised: type[Exception], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    with StubServer(key="another", script=faults) as server, pytest.raises(raised) as caught:
        ask(server, api_key=KEY, sleep=Naps())
    assert KEY[:12] not in every_text(caught.value) and KEY not in caplog.text
