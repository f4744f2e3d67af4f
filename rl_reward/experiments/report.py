"""The report of a comparison, report.md and curves.png: losing arms are reported as plainly as winning ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_reward.evaluation.efficiency import CONSECUTIVE, PairedDifference, SpeedUp
from rl_reward.evaluation.intervals import EXACT_PAIRS, Interval
from rl_reward.experiments.plots import caption, draw_curves
from rl_reward.experiments.results import Comparison
from rl_reward.experiments.summary import ArmSummary, Reached, Summary, summarize


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


def write_report(comparison: Comparison, out: Path) -> Summary:
    """Write `report.md` and `curves.png` into the folder `out` and return the numbers; nothing is written on an error.

    Raises:
        ConfigError: The runs cannot be compared (see `summarize`).
    """
    summary = summarize(comparison)
    out.mkdir(parents=True, exist_ok=True)
    draw_curves(summary, out / "curves.png")
    (out / "report.md").write_text(markdown(summary))
    return summary


def markdown(summary: Summary) -> str:
    """Return the report as Markdown, the picture `curves.png` under the primary endpoint."""
    title, figure = f"# {summary.comparison.name}", f"![{caption(summary)}](curves.png)\n\n{caption(summary)}"
    first, *rest = (_render(section, "## {}".format, Table.markdown) for section in sections(summary))
    return "\n\n".join([title, *_warning(summary), first, figure, *rest]) + "\n"


def text(summary: Summary) -> str:
    """Return the report as plain text for a terminal."""
    parts = (_render(section, str.upper, Table.text) for section in sections(summary))
    return "\n\n".join([summary.comparison.name, *_warning(summary), *parts]) + "\n"


def sections(summary: Summary) -> tuple[Section, ...]:
    """Return the content of the report, the primary endpoint first."""
    speed_ups = [_speed_ups(summary)] if summary.targets and summary.against else ["There is nothing to compare."]
    return (
        Section("Primary endpoint", [primary_endpoint(summary)]),
        Section("Arms", [_arms(summary), *_seed_notes(summary)]),
        Section(f"{_capital(summary.comparison.x_label)} to a target", [_targets(summary)]),
        Section(f"Speed-up over {summary.comparator}", speed_ups),
        Section("Cost per run (means)", [_costs(summary)]),
        Section("How to read this", [_definitions(summary)]),
    )


def primary_endpoint(summary: Summary) -> str:
    """Return the line of the primary endpoint: paired difference of area, interval, p and verdict."""
    primary, comparator = summary.comparison.primary, summary.comparator
    if primary == comparator:
        return f"The primary arm, {primary}, is itself the better sparse arm: there is nothing to test."
    difference = summary.against[primary].difference
    if difference is None:
        return f"{primary} and {comparator} have no common seed: there is nothing to test."
    return (
        f"Named before running: area under the curve of {primary} minus that of {comparator} (the better sparse arm), "
        f"paired over {_count(difference.pairs, 'seed')}: {_signed(difference)}{_p(difference)}. "
        f"{_verdict(primary, comparator, difference)}"
    )


def _render(section: Section, heading: Callable[[str], str], table: Callable[[Table], str]) -> str:
    """Return a section as text."""
    parts = (part if isinstance(part, str) else table(part) for part in section.parts)
    return "\n\n".join([heading(section.title), *parts])


def _warning(summary: Summary) -> list[str]:
    """Return the sentence that an illustrative comparison starts with."""
    if not summary.comparison.illustrative:
        return []
    seeds = {len(arm.seeds) for arm in summary.arms}
    return [f"Illustrative: {_range(seeds)} seeds per arm are too few to claim anything."]


def _arms(summary: Summary) -> Table:
    """Return base, area, final success and the difference to the comparator of every arm."""
    head = ("arm", "judge", "seeds", "base", "area [95 %]", "final success [95 %]", "solved at the end [95 % Wilson]")
    return Table((*head, f"area minus {summary.comparator} [95 %]"), [_arm_row(summary, arm) for arm in summary.arms])


def _arm_row(summary: Summary, arm: ArmSummary) -> tuple[str, ...]:
    """Return the row of one arm."""
    against = summary.against.get(arm.name)
    difference = against.difference if against else None
    return (
        arm.name,
        arm.judge,
        str(len(arm.seeds)),
        f"{arm.base:.2f}",
        f"{arm.area:.2f}{_ends(arm.area_interval)}",
        f"{arm.final:.2f}{_ends(arm.final_interval)}",
        f"{arm.solved}/{arm.episodes}{_ends(arm.solved_interval)}",
        "comparator" if against is None else "no common seed" if difference is None else _signed(difference),
    )


def _targets(summary: Summary) -> str | Table:
    """Return when every arm reached every target."""
    if not summary.targets:
        return f"No target: base {summary.base:.2f} plus 10 points is above 1."
    budget = int(summary.steps_S[-1])
    rows = [(a.name, *(_reached(r, len(a.seeds), budget) for r in a.reached)) for a in summary.arms]
    return Table(("arm", *_target_names(summary)), rows)


def _speed_ups(summary: Summary) -> Table:
    """Return T_comparator / T_arm of every other arm at every target."""
    blank = ["no common seed"] * len(summary.targets)
    rows = [(name, *(list(map(_ratio, a.speed_ups)) or blank)) for name, a in summary.against.items()]
    return Table(("arm", *_target_names(summary)), rows)


def _target_names(summary: Summary) -> list[str]:
    """Return the targets as column names."""
    return [f"base + {round(100 * (target - summary.base))} ({target:.2f})" for target in summary.targets]


def _costs(summary: Summary) -> Table:
    """Return judge calls, judge seconds and wall seconds of every arm."""
    head = ("arm", "judge", "judge calls", "judge seconds", "wall seconds")
    costs = ((arm, arm.cost) for arm in summary.arms)
    return Table(
        head,
        [
            (a.name, a.judge, f"{c.judge_calls:,.0f}", f"{c.judge_seconds:,.1f}", f"{c.wall_seconds:,.0f}")
            for a, c in costs
        ],
    )


def _seed_notes(summary: Summary) -> list[str]:
    """Return a sentence for each arm whose seeds are not the comparator's: it is compared over the common ones."""
    theirs = set(summary.arm(summary.comparator).seeds)
    return [
        f"{arm.name} has seeds {_listed(arm.seeds)} and {summary.comparator} {_listed(theirs)}: "
        f"they are compared over the {len(theirs & set(arm.seeds))} common ones."
        for arm in summary.arms
        if set(arm.seeds) != theirs
    ]


def _definitions(summary: Summary) -> str:
    """Return what the numbers mean and what made them."""
    comparison = summary.comparison
    made_with = ", ".join(f"{name} {value}" for name, value in comparison.environment.items())
    lines = (
        f"Success: {comparison.y_label}, on the unshaped task. x: {comparison.x_label}.",
        f"Base: the first evaluation; targets are the mean base of all arms ({summary.base:.2f}) plus 10 to 40 points, "
        "those above 1 left out.",
        "Area: area under the success curve divided by the span of x, mean over runs. "
        "Final success: last checkpoint, not the best, interquartile mean (IQM) over runs, which drops the "
        "floor(n/4) lowest and highest.",
        "Intervals: 95 %, percentile bootstrap that resamples whole runs; Wilson for the share of episodes solved at the "
        "end, which takes episodes as independent. They are not corrected for the number of arms; only the primary endpoint "
        "is a test.",
        f"Reaching a target: the first of {CONSECUTIVE} consecutive evaluations at or above it, on the arm's IQM curve; in "
        "brackets how many runs reached it by themselves, and their median.",
        f"Speed-up: steps of {summary.comparator} over steps of the arm, above 1 the arm is faster; interval by resampling "
        'seed pairs. An arm that never reaches the target counts as "> budget": the ratio is then a bound and its end '
        "open. Draws in which neither arm reaches it are undefined, left out and counted.",
        f"Comparator: of the sparse arms ({', '.join(comparison.baselines)}) the one with the larger area.",
        f"Made with: {made_with}." if made_with else "",
    )
    return "\n".join(f"- {line}" for line in lines if line)


def _reached(reached: Reached, runs: int, budget: int) -> str:
    """Return when a target was reached, censoring spelled out."""
    return f"{_steps(reached.curve, budget)} ({reached.runs}/{runs} reached, median {_steps(reached.median, budget)})"


def _ratio(ratio: SpeedUp) -> str:
    """Return a speed-up with its interval; a censored arm makes it a bound."""
    if not ratio.defined:
        return "undefined: neither reached"
    value = f"{ratio.at_least:.2f}"
    if ratio.at_least != ratio.at_most:
        value = f"> {ratio.at_least:.2f}" if math.isinf(ratio.at_most) else f"< {ratio.at_most:.2f}"
    lost = f", {ratio.undefined:.0%} of draws undefined" if ratio.undefined else ""
    return f"{value}{_ends(ratio.interval)}{lost}"


def _verdict(primary: str, comparator: str, difference: PairedDifference) -> str:
    """Return the primary endpoint in one plain sentence."""
    if difference.interval is None:
        return "One pair shows nothing."
    if difference.interval.low > 0.0:
        return f"{primary} is better than {comparator} here."
    if difference.interval.high < 0.0:
        return f"{primary} is worse than {comparator} here."
    return "The interval holds 0: no difference is shown."


def _p(difference: PairedDifference) -> str:
    """Return the p-value and, where few pairs bound it, the least it could be."""
    if difference.p_value is None:
        return ""
    exact = "exact " if difference.pairs <= EXACT_PAIRS else ""
    least = (
        f" (the least {difference.pairs} pairs can give is {2 / 2**difference.pairs:.2g})"
        if difference.pairs < 6
        else ""
    )
    return f", {exact}sign-flip p = {difference.p_value:.2g}{least}"


def _signed(difference: PairedDifference) -> str:
    """Return a difference with its sign and interval."""
    ends = difference.interval
    return f"{difference.mean:+.3f}" + (f" [{ends.low:+.3f}, {ends.high:+.3f}]" if ends else " (1 pair, no interval)")


def _ends(interval: Interval | None) -> str:
    """Return an interval in brackets, an infinite end called open."""
    if interval is None:
        return " (1 run, no interval)"
    high = "open" if math.isinf(interval.high) else f"{interval.high:.2f}"
    return f" [{interval.low:.2f}, {high}]"


def _steps(steps: float, budget: int) -> str:
    """Return a number of steps; beyond the budget all that is known is that it is more."""
    return f"> {budget:,}" if math.isinf(steps) else f"{steps:,.0f}"


def _count(number: int, noun: str) -> str:
    """Return a number and its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _range(numbers: set[int]) -> str:
    """Return "3" or "2 to 3"."""
    return str(min(numbers)) if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"


def _listed(seeds: Sequence[int] | set[int]) -> str:
    """Return seeds in order."""
    return ", ".join(map(str, sorted(seeds)))


def _capital(phrase: str) -> str:
    """Return `phrase` with a capital first letter, the rest as it is."""
    return phrase[:1].upper() + phrase[1:]
