"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "warn", "error"]


@dataclass(frozen=True)
class Finding:
    """The result of one check, on one line."""

    severity: Severity
    """error: training cannot work, or its numbers mean something else; warn: look at it; ok: nothing to do."""
    check: str
    """What was checked, e.g. "success key"."""
    text: str
    """The value, the limit and, unless all is well, the fix."""
