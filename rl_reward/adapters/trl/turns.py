"""The turns of a rollout with tools: what a judge reads of each, and which tokens the policy wrote in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from rl_reward.adapters.messages import Message, Text, text_of
from rl_reward.errors import Unscorable
from rl_reward.steps import Span, WrittenStep

# What a policy or a web page writes must not pass for a message of somebody else.
_ROLE = re.compile(r"^(?=\s*(?:system|developer|user|assistant|tool)\s*:)", re.IGNORECASE | re.MULTILINE)


def turns_of(completion: Text, mask_T: Sequence[int]) -> list[WrittenStep]:
    """Return the turns of one rollout in order: texts from its messages, tokens from the trainer's mask.

    A turn is what the policy writes in one go and all that tools answer to it. Its tokens are the policy's alone. The
    texts in a row are the conversation, so the first s of them are all that is known after turn s. A rollout without
    a tool call has one turn.

    Args:
        completion: The messages after the prompt as TRL hands them to reward functions.
        mask_T: The row of completion_mask * tool_mask (TRL's env_mask, where there is a rollout_func): 1 where the
            policy wrote the token, int or bool [T].

    Raises:
        Unscorable: Messages and mask count different turns, or the completion does not begin with the policy. Nothing
            is guessed then: credit would land on the tokens of another turn.
    """
    texts, spans = turn_texts(completion), turn_spans(mask_T)
    if len(texts) != len(spans):
        raise Unscorable(f"the rollout has {len(texts)} turns by its messages and {len(spans)} by its tool mask")
    return [WrittenStep(text, start, end) for text, (start, end) in zip(texts, spans, strict=True)]


def turn_texts(completion: Text) -> list[str]:
    r"""Return what a judge reads of each turn: "assistant: 58", or "assistant: {...}\n\ntool: 22\n\n" with a call.

    Each message is introduced by its role. A line that looks like such an introduction and is none gets a "> " before
    it. Every turn but the last ends with a blank line.

    Raises:
        Unscorable: The completion does not begin with a message of the policy.
        ConfigError: A message holds something other than text.
    """
    messages: Sequence[Message] = completion if not isinstance(completion, str) else [_plain(completion)]
    if not messages or messages[0]["role"] != "assistant":
        role = messages[0]["role"] if messages else "nobody"
        raise Unscorable(f"a rollout begins with a message of the assistant, got {role}")
    begins = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    ends = [*begins[1:], len(messages)]
    turns = ["\n\n".join(map(_introduced, messages[begin:end])) for begin, end in zip(begins, ends, strict=True)]
    return [f"{turn}\n\n" for turn in turns[:-1]] + turns[-1:]


def turn_spans(mask_T: Sequence[int]) -> list[Span]:
    """Return the runs of tokens the policy wrote, (first, one past the last) of each, from a row of 0s and 1s."""
    spans: list[Span] = []
    position = 0
    for written, run in groupby(mask_T, key=bool):
        length = len(list(run))
        if written:
            spans.append((position, position + length))
        position += length
    return spans


def _introduced(message: Message) -> str:
    return f"{message['role']}: {_ROLE.sub('> ', text_of([message])) or '(nothing)'}"


def _plain(text: str) -> Message:
    return {"role": "assistant", "content": text}
