from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai_questions import SCALE, T_SCORE, ask, backend, question, run, score
from protocol_server import StubServer, fails

from rl_reward.backends.base import Message, Reply, Request
from rl_reward.backends.openai_compatible import OpenAICompatible
from rl_reward.backends.openai_wire import reply_of
from rl_reward.errors import BackendError, ConfigError, Unscorable

# What is asked and what is read


def test_the_models_own_tags_are_read():
    with StubServer() as server:
        reply = ask(server)
    assert score(reply) == pytest.approx(T_SCORE)
    assert reply.content == "<score>T</score>" and reply.finish_reason == "stop"
    assert (reply.usage.calls, reply.usage.completion_tokens) == (1, 7)
    (body,) = server.bodies
    assert (body["logprobs"], body["top_logprobs"], body["temperature"], body["max_tokens"]) == (True, 20, 0.0, 64)
    assert body["messages"][0] == {"role": "system", "content": "Judge."}
    assert "continue_final_message" not in body and "seed" not in body


def test_a_prefilled_tag_is_put_back_and_the_cut_off_closing_tag_completed():
    with StubServer(letters=lambda messages, tag: {" T": 0.9, "S": 0.05, "The": 0.05}) as server:
        reply = ask(server, prefill="always")
    assert [token.text for token in reply.tokens] == ["<score>", " T", "</", "score", ">"]
    assert reply.tokens[0].logprob is None and not reply.tokens[0].alternatives
    assert score(reply) == pytest.approx(T_SCORE)
    body = server.bodies[0]
    assert body["messages"][-1] == {"role": "assistant", "content": "<score>"}
    assert (body["continue_final_message"], body["add_generation_prompt"], body["max_tokens"]) == (True, False, 4)

    with StubServer() as server:
        reply = ask(server, prefill="always", extra_body={"max_tokens": 2})
    assert reply.content == "<score>T</score>" and reply.finish_reason == "stop"
    assert score(reply) == pytest.approx(T_SCORE)


def test_an_article_after_a_prefilled_tag_is_no_verdict():
    with StubServer(letters=lambda messages, tag: {"A good": 0.9, "A": 0.1}) as server:
        reply = ask(server, prefill="always", extra_body={"max_tokens": 1})
    assert reply.finish_reason == "length"
    with pytest.raises(Unscorable):
        score(reply)


@pytest.mark.parametrize("prefill", ["always", "never"])
def test_both_scores_of_a_pair_come_from_one_reply(prefill: str):
    levels = {"score_A": {"T": 0.99, "A": 0.01}, "score_B": {"A": 0.99, "T": 0.01}}
    with StubServer(letters=lambda messages, tag: levels[tag]) as server:
        reply = ask(server, question(tags=("score_A", "score_B")), prefill=prefill)
    assert server.requests == 1
    assert (score(reply, "score_A"), score(reply, "score_B")) == (pytest.approx(0.99), pytest.approx(0.01))


def test_a_sampled_request_writes_an_analysis_with_the_draw_as_seed_and_no_prefill():
    with StubServer() as server:
        reply = ask(server, question(sampled=True, draw=3), prefill="always", temperature=0.7, max_analysis_tokens=500)
    assert reply.content.startswith("Let me see. B is a letter") and score(reply) == pytest.approx(T_SCORE)
    (body,) = server.bodies
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0.7, 3, 500)
    assert body["messages"][-1]["role"] == "user"
    # An analysis is long and no score stands in it.
    assert not any(token.alternatives for token in reply.tokens[:14]) and reply.tokens[-4].alternatives


def test_an_answer_cut_off_is_reported_as_cut_off():
    with StubServer() as server:
        reply = ask(server, question(sampled=True), max_analysis_tokens=10)
    assert reply.finish_reason == "length"
    with pytest.raises(Unscorable):
        score(reply)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("parser_swallows", [False, True])
@pytest.mark.parametrize("stop_token", [None, "<|im_end|>"])
def test_the_verdict_is_found_whatever_a_reasoning_parser_does(
    field: str, parser_swallows: bool, stop_token: str | None
):
    with StubServer(reasoning_field=field, parser_swallows=parser_swallows, stop_token=stop_token) as server:
        reply = ask(server, question(sampled=True))
        prefilled = ask(server, prefill="always", max_retries=0)
    assert reply.reasoning.startswith("Let me see.") and bool(reply.content) != parser_swallows
    assert score(reply) == pytest.approx(T_SCORE)
    assert score(prefilled) == pytest.approx(T_SCORE)


def test_pieces_of_a_character_are_joined():
    answer: dict[str, Any] = {
        "choices": [
            {
                "message": {"content": "≥<score>T</score>", "reasoning": "hm"},
                "finish_reason": "stop",
                "logprobs": {
                    "content": [
                        {"token": "bytes:\\xe2\\x89", "logprob": 0.0, "bytes": [0xE2, 0x89], "top_logprobs": []},
                        {"token": "bytes:\\xa5", "logprob": 0.0, "bytes": [0xA5], "top_logprobs": []},
                        {"token": "<score>", "logprob": 0.0, "bytes": None, "top_logprobs": []},
                        {"token": "T", "logprob": -1.0, "top_logprobs": [{"token": "T", "logprob": -1.0}]},
                        {"token": "</score>", "logprob": 0.0},
                    ]
                },
            }
        ]
    }
    assert "".join(token.text for token in reply_of(answer).tokens) == "≥<score>T</score>"


def test_extra_fields_pass_through_and_none_leaves_a_field_out():
    extras = {"max_tokens": None, "max_completion_tokens": 7, "top_k": 5}
    body = OpenAICompatible(
        "m", "http://h/v1", extra_body=extras, chat_template_kwargs={"enable_thinking": False}
    )._body(question(), prefills=False)
    assert "max_tokens" not in body and (body["max_completion_tokens"], body["top_k"]) == (7, 5)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_half_a_character_in_a_candidate_is_sent_as_a_question_mark():
    with StubServer() as server:
        assert score(ask(server, question("half \ud83d"))) == pytest.approx(T_SCORE)
    assert server.bodies[0]["messages"][1]["content"].startswith("half ?")


def test_images_go_as_data_urls(tmp_path: Path):
    frame = np.zeros((2, 2, 3), np.uint8)
    messages = (Message("user", ("Look:", frame, "<score>LEVEL</score>")),)
    request = Request("pointwise", messages, ("score",), SCALE, "task", "quality", ("x",))
    with StubServer() as server:
        assert score(ask(server, request)) == pytest.approx(T_SCORE)
    text, image, _ = server.bodies[0]["messages"][0]["content"]
    assert text == {"type": "text", "text": "Look:"}
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")


# Prefill: asked once


@pytest.mark.parametrize(
    ("kind", "prefilled", "tokens"),
    [("honoured", True, 4 + 5 * 4), ("refused", False, 0 + 5 * 7), ("ignored", False, 4 + 5 * 7)],
)
def test_prefill_is_asked_once_and_the_models_own_tags_used_where_it_fails(kind: Any, prefilled: bool, tokens: int):
    async def many(judge: OpenAICompatible) -> list[Reply]:
        return await asyncio.gather(*(judge.reply(question(f"Rate {i}.")) for i in range(5)))

    with StubServer(prefill=kind) as server:
        replies = run(many(backend(server, prefill="auto")))
    assert [score(reply) for reply in replies] == [pytest.approx(T_SCORE)] * 5
    assert all((reply.tokens[0].text == "<score>") == prefilled for reply in replies)
    assert server.requests == 6
    assert sum("continue_final_message" in body for body in server.bodies) == (6 if prefilled else 1)
    assert sum(reply.usage.calls for reply in replies) == 6
    assert sum(reply.usage.completion_tokens for reply in replies) == tokens, "the first question is paid as well"


def test_a_cancelled_request_leaves_the_question_about_prefill_to_the_others():
    async def two(judge: OpenAICompatible) -> Reply:
        first = asyncio.create_task(judge.reply(question()))
        second = asyncio.create_task(judge.reply(question()))
        await asyncio.sleep(0.05)
        first.cancel()
        return await second

    with StubServer(latency=0.1) as server:
        assert score(run(two(backend(server, prefill="auto")))) == pytest.approx(T_SCORE)
    assert server.requests == 2


def test_a_busy_server_does_not_settle_the_question_about_prefill():
    async def twice(judge: OpenAICompatible) -> Reply:
        with pytest.raises(Unscorable, match="HTTP 429"):
            await judge.reply(question())
        return await judge.reply(question())

    with StubServer(script=[fails(429)]) as server:
        reply = run(twice(backend(server, prefill="auto", max_retries=0)))
    assert reply.tokens[0].text == "<score>" and score(reply) == pytest.approx(T_SCORE)


# Concurrency, loops, settings


def test_fifty_requests_at_once_share_one_pool():
    async def rounds(judge: OpenAICompatible) -> list[Reply]:
        replies: list[Reply] = []
        for _ in range(3):
            replies += await asyncio.gather(*(judge.reply(question(f"Rate {i}.")) for i in range(50)))
        return replies

    with StubServer(latency=0.05) as server:
        replies = run(rounds(backend(server)))
    assert {score(reply) for reply in replies} == {score(replies[0])}
    assert server.requests == 150 and server.max_in_flight == 50
    assert len(server.connections) <= 50


def test_another_event_loop_gets_connections_of_its_own():
    with StubServer() as server:
        judge = backend(server)
        assert score(run(judge.reply(question()))) == score(run(judge.reply(question())))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "localhost:8000/v1"}, "base_url must look like http://host:port/v1"),
        ({"base_url": "http://host:eighty/v1"}, "base_url must look like"),
        ({"base_url": "http://me:sk-1@host/v1"}, "must be an address without key"),
        ({"base_url": "http://ho\nst/v1"}, "base_url must look like"),
        ({"base_url": "http://host/v1\n"}, "base_url must look like"),
        ({"base_url": "http://host:99999/v1"}, "base_url must look like"),
        ({"base_url": "http://1.2.3.400/v1"}, "base_url must look like"),
        ({"base_url": "http://[::g]/v1"}, "base_url must look like"),
        ({"base_url": "http://[1:2]/v1"}, "base_url must look like"),
        ({"base_url": 8000}, "base_url must be"),
        ({"model": ""}, "model must be a name"),
        ({"model": "a\nb"}, "model must be a name"),
        ({"model": 5}, "model must be a name"),
        ({"prefill": "maybe"}, "prefill must be one of auto, always, never, got 'maybe'"),
        ({"temperature": 0.0}, "temperature must be a finite number > 0, got 0.0"),
        ({"temperature": True}, "temperature must be a finite number > 0, got True"),
        ({"deadline": math.nan}, "deadline must be"),
        ({"deadline": "60"}, "deadline must be"),
        ({"try_timeout": 0}, "try_timeout must be a finite number > 0, got 0"),
        ({"top_logprobs": 0}, "top_logprobs must be an integer of at least 1, got 0"),
        ({"top_logprobs": None}, "top_logprobs must be"),
        ({"max_answer_tokens": 4.5}, "max_answer_tokens must be"),
        ({"max_retries": -1}, "max_retries must be an integer of at least 0, got -1"),
        ({"extra_body": {"stop": {"a"}}}, "extra_body must hold what JSON can hold"),
        ({"extra_body": {"top_p": math.nan}}, "extra_body must hold"),
        ({"extra_body": 5}, "extra_body must hold"),
        ({"chat_template_kwargs": {"x": "\ud83d"}}, "chat_template_kwargs must hold"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        OpenAICompatible(**{"model": "m", **options})


@pytest.mark.parametrize(
    "url", ["https://host.name:8443/v1/", "http://[::1]:80/v1", "http://127.0.0.1", "http://a_b-c"]
)
def test_addresses_are_taken(url: str):
    assert OpenAICompatible("m", url).base_url == url.rstrip("/")


def test_identity_tells_models_servers_and_settings_apart():
    settings: list[dict[str, Any]] = [{}, {"temperature": 0.5}, {"extra_body": {"top_k": 1}}, {"top_logprobs": 5}]
    judges = [OpenAICompatible("a", "http://x/v1", **options) for options in settings]
    judges += [OpenAICompatible("b", "http://x/v1"), OpenAICompatible("a", "http://y/v1")]
    assert len({judge.identity for judge in judges}) == len(judges)
    assert OpenAICompatible("a", "http://x/v1/", "key").identity == judges[0].identity


# Capabilities


def probe(server: StubServer, **options: Any):
    return run(backend(server, **{"prefill": "auto", **options}).capabilities())


def test_capabilities_of_a_good_server():
    with StubServer() as server:
        found = probe(server)
    assert (found.logprobs, found.prefill, found.images, found.models) == (True, True, True, ("stub",))
    assert found.alternatives == 3 and found.coverage == pytest.approx(0.95) and found.problem == ""


def test_capabilities_say_what_is_missing():
    with StubServer(
        images="dropped", prefill="refused", letters=lambda messages, tag: {"The": 0.97, "T": 0.03}
    ) as server:
        found = probe(server)
    assert not found.prefill and not found.images
    assert found.coverage == pytest.approx(0.03) and "only 0.03 of the probability" in found.problem
    with StubServer(logprobs="none", images="refused") as server:
        found = probe(server)
    assert (found.logprobs, found.alternatives, found.coverage, found.images) == (False, 0, None, False)
    assert "no logprobs" in found.problem


def test_capabilities_of_nothing_are_an_error():
    with StubServer(key="right") as server, pytest.raises(BackendError, match="refuses the key"):
        probe(server, api_key="wrong")
