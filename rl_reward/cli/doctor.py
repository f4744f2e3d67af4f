"""`rl-reward doctor ENV or CONFIG`: what spoils training on shaped rewards, before it starts."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_args

import rl_reward.cli.output as output
import rl_reward.cli.tables as tables
from rl_reward.doctor import Finding, Training, examine, versions
from rl_reward.doctor.settings import hovering
from rl_reward.errors import ConfigError, MissingExtraError
from rl_reward.shaping import EnvReward, Form, Shaping

FORMS = "FILE.yaml, family/task of rl_reward.envs, module:function, or a gymnasium id"


@dataclass(frozen=True)
class _Patient:
    """One environment to look at, and what it is trained with."""

    name: str
    make_env: Callable[[], Any]
    training: Training
    shapings: Mapping[str, Shaping] = field(default_factory=dict[str, Shaping])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("target", help=FORMS)
    parser.add_argument("--form", choices=get_args(Form), default="potential", help="shaping form; default potential")
    parser.add_argument("--weight", type=float, help="weight of the progress term; without it no hover arithmetic")
    parser.add_argument("--gamma", type=float, default=0.99, help="the learner's discount; default 0.99")
    parser.add_argument(
        "--env-reward", choices=get_args(EnvReward), default="zero_one", help="what the env pays; default zero_one"
    )
    parser.add_argument("--success-goes-on", action="store_true", help="success does not end the episode")
    parser.add_argument("--learning-starts", type=int, help="env steps before learning")
    parser.add_argument("--lag", type=int, default=0, help="lag of the relabelling buffer; default 0")
    parser.add_argument("--n-envs", type=int, default=1, help="environments stepped together; default 1")
    parser.add_argument("--steps-needed", type=int, help="steps a solution takes, to compare with the time limit")
    parser.add_argument(
        "--ent-coef", type=ent_coef, help="of SAC over a frozen policy's noise: auto, auto_START or a number"
    )
    parser.add_argument("--episodes", type=int, default=3, help="random episodes; default 3")
    parser.add_argument("--seconds", type=float, default=120.0, help="wall seconds for one environment; default 120")
    parser.add_argument("--frame", help="write the first frame to this PNG file, to see whether it is upright")
    parser.set_defaults(command=doctor)


def doctor(options: argparse.Namespace) -> int:
    """Print every finding; return 1 where one is an error, else 0."""
    if options.frame is not None:
        output.check(options.frame)
    patients = _patients(options)
    found = _printed(versions(), "installed")
    frame: Any = None
    for patient in patients:
        done = examine(patient.make_env, patient.training, episodes=options.episodes, seconds=options.seconds)
        arms = [_of_arm(name, hovering(shaping)) for name, shaping in patient.shapings.items()]
        found += _printed([*done.findings, *arms], patient.name)
        frame = done.seen.frames[0] if frame is None and done.seen.frames else frame
    if options.frame is not None:
        _write_frame(options.frame, frame)
    errors, warned = (sum(one.severity == severity for one in found) for severity in ("error", "warn"))
    print(f"{errors} error{'s' * (errors != 1)}, {warned} warning{'s' * (warned != 1)}")
    return 1 if errors else 0


def ent_coef(text: str) -> float | str:
    """Return a number where `text` is one, else the text."""
    try:
        return float(text)
    except ValueError:
        return text


def _printed(findings: list[Finding], title: str) -> list[Finding]:
    print(tables.one_line(title))
    for one in findings:
        print(f"  {one.severity:<5}  {one.check:<20}  {tables.one_line(one.text)}", flush=True)
    return findings


def _patients(options: argparse.Namespace) -> list[_Patient]:
    if Path(options.target).suffix in (".yaml", ".yml"):
        return _of_config(options.target)
    pays = (options.form, options.weight, options.gamma, not options.success_goes_on, options.env_reward)
    shaping = _quiet(partial(Shaping, *pays)) if options.weight is not None else None
    told = (options.learning_starts, options.n_envs, options.lag, options.steps_needed, options.ent_coef)
    training = Training(shaping, *told)
    return [_Patient(options.target, factory(options.target, film=options.frame is not None), training)]


def _of_config(path: str) -> list[_Patient]:
    """Return the environments of the arms that pay different rewards; the arithmetic is done for every arm."""
    from rl_reward.experiments.config import load

    experiments = [experiment for experiment in load(path) if experiment.kind == "sac"]
    if not experiments:
        raise ConfigError(f"{path} holds no experiment of kind: sac; only those have an environment to look at")
    rewards = {e.name: dict.fromkeys(arm.reward for arm in e.arms.values() if not arm.her) for e in experiments}
    return [_of_arms(experiment, reward) for experiment in experiments for reward in rewards[experiment.name]]


def _of_arms(experiment: Any, reward: str) -> _Patient:
    """Return the environment of the arms that pay `reward`."""
    training: Any = importlib.import_module("rl_reward.experiments.sac_training")
    config = experiment.settings
    arms = [arm for arm in experiment.arms.values() if arm.reward == reward and not arm.her]
    shapings = {arm.name: _quiet(partial(arm.shaping, config)) for arm in arms if arm.weight}
    # In steps of the learner, which are decisions where a frozen policy is steered.
    starts = config.learning_starts // config.chunk
    told = Training(None, starts, config.n_envs, config.lag, ent_coef=config.ent_coef)
    title = f"{experiment.name}: {config.env}, reward {reward}"
    return _Patient(title, partial(training.build_env, config, arms[0]), told, shapings)


def _of_arm(name: str, finding: Finding) -> Finding:
    return Finding(finding.severity, finding.check, f"{name}: {finding.text}")


def factory(target: str, *, film: bool = False) -> Callable[[], Any]:
    """Return what builds the environment `target` names; with `film`, one that renders where gymnasium builds it.

    Raises:
        ConfigError: There is no such module, function, family, task or id.
        MissingExtraError: gymnasium is not installed.
    """
    from rl_reward.envs import FAMILIES, make

    module, colon, name = target.partition(":")
    if colon and name.isidentifier():
        return _function(module, name)
    if target.partition("/")[0] in FAMILIES:
        return partial(make, target)
    return _registered(target, film)


def _function(module: str, name: str) -> Callable[[], Any]:
    try:
        found = getattr(_imported(module), name, None)
    except ImportError as error:
        raise ConfigError(f"cannot import {module}: {error}; run this where it can be imported") from error
    if not callable(found):
        raise ConfigError(f"{module} has no function {name!r}; name one that builds the environment")
    return found


def _imported(module: str) -> Any:
    # From where the user stands, as `python -m` does.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return importlib.import_module(module)


def _registered(target: str, film: bool) -> Callable[[], Any]:
    try:
        gym: Any = importlib.import_module("gymnasium")
    except ImportError as error:
        raise MissingExtraError("gymnasium", "sb3") from error
    module, _, name = target.rpartition(":")
    try:
        if module:
            _imported(module)
        gym.spec(name)
    except (gym.error.Error, ImportError) as error:
        raise ConfigError(f"no environment {target!r}: {error}; give {FORMS}") from error
    return partial(gym.make, name, **({"render_mode": "rgb_array"} if film else {}))


def _quiet(build: Callable[[], Shaping]) -> Shaping:
    """Return a shaping without its warning: the findings say the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build()


def _write_frame(path: str, frame: Any) -> None:
    from rl_reward.backends.images import encode

    if frame is None:
        raise ConfigError("no frame was seen; build the environment with frames, or with render_mode='rgb_array'")
    Path(path).write_bytes(encode(frame).data)
    print(f"wrote {path}: see whether it is upright")
