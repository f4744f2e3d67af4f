"""Where in a reply the verdict stands: found by structure, never by the first digit or letter that comes along."""

from __future__ import annotations

import itertools
import re

from rl_reward.backends.base import Reply
from rl_reward.distribution import MIN_COVERAGE, ScoreDistribution
from rl_reward.errors import Unscorable
from rl_reward.scale import ScoreScale
from rl_reward.scores import Reading

_THINKING = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_ANY_TAG = re.compile(r"<(\w+)>[^<>]*</\1>")


def read_score(
    reply: Reply, tag: str, scale: ScoreScale, *, min_coverage: float = MIN_COVERAGE, allow_text: bool = False
) -> Reading:
    """Read the score that `reply` gives in its last complete `<tag>LEVEL</tag>`.

    The distribution is taken at the token that carries the level; blank tokens before it are stepped over. Tags
    inside the analysis (a reasoning field, `<think>` blocks) do not count, except where the server put the whole
    answer into its reasoning field: then the verdict must end it.

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
    start, end = _verdict_span(reply, text, tag)
    literal = scale.index(text[start:end])
    try:
        return _distribution_at(reply, start, literal, scale, min_coverage)
    except Unscorable:
        if allow_text and literal is not None:
            return Reading(float(scale.values[literal]), None)
        raise


def _verdict_span(reply: Reply, text: str, tag: str) -> tuple[int, int]:
    """Return the character span of the level inside the last complete tag of the answer."""
    start, end, must_end = _answer_span(reply, text)
    opening, closing = re.escape(f"<{tag}>"), re.escape(f"</{tag}>")
    verdicts = list(re.compile(rf"{opening}((?:(?!{opening}).)*?){closing}", re.DOTALL).finditer(text, start, end))
    if not verdicts:
        raise Unscorable(f"the answer has no complete <{tag}>...</{tag}>")
    verdict = verdicts[-1]
    if must_end and _ANY_TAG.sub("", text[verdict.end() : end]).strip():
        raise Unscorable(f"<{tag}> stands inside the reasoning, not at its end")
    if not verdict[1].strip():
        raise Unscorable(f"<{tag}> is empty")
    level = verdict[1].strip()
    first = verdict.start(1) + verdict[1].index(level)
    return first, first + len(level)


def _answer_span(reply: Reply, text: str) -> tuple[int, int, bool]:
    """Return the span of the answer in the token stream, and whether the verdict must stand at its end."""
    content = reply.content.strip()
    if not content:
        if reply.finish_reason == "length":
            raise Unscorable("the answer was cut off before the verdict; raise the token limit")
        return 0, len(text), True
    start = text.rfind(content)
    if start < 0:
        if reply.reasoning:
            raise Unscorable("the answer cannot be told from the reasoning in the token stream")
        start, content = 0, text
    end = start + len(content)
    for thought in _THINKING.finditer(text, start, end):
        start = thought.end()
    return start, end, False


def _distribution_at(
    reply: Reply, position: int, literal: int | None, scale: ScoreScale, min_coverage: float
) -> Reading:
    """Return the reading at the token that carries the character at `position`."""
    ends = itertools.accumulate(len(token.text) for token in reply.tokens)
    token = next((token for token, end in zip(reply.tokens, ends, strict=True) if end > position), None)
    if token is None or (token.logprob is None and not token.alternatives):
        raise Unscorable("the server gave no logprobs at the score")
    # "1" of "10", "7" of "7/10": the token spells a level, the verdict does not.
    if literal is None and scale.index(token.text) is not None:
        raise Unscorable(f"the verdict is none of the levels {scale.first}..{scale.last}")
    sampled = None if token.logprob is None else (token.text, token.logprob)
    read = ScoreDistribution.from_alternatives(scale, token.alternatives, sampled=sampled, min_coverage=min_coverage)
    return Reading(read.mean, read)
