"""What the numbers beside an environment say: does hovering pay, is the buffer filled, is a frozen policy unlearned."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rl_reward._checks import check_int, entropy_start
from rl_reward.doctor.finding import Finding
from rl_reward.doctor.visit import Visit
from rl_reward.shaping import Shaping

_NEAR = 0.9


@dataclass(frozen=True)
class Training:
    """What the trainer is told; what is None is not checked."""

    shaping: Shaping | None = None
    """How progress becomes reward."""
    learning_starts: int | None = None
    """Env steps before learning, >= 0."""
    n_envs: int = 1
    """Environments stepped together, >= 1."""
    lag: int = 0
    """Env steps that a transition is held back, >= 0."""
    steps_needed: int | None = None
    """Env steps that a solution takes at least, >= 1."""
    ent_coef: float | str | None = None
    """Of stable-baselines3's SAC: "auto", "auto_START" or a number >= 0."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_int("n_envs", self.n_envs, least=1)
        check_int("lag", self.lag, least=0)
        for name, least in (("learning_starts", 0), ("steps_needed", 1)):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), least=least)
        if self.ent_coef is not None:
            entropy_start(self.ent_coef)


def settings(seen: Visit, training: Training) -> Iterator[Finding]:
    """Return what the settings mean in this environment."""
    if training.shaping is not None:
        yield from _success_ends(seen, training.shaping)
        yield hovering(training.shaping)
    if training.learning_starts is not None:
        yield _learning_starts(seen, training, training.learning_starts)
    if training.ent_coef is not None:
        yield from _entropy(seen, training.ent_coef)


def hovering(shaping: Shaping) -> Finding:
    """Compare staying near the goal for ever with finishing (`Shaping.hover`): weight * rho / (1 - gamma) on 0/1."""
    hover = shaping.hover(_NEAR)
    told = f"{shaping.form}, weight {shaping.weight:g}, gamma {shaping.gamma:g}: "
    if not shaping.terminates_on_success:
        return Finding("ok", "hovering", f"{told}success does not end the episode and keeps paying, so finishing wins")
    told += f"staying at progress {_NEAR:g} is worth {hover.hovering:.2f}, finishing {hover.finishing:.2f}"
    if not hover.pays:
        return Finding("ok", "hovering", told)
    return Finding("warn", "hovering", f"{told}; {_way_out(shaping)}")


def _way_out(shaping: Shaping) -> str:
    # weight * rho / (1 - gamma) = 1 + weight, for additive on rewards of 0 and 1.
    ratio = _NEAR / (1.0 - shaping.gamma) - 1.0 if shaping.gamma < 1.0 else float("inf")
    if shaping.form == "additive" and shaping.env_reward == "zero_one" and ratio > 0:
        return f"use potential or step_cost, or a weight below {1.0 / ratio:.3g}"
    return "use potential or step_cost, or a lower weight"


def _success_ends(seen: Visit, shaping: Shaping) -> Iterator[Finding]:
    solved = [episode for episode in seen.finished if any(episode.success)]
    if not solved:
        return
    ends = any(episode.terminated and episode.success[-1] for episode in solved)
    goes_on = any(any(episode.success[:-1]) for episode in solved)
    if ends and not shaping.terminates_on_success:
        text = "the shaping is told that success does not end the episode, and it does; set terminates_on_success=True"
        yield Finding("error", "success ends", text)
    elif goes_on and not ends and shaping.terminates_on_success:
        text = "the shaping is told that success ends the episode, and it goes on; set terminates_on_success=False"
        yield Finding("warn", "success ends", text)


def _learning_starts(seen: Visit, training: Training, starts: int) -> Finding:
    limit = seen.limit or max((episode.length for episode in seen.episodes), default=0)
    least = training.n_envs * limit + training.lag
    told = f"{starts}, needed {least} = n_envs ({training.n_envs}) x longest episode ({limit}) + lag ({training.lag})"
    if starts < least:
        text = f"{told}: at the first update no episode may be scored; raise it"
        return Finding("error", "learning_starts", text)
    return Finding("ok", "learning_starts", told)


def _entropy(seen: Visit, ent_coef: float | str) -> Iterator[Finding]:
    """Say whether the entropy of the noise outweighs rewards of about 1 a decision: then SAC first learns to be random.

    Where no policy is steered, or one that only holds its noise, there is nothing to unlearn.
    """
    for layer in seen.layers:
        if type(layer).__name__ != "SteeringEnv" or type(layer.policy).__name__ == "Hold":
            continue
        size = math.prod(layer.policy.noise_shape)
        told = f"{ent_coef} starts at {entropy_start(ent_coef):g}, for {size} numbers of noise at most {1 / size:.2g}"
        if entropy_start(ent_coef) * size <= 1.0:
            yield Finding("ok", "entropy", told)
        else:
            text = f"{told}: above that it outweighs a reward of 1 a decision and unlearns the frozen policy"
            yield Finding("warn", "entropy", f"{text}; start lower, e.g. auto_{0.4 / size:.2g}")
