"""VerifierReward: a verifier's scores as a reward function of TRL's GRPOTrainer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, get_args

from rl_reward._checks import check_int, check_number, check_text
from rl_reward.adapters.messages import Text
from rl_reward.adapters.schedule import TrainerState, Weight, checked_weight, weight_at
from rl_reward.adapters.trl.gates import Gates, clipped_rows
from rl_reward.adapters.trl.host import check, check_host, group_size_now, trainer_behind
from rl_reward.adapters.trl.judging import AsyncRanker, AsyncVerifier, GroupJudge, Mode, Row, Verdict, distinct
from rl_reward.adapters.trl.metrics import metrics_of
from rl_reward.adapters.trl.paying import Judged, OrderWithin, Payout
from rl_reward.adapters.trl.processes import TIMEOUT_S, judged_together, processes
from rl_reward.adapters.trl.rows import Batch, Correct, RowReader
from rl_reward.adapters.unscored import UnscoredLimit

MIN_SPREAD = {"pointwise": 0.02, "tournament": 0.005, "anchored": 0.005}
"""Default of `min_spread`: under half a level of a scale of 20. A difference d of two scores is a preference of about
d / 4 at the verifier's default preference_temperature of 1."""


class VerifierReward:
    """An async reward function for `GRPOTrainer(reward_funcs=[correct, format, VerifierReward(...)])`.

    r_i = weight * (R_i - mean R) / std R over the scored rows of the group, the beta * r_reasoning term of the paper's
    on-policy reward. Rows the verifier could not score return None. TRL sums its reward functions with nansum, so a
    None counts as 0 there; because these rewards are centred, 0 is the group's mean and None is neutral.

    R depends on `mode`:

    - "pointwise": the score of each answer by itself.
    - "tournament": its mean preference w/c in a Probabilistic Pivot Tournament of the group (paper Sec. 5, Eq. 7.2).
      A group of N different answers takes N + k(N - k) + k(k - 1)/2 comparisons, k = `pivots`.
    - "anchored": its mean preference over a pool of M reference answers, in both slot orders: 2 N M comparisons.

    Equal answers of a group (same task, answer and criteria) are judged once, enter a tournament once, and share the
    score. Each of them counts in the mean and the spread of the group.

    Where `weight` (beta) bites depends on `GRPOConfig(scale_rewards=...)`: TRL divides the *sum* of all rewards.

    - "group" (TRL's default): by its std inside the group. Beta is the share of the verifier beside the other rewards
      of that group. In a group where only the verifier differs, all right or all wrong, it cancels: beta .01 and beta
      10 train alike, as long as beta times the spread is well above the 1e-4 that TRL adds to the std. There
      `min_spread` and `min_spread_se` are the only brakes.
    - "batch": by one std for the whole batch. Beta also says how much groups where only the verifier differs count
      against groups where correctness differs. It cancels if no other reward differs anywhere in the batch.
    - "none": not at all. Beta is the size of the verifier's advantage, everywhere.

    With `multi_objective_aggregation="normalize_then_sum"` TRL rescales each reward function by itself and beta always
    cancels; set `GRPOConfig(reward_weights=...)` there.

    Whom the judge may order is `order_within`, which needs `correct`:

    - "group" (default): everyone. A judge that is charmed by wrong answers pays them more than right ones.
    - "correctness": answers of the same class. Mean and spread are those inside each class of the group, so the
      verifier moves no class mean; and its rewards are kept under half the smallest distance of two classes of the
      group. Beside a reward that pays the class itself, with at least this one's weight in `reward_weights`, no answer
      overtakes one of a higher class, however large beta is. It is no protection in a group of one class: where all are
      wrong the judge alone says which wrong answer is learned.
    - "right": as "correctness", but wrong answers (class 0 or less) earn 0. No wrong answer is ever paid, so a judge
      that can be charmed does no harm through them; groups that are all wrong teach nothing.

    What the last two do to TRL's rescaling: with "group" the std of a mixed group holds what the verifier adds inside
    the classes, so the distance between right and wrong is divided by sqrt(V_between + V_within) and shrinks a little
    as beta grows; a group of one class is rescaled as above, to full strength. "none" or "batch" keeps that small.

    Groups are told apart by position, never by prompt text. A group that TRL splits over processes is judged whole, by
    one of them (`rl_reward.adapters.trl.processes`).

    Logged through `log_metric` under `name/`, of whole groups, averaged over the processes: coverage (pointwise),
    unscored_rate, score_mean, score_std, flat_groups (share of groups under the spread), score_length_correlation
    (inside groups; near 1 the policy is being paid for length), duplicate_rate, gated_rate and what the gates see, stop
    it or not: empty_rate, clipped_rate, copied_rate, repeated_rate. With `correct`: score_correct_gap (mean score of
    the higher class minus that of the lower inside mixed groups; it falls when the policy learns to charm the judge),
    correct_agreement (share of such pairs that the judge orders right, ties one half) and score_minus_correct (mean
    score minus mean class, for pointwise scores and classes in [0, 1]; it rises when scores improve and answers do
    not). Scores of rows that a gate stopped are in none of these. weight is the same everywhere. calls and tokens are
    sums over the batch, seconds is how long the batch waited for its judge. The score of each row goes to the
    completions table as `name/score`.
    """

    def __init__(
        self,
        verifier: AsyncVerifier | AsyncRanker,
        *,
        weight: Weight,
        group_size: int,
        eval_group_size: int | None = None,
        mode: Mode = "pointwise",
        pivots: int = 2,
        references: str | None = None,
        reference: str | None = None,
        criteria: str | None = None,
        standardize: bool = True,
        min_spread: float | None = None,
        min_spread_se: float = 0.0,
        correct: Correct | None = None,
        order_within: OrderWithin = "group",
        gates: Gates | None = None,
        max_unscored: float = 0.2,
        window: int = 256,
        timeout_s: float = TIMEOUT_S,
        name: str = "verifier",
    ) -> None:
        """Say how scores become rewards.

        Args:
            verifier: The judge; to reach a training process of its own it must pickle.
            weight: Beta, >= 0: a number, (start, end) for a line over training, or a function of progress in [0, 1] (at
                module level if the reward must pickle). Weight 0 still judges and logs.
            group_size: `GRPOConfig.num_generations`, at least 2.
            eval_group_size: `GRPOConfig.num_generations_eval`; None takes the trainer's.
            mode: "pointwise", "tournament" or "anchored".
            pivots: k of a tournament, >= 0; 0 is the ring alone, more than there are answers is all of them.
            references: Dataset column with the pool of mode "anchored": a text or a list of texts in each row.
            reference: Dataset column with a reference answer, shown to the judge after the task. None cells show none.
            criteria: Dataset column with the criteria of each row, in any form `Verifier(criteria=...)` takes. None
                cells use the verifier's own.
            standardize: Divide by the std of the group's scores; False only subtracts their mean.
            min_spread: Groups whose scores have a sample std under this (units of R, in [0, 1]) earn 0 in every scored
                row. Otherwise TRL would blow up .800 .801 .802 .803 to the size of a real difference. None: 0.02 for
                "pointwise", 0.005 for the others, whose R is a preference.
            min_spread_se: The std must also reach this many standard errors, taken as their root mean square over the
                rows of the group, >= 0. A score has a standard error with two repeats that differ or more, a
                preference once the comparisons outnumber the answers and references (never with pivots=0). A group
                without any goes by `min_spread` alone.
            correct: How right each answer is, a number or bool, higher is better, None unknown: a dataset column, or a
                plain function that takes what a TRL reward function takes. Logged, and used by `order_within`; it pays
                nothing by itself.
            order_within: "group", or whom else the judge may order: "correctness", answers of the same class; "right",
                right answers (class above 0) of the same class. In both a row of unknown class earns 0.
            gates: Which answers never reach the judge; None stops none (`Gates` says why).
            max_unscored: Training stops once more than this share of `window` judged rows is unscored, in [0, 1]. With
                several processes each watches the rows it judges.
            window: How many of the latest rows `max_unscored` looks at.
            timeout_s: With several processes: most seconds to wait for the slowest, > 0; the judge has nine tenths.
            name: Name in TRL's logs; give each VerifierReward of a trainer its own.

        Raises:
            ConfigError: An argument is out of its range, or two do not belong together.
        """
        check_int("group_size", group_size, least=2)  # a group of one has no mean to beat
        if eval_group_size is not None:
            check_int("eval_group_size", eval_group_size, least=1)
        check_int("pivots", pivots, least=0)
        check_number("min_spread_se", min_spread_se, least=0)
        check_number("timeout_s", timeout_s, above=0)
        check_text("name", name)
        _check_choice("mode", mode, Mode)
        _check_choice("order_within", order_within, OrderWithin)
        check(
            mode != "anchored" or references is not None, 'mode="anchored" needs references=, a column of the dataset'
        )
        check(mode == "anchored" or references is None, f'references= is for mode="anchored", got mode={mode!r}')
        check(
            order_within == "group" or correct is not None,
            f"order_within={order_within!r} needs correct=, a column of the dataset or a function",
        )
        gates = Gates() if gates is None else gates
        check(isinstance(gates, Gates), f'gates must be Gates, got {gates!r:.80}; write Gates(stop=("empty",))')
        asked = "ascore_many" if mode == "pointwise" else "arank_many"
        check(hasattr(verifier, asked), f"mode={mode!r} needs a verifier with {asked}, got {type(verifier).__name__}")
        self.__name__ = name
        self.verifier = verifier
        self.weight = checked_weight(weight)
        self.group_size = group_size
        self.eval_group_size = eval_group_size
        self._reader = RowReader(reference, criteria, references, correct, gates)
        self._judge = GroupJudge(verifier, mode, pivots, gates.earns)
        spread = check_number("min_spread", MIN_SPREAD[mode] if min_spread is None else min_spread, least=0)
        self._payout = Payout(standardize, spread, min_spread_se, order_within)
        self._timeout_s = timeout_s
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
            ConfigError: A column is missing, the rows do not fill groups, or the trainer has another group size or
                another reward of this name.
            BackendError: The verifier cannot serve, too many rows of the window are unscored, or another process is
                gone. An error on one process is raised on all.
        """
        procs = processes(self.__name__, timeout_s=self._timeout_s)  # first: it waits for all processes
        began = time.perf_counter()
        trainer = trainer_behind(log_metric)
        groups: list[Judged] = []

        def rows() -> list[Row]:
            check_host(
                trainer,
                name=self.__name__,
                group_size=self.group_size,
                eval_group_size=self.eval_group_size,
                processes=procs.size,
            )
            clipped = clipped_rows(completion_ids, trainer)
            return self._reader.rows(Batch(prompts, completions, completion_ids, clipped, columns))

        async def judge(asked: Sequence[Sequence[Row]]) -> list[list[Verdict]]:
            judged = [Judged(*group) for group in zip(asked, await self._judge(asked), strict=True)]
            self._limit.add([verdict for group in judged for verdict in group.verdicts if verdict.status != "gated"])
            groups.extend(judged)
            return [self._payout.paid(group, weight) for group in judged]

        weight = weight_at(self.weight, trainer_state)
        verdicts = await judged_together(rows, group_size_now(trainer, self.group_size), judge, procs, cost=_cost)
        if log_extra is not None:
            log_extra(f"{self.__name__}/score", [verdict.value for verdict in verdicts])
        if log_metric is not None:
            waited = {"weight": weight, "seconds": time.perf_counter() - began}
            for metric, value in (metrics_of(groups, self._payout, procs.size) | waited).items():
                log_metric(f"{self.__name__}/{metric}", value)
        return [verdict.reward for verdict in verdicts]


def _cost(group: Sequence[Row]) -> int:
    return len(distinct(group))


def _check_choice(argument: str, given: object, choices: Any) -> None:
    known = get_args(choices)
    check(given in known, f"{argument} must be one of {', '.join(known)}, got {given!r}")
