"""What the command line prints: plain tables that show the whole letter distribution, and the same as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rl_reward.distribution import ScoreDistribution
from rl_reward.scores import ProgressCurve, Ranking, Score
from rl_reward.types import Usage

_BARS = " ▁▂▃▄▅▆▇█"


def one_line(text: str) -> str:
    """Return `text` as one line that a terminal only shows: what is no printable character is escaped."""
    line = " ".join(text.split())
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


def score_table(score: Score) -> str:
    """Return the score, then a line per criterion with its value, coverage and letters."""
    lines = [_headline(score)]
    for name, value in score.by_criterion.items():
        lines.append(f"  {one_line(name):<20.20} {_number(value)}  {_letters(score.distributions[name])}")
    return "\n".join(lines)


def curve_table(curve: ProgressCurve, texts: Sequence[str]) -> str:
    """Return a line per step: progress, a bar, the letters of its first criterion, and the beginning of its text."""
    lines = ["step  progress"]
    for step, text in enumerate(texts):
        value = float(curve.values[step])
        shown = "  held" if step not in curve.scores else "unread" if math.isnan(value) else f"{value:6.3f}"
        bar = "█" * round(20 * value) if curve.scored[step] else ""
        lines.append(f"{step + 1:4d}  {shown}  {bar:<20}  {one_line(text)[:60]}")
    unread = sum(score.value is None for score in curve.scores.values())
    voc = "none (needs 3 scored checkpoints that differ)" if curve.voc is None else f"{curve.voc:.3f}"
    lines.append(f"value-order correlation {voc}; {len(curve.scores)} checkpoints asked, {unread} unread")
    lines += [f"  step {step + 1}: {one_line(s.reason)}" for step, s in curve.scores.items() if s.value is None][:5]
    return "\n".join(lines)


def ranking_table(ranking: Ranking, candidates: Sequence[str], *, strengths: bool) -> str:
    """Return a line per candidate, best first, then what was asked; `strengths` adds the Bradley-Terry column."""
    lines = [f"rank   score            ring  {'strength  ' if strengths else ''}candidate"]
    scores, errors, ring = map(_nulled, (ranking.scores, ranking.std_errors, ranking.ring_scores))
    fitted = _nulled(ranking.strengths) if strengths else []
    for i in ranking.order:
        spread = "" if errors[i] is None else f" ± {errors[i]:.3f}"
        strength = f"{_column(fitted[i], 8)}  " if strengths else ""
        numbers = f"{_number(scores[i]) + spread:<15} {_column(ring[i], 6)}  {strength}"
        lines.append(f"{ranking.ranks[i] or '-':>4}  {numbers}{one_line(candidates[i])[:60]}")
    lines.append(f"{ranking.comparisons} comparisons, {ranking.unscored} unread")
    reasons = [pair.reason for pair in ranking.pairs if pair.reason]
    lines += [f"  {one_line(reason)}" for reason in dict.fromkeys(reasons)][:5]
    return "\n".join(lines)


def usage_line(usage: Usage, name: str) -> str:
    """Return who judged and what it cost."""
    made_up = "; made-up scores that show the format and judge nothing" if name.startswith("simulated(") else ""
    tokens = f"{usage.prompt_tokens} tokens read, {usage.completion_tokens} written"
    return f"judge {one_line(name)}: {usage.calls} calls, {tokens}, {usage.seconds:.2f} s in requests{made_up}"


def score_record(task: str, candidate: str, score: Score) -> dict[str, Any]:
    """Return a score as JSON values, every distribution whole."""
    return {
        "task": task,
        "candidate": candidate,
        **_plain(score),
        "distributions": {name: [_record(d) for d in read] for name, read in score.distributions.items()},
    }


def curve_record(task: str, curve: ProgressCurve) -> dict[str, Any]:
    """Return a progress curve as JSON values; unread and not yet scored steps are null."""
    values = [None if math.isnan(value) else float(value) for value in curve.values]
    checkpoints = {str(step): _plain(score) for step, score in curve.scores.items()}
    scored = [bool(flag) for flag in curve.scored]
    return {"task": task, "values": values, "scored": scored, "voc": curve.voc, "checkpoints": checkpoints}


def ranking_record(task: str, candidates: Sequence[str], ranking: Ranking, *, strengths: bool) -> dict[str, Any]:
    """Return a ranking as JSON values, every comparison whole; what was not read or fitted is null."""
    return {
        "task": task,
        "candidates": list(candidates),
        "order": list(ranking.order),
        "ranks": list(ranking.ranks),
        "scores": _nulled(ranking.scores),
        "std_errors": _nulled(ranking.std_errors),
        "ring_scores": _nulled(ranking.ring_scores),
        **({"strengths": _nulled(ranking.strengths)} if strengths else {}),
        "comparisons": [
            {**vars(pair.pairing), "preference": _nulled([pair.preference])[0], "reason": pair.reason}
            for pair in ranking.pairs
        ],
        "unscored": ranking.unscored,
        "usage": dict(vars(ranking.usage)),
    }


def _nulled(values: Iterable[float]) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in values]


def _headline(score: Score) -> str:
    if score.value is None:
        return f"unscored ({score.status}): {one_line(score.reason)}"
    spread = "" if score.std_error is None else f" ± {score.std_error:.3f}"
    return f"score {score.value:.3f}{spread}  ({score.status}, {score.repeats_used} repeat(s))"


def _letters(read: Sequence[ScoreDistribution]) -> str:
    """Return the mean distribution over the repeats as bars between the worst and the best level."""
    if not read:
        return "no distribution"
    probs = np.mean([d.probs for d in read], axis=0)
    bars = "".join(_BARS[math.ceil(8 * p / probs.max()) if p > 1e-4 else 0] for p in probs)
    scale = read[0].scale
    coverage = float(np.mean([d.coverage for d in read]))
    entropy = float(np.mean([d.entropy for d in read]))
    return f"{scale.first}|{bars}|{scale.last}  coverage {coverage:.3f}  entropy {entropy:.2f} nats"


def _number(value: float | None) -> str:
    return "unread" if value is None else f"{value:6.3f}"


def _column(value: float | None, width: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}.3f}"


def _plain(score: Score) -> dict[str, Any]:
    usage: Mapping[str, float] = vars(score.usage)
    return {
        "value": score.value,
        "std_error": score.std_error,
        "status": score.status,
        "reason": score.reason,
        "by_criterion": dict(score.by_criterion),
        "repeats_used": score.repeats_used,
        "usage": dict(usage),
    }


def _record(d: ScoreDistribution) -> dict[str, Any]:
    levels = dict(zip(d.scale.levels, d.probs.tolist(), strict=True))
    return {"levels": levels, "mean": d.mean, "variance": d.variance, "entropy": d.entropy, "coverage": d.coverage}
