"""StepCreditGRPOTrainer: TRL's GRPOTrainer with an advantage per token, from what each step did for the progress."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import numpy as np

from rl_reward._checks import check_number
from rl_reward.adapters.schedule import Weight, checked_weight, weight_at
from rl_reward.adapters.trl.host import check
from rl_reward.adapters.trl.step_reward import JudgedBatch, ProgressReward
from rl_reward.errors import ConfigError, MissingExtraError
from rl_reward.groups import Array
from rl_reward.step_credit import Form, credit

try:
    import torch
    from trl.trainer.grpo_trainer import GRPOTrainer
except ImportError as error:
    raise MissingExtraError("trl", "trl") from error

LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")
"""TRL's losses that were seen to move every token by the sign of its own advantage."""


@dataclass(frozen=True)
class StepCreditConfig:
    """How much the steps of a completion count, and how."""

    weight: Weight
    """w, >= 0: a number, (start, end) for a line over training, or a function of progress in [0, 1]."""
    form: Form = "difference"
    """What a step is credited with; see `rl_reward.step_credit`."""
    sigma_floor: float = 0.02
    """Groups whose completions differ less in what they gained (sample std, score units) get no credit. > 0."""

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ConfigError: A value is out of its range.
        """
        object.__setattr__(self, "weight", checked_weight(self.weight))
        check_number("sigma_floor", self.sigma_floor, above=0)
        if self.form not in get_args(Form):
            raise ConfigError(f"form must be one of {', '.join(get_args(Form))}, got {self.form!r}")
        if self.form == "sum":
            warnings.warn(
                'form="sum" pays for every step that is written: a run that stands still at .5 for 12 steps beats one '
                'that reaches 1.0 in 3; form="difference" does not',
                stacklevel=3,
            )


class StepCreditGRPOTrainer(GRPOTrainer):
    """A `GRPOTrainer` with an advantage per token: that of its completion, and what its step did for the progress.

        A_{i, token in s} = A_i + w * C_{i,s} / (sigma + 1e-4)

    A_i is TRL's own, from all its reward functions. C and sigma, the sample standard deviation of rho_S - rho_0 over
    the scored completions of the group, come from the curves of the one `ProgressReward` among `reward_funcs`
    (formulas: `rl_reward.step_credit`). Where sigma is under `sigma_floor`, a score is missing, or a token is masked,
    there is A_i alone. The 1e-4 is TRL's: with one step per completion `to_go` is GRPO on the verifier's score.

    TRL divides A_i by the group's std (`scale_rewards="group"`), so w weighs like against like; with "none" A_i keeps
    the units of the rewards and w does not. Groups over processes are whole: the judge sees them so.

    Logged under `step_credit/`: mean_abs (mean |C / sigma| over scored steps), credited (share of all steps with credit
    that is not 0), unscored (share of steps without a score), sigma (mean), flat (share of completions in groups under
    the floor) and weight. TRL's completions table shows A_i.
    """

    def __init__(self, *args: Any, step_credit: StepCreditConfig, **kwargs: Any) -> None:
        """Take what `GRPOTrainer` takes, and how steps are credited.

        Raises:
            ConfigError: There is not exactly one `ProgressReward` among the reward functions, or a setting erases or
                breaks step credit.
        """
        cast(Any, super()).__init__(*args, **kwargs)
        _refuse_settings(self.args)
        self.step_credit = step_credit
        self.progress_reward = _the_progress_reward(cast(Any, self).reward_funcs)
        self.tool_mask: Sequence[Sequence[int]] | None = None
        """Of the latest batch: 1 where the policy wrote a token, 0 where a tool did; None without tools."""

    def _generate(self, prompts: list[Any]) -> Any:
        generated = cast(Any, super())._generate(prompts)
        # Reward functions are not given the mask, and "turns" are split by it.
        self.tool_mask = generated[2]
        return generated

    def _generate_and_score_completions(self, inputs: list[Any]) -> dict[str, Any]:
        output: dict[str, Any] = cast(Any, super())._generate_and_score_completions(inputs)
        batch = self.progress_reward.take_latest()
        weight = weight_at(self.step_credit.weight, self.state)
        credits_B = [
            credit(row.curve, row.group, form=self.step_credit.form, floor=self.step_credit.sigma_floor)
            for row in batch.judged
        ]
        mask_BT = output["completion_mask"] * output.get("tool_mask", 1)
        advantages_B1 = output["advantages"].unsqueeze(1)
        credit_BT = advantages_B1.new_tensor(_on_tokens(batch, credits_B, mask_BT.shape[1]))
        output["advantages"] = advantages_B1 + weight * credit_BT * mask_BT
        _log(self, _sums(batch, credits_B, self.step_credit), weight)
        return output


def _on_tokens(batch: JudgedBatch, credits_B: Sequence[Array], width: int) -> Array:
    """Return the credit of the step of each token, float [B, T]; 0 without one."""
    credit_BT = np.zeros((len(credits_B), width))
    for row_T, steps, credits_S in zip(credit_BT, batch.steps, credits_B, strict=True):
        for step, value in zip(steps, np.nan_to_num(credits_S), strict=True):
            row_T[step.start : step.end] = value
    return credit_BT


def _sums(batch: JudgedBatch, credits_B: Sequence[Array], config: StepCreditConfig) -> list[float]:
    """Return what the metrics are made of: it adds up over processes."""
    credits = np.concatenate(credits_B)
    scored = credits[~np.isnan(credits)]
    sigmas = [row.group.sigma for row in batch.judged if not np.isnan(row.group.sigma)]
    flat = [row.group.is_flat(config.form, config.sigma_floor) for row in batch.judged]
    parts = (credits.size, scored.size, np.count_nonzero(scored), np.abs(scored).sum())
    return [float(part) for part in (*parts, len(sigmas), sum(sigmas), len(flat), sum(flat))]


def _log(trainer: Any, sums: Sequence[float], weight: float) -> None:
    """Add what `_sums` gave, over all processes, to TRL's metrics; what is undefined is left out."""
    local = torch.tensor(sums, device=trainer.accelerator.device)
    total: list[float] = trainer.accelerator.gather(local).view(-1, len(sums)).sum(dim=0).tolist()
    steps, scored, credited, size, sigmas, sigma, rows, flat = total
    shares = {
        "mean_abs": (size, scored),
        "credited": (credited, steps),
        "unscored": (steps - scored, steps),
        "sigma": (sigma, sigmas),
        "flat": (flat, rows),
        "weight": (weight, 1.0),
    }
    metrics = trainer._metrics["train" if trainer.model.training else "eval"]
    for metric, (part, whole) in shares.items():
        if whole:
            metrics[f"step_credit/{metric}"].append(part / whole)


def _the_progress_reward(reward_funcs: Sequence[Any]) -> ProgressReward:
    found = [one for one in reward_funcs if isinstance(one, ProgressReward)]
    check(len(found) == 1, f"step credit needs exactly 1 ProgressReward among reward_funcs, got {len(found)}")
    return found[0]


def _refuse_settings(args: Any) -> None:
    check(
        args.importance_sampling_level == "token",
        f"importance_sampling_level={args.importance_sampling_level!r} gives all tokens of a completion one ratio, "
        'which erases step credit; use "token"',
    )
    check(
        args.loss_type in LOSS_TYPES,
        f"loss_type={args.loss_type!r} was never seen to work with an advantage per token; "
        f"use one of {', '.join(LOSS_TYPES)}",
    )
    check(
        args.off_policy_mask_threshold is None,
        "off_policy_mask_threshold drops completions by the sign of their advantage; with one per token it would drop "
        "the steps that lowered progress and keep the others; leave it None",
    )
