r"""Is the final answer of a text right? Answers stand in \boxed{}, or in plain words; math-verify compares values."""

from __future__ import annotations

import re
import threading
from typing import Any, Literal

from rl_reward.errors import MissingExtraError

try:
    import math_verify
except ImportError as error:
    raise MissingExtraError("math-verify", "math") from error

# It says nothing of its types.
_library: Any = math_verify
AnswerForm = Literal["boxed", "plain"]
r"""Where an answer stands: in the last \boxed{}, or anywhere; there the last number or expression counts."""

# Seconds for one text. math-verify keeps time by a signal, which Python allows on the main thread alone.
_LIMIT_S = 5


def correct(completion: str, answer: str, form: AnswerForm) -> bool:
    r"""Return whether `completion` gives the value of `answer`: 0.5 is 1/2, 1 + x is x + 1.

    Args:
        completion: What the policy wrote.
        answer: The answer, or a solution that has it in \boxed{}.
        form: Where the completion has to give it.
    """
    wanted = boxed(answer) or answer
    given = boxed(completion) if form == "boxed" else completion
    if given is None:
        return False
    if _plain(given) == _plain(wanted):
        return True
    if form == "boxed":
        given, wanted = (rf"\boxed{{{text}}}" for text in (given, wanted))
    return bool(_library.verify(values(wanted), values(given), timeout_seconds=_limit()))


def well_formed(completion: str, form: AnswerForm) -> bool:
    """Return whether an answer can be read at all, right or wrong."""
    return boxed(completion) is not None if form == "boxed" else bool(values(completion))


def boxed(text: str) -> str | None:
    r"""Return what stands in the last complete \boxed{...} of `text`, None where there is none."""
    start = text.rfind(r"\boxed{")
    depth = 0
    for end, character in enumerate(text[start:] if start >= 0 else "", start):
        depth += (character == "{") - (character == "}")
        if character == "}" and depth == 0:
            return text[start + len(r"\boxed{") : end]
    return None


def values(text: str) -> list[Any]:
    """Return what math-verify reads in `text`, empty where that is nothing."""
    return _library.parse(text, parsing_timeout=_limit())


def _limit() -> int | None:
    return _LIMIT_S if threading.current_thread() is threading.main_thread() else None


def _plain(answer: str) -> str:
    return re.sub(r"[\s$]|\\[!,;]", "", answer).replace(r"\dfrac", r"\frac")
