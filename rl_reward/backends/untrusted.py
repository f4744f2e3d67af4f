"""Servers and files may hold anything: it becomes a value of the right kind or a failure, never a traceback."""

from __future__ import annotations

from typing import Any, cast

MISSHAPEN = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
"""What Python raises at a value of the wrong shape, kind, size or depth."""


def string(value: Any) -> str:
    """Return `value`; raise TypeError if it is no text."""
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, not {type(value).__name__}")
    return value


def one_line(text: str) -> str:
    """Return `text` with every run of blanks and control characters as one space: it cannot forge a second line."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def without(secret: str, value: Any) -> Any:
    """Return the decoded JSON `value` with `secret` masked in each of its texts."""
    if isinstance(value, str):
        return value.replace(secret, "***")
    if isinstance(value, list):
        return [without(secret, item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: without(secret, item) for name, item in cast("dict[str, Any]", value).items()}
    return value
