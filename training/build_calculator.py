"""Build the policy of the calculator task that ships with the package: `python -m training.build_calculator`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_reward.experiments.calculator.policy import (
    POLICY,
    calculator_tokenizer,
    fresh_model,
    load_policy,
    prompt_of,
    rollouts,
)
from rl_reward.experiments.calculator.task import correct, demonstration, expressions

LEARNING_RATE = 3e-3
STEPS, BATCH, POOL = 800, 64, 8000


def build(folder: Path = POLICY) -> None:
    """Pretrain the policy on the rollouts of a pupil who errs by habit."""
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    rng = np.random.default_rng(0)
    tokenizer: Any = calculator_tokenizer()
    model: Any = fresh_model(tokenizer)
    talks = [prompt_of(one) + demonstration(one, rng) for one in expressions("pretraining", POOL)]
    texts = [tokenizer.apply_chat_template(talk, tokenize=False) for talk in talks]
    batch: Any = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
    ids_NL, mask_NL = batch["input_ids"], batch["attention_mask"]
    labels_NL = ids_NL.masked_fill(~said_by_policy(tokenizer, ids_NL), -100)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    for step in range(STEPS):
        rows = torch.tensor(rng.integers(POOL, size=BATCH))
        longest = int(mask_NL[rows].sum(1).max())
        kept = rows, slice(longest)
        loss = model(ids_NL[kept], attention_mask=mask_NL[kept], labels=labels_NL[kept]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        if step % 100 == 99:
            print(f"pretraining step {step + 1}/{STEPS}: loss {loss.item():.3f}", flush=True)
    model.to(torch.bfloat16).save_pretrained(folder)  # half the bytes
    tokenizer.save_pretrained(folder)


def said_by_policy(tokenizer: Any, ids_NL: torch.Tensor) -> torch.Tensor:
    """Return which tokens the policy writes, bool [N, L]: those after `<assistant>` up to the end of its turn."""
    begins, ends = tokenizer.convert_tokens_to_ids(["<assistant>", "<eos>"])
    begun_NL = (ids_NL == begins).int().cumsum(1) - (ids_NL == begins).int()
    ended_NL = (ids_NL == ends).int().cumsum(1) - (ids_NL == ends).int()
    return begun_NL > ended_NL


def report(folder: Path = POLICY) -> None:
    """Print how often the policy answers right, greedy and sampled."""
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    model, tokenizer = load_policy(folder)
    asked = expressions("evaluation", 400)
    for name, temperature in (("greedy", None), ("sampled", 1.0)):
        said = rollouts(model, tokenizer, asked, temperature=temperature)
        right = [correct(one, expression.answer) for one, expression in zip(said, asked, strict=True)]
        print(f"exact answers, {name}: {np.mean(right):.1%}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    build()
    report()
