"""The limit on unscored rows."""

from __future__ import annotations

import pytest

from rl_reward.adapters.unscored import UnscoredLimit
from rl_reward.errors import BackendError, ConfigError
from rl_reward.scores import Score

READ = Score(0.5, None, {}, {}, 1, "logprob")
LATE = Score(None, None, {}, {}, 0, "timeout", "no reply in 30 s")
ODD = Score(None, None, {}, {}, 0, "unreadable", "the position has no alternatives")


def test_one_row_too_many_raises_and_says_why():
    limit = UnscoredLimit("judge", max_unscored=0.4, window=10)
    limit.add([LATE, READ, ODD, LATE, READ, LATE])
    message = (
        r"^judge: 5 of the last 7 rows are unscored \(71%\), more than max_unscored=0.4 of a window of 10; .* "
        r"Most common: 4 x timeout \(no reply in 30 s\), 1 x unreadable \(the position has no alternatives\)$"
    )
    with pytest.raises(BackendError, match=message):
        limit.add([LATE])


def test_old_failures_are_forgotten():
    limit = UnscoredLimit("judge", max_unscored=0.25, window=8)
    for _ in range(10):
        limit.add([LATE, READ, READ, READ])


def test_failures_early_in_a_large_batch_count():
    with pytest.raises(BackendError, match="2 of the last 2"):
        UnscoredLimit("judge", max_unscored=0.25, window=4).add([LATE, LATE, *[READ] * 10])


def test_the_ends_of_the_range():
    UnscoredLimit("judge", max_unscored=1.0, window=4).add([LATE] * 20)
    with pytest.raises(BackendError, match="1 of the last 2"):
        UnscoredLimit("judge", max_unscored=0.0, window=4).add([READ, LATE])


@pytest.mark.parametrize(("max_unscored", "window"), [(1.5, 8), (-0.1, 8), (float("nan"), 8), (0.2, 0)])
def test_bad_limits_are_refused(max_unscored, window):
    with pytest.raises(ConfigError):
        UnscoredLimit("judge", max_unscored, window)
