"""The math task of the small experiments: two-digit additions with workings, generated, and split by operands."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from rl_reward.errors import ConfigError

Split = Literal["pretraining", "verifier", "grpo", "evaluation"]

ALPHABET = "0123456789+=;#"
"""Every character of prompts and workings."""

# Cumulative shares of the splits, in per cent, in the order of `Split`.
_SHARE_ENDS = (40, 60, 90, 100)
_PROMPT = re.compile(r"([1-9]\d)\+([1-9]\d)=")
_WORKING = re.compile(r"(\d{1,2});(\d{1,2})#(\d{1,3})")

_PUPIL = np.random.default_rng(0)
_RATES = _PUPIL.uniform(0.05, 0.85, size=(10, 10))
_SLIPS = _PUPIL.choice((-2, -1, 1, 2), size=(10, 10))


@dataclass(frozen=True)
class Addition:
    """The problem a + b, both in [10, 99]."""

    a: int
    """First operand."""
    b: int
    """Second operand."""

    @classmethod
    def parse(cls, prompt: str) -> Addition:
        """Return the addition that `prompt` asks for, e.g. "74+47="."""
        match = _PROMPT.fullmatch(prompt)
        if match is None:
            raise ConfigError(f'an addition reads like "74+47=", got {prompt!r}')
        return cls(int(match[1]), int(match[2]))

    @property
    def prompt(self) -> str:
        """What the policy reads, e.g. "74+47="."""
        return f"{self.a}+{self.b}="

    @property
    def answer(self) -> str:
        """The sum, e.g. "121"."""
        return str(self.a + self.b)

    @property
    def numbers(self) -> tuple[int, int, int]:
        """What a right working holds: the sum of the ones, that of the tens with the carry, the answer."""
        ones = self.a % 10 + self.b % 10
        return ones, self.a // 10 + self.b // 10 + ones // 10, self.a + self.b

    @property
    def working(self) -> str:
        """The right working, e.g. "11;12#121"."""
        return "{};{}#{}".format(*self.numbers)

    @cached_property
    def split(self) -> Split:
        """The one split this pair of operands belongs to; a + b and b + a are the same pair."""
        low, high = sorted((self.a, self.b))
        digest = hashlib.sha256(f"{low}+{high}".encode()).digest()
        share = int.from_bytes(digest[:8], "big") % 100
        return get_args(Split)[sum(share >= end for end in _SHARE_ENDS)]


def problems(split: Split) -> tuple[Addition, ...]:
    """Return the additions of one split, in a shuffled order that never changes.

    The splits share no pair of operands: the policy is pretrained on one, the stand-in verifier is trained on the
    second, GRPO trains on the third, and the fourth is for evaluation alone.
    """
    if split not in get_args(Split):
        raise ConfigError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}")
    members = [p for p in (Addition(a, b) for a in range(10, 100) for b in range(10, 100)) if p.split == split]
    order: list[int] = np.random.default_rng(0).permutation(len(members)).tolist()
    return tuple(members[i] for i in order)


def read_working(working: str) -> tuple[int, int, int] | None:
    """Return the three numbers of `working`, None where it is not of the form "11;12#121"."""
    match = _WORKING.fullmatch(working)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def well_formed(working: str) -> bool:
    """Return whether `working` is of the form "11;12#121", right or wrong."""
    return read_working(working) is not None


def correct(working: str, answer: str) -> bool:
    """Return whether exactly `answer` stands behind the last "#" of `working`."""
    return "#" in working and working.rsplit("#", 1)[1] == answer


def partial_credit(prompt: str, working: str) -> float:
    """Return the fraction of the three numbers of `working` that are right, 0 where it is malformed."""
    written = read_working(working)
    if written is None:
        return 0.0
    return sum(w == r for w, r in zip(written, Addition.parse(prompt).numbers, strict=True)) / 3


def noisy_working(problem: Addition, rng: np.random.Generator) -> str:
    """Return the working of a pupil who misremembers sums of digits, some of them more often than others.

    The sum of each pair of digits has a rate at which it is remembered right, uniform in [0.05, 0.85], and one wrong
    value that takes its place otherwise. What follows from it is worked out right.
    """

    def remembered(x: int, y: int) -> int:
        low, high = sorted((x, y))
        return x + y if rng.random() < _RATES[low, high] else max(0, x + y + int(_SLIPS[low, high]))

    ones = remembered(problem.a % 10, problem.b % 10)
    tens = remembered(problem.a // 10, problem.b // 10) + ones // 10
    return f"{ones};{tens}#{10 * tens + ones % 10}"
