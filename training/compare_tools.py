"""Every arm and seed of `training.tools`, one after another: `python -m training.compare_tools FOLDER --seeds 5`.

Runs that are in the folder already are not repeated. What is there at the end becomes FOLDER/report.md and curves.png.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rl_reward.experiments.facts import command, facts
from rl_reward.experiments.report import write_report
from rl_reward.experiments.results import Comparison, RunResult
from training import tools


def main(arguments: list[str] | None = None) -> None:
    """Finish the runs and write the report."""
    parser = argparse.ArgumentParser(description="compare outcome-only GRPO with turn credit")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--arms", nargs="*", choices=list(tools.ARMS), default=list(tools.ARMS))
    options, passed_on = parser.parse_known_args(arguments)  # what is left goes to training.tools, e.g. --steps 40
    runs: list[RunResult] = []
    for seed in range(options.seeds):
        for arm in options.arms:
            file: Path = options.folder / "runs" / f"{arm}_{seed}.json"
            if not file.exists():
                tools.main(["--arm", arm, "--seed", str(seed), "--out", str(file), *passed_on])
            runs.append(RunResult(**json.loads(file.read_text())))
    comparison = Comparison(
        name="calculator",
        kind="grpo",
        x_label="optimizer steps",
        y_label="exact-answer accuracy",
        baselines=[tools.ARMS["outcome"]],
        primary=tools.ARMS["turns"],
        illustrative=options.seeds < 5,
        config=runs[0].extra["settings"],
        environment={**facts(), "command": command("python -m training.compare_tools")},
        runs=runs,
    )
    comparison.save(options.folder / "results.json")
    write_report(comparison, options.folder)


if __name__ == "__main__":
    main()
