"""VerifierReward: a verifier's scores as a reward function of TRL's GRPOTrainer."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from rl_reward._checks import check_int, check_number, check_text
from rl_reward.adapters.messages import Text, text_of
from rl_reward.adapters.schedule import TrainerState, Weight, checked_weight, weight_at
from rl_reward.adapters.trl.host import Trainer, check, check_size, trainer_behind
from rl_reward.adapters.trl.metrics import metrics_of
from rl_reward.adapters.unscored import UnscoredLimit
from rl_reward.criteria import Criteria
from rl_reward.errors import BackendError, ConfigError
from rl_reward.groups import by_position, centred
from rl_reward.scores import Score
from rl_reward.types import Candidate

EMPTY_COMPLETION = "(empty answer)"
"""What the judge reads where the policy wrote nothing: silence is judged like any other answer."""


class AsyncVerifier(Protocol):
    """What `VerifierReward` asks of a verifier."""

    async def ascore_many(
        self, pairs: Sequence[tuple[str, Candidate]], /, *, criteria: Criteria | None = None
    ) -> Sequence[Score]:
        """Return one score for each (task, candidate), in order; `criteria` replaces the verifier's own."""
        ...


class VerifierReward:
    """An async reward function for `GRPOTrainer(reward_funcs=[correct, format, VerifierReward(...)])`.

    r_i = weight * (R_i - mean R) / std R over the scored rows of the group, the beta * r_reasoning term of the paper's
    on-policy reward. Rows the verifier could not score return None. TRL sums its reward functions with nansum, so a
    None counts as 0 there; because these rewards are centred, 0 is the group's mean and None is neutral.

    Where `weight` (beta) bites depends on `GRPOConfig(scale_rewards=...)`: TRL divides the *sum* of all rewards.

    - "group" (TRL's default): by its std inside the group. Beta is the share of the verifier beside the other rewards
      of that group. In a group where only the verifier differs, all right or all wrong, it cancels: beta .01 and beta
      10 train alike. There `min_spread` is the only brake.
    - "batch": by one std for the whole batch. Beta also says how much groups where only the verifier differs count
      against groups where correctness differs. It cancels if no other reward differs anywhere in the batch.
    - "none": not at all. Beta is the size of the verifier's advantage, everywhere.

    With `multi_objective_aggregation="normalize_then_sum"` TRL rescales each reward function by itself and beta always
    cancels; set `GRPOConfig(reward_weights=...)` there.

    Groups are told apart by position, never by prompt text. Logged through `log_metric` under `name/`: coverage,
    unscored_rate, calls, seconds, tokens, score_length_correlation (inside groups; near 1 the policy is being paid for
    length), score_mean, score_std, gated_groups (share of groups under `min_spread`) and weight. The raw score of each
    row goes to the completions table as `name/score`.
    """

    def __init__(
        self,
        verifier: AsyncVerifier,
        *,
        weight: Weight,
        group_size: int,
        eval_group_size: int | None = None,
        reference: str | None = None,
        criteria: str | None = None,
        standardize: bool = True,
        min_spread: float = 0.02,
        max_unscored: float = 0.2,
        window: int = 256,
        name: str = "verifier",
    ) -> None:
        """Say how scores become rewards.

        Args:
            verifier: The judge; to reach a training process of its own it must pickle.
            weight: Beta, >= 0: a number, (start, end) for a line over training, or a function of progress in [0, 1] (at
                module level if the reward must pickle). Weight 0 still judges and logs.
            group_size: `GRPOConfig.num_generations`, at least 2.
            eval_group_size: `GRPOConfig.num_generations_eval`; None takes the trainer's.
            reference: Dataset column with a reference answer, shown to the judge after the task. None cells show none.
            criteria: Dataset column with the criteria of each row, in any form `Verifier(criteria=...)` takes. None
                cells use the verifier's own.
            standardize: Divide by the std of the group's scores; False only subtracts their mean.
            min_spread: Groups whose scores have a sample std under this (score units, in [0, 1]) earn 0 in every scored
                row. Otherwise TRL would blow up .800 .801 .802 .803 to the size of a real difference. The default is
                under half a level of a scale of 20.
            max_unscored: Training stops once more than this share of `window` rows is unscored, in [0, 1].
            window: How many of the latest rows `max_unscored` looks at.
            name: Name in TRL's logs; give each VerifierReward of a trainer its own.

        Raises:
            ConfigError: An argument is out of its range.
        """
        check_int("group_size", group_size, least=2)  # a group of one has no mean to beat
        if eval_group_size is not None:
            check_int("eval_group_size", eval_group_size, least=1)
        check_number("min_spread", min_spread, least=0)
        check_text("name", name)
        self.__name__ = name
        self.verifier = verifier
        self.weight = checked_weight(weight)
        self.group_size = group_size
        self.eval_group_size = eval_group_size
        self.reference = reference
        self.criteria = criteria
        self.standardize = standardize
        self.min_spread = min_spread
        self._limit = UnscoredLimit(name, max_unscored, window)

    async def __call__(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        completion_ids: Sequence[Sequence[int]] | None = None,
        *,
        trainer_state: TrainerState | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Sequence[Any],
    ) -> list[float | None]:
        """Return the weighted, centred reward of each row, None for rows without a score.

        Raises:
            ConfigError: A column is missing, the rows do not fill groups, the group size is not the trainer's, or
                there is more than one process.
            BackendError: The verifier cannot serve, or too many rows of the window are unscored.
        """
        trainer = trainer_behind(log_metric)
        self._check_host(trainer)
        group_size = self._group_size_of(trainer)
        by_position(np.zeros(len(prompts)), group_size)  # refuse odd batches before paying for scores
        weight = weight_at(self.weight, trainer_state)

        answers = [text_of(completion) for completion in completions]
        candidates = [answer if answer.strip() else EMPTY_COMPLETION for answer in answers]
        scores = await self._judge(list(zip(self._tasks(prompts, columns), candidates, strict=True)), columns)
        self._limit.add(scores)

        scores_MG = by_position([math.nan if score.value is None else score.value for score in scores], group_size)
        if log_extra is not None:
            log_extra(f"{self.__name__}/score", [score.value for score in scores])
        if log_metric is not None:
            lengths_MG = by_position([len(row) for row in completion_ids or answers], group_size)
            for metric, value in metrics_of(scores, scores_MG, lengths_MG, self.min_spread).items():
                log_metric(f"{self.__name__}/{metric}", value)
            log_metric(f"{self.__name__}/weight", weight)
        rewards_MG = [centred(row_G, standardize=self.standardize, min_spread=self.min_spread) for row_G in scores_MG]
        return [None if math.isnan(reward) else weight * float(reward) for reward in np.concatenate(rewards_MG)]

    def _group_size_of(self, trainer: Trainer | None) -> int:
        """Return the group size of this call; without a trainer to ask (TRL's async one) it is a training call."""
        return self.group_size if trainer is None or trainer.model.training else trainer.num_generations_eval

    def _check_host(self, trainer: Trainer | None) -> None:
        processes = int(os.environ.get("WORLD_SIZE") or 1)
        if trainer is not None:
            processes = max(processes, trainer.accelerator.num_processes)
            check_size("group_size", self.group_size, "num_generations", trainer.num_generations)
            eval_group_size = self.eval_group_size or trainer.num_generations_eval
            check_size("eval_group_size", eval_group_size, "num_generations_eval", trainer.num_generations_eval)
            namesakes = list(trainer.reward_func_names).count(self.__name__)
            check(namesakes <= 1, f"{namesakes} reward functions are named {self.__name__!r}; give each its own name=")
        check(
            processes == 1,
            f"VerifierReward runs in 1 process, got {processes}: TRL splits groups over processes, and part of a group "
            "has another mean; launch 1 process",
        )

    def _tasks(self, prompts: Sequence[Text], columns: Mapping[str, Sequence[Any]]) -> list[str]:
        tasks = [text_of(prompt) for prompt in prompts]
        if self.reference is None:
            return tasks
        references = _column(columns, self.reference, "reference")
        return [
            task if reference is None else f"{task}\n\nReference answer:\n{reference}"
            for task, reference in zip(tasks, references, strict=True)
        ]

    async def _judge(self, pairs: list[tuple[str, Candidate]], columns: Mapping[str, Sequence[Any]]) -> list[Score]:
        """Score all pairs, with one concurrent call for each distinct value of the criteria column."""
        cells = [None] * len(pairs) if self.criteria is None else _column(columns, self.criteria, "criteria")
        rows_by_criteria: dict[str, list[int]] = {}
        for row, cell in enumerate(cells):
            rows_by_criteria.setdefault(repr(cell), []).append(row)
        answers = await asyncio.gather(
            *(self._score([pairs[row] for row in rows], cells[rows[0]]) for rows in rows_by_criteria.values())
        )
        by_row = {
            row: score
            for rows, scores in zip(rows_by_criteria.values(), answers, strict=True)
            for row, score in zip(rows, scores, strict=True)
        }
        return [by_row[row] for row in range(len(pairs))]

    async def _score(self, pairs: list[tuple[str, Candidate]], cell: Criteria | None) -> list[Score]:
        scores = await self.verifier.ascore_many(pairs, criteria=_criteria(cell))
        if len(scores) != len(pairs):
            raise BackendError(f"{self.__name__}: the verifier returned {len(scores)} scores for {len(pairs)} answers")
        return [_finite(score) for score in scores]


def _criteria(cell: Criteria | None) -> Criteria | None:
    """Return a cell of the criteria column without what Arrow adds: every name of the column, None where it is not."""
    if not isinstance(cell, Mapping):
        return cell
    return {name: question for name, question in cell.items() if question is not None} or None


def _column(columns: Mapping[str, Sequence[Any]], column: str, argument: str) -> Sequence[Any]:
    if column not in columns:
        raise ConfigError(f"{argument} column {column!r} is not in the dataset; it has {sorted(columns)}")
    return columns[column]


def _finite(score: Score) -> Score:
    """Return the score, unscored if its value is no finite number: one inf would silence its whole group in TRL."""
    if score.value is None or math.isfinite(score.value):
        return score
    return replace(score, value=None, status="error", reason=f"the verifier returned {score.value}")
