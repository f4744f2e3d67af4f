"""What a SAC experiment lets its author choose, and who judges its arms. Importing this loads nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rl_reward.backends.base import Request
from rl_reward.backends.simulated import Simulated
from rl_reward.errors import ConfigError
from rl_reward.experiments.results import RunResult
from rl_reward.rewards import Constant, Oracle, ProgressJudge, Shuffled
from rl_reward.shaping import Form, Shaping
from rl_reward.types import Trajectory
from rl_reward.verifier import Verifier


@dataclass(frozen=True)
class SacConfig:
    """What all arms of a SAC experiment share."""

    x_label = "environment steps"
    y_label = "success rate"

    env: str
    """Task environment, e.g. "fetch/FetchReach-v4" (see `rl_reward.envs.make`)."""
    total_steps: int
    """Low-level environment steps of a run, warm-up included."""
    eval_every: int
    """Environment steps between evaluations; must divide `total_steps`."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the environment, e.g. stride, max_steps, terminate_on_success."""
    eval_episodes: int = 20
    """Episodes of one evaluation, from the same initial states every time and in every arm."""
    eval_seed: int = 1_000_000
    """Seed of the first evaluation episode, the next one has the next seed; far from the seeds of the runs."""
    n_envs: int = 1
    """Environments stepped together; must divide `eval_every`."""
    learning_starts: int = 500
    """Environment steps with random actions before learning."""
    train_freq: int = 1
    """Steps of every environment between updates."""
    gradient_steps: int = 1
    """Gradient steps of one update; -1: as many as environment steps."""
    net_arch: tuple[int, ...] = (256, 256)
    """Hidden layers of actor and critics."""
    learning_rate: float = 3e-4
    """Of actor, critics and entropy coefficient."""
    gamma: float = 0.99
    """Discount per environment step; potential shaping uses the same."""
    tau: float = 0.005
    """Share of the critics that moves into their targets in one gradient step."""
    batch_size: int = 256
    """Transitions in one gradient step."""
    buffer_size: int = 1_000_000
    """Transitions the replay buffer holds."""
    ent_coef: float | str = "auto"
    """Entropy coefficient; "auto" learns it."""
    normalize_obs: bool = False
    """Whether observations are scaled by their running mean and deviation (SB3's VecNormalize)."""
    every: int = 1
    """The judge is asked about every `every`-th `Step` the environment emits, the first and the last."""
    lag: int = 0
    """Environment steps every transition is held back at least, in all arms; hides the delay of a slow judge."""
    threads: int = 1
    """Threads of torch in one run."""

    def __post_init__(self) -> None:
        """Check that evaluations fall on environment steps that exist."""
        for name in ("total_steps", "eval_every", "eval_episodes", "n_envs", "train_freq", "every", "threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.total_steps % self.eval_every or self.eval_every % self.n_envs:
            raise ConfigError(
                "n_envs must divide eval_every and eval_every must divide total_steps, "
                f"got {self.n_envs}, {self.eval_every} and {self.total_steps}"
            )
        if reserved := {"reward"} & set(self.options):
            raise ConfigError(f"options.{min(reserved)} belongs to each arm, not to the options of the environment")


@dataclass(frozen=True)
class SacArm:
    """One reward: what the environment pays, and what a judge adds to it."""

    name: str
    """As tables and plots call it; a judge that is not real must show in it."""
    reward: Literal["zero_one", "minus_one_zero"] = "minus_one_zero"
    """What the environment pays: 1 where the task is solved and 0 elsewhere, or 0 there and -1 elsewhere."""
    judge: Literal["none", "oracle", "constant", "simulated", "verifier"] = "none"
    """Who scores progress: nobody (sparse), the truth, a constant, a simulated judge, or a language model."""
    shuffled: bool = False
    """Control: every episode gets the judge's curve of another, earlier one."""
    form: Form = "potential"
    """How progress becomes reward (see `rl_reward.shaping`)."""
    weight: float = 0.0
    """Scale of the progress term; must be 0 without a judge and above 0 with one."""
    her: bool = False
    """Reference: SB3's own hindsight replay instead of the relabelling buffer; needs goals, takes no judge."""
    noise: float = 0.0
    """Standard deviation of the simulated judge's error."""
    bias: float = 0.0
    """Added to every score of the simulated judge."""
    saturation: float = 0.0
    """The simulated judge cannot tell progress above 1 - saturation from 1."""
    unscored_rate: float = 0.0
    """Share of the simulated judge's replies without a score."""
    value: float = 0.5
    """Score of the constant judge."""
    backend: str = ""
    """The verifier's model: "openai:MODEL" or "local:PATH"."""
    criteria: str | None = None
    """The verifier's criteria: a built-in set or a file."""

    def __post_init__(self) -> None:
        """Check that judge, weight and name belong together."""
        if (self.judge == "none") != (self.weight == 0.0):
            raise ConfigError(f"weight must be 0 without a judge and above 0 with one, got {self.weight} with {self.judge}")
        if self.her and self.judge != "none":
            raise ConfigError(f"her recomputes rewards, so a judge's would be lost; got judge {self.judge}")
        if (self.judge == "verifier") != bool(self.backend):
            raise ConfigError(f"judge verifier, and only it, needs a backend, got {self.judge} with {self.backend!r}")
        if self.judge == "simulated" and "simulated" not in self.name:
            raise ConfigError(f"an arm with a simulated judge must say simulated in its name, got {self.name!r}")

    def shaping(self, config: SacConfig) -> Shaping:
        """Return how progress becomes reward; weight 0 is the sparse reward on the same code path."""
        terminates = bool(config.options.get("terminate_on_success", False))
        return Shaping(self.form, self.weight, config.gamma, terminates_on_success=terminates)


def judge_of(arm: SacArm, seed: int) -> ProgressJudge | None:
    """Return who scores the episodes of `arm` in the run with this seed, None for a sparse arm."""
    if arm.judge == "none":
        return None
    judge = _judge(arm, seed)
    return Shuffled(judge, seed=seed) if arm.shuffled else judge


def run(config: SacConfig, arm: SacArm, seed: int, out: Path, tick: Callable[[int, int], None]) -> RunResult:
    """Train one agent and return its curve; `out` gets its last checkpoint, `tick` (steps done, steps in all)."""
    from rl_reward.experiments.sac_training import train

    return train(config, arm, judge_of(arm, seed), seed, out, tick)


def _judge(arm: SacArm, seed: int) -> ProgressJudge:
    if arm.judge == "oracle":
        return Oracle()
    if arm.judge == "constant":
        return Constant(arm.value)
    if arm.judge == "simulated":
        return Verifier(
            Simulated(
                _true_progress,
                noise=arm.noise,
                bias=arm.bias,
                saturation=arm.saturation,
                unscored_rate=arm.unscored_rate,
                seed=seed,
            )
        )
    return Verifier(_backend(arm.backend), criteria=arm.criteria)


def _true_progress(request: Request) -> float:
    """Return the progress at the checkpoint a simulated judge is asked about."""
    assert isinstance(request.candidate, Trajectory)
    return float(request.candidate.steps[-1].data["progress"])
