"""Cheap looks at an answer before the judge is paid: empty, clipped, copied from the prompt, repeating itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rl_reward._checks import check_known, check_number
from rl_reward.adapters.trl.host import Trainer
from rl_reward.errors import ConfigError
from rl_reward.prompts import defuse

Gate = Literal["empty", "clipped", "copied", "repeated"]
GATES: tuple[Gate, ...] = get_args(Gate)
Earns = Literal["lowest", "unscored"]

_WINDOW = 32
"""Characters of the pieces that are looked up. Words, formulas and sums recur in honest work; 32 in a row hardly do."""


@dataclass(frozen=True)
class Gates:
    """Which answers never reach the judge, and what they earn.

    - "empty": nothing can be seen: white space and invisible characters alone.
    - "clipped": as many tokens as the trainer allows, the last of them no end token. An answer that a stop string
      ended is not clipped. Only the trainer knows the two; a trainer that passes no `log_metric` cannot be asked.
    - "copied": the prompt itself, or `copied_share` of the answer's 32-character windows stand in the prompt.
    - "repeated": `repeated_share` of its 32-character windows stood earlier in the answer. Measured: prose, code and
      tables 0 to .02, an enumeration case by case .24, an answer that fell into a loop half way .67, a loop .95.

    White space is folded and case ignored; windows are looked at from 64 characters on, so a short answer may well
    stand in its prompt.

    By default nothing is stopped. A gate overrules the judge by a rule that knows nothing of the task, and a wrong rule
    is a wrong reward nobody sees: where the token limit is tight every answer is clipped, where text is extracted every
    answer is copied. The share of rows that each would stop is logged either way, so turn one on when its share rises.
    """

    stop: tuple[Gate, ...] = ()
    """The gates that are closed."""
    earns: Earns = "lowest"
    """What a stopped row scores. "lowest": 0, the low end of the scale, as an answer known to be bad; it counts in the
    mean and spread of its group. In a tournament that is an answer that loses to every other for certain. "unscored":
    nothing; it is neutral and votes in nothing."""
    copied_share: float = 0.8
    """From this share of windows on an answer counts as copied, in (0, 1]."""
    repeated_share: float = 0.5
    """From this share of windows on an answer counts as repeated, in (0, 1]."""

    def __post_init__(self) -> None:
        """Refuse unknown gates and shares out of range."""
        if isinstance(self.stop, str):
            raise ConfigError(f"stop must be several gates, got {self.stop!r}; write ({self.stop!r},)")
        for gate in self.stop:
            check_known(gate, GATES, "gate")
        if self.earns not in get_args(Earns):
            raise ConfigError(f"earns must be one of {', '.join(get_args(Earns))}, got {self.earns!r}")
        check_number("copied_share", self.copied_share, above=0, most=1)
        check_number("repeated_share", self.repeated_share, above=0, most=1)

    def signs(self, prompt: str, answer: str, clipped: bool) -> tuple[Gate, ...]:
        """Return what an answer shows, whether or not that stops it."""
        if not defuse(answer).strip():
            return ("empty", "clipped") if clipped else ("empty",)
        seen: dict[Gate, bool] = {
            "clipped": clipped,
            "copied": copied(prompt, answer) >= self.copied_share,
            "repeated": repeated(answer) >= self.repeated_share,
        }
        return tuple(gate for gate, shows in seen.items() if shows)

    def closed(self, signs: Sequence[Gate]) -> Gate | None:
        """Return the gate that stops an answer with these `signs`; None: the judge reads it."""
        return next((gate for gate in signs if gate in self.stop), None)


def copied(prompt: str, answer: str) -> float:
    """Return the share of the answer's windows that stand in the prompt, in [0, 1]; 1 if it is the prompt itself."""
    source, text = _folded(prompt), _folded(answer)
    if text and text == source:
        return 1.0
    windows, known = _windows(text), set(_windows(source))
    return sum(window in known for window in windows) / len(windows) if windows else 0.0


def repeated(answer: str) -> float:
    """Return the share of the answer's windows that stood in it before, in [0, 1)."""
    windows = _windows(_folded(answer))
    return 1.0 - len(set(windows)) / len(windows) if windows else 0.0


def clipped_rows(completion_ids: Sequence[Sequence[int]] | None, trainer: Trainer | None) -> list[bool] | None:
    """Return which completions the token limit cut off; None where there are no ids or no trainer to ask.

    TRL's completions/clipped_ratio also counts answers that a stop string ended.
    """
    if completion_ids is None or trainer is None:
        return None
    limit, ends = trainer.max_completion_length, trainer.eos_token_ids
    return [limit is not None and len(ids) >= limit and ids[-1] not in ends for ids in completion_ids]


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _windows(text: str) -> list[str]:
    """Return every run of 32 characters, none of a text under 64."""
    return [text[i : i + _WINDOW] for i in range(len(text) - _WINDOW + 1)] if len(text) >= 2 * _WINDOW else []
