"""Score scales: ordered one-token levels and their values in [0, 1], first = 0 and last = 1."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rl_reward.errors import ConfigError

BLANKS = r"\s▁ĠĊ"
"""What counts as blank inside a tag, for a regular expression: white space, and the marks tokenizers write for it."""

# Tokenizers glue the bracket that opened the tag, blanks, and the beginning of the closing tag to a letter.
_SPELLING = re.compile(rf"[{BLANKS}>]*(.*?)(?:[{BLANKS}]|</?)*", re.DOTALL)


@dataclass(frozen=True)
class ScoreScale:
    """G ordered levels (paper Sec. 3): phi maps level g to g / (G - 1), so the first is 0 and the last 1."""

    levels: tuple[str, ...]
    """Names of the levels, worst first; each should be one token of the judge's vocabulary."""

    def __post_init__(self) -> None:
        """Refuse scales of fewer than 2 levels and levels that cannot be told apart."""
        if len(self.levels) < 2:
            raise ConfigError(f"a scale needs at least 2 levels, got {len(self.levels)}: {self.levels}")
        if "" in self.levels or [self.index(level) for level in self.levels] != list(range(len(self))):
            raise ConfigError(f"levels must be distinct bare words (case and blanks do not count), got {self.levels}")

    @classmethod
    def letters(cls, granularity: int = 20) -> ScoreScale:
        """Return the scale A, B, C, ... of `granularity` letters, 2 to 26; the paper uses 20."""
        if isinstance(granularity, bool) or not isinstance(granularity, int) or not 2 <= granularity <= 26:
            raise ConfigError(f"granularity must be an integer in [2, 26], got {granularity!r}; the paper takes 20")
        return cls(tuple(string.ascii_uppercase[:granularity]))

    @classmethod
    def digits(cls) -> ScoreScale:
        """Return the scale 0, 1, ..., 9, for vocabularies in which letters are not single tokens."""
        return cls(tuple(string.digits))

    def __len__(self) -> int:
        """Return G, the number of levels."""
        return len(self.levels)

    @property
    def values(self) -> NDArray[np.float64]:
        """The values phi of the levels, float [L], from 0 to 1 in equal steps."""
        return np.linspace(0.0, 1.0, len(self))

    @property
    def first(self) -> str:
        """The level worth 0."""
        return self.levels[0]

    @property
    def last(self) -> str:
        """The level worth 1."""
        return self.levels[-1]

    def index(self, token: str) -> int | None:
        """Return the level that `token` spells, or None.

        "A", " A", "a", "▁A", "ĠA" and ">A" spell A; "The" spells nothing, whatever it begins with.
        """
        spelled = _SPELLING.fullmatch(token)
        bare = spelled[1].casefold() if spelled else ""
        return next((i for i, level in enumerate(self.levels) if level.casefold() == bare), None)

    def coarsen(self, granularity: int) -> ScoreScale:
        """Return the scale of the first `granularity` level names, for distributions merged by `bins`."""
        if not 2 <= granularity <= len(self):
            raise ConfigError(f"a scale of {len(self)} levels coarsens to 2..{len(self)} levels, got {granularity}")
        return ScoreScale(self.levels[:granularity])

    def bins(self, granularity: int) -> NDArray[np.int64]:
        """Return for each level the level of `coarsen(granularity)` it falls into, int [L], in equal runs."""
        coarse = len(self.coarsen(granularity))
        return np.arange(len(self)) * coarse // len(self)
