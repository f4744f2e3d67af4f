"""The report of a comparison, report.md and curves.png: losing arms are reported as plainly as winning ones."""

from __future__ import annotations

from pathlib import Path

from rl_reward.evaluation.efficiency import CONSECUTIVE, PairedDifference
from rl_reward.evaluation.intervals import EXACT_PAIRS
from rl_reward.experiments.plots import caption, draw_curves
from rl_reward.experiments.results import Comparison
from rl_reward.experiments.summary import Against, ArmSummary, Summary, summarize
from rl_reward.experiments.tables import Section, Table, count, ends, ratio, signed, steps

_LEVEL = 0.05


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
    first, *rest = (section.markdown() for section in sections(summary))
    figure = ["![Success of every arm over training](curves.png)", caption(summary)]
    return "\n\n".join([f"# {summary.comparison.name}", *_warning(summary), first, *figure, *rest]) + "\n"


def text(summary: Summary) -> str:
    """Return the report as plain text for a terminal."""
    parts = (section.text() for section in sections(summary))
    return "\n\n".join([summary.comparison.name, *_warning(summary), *parts]) + "\n"


def sections(summary: Summary) -> tuple[Section, ...]:
    """Return the content of the report, the primary endpoint first."""
    x_label = summary.comparison.x_label
    return (
        Section("Primary endpoint", [primary_endpoint(summary)]),
        Section("Arms", [_arms(summary), *_seed_notes(summary)]),
        Section(f"{x_label[:1].upper()}{x_label[1:]} to a target", [_targets(summary)]),
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
        f"paired over {count({difference.pairs}, 'seed')}: {signed(difference)}{_p(difference)}. "
        f"{_verdict(primary, comparator, difference)}"
    )


def _warning(summary: Summary) -> list[str]:
    """Return the sentence that an illustrative comparison starts with."""
    seeds = count({len(arm.seeds) for arm in summary.arms}, "seed")
    return [f"Illustrative: {seeds} per arm, too few to claim anything."] if summary.comparison.illustrative else []


def _arms(summary: Summary) -> Table:
    """Return base, area, final success and the difference to the comparator of every arm."""
    head = ("arm", "seeds", "base", "area [95 %]", "final success [95 %]", "solved at the end [Wilson]")
    return Table((*head, f"area minus {summary.comparator}"), [_arm_row(summary, arm) for arm in summary.arms])


def _arm_row(summary: Summary, arm: ArmSummary) -> tuple[str, ...]:
    """Return the row of one arm."""
    return (
        arm.name,
        str(len(arm.seeds)),
        f"{arm.base:.2f}",
        f"{arm.area:.2f}{ends(arm.area_interval)}",
        f"{arm.final:.2f}{ends(arm.final_interval)}",
        f"{arm.solved}/{arm.episodes}{ends(arm.solved_interval)}",
        _difference(summary.against.get(arm.name)),
    )


def _difference(against: Against | None) -> str:
    """Return the difference of area to the comparator."""
    if against is None:
        return "comparator"
    return signed(against.difference) if against.difference else "no common seed"


def _targets(summary: Summary) -> str | Table:
    """Return when every arm reached every target, and its speed-up over the comparator."""
    if not summary.targets:
        return f"No target: base {summary.base:.2f} plus 10 points is above 1."
    rows = [_target_row(summary, arm, index) for index in range(len(summary.targets)) for arm in summary.arms]
    head = ("target", "arm", "steps", "runs", "median of runs", f"speed-up over {summary.comparator} [95 %]")
    if (per_step := _completions_per_step(summary)) is not None:
        head, budget = (*head, "completions"), int(summary.steps_S[-1] * per_step)
        reached = [arm.reached[index] for index in range(len(summary.targets)) for arm in summary.arms]
        rows = [(*row, steps(one.curve * per_step, budget)) for row, one in zip(rows, reached, strict=True)]
    return Table(head, rows)


def _completions_per_step(summary: Summary) -> float | None:
    """Return how many completions an optimizer step took, None where that is not the same in all runs, or not known."""
    counts = [run.extra.get("completions") for run in summary.comparison.runs]
    last = int(summary.steps_S[-1])
    per_step = {None if count is None else count[-1] / last for count in counts}
    return per_step.pop() if len(per_step) == 1 else None


def _target_row(summary: Summary, arm: ArmSummary, index: int) -> tuple[str, ...]:
    """Return the row of one arm at one target."""
    target, reached, budget = summary.targets[index], arm.reached[index], int(summary.steps_S[-1])
    against = summary.against.get(arm.name)
    if against is None:
        speed_up = "comparator"
    else:
        speed_up = ratio(against.speed_ups[index]) if against.speed_ups else "no common seed"
    return (
        f"base + {round(100 * (target - summary.base))} points ({target:.2f})",
        arm.name,
        steps(reached.curve, budget),
        f"{reached.runs}/{len(arm.seeds)} reached",
        steps(reached.median, budget),
        speed_up,
    )


def _costs(summary: Summary) -> Table:
    """Return what judging cost in every arm, and how often it put right above wrong where that is known."""
    head = ("arm", "judge", "judge calls", "judge seconds", "unscored", "wall seconds")
    rows = [_cost_row(arm) for arm in summary.arms]
    ordered = [arm.cost.correct_agreement for arm in summary.arms]
    if any(share is not None for share in ordered):
        head = (*head, "right above wrong")
        rows = [(*row, _share(share)) for row, share in zip(rows, ordered, strict=True)]
    return Table(head, rows)


def _cost_row(arm: ArmSummary) -> tuple[str, ...]:
    """Return the costs of one arm."""
    cost = arm.cost
    counts = (f"{cost.judge_calls:,.0f}", f"{cost.judge_seconds:,.1f}", _share(cost.unscored_rate))
    return (arm.name, arm.judge, *counts, f"{cost.wall_seconds:,.0f}")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _seed_notes(summary: Summary) -> list[str]:
    """Return a sentence for each arm whose seeds are not the comparator's: it is compared over the common ones."""
    theirs = summary.arm(summary.comparator).seeds
    return [
        f"{arm.name} has seeds {list(arm.seeds)}, {summary.comparator} {list(theirs)}: they are compared over "
        f"{count({len(summary.against[arm.name].seeds)}, 'common seed')}."
        for arm in summary.arms
        if arm.seeds != theirs
    ]


def _definitions(summary: Summary) -> str:
    """Return what the numbers mean and what made them."""
    comparison = summary.comparison
    made_with = ", ".join(f"{name} {value}" for name, value in comparison.environment.items())
    lines = (
        f"Success: {comparison.y_label}, on the unshaped task; x: {comparison.x_label}.",
        f"Base: the first evaluation. Targets: the mean base of all arms ({summary.base:.2f}) plus 10, 20, 30 and 40 "
        "points, those above 1 left out.",
        "Area: area under the success curve divided by the span of x, mean over runs.",
        "Final success: last checkpoint, not the best; interquartile mean (IQM), which drops the floor(n/4) lowest and "
        "highest of n runs.",
        "Intervals: 95 %, percentile bootstrap that resamples whole runs. For the share of episodes solved at the end: "
        "Wilson, which takes episodes as independent. None is corrected for the number of arms; only the primary "
        "endpoint is a test.",
        f"Steps to a target: the first of {CONSECUTIVE} consecutive evaluations at or above it on the arm's IQM curve; "
        "beside it how many runs reached it by themselves, and their median.",
        f"Speed-up: steps of {summary.comparator} over steps of the arm, above 1 the arm is faster; interval by "
        'resampling seed pairs. An arm that does not reach the target counts as "> budget": the ratio is then a bound '
        "and that end open. Draws in which neither arm reaches it open the interval at both ends.",
        f"Comparator: of the sparse arms ({', '.join(comparison.baselines)}) the one with the larger area.",
        *([f"Made with: {made_with}."] if made_with else []),
    )
    return "\n".join(f"- {line}" for line in lines)


def _verdict(primary: str, comparator: str, difference: PairedDifference) -> str:
    """Return the primary endpoint in one plain sentence."""
    if difference.interval is None or difference.p_value is None:
        return "One pair shows nothing."
    if difference.interval.low <= 0.0 <= difference.interval.high:
        return "The interval holds 0: no difference is shown."
    word = "better" if difference.mean > 0 else "worse"
    if difference.p_value < _LEVEL:
        return f"{primary} is {word} than {comparator}."
    return f"The interval puts {primary} on the {word} side of {comparator}, but p is not below {_LEVEL}."


def _p(difference: PairedDifference) -> str:
    """Return the p-value and, where so few pairs could never be significant, the least it could be."""
    if difference.p_value is None:
        return ""
    exact, least = "exact " if difference.pairs <= EXACT_PAIRS else "", 2 / 2**difference.pairs
    bound = f" ({difference.pairs} pairs cannot give less than {least:.3g})" if least >= _LEVEL else ""
    return f", {exact}sign-flip p = {difference.p_value:.3g}{bound}"
