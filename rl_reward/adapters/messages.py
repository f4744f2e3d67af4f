"""What a prompt or completion says as plain text, for judges: trainers hand over strings or chat messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rl_reward.errors import ConfigError

Message = Mapping[str, Any]
Text = str | Sequence[Message]
"""A string, or the messages of a conversation as chat templates take them."""


def text_of(text: Text) -> str:
    """Return what is said, with thoughts and tool calls; roles are named where there is more than one message.

    Raises:
        ConfigError: A message holds something other than text.
    """
    if isinstance(text, str):
        return text
    if len(text) == 1:
        return _said(text[0])
    return "\n\n".join(f"{message['role']}: {_said(message)}" for message in text)


def _said(message: Message) -> str:
    thoughts = message.get("reasoning_content") or message.get("thinking") or ""
    calls = [json.dumps(call.get("function", call)) for call in message.get("tool_calls") or ()]
    return "\n".join(part for part in (thoughts, _content(message.get("content")), *calls) if part)


def _content(content: str | Sequence[Mapping[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for block in content:
        if block["type"] != "text":
            raise ConfigError(f"only text can be judged here, got a message with a part of type {block['type']!r}")
    return "\n".join(block["text"] for block in content)
