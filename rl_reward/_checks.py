"""Checks at the public edge: one line with the name, the limit and the value that was given."""

from __future__ import annotations

import difflib
import math
import numbers
import re
from collections.abc import Collection

from rl_reward.errors import ConfigError


def check_number(
    name: str, value: object, *, least: float | None = None, above: float | None = None, most: float | None = None
) -> float:
    """Return `value` as a float.

    Args:
        name: Name of the value, for the message.
        value: What the caller gave; a bool is no number.
        least: Smallest value that is allowed.
        above: Bound that must be exceeded.
        most: Largest value that is allowed.

    Raises:
        ConfigError: It is no finite number, or outside its limits.
    """
    limits = {">=": least, ">": above, "<=": most}
    told = " and ".join(f"{sign} {limit:g}" for sign, limit in limits.items() if limit is not None)
    number = _float(value)
    low = -math.inf if least is None else least
    high = math.inf if most is None else most
    if not (math.isfinite(number) and low <= number <= high and (above is None or number > above)):
        raise ConfigError(f"{name} must be a finite number{' ' if told else ''}{told}, got {_shown(value)}")
    return number


def entropy_start(ent_coef: float | str) -> float:
    """Return the entropy coefficient that stable-baselines3 starts with: 1 for "auto", START for "auto_START".

    Raises:
        ConfigError: It is neither of these nor a number >= 0.
    """
    learned = re.fullmatch(r"auto(?:_(\d*\.?\d+))?", str(ent_coef))
    if learned is None:
        return check_number('ent_coef, where it is not "auto" or "auto_START",', ent_coef, least=0)
    return check_number("the start of ent_coef", float(learned[1] or 1), above=0)


def _float(value: object) -> float:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def check_int(name: str, value: object, *, least: int | None = None, most: int | None = None) -> int:
    """Return `value` as an int; a bool or a float is none.

    Raises:
        ConfigError: It is no integer, or outside its limits.
    """
    fits = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    number = int(value) if fits else 0  # pyright: ignore[reportArgumentType]
    if not fits or (least is not None and number < least) or (most is not None and number > most):
        bounds = f" of at least {least}" if least is not None else ""
        bounds += f" and at most {most}" if most is not None else ""
        raise ConfigError(f"{name} must be an integer{bounds}, got {_shown(value)}")
    return number


def check_text(name: str, value: object) -> str:
    """Return `value`, a text that is not blank.

    Raises:
        ConfigError: It is no str, or blank.
    """
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name} must be a text that is not empty, got {_shown(value)}")
    return value


def check_known(name: str, names: Collection[str], what: str) -> None:
    """Raise ConfigError, with the nearest name or with some of them, unless `name` is one of `names`."""
    if name not in names:
        nearest = difflib.get_close_matches(name, names, n=1) or [one for one in names if name and name in one][:1]
        some = sorted(names)
        more = f" and {len(some) - 10} more" if len(some) > 10 else ""
        fix = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(some[:10])}{more}"
        raise ConfigError(f"no {what} is called {name!r}; {fix}")


def _shown(value: object) -> str:
    """Return `value` on one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
