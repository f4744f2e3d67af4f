"""True progress from positions: what a perfect judge would say, for oracle arms and simulated judges."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

APPROACH = 0.3
"""Share of the progress that reaching the object earns while the object has not moved."""


def distance(a: ArrayLike, b: ArrayLike) -> float:
    """Return the Euclidean distance of two points, in their unit."""
    return float(np.linalg.norm(np.subtract(a, b)))


def closeness(now: float, initial: float) -> float:
    """Return the share of a distance that is covered, 1 - now / initial, clipped to [0, 1]."""
    if initial <= 0.0:
        return float(now <= 0.0)
    return min(max(1.0 - now / initial, 0.0), 1.0)


def staged(approach: float, placed: float) -> float:
    """Return the progress of bringing an object somewhere: placed + (1 - placed) * APPROACH * approach.

    It grows with both shares (each in [0, 1]) and is 1 once the object is in place, wherever the hand is then.
    """
    return placed + (1.0 - placed) * APPROACH * approach
