"""The tool task of the worked example: expressions of three operations, one calculator call a turn, then the answer."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from rl_reward.errors import ConfigError

Split = Literal["pretraining", "grpo", "evaluation"]

OPERATIONS = {"+": "add", "-": "subtract", "*": "multiply"}
"""The sign of an operation and the tool that works it out."""
LARGEST = 99_999
"""The calculator shows no number beyond this, on either side of zero."""
TURNS = 4
"""A right solution has three calls and an answer."""

# Cumulative shares of the splits, in per cent, in the order of `Split`.
_SHARE_ENDS = (40, 85, 100)
_SIGNS = tuple(OPERATIONS)
_CHAIN = re.compile(r"\(\((\d+)([+*-])(\d+)\)([+*-])(\d+)\)([+*-])(\d+)")
_PAIR = re.compile(r"\((\d+)([+*-])(\d+)\)([+*-])\((\d+)([+*-])(\d+)\)")


@dataclass(frozen=True)
class Call:
    """One use of the calculator."""

    sign: str
    """One of + - *."""
    a: int
    """First operand."""
    b: int
    """Second operand."""

    @property
    def result(self) -> int:
        """What the calculator shows."""
        return {"+": self.a + self.b, "-": self.a - self.b, "*": self.a * self.b}[self.sign]


@dataclass(frozen=True)
class Expression:
    """Four numbers in [2, 20] and three operations, as ((a+b)+c)+d or (a+b)+(c+d)."""

    numbers: tuple[int, int, int, int]
    """From left to right."""
    signs: tuple[str, str, str]
    """From left to right."""
    chain: bool
    """Whether it is ((a+b)+c)+d, not (a+b)+(c+d)."""

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Return the expression that reads `text`, e.g. "((17+5)*3)-8"."""
        chain, pair = _CHAIN.fullmatch(text), _PAIR.fullmatch(text)
        match = chain or pair
        if match is None:
            raise ConfigError(f'an expression reads like "((17+5)*3)-8" or "(17+5)*(3-8)", got {text!r}')
        a, first, b, second, c, third, d = match.groups()
        return cls((int(a), int(b), int(c), int(d)), (first, second, third), chain is not None)

    @property
    def text(self) -> str:
        """What the policy reads."""
        form = "(({}{}{}){}{}){}{}" if self.chain else "({}{}{}){}({}{}{})"
        (a, b, c, d), (first, second, third) = self.numbers, self.signs
        return form.format(a, first, b, second, c, third, d)

    @property
    def calls(self) -> tuple[Call, Call, Call]:
        """The calls that work it out, in order."""
        (a, b, c, d), (one, two, three) = self.numbers, self.signs
        first = Call(one, a, b)
        second = Call(two, first.result, c) if self.chain else Call(three, c, d)
        last = Call(three, second.result, d) if self.chain else Call(two, first.result, second.result)
        return first, second, last

    @property
    def answer(self) -> str:
        """The value of the whole, e.g. "58"."""
        return str(self.calls[-1].result)

    @cached_property
    def split(self) -> Split:
        """The one split this expression belongs to."""
        share = int.from_bytes(hashlib.sha256(self.text.encode()).digest()[:8], "big") % 100
        return get_args(Split)[sum(share >= end for end in _SHARE_ENDS)]


def expressions(split: Split, count: int, seed: int = 0) -> list[Expression]:
    """Return `count` expressions of one split, drawn with `seed`; the splits share none.

    Raises:
        ConfigError: There is no such split.
    """
    if split not in get_args(Split):
        raise ConfigError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}")
    rng = np.random.default_rng(seed)
    found: list[Expression] = []
    while len(found) < count:
        a, b, c, d = rng.integers(2, 21, size=4).tolist()
        signs = (_SIGNS[rng.integers(3)], _SIGNS[rng.integers(3)], _SIGNS[rng.integers(3)])
        drawn = Expression((a, b, c, d), signs, bool(rng.integers(2)))
        if drawn.split == split:
            found.append(drawn)
    return found


class Calculator:
    """The environment of one rollout, as GRPOTrainer's `environment_factory` takes it: its methods are the tools."""

    def reset(self, **row: Any) -> None:
        """Begin another rollout; the prompt of the row says all."""

    def add(self, a: int, b: int) -> str:
        """Work out a + b.

        Args:
            a: First number.
            b: Second number.

        Returns:
            The sum.
        """
        return self._shown(Call("+", a, b))

    def subtract(self, a: int, b: int) -> str:
        """Work out a - b.

        Args:
            a: Number to take from.
            b: Number to take away.

        Returns:
            The difference.
        """
        return self._shown(Call("-", a, b))

    def multiply(self, a: int, b: int) -> str:
        """Work out a * b.

        Args:
            a: First number.
            b: Second number.

        Returns:
            The product.
        """
        return self._shown(Call("*", a, b))

    def _shown(self, call: Call) -> str:
        if abs(call.result) > LARGEST:
            raise ValueError(f"the result must be within +-{LARGEST}")
        return str(call.result)


def correct(completion: Sequence[Mapping[str, Any]], answer: str) -> bool:
    """Return whether the conversation ends with exactly `answer`, said by the policy and no call of a tool."""
    last = completion[-1]
    return last["role"] == "assistant" and not last.get("tool_calls") and last["content"] == answer


def progress(task: str, conversation: str) -> float:
    """Return the share of what must be known that is: three sub-results the calculator showed, and the answer said.

    Args:
        task: The expression, e.g. "((17+5)*3)-8".
        conversation: Turns as `rl_reward.adapters.trl.turns.turn_texts` writes them, as many as there are so far.

    Returns:
        In {0, 1/4, ..., 1}. A sub-result is known by its value, however it was found. An answer counts where all
        three sub-results are known, so that a guess is no progress.
    """
    expression = Expression.parse(task)
    shown = Counter(re.findall(r"^tool: (-?\d+)$", conversation, re.MULTILINE))
    needed = Counter(str(call.result) for call in expression.calls)
    known = (shown & needed).total()
    said = re.findall(r"^assistant: (-?\d+)$", conversation, re.MULTILINE)
    return (known + (known == 3 and said[-1:] == [expression.answer])) / TURNS


# ------------------------------------------------------------------------------------------------- demonstrations

# A pupil errs by habit: for each operation in each turn there is a rate at which he makes the right call, and one
# thing that he does otherwise. So the likeliest call is wrong in some of them, and greedy answers fail too.
_PUPIL = np.random.default_rng(13)
_RATES = _PUPIL.uniform(0.3, 0.95, size=(3, 3))
_HABITS = _PUPIL.choice(("operand", "operator", "stop"), size=(3, 3))


def demonstration(expression: Expression, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return the messages of a pupil after the prompt: calls, what the calculator showed, an answer.

    With his rate he makes the right call, from the results he has; otherwise, by habit, he takes another number of
    the expression as second operand, takes another operation, or stops and answers with what he has.
    """
    results: list[int] = []
    messages: list[dict[str, Any]] = []
    for call in _followed(expression, results):
        turn = len(results), _SIGNS.index(call.sign)
        habit = "none" if rng.random() < _RATES[turn] else str(_HABITS[turn])
        if habit == "stop":
            break
        if habit == "operand":
            others = [number for number in expression.numbers if number != call.b] or [call.b + 1]
            call = Call(call.sign, call.a, others[0])
        elif habit == "operator":
            call = Call(_SIGNS[(_SIGNS.index(call.sign) + 1) % 3], call.a, call.b)
        results.append(call.result)
        messages += [message_of(call), {"role": "tool", "name": OPERATIONS[call.sign], "content": str(call.result)}]
    answer = results[-1] if results else expression.numbers[0]
    return [*messages, {"role": "assistant", "content": str(answer)}]


def message_of(call: Call) -> dict[str, Any]:
    """Return the assistant message that makes `call`."""
    function = {"name": OPERATIONS[call.sign], "arguments": {"a": call.a, "b": call.b}}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def _followed(expression: Expression, results: list[int]) -> Iterator[Call]:
    """Yield the next call of `expression` as it is right after `results`, right or wrong, that were had so far."""
    (a, b, c, d), (one, two, three) = expression.numbers, expression.signs
    yield Call(one, a, b)
    yield Call(two, results[0], c) if expression.chain else Call(three, c, d)
    yield Call(three, results[1], d) if expression.chain else Call(two, results[0], results[1])
