r"""Is the final answer of a text right? Answers stand in \boxed{}, or in plain words; math-verify compares values.

A sum that was asked for has the value of its answer, so a policy that writes it down again would be right: SmolLM2
found that within ten optimizer steps. Where the answer is a number, a number must be given, and nothing to work out.
"""

from __future__ import annotations

import logging
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
r"""Where an answer stands: in the last \boxed{}, or anywhere; there the last number counts, or fraction of two."""

# A policy may write 9^9^9^9, or five thousand numbers: seconds and characters for one answer.
_LIMIT_S, _LONGEST = 2, 300
# A minus is a sign of the number where no number stands right before it.
_NUMBER = re.compile(r"(?:(?<![\d.,)])[-\u2212])?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
# Sums, differences, products, powers, factorials; a fraction, too, where the answer is a whole number.
_WORK = re.compile(r"[+*^!\u00d7\u22c5\u00b7\u00f7]|(?<=[\w)}])\s*[-\u2212]|\\(?:times|cdot|div|sum|prod|pm)\b")
# No time limit holds outside the main thread, where trainers may call, so only what is cheap is worked on: few commands
# of LaTeX, known ones, and no towers or large powers of numbers, no factorials.
_CHEAP = {
    *("frac", "dfrac", "tfrac", "sqrt", "pi", "text", "mathrm", "left", "right", "cdot", "times", "pm", "infty"),
    *("cup", "cap", "le", "leq", "ge", "geq", "ne", "in", "mathbb", "begin", "end", "circ", "sin", "cos", "tan"),
    *("log", "ln", "theta", "alpha", "beta"),
}
_COMMAND, _MOST_COMMANDS = re.compile(r"\\([a-zA-Z]+)"), 12
_ENDLESS = re.compile(r"\^[\s{(]*\d+[\s})]*\^|\^[\s{(]*\d{4,}|\*\*|!")
_DIVISION = re.compile(r"/|\\[dt]?frac")
_WHOLE, _NUMERIC = re.compile(r"[-\u2212]?\d[\d,]*"), re.compile(r"[-\u2212]?[\d.,/]+|[-\u2212]?\\frac\{\d+\}\{\d+\}")


def correct(completion: str, answer: str, form: AnswerForm) -> bool:
    r"""Return whether `completion` gives the value of `answer`: 0.5 is 1/2, 1 + x is x + 1.

    Texts that math-verify cannot read, or that could take it long, are right where they read the same.

    Args:
        completion: What the policy wrote.
        answer: The answer, or a solution that has it in \boxed{}.
        form: Where the completion has to give it.
    """
    wanted = boxed(answer) or answer
    given = boxed(completion) if form == "boxed" else last_number(completion)
    if given is None or not is_worked_out(given, wanted):
        return False
    if _plain(given) == _plain(wanted):
        return True
    if not is_cheap(given):
        return False
    if form == "boxed":
        given, wanted = (rf"\boxed{{{text}}}" for text in (given, wanted))
    return bool(_library.verify(values(wanted), values(given), timeout_seconds=_limit()))


def well_formed(completion: str, form: AnswerForm) -> bool:
    """Return whether an answer can be read at all, right or wrong."""
    return boxed(completion) is not None if form == "boxed" else last_number(completion) is not None


def last_number(text: str) -> str | None:
    """Return the last number of `text`, or fraction of two, None where there is none."""
    found = _NUMBER.findall(text[-_LONGEST:])
    return found[-1].rstrip(",") if found else None


def is_worked_out(given: str, wanted: str) -> bool:
    """Return whether `given` leaves nothing to work out: no sum for a number, no fraction for a whole number."""
    wanted = _plain(wanted)
    if _WHOLE.fullmatch(wanted) and _DIVISION.search(given):
        return False
    return not (_NUMERIC.fullmatch(wanted) and _WORK.search(given))


def is_cheap(given: str) -> bool:
    """Return whether reading and comparing `given` ends soon, in any thread."""
    commands = _COMMAND.findall(given)
    known = len(commands) <= _MOST_COMMANDS and set(commands) <= _CHEAP
    nested = max(given.count("("), given.count("{")) <= 2 * _MOST_COMMANDS
    return known and nested and len(given) <= _LONGEST and not _ENDLESS.search(given)


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
    """Return what math-verify reads in `text`, empty where that is nothing or takes too long."""
    return _library.parse(text, parsing_timeout=_limit())


def _limit() -> int | None:
    """Return the time limit; math-verify keeps it by a signal, which Python allows on the main thread alone."""
    if threading.current_thread() is threading.main_thread():
        return _LIMIT_S
    for part in ("parser", "grader"):  # each warns at every call that there is no limit
        logging.getLogger(f"math_verify.{part}").setLevel(logging.ERROR)
    return None


def _plain(answer: str) -> str:
    return re.sub(r"[\s$]|\\[!,;]", "", answer).replace(r"\dfrac", r"\frac")
