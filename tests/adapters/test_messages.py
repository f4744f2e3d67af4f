"""Prompts and completions as text."""

from __future__ import annotations

import pytest

from rl_reward.adapters.messages import text_of
from rl_reward.errors import ConfigError


def test_strings_and_single_messages_stand_as_they_are():
    assert text_of(" 2+2= ") == " 2+2= "
    assert text_of([{"role": "user", "content": "2+2="}]) == "2+2="
    assert text_of([{"role": "assistant", "content": None}]) == ""


def test_several_messages_name_their_roles():
    question = {"role": "user", "content": [{"type": "text", "text": "2+2?"}, {"type": "text", "text": "Quick."}]}
    assert text_of([{"role": "system", "content": "Be brief."}, question]) == "system: Be brief.\n\nuser: 2+2?\nQuick."


def test_thoughts_and_tool_calls_are_part_of_an_answer():
    thoughtful = {"role": "assistant", "content": "4", "reasoning_content": "two and two"}
    assert text_of([thoughtful]) == "two and two\n4"
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
    turns = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "4"}]
    assert text_of(turns) == 'assistant: {"name": "add", "arguments": {"a": 2}}\n\ntool: 4'


def test_an_image_is_refused_rather_than_dropped():
    with pytest.raises(ConfigError, match="part of type 'image'"):
        text_of([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}])
