"""Problems of reasoning-gym as a file that a GRPO config can name: prompt and answer, one of each in a line.

    python -m training.reasoning_gym_problems --out training/results/smollm2/problems.jsonl

Sums and differences of two one-digit numbers, or any task of reasoning-gym with `--task NAME --settings '{"key": 1}'`.
The last rows are for evaluation: no problem is in the file twice.
"""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from pathlib import Path
from typing import Any

SUMS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


def main(arguments: list[str] | None = None) -> None:
    """Draw the problems and write them."""
    parser = argparse.ArgumentParser(description="problems of reasoning-gym as jsonl")
    parser.add_argument("--task", default="chain_sum", help="name of a dataset of reasoning-gym")
    parser.add_argument("--settings", type=json.loads, default=SUMS, help="its settings, as JSON")
    parser.add_argument("--count", type=int, default=180, help="different problems")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    rows = problems(options.task, options.settings, options.count, options.seed)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(
        f"{len(rows)} problems of {options.task} in {options.out}, e.g. {rows[0]['prompt']!r} -> {rows[0]['answer']!r}"
    )


def problems(task: str, settings: dict[str, Any], count: int, seed: int) -> list[dict[str, str]]:
    """Return `count` different problems, in the order they are drawn.

    Raises:
        SystemExit: The task has fewer, as far as 20 draws for each show.
    """
    gym: Any = import_module("reasoning_gym")
    drawn: dict[str, str] = {}
    for entry in gym.create_dataset(task, seed=seed, size=20 * count, **settings):
        drawn.setdefault(entry["question"], str(entry["answer"]))
        if len(drawn) == count:
            return [{"prompt": prompt, "answer": answer} for prompt, answer in drawn.items()]
    raise SystemExit(f"{task} has {len(drawn)} different problems with {settings}, {count} were asked; ask fewer")


if __name__ == "__main__":
    main()
