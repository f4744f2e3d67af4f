"""Bradley-Terry preference: how sure a judge's two scores make us that the first candidate is the better one."""

from __future__ import annotations

import math

from rl_reward.errors import ConfigError


def preference(first: float, second: float, temperature: float = 1.0) -> float:
    """Return P(first beats second) = 1 / (1 + exp(-(first - second) / temperature)), in [0, 1] (paper Sec. 3).

    Scores in [0, 1] at temperature 1 give [0.269, 0.731]; a lower temperature is more decided.

    Args:
        first: Score of the first candidate; NaN (unscored) gives NaN, never 0.5.
        second: Score of the second candidate.
        temperature: Score difference that counts as one logit, finite and > 0.

    Raises:
        ConfigError: The temperature is not a finite number above 0.
    """
    if not (math.isfinite(temperature) and temperature > 0.0):
        raise ConfigError(f"preference temperature must be a finite number > 0, got {temperature}; 1.0 is the paper's")
    logit = (first - second) / temperature
    # Each branch only ever takes exp of a number <= 0, which cannot overflow.
    return 1.0 / (1.0 + math.exp(-logit)) if logit >= 0.0 else math.exp(logit) / (1.0 + math.exp(logit))
