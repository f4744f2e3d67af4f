"""The chat-completions format: messages as the server takes them, its answers as replies. Pure, no network."""

from __future__ import annotations

import codecs
import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from rl_reward.backends.base import Message, Reply, Token
from rl_reward.backends.images import encode
from rl_reward.backends.untrusted import MISSHAPEN, one_line, string
from rl_reward.scale import ScoreScale
from rl_reward.types import Usage

_NOTHING: dict[str, Any] = {}
_MAX_NAME = 200
_MAX_STOP_TOKENS = 3


class Malformed(Exception):
    """The answer is not what the protocol promises; worth another try."""


class NoLogprobs(Exception):
    """The answer has text, and no logprobs or no alternatives."""


@contextmanager
def _read_as(what: str) -> Generator[None]:
    """Raise Malformed for whatever Python raises at an answer that is no `what`."""
    try:
        yield
    except MISSHAPEN as error:
        raise Malformed(f"the answer is no {what} ({type(error).__name__}: {error})") from None


def chat_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return `messages` as the server takes them, images as data URLs."""
    return [{"role": message.role, "content": _content(message)} for message in messages]


@_read_as("chat completion")
def reply_of(answer: Any, tags: Sequence[str] = ()) -> Reply:
    """Return the reply in the JSON `answer` of a server.

    Args:
        answer: The decoded body.
        tags: If given, alternatives before the first of these opening tags are dropped: analyses are long, no score
            stands in them, and replies are kept in caches.

    Raises:
        Malformed: The body is not a chat completion.
        NoLogprobs: It is one without what a score is read from.
    """
    choice = answer["choices"][0]
    message, entries = choice["message"], (choice.get("logprobs") or _NOTHING).get("content") or ()
    content, reasoning = string(message.get("content") or ""), _reasoning(message)
    if content + reasoning:
        _check_logprobs(entries)
    return Reply(
        _without_stop_token(_tokens(entries, tags), content or reasoning),
        content,
        reasoning,
        string(choice.get("finish_reason") or "stop"),
        usage_of(answer),
    )


@_read_as("chat completion")
def usage_of(answer: Any) -> Usage:
    """Return the tokens that `answer` says it cost; raise Malformed if it says no such thing."""
    usage = answer.get("usage") or _NOTHING
    return Usage(0, int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))


@_read_as("list of models")
def model_names(answer: Any) -> tuple[str, ...]:
    """Return the names of the models in `answer`, each on one line; raise Malformed if it is no list of them."""
    return tuple(one_line(string(row["id"])[:_MAX_NAME]) for row in answer["data"])


def complaint(answer: Any) -> str:
    """Return what the decoded body `answer` of a refusal says, in words where it has any."""
    for name in ("error", "message", "detail"):
        if isinstance(answer, dict):
            answer = cast("dict[str, Any]", answer).get(name) or cast("Any", answer)
    try:
        return str(answer)
    except RecursionError:
        return "an answer that is nested too deeply"


def follows_prefill(reply: Reply, scale: ScoreScale) -> bool:
    """Return whether `reply` goes on from a prefilled opening tag, rather than beginning an answer of its own."""
    return scale.index(_text(reply.tokens).partition("<")[0]) is not None


def with_prefill(reply: Reply, tags: Sequence[str], scale: ScoreScale) -> Reply:
    """Return `reply` with the prefilled opening tag before it, a closing tag that the token limit cut off completed."""
    tokens = (Token(f"<{tags[0]}>"), *reply.tokens)
    missing = _missing_close(_text(tokens), tags[-1], scale)
    if missing:
        tokens = (*tokens, Token(missing))
    # What follows a prefilled tag is the answer, whatever field a reasoning parser puts it into.
    finish_reason = reply.finish_reason if missing is None else "stop"
    return replace(reply, tokens=tokens, content=_text(tokens), finish_reason=finish_reason)


def _missing_close(text: str, tag: str, scale: ScoreScale) -> str | None:
    """Return what closes the first `<tag>LEVEL` of `text`: "" where nothing is missing, None where no level stands."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    if opening not in text:
        return None
    body = text.partition(opening)[2].rstrip()
    if closing in body:
        return ""
    written = next(n for n in range(len(closing), -1, -1) if body.endswith(closing[:n]))
    # "A good answer" begins with a letter and is no verdict.
    return closing[written:] if scale.index(body[: len(body) - written]) is not None else None


def _content(message: Message) -> str | list[dict[str, Any]]:
    if all(isinstance(part, str) for part in message.parts):
        return _sendable(message.text)
    return [
        {"type": "text", "text": _sendable(part)}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": encode(part).data_url}}
        for part in message.parts
    ]


def _sendable(text: str) -> str:
    """Return `text` with half characters (lone surrogates), which UTF-8 cannot hold, as question marks."""
    return text.encode("utf-8", "replace").decode()


def _reasoning(message: Any) -> str:
    return string(message.get("reasoning_content") or message.get("reasoning") or "")


def _check_logprobs(entries: Sequence[Any]) -> None:
    if not entries:
        raise NoLogprobs("the answer has no logprobs")
    if not any(entry.get("top_logprobs") for entry in entries):
        raise NoLogprobs("the answer has no alternatives (top_logprobs is empty)")


def _tokens(entries: Sequence[Any], tags: Sequence[str]) -> tuple[Token, ...]:
    texts = list(_texts(entries))
    whole = "".join(texts)
    found = [position for tag in tags if (position := whole.find(f"<{tag}>")) >= 0]
    first = min(found, default=len(whole)) if tags else 0
    tokens, end = list[Token](), 0
    for text, entry in zip(texts, entries, strict=True):
        end += len(text)
        alternatives = _alternatives(entry) if end > first else ()
        logprob = entry.get("logprob")
        tokens.append(Token(text, None if logprob is None else float(logprob), alternatives))
    return tuple(tokens)


def _texts(entries: Sequence[Any]) -> Iterator[str]:
    """Yield the string of each token; the pieces of a character split over tokens stand in the last of them."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for entry in entries:
        token, raw = string(entry["token"]), entry.get("bytes")
        # A piece of a character is spelled "bytes:\xe2" by some servers and as the replacement mark by others.
        pieces = cast("list[int]", raw) if isinstance(raw, list) else []
        in_pieces = bool(pieces) and (token.startswith("bytes:") or "\ufffd" in token)
        yield decoder.decode(bytes(pieces)) if in_pieces else token


def _alternatives(entry: Any) -> tuple[tuple[str, float], ...]:
    return tuple((string(top["token"]), _number(top["logprob"])) for top in entry.get("top_logprobs") or ())


def _number(value: Any) -> float:
    # Some JSON encoders write NaN and -inf as null. Which of the two it was is not known: unreadable, not impossible.
    return math.nan if value is None else float(value)


def _without_stop_token(tokens: tuple[Token, ...], text: str) -> tuple[Token, ...]:
    """Drop the end-of-turn token, which some servers list among the logprobs though it is no part of the text."""
    for _ in range(_MAX_STOP_TOKENS):
        if text.strip() and _text(tokens[:-1]).rstrip().endswith(text.strip()):
            tokens = tokens[:-1]
    return tokens


def _text(tokens: Sequence[Token]) -> str:
    return "".join(token.text for token in tokens)
