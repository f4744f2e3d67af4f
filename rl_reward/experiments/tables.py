"""Text that reads well as Markdown and in a terminal: tables, sections, numbers with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rl_reward.evaluation.efficiency import PairedDifference, SpeedUp
from rl_reward.evaluation.intervals import Interval


@dataclass(frozen=True)
class Table:
    """A table of text cells."""

    head: Sequence[str]
    """Column names."""
    rows: Sequence[Sequence[str]]
    """Cells, one sequence per row."""

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)

    def text(self) -> str:
        """Return the table in aligned columns for a terminal."""
        widths = [max(len(line[i]) for line in (self.head, *self.rows)) for i in range(len(self.head))]
        lines = [self.head, ["-" * width for width in widths], *self.rows]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    """The heading."""
    parts: Sequence[str | Table]
    """Paragraphs and tables."""

    def markdown(self) -> str:
        """Return the section as Markdown."""
        return "\n\n".join([f"## {self.title}", *(p if isinstance(p, str) else p.markdown() for p in self.parts)])

    def text(self) -> str:
        """Return the section for a terminal."""
        return "\n\n".join([self.title.upper(), *(p if isinstance(p, str) else p.text() for p in self.parts)])


def ends(interval: Interval | None) -> str:
    """Return an interval in brackets, after the number it belongs to."""
    return f" [{interval.low:.2f}, {interval.high:.2f}]" if interval else " (1 run, no interval)"


def signed(difference: PairedDifference) -> str:
    """Return a difference with its sign and interval."""
    around = difference.interval
    return f"{difference.mean:+.3f}" + (
        f" [{around.low:+.3f}, {around.high:+.3f}]" if around else " (1 pair, no interval)"
    )


def ratio(speed_up: SpeedUp) -> str:
    """Return a speed-up with its interval; a censored arm makes it a bound and leaves an end open."""
    if not speed_up.defined:
        return "undefined: neither reached"
    value = f"{speed_up.at_least:.2f}"
    if speed_up.at_least != speed_up.at_most:
        value = f"> {speed_up.at_least:.2f}" if math.isinf(speed_up.at_most) else f"< {speed_up.at_most:.2f}"
    around = speed_up.interval
    spread = f" [{_end(around.low)}, {_end(around.high)}]" if around else " (1 pair, no interval)"
    share = "under 1%" if speed_up.undefined < 0.01 else f"{speed_up.undefined:.0%}"
    return value + spread + (f", {share} of draws undefined" if speed_up.undefined else "")


def steps(number: float, budget: int) -> str:
    """Return a number of steps; beyond the budget all that is known is that it is more."""
    return f"> {budget:,}" if math.isinf(number) else f"{number:,.0f}"


def count(numbers: set[int], noun: str) -> str:
    """Return "1 seed", "3 seeds" or "2 to 3 seeds"."""
    low, high = min(numbers), max(numbers)
    return f"{low if low == high else f'{low} to {high}'} {noun}{'' if high == 1 else 's'}"


def _end(bound: float) -> str:
    """Return one end of a ratio's interval: 0 and inf come from censored draws, the end is open."""
    return "open" if bound == 0.0 or math.isinf(bound) else f"{bound:.2f}"
