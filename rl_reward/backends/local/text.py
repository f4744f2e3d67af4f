"""What a local model reads, in its own words: the prompt as one string, and the tokens that spell a level there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase, ProcessorMixin

from rl_reward.backends.base import Message
from rl_reward.errors import BackendError, ConfigError
from rl_reward.scale import ScoreScale

# What processors call the words that stand for something seen or heard.
_MARKS = ("image_token", "video_token", "audio_token")
_BRACKETS = str.maketrans({"<": "\u2039", ">": "\u203a", "[": "(", "]": ")", "|": "\u00a6"})


class LocalText:
    """A tokenizer, or the processor of a model that sees, with or without a chat template."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        template_kwargs: Mapping[str, Any],
        *,
        processor: ProcessorMixin | None = None,
    ) -> None:
        """Decode the vocabulary of `tokenizer`; `template_kwargs` go to the chat template in use."""
        self._tokenizer: Any = tokenizer
        self._processor: Any = processor
        self._template_kwargs = template_kwargs
        added: dict[int, Any] = self._tokenizer.added_tokens_decoder
        self._special = [str(token) for token in added.values() if token.special]
        self._marks = [str(m) for own in (processor, tokenizer) for name in _MARKS if (m := getattr(own, name, None))]
        self.pieces = [self.decode([i]) for i in range(len(tokenizer))]
        """The string of each token of the vocabulary, by id."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt, with or without an answer; a chat template writes its own first token."""
        special = not self._tokenizer.chat_template
        if self._processor is not None:
            # Processors add the first token to whatever does not begin with it, chat template or not.
            first = self._tokenizer.bos_token
            special = first is None or not text.startswith(first)
        return list(self._tokenizer(_whole(text), add_special_tokens=special, verbose=False)["input_ids"])

    def decode(self, tokens: list[int]) -> str:
        """Return the string of `tokens`, as it is."""
        return str(self._tokenizer.decode(tokens, clean_up_tokenization_spaces=False))

    def split(self, text: str) -> list[str]:
        """Return the strings of the tokens of `text`; together they are what the tokenizer makes of it."""
        tokens: list[int] = list(self._tokenizer(_whole(text), add_special_tokens=False)["input_ids"])
        pieces, done = list[str](), ""
        for end in range(1, len(tokens) + 1):
            so_far = self.decode(tokens[:end])
            # A token may end inside a character; the one that completes it gets all of it.
            if so_far.endswith("\ufffd") and end < len(tokens):
                so_far = done
            pieces.append(so_far[len(done) :])
            done = so_far
        return pieces

    def piece(self, token: int) -> str:
        """Return the string of a token; ids that only pad the model's vocabulary have none of their own."""
        return self.pieces[token] if token < len(self.pieces) else f"<unused {token}>"

    def prompt(self, messages: Sequence[Message]) -> str:
        """Return the prompt up to where the answer begins, the processor's image token once for each image.

        With a chat template this is the template's; otherwise the texts of the messages, a blank line after each.

        Raises:
            BackendError: The template refuses the messages.
        """
        turns = [{"role": message.role, "content": self._content(message)} for message in messages]
        if not self._writer.chat_template:
            return "".join(f"{turn['content']}\n\n" for turn in turns)
        try:
            return self._rendered(turns)
        except (TemplateError, TypeError) as error:
            if turns[0]["role"] == "system" and len(turns) > 1:
                # Some templates (Gemma's) refuse a system turn: the first user turn says it then.
                first = Message("user", (messages[0].text, "", *messages[1].parts))
                return self.prompt([first, *messages[2:]])
            raise BackendError(f"the chat template of the model refuses the prompt: {error}") from error

    def without_marks(self, text: str) -> str:
        """Return `text`, words of the model, without what would stand for an image."""
        return _spelled(text, self._marks)

    @property
    def _writer(self) -> Any:
        """What holds the chat template."""
        return self._processor if getattr(self._processor, "chat_template", None) else self._tokenizer

    def _content(self, message: Message) -> str | list[dict[str, str]]:
        """Return what `message` holds: each text and each image on lines of its own."""
        if self._processor is None:
            return self._harmless(message.text)
        lines: list[list[str]] = [[]]
        for part in message.parts:
            lines[-1].append(part) if isinstance(part, str) else lines.append([])
        last = len(lines) - 1
        texts = [self._harmless("\n".join([""] * (i > 0) + lines[i] + [""] * (i < last))) for i in range(last + 1)]
        if self._writer is not self._processor:
            return str(self._processor.image_token).join(texts)
        entries = [{"type": "text", "text": text} for text in texts]
        shown = [entry for text in entries for entry in (text, {"type": "image"})][:-1]
        return [entry for entry in shown if entry.get("text") != ""]

    def _harmless(self, text: str) -> str:
        """Return `text` without the special tokens of this vocabulary: what a candidate writes must stay text."""
        return _spelled(text, [*self._special, *self._marks])

    def _rendered(self, turns: list[dict[str, Any]]) -> str:
        asked = self._template(turns, add_generation_prompt=False)
        prompt = self._template(turns, add_generation_prompt=True)
        # Only what opens the answer counts: "<think>" inside a candidate is text like any other.
        return prompt + close_thinking(prompt.removeprefix(asked) if prompt.startswith(asked) else "")

    def _template(self, turns: list[dict[str, Any]], *, add_generation_prompt: bool) -> str:
        how = {"tokenize": False, "add_generation_prompt": add_generation_prompt, **self._template_kwargs}
        return str(self._writer.apply_chat_template(turns, **how))


def _spelled(text: str, tokens: Sequence[str]) -> str:
    for token in tokens:
        text = text.replace(token, token.translate(_BRACKETS))
    return text


def _whole(text: str) -> str:
    """Return `text` with half characters (lone surrogates), which tokenizers refuse, as question marks."""
    return text.encode("utf-8", "replace").decode()


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
    def after(cls, prefix: str, scale: ScoreScale, text: LocalText) -> LevelTokens:
        """Find the tokens of the levels of `scale` behind `prefix`, which ends with the opening tag.

        Raises:
            ConfigError: Some level is not exactly one token there.
        """
        longest = max(map(len, scale.levels)) + 4
        spelled = ((i, scale.index(piece)) for i, piece in enumerate(text.pieces) if len(piece) <= longest)
        level_of = {i: level for i, level in spelled if level is not None}
        before = text.encode(prefix)
        plain = [_plain_token(prefix, before, name, text) for name in scale.levels]
        offenders = [name for level, name in enumerate(scale.levels) if level_of.get(plain[level]) != level]
        if offenders:
            raise ConfigError(
                f"each level must be one token after {prefix[prefix.rfind('<') :]}, in this vocabulary "
                f"{', '.join(map(repr, offenders))} is not; use ScoreScale.digits() or ScoreScale.letters(n)"
            )
        return cls(level_of, tuple(plain))


def _plain_token(prefix: str, before: list[int], name: str, text: LocalText) -> int:
    """Return the token of the level `name` after `prefix`, whose tokens are `before`; -1 where it is not one token."""
    after = text.encode(prefix + name)
    if after[: len(before)] == before:
        return after[-1] if len(after) == len(before) + 1 else -1
    # The vocabulary glues the end of the tag to the level (">A"). The tag stands already, so the bare level is read.
    return next((i for i, piece in enumerate(text.pieces) if piece == name), -1)
