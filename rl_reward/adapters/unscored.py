"""The limit on unscored rows: a dead judge must end a run, not pass for a slow learner."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Protocol

from rl_reward._checks import check_int, check_number
from rl_reward.errors import BackendError


class Outcome(Protocol):
    """What became of a row: a `Score`, or a verdict made of one."""

    @property
    def value(self) -> float | None:
        """The score; None: there is none."""
        ...

    @property
    def status(self) -> str:
        """How it was read, else what failed."""
        ...

    @property
    def reason(self) -> str:
        """Why there is no value."""
        ...


class UnscoredLimit:
    """Watches the latest scores and raises once too many of them have no value."""

    def __init__(self, name: str, max_unscored: float, window: int) -> None:
        """Watch for `name`, which the error names.

        Args:
            name: Whose scores they are.
            max_unscored: Share of the window that may be unscored, in [0, 1].
            window: How many of the latest rows count, at least 1.

        Raises:
            ConfigError: A number is out of its range.
        """
        check_number("max_unscored", max_unscored, least=0, most=1)
        check_int("window", window, least=1)
        self._name = name
        self._max_unscored = max_unscored
        self._window = window
        self._rows: deque[tuple[str, str] | None] = deque(maxlen=window)

    def add(self, scores: Sequence[Outcome]) -> None:
        """Note the scores, row by row.

        Before the window is full the rows to come count as scored: one unlucky first row stops nothing, and a judge
        that is dead from the start is found out after max_unscored * window rows.

        Raises:
            BackendError: More than `max_unscored` of the window are unscored.
        """
        for score in scores:
            self._rows.append((score.status, score.reason) if score.value is None else None)
            failures = [row for row in self._rows if row is not None]
            if len(failures) > self._max_unscored * self._window:
                raise BackendError(self._verdict(failures))

    def _verdict(self, failures: list[tuple[str, str]]) -> str:
        last_reason = dict(failures)
        common = ", ".join(
            f"{count} x {status} ({last_reason[status] or 'no reason given'})"
            for status, count in Counter(status for status, _ in failures).most_common(3)
        )
        return (
            f"{self._name}: {len(failures)} of the last {len(self._rows)} rows are unscored "
            f"({len(failures) / len(self._rows):.0%}), more than max_unscored={self._max_unscored:g} of a window of "
            f"{self._window}; repair the judge or raise the limit. Most common: {common}"
        )
