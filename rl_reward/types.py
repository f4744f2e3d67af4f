"""What a judge reads: steps, trajectories, frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_reward.errors import ConfigError

Image = str | Path | bytes | NDArray[np.uint8]
"""A file path, encoded PNG or JPEG bytes, or an RGB frame uint8 [H, W, 3]. Never a URL: nothing is fetched."""

STEP_KEY = "rl_reward"
"""Where an environment puts the `Step` of a checkpoint: `info[STEP_KEY]`, at reset and in the infos of `step`."""


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a trajectory as the judge sees it."""

    text: str = ""
    """What happened, in words."""
    image: Image | None = None
    """What it looked like."""
    data: Any = None
    """Privileged truth for simulated judges and oracles; no real backend ever sees it. Plain picklable values."""

    def __post_init__(self) -> None:
        """Refuse URLs and arrays that are no RGB frame."""
        if not isinstance(self.text, str):
            raise ConfigError(f"the text of a step must be a str, got {type(self.text).__name__}")
        if not isinstance(self.image, str | Path | bytes | np.ndarray | None):
            raise ConfigError(f"an image is a file, bytes or a frame, got {type(self.image).__name__}")
        if isinstance(self.image, str) and "://" in self.image:
            raise ConfigError(f"an image is a file, bytes or a frame, never a URL; got {self.image[:80]!r}")
        if isinstance(self.image, np.ndarray) and (self.image.dtype != np.uint8 or self.image.shape[2:] != (3,)):
            raise ConfigError(f"a frame must be uint8 [H, W, 3], got {self.image.dtype} {list(self.image.shape)}")


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Steps in the order they happened, at least one."""

    steps: tuple[Step, ...]
    """The steps."""

    def __post_init__(self) -> None:
        """Refuse a trajectory without steps."""
        object.__setattr__(self, "steps", tuple(self.steps))
        if not self.steps:
            raise ConfigError("a trajectory needs at least 1 step, got 0")

    @classmethod
    def of(cls, steps: Sequence[str | Step]) -> Trajectory:
        """Return the trajectory of `steps`, plain strings becoming steps of text."""
        if isinstance(steps, str | Trajectory) or not isinstance(steps, Sequence):
            raise ConfigError(f"steps must be a list of str or Step, got {type(steps).__name__}")
        odd = [step for step in steps if not isinstance(step, str | Step)]
        if odd:
            raise ConfigError(f"a step must be a str or a Step, got {type(odd[0]).__name__}")
        return cls(tuple(Step(step) if isinstance(step, str) else step for step in steps))

    @property
    def text(self) -> str:
        """The texts of the steps, one after another, without numbering."""
        return "\n".join(step.text for step in self.steps)

    def without_data(self) -> Trajectory:
        """Return the trajectory with the privileged `data` of every step removed."""
        return Trajectory(tuple(replace(step, data=None) for step in self.steps))

    def with_images(self, most: int) -> Trajectory:
        """Return the trajectory with at most `most` images (>= 1): the last, the first, and evenly spaced ones between.

        Every step stays, with its text; a single image is the last one.
        """
        seen = [number for number, step in enumerate(self.steps) if step.image is not None]
        if len(seen) <= most:
            return self
        places: list[float] = np.linspace(len(seen) - 1, 0, most).tolist()
        kept = {seen[round(place)] for place in places}
        return Trajectory(
            tuple(step if number in kept else replace(step, image=None) for number, step in enumerate(self.steps))
        )


Candidate = str | Trajectory
"""What is judged: a text, or a trajectory."""


@dataclass(frozen=True)
class Usage:
    """What judging cost; usages add up."""

    calls: int = 0
    """Requests a model answered (retries and failures included)."""
    prompt_tokens: int = 0
    """Tokens read."""
    completion_tokens: int = 0
    """Tokens written."""
    seconds: float = 0.0
    """Wall seconds inside requests, summed over concurrent ones."""

    def __add__(self, other: Usage) -> Usage:
        """Return the sum, field by field."""
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.seconds + other.seconds,
        )
