from __future__ import annotations

import re
import warnings
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import sick_envs as sick
from gymnasium.wrappers import NormalizeReward, TimeLimit, TransformReward
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rl_reward.doctor import Finding, Training, examine, versions
from rl_reward.doctor.settings import hovering
from rl_reward.doctor.versions import TESTED
from rl_reward.envs import make
from rl_reward.envs.steering import SteeringEnv
from rl_reward.errors import ConfigError
from rl_reward.policies.hold import Hold
from rl_reward.shaping import Shaping


def shaping(*args: Any, **kwargs: Any) -> Shaping:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Shaping(*args, **kwargs)


def problems(make_env: Any, training: Training | None = None, **kwargs: Any) -> list[Finding]:
    return [finding for finding in examine(make_env, training, **kwargs).findings if finding.severity != "ok"]


def unseen(env: Any) -> Any:
    """Return `env`, which will not be rendered: that needs OpenGL."""
    env.render_mode = None
    return env


class Plain(gym.Wrapper[Any, Any, Any, Any]):
    pass


class Autoreset(Plain):
    pass


# A healthy environment


def test_a_healthy_environment_has_no_finding_that_is_not_ok() -> None:
    training = Training(Shaping("potential", gamma=0.9), learning_starts=8, steps_needed=4)
    found = examine(sick.Healthy, training).findings
    assert {finding.severity for finding in found} == {"ok"}
    assert [finding.check for finding in found] == [
        "wrapper order", "time limit", "env reward", "end flags", "success key", "judge's steps", "task",
        "hovering", "learning_starts",
    ]  # fmt: skip
    # Episodes 0 and 2 are solved, 1 runs into the limit.
    assert Finding("ok", "end flags", "2 terminated, 1 truncated") in found
    assert Finding("ok", "success key", "told at the end of 3 episodes, true in 2") in found
    assert all("\n" not in finding.text for finding in found)


@pytest.mark.parametrize(
    "make_env",
    [
        lambda: Monitor(TimeLimit(sick.NoLimit(), 6)),
        lambda: DummyVecEnv([lambda: Monitor(sick.Healthy())] * 2),
        lambda: VecNormalize(DummyVecEnv([sick.Healthy]), norm_reward=False),
        lambda: unseen(make("fetch/FetchReach-v4", stride=10)),
        sick.Filmed,
    ],
)
def test_healthy_wrappers_vec_envs_and_tasks_of_ours(make_env: Any) -> None:
    assert problems(make_env) == []


@pytest.mark.parametrize(("limit", "ends"), [(6, (4, True, False)), (3, (3, False, True))])
def test_what_a_vec_env_says_is_read_from_its_first_env(limit: int, ends: tuple[int, bool, bool]) -> None:
    done = examine(lambda: DummyVecEnv([lambda: TimeLimit(sick.NoLimit(), limit)] * 2))
    # A VecEnv resets by itself, and the doctor once more with a seed, so only even episodes are seen: solved at 4.
    assert [(episode.length, episode.terminated, episode.truncated) for episode in done.seen.episodes] == [ends] * 3
    assert done.seen.limit == limit
    assert Finding("ok", "wrapper order", "DummyVecEnv > TimeLimit > NoLimit") in done.findings


# One defect each


@pytest.mark.parametrize(
    ("make_env", "severity", "check", "text"),
    [
        (sick.NoLimit, "warn", "time limit", r"none is declared \(longest episode: 8\); wrap it in gymnasium"),
        (sick.Endless, "error", "time limit", r"did not end in 50 steps; wrap it in gymnasium\.wrappers\.TimeLimit"),
        (sick.Overruns, "error", "time limit", "8 steps are declared and an episode had 12; set truncated"),
        (sick.LateIsTerminal, "error", "end flags", "time limit at step 8 sets terminated.*; set truncated instead"),
        (sick.NoSuccessKey, "error", "success key", "missing at the end of 3 of 3 episodes"),
        (sick.SuccessInWords, "error", "success key", "must be a bool, got 'yes'"),
        (sick.NotLatched, "warn", "success key", "true inside 3 of 3 episodes and false at their end; latch it"),
        (sick.NoSteps, "error", "judge's steps", "the reset info has no Step"),
        (sick.NoStepAtDone, "error", "judge's steps", "the done info has no Step"),
        (sick.NoTask, "warn", "task", "set env.task"),
        (sick.PaysNaN, "error", "env reward", "a step paid nan"),
        (sick.Dark, "error", "frame", "24x16, all of one colour"),
        (sick.Frozen, "warn", "frame", "the same at reset and at the end"),
        (sick.Floats, "error", "frame", r"must be uint8 \[H, W, 3\], got float64 \[16, 24, 3\]"),
        (sick.Blind, "warn", "frame", "RuntimeError: no display"),
        (sick.Upside, "warn", "frame", "robosuite cameras give frames upside down: rotate by 180 degrees"),
        (sick.OldReset, "error", "playing", r"TypeError before the first step: reset must return"),
        (sick.OldStep, "error", "playing", r"TypeError in step 1: step must return"),
        (sick.Breaks, "error", "playing", "RuntimeError in step 3: the gripper fell off"),
        (lambda: 1 / 0, "error", "playing", "ZeroDivisionError before the first step"),
        (lambda: NormalizeReward(sick.Healthy()), "error", "reward normalisation", "remove it"),
        (
            lambda: VecNormalize(DummyVecEnv([sick.Healthy])),
            "error",
            "reward normalisation",
            "set norm_reward=False",
        ),
        (lambda: Autoreset(sick.Healthy()), "error", "wrapper order", "Autoreset resets the env itself"),
        (lambda: TimeLimit(Monitor(sick.Healthy()), 7), "error", "wrapper order", "TimeLimit is outside Monitor"),
        (
            lambda: TransformReward(Monitor(sick.Healthy()), lambda reward: reward),
            "warn",
            "wrapper order",
            "TransformReward is outside Monitor.*put Monitor outermost",
        ),
        (
            lambda: TimeLimit(Plain(TimeLimit(sick.Healthy(), 7)), 6),
            "warn",
            "wrapper order",
            "2 TimeLimits, of 6, 7 steps",
        ),
    ],
)  # fmt: skip
def test_each_defect_is_found_and_nothing_else(make_env: Any, severity: str, check: str, text: str) -> None:
    (found,) = problems(make_env, max_steps=50)
    assert (found.severity, found.check) == (severity, check)
    assert re.search(text, found.text)


@pytest.mark.parametrize(
    ("make_env", "severity", "text"),
    [
        (sick.LateIsTerminalUndeclared, "warn", "all 3 episodes terminated after 8 steps, unsolved"),
        (sick.OldTimeLimit, "error", "the time limit at step 8 sets terminated"),
    ],
)
def test_terminal_time_limits_that_are_not_declared(make_env: Any, severity: str, text: str) -> None:
    limit, ends = problems(make_env)
    assert limit.check == "time limit" and limit.severity == "warn"
    assert (ends.severity, ends.check) == (severity, "end flags")
    assert text in ends.text


# It never hangs


@pytest.mark.parametrize(
    ("make_env", "where"), [(sick.HangsInReset, "stuck at reset"), (sick.HangsInStep, "stuck at step 4")]
)
def test_an_environment_that_hangs_is_a_finding(make_env: Any, where: str) -> None:
    found = next(finding for finding in problems(make_env, seconds=0.5) if finding.check == "playing")
    assert found.severity == "error"
    assert where in found.text


def test_a_slow_environment_is_left_in_the_middle() -> None:
    (found,) = problems(sick.Slow, seconds=0.5)
    assert (found.severity, found.check) == ("warn", "playing")
    assert "stopped after 0.5 s in episode 1" in found.text


def test_wrong_input_of_this_package_is_raised_not_found() -> None:
    with pytest.raises(ConfigError, match="did you mean 'FetchReach-v4'"):
        examine(lambda: make("fetch/FetchReech-v4"))


def test_bounds_out_of_range() -> None:
    for bounds in ({"episodes": 0}, {"max_steps": 0}, {"seconds": 0}):
        with pytest.raises(ConfigError, match=next(iter(bounds))):
            examine(sick.Healthy, **bounds)


# Settings


def test_learning_starts_by_hand() -> None:
    needed = "needed 29 = n_envs (3) x longest episode (8) + lag (5)"
    (found,) = problems(sick.Healthy, Training(learning_starts=28, n_envs=3, lag=5))
    assert (found.severity, found.check) == ("error", "learning_starts")
    assert found.text.startswith(f"28, {needed}")
    assert problems(sick.Healthy, Training(learning_starts=29, n_envs=3, lag=5)) == []


def test_a_time_limit_shorter_than_a_solution() -> None:
    (found,) = problems(sick.Healthy, Training(steps_needed=9))
    assert found == Finding("error", "time limit", "8 steps, a solution needs 9; raise the limit")


def test_hovering_by_hand() -> None:
    # .05 * .9 / .01 = 4.5 against 1.05; they meet at w * 90 = 1 + w, w = 1 / 89.
    found = hovering(shaping("additive", 0.05, 0.99))
    assert found.severity == "warn"
    assert "staying at progress 0.9 is worth 4.50, finishing 1.05" in found.text
    assert found.text.endswith("use potential or step_cost, or a weight below 0.0112")
    assert hovering(shaping("additive", 0.0112, 0.99)).severity == "ok"
    assert hovering(shaping("additive", 0.0113, 0.99)).severity == "warn"
    assert hovering(shaping("additive", 0.05, 0.99, env_reward="minus_one_zero")).severity == "ok"
    assert hovering(shaping("additive", 0.05, 0.99, terminates_on_success=False)).severity == "ok"


@pytest.mark.parametrize(
    ("make_env", "ends", "severity"),
    [
        (sick.Healthy, True, None),
        (sick.Healthy, False, "error"),
        (sick.GoesOn, True, "warn"),
        (sick.GoesOn, False, None),
    ],
)
def test_whether_success_ends_the_episode_is_compared_with_what_was_told(
    make_env: Any, ends: bool, severity: str | None
) -> None:
    told = Training(Shaping("potential", gamma=0.9, terminates_on_success=ends))
    found = [finding for finding in problems(make_env, told) if finding.check == "success ends"]
    assert [finding.severity for finding in found] == ([severity] if severity else [])


def test_rewards_are_compared_with_what_the_shaping_was_told() -> None:
    for env_reward in ("zero_one", "minus_one_zero"):
        (found,) = problems(sick.PaysDistance, Training(Shaping("potential", gamma=0.9, env_reward=env_reward)))
        assert found.check == "env reward"
        assert f"is told {env_reward}, a step paid -0.25" in found.text
    assert problems(sick.PaysDistance) == []


class Frozen(Hold):
    """A policy that has something to lose."""


def entropies(env: Any, ent_coef: float | str | None) -> list[Finding]:
    found = examine(lambda: env, Training(ent_coef=ent_coef), episodes=1).findings
    return [finding for finding in found if finding.check == "entropy"]


def test_an_entropy_coefficient_that_unlearns_a_frozen_policy() -> None:
    reach = unseen(make("fetch/FetchReach-v4", stride=5))
    steered = SteeringEnv(reach, Frozen(chunk=5, action_dim=4), chunk=5, noise_bound=1.0)
    # Four numbers of noise: 4 x start <= 1.
    for ent_coef, severity in (("auto", "warn"), ("auto_0.26", "warn"), ("auto_0.25", "ok"), (0.05, "ok"), (1, "warn")):
        (found,) = entropies(steered, ent_coef)
        assert found.severity == severity
        assert "for 4 numbers of noise at most 0.25" in found.text
        assert found.text.endswith("start lower, e.g. auto_0.1") == (severity == "warn")
    assert entropies(steered, None) == []
    # A policy that only holds its noise has nothing to lose, and without one SAC begins at random anyway.
    assert entropies(SteeringEnv(reach, Hold(chunk=5, action_dim=4), noise_bound=1.0), "auto") == []
    assert entropies(sick.Healthy(), "auto") == []


def test_training_refuses_numbers_out_of_range() -> None:
    for wrong in ({"n_envs": 0}, {"lag": -1}, {"learning_starts": -1}, {"steps_needed": 0}, {"ent_coef": "auto_"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Training(**wrong)


# Versions


def installed(**told: str) -> Any:
    def version(name: str) -> str:
        if name not in (known := {key.replace("_", "-"): value for key, value in told.items()}):
            raise PackageNotFoundError(name)
        return known[name]

    return version


def test_versions() -> None:
    assert versions(installed()) == []
    assert versions(installed(gymnasium="1.4.0", trl="1.16.0")) == [
        Finding("ok", "versions", "as tested: gymnasium 1.4.0, trl 1.16.0")
    ]
    found = versions(installed(stable_baselines3="2.6.0", gymnasium="1.5.0a1", trl="1.16"))
    assert found == [
        Finding("warn", "versions", "gymnasium 1.5.0a1, tested with 1.4.0; pip install gymnasium==1.4.0"),
        Finding(
            "error", "versions", "stable-baselines3 2.6.0, at least 2.7 is needed; pip install stable-baselines3==2.9.2"
        ),
        Finding("warn", "versions", "trl 1.16, tested with 1.16.0; pip install trl==1.16.0"),
    ]
    assert "silently changes LIBERO" in versions(installed(mujoco="3.4.0", hf_libero="0.1.4"))[-1].text
    assert [one.severity for one in versions(installed(mujoco="3.4.0"))] == ["warn"]
    assert [one.severity for one in versions(installed(mujoco="3.3", hf_libero="0.1.4"))] == ["ok", "warn"]


def test_the_tested_versions_are_the_pinned_ones() -> None:
    root = Path(__file__).parents[2]
    pinned = dict(re.findall(r"^([\w-]+)==([\w.]+)$", (root / "constraints.txt").read_text(), re.MULTILINE))
    pinned = {name.replace("_", "-"): told for name, told in pinned.items()}
    known = {name: tested for name, (_, tested) in TESTED.items() if name in pinned}
    assert known == {name: pinned[name] for name in known} and len(known) >= 6
    oldest = dict(re.findall(r'"([\w-]+)>=([\d.]+)[",]', (root / "pyproject.toml").read_text()))
    assert {name: TESTED[name][0] for name in TESTED if name in oldest} == {
        name: oldest[name] for name in TESTED if name in oldest
    }
