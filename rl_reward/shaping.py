"""Shaping: environment rewards [T] and progress [T+1] in, total rewards [T] out.

`progress_T1[0]` scores the reset state, `progress_T1[t + 1]` the state that transition t leads to, all in [0, 1].
NaN marks a state that was asked and could not be read. It earns nothing: 0 bonus in `additive` and `step_cost`; in
`difference` and `potential` the next scored state closes the gap.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward._checks import check_number
from rl_reward.errors import ConfigError

Array = NDArray[np.float64]
Form = Literal["additive", "step_cost", "difference", "potential"]
EnvReward = Literal["zero_one", "minus_one_zero"]


def additive(env_T: ArrayLike, progress_T1: ArrayLike, *, weight: float) -> Array:
    """Return r_t = env_t + weight * progress_{t+1}, float [T] (paper Eq. 7.1)."""
    env, progress = _aligned(env_T, progress_T1, weight)
    return env + weight * np.nan_to_num(progress[1:], nan=0.0)


def step_cost(env_T: ArrayLike, progress_T1: ArrayLike, *, weight: float) -> Array:
    """Return r_t = env_t - 1 + weight * progress_{t+1}, float [T], for env rewards of 0 and 1.

    With `weight` up to 1 no state before success pays more than 0 a step, so hovering loses to finishing.
    """
    env, progress = _aligned(env_T, progress_T1, weight)
    if not np.isin(env, (0.0, 1.0)).all():
        raise ConfigError(f"step_cost takes env rewards of 0 and 1 and subtracts 1 itself, got {_odd(env)}")
    return additive(env - 1.0, progress, weight=weight)


def difference(env_T: ArrayLike, progress_T1: ArrayLike, *, weight: float) -> Array:
    """Return r_t = env_t + weight * (progress_{t+1} - progress_t), float [T]; over an episode it telescopes."""
    env, progress = _aligned(env_T, progress_T1, weight)
    return env + weight * _closed_gaps(progress, gamma=1.0)


def potential(
    env_T: ArrayLike, progress_T1: ArrayLike, *, gamma: float, weight: float, terminated: bool, zero: float = 0.0
) -> Array:
    """Return r_t = env_t + weight * (gamma^n Phi_{t+1} - Phi_{t+1-n}), float [T] (Ng et al. 1999).

    Phi is progress - zero, n the distance in steps to the last scored state. Without gaps n is 1 and the optimal policy
    stays what it was; across unread states the bonus comes when the next score does, n - 1 steps late.

    For any `zero` the optimal policy is the same; what a learner sees on the way is not. Phi is 0 after a terminal
    state, so with zero = 0 the transition that succeeds pays -weight * progress, however good that is in the long run.
    Where the environment pays -1 until success, zero = 1 puts Phi where the return itself is: below 0, and 0 at the
    goal.

    Args:
        env_T: Environment rewards, float [T].
        progress_T1: Progress, float [T+1], the reset state first.
        gamma: Discount of the learner per transition, in (0, 1].
        weight: Scale of the shaping term.
        terminated: The episode ended in a true terminal state. Phi is 0 there and only there: at a time limit the
            learner bootstraps from the last state, so its potential stays.
        zero: Progress at which Phi is 0.
    """
    check_number("gamma", gamma, above=0, most=1)
    env, progress = _aligned(env_T, progress_T1, weight)
    progress = progress - zero
    if terminated:
        progress = np.append(progress[:-1], 0.0)
    return env + weight * _closed_gaps(progress, gamma=gamma)


@dataclass(frozen=True)
class Hover:
    """What an agent earns for staying near the goal for ever, and for finishing now (discounted)."""

    hovering: float
    """Return of staying at `progress` for ever."""
    finishing: float
    """Return of the transition that succeeds and ends the episode."""

    @property
    def pays(self) -> bool:
        """Whether staying pays more."""
        return self.hovering > self.finishing


@dataclass(frozen=True)
class Shaping:
    """A shaping form with its numbers; it warns where hovering near the goal would pay more than reaching it."""

    form: Form = "potential"
    """additive (paper Eq. 7.1), step_cost, difference or potential (zero at the goal where the env pays -1/0)."""
    weight: float = 1.0
    """Scale of the progress term, >= 0; 0 is the sparse reward on the same code path."""
    gamma: float = 0.99
    """Discount of the learner per transition, in (0, 1]; must equal the learner's own."""
    terminates_on_success: bool = True
    """Whether the episode ends at success. Where it goes on and keeps paying, hovering is no trap."""
    env_reward: EnvReward = "zero_one"
    """What the environment pays: 1 at success and 0 before (zero_one), or 0 at success and -1 before."""

    def __post_init__(self) -> None:
        """Check the fields and warn, with both numbers, when hovering pays."""
        for name, allowed in (("form", get_args(Form)), ("env_reward", get_args(EnvReward))):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"shaping {name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.form == "step_cost" and self.env_reward != "zero_one":
            raise ConfigError("step_cost takes env rewards of 0 and 1, got minus_one_zero; use additive there")
        check_number("weight", self.weight, least=0)
        check_number("gamma", self.gamma, above=0, most=1)
        hover = self.hover()
        if hover.pays:
            warnings.warn(
                f"{self.form} with weight {self.weight:g} and gamma {self.gamma:g}: hovering at progress 0.9 is worth "
                f"{hover.hovering:.2f}, finishing {hover.finishing:.2f}; use potential, step_cost or a lower weight",
                stacklevel=3,
            )

    def __call__(self, env_T: ArrayLike, progress_T1: ArrayLike, *, terminated: bool) -> Array:
        """Return the total rewards [T] of one episode (see the functions of this module)."""
        if self.form == "potential":
            zero = 1.0 if self.env_reward == "minus_one_zero" else 0.0
            numbers = {"gamma": self.gamma, "weight": self.weight, "zero": zero}
            return potential(env_T, progress_T1, terminated=terminated, **numbers)
        pays = {"additive": additive, "step_cost": step_cost, "difference": difference}[self.form]
        return pays(env_T, progress_T1, weight=self.weight)

    def hover(self, progress: float = 0.9) -> Hover:
        """Compare staying at `progress` for ever with finishing.

        additive on 0/1 rewards: weight * progress / (1 - gamma) against 1 + weight.
        """
        if not self.terminates_on_success:
            return Hover(0.0, math.inf)
        one_step = np.array([progress, progress])
        before, success = (0.0, 1.0) if self.env_reward == "zero_one" else (-1.0, 0.0)
        stay = float(self([before], one_step, terminated=False)[0])
        finish = float(self([success], [progress, 1.0], terminated=True)[0])
        forever = stay / (1.0 - self.gamma) if self.gamma < 1.0 else math.copysign(math.inf, stay) if stay else 0.0
        return Hover(forever, finish)


def _aligned(env_T: ArrayLike, progress_T1: ArrayLike, weight: float) -> tuple[Array, Array]:
    """Return both as float arrays; raise ConfigError unless they are finite [T] and [0, 1]-or-NaN [T+1]."""
    check_number("weight", weight, least=0)
    env, progress = np.asarray(env_T, dtype=np.float64), np.asarray(progress_T1, dtype=np.float64)
    if env.ndim != 1 or progress.shape != (env.size + 1,):
        raise ConfigError(f"progress must be [T+1], reset first, for rewards [T]; got {progress.shape}, {env.shape}")
    if not np.isfinite(env).all():
        raise ConfigError(f"env rewards must be finite, got {_odd(env)}")
    if ((progress < 0) | (progress > 1)).any():
        raise ConfigError(f"progress must be in [0, 1] or NaN, got {progress[(progress < 0) | (progress > 1)][0]}")
    return env, progress


def _closed_gaps(progress_T1: Array, *, gamma: float) -> Array:
    """Return gamma^n * progress_b - progress_a at each scored state b, a the scored one n steps before; else 0."""
    scored = np.flatnonzero(~np.isnan(progress_T1))
    bonus_T = np.zeros(progress_T1.size - 1)
    before, after = scored[:-1], scored[1:]
    bonus_T[after - 1] = gamma ** (after - before) * progress_T1[after] - progress_T1[before]
    return bonus_T


def _odd(env_T: Array) -> float:
    """Return a value of `env_T` to show in a message: one that is not finite, else the first that is not 0 or 1."""
    return float([*env_T[~np.isfinite(env_T)], *env_T[~np.isin(env_T, (0.0, 1.0))]][0])
