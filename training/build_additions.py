"""Build the models of the additions that ship with the package: `python -m training.build_additions [policy ...]`."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

from rl_reward.experiments.additions.policy import POLICY, character_tokenizer, fresh_model, load_policy, write_workings
from rl_reward.experiments.additions.task import correct, noisy_working, problems

PRETRAINING_STEPS, BATCH, LEARNING_RATE = 600, 128, 1e-3


def build_policy() -> None:
    """Pretrain the policy on the workings of a pupil who misremembers; it ends with about one right answer in four."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    tokenizer = character_tokenizer()
    model = fresh_model(tokenizer)
    pupils = problems("pretraining")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, PRETRAINING_STEPS)
    for step in range(PRETRAINING_STEPS):
        drawn = [pupils[i] for i in rng.integers(len(pupils), size=BATCH)]
        texts = [problem.prompt + noisy_working(problem, rng) + tokenizer.eos_token for problem in drawn]
        batch: Any = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt", return_token_type_ids=False)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        labels[:, : len(drawn[0].prompt)] = -100
        loss = model(**batch, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        if step % 100 == 99:
            print(f"pretraining step {step + 1}/{PRETRAINING_STEPS}: loss {loss.item():.3f}", flush=True)
    model.to(torch.bfloat16).save_pretrained(POLICY)
    tokenizer.save_pretrained(POLICY)


def exact_answers(temperature: float | None = None) -> float:
    """Return the share of evaluation problems the shipped policy answers right."""
    model, tokenizer = load_policy()
    held_out = problems("evaluation")
    workings = write_workings(model, tokenizer, [problem.prompt for problem in held_out], temperature)
    return float(np.mean([correct(w, problem.answer) for w, problem in zip(workings, held_out, strict=True)]))


STAGES = {"policy": build_policy}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="*", choices=list(STAGES), help="which to build; all by default")
    torch.set_num_threads(1)
    for stage in parser.parse_args().stages or STAGES:
        STAGES[stage]()
    print(f"exact answers: {exact_answers():.1%} greedy, {exact_answers(1.0):.1%} sampled")
