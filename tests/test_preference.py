from __future__ import annotations

import math

import pytest

from rl_reward.errors import ConfigError
from rl_reward.preference import preference


def test_by_hand() -> None:
    # (0.7 - 0.5) / 0.1 is two logits: 1 / (1 + e^-2).
    assert preference(0.7, 0.5, 0.1) == pytest.approx(0.880797, abs=1e-6)


def test_scores_in_the_unit_interval_stay_in_the_range_of_the_paper() -> None:
    assert preference(0.0, 1.0) == pytest.approx(0.268941, abs=1e-6)
    assert preference(1.0, 0.0) == pytest.approx(0.731059, abs=1e-6)


def test_both_sides_add_to_one_and_equals_are_even() -> None:
    for first, second in [(0.1, 0.9), (0.3, 0.30001), (-40.0, 2.0)]:
        assert preference(first, second, 0.3) + preference(second, first, 0.3) == pytest.approx(1.0)
    assert preference(0.4, 0.4, 1e-9) == 0.5


def test_extreme_scores_neither_overflow_nor_lose_small_probabilities() -> None:
    assert preference(1e308, -1e308) == 1.0
    assert preference(-1e308, 1e308) == 0.0
    assert preference(0.0, 1.0, 1e-300) == 0.0
    assert preference(0.0, 100.0) == pytest.approx(math.exp(-100.0), rel=1e-9)


def test_an_unscored_side_stays_unscored() -> None:
    assert math.isnan(preference(math.nan, 0.5))
    assert math.isnan(preference(0.5, math.nan))


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_temperature_must_be_positive_and_finite(temperature: float) -> None:
    with pytest.raises(ConfigError, match=f"> 0, got {temperature}"):
        preference(0.1, 0.2, temperature)
