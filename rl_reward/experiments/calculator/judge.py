"""Who judges the turns of the worked example: a simulated judge that knows the truth, and its shuffled control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rl_reward.backends.base import Request
from rl_reward.backends.simulated import Simulated
from rl_reward.experiments.calculator.task import progress
from rl_reward.scores import ProgressCurve, Score
from rl_reward.verifier import Verifier


def simulated_judge(*, noise: float = 0.0, seed: int = 0) -> Verifier:
    """Return a judge whose score of a conversation is its true `progress`, with `noise` (std of the error) to order."""
    return Verifier(Simulated(_true_progress, noise=noise, seed=seed), max_concurrency=1024)


class ShuffledTurns:
    """Control: what the turns of a rollout were worth is handed to its turns in random order.

    Every rollout gains as much as before, and so its group spreads as much; which turn gained it is lost.
    """

    def __init__(self, verifier: Verifier, seed: int) -> None:
        """Shuffle the gains of each episode that `verifier` tracks."""
        self.verifier = verifier
        self._random = np.random.default_rng(seed)

    async def atrack_many(self, episodes: Sequence[tuple[str, Sequence[str]]], /) -> list[ProgressCurve]:
        """Return the curves of the episodes, the order of each one's gains permuted; unscored curves stay."""
        return [self._shuffled(curve) for curve in await self.verifier.atrack_many(episodes)]

    def _shuffled(self, curve: ProgressCurve) -> ProgressCurve:
        if np.isnan(curve.values).any():
            return curve
        values_S = np.cumsum(self._random.permutation(np.diff(curve.values, prepend=0.0))).clip(0.0, 1.0)
        return replace(curve, values=values_S, scores=_with_values(curve, values_S.tolist()))


def _with_values(curve: ProgressCurve, values_S: list[float]) -> dict[int, Score]:
    return {step: replace(score, value=values_S[step]) for step, score in curve.scores.items()}


def _true_progress(request: Request) -> float:
    return progress(request.task, request.text)
