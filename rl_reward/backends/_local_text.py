"""What a local model reads, in its own words: the prompt as one string, and the tokens that spell a level there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from rl_reward.backends.base import Message
from rl_reward.errors import ConfigError
from rl_reward.scale import ScoreScale


@dataclass(frozen=True, eq=False)
class LocalText:
    """A tokenizer, with or without a chat template."""

    tokenizer: PreTrainedTokenizerBase
    """The tokenizer of the model."""
    template_kwargs: Mapping[str, Any]
    """Passed to the chat template, e.g. {"enable_thinking": False}."""
    pieces: Sequence[str]
    """The string of each token of the vocabulary, by id."""

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, template_kwargs: Mapping[str, Any]) -> LocalText:
        """Decode the vocabulary of `tokenizer`."""
        return cls(tokenizer, template_kwargs, tokenizer.batch_decode([[i] for i in range(len(tokenizer))]))

    def prompt(self, messages: Sequence[Message]) -> str:
        """Return the prompt up to where the answer begins.

        With a chat template this is the template's; otherwise the texts of the messages, a blank line after each.
        """
        if not self.tokenizer.chat_template:
            return "".join(f"{message.text}\n\n" for message in messages)
        turns = [{"role": message.role, "content": message.text} for message in messages]
        try:
            return self._rendered(turns)
        except TemplateError:
            if turns[0]["role"] != "system" or len(turns) == 1:
                raise
            # Some templates (Gemma) refuse a system turn: the first user turn says it then.
            system, first, *rest = turns
            return self._rendered([{**first, "content": f"{system['content']}\n\n{first['content']}"}, *rest])

    def _rendered(self, turns: list[dict[str, str]]) -> str:
        asked = self._template(turns, add_generation_prompt=False)
        prompt = self._template(turns, add_generation_prompt=True)
        # Only the answer's own opening is closed: "<think>" inside a candidate is text like any other.
        opening = prompt[len(asked) :] if prompt.startswith(asked) else ""
        return prompt + close_thinking(opening)

    def _template(self, turns: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=add_generation_prompt, **self.template_kwargs
            )
        )

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a prompt with or without its answer; a chat template writes its own first token."""
        special = not self.tokenizer.chat_template
        return list(self.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])

    def piece(self, token: int) -> str:
        """Return the string of a token; ids that only pad the model's vocabulary have none of their own."""
        return self.pieces[token] if token < len(self.pieces) else f"<unused {token}>"


def close_thinking(answer: str) -> str:
    """Return what ends the thinking block that `answer` leaves open, "" where there is none."""
    return "\n</think>\n\n" if answer.rfind("<think>") > answer.rfind("</think>") else ""


@dataclass(frozen=True)
class LevelTokens:
    """The tokens that spell the levels of a scale at one position."""

    level_of: Mapping[int, int]
    """The level of every token that spells one ("A", " A", "a"), by id."""
    plain_L: tuple[int, ...]
    """The token of each level as it is written right after the tag."""

    @classmethod
    def after(cls, text: LocalText, prefix: str, scale: ScoreScale) -> LevelTokens:
        """Find the tokens of the levels of `scale` behind `prefix`, which ends with the opening tag.

        Raises:
            ConfigError: Some level is not exactly one token there.
        """
        longest = max(map(len, scale.levels)) + 4
        spelled = ((i, scale.index(piece)) for i, piece in enumerate(text.pieces) if len(piece) <= longest)
        level_of = {i: level for i, level in spelled if level is not None}
        before = text.ids(prefix)
        found = [_plain_token(text, prefix, before, name) for name in scale.levels]
        offenders = [scale.levels[level] for level, token in enumerate(found) if level_of.get(token, -1) != level]
        if offenders:
            raise ConfigError(
                f"each level must be one token of its own after {prefix[-12:]!r}, in this vocabulary {offenders} are not; "
                "use ScoreScale.digits() or ScoreScale.letters(n), or other levels"
            )
        return cls(level_of, tuple(found))


def _plain_token(text: LocalText, prefix: str, before: list[int], name: str) -> int:
    """Return the token of the level `name` after `prefix`, whose tokens are `before`; -1 where it is not one token."""
    after = text.ids(prefix + name)
    if after[: len(before)] == before:
        return after[-1] if len(after) == len(before) + 1 else -1
    # The vocabulary glues the end of the tag to the level (">A"). The tag stands already, so the bare level is read.
    return next((i for i, piece in enumerate(text.pieces) if piece == name), -1)
