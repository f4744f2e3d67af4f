"""The picture of a comparison: every arm's IQM curve with its band, and every single run."""

# matplotlib leaves its keyword arguments untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path

from rl_reward.errors import MissingExtraError
from rl_reward.experiments.summary import ArmSummary, Summary

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter
except ImportError as missing:
    raise MissingExtraError("matplotlib", "plots") from missing

# Okabe and Ito's palette, safe for colour-blind readers; black is the comparator's, blue the primary arm's.
_COMPARATOR, _PRIMARY = "#000000", "#0072B2"
_OTHERS = ("#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C8C8C")
_INK, _FAINT = "#333333", "#D9D9D9"
_WIDE_LABEL = 64


def draw_curves(summary: Summary, path: Path) -> None:
    """Draw `summary` to the PNG file `path` (see `curves_figure`)."""
    curves_figure(summary).savefig(path, format="png")


def curves_figure(summary: Summary) -> Figure:
    """Return the picture of `summary`: all arms on the left, each arm with every run on the right."""
    rows, colors = -(-len(summary.arms) // 2), _colors(summary)
    columns = 2 if max(len(_label(summary, arm)) for arm in summary.arms) <= _WIDE_LABEL else 1
    charts, legend = max(3.4, 1.3 * rows), 0.2 * -(-len(summary.arms) // columns)
    figure = Figure(figsize=(10.0, charts + legend + 0.9), dpi=180, facecolor="white", layout="constrained")
    heights = (*[charts / rows] * rows, legend)
    grid = figure.add_gridspec(rows + 1, 4, width_ratios=(1.0, 1.0, 0.92, 0.92), height_ratios=heights)
    overview = figure.add_subplot(grid[:rows, :2])
    _overview(overview, summary, colors)
    _legend(figure.add_subplot(grid[rows, :]), overview, columns)
    for index, arm in enumerate(summary.arms):
        axes = figure.add_subplot(grid[index // 2, 2 + index % 2])
        _single_runs(axes, summary, arm, colors)
        left, bottom = index % 2 == 0, index + 2 >= len(summary.arms)
        axes.tick_params(labelleft=left, labelbottom=bottom)
        axes.set_xlabel(summary.comparison.x_label if bottom else "", fontsize=7.5, color=_INK)
        axes.set_ylabel(textwrap.fill(summary.comparison.y_label, 14) if left else "", fontsize=7.5, color=_INK)
    figure.suptitle(_title(summary), x=0.012, ha="left", fontsize=12, fontweight="bold", color=_INK)
    figure.supxlabel(textwrap.fill(caption(summary), 150), x=0.012, ha="left", fontsize=8, color="#666666")
    return figure


def caption(summary: Summary) -> str:
    """Return what the lines and the band of the picture are."""
    episodes = sorted({run.episodes for run in summary.comparison.runs})
    points = " or ".join(str(count) for count in episodes)
    unit = "held-out problems" if summary.comparison.kind == "grpo" else "evaluation episodes on the unshaped task"
    several = any(arm.band is not None for arm in summary.arms)
    band = "band: 95 % whole-run percentile bootstrap over seeds, on the left for the primary arm and the comparator"
    if not several:
        band = "no band: one seed has no interval"
    return (
        f"Thick line: interquartile mean (IQM) over seeds; {band}; thin lines: every run. "
        f"Each point of a run: {points} {unit}. "
        "Dotted: base level, the mean first evaluation of all arms. "
        f"Dashed: IQM of the comparator, {summary.comparator}."
    )


def _title(summary: Summary) -> str:
    """Return the title, which says so when the picture is illustrative only."""
    name = summary.comparison.name
    return f"{name} (illustrative: too few seeds to claim anything)" if summary.comparison.illustrative else name


def _colors(summary: Summary) -> Mapping[str, str]:
    """Return a colour for each arm."""
    fixed = {summary.comparison.primary: _PRIMARY, summary.comparator: _COMPARATOR}
    others = [arm.name for arm in summary.arms if arm.name not in fixed]
    return {**{name: _OTHERS[i % len(_OTHERS)] for i, name in enumerate(others)}, **fixed}


def _overview(axes: Axes, summary: Summary, colors: Mapping[str, str]) -> None:
    """Draw the IQM of all arms, and the bands of two: seven bands on top of each other show nothing."""
    for arm in summary.arms:
        main = arm.name in (summary.comparison.primary, summary.comparator)
        if main:
            _band(axes, summary, arm, colors[arm.name], alpha=0.16)
        width, order = (2.4, 3) if main else (1.5, 2)
        axes.plot(
            summary.steps_S, arm.iqm_S, color=colors[arm.name], lw=width, zorder=order, label=_label(summary, arm)
        )
    _frame(axes, summary)
    axes.set_xlabel(summary.comparison.x_label, fontsize=9.5, color=_INK)
    axes.set_ylabel(summary.comparison.y_label, fontsize=9.5, color=_INK)


def _legend(axes: Axes, overview: Axes, columns: int) -> None:
    """Draw the legend of `overview` over the whole width, in axes of its own."""
    axes.set_axis_off()
    handles, labels = overview.get_legend_handles_labels()
    axes.legend(
        handles, labels, loc="center", ncols=columns, columnspacing=4, fontsize=8.5, frameon=False, labelcolor=_INK
    )


def _label(summary: Summary, arm: ArmSummary) -> str:
    """Return arm, role, judge and number of seeds for the legend."""
    role = {summary.comparison.primary: " (primary)", summary.comparator: " (comparator)"}.get(arm.name, "")
    judge = "no judge" if arm.judge == "none" else f"judge: {arm.judge}"
    # Many an arm is called by its judge.
    told = "" if arm.judge in arm.name else f"; {judge}"
    return f"{arm.name}{role}{told}; n = {len(arm.seeds)}"


def _single_runs(axes: Axes, summary: Summary, arm: ArmSummary, colors: Mapping[str, str]) -> None:
    """Draw one arm: every run, its IQM and band, and the comparator's IQM in the background."""
    color = colors[arm.name]
    if arm.name != summary.comparator:
        reference = summary.arm(summary.comparator).iqm_S
        axes.plot(summary.steps_S, reference, color=_COMPARATOR, lw=1.0, ls=(0, (4, 2)), alpha=0.55)
    axes.plot(summary.steps_S, arm.success_NS.T, color=color, lw=0.6, alpha=0.5)
    _band(axes, summary, arm, color, alpha=0.15)
    axes.plot(summary.steps_S, arm.iqm_S, color=color, lw=1.8)
    _frame(axes, summary)
    axes.set_title(textwrap.fill(arm.name, 34), fontsize=8.5, color=color, loc="left", pad=3)


def _band(axes: Axes, summary: Summary, arm: ArmSummary, color: str, *, alpha: float) -> None:
    """Draw the interval of `arm`, where it has one."""
    if arm.band is not None:
        axes.fill_between(summary.steps_S, arm.band.low_S, arm.band.high_S, color=color, alpha=alpha, lw=0)


def _top(summary: Summary) -> float:
    """Return the upper limit of y: the multiple of 20 points above every run; the lower one is always 0."""
    highest = max(float(arm.success_NS.max()) for arm in summary.arms)
    return max(0.2, math.ceil(round(highest * 5, 6)) / 5)


def _frame(axes: Axes, summary: Summary) -> None:
    """Set limits, ticks and the base level: the same in all panels."""
    axes.axhline(summary.base, color="#888888", lw=0.9, ls=":", zorder=1)
    axes.set_xlim(summary.steps_S[0], summary.steps_S[-1])
    top = _top(summary)
    axes.set_ylim(-0.025 * top, 1.025 * top)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.tick_params(labelsize=8, length=0, colors=_INK)
    axes.grid(color=_FAINT, lw=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(side == "bottom")
        axes.spines[side].set_color("#999999")
