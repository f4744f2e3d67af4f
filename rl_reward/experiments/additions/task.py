"""The math task of the small experiments: additions with workings, generated, and split by operands."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
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
_PROMPT = re.compile(r"([1-9]\d+)\+([1-9]\d+)=")
_WORKING = re.compile(r"(\d{1,2}(?:;\d{1,2})+)#(\d+)")
_SO_FAR = re.compile(r"(?:\d{1,2};)+(?:\d{1,2}#\d*)?")

DIGITS = {"additions": (2,), "long-additions": (3, 4)}
"""The digits of both operands, by dataset; in the long ones whole groups of answers fail at first."""

# All pairs of two digits are split; of longer ones this many are drawn for each length.
_DRAWN = 8_000

_PUPIL = np.random.default_rng(0)
_RATES = _PUPIL.uniform(0.05, 0.85, size=(10, 10))
_SLIPS = _PUPIL.choice((-2, -1, 1, 2), size=(10, 10))


@dataclass(frozen=True)
class Addition:
    """The problem a + b, both of the same number of digits, at least two."""

    a: int
    """First operand."""
    b: int
    """Second operand."""

    @classmethod
    def parse(cls, prompt: str) -> Addition:
        """Return the addition that `prompt` asks for, e.g. "74+47="."""
        match = _PROMPT.fullmatch(prompt)
        if match is None or len(match[1]) != len(match[2]):
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
    def columns(self) -> tuple[tuple[int, int], ...]:
        """The pairs of digits that are added, the ones first, e.g. (4, 7), (7, 4)."""
        return tuple((int(x), int(y)) for x, y in zip(str(self.a)[::-1], str(self.b)[::-1], strict=True))

    @property
    def numbers(self) -> tuple[int, ...]:
        """What a right working holds: the sum of each column with its carry, the ones first, and the answer."""
        return _worked([x + y for x, y in self.columns])

    @property
    def working(self) -> str:
        """The right working, e.g. "11;12#121"."""
        return _written(self.numbers)

    @cached_property
    def split(self) -> Split:
        """The one split this pair of operands belongs to; a + b and b + a are the same pair."""
        low, high = sorted((self.a, self.b))
        digest = hashlib.sha256(f"{low}+{high}".encode()).digest()
        share = int.from_bytes(digest[:8], "big") % 100
        return get_args(Split)[sum(share >= end for end in _SHARE_ENDS)]


def problems(split: Split, dataset: str = "additions") -> tuple[Addition, ...]:
    """Return the additions of one split of a dataset of `DIGITS`, in a shuffled order that never changes.

    The splits share no pair of operands: the policy is pretrained on one, the stand-in verifier is trained on the
    second, GRPO trains on the third, and the fourth is for evaluation alone.
    """
    if split not in get_args(Split):
        raise ConfigError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}")
    members = [problem for digits in DIGITS[dataset] for problem in _drawn(digits) if problem.split == split]
    order: list[int] = np.random.default_rng(0).permutation(len(members)).tolist()
    return tuple(members[i] for i in order)


def _drawn(digits: int) -> list[Addition]:
    least, most = 10 ** (digits - 1), 10**digits
    if digits == 2:
        return [Addition(a, b) for a in range(least, most) for b in range(least, most)]
    pairs: list[list[int]] = np.random.default_rng(digits).integers(least, most, size=(_DRAWN, 2)).tolist()
    return list(dict.fromkeys(Addition(a, b) for a, b in pairs))


def read_working(working: str) -> tuple[int, ...] | None:
    """Return the numbers of `working`, the answer last; None where it is not of the form "11;12#121"."""
    match = _WORKING.fullmatch(working)
    if match is None:
        return None
    columns = match[1].split(";")
    # A sum has one digit more than its operands at most.
    return (*map(int, columns), int(match[2])) if len(match[2]) <= len(columns) + 1 else None


def well_formed(working: str, dataset: str = "additions") -> bool:
    """Return whether `working` is of the form "11;12#121", right or wrong, for as many digits as `dataset` has."""
    numbers = read_working(working)
    return numbers is not None and len(numbers) - 1 in DIGITS[dataset]


def correct(working: str, answer: str) -> bool:
    """Return whether exactly `answer` stands behind the last "#" of `working`."""
    return "#" in working and working.rsplit("#", 1)[1] == answer


def partial_credit(prompt: str, working: str) -> float:
    """Return the fraction of the numbers of `working` that are right, 0 where it is malformed."""
    written, right = read_working(working), Addition.parse(prompt).numbers
    if written is None or len(written) != len(right):
        return 0.0
    return sum(w == r for w, r in zip(written, right, strict=True)) / len(right)


def credit_so_far(prompt: str, so_far: str) -> float:
    """Return how many of the numbers of a right working stand in its beginning `so_far`, as a fraction of all."""
    written, right = numbers_so_far(so_far), Addition.parse(prompt).numbers
    if written is None or len(written) > len(right):
        return 0.0
    return sum(w == r for w, r in zip(written, right, strict=False)) / len(right)


def numbers_so_far(so_far: str) -> tuple[int, ...] | None:
    """Return the numbers at the beginning of a working, "11;12#" say; None where `so_far` is no beginning of one."""
    return tuple(map(int, re.findall(r"\d+", so_far))) if _SO_FAR.fullmatch(so_far) else None


def noisy_working(problem: Addition, rng: np.random.Generator) -> str:
    """Return the working of a pupil who misremembers sums of digits, some of them more often than others.

    The sum of each pair of digits has a rate at which it is remembered right, uniform in [0.05, 0.85], and one wrong
    value that takes its place otherwise. What follows from it is worked out right.
    """

    def remembered(x: int, y: int) -> int:
        low, high = sorted((x, y))
        return x + y if rng.random() < _RATES[low, high] else max(0, x + y + int(_SLIPS[low, high]))

    return _written(_worked([remembered(x, y) for x, y in problem.columns]))


def _worked(sums: Sequence[int]) -> tuple[int, ...]:
    """Return the sum of each column with its carry, and the answer, from the bare sums, the ones first."""
    numbers = list[int]()
    for bare in sums:
        numbers.append(bare + (numbers[-1] // 10 if numbers else 0))
    below = sum(10**place * (number % 10) for place, number in enumerate(numbers[:-1]))
    return (*numbers, 10 ** (len(numbers) - 1) * numbers[-1] + below)


def _written(numbers: Sequence[int]) -> str:
    """Return the working that holds `numbers`."""
    return ";".join(map(str, numbers[:-1])) + f"#{numbers[-1]}"
