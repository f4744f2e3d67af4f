"""GRPO with a tool and credit for every turn, top to bottom: one arm, one seed, its learning curve on the screen.

    python -m training.tools --arm outcome --seed 0
    python -m training.tools --arm turns --seed 0

A small policy works out expressions like ((17+5)*3)-8 with a calculator, one call a turn, then answers. The judge reads
the conversation up to each turn; it is simulated, it knows the truth. A few minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from rl_reward.adapters.trl.step_credit import StepCreditConfig, StepCreditGRPOTrainer
from rl_reward.adapters.trl.step_reward import ProgressReward
from rl_reward.errors import RlRewardError
from rl_reward.experiments.calculator.judge import ShuffledTurns, simulated_judge
from rl_reward.experiments.calculator.policy import load_policy, prompt_of, rollouts
from rl_reward.experiments.calculator.task import Calculator, correct, expressions
from rl_reward.experiments.grpo_training import be_quiet
from rl_reward.experiments.results import RunResult

ARMS = {
    "outcome": "outcome only",
    "turns": "outcome + turn credit (simulated judge)",
    "shuffled": "outcome + shuffled turn credit (simulated judge)",
}
"""What --arm takes, and the name in tables."""

GROUP_SIZE, PROMPTS_PER_STEP = 8, 2
LEARNING_RATE = 2e-4
TRAINING_PROBLEMS, HELD_OUT = 2000, 200


def main(arguments: list[str] | None = None) -> RunResult:
    """Train one policy and return its accuracy at every evaluation."""
    parser = argparse.ArgumentParser(description="GRPO on a calculator task, with or without credit for turns")
    parser.add_argument("--arm", required=True, choices=list(ARMS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40, help="optimizer steps")
    parser.add_argument("--eval-every", type=int, default=5, help="optimizer steps between evaluations")
    parser.add_argument("--learning-rate", type=float, default=LEARNING_RATE)
    parser.add_argument("--weight", type=float, default=1.0, help="of the turn credit")
    parser.add_argument("--noise", type=float, default=0.0, help="std of the simulated judge's error")
    parser.add_argument("--out", type=Path, help="write the result to this file")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # environment_factory is experimental in TRL, and says so
    be_quiet()
    torch.set_num_threads(1)

    # 1. Problems to train on, problems held out, and the policy. An expression is never in both.
    problems = expressions("grpo", TRAINING_PROBLEMS, seed=options.seed)
    rows = [{"prompt": prompt_of(problem), "answer": problem.answer} for problem in problems]
    held_out = expressions("evaluation", HELD_OUT)
    model, tokenizer = load_policy()

    # 2. The outcome: does the conversation end with the exact answer?
    def solved(completions: Sequence[Any], answer: Sequence[str], **columns: Any) -> list[float | None]:
        return [float(correct(c, a)) for c, a in zip(completions, answer, strict=True)]

    # 3. The judge, whose scores of a conversation up to each turn become credit for that turn. As a reward it weighs
    # nothing here: what is compared is credit.
    judge = simulated_judge(noise=options.noise, seed=options.seed)
    judged = ProgressReward(
        ShuffledTurns(judge, options.seed) if options.arm == "shuffled" else judge,
        steps="turns",
        weight=0.0,
        group_size=GROUP_SIZE,
        name="judge",
    )

    # 4. The trainer. `environment_factory` gives every rollout a calculator of its own, its methods are the tools.
    table: Any = Dataset
    config: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(),
        "seed": options.seed,
        "num_generations": GROUP_SIZE,
        "per_device_train_batch_size": GROUP_SIZE * PROMPTS_PER_STEP,
        "max_steps": options.steps,
        "learning_rate": options.learning_rate,
        "lr_scheduler_type": "constant",
        "beta": 0.0,
        "temperature": 1.0,
        "max_completion_length": 96,
        "max_tool_calling_iterations": 3,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    same: dict[str, Any] = {
        "model": model,
        "processing_class": tokenizer,
        "args": GRPOConfig(**config),
        "train_dataset": table.from_list(rows),
        "environment_factory": Calculator,
    }
    if options.arm == "outcome":
        trainer = GRPOTrainer(reward_funcs=[solved], **same)
    else:
        credit = StepCreditConfig(weight=options.weight)
        trainer = StepCreditGRPOTrainer(reward_funcs=[solved, judged], step_credit=credit, **same)
    trainer.remove_callback(PrinterCallback)

    # 5. Evaluation: the held-out expressions, greedy, with the calculator. Only the exact answer counts.
    steps: list[int] = []
    accuracy: list[float] = []
    evaluating = 0.0

    class Examiner(TrainerCallback):
        """Measures before the first step, every `eval_every` steps and after the last."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.measure(state.global_step, kwargs["model"])

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % options.eval_every == 0 or state.global_step == options.steps:
                self.measure(state.global_step, kwargs["model"])

        def measure(self, step: int, policy: Any) -> None:
            nonlocal evaluating
            start = time.perf_counter()
            said = rollouts(policy.eval(), tokenizer, held_out)
            policy.train()
            steps.append(step)
            accuracy.append(sum(correct(s, p.answer) for s, p in zip(said, held_out, strict=True)) / HELD_OUT)
            evaluating += time.perf_counter() - start
            print(f"{step:>5} steps   exact answers {accuracy[-1]:.3f}", flush=True)

    trainer.add_callback(Examiner())

    # 6. Training.
    print(f"{ARMS[options.arm]}, seed {options.seed}")
    trainer.train()  # pyright: ignore[reportUnknownMemberType]
    log = [row for row in trainer.state.log_history if "rewards/solved/mean" in row]
    seconds = time.perf_counter() - began
    result = RunResult(
        arm=ARMS[options.arm],
        seed=options.seed,
        steps=steps,
        success=accuracy,
        episodes=HELD_OUT,
        judge="none" if options.arm == "outcome" else judge.backend.name,
        judge_calls=round(sum(row.get("judge/calls", 0) for row in log)),
        judge_seconds=sum(row.get("judge/seconds", 0.0) for row in log),
        wall_seconds=seconds,
        extra={
            "train_accuracy": [row["rewards/solved/mean"] for row in log],
            "calls_per_rollout": [row["tools/call_frequency"] for row in log],
            "failed_calls": [row["tools/failure_frequency"] for row in log],
            "groups_without_signal": [row["frac_reward_zero_std"] for row in log],
            "turns_without_credit": [row["step_credit/unscored"] for row in log if "step_credit/unscored" in row],
            "eval_seconds": evaluating,
            "settings": {key: value for key, value in vars(options).items() if key != "out"},
        },
    )
    print(f"{options.steps / (seconds - evaluating):.2f} steps/s")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(asdict(result), indent=1) + "\n")
    return result


if __name__ == "__main__":
    try:
        main()
    except RlRewardError as error:
        sys.exit(f"error: {error}")
