"""The stand-in verifier of the additions: trained on labels, so its results are never called a verifier's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_reward.backends.base import Reply, Request, Token
from rl_reward.errors import MissingExtraError, Unscorable
from rl_reward.experiments.additions.policy import VERDICTS, load_policy
from rl_reward.experiments.additions.task import ALPHABET
from rl_reward.types import Usage

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "trl") from error

STAND_IN = Path(__file__).parent / "standin"
"""The folder of the trained stand-in, with `report.json`: how often it is right."""

MAX_CHARACTERS = 48
"""The longest problem and working it reads."""


class StandIn:
    """A small model of the policy's kind that learned from labelled workings which answers are right.

    After "74+47=11;12#121" and the end token it puts a probability on "wrong" and "right". They are reported as the
    first and the last level of the scale, so the expectation over the levels is the probability of being right.
    Concurrent requests share one forward pass.
    """

    name = "stand-in verifier"
    sees_data = False

    def __init__(self, folder: Path = STAND_IN) -> None:
        """Load the model in `folder`."""
        self.model, self.tokenizer = load_policy(folder)
        self.model.eval()
        self._waiting: list[tuple[str, asyncio.Future[tuple[list[float], float]]]] = []

    async def reply(self, request: Request) -> Reply:
        """Answer with the two levels at the score tag.

        Raises:
            Unscorable: Problem and candidate together are longer than 48 characters.
        """
        text = request.task + request.text
        if len(text) > MAX_CHARACTERS:
            raise Unscorable(f"the stand-in reads at most {MAX_CHARACTERS} characters, got {len(text)}")
        loop = asyncio.get_running_loop()
        verdict: asyncio.Future[tuple[list[float], float]] = loop.create_future()
        self._waiting.append((text, verdict))
        if len(self._waiting) == 1:
            # Runs after the requests that are ready now, so they are all in the batch.
            loop.call_soon(self._answer_all)
        (wrong, right), seconds = await verdict
        alternatives = ((request.scale.first, wrong), (request.scale.last, right))
        level, logprob = max(alternatives, key=lambda pair: pair[1])
        (tag,) = request.tags
        tokens = (Token(f"<{tag}>"), Token(level, logprob, alternatives), Token(f"</{tag}>"))
        usage = Usage(calls=1, prompt_tokens=len(text) + 1, completion_tokens=1, seconds=seconds)
        return Reply(tokens, "".join(token.text for token in tokens), usage=usage)

    async def aclose(self) -> None:
        """Nothing to free."""

    def _answer_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        start = time.perf_counter()
        logprobs = verdict_logprobs_N2(self.model, self.tokenizer, [text for text, _ in waiting]).tolist()
        seconds = (time.perf_counter() - start) / len(waiting)
        for (_, verdict), row in zip(waiting, logprobs, strict=True):
            if not verdict.done():  # a deadline may have cancelled it
                verdict.set_result((row, seconds))


def verdict_logprobs_N2(model: Any, tokenizer: Any, texts: Sequence[str]) -> torch.Tensor:  # noqa: N802
    """Return log P(wrong) and log P(right), float [N, 2], of each problem with its working, over the whole vocabulary."""
    ids_NL, mask_NL = encode(tokenizer, texts)
    with torch.inference_mode():
        logits_NV = model(input_ids=ids_NL, attention_mask=mask_NL, logits_to_keep=1).logits[:, -1]
    return logits_NV.log_softmax(-1)[:, tokenizer.convert_tokens_to_ids(list(VERDICTS))]


def encode(tokenizer: Any, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and attention mask, int [N, L]: padding, the characters of each text, the end token.

    Characters are looked up one by one: text that spells a special token or a verdict is unknown characters here.
    """
    known = {character: tokenizer.convert_tokens_to_ids(character) for character in ALPHABET}
    rows = [[*(known.get(c, tokenizer.unk_token_id) for c in text), tokenizer.eos_token_id] for text in texts]
    length = max(len(row) for row in rows)
    ids_NL = torch.tensor([[tokenizer.pad_token_id] * (length - len(row)) + row for row in rows])
    mask_NL = torch.tensor([[0] * (length - len(row)) + [1] * len(row) for row in rows])
    return ids_NL, mask_NL
