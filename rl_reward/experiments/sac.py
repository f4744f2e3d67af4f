"""What a SAC experiment lets its author choose, and who judges its arms. Importing this loads nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

from rl_reward._checks import check_int, check_number, check_text, entropy_start
from rl_reward.backends.base import Backend, Request
from rl_reward.backends.cache import Cached
from rl_reward.backends.simulated import Simulated
from rl_reward.backends.spec import FORMS, is_model, model_backend
from rl_reward.envs import axes_of, config_of
from rl_reward.errors import ConfigError
from rl_reward.experiments.frozen import check_policy
from rl_reward.experiments.results import RunResult
from rl_reward.judges.captions import Anchors, CaptionJudge
from rl_reward.judges.carry import Scene, carry_anchors, carry_judge, check_words
from rl_reward.judges.push import push_exemplars
from rl_reward.judges.rule import CaptionRule
from rl_reward.rewards import Constant, Oracle, ProgressJudge, Shuffled
from rl_reward.shaping import Form, Shaping
from rl_reward.types import STEP_KEY, Trajectory
from rl_reward.verifier import Verifier

_LEAST = {
    **dict.fromkeys(("total_steps", "eval_every", "eval_episodes", "n_envs", "train_freq", "every", "threads"), 1),
    **dict.fromkeys(("batch_size", "buffer_size", "n_critics"), 1),
    **dict.fromkeys(("eval_seed", "learning_starts", "lag"), 0),
    "gradient_steps": -1,
}

JUDGES = ("none", "oracle", "constant", "simulated", "caption-rule")
"""Judges that are no language model."""
Reads = Literal["steps", "captions"]
# Whom a setting of an arm speaks to, where not every judge listens; any other would ignore it without a word.
_SPEAKS_TO = {
    **dict.fromkeys(("noise", "bias", "saturation", "unscored_rate"), "simulated"),
    "value": "constant",
    **dict.fromkeys(("base_url", "max_images", "cache", "criteria", "repeats"), "a language model"),
}


@dataclass(frozen=True)
class Steering:
    """SAC acts on the noise of a frozen policy (DSRL, arXiv 2506.15799) instead of on the robot."""

    policy: str
    """A shipped policy by name (see `rl_reward.experiments.frozen`), or the .safetensors file of a flow policy, or
    "hold": no policy, the action itself is held for a chunk (with noise_bound 1 the whole range of the robot's)."""
    chunk: int = 10
    """Low-level steps played per decision, >= 1."""
    noise_bound: float = 1.5
    """The agent's noise is in [-noise_bound, noise_bound], > 0."""

    pays: Literal["sum", "last"] = "last"
    """What a decision earns: the discounted sum of its low-level rewards, or the last of them."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_int("chunk", self.chunk, least=1)
        check_number("noise_bound", self.noise_bound, above=0)


@dataclass(frozen=True)
class CarryTask:
    """Both ends of a task of carrying something, as the judge of single captions needs them: from the task alone."""

    thing: str
    """What is carried, as the captions call it."""
    start: tuple[Scene, ...]
    """Scenes before anything is done, one or more."""
    goal: tuple[Scene, ...]
    """Scenes of the solved task, one or more."""

    def __post_init__(self) -> None:
        """Check that the thing and both ends are there, and that one end is not the other."""
        check_text("thing", self.thing)
        for name in ("start", "goal"):
            if not getattr(self, name):
                raise ConfigError(f"{name} must hold at least 1 scene, got none")
        least, most = min(scene.left for scene in self.start), max(scene.left for scene in self.goal)
        if most >= least:
            raise ConfigError(
                f"the thing must be nearer its place in every goal than in any start, got {most:.3f} m in a goal and "
                f"{least:.3f} m in a start; are they swapped?"
            )

    def anchors(self, env: str, *, numbers: bool) -> Anchors:
        """Return the captions of both ends, worded as the environment words them; `env` as for `envs.make`."""
        return carry_anchors(self.thing, self.start, self.goal, axes=axes_of(env), numbers=numbers)


@dataclass(frozen=True)
class SacConfig:
    """What all arms share. With `steering` an update, a buffer row and `lag` belong to decisions, not to steps."""

    x_label: ClassVar[str] = "environment steps"

    env: str
    """Task environment, e.g. "fetch/FetchReach-v4" (see `rl_reward.envs.make`)."""
    total_steps: int
    """Low-level environment steps of a run, warm-up included."""
    eval_every: int
    """Environment steps between evaluations; must divide `total_steps`."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the environment, e.g. stride, max_steps, terminate_on_success."""
    steering: Steering | None = None
    """Steer a frozen policy; None: actions go to the robot."""
    eval_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options in which the environment of evaluations differs, e.g. where its episodes start."""
    eval_episodes: int = 20
    """Episodes of one evaluation, from the same initial states every time and in every arm."""
    eval_seed: int = 1_000_000
    """Seed of the first evaluation episode, the next one has the next seed; far from the seeds of the runs."""
    n_envs: int = 1
    """Environments stepped together; must divide `eval_every`."""
    learning_starts: int = 500
    """Environment steps with random actions before learning; when steering they are the frozen policy's own noise."""
    train_freq: int = 1
    """Steps (decisions) of every environment between updates."""
    gradient_steps: int = 1
    """Gradient steps of one update; -1: as many as steps (decisions) since the last one."""
    net_arch: tuple[int, ...] = (256, 256)
    """Hidden layers of actor and critics."""
    n_critics: int = 2
    """Critics; the smallest value of all counts."""
    layer_norm: bool = False
    """Whether critics have LayerNorm, which keeps Q bounded outside the data."""
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
    """Entropy coefficient; "auto" learns it from 1, "auto_0.05" from 0.05."""
    target_entropy: float | str = "auto"
    """What a learned entropy coefficient aims at; "auto": minus the number of action dimensions."""
    average: float = 1.0
    """Evaluations look at a running average of the actor, into which it moves by this share at every step (decision),
    in (0, 1]; 1: at the actor itself."""
    normalize_obs: bool = False
    """Whether observations are scaled by their running mean and deviation (SB3's VecNormalize)."""
    carry: CarryTask | None = None
    """Both ends of the task, where an arm's judge reads captions."""
    examples: Literal["push"] | None = None
    """What a judge that reads captions is shown beforehand: examples of carrying (None), or of pushing and pressing."""
    rule: CaptionRule | None = None
    """The lengths of the judge caption-rule, where its own do not suit the task."""
    every: int = 1
    """The judge is asked about every `every`-th `Step` the environment emits, the first and the last."""
    lag: int = 0
    """Environment steps every transition is held back at least, in all arms; hides the delay of a slow judge."""
    threads: int = 1
    """Threads of torch in one run."""

    def __post_init__(self) -> None:
        """Check every number, and that evaluations fall on environment steps that exist."""
        for name, least in _LEAST.items():
            check_int(name, getattr(self, name), least=least)
        for units in self.net_arch:
            check_int("a layer of net_arch", units, least=1)
        check_number("learning_rate", self.learning_rate, above=0)
        check_number("gamma", self.gamma, above=0, most=1)
        check_number("tau", self.tau, above=0, most=1)
        check_number("average", self.average, above=0, most=1)
        entropy_start(self.ent_coef)
        if self.target_entropy != "auto":
            check_number('target_entropy, where it is not "auto",', self.target_entropy)
        if self.total_steps % self.eval_every or self.eval_every % self.n_envs:
            raise ConfigError(
                "n_envs must divide eval_every and eval_every must divide total_steps, "
                f"got {self.n_envs}, {self.eval_every} and {self.total_steps}"
            )
        if self.eval_every < self.n_envs * self.chunk:
            raise ConfigError(
                f"eval_every must be at least n_envs x chunk = {self.n_envs * self.chunk} steps, got {self.eval_every}"
            )
        if self.gradient_steps == 0:
            raise ConfigError("gradient_steps must be at least 1, or -1 for as many as steps, got 0")
        if "reward" in {*self.options, *self.eval_options}:
            raise ConfigError("options.reward belongs to each arm, not to the options of the environment")

    @property
    def chunk(self) -> int:
        """Low-level steps of one decision; 1 without steering."""
        return self.steering.chunk if self.steering else 1

    @property
    def y_label(self) -> str:
        """What success means here."""
        forms = {"final": "success rate at the final step", "latched": "success rate, solved at any step"}
        return forms.get(self.options.get("success", ""), "success rate")


@dataclass(frozen=True)
class SacArm:
    """One reward: what the environment pays, and what a judge adds to it."""

    name: str
    """As tables and plots call it; a simulated judge must show in it by its full name."""
    reward: Literal["zero_one", "minus_one_zero"] = "minus_one_zero"
    """What the environment pays: 1 where the task is solved and 0 elsewhere, or 0 there and -1 elsewhere."""
    judge: str = "none"
    """Who scores progress: none (sparse), oracle, constant, simulated, caption-rule, openai:MODEL or local:FOLDER."""
    reads: Reads = "steps"
    """What a language model is shown: all steps so far, or the last one's caption, few-shot (see `carry_judge`)."""
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
    base_url: str | None = None
    """Address of the server of an "openai:MODEL" judge, up to and with "/v1"."""
    max_images: int | None = None
    """Images in one question to a language model at most; None: all."""
    cache: str | None = None
    """File that keeps a language model's answers, shared by all runs; None: every run asks anew."""
    criteria: str = "manipulation"
    """What a language model is asked: a built-in set of criteria, or a .toml or .md file."""
    repeats: int = 1
    """K, times it is asked about a caption, >= 1; a repeat draws the order of the examples anew."""

    def __post_init__(self) -> None:
        """Check that judge, weight and name belong together."""
        if self.judge not in JUDGES and not is_model(self.judge):
            raise ConfigError(f"judge must be {', '.join(JUDGES)}, {FORMS}, got {self.judge!r}")
        check_number("weight", self.weight, least=0)
        check_number("value", self.value, least=0, most=1)
        check_int("repeats", self.repeats, least=1)
        if (self.judge == "none") != (self.weight == 0.0):
            raise ConfigError(f"weight must be above 0 with a judge and 0 without, got {self.weight} with {self.judge}")
        for name, listener in _SPEAKS_TO.items():
            listens = is_model(self.judge) if listener == "a language model" else self.judge == listener
            if not listens and getattr(self, name) != getattr(type(self), name):
                raise ConfigError(f"{name} is for {listener} as a judge, got judge {self.judge}; leave {name} out")
        if self.judge == "none" and self.shuffled:
            raise ConfigError("there is nothing to shuffle without a judge; name one")
        if self.judge != "none" and self.her:
            raise ConfigError(f"her recomputes rewards, so those of judge {self.judge} would be lost; set judge: none")
        if self.reads == "captions" and not is_model(self.judge):
            raise ConfigError(f"reads: captions is for a language model, got judge {self.judge}")
        if self.reads == "captions" and (self.criteria != "manipulation" or self.max_images is not None):
            raise ConfigError("criteria and max_images say nothing to a judge that reads captions; leave them out")
        if self.reads == "steps" and self.repeats > 1:
            raise ConfigError(
                f"repeats draw the order of examples anew, and reads: steps shows none, got {self.repeats}; set reads: "
                "captions, or leave repeats out"
            )
        if self.form == "step_cost" and self.reward != "zero_one":
            raise ConfigError("step_cost subtracts 1 itself; set reward: zero_one")
        if self.judge == "simulated" and (full := self._simulated(0).name) not in self.name:
            raise ConfigError(f"the name of an arm with this judge must say {full}, got {self.name!r}")

    def shaping(self, config: SacConfig) -> Shaping:
        """Return how progress becomes reward; weight 0 is the sparse reward on the same code path."""
        terminates = config_of(config.env, **config.options).terminate_on_success
        # A transition is a decision: the learner and its shaping discount over the whole chunk.
        return Shaping(self.form, self.weight, config.gamma**config.chunk, terminates, self.reward)

    def judge_of(self, config: SacConfig, seed: int) -> ProgressJudge | None:
        """Return who scores the episodes of the run with this seed, None for a sparse arm."""
        if self.judge == "none":
            return None
        judge = self._judge(config, seed)
        return Shuffled(judge, seed=seed) if self.shuffled else judge

    def _judge(self, config: SacConfig, seed: int) -> ProgressJudge:
        if self.judge == "oracle":
            return Oracle()
        if self.judge == "constant":
            return Constant(self.value)
        if self.judge == "caption-rule":
            return config.rule or CaptionRule()
        if self.judge == "simulated":
            return Verifier(self._simulated(seed))
        backend = model_backend(self.judge, base_url=self.base_url)
        if self.cache is not None:
            Path(self.cache).parent.mkdir(parents=True, exist_ok=True)
            backend = Cached(backend, self.cache)
        if self.reads == "captions":
            return _caption_judge(backend, config, self)
        return Verifier(backend, criteria=self.criteria, max_images=self.max_images)

    def _simulated(self, seed: int) -> Simulated:
        faults = {name: getattr(self, name) for name in ("noise", "bias", "saturation", "unscored_rate")}
        return Simulated(_true_progress, **faults, seed=seed)


def check(config: SacConfig, arm: SacArm) -> None:
    """Raise ConfigError where an arm could not run, before any other arm has run for hours."""
    config_of(config.env, **{**config.options, **config.eval_options, "reward": arm.reward})
    if config.steering is not None:
        check_policy(config.steering.policy)
    if arm.reads == "captions" and config.carry is None:
        raise ConfigError(f"{arm.name} reads captions, which needs both ends of the task; add them to sac as carry")


def check_captions(config: SacConfig, arm: SacArm, env: Any) -> None:
    """Raise ConfigError where `carry` speaks of other things than the captions of `env` do; resets it once.

    Args:
        config: What all arms share.
        arm: Only an arm that reads captions has something to check.
        env: The task environment, or one that steers a policy in it; best one of evaluations, whose next reset has a
            seed, so that no random stream moves on.
    """
    if arm.reads != "captions":
        return
    check(config, arm)
    assert config.carry is not None
    _, info = env.reset(seed=config.eval_seed)
    numbers = config_of(config.env, **config.options).numbers
    check_words(config.carry.anchors(config.env, numbers=numbers), info[STEP_KEY].text)


def run(config: SacConfig, arm: SacArm, seed: int, out: Path, tick: Callable[[int, int], None]) -> RunResult:
    """Train one agent and return its learning curve.

    Args:
        config: What all arms share.
        arm: What this arm is paid. All arms but the hindsight reference run the same code; sparse ones have weight 0.
        seed: Of networks, exploration, training starts and judge. Evaluation starts are always the same.
        out: Folder of this run; gets the last checkpoint.
        tick: Called with (environment steps done, in all), about a hundred times.

    Raises:
        ConfigError: Settings do not fit each other, the environment or the judge.
        BackendError: The judge cannot serve, or too much is unscored.
    """
    # By name, because that module imports this one and loads all that is heavy.
    return import_module("rl_reward.experiments.sac_training").train(config, arm, seed, out, tick)


def _caption_judge(backend: Backend, config: SacConfig, arm: SacArm) -> CaptionJudge:
    """Return the judge of single captions, worded as the environment words them and anchored on its task."""
    check(config, arm)
    assert config.carry is not None
    axes = axes_of(config.env)
    numbers = config_of(config.env, **config.options).numbers
    ends = config.carry.anchors(config.env, numbers=numbers)
    shots = push_exemplars(axes=axes, numbers=numbers) if config.examples == "push" else None
    return carry_judge(backend, axes=axes, numbers=numbers, anchors=ends, exemplars=shots, repeats=arm.repeats)


def _true_progress(request: Request) -> float:
    """Return the progress at the checkpoint a simulated judge is asked about."""
    assert isinstance(request.candidate, Trajectory)
    return float(request.candidate.steps[-1].data["progress"])
