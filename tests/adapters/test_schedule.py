"""The weight over training."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rl_reward.adapters.schedule import checked_weight, weight_at
from rl_reward.errors import ConfigError


def at(step, max_steps=100):
    return SimpleNamespace(global_step=step, max_steps=max_steps)


def test_a_constant_needs_no_state():
    assert weight_at(checked_weight(2), None) == 2.0


def test_a_line_runs_from_start_to_end():
    line = checked_weight([0.4, 0.0])  # as YAML has it
    assert [weight_at(line, at(step)) for step in (0, 50, 100, 120)] == pytest.approx([0.4, 0.2, 0.0, 0.0])


def test_before_training_the_progress_is_zero():
    assert weight_at((0.4, 0.0), at(0, max_steps=0)) == 0.4


def test_a_function_sees_progress():
    assert weight_at(checked_weight(lambda progress: 1 - progress**2), at(50)) == 0.75


@pytest.mark.parametrize("weight", [-0.1, float("nan"), (0.1, float("inf")), (0.1, 0.2, 0.3)])
def test_bad_weights_are_refused(weight):
    with pytest.raises(ConfigError):
        checked_weight(weight)


def test_a_change_needs_a_state_and_good_values():
    with pytest.raises(ConfigError, match="passes no trainer_state"):
        weight_at((0.4, 0.0), None)
    with pytest.raises(ConfigError, match="weight must be a finite number >= 0, got -1"):
        weight_at(lambda _: -1.0, at(0))
