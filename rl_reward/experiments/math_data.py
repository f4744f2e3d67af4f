"""Math problems for GRPO: the generated additions, or any dataset with a prompt and an answer column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_reward.errors import ConfigError, MissingExtraError
from rl_reward.experiments.additions import task as additions

if TYPE_CHECKING:
    from rl_reward.experiments.math_answers import AnswerForm

Row = Mapping[str, Any]
"""A problem: "prompt" (text or messages) and "answer" (text)."""

_FILES = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}


@dataclass(frozen=True)
class MathData:
    """Problems and how their answers are checked."""

    train: Sequence[Row]
    """Problems for training."""
    held_out: Sequence[Row]
    """Problems for evaluation; none of them is in `train`."""
    correct: Callable[[str, str], bool]
    """Whether a completion gives an answer: (completion, answer)."""
    well_formed: Callable[[str], bool]
    """Whether a completion has the form that is asked for."""


def load_additions(dataset: str, eval_problems: int) -> MathData:
    """Return the GRPO split of "additions" or "long-additions", and `eval_problems` of its evaluation split."""
    held_out = additions.problems("evaluation", dataset)
    if eval_problems > len(held_out):
        raise ConfigError(f"eval_problems must be at most {len(held_out)} for {dataset}, got {eval_problems}")
    train, held_out = (
        [{"prompt": problem.prompt, "answer": problem.answer} for problem in split]
        for split in (additions.problems("grpo", dataset), held_out[:eval_problems])
    )
    return MathData(train, held_out, additions.correct, partial(additions.well_formed, dataset=dataset))


def load_dataset(
    source: str,
    *,
    split: str,
    eval_split: str,
    prompt: str,
    answer: str,
    instruction: str,
    eval_problems: int,
    answer_form: AnswerForm = "boxed",
) -> MathData:
    r"""Return a dataset of the Hugging Face hub or a local file (json, jsonl, csv, parquet).

    Args:
        source: Name on the hub, or path of a file or folder.
        split: The training split.
        eval_split: The held-out split; its first `eval_problems` rows are used. Empty: the last rows of `split`, which
            then are not trained on.
        prompt: Column with the problem, text or messages.
        answer: Column with the answer, or with a solution that has it in \boxed{}.
        instruction: Appended to problems that are text, and then handed over as a user message.
        eval_problems: How many problems are held out.
        answer_form: Where completions have their answer; see `rl_reward.experiments.math_answers`.

    Raises:
        ConfigError: A split or a column is missing, or too few rows are there.
        MissingExtraError: math-verify is not installed.
    """
    # Imported here because the additions do without math-verify.
    from rl_reward.experiments import math_answers

    if eval_split and Path(source).suffix in _FILES:
        raise ConfigError(f"a file has no splits; leave eval_split empty to hold its last rows out, got {eval_split!r}")
    rows = _read(source, split, prompt, answer, instruction)
    held_out = _read(source, eval_split, prompt, answer, instruction) if eval_split else rows[-eval_problems:]
    train = rows if eval_split else rows[:-eval_problems]
    if not train or len(held_out) < eval_problems:
        raise ConfigError(
            f"{source} has too few rows for {eval_problems} eval_problems; lower it or name an eval_split"
        )
    return MathData(
        train,
        held_out[:eval_problems],
        partial(math_answers.correct, form=answer_form),
        partial(math_answers.well_formed, form=answer_form),
    )


def _read(source: str, split: str, prompt: str, answer: str, instruction: str) -> list[Row]:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "trl") from error
    library: Any = datasets
    kind = _FILES.get(Path(source).suffix)
    where = {"path": source} if kind is None else {"path": kind, "data_files": {split: source}}
    try:
        table = library.load_dataset(**where, split=split)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"cannot load split {split!r} of dataset {source!r}: {reason}") from error
    for column in (prompt, answer):
        if column not in table.column_names:
            raise ConfigError(f"column {column!r} is not in dataset {source!r}; it has {', '.join(table.column_names)}")
    return [{"prompt": _asked(row[prompt], instruction), "answer": str(row[answer])} for row in table]


def _asked(prompt: Any, instruction: str) -> Any:
    """Return the prompt as the policy gets it; messages stay as they are."""
    if not isinstance(prompt, str) or not instruction:
        return prompt
    return [{"role": "user", "content": f"{prompt}\n\n{instruction}"}]
