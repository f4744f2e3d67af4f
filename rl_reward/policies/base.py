"""The seam between a frozen policy and whoever chooses its noise."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class FrozenPolicy(Protocol):
    """A generative policy whose weights no longer change: the same observation and noise give the same actions.

    Left to itself it draws its noise from N(0, I); steering chooses the noise instead (DSRL, arXiv 2506.15799, Sec. 4).
    A policy that takes flat observations of one size may say so in an attribute `obs_dim`, which is then checked.
    """

    @property
    def chunk(self) -> int:
        """Actions one call returns, >= 1."""
        ...

    @property
    def action_dim(self) -> int:
        """Numbers in one action."""
        ...

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Shape of the noise."""
        ...

    def act(self, obs: Any, noise: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return actions, float32 [chunk, action_dim] in [-1, 1], for one observation and noise of `noise_shape`."""
        ...
