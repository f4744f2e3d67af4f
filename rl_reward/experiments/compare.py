"""The command `rl-reward compare`: arms x seeds in parallel, resumable, one results file and one report each."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

from rl_reward.errors import ConfigError
from rl_reward.experiments.config import Experiment, load
from rl_reward.experiments.facts import facts
from rl_reward.experiments.pool import run_all
from rl_reward.experiments.results import Comparison
from rl_reward.experiments.runs import Run, runs_of


def compare(
    config: str | Path,
    *,
    out: str | Path | None = None,
    jobs: int | None = None,
    seeds: Sequence[int] | None = None,
    fresh: bool = False,
) -> int:
    """Run every experiment of the file `config`, write its results and report, and print the tables.

    Runs that are finished are not repeated; killed and failed ones are. Ctrl-C keeps what is finished.

    Args:
        config: YAML file (see `rl_reward.experiments.config`).
        out: Folder; `runs/<name of the file>` by default. Each experiment gets a folder in it.
        jobs: Runs at the same time, >= 1; by default one for each core, divided by the threads of a run.
        seeds: Replace the seeds of the file.
        fresh: Throw earlier runs away.

    Returns:
        0, or 1 where a run failed; then that experiment has no results file, and the same command repeats those runs.

    Raises:
        ConfigError: The file or a value is wrong, or earlier runs have another configuration.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs must be at least 1, got {jobs}")
    experiments = load(config)
    for experiment in experiments:
        _check(experiment)
    if seeds is not None:
        experiments = [replace(experiment, seeds=tuple(seeds)) for experiment in experiments]
    root = Path(out) if out is not None else Path("runs") / Path(config).stem
    if not fresh:
        # A conflict in the last experiment must show before hours go into the first.
        for experiment in experiments:
            _unfinished(runs_of(experiment, root / experiment.name))
    codes = [compare_one(experiment, root / experiment.name, jobs=jobs, fresh=fresh) for experiment in experiments]
    return max(codes)


def compare_one(experiment: Experiment, folder: Path, *, jobs: int | None = None, fresh: bool = False) -> int:
    """Run one experiment into `folder` (see `compare`) and return 0, or 1 where a run failed."""
    runs = runs_of(experiment, folder)
    if fresh:
        for run in runs:
            run.forget()
    missing = _unfinished(runs)
    at_once = jobs or max(_cores() // experiment.settings.threads, 1)
    plan = f"{len(experiment.arms)} arms x {len(experiment.seeds)} seeds = {len(runs)} runs"
    finished = len(runs) - len(missing)
    print(f"{experiment.name}: {plan}, {finished} finished before, {at_once} at a time, into {folder}", flush=True)
    failures = run_all(missing, jobs=at_once, name=experiment.name, finished=finished) if missing else []
    if failures:
        print(f"{experiment.name}: {len(failures)} of {len(runs)} runs failed, no results written:", file=sys.stderr)
        print(*failures, sep="\n", file=sys.stderr)
        return 1
    _conclude(comparison_of(experiment, runs), folder)
    return 0


def comparison_of(experiment: Experiment, runs: Sequence[Run]) -> Comparison:
    """Return the finished `runs` with all that is needed to read and to repeat them."""
    return Comparison(
        name=experiment.name,
        kind=experiment.kind,
        x_label=experiment.settings.x_label,
        y_label=experiment.settings.y_label,
        baselines=experiment.baselines,
        primary=experiment.primary,
        illustrative=experiment.illustrative,
        config=asdict(experiment),
        environment=facts(),
        runs=[result for run in runs if (result := run.result()) is not None],
    )


def _check(experiment: Experiment) -> None:
    """Let the trainer refuse arms that could not run, before the first one does."""
    trainer = import_module(type(experiment.settings).__module__)
    for arm in experiment.arms.values() if hasattr(trainer, "check") else ():
        trainer.check(experiment.settings, arm)


def _unfinished(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that have no result; ConfigError where one has the result of another configuration."""
    return [run for run in runs if run.result() is None]


def _conclude(comparison: Comparison, folder: Path) -> None:
    """Write results and report, print the tables."""
    # Imported here because matplotlib takes seconds, and the first line must not wait for it.
    from rl_reward.experiments.report import text, write_report

    comparison.save(folder / "results.json")
    print(text(write_report(comparison, folder)))
    print(f"curves: {folder / 'curves.png'}", flush=True)


def _cores() -> int:
    """Return the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
