"""Who judges the completions of a GRPO arm: models, the stand-in, simulated judges, and the shuffled control."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rl_reward.adapters.trl.step_reward import NOTHING_YET
from rl_reward.backends.base import Backend, Request
from rl_reward.backends.simulated import Simulated
from rl_reward.backends.spec import is_model, model_backend
from rl_reward.criteria import Criteria
from rl_reward.errors import ConfigError
from rl_reward.experiments.additions.exemplars import CRITERION, EXEMPLARS
from rl_reward.experiments.additions.task import DIGITS, credit_so_far, partial_credit
from rl_reward.experiments.grpo import GrpoArm, GrpoConfig
from rl_reward.prompts import Exemplar
from rl_reward.scale import ScoreScale
from rl_reward.scores import ProgressCurve, Ranking, Score
from rl_reward.types import Candidate, Trajectory
from rl_reward.verifier import Verifier

T = TypeVar("T")


def judge_of(config: GrpoConfig, arm: GrpoArm, seed: int) -> Verifier | ShuffledInGroups:
    """Return who scores the completions of `arm`; without a judge one that always says 0.5.

    Raises:
        ConfigError: The judge reads additions and the dataset is another.
    """
    if arm.judge in ("stand-in", "oracle", "simulated") and config.dataset not in DIGITS:
        raise ConfigError(f"judge {arm.judge} reads additions only, got dataset {config.dataset!r}; name openai:MODEL")
    asked: dict[str, Any] = {
        "max_concurrency": config.judge.max_concurrency,
        "deadline": config.judge.deadline,
        "preference_temperature": config.judge.preference_temperature,
        "seed": seed,
    }
    verifier = Verifier(_backend(config, arm, seed), **asked, **_question(config, arm))
    return ShuffledInGroups(verifier, seed) if arm.shuffled else verifier


def _question(config: GrpoConfig, arm: GrpoArm) -> dict[str, Any]:
    """Return how the judge is asked."""
    judge = config.judge
    often: dict[str, Any] = {"repeats": judge.repeats, "analysis": judge.analysis}
    if judge.by_example and is_model(arm.judge):
        shots = EXEMPLARS if judge.exemplars is None else exemplars_of(Path(judge.exemplars))
        return {
            "criteria": [CRITERION],
            "scale": ScoreScale.digits(),
            "exemplars": shots,
            "style": "completion",
            **often,
        }
    criteria = judge.criteria if is_model(arm.judge) else None
    return {"criteria": criteria, "scale": ScoreScale.letters(judge.levels), **often}


def exemplars_of(file: Path) -> tuple[Exemplar, ...]:
    """Return the judged examples of a jsonl file, one or more.

    Raises:
        ConfigError: The file cannot be read, is empty, or a line is no example.
    """
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read exemplars {str(file)!r}: {error.strerror or error}") from error
    shots: list[Exemplar] = []
    for number, line in enumerate(lines, start=1):
        try:
            shots.append(Exemplar(**json.loads(line)))
        except (TypeError, ValueError) as error:
            wanted = '{"task": ..., "candidate": ..., "level": "0" to "9"}'
            raise ConfigError(f"{file}:{number} must be {wanted}, got {line!r:.80}") from error
    if not shots:
        raise ConfigError(f"exemplars {str(file)!r} holds no line; give 4 or more judged examples")
    return tuple(shots)


def _backend(config: GrpoConfig, arm: GrpoArm, seed: int) -> Backend:
    if is_model(arm.judge):
        return model_backend(arm.judge, base_url=config.judge.base_url)
    if arm.judge == "stand-in":
        # Imported here because it loads torch, which the other arms' settings do without.
        from rl_reward.experiments.additions.standin import STAND_INS, StandIn

        return StandIn(STAND_INS[config.dataset])
    if arm.judge == "simulated":
        return Simulated(_right_share, seed=seed, **arm.faults)
    return Simulated(_right_share if arm.judge == "oracle" else _indifferent)


def _right_share(request: Request) -> float:
    """Return the true quality: the fraction of the numbers that are right, of those so far where progress is asked."""
    if request.kind != "progress":
        return partial_credit(request.task, request.text)
    candidate = request.candidate
    steps = candidate.steps if isinstance(candidate, Trajectory) else ()
    return credit_so_far(request.task, "".join(step.text for step in steps))


def _indifferent(request: Request) -> float:
    """Return the one quality of all: the sparse arm runs the code of the others, its weight is 0."""
    return 0.5


class ShuffledInGroups:
    """Control: hands what was judged of one task to its answers in random order; spread stays, meaning goes."""

    def __init__(self, verifier: Verifier, seed: int) -> None:
        """Shuffle what `verifier` says."""
        self.verifier = verifier
        self._random = np.random.default_rng(seed)

    async def ascore_many(
        self, pairs: Sequence[tuple[str, Candidate]], /, *, criteria: Criteria | None = None
    ) -> list[Score]:
        """Return the scores, those of each task permuted; cost stays with the score it was paid for."""
        scores = await self.verifier.ascore_many(pairs, criteria=criteria)
        return self._permuted(scores, [task for task, _ in pairs])

    async def atrack_many(self, episodes: Sequence[tuple[str, Sequence[str]]], /) -> list[ProgressCurve]:
        """Return the curves, those of each task and number of steps permuted; what a prompt alone scores stays."""
        curves = await self.verifier.atrack_many(episodes)
        return self._permuted(curves, [(task, len(steps), tuple(steps) == (NOTHING_YET,)) for task, steps in episodes])

    async def arank_many(self, groups: Sequence[tuple[str, Sequence[Candidate]]], /, **options: Any) -> list[Ranking]:
        """Return the rankings, the scores of each group permuted."""
        rankings = await self.verifier.arank_many(groups, **options)
        return [self._reordered(ranking) for ranking in rankings]

    def _permuted(self, results: Sequence[T], groups: Sequence[Hashable]) -> list[T]:
        shuffled = list(results)
        for group in dict.fromkeys(groups):
            places = [place for place, of in enumerate(groups) if of == group]
            for place, taken in zip(places, self._random.permutation(places), strict=True):
                shuffled[place] = results[taken]
        return shuffled

    def _reordered(self, ranking: Ranking) -> Ranking:
        order_N = self._random.permutation(len(ranking.scores))
        return replace(ranking, scores=ranking.scores[order_N], std_errors=ranking.std_errors[order_N])
