"""The policy that holds an action: steering its noise is acting on the robot itself, one action per chunk of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_reward._checks import check_int


@dataclass(frozen=True)
class Hold:
    """A `FrozenPolicy` that knows nothing: its noise is the action, and every step of the chunk repeats it.

    With a noise bound of 1 in `SteeringEnv` the learner acts on the robot with action repeat: decisions, discounts and
    counts are those of steering. Left to itself it moves at random.
    """

    chunk: int
    """Steps an action is held for, >= 1."""
    action_dim: int
    """Numbers in one action, >= 1."""

    def __post_init__(self) -> None:
        """Refuse sizes below 1."""
        check_int("chunk", self.chunk, least=1)
        check_int("action_dim", self.action_dim, least=1)

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Shape of the noise, that of an action."""
        return (self.action_dim,)

    def act(self, obs: Any, noise: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the noise `chunk` times, float32 [chunk, action_dim], cut off at [-1, 1]; `obs` is unread."""
        return np.tile(np.asarray(noise, np.float32).clip(-1.0, 1.0), (self.chunk, 1))
