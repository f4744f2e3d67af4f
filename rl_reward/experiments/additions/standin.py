"""The stand-in verifier of the additions: trained on labels, so its results are never called a verifier's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_reward.backends.base import Reply, Request, Token
from rl_reward.errors import MissingExtraError, Unscorable
from rl_reward.experiments.additions.policy import load_policy
from rl_reward.experiments.additions.task import ALPHABET, Addition, read_working
from rl_reward.scale import ScoreScale
from rl_reward.types import Usage

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "trl") from error

STAND_IN = Path(__file__).parent / "standin"
"""The folder of the trained stand-in, with `report.json`: how often it is right."""

GRADES = "ABCD"
"""What it writes: A none, B one, C two, D all three numbers of the working are right."""

MAX_CHARACTERS = 48
"""The longest text it reads."""


class StandIn:
    """A small model of the policy's kind, trained on workings whose three numbers were labelled right or wrong.

    At the end of a working it puts a probability on each of four grades: how many of the numbers are right. They are
    reported as four levels in equal steps from the first to the last, so the expectation over the levels is the
    expected fraction of right numbers. Concurrent requests share one forward pass.
    """

    name = "stand-in verifier"
    sees_data = False

    def __init__(self, folder: Path = STAND_IN) -> None:
        """Load the model in `folder`."""
        self.model, self.tokenizer = load_policy(folder)
        self.model.eval()
        self._waiting: list[tuple[str, asyncio.Future[tuple[list[float], float]]]] = []

    async def reply(self, request: Request) -> Reply:
        """Answer with the distribution over the levels at the score tag.

        Raises:
            ConfigError: The task is no addition.
            Unscorable: The working is longer than what it reads.
        """
        text = laid_out(request.task, request.text)
        answer: asyncio.Future[tuple[list[float], float]] = asyncio.get_running_loop().create_future()
        self._waiting.append((text, answer))
        if len(self._waiting) == 1:
            # Runs after the requests that are ready now, so they are all in the batch.
            asyncio.get_running_loop().call_soon(self._answer_all)
        logprobs, seconds = await answer
        usage = Usage(calls=1, prompt_tokens=len(text) + 1, completion_tokens=1, seconds=seconds)
        (tag,) = request.tags
        tokens = (Token(f"<{tag}>"), _level_token(request.scale, logprobs), Token(f"</{tag}>"))
        return Reply(tokens, "".join(token.text for token in tokens), usage=usage)

    async def aclose(self) -> None:
        """Nothing to free."""

    def _answer_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        began = time.perf_counter()
        logprobs_N4 = grade_logprobs(self.model, self.tokenizer, [text for text, _ in waiting])
        seconds = (time.perf_counter() - began) / len(waiting)
        for (_, answer), row in zip(waiting, logprobs_N4, strict=True):
            if not answer.done():  # a deadline may have cancelled it
                answer.set_result((row, seconds))


def laid_out(task: str, working: str) -> str:
    """Return what the stand-in reads: each sum beside its digits, "4+7=11;7+4=12#121" for "74+47=" and "11;12#121".

    Nothing is worked out here. What is no working comes after the task as it is.

    Raises:
        ConfigError: `task` is no addition.
        Unscorable: The text is longer than 48 characters.
    """
    numbers = read_working(working)
    if numbers is None:
        text = task + working
    else:
        ones, tens, answer = numbers
        problem = Addition.parse(task)
        a, b = divmod(problem.a, 10), divmod(problem.b, 10)
        text = f"{a[1]}+{b[1]}={ones};{a[0]}+{b[0]}={tens}#{answer}"
    if len(text) > MAX_CHARACTERS:
        raise Unscorable(f"the stand-in reads at most {MAX_CHARACTERS} characters, got {len(text)}")
    return text


def grade_logprobs(model: Any, tokenizer: Any, texts: Sequence[str]) -> list[list[float]]:
    """Return log P(grade) at the end of each text, [N][4], over the whole vocabulary."""
    ids_NL, mask_NL = encode(tokenizer, texts)
    with torch.inference_mode():
        logits_NV = model(input_ids=ids_NL, attention_mask=mask_NL, logits_to_keep=1).logits[:, -1]
    return logits_NV.log_softmax(-1)[:, tokenizer.convert_tokens_to_ids(list(GRADES))].tolist()


def encode(tokenizer: Any, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and attention mask, int [N, L]: padding, the characters of each text, the end token.

    Characters are looked up one by one: text that spells a special token or a grade is unknown characters here.
    """
    known = dict(zip(ALPHABET, tokenizer.convert_tokens_to_ids(list(ALPHABET)), strict=True))
    rows = [[*(known.get(c, tokenizer.unk_token_id) for c in text), tokenizer.eos_token_id] for text in texts]
    length = max(len(row) for row in rows)
    ids_NL = torch.tensor([[tokenizer.pad_token_id] * (length - len(row)) + row for row in rows])
    mask_NL = torch.tensor([[0] * (length - len(row)) + [1] * len(row) for row in rows])
    return ids_NL, mask_NL


def _level_token(scale: ScoreScale, logprobs: Sequence[float]) -> Token:
    """Return the token of the likeliest level; the grades stand at levels in equal steps."""
    last = len(scale) - 1
    levels = [scale.levels[round(grade * last / (len(GRADES) - 1))] for grade in range(len(GRADES))]
    alternatives = tuple(zip(levels, logprobs, strict=True))
    level, logprob = max(alternatives, key=lambda pair: pair[1])
    return Token(level, logprob, alternatives)
