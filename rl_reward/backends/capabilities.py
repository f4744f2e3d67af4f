"""What a model was found to be able to do, asked and not guessed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Capabilities:
    """The findings of a probe."""

    logprobs: bool
    """Whether answers come with the logprobs of their tokens and of alternatives."""
    alternatives: int
    """How many alternatives stood at the score."""
    coverage: float | None
    """Probability on the letters A..T at the score, in [0, 1]; None where no score could be read."""
    prefill: bool
    """Whether an answer can be begun for the model."""
    images: bool
    """Whether an image in a question reaches the model (it then costs prompt tokens)."""
    latency: float
    """Seconds of one score, the connection being open."""
    models: tuple[str, ...] = ()
    """The models that the server names, empty where it names none."""
    problem: str = ""
    """Why no score can be read and what to change; empty where scores can be read."""
