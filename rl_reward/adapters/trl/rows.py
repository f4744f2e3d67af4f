"""From the arguments of a TRL reward function to rows that can be judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from rl_reward.adapters.messages import Text, text_of
from rl_reward.adapters.trl.gates import Gates
from rl_reward.adapters.trl.judging import Row
from rl_reward.criteria import Criteria
from rl_reward.errors import ConfigError

Correct = str | Callable[..., Sequence[float | bool | None]]
"""A dataset column, or a plain function with the signature of a TRL reward function."""


@dataclass(frozen=True)
class Batch:
    """What TRL hands to a reward function on one process."""

    prompts: Sequence[Text]
    """The prompts, one per row."""
    completions: Sequence[Text]
    """The completions."""
    completion_ids: Sequence[Sequence[int]] | None
    """Their token ids, where there are any."""
    clipped: Sequence[bool] | None
    """Which the token limit cut off; None where that cannot be known."""
    columns: Mapping[str, Sequence[Any]]
    """The other columns of the dataset."""


@dataclass(frozen=True)
class RowReader:
    """Which columns hold what, and what never reaches the judge; see `VerifierReward`."""

    reference: str | None
    """Column of the reference answer that is shown after the task."""
    criteria: str | None
    """Column of the criteria."""
    references: str | None
    """Column of the pool that answers are compared with."""
    correct: Correct | None
    """Where the correctness of an answer is known from."""
    gates: Gates
    """What is looked for in the answers."""

    def rows(self, batch: Batch) -> list[Row]:
        """Return the rows of one process.

        Raises:
            ConfigError: A column is missing or a cell is not what it should be, or the clipped gate cannot know.
        """
        if batch.clipped is None and "clipped" in self.gates.stop:
            raise ConfigError(
                'the gate "clipped" needs completion_ids and a trainer that passes log_metric; leave it out'
            )
        count = len(batch.prompts)
        prompts, answers = [text_of(prompt) for prompt in batch.prompts], [text_of(text) for text in batch.completions]
        references = column_of(batch.columns, self.reference, "reference", count)
        criteria = column_of(batch.columns, self.criteria, "criteria", count)
        pools = column_of(batch.columns, self.references, "references", count)
        classes = classes_of(self.correct, batch)
        clipped = batch.clipped or [False] * count
        lengths = [len(tokens) for tokens in batch.completion_ids or answers]
        signs = [self.gates.signs(*seen) for seen in zip(prompts, answers, clipped, strict=True)]
        return [
            Row(
                task=task_of(prompts[i], references[i]),
                answer=answers[i],
                length=lengths[i],
                criteria=_criteria(criteria[i]),
                references=_pool(pools[i], self.references),
                correctness=classes[i],
                signs=signs[i],
                gate=self.gates.closed(signs[i]),
            )
            for i in range(count)
        ]


def classes_of(correct: Correct | None, batch: Batch) -> list[float | None]:
    """Return how right each completion is, None where that is unknown.

    Raises:
        ConfigError: The column is missing, the function returned another number of values, or one is no number.
    """
    if correct is None or isinstance(correct, str):
        cells = column_of(batch.columns, correct, "correct", len(batch.prompts))
    else:
        cells = correct(
            prompts=batch.prompts, completions=batch.completions, completion_ids=batch.completion_ids, **batch.columns
        )
        if not isinstance(cells, Sequence) or len(cells) != len(batch.prompts):
            told = f"{len(cells)} values" if isinstance(cells, Sequence) else type(cells).__name__
            raise ConfigError(f"correct must return a list of {len(batch.prompts)} numbers or None, got {told}")
    return [_class(cell) for cell in cells]


def column_of(columns: Mapping[str, Sequence[Any]], name: str | None, argument: str, count: int) -> Sequence[Any]:
    """Return a column of the dataset, `count` times None where none is named.

    Raises:
        ConfigError: There is no such column; `argument` is where its name was given.
    """
    if name is None:
        return [None] * count
    if name not in columns:
        raise ConfigError(f"{argument} column {name!r} is not in the dataset; it has {sorted(columns)}")
    return columns[name]


def task_of(prompt: str, reference: object) -> str:
    """Return what the judge is told: the prompt, and the reference answer unless it is None."""
    return prompt if reference is None else f"{prompt}\n\nReference answer:\n{reference}"


def _criteria(cell: Any) -> Criteria | None:
    """Return a cell of the criteria column without what Arrow adds: every name of the column, None where it is not."""
    if not isinstance(cell, Mapping):
        return cell
    known = cast(Mapping[str, Any], cell)
    return {name: question for name, question in known.items() if question is not None} or None


def _pool(cell: Any, column: str | None) -> tuple[str, ...]:
    """Return the reference answers of a cell: one text, or several."""
    texts: Sequence[Any] = (cell,) if isinstance(cell, str) else () if cell is None else cell
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"references column {column!r} must hold a text or a list of texts, got {cell!r:.80}")
    if not all(text.strip() for text in texts):
        raise ConfigError(f"references column {column!r} holds an empty answer; nothing can be compared with it")
    return tuple(texts)


def _class(cell: Any) -> float | None:
    """Return a correctness class; not a number is unknown, as None is."""
    if cell is None:
        return None
    try:
        known = float(cell)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the correctness of an answer must be a number, a bool or None, got {cell!r:.80}") from error
    # Classes that differ by rounding, such as .1 + .2 and .3, are one.
    return round(known, 9) if math.isfinite(known) else None
