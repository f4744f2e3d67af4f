"""GRPO with dense rewards, top to bottom: one arm, one seed, its learning curve on the screen.

    python -m training.grpo configs/grpo/additions.yaml --arm oracle --seed 0

`rl-reward compare` runs the same steps for all arms and seeds. About a minute on one core.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig

from rl_reward.adapters.trl import text_of
from rl_reward.errors import RlRewardError
from rl_reward.experiments.config import arm_called, load
from rl_reward.experiments.grpo_training import accuracy, be_quiet, credited, judged, load_data, policy_of


def main(arguments: list[str] | None = None) -> list[float]:
    """Train one policy and return its accuracy at every evaluation."""
    parser = argparse.ArgumentParser(description="GRPO on math problems with one reward")
    parser.add_argument("config", help="YAML file with a GRPO experiment")
    parser.add_argument("--arm", required=True, help="name of an arm, or how it begins")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="optimizer steps, instead of the file's")
    parser.add_argument("--out", help="write the trained policy to this folder")
    options = parser.parse_args(arguments)
    be_quiet()

    # 1. The experiment: what all arms share, and the arm.
    experiment = next(one for one in load(options.config) if one.kind == "grpo")
    config, arm = experiment.settings, arm_called(options.arm, experiment)
    max_steps = options.steps or config.max_steps
    torch.set_num_threads(config.threads)

    # 2. Problems to train on, problems held out, and the policy.
    data = load_data(config)
    model, tokenizer = policy_of(config)

    # 3. The rewards. The first two can be checked, and stay apart from the judge's.
    def correct(completions: Sequence[Any], answer: Sequence[str], **columns: Any) -> list[float | None]:
        return [float(data.correct(text_of(c), a)) for c, a in zip(completions, answer, strict=True)]

    def well_formed(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        return [float(data.well_formed(text_of(c))) for c in completions]

    # The judge's part: scores of whole answers (VerifierReward), or of every step (ProgressReward) where steps are
    # credited, weight * standardised in the group.
    verifier = judged(config, arm, options.seed, correct)

    # 4. The trainer: TRL's own, or the one that adds what each step did to the advantage of its tokens.
    trainer_class, step_credit = credited(arm)
    table: Any = Dataset
    rewards: list[Any] = [correct, well_formed, verifier]
    trl_config: dict[str, Any] = {
        "output_dir": options.out or tempfile.mkdtemp(),
        "seed": options.seed,
        "num_generations": config.group_size,
        "per_device_train_batch_size": config.completions_per_step // config.micro_batches,
        "gradient_accumulation_steps": config.micro_batches,
        "max_steps": max_steps,
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
        "dataloader_pin_memory": not config.use_cpu,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        **config.trainer,
    }
    trainer = trainer_class(
        model=model,
        processing_class=tokenizer,
        reward_funcs=rewards,
        args=GRPOConfig(**trl_config),
        train_dataset=table.from_list([dict(row) for row in data.train]),
        **step_credit,
    )
    trainer.remove_callback(PrinterCallback)

    # 5. Evaluation: the held-out problems, answered greedily. Only the exact answer counts.
    curve: list[float] = []

    class Examiner(TrainerCallback):
        """Measures before the first step, every `eval_every` steps and after the last."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.measure(state.global_step, kwargs["model"])

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % config.eval_every == 0 or state.global_step == max_steps:
                self.measure(state.global_step, kwargs["model"])

        def measure(self, step: int, policy: Any) -> None:
            curve.append(accuracy(policy, tokenizer, data, config))
            print(f"{step:>5} steps   exact answers {curve[-1]:.3f}", flush=True)

    trainer.add_callback(Examiner())

    # 6. Training.
    print(f"{experiment.name}: {arm.name}, seed {options.seed}, judge: {arm.judge_name}")
    trainer.train()  # pyright: ignore[reportUnknownMemberType]
    log = [row for row in trainer.state.log_history if "judge/calls" in row]
    calls, seconds = (sum(row[f"judge/{cost}"] for row in log) for cost in ("calls", "seconds"))
    print(f"judge: {calls:.0f} calls, {seconds:.1f} s")
    if options.out:
        trainer.save_model(options.out)
    return curve


if __name__ == "__main__":
    try:
        main()
    except RlRewardError as error:
        sys.exit(f"error: {error}")
