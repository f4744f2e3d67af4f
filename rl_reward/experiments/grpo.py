"""What a GRPO experiment lets its author choose, and who judges its arms. Importing this loads nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from rl_reward._checks import check_int, check_number
from rl_reward.adapters.trl import AsyncVerifier
from rl_reward.backends.base import Backend, Request
from rl_reward.backends.simulated import Simulated
from rl_reward.backends.spec import FORMS, is_model, model_backend
from rl_reward.criteria import Criteria
from rl_reward.errors import ConfigError
from rl_reward.experiments.additions.task import partial_credit
from rl_reward.experiments.results import RunResult
from rl_reward.scale import ScoreScale
from rl_reward.scores import Score
from rl_reward.types import Candidate
from rl_reward.verifier import Verifier

ScaleRewards = Literal["group", "batch", "none"]

_AT_LEAST_1 = (
    *("prompts_per_step", "micro_batches", "max_steps", "max_completion_length"),
    *("eval_every", "eval_problems", "eval_batch", "threads"),
)


@dataclass(frozen=True)
class JudgeConfig:
    """How a language model is asked; stand-in and oracle need none of it but `min_spread`."""

    base_url: str | None = None
    """Address of the server of an "openai:MODEL" judge, up to and with "/v1"."""
    criteria: str = "math"
    """A built-in set of criteria, or a .toml or .md file."""
    levels: int = 20
    """Letters of the scale, 2 to 26."""
    repeats: int = 1
    """K: how often each criterion is asked."""
    analysis: Literal["none", "sampled"] = "none"
    """Whether the judge writes an analysis before the verdict."""
    max_concurrency: int = 128
    """Requests in flight at once."""
    deadline: float | None = None
    """Seconds for one request, its retries included; null: the backend's own."""
    min_spread: float = 0.02
    """Groups whose scores differ less (sample std, score units) earn nothing from the judge."""
    max_unscored: float = 0.2
    """Share of unscored rows that stops the run."""


@dataclass(frozen=True)
class GrpoArm:
    """What one arm is paid beside r_correct + r_format."""

    name: str
    """As tables and plots call it; a judge that is no verifier must show in it."""
    judge: str = "none"
    """Who scores: none, stand-in or oracle (both for the additions alone), openai:MODEL or local:FOLDER."""
    weight: float = 0.0
    """Beta of r_i = r_correct + r_format + beta * r_reasoning; 0 in the sparse arm."""
    shuffled: bool = False
    """Control: the scores of each group are handed to its members in random order."""

    def __post_init__(self) -> None:
        """Check that judge, weight and name belong together."""
        if self.judge not in ("none", "stand-in", "oracle") and not is_model(self.judge):
            raise ConfigError(f"judge must be none, stand-in, oracle, {FORMS}, got {self.judge!r}")
        check_number("weight", self.weight, least=0)
        if (self.judge == "none") != (self.weight == 0.0):
            raise ConfigError(f"weight must be above 0 with a judge and 0 without, got {self.weight} with {self.judge}")
        if self.judge == "none" and self.shuffled:
            raise ConfigError("there is nothing to shuffle without a judge; name one")
        if self.judge in ("stand-in", "oracle") and self.judge not in self.name:
            raise ConfigError(f"an arm with judge {self.judge} must say {self.judge} in its name, got {self.name!r}")

    @property
    def judge_name(self) -> str:
        """Who judges, for results and tables."""
        name = {"stand-in": "stand-in verifier", "oracle": "oracle (partial credit)"}.get(self.judge, self.judge)
        return f"shuffled({name})" if self.shuffled else name


@dataclass(frozen=True)
class GrpoConfig:
    """What all arms share."""

    x_label = "optimizer steps"
    y_label = "exact-answer accuracy"

    model: str = "additions"
    """The policy: "additions" for the small one that ships with the package, or a path or name of any causal LM."""
    dataset: str = "additions"
    """"additions", a dataset of the Hugging Face hub, or a json, jsonl, csv or parquet file."""
    split: str = "train"
    """Training split of the dataset."""
    eval_split: str = ""
    """Held-out split; empty: the last `eval_problems` rows of `split` are held out."""
    prompt_column: str = "prompt"
    """Column with the problem."""
    answer_column: str = "answer"
    """Column with the answer, or a solution with the answer in a box."""
    instruction: str = ""
    """Appended to every problem, which then becomes a user message."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the policy's chat template, e.g. {enable_thinking: false}."""
    group_size: int = 8
    """G: completions of one problem."""
    prompts_per_step: int = 16
    """Problems of one optimizer step."""
    micro_batches: int = 1
    """Parts a step's completions are divided into, to save memory."""
    max_steps: int = 150
    """Optimizer steps."""
    learning_rate: float = 5e-5
    """Constant over the run."""
    kl: float = 0.0
    """Weight of the KL penalty (TRL calls it beta)."""
    temperature: float = 1.0
    """Of the completions that are trained on."""
    max_completion_length: int = 12
    """Tokens of a completion at most."""
    scale_rewards: ScaleRewards = "group"
    """What TRL divides the sum of all rewards by; see VerifierReward on where the weight bites."""
    format_weight: float = 0.1
    """Reward of a well-formed completion; a correct one earns 1."""
    eval_every: int = 10
    """Optimizer steps between evaluations; step 0 and the last are always evaluated."""
    eval_problems: int = 400
    """Held-out problems of every evaluation, answered greedily."""
    eval_batch: int = 400
    """Problems answered at once in evaluation."""
    use_cpu: bool = True
    """Stay on the CPU even where there is a GPU."""
    threads: int = 1
    """Threads of one run."""
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    """How a language model is asked."""
    trainer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further arguments of TRL's GRPOConfig; they win over everything above."""

    def __post_init__(self) -> None:
        """Refuse numbers outside their range."""
        for name in _AT_LEAST_1:
            check_int(name, getattr(self, name), least=1)
        check_int("group_size", self.group_size, least=2)  # a group of one teaches nothing
        check_number("learning_rate", self.learning_rate, above=0)
        check_number("temperature", self.temperature, above=0)
        for name in ("kl", "format_weight"):
            check_number(name, getattr(self, name), least=0)
        if self.scale_rewards not in get_args(ScaleRewards):
            raise ConfigError(f"scale_rewards must be group, batch or none, got {self.scale_rewards!r}")
        if self.completions_per_step % self.micro_batches:
            raise ConfigError(f"micro_batches must divide {self.completions_per_step}, got {self.micro_batches}")

    @property
    def completions_per_step(self) -> int:
        """Completions of one optimizer step."""
        return self.group_size * self.prompts_per_step


def judge_of(config: GrpoConfig, arm: GrpoArm, seed: int) -> AsyncVerifier:
    """Return who scores the completions of `arm`; without a judge one that always says 0.5.

    Raises:
        ConfigError: The judge reads additions and the dataset is another.
    """
    if arm.judge in ("stand-in", "oracle") and config.dataset != "additions":
        raise ConfigError(f"judge {arm.judge} reads additions only, got dataset {config.dataset!r}; name openai:MODEL")
    asked = config.judge
    verifier = Verifier(
        _backend(arm.judge, asked.base_url),
        criteria=asked.criteria if ":" in arm.judge else None,
        scale=ScoreScale.letters(asked.levels),
        repeats=asked.repeats,
        analysis=asked.analysis,
        max_concurrency=asked.max_concurrency,
        deadline=asked.deadline,
        seed=seed,
    )
    return ShuffledInGroups(verifier, config.group_size, seed) if arm.shuffled else verifier


class ShuffledInGroups:
    """Control: hands the scores of each group to its members in random order; spread stays, meaning goes."""

    def __init__(self, verifier: AsyncVerifier, group_size: int, seed: int) -> None:
        """Shuffle the scores of `verifier` inside groups of `group_size` neighbours."""
        self.verifier, self.group_size = verifier, group_size
        self._random = np.random.default_rng(seed)

    async def ascore_many(
        self, pairs: Sequence[tuple[str, Candidate]], /, *, criteria: Criteria | None = None
    ) -> list[Score]:
        """Return the scores of the pairs, each group's permuted; cost stays with the score it was paid for."""
        scores = await self.verifier.ascore_many(pairs, criteria=criteria)
        starts = range(0, len(scores), self.group_size)
        groups = [scores[start : start + self.group_size] for start in starts]
        return [group[i] for group in groups for i in self._random.permutation(len(group))]


def run(config: GrpoConfig, arm: GrpoArm, seed: int, out: Path, tick: Callable[[int, int], None]) -> RunResult:
    """Train one policy and return its learning curve.

    Args:
        config: What all arms share.
        arm: What this arm is paid. All arms run the same code; the sparse one has weight 0.
        seed: Of the order of problems, the completions and the shuffling. The held-out problems are always the same.
        out: Folder of this run; gets the last checkpoint.
        tick: Called with (steps done, steps in all) after every optimizer step.

    Raises:
        ConfigError: The arm does not fit the data, or a column, a file or a model is missing.
        BackendError: The judge cannot serve, or too many rows are unscored.
    """
    # By name, because that module imports this one and loads all that is heavy.
    return import_module("rl_reward.experiments.grpo_training").train(config, arm, seed, out, tick)


def _backend(judge: str, base_url: str | None) -> Backend:
    if is_model(judge):
        return model_backend(judge, base_url=base_url)
    if judge == "stand-in":
        # Imported here because it loads torch, which the other arms' settings do without.
        from rl_reward.experiments.additions.standin import StandIn

        return StandIn()
    return Simulated(_partial_credit if judge == "oracle" else _indifferent)


def _partial_credit(request: Request) -> float:
    """Return the oracle's quality: the fraction of the three numbers that are right."""
    return partial_credit(request.task, request.text)


def _indifferent(request: Request) -> float:
    """Return the one quality of all: the sparse arm runs the code of the others, its weight is 0."""
    return 0.5
