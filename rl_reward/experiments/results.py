"""The results file: what every run of a comparison leaves behind, and how it is read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RunResult:
    """One finished run: one arm, one seed."""

    arm: str
    """Name of the arm as it appears in tables and plots."""
    seed: int
    """Seed of the run."""
    steps: Sequence[int]
    """x of each evaluation: low-level env steps (SAC, warm-up included) or optimizer steps (GRPO)."""
    success: Sequence[float]
    """Success or exact-answer accuracy at each evaluation, in [0, 1], on the unshaped task."""
    episodes: int
    """Evaluation episodes or problems per point."""
    judge: str = "none"
    """Name of the judge, e.g. "simulated(noise=0.1)" or "stand-in verifier"."""
    judge_calls: int = 0
    """Requests the judge answered."""
    judge_seconds: float = 0.0
    """Wall seconds spent judging."""
    wall_seconds: float = 0.0
    """Wall seconds of the run."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further curves and counts, e.g. "final_step_success", "unscored_rate", "completions"."""


@dataclass(frozen=True)
class Comparison:
    """All runs of one experiment, and what is needed to read and to repeat them."""

    name: str
    """Name of the experiment."""
    kind: str
    """"sac" or "grpo"."""
    x_label: str
    """The unit of `RunResult.steps`, e.g. "environment steps"."""
    y_label: str
    """What success means here, e.g. "success rate at the final step"."""
    baselines: Sequence[str]
    """The sparse arms; the better one is the comparator."""
    primary: str
    """The primary endpoint, named before running: the arm whose paired difference of area is tested."""
    illustrative: bool
    """True where too few seeds stand behind the curves to claim anything."""
    config: Mapping[str, Any]
    """The resolved configuration."""
    environment: Mapping[str, str]
    """Versions, git hash, command, platform."""
    runs: Sequence[RunResult]
    """The runs."""

    def save(self, path: Path) -> None:
        """Write the comparison as JSON; the file appears whole or not at all."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self), indent=1) + "\n")
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Comparison:
        """Read what `save` wrote."""
        raw: dict[str, Any] = json.loads(path.read_text())
        runs: list[dict[str, Any]] = raw.pop("runs")
        return cls(**raw, runs=[RunResult(**run) for run in runs])
