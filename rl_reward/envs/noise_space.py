"""The space of a frozen policy's noise: a box to a learner, whose random actions are the policy's own noise."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

_NORMAL = NormalDist()
_LEAST = 1e-300  # beyond 37 deviations the probability rounds to 0, which has no quantile


class NoiseSpace(spaces.Box):
    """A box [-bound, bound]^size that samples N(0, I), cut off at the bound.

    Hosts fill their warm-up with `sample()`. Uniform noise would show the learner a policy nobody has; this shows it
    the frozen policy as it is.
    """

    def __init__(self, bound: float, size: int) -> None:
        """Make the space of `size` numbers in [-bound, bound]."""
        super().__init__(-bound, bound, (size,), np.float32)
        self.bound = bound
        self._least = max(_NORMAL.cdf(-bound), _LEAST)

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[Any]:
        """Return noise, float32 [size]; `mask` and `probability` must be None, as for every box."""
        if mask is not None or probability is not None:
            return super().sample(mask, probability)
        shares = self.np_random.uniform(self._least, 1.0 - self._least, self.shape)
        noise = np.array([_NORMAL.inv_cdf(share) for share in shares], dtype=np.float32)
        return noise.clip(-self.bound, self.bound)
