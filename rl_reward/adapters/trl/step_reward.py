"""ProgressReward: a verifier reads every step of a completion; the trainer gets a reward and keeps the curves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from rl_reward._checks import check_int, check_number, check_text
from rl_reward.adapters.messages import Text, text_of
from rl_reward.adapters.schedule import TrainerState, Weight, checked_weight, weight_at
from rl_reward.adapters.trl.host import Trainer, check, check_host, group_size_now, trainer_behind
from rl_reward.adapters.trl.judging import EMPTY_COMPLETION
from rl_reward.adapters.trl.metrics import correctness
from rl_reward.adapters.trl.processes import TIMEOUT_S, judged_together, processes
from rl_reward.adapters.trl.rows import Batch, Correct, classes_of, column_of, task_of
from rl_reward.adapters.trl.turns import turn_spans
from rl_reward.adapters.trl.turns import turns_of as turns_of_messages
from rl_reward.adapters.unscored import UnscoredLimit
from rl_reward.errors import BackendError, ConfigError, Unscorable
from rl_reward.groups import Array, centred
from rl_reward.prompts import defuse
from rl_reward.scores import ProgressCurve, Score
from rl_reward.step_credit import GroupSpread, spread_of
from rl_reward.steps import NAMED, Decode, Splitting, WrittenStep, checked_splitting, steps_of, turns_of
from rl_reward.types import Usage

NOTHING_YET = "(nothing written yet)"
"""What the judge reads as the only step where it scores the prompt alone, rho_0."""

Episode = tuple[str, tuple[str, ...]]
"""A task and the texts of the steps taken."""


class AsyncTracker(Protocol):
    """What `ProgressReward` asks of a verifier."""

    async def atrack_many(self, episodes: Sequence[tuple[str, Sequence[str]]], /) -> Sequence[ProgressCurve]:
        """Return the causal curve of each (task, steps), in order, with the score of every step."""
        ...


@dataclass(frozen=True)
class Work:
    """One completion as it travels between processes."""

    task: str
    """What the judge is told: the prompt, and the reference answer where one is shown."""
    steps: tuple[str, ...]
    """What the judge reads of each step, [S]; empty where the completion could not be split."""
    reason: str = ""
    """Why it could not."""
    correctness: float | None = None
    """The class of the completion, higher is better; None: unknown."""

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """What is asked about it: the prompt alone, and the steps."""
        start = (self.task, (NOTHING_YET,))
        return (start, (self.task, self.steps)) if self.steps else (start,)


@dataclass(frozen=True, eq=False)
class JudgedSteps:
    """What judging one completion gave."""

    curve: Array
    """rho_0 (the prompt alone), ..., rho_S, float [S+1] in [0, 1]; NaN where not scored."""
    group: GroupSpread
    """What the curves of its group have in common."""
    reward: float | None
    """The centred reward of rho_S without its weight; None where rho_S is not scored."""
    usage: Usage
    """What it cost; what completions share is paid by the first."""


@dataclass(frozen=True, eq=False)
class JudgedBatch:
    """The latest batch of one process, row by row."""

    steps: tuple[tuple[WrittenStep, ...], ...]
    """The S steps of each completion and their tokens."""
    judged: tuple[JudgedSteps, ...]
    """Their curves."""


class ProgressReward:
    """An async reward function for `StepCreditGRPOTrainer`: judges every prefix of a completion, not only the whole.

    The verifier scores the prompt alone (rho_0, once per group) and the completion up to each step (rho_1, ..., rho_S),
    never what comes later. Equal prefixes inside a batch are asked once. The reward paid is that of `VerifierReward`
    on rho_S,

        r_i = weight * (rho_{i,S} - mean) / std over the scored rows of the group,

    None where rho_S could not be read; the trainer turns the curves into credit for steps. With weight 0 it does only
    that. How TRL treats the reward, see `VerifierReward`.

    Logged under `name/`: unscored_rate (of all prefixes), calls, tokens, seconds (how long the batch waited for its
    judge), start_mean (rho_0), score_mean (rho_S), steps (per completion) and weight; with `correct` also
    score_correct_gap, correct_agreement and score_minus_correct of rho_S, as in `VerifierReward`. The score and the
    curve of each row go to the completions table.
    """

    def __init__(
        self,
        verifier: AsyncTracker,
        *,
        steps: Splitting = "paragraphs",
        weight: Weight = 0.0,
        group_size: int,
        eval_group_size: int | None = None,
        reference: str | None = None,
        correct: Correct | None = None,
        standardize: bool = True,
        min_spread: float = 0.02,
        max_unscored: float = 0.2,
        window: int = 1024,
        timeout_s: float = TIMEOUT_S,
        name: str = "progress",
    ) -> None:
        """Say how completions are split and judged.

        Args:
            verifier: The judge; to reach a training process of its own it must pickle.
            steps: Where a step ends: "paragraphs" (blank lines), "numbered", "sentences", "turns" (of a conversation
                with tools), or a function of the text (see `rl_reward.steps.Splitter`), such as
                `separated_by(";", "#")`. At module level if the reward must pickle.
            weight: Of the reward, >= 0, as in `VerifierReward`; that of step credit stands in `StepCreditConfig`.
            group_size: `GRPOConfig.num_generations`, at least 2.
            eval_group_size: `GRPOConfig.num_generations_eval`; None takes the trainer's.
            reference: Dataset column with a reference answer, shown to the judge after the task. None cells show none.
            correct: How right each completion is, as in `VerifierReward`: logged, and pays nothing.
            standardize: Divide the reward by the std of the group's rho_S; False only subtracts their mean.
            min_spread: Groups whose rho_S have a sample std under this earn 0, in score units.
            max_unscored: Training stops once more than this share of `window` prefixes is unscored, in [0, 1].
            window: How many of the latest prefixes `max_unscored` looks at, on each process.
            timeout_s: Seconds one process waits for the others, > 0.
            name: Name in TRL's logs.

        Raises:
            ConfigError: An argument is out of its range.
        """
        check_int("group_size", group_size, least=2)
        if eval_group_size is not None:
            check_int("eval_group_size", eval_group_size, least=1)
        check_number("min_spread", min_spread, least=0)
        check_number("timeout_s", timeout_s, above=0)
        self.__name__ = check_text("name", name)
        self.verifier = verifier
        self.steps = checked_splitting(steps)
        self.weight = checked_weight(weight)
        self.group_size = group_size
        self.eval_group_size = eval_group_size
        self.reference = reference
        self.correct = correct
        self.standardize = standardize
        self.min_spread = min_spread
        self.timeout_s = timeout_s
        self._latest: JudgedBatch | None = None
        self._limit = UnscoredLimit(name, max_unscored, window)

    async def __call__(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        completion_ids: Sequence[Sequence[int]],
        *,
        trainer_state: TrainerState | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Sequence[Any],
    ) -> list[float | None]:
        """Return the weighted, centred reward of each row, None for rows without a final score.

        Raises:
            ConfigError: The trainer is not known or does not fit, a column is missing, the rows do not fill groups, or
                the splitter returned what are no steps of the text.
            BackendError: The verifier cannot serve, too many prefixes of the window are unscored, or another process
                failed.
        """
        procs = processes(self.__name__, timeout_s=self.timeout_s)  # before anything that could raise on one alone
        began = time.perf_counter()
        trainer = trainer_behind(log_metric)
        check(trainer is not None, f"{self.__name__} needs the tokenizer of its trainer; use StepCreditGRPOTrainer")
        assert trainer is not None
        check(
            self.weight != 0 or hasattr(trainer, "progress_reward"),
            f"{self.__name__} has weight 0 and its trainer gives no step credit, so nothing would be trained; "
            "use StepCreditGRPOTrainer or a weight above 0",
        )
        steps_B: list[tuple[WrittenStep, ...]] = []
        finals_MG: list[Array] = []
        classes_MG: list[Array] = []

        def rows() -> list[Work]:
            check_host(
                trainer,
                name=self.__name__,
                group_size=self.group_size,
                eval_group_size=self.eval_group_size,
                processes=procs.size,
            )
            references = column_of(columns, self.reference, "reference", len(prompts))
            classes = classes_of(self.correct, Batch(prompts, completions, completion_ids, None, columns))
            tasks = [task_of(text_of(prompt), reference) for prompt, reference in zip(prompts, references, strict=True)]
            masks = _tool_masks(trainer, completion_ids) if self.steps == "turns" else [()] * len(tasks)
            works: list[Work] = []
            for task, said, ids, mask, known in zip(tasks, completions, completion_ids, masks, classes, strict=True):
                work, steps = self._work(task, said, ids, mask, _decode_of(trainer))
                works.append(replace(work, correctness=known))
                steps_B.append(steps)
            return works

        async def judge(groups: Sequence[Sequence[Work]]) -> list[list[JudgedSteps]]:
            found = await self._judge(groups)
            finals_MG.extend(np.array([row.curve[-1] for row in group]) for group in found)
            classes_MG.extend(np.array([row.correctness for row in group], dtype=np.float64) for group in groups)
            return found

        judged = await judged_together(rows, group_size_now(trainer, self.group_size), judge, procs, cost=_cost)
        self._latest = JudgedBatch(tuple(steps_B), tuple(judged))
        weight = weight_at(self.weight, trainer_state)
        more = {"weight": weight, "seconds": time.perf_counter() - began}
        if finals_MG:  # of the groups that this process judged; a pair may lie on two
            more |= correctness(finals_MG, classes_MG)
        self._log(judged, more, procs.size, log_extra, log_metric)
        return [None if row.reward is None else weight * row.reward for row in judged]

    def take_latest(self) -> JudgedBatch:
        """Return the steps and curves of the latest batch of this process, once.

        Raises:
            ConfigError: There was no batch since the last time.
        """
        latest, self._latest = self._latest, None
        if latest is None:
            raise ConfigError(f"{self.__name__} has judged no batch since its last one was taken")
        return latest

    def _work(
        self, task: str, said: Text, ids: Sequence[int], mask: Sequence[int], decode: Decode
    ) -> tuple[Work, tuple[WrittenStep, ...]]:
        """Return a completion for the judge, and its steps with their tokens."""
        try:
            steps = self._split(said, ids, mask, decode)
        except Unscorable as failure:
            return Work(task, (), str(failure)), (WrittenStep("", 0, len(ids)),)
        seen = tuple(step.text if defuse(step.text).strip() else EMPTY_COMPLETION for step in steps)
        return Work(task, seen), steps

    def _split(self, said: Text, ids: Sequence[int], mask: Sequence[int], decode: Decode) -> tuple[WrittenStep, ...]:
        if callable(self.steps):
            return steps_of(ids, decode, self.steps)
        if self.steps != "turns":
            return steps_of(ids, decode, NAMED[self.steps])
        if (isinstance(said, str) or len(said) == 1) and len(turn_spans(mask)) != 1:
            # A rollout function: TRL hands over all that was said as one message.
            return turns_of(ids, decode, mask)
        return tuple(turns_of_messages(said, mask))

    async def _judge(self, groups: Sequence[Sequence[Work]]) -> list[list[JudgedSteps]]:
        """Return the judged rows of whole groups; what raises here is raised on all processes."""
        asked = list(dict.fromkeys(one for group in groups for row in group for one in row.episodes))
        curves = await self.verifier.atrack_many([(task, list(steps)) for task, steps in asked])
        if len(curves) != len(asked):
            raise BackendError(f"{self.__name__}: the verifier returned {len(curves)} curves for {len(asked)}")
        scores = {one: _scores_of(curve, len(one[1])) for one, curve in zip(asked, curves, strict=True)}
        unsplit = [_unreadable(row.reason) for group in groups for row in group if not row.steps]
        self._limit.add([*(score for episode in scores.values() for score in episode), *unsplit])
        unpaid = {one: curve.usage for one, curve in zip(asked, curves, strict=True)}
        return [self._judged(group, scores, unpaid) for group in groups]

    def _judged(
        self, group: Sequence[Work], scores: dict[Episode, list[Score]], unpaid: dict[Episode, Usage]
    ) -> list[JudgedSteps]:
        curves = [_curve([score for one in row.episodes for score in scores[one]], row) for row in group]
        common = spread_of(curves)
        finals_G = np.array([curve[-1] for curve in curves])
        rewards_G = centred(finals_G, standardize=self.standardize, min_spread=self.min_spread)
        return [
            JudgedSteps(
                curve,
                common,
                None if math.isnan(reward) else float(reward),
                sum((unpaid.pop(one, Usage()) for one in row.episodes), Usage()),
            )
            for row, curve, reward in zip(group, curves, rewards_G, strict=True)
        ]

    def _log(
        self,
        judged: Sequence[JudgedSteps],
        more: dict[str, float],
        n_processes: int,
        log_extra: Callable[[str, list[Any]], None] | None,
        log_metric: Callable[[str, float], None] | None,
    ) -> None:
        if log_extra is not None:
            log_extra(f"{self.__name__}/score", [_or_none(row.curve[-1]) for row in judged])
            log_extra(f"{self.__name__}/curve", [" ".join(f"{score:.3f}" for score in row.curve) for row in judged])
        if log_metric is not None:
            for metric, value in (_metrics(judged, n_processes) | more).items():
                if not math.isnan(value):
                    log_metric(f"{self.__name__}/{metric}", value)


def _cost(group: Sequence[Work]) -> int:
    """Return how many prefixes of a group are judged."""
    return sum(len(steps) for _, steps in {one for row in group for one in row.episodes})


def _decode_of(trainer: Trainer) -> Decode:
    processing: Any = trainer
    processing = processing.processing_class
    tokenizer = getattr(processing, "tokenizer", processing)  # a processor has one

    def decode(ids: Sequence[int]) -> str:
        return tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    return decode


def _tool_masks(trainer: Any, completion_ids: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """Return 1 where the policy wrote a token and 0 where a tool did, row by row."""
    check(hasattr(trainer, "tool_mask"), 'steps="turns" needs the tool mask; train with StepCreditGRPOTrainer')
    return trainer.tool_mask if trainer.tool_mask is not None else [[1] * len(ids) for ids in completion_ids]


def _scores_of(curve: ProgressCurve, n_steps: int) -> list[Score]:
    if sorted(curve.scores) != list(range(n_steps)):
        raise BackendError(f"the verifier scored steps {sorted(curve.scores)} of {n_steps}; every step must be scored")
    return [_finite(curve.scores[step]) for step in range(n_steps)]


def _finite(score: Score) -> Score:
    """Return the score, unscored if its value is no finite number."""
    if score.value is None or math.isfinite(score.value):
        return score
    return replace(score, value=None, status="error", reason=f"the verifier returned {score.value}")


def _unreadable(reason: str) -> Score:
    return Score(None, None, {}, {}, 0, "unreadable", reason)


def _curve(scores: Sequence[Score], row: Work) -> Array:
    values = [math.nan if score.value is None else score.value for score in scores]
    return np.array(values if row.steps else [*values, math.nan], dtype=np.float64)


def _metrics(judged: Sequence[JudgedSteps], n_processes: int) -> dict[str, float]:
    """Return what is logged of one call; NaN: undefined there.

    TRL logs the mean over processes; times their number, costs are those of all.
    """
    scores = np.concatenate([row.curve for row in judged])
    usage = sum((row.usage for row in judged), Usage())
    return {
        "unscored_rate": float(np.isnan(scores).mean()),
        "calls": float(usage.calls * n_processes),
        "tokens": float((usage.prompt_tokens + usage.completion_tokens) * n_processes),
        "start_mean": _mean([row.curve[0] for row in judged]),
        "score_mean": _mean([row.curve[-1] for row in judged]),
        "steps": _mean([row.curve.size - 1 for row in judged]),
    }


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
