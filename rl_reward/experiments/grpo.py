"""What a GRPO experiment lets its author choose. Importing this loads nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from rl_reward._checks import check_int, check_number
from rl_reward.backends.spec import FORMS, is_model
from rl_reward.errors import ConfigError
from rl_reward.experiments.results import RunResult

ScaleRewards = Literal["group", "batch", "none"]

_AT_LEAST_1 = (
    *("prompts_per_step", "micro_batches", "max_steps", "max_completion_length"),
    *("eval_every", "eval_problems", "eval_batch", "threads"),
)


JUDGES = ("none", "stand-in", "simulated", "oracle")
"""Judges that are no language model; the last three read additions alone."""
Credit = Literal["none", "difference", "to_go", "min", "sum"]
Faults = ("noise", "length_bias", "slot_bias")


@dataclass(frozen=True)
class JudgeConfig:
    """How a judge is asked, and what its scores must be like to count."""

    base_url: str | None = None
    """Address of the server of an "openai:MODEL" judge, up to and with "/v1"."""
    criteria: str = "math"
    """A built-in set of criteria, or a .toml or .md file; for language models."""
    few_shot: bool = False
    """Show a language model judged additions beside their answers instead of instructions; for base models."""
    exemplars: str | None = None
    """The same with examples of your own: a jsonl file of {"task": ..., "candidate": ..., "level": "0" to "9"}."""
    reference: bool = False
    """Show the right answer to a language model, after the task."""
    levels: int = 20
    """Letters of the scale, 2 to 26."""
    repeats: int = 1
    """K: how often each criterion is asked; with examples, each time in another order."""
    analysis: Literal["none", "sampled"] = "none"
    """Whether the judge writes an analysis before the verdict."""
    pivots: int = 2
    """k of the tournaments."""
    preference_temperature: float = 1.0
    """Score difference that counts as one logit of preference, > 0."""
    max_concurrency: int = 128
    """Requests in flight at once."""
    deadline: float | None = None
    """Seconds for one request, its retries included; null: the backend's own."""
    min_spread: float | None = None
    """Groups whose scores differ less (sample std, score units) earn nothing from the judge; null: the reward's own."""
    max_unscored: float = 0.2
    """Share of unscored rows that stops the run."""

    def __post_init__(self) -> None:
        """Refuse two sets of examples, and settings that nobody would listen to beside examples."""
        if self.few_shot and self.exemplars is not None:
            raise ConfigError(f"few_shot and exemplars are two sets of examples; leave one out, got {self.exemplars!r}")
        for name in ("criteria", "analysis") if self.by_example else ():
            if getattr(self, name) != getattr(JudgeConfig, name):
                raise ConfigError(
                    f"a judge that sees examples alone has no {name}; leave it out, got {getattr(self, name)!r}"
                )

    @property
    def by_example(self) -> bool:
        """Whether a language model sees judged examples and no instructions."""
        return self.few_shot or self.exemplars is not None


@dataclass(frozen=True)
class GrpoArm:
    """What one arm is paid beside r_correct + r_format."""

    name: str
    """As tables and plots call it; a judge that is no verifier must show in it."""
    judge: str = "none"
    """Who scores: none, stand-in, simulated or oracle (these for the additions alone), openai:MODEL or local:FOLDER."""
    weight: float = 0.0
    """Beta of r_i = r_correct + r_format + beta * r_reasoning; 0 in the sparse arm."""
    mode: Literal["pointwise", "tournament"] = "pointwise"
    """Whether answers are scored one by one or against each other."""
    credit: Credit = "none"
    """The form of step credit (see `rl_reward.step_credit`); the judge then reads every step."""
    credit_weight: float = 0.0
    """w of step credit, in units of the advantage's own."""
    order_within: Literal["group", "correctness"] = "group"
    """Whether the judge also orders answers of which one is right and the other wrong."""
    shuffled: bool = False
    """Control: what was judged of each distinct problem is handed to its answers in random order."""
    noise: float = 0.0
    """Standard deviation of the errors of a simulated judge."""
    length_bias: float = 0.0
    """What a simulated judge adds for 1,000 characters."""
    slot_bias: float = 0.0
    """What a simulated judge adds to the first of two answers."""

    def __post_init__(self) -> None:
        """Check that judge, weights and name belong together."""
        if self.judge not in JUDGES and not is_model(self.judge):
            raise ConfigError(f"judge must be {', '.join(JUDGES)}, {FORMS}, got {self.judge!r}")
        for name in ("weight", "credit_weight", "noise"):
            check_number(name, getattr(self, name), least=0)
        paid = self.weight + self.credit_weight
        if (self.judge == "none") != (paid == 0.0):
            raise ConfigError(f"weight must be above 0 with a judge and 0 without, got {paid} with {self.judge}")
        if (self.credit == "none") != (self.credit_weight == 0.0):
            raise ConfigError(f"credit and credit_weight go together, got {self.credit} and {self.credit_weight}")
        if self.credit != "none" and (self.mode != "pointwise" or self.order_within != "group"):
            raise ConfigError(f"step credit reads each answer by itself, got mode {self.mode}, {self.order_within}")
        if self.judge == "none" and self.shuffled:
            raise ConfigError("there is nothing to shuffle without a judge; name one")
        if self.judge in JUDGES[1:] and self.judge not in self.name:
            raise ConfigError(f"an arm with judge {self.judge} must say {self.judge} in its name, got {self.name!r}")
        if any(self.faults.values()) and self.judge != "simulated":
            raise ConfigError(f"{', '.join(Faults)} belong to judge: simulated, got them with {self.judge}")

    @property
    def faults(self) -> dict[str, float]:
        """What is wrong with a simulated judge."""
        return {name: getattr(self, name) for name in Faults}

    @property
    def judge_name(self) -> str:
        """Who judges, for results and tables."""
        faults = ", ".join(f"{name}={value:g}" for name, value in self.faults.items() if value)
        names = {
            "stand-in": "stand-in verifier",
            "oracle": "oracle (partial credit)",
            "simulated": f"simulated({faults})",
        }
        name = names.get(self.judge, self.judge)
        return f"shuffled({name})" if self.shuffled else name


@dataclass(frozen=True)
class GrpoConfig:
    """What all arms share."""

    x_label = "optimizer steps"
    y_label = "exact-answer accuracy"

    model: str = "additions"
    """The policy: "additions" or "long-additions" for the small ones that ship, a model that `rl-reward fetch-model`
    fetched, or a path or name of any causal LM."""
    dataset: str = "additions"
    """"additions" (two digits), "long-additions" (three and four), a dataset of the Hugging Face hub, or a json, jsonl,
    csv or parquet file."""
    split: str = "train"
    """Training split of the dataset."""
    eval_split: str = ""
    """Held-out split; empty: the last `eval_problems` rows of `split` are held out."""
    prompt_column: str = "prompt"
    """Column with the problem."""
    answer_column: str = "answer"
    """Column with the answer, or a solution with the answer in a box."""
    answer_form: Literal["boxed", "plain"] = "boxed"
    r"""Where a completion has its answer: in \boxed{}, or anywhere; there the last number counts."""
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
    steps: str = "paragraphs"
    """Where a step ends, for step credit: paragraphs, numbered or sentences; the additions know theirs."""
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
