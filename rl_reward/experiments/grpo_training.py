"""One GRPO run: TRL's own trainer with correctness, format and judge rewards, evaluated on held-out problems."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rl_reward.adapters.trl import Text, VerifierReward, text_of
from rl_reward.adapters.trl.rows import Correct
from rl_reward.adapters.trl.step_credit import StepCreditConfig, StepCreditGRPOTrainer
from rl_reward.adapters.trl.step_reward import ProgressReward
from rl_reward.backends.spec import fetched, is_model
from rl_reward.errors import ConfigError, MissingExtraError
from rl_reward.experiments.additions.task import DIGITS
from rl_reward.experiments.generation import completions
from rl_reward.experiments.grpo import GrpoArm, GrpoConfig
from rl_reward.experiments.grpo_judges import judge_of
from rl_reward.experiments.math_data import MathData, load_additions, load_dataset
from rl_reward.experiments.results import RunResult
from rl_reward.steps import separated_by

try:
    import datasets
    import torch
    import transformers
    from transformers import AutoTokenizer, PrinterCallback, TrainerCallback
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer
except ImportError as error:
    raise MissingExtraError("trl", "trl") from error


def train(config: GrpoConfig, arm: GrpoArm, seed: int, out: Path, tick: Callable[[int, int], None]) -> RunResult:
    """Train one policy and return its curve (see `rl_reward.experiments.grpo.run`)."""
    began = time.perf_counter()
    be_quiet()
    torch.set_num_threads(config.threads)
    data = load_data(config)
    trainer = build_trainer(config, arm, data, seed, out)
    examiner = Examiner(config, data, trainer.processing_class, tick)
    trainer.add_callback(examiner)
    trainer.train()  # pyright: ignore[reportUnknownMemberType]
    trainer.save_model(str(out))
    log = [row for row in trainer.state.log_history if "judge/calls" in row]
    is_judged = arm.judge != "none"
    return RunResult(
        arm=arm.name,
        seed=seed,
        steps=examiner.steps,
        success=examiner.accuracy,
        episodes=config.eval_problems,
        judge=arm.judge_name,
        judge_calls=round(sum(row["judge/calls"] for row in log)) if is_judged else 0,
        judge_seconds=sum(row["judge/seconds"] for row in log) if is_judged else 0.0,
        wall_seconds=time.perf_counter() - began,
        extra={
            "completions": [step * config.completions_per_step for step in examiner.steps],
            "train_accuracy": [row["rewards/correct/mean"] for row in log],
            "well_formed": [row["rewards/well_formed/mean"] for row in log],
            "groups_without_signal": [row["frac_reward_zero_std"] for row in log],
            "eval_seconds": examiner.seconds,
            **(means(log, "unscored_rate", "correct_agreement") if is_judged else {}),
        },
    )


def means(log: Sequence[Mapping[str, float]], *metrics: str) -> dict[str, float]:
    """Return the mean of each metric of the judge over the steps that logged it; one that never was is left out."""
    found = {metric: [row[key] for row in log if (key := f"judge/{metric}") in row] for metric in metrics}
    return {metric: sum(values) / len(values) for metric, values in found.items() if values}


def load_data(config: GrpoConfig) -> MathData:
    """Return the problems of `config.dataset`."""
    if config.dataset in DIGITS:
        return load_additions(config.dataset, config.eval_problems)
    return load_dataset(
        config.dataset,
        split=config.split,
        eval_split=config.eval_split,
        prompt=config.prompt_column,
        answer=config.answer_column,
        instruction=config.instruction,
        eval_problems=config.eval_problems,
        answer_form=config.answer_form,
    )


def build_trainer(config: GrpoConfig, arm: GrpoArm, data: MathData, seed: int, out: Path) -> GRPOTrainer:
    """Return the trainer of r_i = r_correct + r_format + beta * r_reasoning, before its first step."""

    def correct(completions: Sequence[Text], answer: Sequence[str], **columns: Any) -> list[float | None]:
        return [float(data.correct(text_of(c), a)) for c, a in zip(completions, answer, strict=True)]

    def well_formed(completions: Sequence[Text], **columns: Any) -> list[float | None]:
        return [float(data.well_formed(text_of(c))) for c in completions]

    model, tokenizer = policy_of(config)
    table: Any = datasets.Dataset
    rewards: list[Any] = [correct, well_formed, judged(config, arm, seed, correct)]
    trainer_class, options = credited(arm)
    trainer = trainer_class(
        model=model,
        processing_class=tokenizer,
        reward_funcs=rewards,
        args=arguments(config, seed, out),
        train_dataset=table.from_list([dict(row) for row in data.train]),
        **options,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def judged(config: GrpoConfig, arm: GrpoArm, seed: int, correct: Correct) -> VerifierReward | ProgressReward:
    """Return the judge's part of the reward; `correct` says how right each answer is."""
    asked: dict[str, Any] = {
        "weight": arm.weight,
        "group_size": config.group_size,
        "reference": "answer" if config.judge.reference and is_model(arm.judge) else None,
        "max_unscored": config.judge.max_unscored,
        "name": "judge",
    }
    if config.judge.min_spread is not None:
        asked["min_spread"] = config.judge.min_spread
    judge = judge_of(config, arm, seed)
    if arm.credit != "none":
        steps: Any = separated_by(";", "#") if config.dataset in DIGITS else config.steps
        return ProgressReward(judge, steps=steps, correct=correct, **asked)
    compared = {"mode": arm.mode, "pivots": config.judge.pivots, "order_within": arm.order_within}
    return VerifierReward(judge, correct=correct, **compared, **asked)


def credited(arm: GrpoArm) -> tuple[type[GRPOTrainer], dict[str, Any]]:
    """Return the trainer of an arm, and what it takes beside the arguments of GRPOTrainer."""
    if arm.credit == "none":
        return GRPOTrainer, {}
    return StepCreditGRPOTrainer, {"step_credit": StepCreditConfig(arm.credit_weight, arm.credit)}


def arguments(config: GrpoConfig, seed: int, out: Path) -> GRPOConfig:
    """Return TRL's own config; `config.trainer` wins.

    Raises:
        ConfigError: `config.trainer` has a key that TRL does not know.
    """
    if unknown := set(config.trainer) - {field.name for field in fields(GRPOConfig)}:
        raise ConfigError(f"trainer.{min(unknown)} is no argument of TRL's GRPOConfig; correct or remove it")
    ours: dict[str, Any] = {
        "output_dir": str(out),
        "seed": seed,
        "num_generations": config.group_size,
        "per_device_train_batch_size": config.completions_per_step // config.micro_batches,
        "gradient_accumulation_steps": config.micro_batches,
        "max_steps": config.max_steps,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "constant",
        "beta": config.kl,
        "temperature": config.temperature,
        "max_completion_length": config.max_completion_length,
        "chat_template_kwargs": dict(config.chat_template_kwargs),
        "scale_rewards": config.scale_rewards,
        "reward_weights": [1.0, config.format_weight, 1.0],
        "use_cpu": config.use_cpu,
        "bf16": False,
        "gradient_checkpointing": False,
        # Every step's metrics are kept for the result; nothing is printed.
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": not config.use_cpu,
    }
    return GRPOConfig(**{**ours, **config.trainer})


def policy_of(config: GrpoConfig) -> tuple[Any, Any]:
    """Return the model and its tokenizer; a name is left to TRL to load, which knows `model_init_kwargs`."""
    if config.model in DIGITS:
        from rl_reward.experiments.additions.policy import POLICIES, load_policy

        return load_policy(POLICIES[config.model])
    tokenizer_class: Any = AutoTokenizer
    try:
        name = str(fetched(config.model))
        return name, tokenizer_class.from_pretrained(name, padding_side="left")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot load model {config.model!r}: {' '.join(str(error).split())[:200]}") from error


class Examiner(TrainerCallback):
    """Answers the held-out problems greedily: before the first step, every `eval_every` steps and after the last."""

    def __init__(self, config: GrpoConfig, data: MathData, tokenizer: Any, tick: Callable[[int, int], None]) -> None:
        """Keep what is needed to ask and to check."""
        self.config, self.data, self.tokenizer, self.tick = config, data, tokenizer, tick
        self.steps: list[int] = []
        self.accuracy: list[float] = []
        self.seconds = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the point at step 0."""
        self._examine(0, kwargs["model"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report progress, and add a point to the curve where one is due."""
        self.tick(state.global_step, self.config.max_steps)
        if state.global_step % self.config.eval_every == 0 or state.global_step == self.config.max_steps:
            self._examine(state.global_step, kwargs["model"])

    def _examine(self, step: int, model: Any) -> None:
        began = time.perf_counter()
        self.steps.append(step)
        self.accuracy.append(accuracy(model, self.tokenizer, self.data, self.config))
        self.seconds += time.perf_counter() - began


def accuracy(model: Any, tokenizer: Any, data: MathData, config: GrpoConfig) -> float:
    """Return the share of held-out problems that `model` answers right, greedily."""
    training = model.training
    model.eval()
    right = 0
    for start in range(0, len(data.held_out), config.eval_batch):
        rows = data.held_out[start : start + config.eval_batch]
        prompts = [row["prompt"] for row in rows]
        written = completions(
            model,
            tokenizer,
            prompts,
            max_new_tokens=config.max_completion_length,
            chat_template_kwargs=config.chat_template_kwargs,
        )
        right += sum(data.correct(w, row["answer"]) for w, row in zip(written, rows, strict=True))
    model.train(training)
    return right / len(data.held_out)


def be_quiet() -> None:
    """Leave the terminal to the caller's progress bars."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers|trl")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
