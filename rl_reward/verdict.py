"""Where in a reply the verdict stands: found by structure, never by the first digit or letter that comes along."""

from __future__ import annotations

import itertools
import re

from rl_reward.backends.base import Reply, Token
from rl_reward.distribution import MIN_COVERAGE, ScoreDistribution
from rl_reward.errors import Unscorable
from rl_reward.scale import BLANKS, ScoreScale
from rl_reward.scores import Reading

_THOUGHT = r"(?:think|thinking|thought|reasoning)"
# Many chat templates open the thought themselves: the reply then holds the end of it alone.
_THOUGHT_ENDS = re.compile(rf"</{_THOUGHT}>")
_THOUGHT_BEGINS = re.compile(rf"<{_THOUGHT}>")
_ANY_TAG = re.compile(r"<(\w+)>[^<>]*</\1>")


def read_score(
    reply: Reply, tag: str, scale: ScoreScale, *, min_coverage: float = MIN_COVERAGE, allow_text: bool = False
) -> Reading:
    """Read the score that `reply` gives in its last complete `<tag>LEVEL</tag>`.

    The distribution is taken at the token that carries the level; blank tokens before it are stepped over. Tags
    inside the analysis (a reasoning field, `<think>` blocks) do not count, except where the server put the whole
    answer into its reasoning field: then, and where the answer was cut off, the verdict must end it.

    Args:
        reply: The answer, prefilled tag included.
        tag: "score", or "score_A" and "score_B" of a pair.
        scale: The levels.
        min_coverage: Floor of the probability on the scale, in [0, 1].
        allow_text: Accept the literal level where the distribution cannot be read (the distribution is then None).

    Raises:
        Unscorable: There is no verdict, or its distribution cannot be read.
    """
    text = "".join(token.text for token in reply.tokens) or reply.content
    start, end = _verdict_span(reply, text, tag, scale)
    literal = scale.index(text[start:end])
    try:
        token = _token_at(reply, start)
        if literal is None and token.text.strip() != text[start:end]:
            raise Unscorable(f"the verdict {text[start:end][:20]!r} is none of the levels {scale.first}..{scale.last}")
        return _distribution_of(token, scale, min_coverage)
    except Unscorable:
        if allow_text and literal is not None:
            return Reading(float(scale.values[literal]), None)
        raise


def _verdict_span(reply: Reply, text: str, tag: str, scale: ScoreScale) -> tuple[int, int]:
    """Return the character span of what the last complete tag of the answer holds; one with a level goes first."""
    start, end, must_end = _answer_span(reply, text)
    opening, closing = re.escape(f"<{tag}>"), re.escape(f"</{tag}>")
    inside = rf"[{BLANKS}]*((?:(?!{opening}).)*?)[{BLANKS}]*"
    found = list(re.compile(f"{opening}{inside}{closing}", re.DOTALL).finditer(text, start, end))
    if must_end:
        found = [match for match in found if not _ANY_TAG.sub("", text[match.end() : end]).strip()]
    if not found:
        where = " at the end of the reasoning or of an answer that was cut off" if must_end else ""
        raise Unscorable(f"the answer has no complete <{tag}>...</{tag}>{where}")
    # A tag that is quoted after the verdict, empty or with a placeholder in it, is not the verdict.
    verdict = next((match for match in reversed(found) if scale.index(match[1]) is not None), found[-1])
    if not verdict[1]:
        raise Unscorable(f"<{tag}> is empty")
    return verdict.span(1)


def _answer_span(reply: Reply, text: str) -> tuple[int, int, bool]:
    """Return the span of the answer in the token stream, and whether the verdict must stand at its end."""
    cut_off = reply.finish_reason == "length"
    content = reply.content.strip()
    if not content:
        if cut_off:
            raise Unscorable("the answer was cut off before the verdict; raise the token limit")
        return 0, len(text), True
    start = text.rfind(content)
    if start < 0:
        raise Unscorable("the server's text and its tokens disagree")
    end = start + len(content)
    start = max((match.end() for match in _THOUGHT_ENDS.finditer(text, start, end)), default=start)
    unfinished = _THOUGHT_BEGINS.search(text, start, end)
    return start, unfinished.start() if unfinished else end, cut_off


def _token_at(reply: Reply, position: int) -> Token:
    """Return the token that carries the character at `position` of the stream."""
    ends = itertools.accumulate(len(token.text) for token in reply.tokens)
    token = next((token for token, end in zip(reply.tokens, ends, strict=True) if end > position), None)
    if token is None or not token.alternatives:
        raise Unscorable("the server gave no logprobs of alternatives at the score")
    return token


def _distribution_of(token: Token, scale: ScoreScale, min_coverage: float) -> Reading:
    sampled = None if token.logprob is None else (token.text, token.logprob)
    read = ScoreDistribution.from_alternatives(scale, token.alternatives, sampled=sampled, min_coverage=min_coverage)
    return Reading(read.mean, read)
