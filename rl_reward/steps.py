"""The steps of a written text: where they lie in its characters, and which tokens wrote them."""

from __future__ import annotations

import operator
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise
from typing import Any, Literal

from rl_reward.errors import ConfigError

Span = tuple[int, int]
"""(first, one past the last)."""

Splitter = Callable[[str], Sequence[Span] | Sequence[str]]
"""Takes a text and returns its steps in order, as character spans or as the strings themselves.

What stands between two steps (white space, marks) belongs to the step before it. Blank steps are passed over.
"""

Splitting = Literal["paragraphs", "numbered", "sentences", "turns"] | Splitter
"""How to split: blank lines, numbered lines, sentences, the turns of a conversation with tools, or a function."""

Decode = Callable[[Sequence[int]], str]
"""Token ids to text, special tokens left out."""

_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
# "3.", "3)", "(3)", "Step 3", with or without marks of Markdown before it.
_NUMBER = re.compile(r"^[\s#*>-]*(?:step\s+\d+\b|\(?\d+[.)](?=\s|\*))", re.IGNORECASE | re.MULTILINE)
# Closing quotes and brackets go with the sentence; the full-width marks need no white space after them.
_SENTENCE_END = re.compile(r"(?<=[.!?\u2026])[\"'\u201d\u2019)\]*]*\s+|(?<=[\u3002\uff01\uff1f])|\n+")
_LABEL = re.compile(r"[\s#*>-]*\(?\d+[.)]\s*")


@dataclass(frozen=True)
class WrittenStep:
    """One step of a completion."""

    text: str
    """What it says. The texts of all steps in a row are the whole text."""
    start: int
    """Its first token."""
    end: int
    """One past its last token, at least `start` + 1."""


def paragraphs(text: str) -> list[Span]:
    """Return the spans between blank lines."""
    return _between(text, [match.span() for match in _BLANK_LINES.finditer(text)])


def numbered(text: str) -> list[Span]:
    """Return the spans that begin at a numbered line ("3.", "3)", "(3)", "Step 3"), and what is before the first."""
    return _between(text, [(match.start(), match.start()) for match in _NUMBER.finditer(text)])


def sentences(text: str) -> list[Span]:
    """Return the spans of sentences and lines; a list number ("2.") stays with what it numbers.

    It goes by punctuation alone, so "e.g. this" is two; a function of your own can do better.
    """
    gaps: list[Span] = []
    for match in _SENTENCE_END.finditer(text):
        if not _LABEL.fullmatch(text, gaps[-1][1] if gaps else 0, match.end()):
            gaps.append(match.span())
    return _between(text, gaps)


@dataclass(frozen=True)
class SeparatedBy:
    """A splitter that ends a step after certain marks; `separated_by` makes it."""

    marks: tuple[str, ...]
    """The marks, at least one, none empty."""

    def __call__(self, text: str) -> list[Span]:
        """Return the spans, each with the mark that ends it."""
        ends = [match.end() for match in re.finditer("|".join(map(re.escape, self.marks)), text)]
        return _between(text, [(end, end) for end in ends])


def separated_by(*marks: str) -> SeparatedBy:
    """Return a splitter that ends a step after each mark: by ";" and "#", "11;12#121" is "11;", "12#", "121".

    Raises:
        ConfigError: There is no mark, or an empty one.
    """
    if not marks or not all(isinstance(mark, str) and mark for mark in marks):
        raise ConfigError(f"separated_by needs one or more texts that are not empty, got {marks}")
    return SeparatedBy(marks)


NAMED: dict[str, Splitter] = {"paragraphs": paragraphs, "numbered": numbered, "sentences": sentences}
"""The splitters of text that have a name."""


def checked_splitting(steps: Splitting) -> Splitting:
    """Return `steps`.

    Raises:
        ConfigError: It is neither a known name nor a function.
    """
    known = (*NAMED, "turns")
    if not callable(steps) and steps not in known:
        raise ConfigError(f"steps must be one of {', '.join(known)} or a function of the text, got {steps!r}")
    return steps


def spans_of(text: str, split: Splitter) -> list[Span]:
    """Return where the steps of `text` are, as characters, in order and disjoint, blank ones passed over.

    Raises:
        ConfigError: What the splitter returned is neither spans nor strings, lies outside the text, is out of order,
            overlaps, or is not in the text.
    """
    found: Any = split(text)
    if not isinstance(found, (list, tuple)):
        raise ConfigError(f"a splitter returns a list of spans or of strings, got {type(found).__name__}")
    spans: list[Span] = []
    end = 0
    for step in found:  # pyright: ignore[reportUnknownVariableType]
        span = _located(step, text, end)
        if not 0 <= span[0] <= span[1] <= len(text):
            raise ConfigError(f"the splitter's step {span} is outside the text of {len(text)} characters")
        if span[0] < end:
            raise ConfigError(
                f"the splitter's step {span} begins before {end}, where the last one ends; steps must not overlap"
            )
        end = span[1]
        if text[slice(*span)].strip():
            spans.append(span)
    return spans


def steps_of(ids: Sequence[int], decode: Decode, split: Splitter) -> tuple[WrittenStep, ...]:
    """Return the steps of a completion of T >= 1 tokens; together they hold every token once, in order.

    Text is never tokenised again: the tokens of a step are found by decoding prefixes of `ids`. A token that writes
    the end of one step and the beginning of the next belongs to the earlier; a step without a token of its own is part
    of the one that holds its token. Tokens that write only what is between two steps, or nothing (special tokens, the
    end of the text), belong to the step before. A text without steps is one step.

    Args:
        ids: Token ids, int [T].
        decode: The tokenizer's, special tokens left out.
        split: Where the steps are.

    Raises:
        ConfigError: The splitter's steps are no steps of the text (see `spans_of`).
    """
    text = decode(ids)
    spans = spans_of(text, split) or [(0, len(text))]
    begun, written = _reach(ids, decode, text)
    steps: list[WrittenStep] = []
    char, token = 0, 0
    for (_, last), (following, _) in pairwise([*spans, (len(text), len(text))]):
        end = len(ids)
        if following < len(text):
            whole = bisect_left(range(end + 1), last, key=written)
            end = max(token, whole, bisect_right(range(end + 1), following, key=begun) - 1)
        if end > token:
            steps.append(WrittenStep(text[char:following], token, end))
        else:
            steps[-1] = WrittenStep(steps[-1].text + text[char:following], steps[-1].start, end)
        char, token = following, end
    return tuple(steps)


def turns_of(ids: Sequence[int], decode: Decode, own_T: Sequence[int]) -> tuple[WrittenStep, ...]:
    """Return the turns of a conversation with tools: the longest runs of tokens that the model wrote itself.

    The text of a turn goes on with what the tools answered, up to the next turn; its tokens do not. What comes before
    the first turn is in the text of the first. Without a token of the model's own, everything is one turn.

    Args:
        ids: Token ids of model and tools, int [T].
        decode: The tokenizer's, special tokens left out.
        own_T: 1 where the model wrote the token, 0 where a tool did, [T].
    """
    runs: list[Span] = []
    for own, run in groupby(range(len(ids)), key=lambda token: bool(own_T[token])):
        if own:
            tokens = list(run)
            runs.append((tokens[0], tokens[-1] + 1))
    runs = runs or [(0, len(ids))]
    edges = [0, *(start for start, _ in runs[1:]), len(ids)]
    return tuple(
        WrittenStep(decode(ids[first:last]), *run) for run, (first, last) in zip(runs, pairwise(edges), strict=True)
    )


def _between(text: str, gaps: Sequence[Span]) -> list[Span]:
    """Return the spans of `text` outside the gaps."""
    edges = [0, *(edge for gap in gaps for edge in gap), len(text)]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _located(step: Any, text: str, start: int) -> Span:
    """Return the span of a splitter's step, a string being looked for from `start` on."""
    if isinstance(step, str):
        at = text.find(step, start)
        if at < 0:
            raise ConfigError(f"the splitter's step {step[:60]!r} is not in the text after character {start}")
        return at, at + len(step)
    try:
        first, last = step
        return operator.index(first), operator.index(last)
    except (TypeError, ValueError):
        raise ConfigError(f"a splitter's step is (first, one past the last) or a string, got {step!r:.80}") from None


# A long text would be decoded from its beginning again and again. Every so many tokens the place is kept, and text is
# decoded from there, after a few tokens of context: spaces and bytes hang together. No character has more tokens than
# the longest.
_STRIDE, _CONTEXT, _LONGEST = 64, 8, 8


def _reach(ids: Sequence[int], decode: Decode, text: str) -> tuple[Callable[[int], int], Callable[[int], int]]:
    """Return how many characters of `text` the first t tokens have begun, and how many they have written whole.

    They differ where a character takes several tokens: what its first bytes decode to is not in the text.
    """
    anchors = [(0, 0)]  # places where a character ends, with how many are written there

    def reach_from(anchor: tuple[int, int], t: int) -> tuple[int, int]:
        start, known = anchor
        tail = _tail(ids, decode, start, t, text[:known])
        written = known + _common(tail, text[known : known + len(tail)])
        return min(written + (known + len(tail) > written), len(text)), written

    @cache
    def reach(t: int) -> tuple[int, int]:
        while len(anchors) <= t // _STRIDE:
            last = len(anchors) * _STRIDE
            reached = ((place, *reach_from(anchors[-1], place)) for place in range(last, last - _LONGEST, -1))
            anchors.append(next(((place, end) for place, begun, end in reached if begun == end), anchors[-1]))
        return reach_from(anchors[t // _STRIDE], t)

    return lambda t: reach(t)[0], lambda t: reach(t)[1]


def _tail(ids: Sequence[int], decode: Decode, start: int, end: int, known: str) -> str:
    """Return what the tokens from `start` to `end` add to the text `known`, which the tokens before them wrote."""
    for first in range(max(start - _CONTEXT, 0), start):
        before, after = decode(ids[first:start]), decode(ids[first:end])
        # Context that begins inside a character decodes to something else than was written.
        if before and known.endswith(before) and after.startswith(before):
            return after[len(before) :]
    return decode(ids[:end])[len(known) :]


def _common(prefix: str, text: str) -> int:
    """Return how many characters `prefix` and `text` begin with alike."""
    if text.startswith(prefix):
        return len(prefix)
    return bisect_left(range(len(prefix)), True, key=lambda n: prefix[: n + 1] != text[: n + 1])
