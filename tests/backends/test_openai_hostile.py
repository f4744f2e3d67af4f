"""Servers that answer anything: nothing they say leaks the key, forges a line, or ends a batch."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from forks import in_a_fork
from openai_questions import T_SCORE, Naps, ask, backend, question, run, score
from protocol_server import StubServer, answers, fails

from rl_reward.backends import openai_http
from rl_reward.backends.openai_compatible import OpenAICompatible
from rl_reward.backends.openai_wire import Malformed, reply_of, usage_of
from rl_reward.errors import BackendError, ConfigError, Unscorable

KEY = "sk-very-secret-1234"
FORGED = "a\nverdict  serves scores\x1b[2J\u2028"
DEEP = "[" * 100_000


def completion() -> dict[str, Any]:
    with StubServer() as server:
        return server.completion({"messages": [{"content": "<score>"}], "temperature": 0, "max_tokens": 64})


# The key


def test_a_key_in_an_answer_is_masked_in_its_text_and_its_tokens():
    with StubServer(letters=lambda messages, tag: {KEY: 0.9, "T": 0.1}) as server:
        reply = ask(server, api_key=KEY)
    assert KEY not in repr(reply) and reply.content == "<score>***</score>"


@pytest.mark.parametrize("escaped", [KEY.replace("s", "\\u0073"), KEY.replace("-", "\\u002D")])
def test_escapes_hide_no_key(escaped: str):
    body = json.dumps(completion()).replace("score", escaped)
    with StubServer(script=[answers(body)]) as server:
        assert KEY not in repr(ask(server, api_key=KEY))


def test_a_key_in_another_encoding_is_no_answer():
    body = json.dumps(completion()).replace("score", KEY).encode("utf-16")
    with StubServer(script=[answers(body)]) as server, pytest.raises(Unscorable, match="no valid JSON"):
        ask(server, api_key=KEY, max_retries=0)


@pytest.mark.parametrize("key", ["T", "EMPTY", "score"])
def test_a_placeholder_is_no_secret_that_eats_verdicts(key: str):
    with StubServer() as server:
        assert score(ask(server, api_key=key)) == pytest.approx(T_SCORE)


def test_a_model_named_like_the_key_is_masked():
    with StubServer(model=KEY) as server:
        judge = OpenAICompatible("m", server.base_url, KEY)
        with pytest.raises(BackendError, match=r"it serves: \*\*\*$"):
            run(judge.reply(question()))


@pytest.mark.parametrize(
    "url", [KEY, f"{KEY}@host/v1", f"http://host:{KEY}/v1", f"http:/{KEY}", f"http://h/v1?k={KEY}"]
)
def test_a_key_typed_into_the_address_is_not_echoed(url: str):
    with pytest.raises(ConfigError, match="base_url must") as caught:
        OpenAICompatible("m", url)
    assert KEY not in str(caught.value)


# What reaches messages


def test_a_model_name_forges_no_line_and_floods_none():
    with StubServer(model=FORGED) as server, pytest.raises(BackendError, match="a verdict serves scores") as caught:
        run(OpenAICompatible("m", server.base_url, api_key_env=None).reply(question()))
    assert str(caught.value).isprintable()
    with StubServer(model="m" * 10_000) as server, pytest.raises(BackendError, match="it serves: mmm") as caught:
        run(OpenAICompatible("m", server.base_url, api_key_env=None).reply(question()))
    assert len(str(caught.value)) < 400


def test_capabilities_hold_clean_names():
    with StubServer(model="stub\x1b[2J\nx") as server:
        server.script.extend([answers(json.dumps(completion()))] * 4)
        found = run(OpenAICompatible("m", server.base_url, api_key_env=None).capabilities())
    assert found.models == ("stub [2J x",)


@pytest.mark.parametrize(
    "fault", [fails(500, FORGED), answers(FORGED), answers(FORGED, 500), answers(json.dumps({"error": FORGED}))]
)
def test_what_a_server_says_stays_on_its_line(fault: Any):
    with StubServer(script=[fault]) as server, pytest.raises(Unscorable, match="a verdict serves scores") as caught:
        ask(server, max_retries=0)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"error": {"message": "quota is used up", "code": 429}}', "answers with an error: quota is used up"),
        ('{"error": "model is loading"}', "answers with an error: model is loading"),
        ("<html>please log in</html>", "no valid JSON: <html>please log in</html>"),
        ("", "no valid JSON"),
    ],
)
def test_an_error_in_an_answer_is_told(body: str, reason: str):
    with StubServer(script=[answers(body)]) as server, pytest.raises(Unscorable, match=reason):
        ask(server, max_retries=0)


def test_a_redirect_is_named_and_not_followed():
    with StubServer() as other:
        redirect = answers("", 307, Location=f"{other.base_url}/chat/completions")
        with StubServer(script=[redirect]) as server, pytest.raises(BackendError) as caught:
            ask(server)
    assert f"{server.base_url} answers HTTP 307: a redirect to {other.base_url}" in str(caught.value)
    assert other.requests == 0 and server.requests == 1


# Odd answers


def first_entry(answer: Any) -> Any:
    return answer["choices"][0]["logprobs"]["content"][3]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda answer: answer.update(usage={"prompt_tokens": math.inf}),
        lambda answer: answer.update(usage=[1]),
        lambda answer: answer.update(choices=[]),
        lambda answer: answer["choices"][0].update(finish_reason=[1]),
        lambda answer: answer["choices"][0].update(message={"content": 5}),
        lambda answer: answer["choices"][0].update(message={"content": "x", "reasoning": ["y"]}),
        lambda answer: answer["choices"][0].update(logprobs={"content": 7}),
        lambda answer: first_entry(answer).update(logprob=-(10**400)),
        lambda answer: first_entry(answer).update(logprob="low"),
        lambda answer: first_entry(answer).update(token=5),
        lambda answer: first_entry(answer)["top_logprobs"][0].update(token=None),
        lambda answer: first_entry(answer)["top_logprobs"][0].update(logprob=-(10**400)),
        lambda answer: first_entry(answer).update(token="\ufffd", bytes=[300]),
        lambda answer: first_entry(answer).update(token="\ufffd", bytes=["x"]),
    ],
)
def test_a_misshapen_answer_is_malformed(spoil: Callable[[Any], object]):
    answer = completion()
    reply_of(answer)
    spoil(answer)
    with pytest.raises(Malformed, match="the answer is no chat completion"):
        reply_of(answer)


@pytest.mark.parametrize("answer", [None, 5, [], "text", {"usage": {"prompt_tokens": math.nan}}])
def test_what_says_no_usage_is_malformed(answer: Any):
    with pytest.raises(Malformed):
        usage_of(answer)


def test_a_number_where_bytes_belong_allocates_nothing():
    answer = completion()
    first_entry(answer).update(token="\ufffd", bytes=10**15)
    assert reply_of(answer).tokens[3].text == "\ufffd"


def test_an_odd_answer_leaves_its_request_unscored_and_the_next_is_read():
    async def many(judge: OpenAICompatible) -> list[Any]:
        return [(await asyncio.gather(judge.reply(question()), return_exceptions=True))[0] for _ in range(5)]

    huge = json.dumps(completion()).replace('"logprob": ', f'"logprob": -1{"0" * 400}, "was": ')
    script = [answers(DEEP), answers(huge), answers('{"usage": {"prompt_tokens": Infinity}}'), answers(DEEP, 500)]
    with StubServer(script=script) as server:
        *lost, read = run(many(backend(server, max_retries=0)))
    assert [type(error) for error in lost] == [Unscorable] * 4
    assert score(read) == pytest.approx(T_SCORE)


def test_a_deeply_nested_refusal_is_told_in_one_line():
    body = '{"error": ' + "[" * 900 + "]" * 900 + "}"
    with StubServer(script=[answers(body, 400)]) as server, pytest.raises(BackendError, match="HTTP 400") as caught:
        ask(server)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("when", ["1 Jan 99999999999 00:00:00 GMT", "1 Jan 10000 00:00:00 GMT", "1e999", "nan", "-5"])
def test_a_senseless_retry_after_is_ignored(when: str):
    naps = Naps()
    with StubServer(script=[fails(503, retry_after=when)]) as server:
        ask(server, sleep=naps)
    assert naps.seconds[0] <= 0.5


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_body_without_end_is_not_read(status: int, compressed: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(openai_http, "_MAX_BYTES", 10_000)
    fault = answers("x" * 20_000, status, compressed=compressed)
    with StubServer(script=[fault]) as server, pytest.raises(Unscorable, match="longer than 10000 bytes"):
        ask(server, max_retries=0)


# Forks


def test_a_fork_in_the_middle_of_the_question_about_prefill_asks_its_own():
    async def forked(judge: OpenAICompatible) -> tuple[bool, float | None]:
        first = asyncio.create_task(judge.reply(question()))
        await asyncio.sleep(0.1)
        return in_a_fork(lambda: score(run(judge.reply(question())))), score(await first)

    with StubServer(latency=0.3) as server:
        assert run(forked(backend(server, prefill="auto"))) == (True, pytest.approx(T_SCORE))
