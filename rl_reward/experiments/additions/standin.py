"""The stand-in verifiers of the additions: trained on labels, so their results are never called a verifier's."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_reward.adapters.trl.step_reward import NOTHING_YET
from rl_reward.backends.base import Reply, Request, Token
from rl_reward.errors import MissingExtraError, Unscorable
from rl_reward.experiments.additions.policy import load_policy
from rl_reward.experiments.additions.task import ALPHABET, Addition, numbers_so_far, read_working
from rl_reward.scale import ScoreScale
from rl_reward.types import Candidate, Step, Trajectory, Usage

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "trl") from error

STAND_INS = {"additions": Path(__file__).parent / "standin", "long-additions": Path(__file__).parent / "long_standin"}
"""The folder of the trained stand-in of each dataset, with `report.json`: how often it is right."""

GRADES = "ABCDEF"
"""What it writes: A none, B one, C two ... of the numbers of the working are right."""

MAX_CHARACTERS = 48
"""The longest text it reads."""

Shown = tuple[str, bool]
"""What is read, and whether the working has ended there."""

NOTHING = (0.0, *[-99.0] * (len(GRADES) - 1))
"""Log P(grade) where nothing is written yet: none of the numbers is right."""

_SUM = re.compile(r"\d{1,2}[;#]")


class StandIn:
    """A small model of the policy's kind, trained on workings whose numbers were labelled right or wrong.

    At the end of a working it puts a probability on each grade: how many of the numbers are right. They are reported
    as levels in equal steps from the first to the last, so the expectation over the levels is the expected fraction of
    right numbers. Progress is read in the same way after the numbers that are there so far. A pair is two workings,
    each read by itself. Concurrent requests share one forward pass.
    """

    name = "stand-in verifier"
    sees_data = False

    def __init__(self, folder: Path = STAND_INS["additions"]) -> None:
        """Load the model in `folder`."""
        self.model, self.tokenizer = load_policy(folder)
        self.model.eval()
        self._waiting: list[tuple[Shown, asyncio.Future[tuple[list[float], float]]]] = []

    async def reply(self, request: Request) -> Reply:
        """Answer with the distribution over the levels at every score tag.

        Raises:
            ConfigError: The task is no addition.
            Unscorable: The working is longer than what it reads, or no beginning of a working.
        """
        shown = [_shown(request, candidate) for candidate in request.candidates]
        graded = await asyncio.gather(*map(self._graded, shown))
        numbers = len(Addition.parse(request.task).numbers)
        tokens: list[Token] = []
        for tag, (logprobs, _) in zip(request.tags, graded, strict=True):
            tokens += [Token(f"<{tag}>"), _level_token(request.scale, logprobs[: numbers + 1]), Token(f"</{tag}>")]
        read = sum(len(text) + 1 for text, _ in filter(None, shown))
        usage = Usage(1, read, len(shown), seconds=sum(seconds for _, seconds in graded))
        return Reply(tuple(tokens), "".join(token.text for token in tokens), usage=usage)

    async def _graded(self, shown: Shown | None) -> tuple[Sequence[float], float]:
        """Return log P(grade) and the seconds it took."""
        if shown is None:
            return NOTHING, 0.0
        answer: asyncio.Future[tuple[list[float], float]] = asyncio.get_running_loop().create_future()
        self._waiting.append((shown, answer))
        if len(self._waiting) == 1:
            # Runs after the requests that are ready now, so they are all in the batch.
            asyncio.get_running_loop().call_soon(self._answer_all)
        return await answer

    async def aclose(self) -> None:
        """Nothing to free."""

    def _answer_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        began = time.perf_counter()
        try:
            logprobs_N6 = grade_logprobs(self.model, self.tokenizer, [shown for shown, _ in waiting])
        except Exception as error:  # whoever waits must hear of it
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
            return
        seconds = (time.perf_counter() - began) / len(waiting)
        for (_, answer), row in zip(waiting, logprobs_N6, strict=True):
            if not answer.done():  # a deadline may have cancelled it
                answer.set_result((row, seconds))


def laid_out(task: str, working: str, *, so_far: bool = False) -> str:
    """Return what the stand-in reads: each sum beside its digits, "4+7=11;7+4=12#121" for "74+47=" and "11;12#121".

    Nothing is worked out here. What is no working, or with `so_far` no beginning of one, comes after the task as it is.

    Raises:
        ConfigError: `task` is no addition.
        Unscorable: The text is longer than 48 characters.
    """
    columns = Addition.parse(task).columns
    numbers = numbers_so_far(working) if so_far else read_working(working)
    sums = _SUM.findall(working) if numbers else []
    if not sums or len(sums) > len(columns):
        text = task + working
    else:
        answer = working.removeprefix("".join(sums))
        text = "".join(f"{x}+{y}={written}" for (x, y), written in zip(columns, sums, strict=False)) + answer
    if len(text) > MAX_CHARACTERS:
        raise Unscorable(f"the stand-in reads at most {MAX_CHARACTERS} characters, got {len(text)}")
    return text


def grade_logprobs(model: Any, tokenizer: Any, shown: Sequence[Shown]) -> list[list[float]]:
    """Return log P(grade) at the end of each text, [N][6], over the whole vocabulary."""
    ids_NL, mask_NL = encode(tokenizer, shown)
    with torch.inference_mode():
        logits_NV = model(input_ids=ids_NL, attention_mask=mask_NL, logits_to_keep=1).logits[:, -1]
    return logits_NV.log_softmax(-1)[:, tokenizer.convert_tokens_to_ids(list(GRADES))].tolist()


def encode(tokenizer: Any, shown: Sequence[Shown]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and attention mask, int [N, L]: padding, the characters of each text, the end token if ended.

    Characters are looked up one by one: text that spells a special token or a grade is unknown characters here.
    """
    known = dict(zip(ALPHABET, tokenizer.convert_tokens_to_ids(list(ALPHABET)), strict=True))
    unknown, end = tokenizer.unk_token_id, tokenizer.eos_token_id
    rows = [[known.get(c, unknown) for c in text] + [end] * ended for text, ended in shown]
    length = max(len(row) for row in rows)
    ids_NL = torch.tensor([[tokenizer.pad_token_id] * (length - len(row)) + row for row in rows])
    mask_NL = torch.tensor([[0] * (length - len(row)) + [1] * len(row) for row in rows])
    return ids_NL, mask_NL


def _shown(request: Request, candidate: Candidate) -> Shown | None:
    """Return what is read of one candidate, None where nothing is written; progress is read after the last sign."""
    if request.kind != "progress":
        return laid_out(request.task, candidate.text if isinstance(candidate, Trajectory) else candidate), True
    written = written_so_far(candidate)
    return (laid_out(request.task, written, so_far=True), read_working(written) is not None) if written else None


def written_so_far(candidate: Candidate) -> str:
    """Return the working of which `candidate` holds the steps, "" where there is none yet."""
    steps = candidate.steps if isinstance(candidate, Trajectory) else (Step(candidate),)
    written = "".join(step.text for step in steps)
    return "" if written == NOTHING_YET else written


def _level_token(scale: ScoreScale, logprobs: Sequence[float]) -> Token:
    """Return the token of the likeliest level; the grades stand at levels in equal steps."""
    last = len(scale) - 1
    levels = [scale.levels[round(grade * last / (len(logprobs) - 1))] for grade in range(len(logprobs))]
    alternatives = tuple(zip(levels, logprobs, strict=True))
    level, logprob = max(alternatives, key=lambda pair: pair[1])
    return Token(level, logprob, alternatives)
