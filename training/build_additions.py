"""Build the models of the additions that ship: `python -m training.build_additions DATASET [STAGE ...]`."""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_reward import Verifier
from rl_reward.evaluation.agreement import auroc, pair_counts
from rl_reward.experiments.additions.policy import (
    MAX_NEW_TOKENS,
    POLICIES,
    character_tokenizer,
    fresh_model,
    load_policy,
)
from rl_reward.experiments.additions.standin import GRADES, STAND_INS, StandIn, encode, laid_out
from rl_reward.experiments.additions.task import DIGITS, Addition, Split, correct, noisy_working, problems, read_working
from rl_reward.experiments.generation import completions
from rl_reward.experiments.grpo import GrpoArm, GrpoConfig, run

LEARNING_RATE = 1e-3
PRETRAINING_STEPS, BATCH = {"additions": 600, "long-additions": 1000}, 128
LABELLED, STAND_IN_STEPS, STAND_IN_BATCH = 4500, {"additions": 800, "long-additions": 1600}, 64
TEMPERATURES = (1.0, 1.5, 2.0)
LATER_STAGES = {"middle": 50, "late": 150}


def build_policy(dataset: str) -> None:
    """Pretrain the policy on the workings of a pupil who misremembers."""
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    rng = np.random.default_rng(0)
    tokenizer: Any = character_tokenizer()
    model = fresh_model(tokenizer)
    pupils, steps = problems("pretraining", dataset), PRETRAINING_STEPS[dataset]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for step in range(steps):
        rows: list[int] = rng.integers(len(pupils), size=BATCH).tolist()
        drawn = [pupils[row] for row in rows]
        texts = [problem.prompt + noisy_working(problem, rng) + tokenizer.eos_token for problem in drawn]
        batch: Any = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        for row, problem in enumerate(drawn):
            labels[row, : len(problem.prompt)] = -100
        loss = model(batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
        descend(loss, optimizer, decay)
        if step % 100 == 99:
            print(f"pretraining step {step + 1}/{steps}: loss {loss.item():.3f}", flush=True)
    save(model, tokenizer, POLICIES[dataset])
    for name, temperature in (("greedy", None), ("sampled", 1.0)):
        workings = written(dataset, "evaluation", len(problems("evaluation", dataset)), temperature)
        right = [correct(working, Addition.parse(prompt).answer) for prompt, working in workings]
        print(f"exact answers, {name}: {np.mean(right):.1%}")


def build_stand_in(dataset: str) -> None:
    """Train the stand-in verifier on labelled workings of the policy."""
    torch.manual_seed(1)  # pyright: ignore[reportUnknownMemberType]
    rng = np.random.default_rng(1)
    tokenizer: Any = character_tokenizer(GRADES)
    model = fresh_model(tokenizer)
    workings = [
        working for temperature in TEMPERATURES for working in written(dataset, "verifier", LABELLED // 3, temperature)
    ]
    ids_NL, mask_NL = encode(tokenizer, [(laid_out(prompt, working), True) for prompt, working in workings])
    labels_NL = step_labels(tokenizer, ids_NL, workings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.1)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STAND_IN_STEPS[dataset])
    for step in range(STAND_IN_STEPS[dataset]):
        rows = torch.tensor(rng.choice(len(workings), size=STAND_IN_BATCH, replace=False))
        logits = model(input_ids=ids_NL[rows], attention_mask=mask_NL[rows]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels_NL[rows].flatten())
        descend(loss, optimizer, decay)
        if step % 100 == 99:
            print(f"stand-in step {step + 1}/{STAND_IN_STEPS[dataset]}: loss {loss.item():.3f}", flush=True)
    save(model, tokenizer, STAND_INS[dataset])


def written(
    dataset: str, split: Split, count: int, temperature: float | None, policy: Any = None
) -> list[tuple[str, str]]:
    """Return `count` (prompt, working) pairs of the policy on problems of `split`, from the first on and around."""
    members = problems(split, dataset)
    prompts = [members[i % len(members)].prompt for i in range(count)]
    model, tokenizer = load_policy(POLICIES[dataset]) if policy is None else policy
    workings = completions(model, tokenizer, prompts, max_new_tokens=MAX_NEW_TOKENS[dataset], temperature=temperature)
    return list(zip(prompts, workings, strict=True))


def step_labels(tokenizer: Any, ids_NL: torch.Tensor, workings: list[tuple[str, str]]) -> torch.Tensor:
    """Return the grade after each number, int [N, L]: how many of the numbers so far are right; -100 elsewhere."""
    grades = tokenizer.convert_tokens_to_ids(list(GRADES))
    ends = tokenizer.convert_tokens_to_ids([";", "#", tokenizer.eos_token])
    labels_NL = torch.full_like(ids_NL, -100)
    for (prompt, working), ids_L, labels_L in zip(workings, ids_NL, labels_NL, strict=True):
        numbers = read_working(working)
        right = Addition.parse(prompt).numbers
        if numbers is None or len(numbers) != len(right):
            labels_L[-1] = grades[0]
            continue
        places = torch.isin(ids_L, torch.tensor(ends)).nonzero().flatten()
        labels_L[places] = torch.tensor(grades)[torch.tensor(np.cumsum(np.equal(numbers, right)))]
    return labels_NL


def report(dataset: str) -> None:
    """Measure the stand-in on held-out workings of early, middle and late policies of a sparse GRPO run."""
    judge = Verifier(StandIn(STAND_INS[dataset]), max_concurrency=1024)
    stages = {"early": POLICIES[dataset]}
    for stage, steps in LATER_STAGES.items():
        stages[stage] = Path(tempfile.mkdtemp())
        config = GrpoConfig(
            dataset, dataset, max_completion_length=MAX_NEW_TOKENS[dataset], max_steps=steps, eval_every=steps
        )
        run(config, GrpoArm("sparse"), 100, stages[stage], lambda done, total: None)
    found = {stage: agreement(dataset, judge, load_policy(folder)) for stage, folder in stages.items()}
    described = {
        "labels": "each of the numbers of a working, right or wrong",
        "labelled_workings": LABELLED,
        "temperatures": TEMPERATURES,
        "later_stages": {stage: f"sparse GRPO, seed 100, step {steps}" for stage, steps in LATER_STAGES.items()},
        "held_out": found,
    }
    (STAND_INS[dataset] / "report.json").write_text(json.dumps(described, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def agreement(dataset: str, judge: Verifier, policy: Any) -> dict[str, float | int | None]:
    """Return how often the judge puts the right one of two workings of one evaluation problem first."""
    torch.manual_seed(2)  # pyright: ignore[reportUnknownMemberType]
    held_out = min(len(problems("evaluation", dataset)), 830)
    workings = written(dataset, "evaluation", 8 * held_out, 1.0, policy)
    scores_MG = np.array([score.value for score in judge.score_many(workings)], dtype=float).reshape(8, held_out).T
    right = [correct(working, Addition.parse(prompt).answer) for prompt, working in workings]
    right_MG = np.array(right).reshape(8, held_out).T
    pairs = [
        (scores_G[i], scores_G[j])
        for scores_G, right_G in zip(scores_MG, right_MG, strict=True)
        for i, j in itertools.product(np.flatnonzero(right_G), np.flatnonzero(~right_G))
    ]
    counts = pair_counts(*np.array(pairs).T)
    return {
        "right_answers": float(right_MG.mean()),
        "pairs": counts.scored,
        "pairwise_accuracy": counts.accuracy_ties_half,
        "auroc": auroc(scores_MG.ravel(), right_MG.ravel()),
        "unscored": int(np.isnan(scores_MG).sum()),
    }


def descend(loss: torch.Tensor, optimizer: torch.optim.Optimizer, decay: Any) -> None:
    """Take one step down `loss`."""
    optimizer.zero_grad()
    loss.backward()  # pyright: ignore[reportUnknownMemberType]
    optimizer.step()
    decay.step()


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write model and tokenizer in half the bytes."""
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


STAGES = {"policy": build_policy, "stand-in": build_stand_in, "report": report}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", choices=list(DIGITS), help="which additions")
    parser.add_argument("stages", nargs="*", choices=list(STAGES), help="which to build; all by default")
    torch.set_num_threads(1)
    options = parser.parse_args()
    for stage in options.stages or STAGES:
        STAGES[stage](options.dataset)
