"""A replay buffer that hands out a transition only once its episode is scored, and can change its shaping later."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward.adapters.sb3.records import Episode, Records, judged, label, rewards, step_of, unlabelled
from rl_reward.errors import ConfigError, MissingExtraError
from rl_reward.rewards import ProgressJudge
from rl_reward.scores import ProgressCurve
from rl_reward.shaping import Shaping
from rl_reward.types import Step

try:
    import gymnasium as gym
    from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
    from stable_baselines3.common.vec_env import VecNormalize
except ImportError as error:
    raise MissingExtraError("stable-baselines3", "sb3") from error

Observation = Any
"""An array or a dict of arrays."""


@dataclass(frozen=True)
class Counts:
    """Where the transitions went: added == committed + pending + discarded, always."""

    added: int
    """Transitions that came in, prefilled ones included."""
    committed: int
    """Transitions that reached the ring; it may have overwritten old ones since."""
    pending: int
    """Transitions that wait for a score or for the lag."""
    discarded: int
    """Prefilled transitions cut off because the columns of a row of several envs ended at different lengths."""


@dataclass(frozen=True, eq=False)
class RecordedEpisode:
    """One episode recorded elsewhere: a demonstration, or the past of another run."""

    task: str
    """The task in words."""
    observations_T1: Observation
    """Observations, array [T+1, ...] or dict of such arrays, the last state included."""
    actions_T: ArrayLike
    """Actions as the learner stores them, scaled to [-1, 1], [T, A]."""
    rewards_T: ArrayLike
    """Environment rewards, float [T]."""
    steps: Mapping[int, Step]
    """Steps by time: 0 is the reset state, T the last one."""
    terminated: bool
    """Whether it ended in a true terminal state; otherwise the learner bootstraps from its last state."""


@dataclass(frozen=True, eq=False)
class _Row:
    """One env step of all envs, waiting outside the ring."""

    obs: Observation
    next_obs: Observation
    action: NDArray[Any]
    records: Records


class RelabelReplayBuffer(ReplayBuffer):
    """SB3's replay buffer, with rewards made of the environment's reward and the progress of the whole episode.

    Rows [n_envs] wait outside the ring. An episode is scored when it ends; a row commits once every env's column is
    scored and `lag` env steps have passed, in order, so a wrapped ring never gets a late score and equal seeds give
    equal buffers. The environment's reward, progress, spread and flags stay beside each transition in `records`.

    `RelabelCallback` feeds it; the judge lives there, so the buffer pickles, waiting rows included. A second `learn()`
    and a loaded buffer close the open episode: what there is of it is scored, and its last transition counts as
    truncated, so the learner bootstraps.

    Box and Dict observations, any number of envs. With n_steps > 1 (Box) it samples n-step returns, as SB3's own does.
    """

    records: Records
    """What relabelling knows of each transition in the ring, [buffer_size, n_envs] of `RECORD`."""

    def __new__(cls, buffer_size: int = 1, observation_space: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return the variant whose SB3 base fits the observations and `n_steps`."""
        if cls is RelabelReplayBuffer and isinstance(observation_space, gym.spaces.Dict):
            return super().__new__(_DictRelabelReplayBuffer)
        if cls is RelabelReplayBuffer and kwargs.get("n_steps", 1) > 1:
            return super().__new__(_NStepRelabelReplayBuffer)
        return super().__new__(cls)

    def __init__(
        self,
        buffer_size: int,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        *,
        shaping: Shaping | None = None,
        lag: int = 0,
        n_steps: int = 1,
        gamma: float | None = None,
    ) -> None:
        """Make an empty buffer; SB3 passes the first six arguments, `replay_buffer_kwargs` the others.

        Args:
            buffer_size: Transitions the ring holds, over all envs.
            observation_space: Box or Dict.
            action_space: The actions.
            device: Where samples go.
            n_envs: Columns of a row.
            optimize_memory_usage: Refused: SB3 forbids it where time limits bootstrap.
            shaping: How progress becomes reward; potential with weight 1 by default. Weight 0 is the sparse arm.
            lag: A row commits at the earliest this many env steps (over all envs) after it was stored, >= 0.
            n_steps: Length of n-step returns. Goes here, not to the model, which ignores it beside a custom buffer.
            gamma: Discount inside n-step returns; `shaping.gamma` by default.
        """
        if optimize_memory_usage:
            raise ConfigError("optimize_memory_usage=True cannot tell time limits from terminal states; leave it False")
        if isinstance(lag, bool) or not isinstance(lag, int) or lag < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"lag must be an integer >= 0 env steps, got {lag!r}")
        if isinstance(n_steps, bool) or not isinstance(n_steps, int) or n_steps < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"n_steps must be an integer >= 1, got {n_steps!r}")
        if n_steps > 1 and isinstance(observation_space, gym.spaces.Dict):
            raise ConfigError(f"n_steps must be 1 for Dict observations, got {n_steps}; flatten them to a Box")
        self.shaping = shaping or Shaping()
        self.lag = lag
        self.n_steps = n_steps
        self.gamma = self.shaping.gamma if gamma is None else gamma
        super().__init__(buffer_size, observation_space, action_space, device, n_envs, **self._base_kwargs())
        self.records = unlabelled((self.buffer_size, n_envs))
        self._held: list[_Row] = []
        self._open: list[Episode] = []
        self._finished: list[tuple[int, int, Episode]] = []
        self._announced: dict[int, Episode] | None = None
        self._added = self._committed = self._discarded = 0
        self.last_obs: Observation = None

    def __getstate__(self) -> dict[str, Any]:
        # A loaded buffer meets another env, so its open episodes cannot go on.
        return {**self.__dict__, "last_obs": None}

    def _base_kwargs(self) -> dict[str, Any]:
        return {}

    @property
    def counts(self) -> Counts:
        """Where the transitions went."""
        return Counts(self._added, self._committed, len(self._held) * self.n_envs, self._discarded)

    def begin(self, episodes: Sequence[Episode]) -> None:
        """Open one episode per env, at a reset of all of them."""
        self._open = list(episodes)

    def announce(self, resets: Mapping[int, Episode]) -> None:
        """Take, before each `add`, the episodes that begin after it, by env: resets are not among its arguments."""
        self._announced = dict(resets)

    def add(
        self,
        obs: Observation,
        next_obs: Observation,
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """Hold one row back until its episodes are scored; see `ReplayBuffer.add`."""
        if self._announced is None:
            raise ConfigError("RelabelReplayBuffer needs learn(..., callback=RelabelCallback(judge)), got no callback")
        resets, self._announced = self._announced, None
        records_N = unlabelled(self.n_envs)
        records_N["env_reward"], records_N["done"] = reward, done
        records_N["terminated"] = done & ~np.array([info.get("TimeLimit.truncated", False) for info in infos])
        self._held.append(_Row(_copied(obs), _copied(next_obs), np.array(action), records_N))
        self._added += self.n_envs
        for env, (episode, info) in enumerate(zip(self._open, infos, strict=True)):
            episode.length += 1
            step = step_of(info)
            if step is not None:
                episode.steps[episode.length] = step
            if done[env]:
                self._finish(env)
                self._open[env] = resets[env]

    def close(self, *, env_goes_on: bool) -> None:
        """End the open episodes as truncated, without a terminal state, so that they can be scored.

        With `env_goes_on` each goes on afterwards, and the judge will read it from its beginning.
        """
        for env, episode in enumerate(self._open):
            if episode.length > episode.labelled:
                self._held[-1].records["done"][env] = True
                episode.closed = True
                self._finish(env)
        self._open = [episode.continued() for episode in self._open] if env_goes_on else []

    def score(self, judge: ProgressJudge | None, *, every: int = 1) -> list[ProgressCurve]:
        """Score the finished episodes in one call and return their curves.

        Args:
            judge: Who scores; None leaves everything unscored, for the sparse arm.
            every: Ask every `every`-th step only (see `ProgressJudge.track_many`).
        """
        curves: list[ProgressCurve] = []
        if judge is not None and self._finished:
            curves = judged(judge, [episode for _, _, episode in self._finished], every)
            for (env, end, episode), curve in zip(self._finished, curves, strict=True):
                self._label(env, end, episode, curve)
        self._finished.clear()
        return curves

    def commit(self, *, flush: bool = False) -> None:
        """Move the rows whose episodes are all scored into the ring, oldest first; `flush` ignores the lag."""
        waiting = max((episode.length - episode.labelled for episode in self._open), default=0)
        young = 0 if flush else math.ceil(self.lag / self.n_envs)
        self._commit(len(self._held) - max(waiting, young))

    def relabel(self, shaping: Shaping) -> None:
        """Change form and weight of the rewards of the whole buffer, waiting rows included; no judge is asked."""
        if shaping.weight and self.size() and not self.records["scored"].any():
            raise ConfigError(f"shaping weight {shaping.weight:g} needs scores, but no transition here was ever scored")
        self.shaping = shaping
        order = np.roll(np.arange(self.buffer_size), -self.pos) if self.full else np.arange(self.pos)
        if order.size:
            self.rewards[order] = rewards(self.records[order], shaping)

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Return a batch of committed transitions; see `ReplayBuffer.sample`."""
        if not self.size():
            raise ConfigError(
                f"no transition is scored yet after {self._added} env steps; raise learning_starts to at least "
                f"n_envs ({self.n_envs}) x the longest episode + lag ({self.lag})"
            )
        return super().sample(batch_size, env)

    def prefill(self, episodes: Sequence[RecordedEpisode], judge: ProgressJudge | None, *, every: int = 1) -> Counts:
        """Score recorded episodes, in one call, and commit them; no env is needed.

        With several envs the episodes are dealt to the shortest column; what sticks out below the shortest column in
        the end is discarded and counted.

        Raises:
            ConfigError: Transitions of a running episode wait for their score: prefill before `learn()`.
        """
        if self._held:
            raise ConfigError(f"{len(self._held)} rows wait for their score; call prefill before learn()")
        columns: list[list[_Row]] = [[] for _ in range(self.n_envs)]
        tracked = [Episode(e.task, dict(sorted(e.steps.items())), len(np.asarray(e.rewards_T))) for e in episodes]
        curves = judged(judge, tracked, every) if judge is not None else [None] * len(tracked)
        for recorded, episode, curve in zip(episodes, tracked, curves, strict=True):
            min(columns, key=len).extend(_rows(recorded, episode, curve))
        rows = min(len(column) for column in columns)
        for cells in zip(*columns, strict=False):
            self._held.append(_joined(cells))
        if self._held:
            self._held[-1].records["done"] = True
        total = sum(len(column) for column in columns)
        self._added += total
        self._discarded += total - rows * self.n_envs
        self._commit(rows)
        return self.counts

    def _finish(self, env: int) -> None:
        self._finished.append((env, len(self._held), self._open[env]))

    def _label(self, env: int, end: int, episode: Episode, curve: ProgressCurve) -> None:
        rows = self._held[end - (episode.length - episode.labelled) : end]
        records_T = np.array([row.records[env] for row in rows])
        label(records_T, episode, curve)
        for row, record in zip(rows, records_T, strict=True):
            row.records[env] = record

    def _commit(self, count: int) -> None:
        """Move the `count` oldest rows into the ring."""
        if count <= 0:
            return
        rows, self._held = self._held[:count], self._held[count:]
        records_TN = np.stack([row.records for row in rows])
        for row, reward_N in zip(rows, rewards(records_TN, self.shaping), strict=True):
            done_N = row.records["done"]
            infos = [{"TimeLimit.truncated": cut} for cut in done_N & ~row.records["terminated"]]
            self.records[self.pos] = row.records
            super().add(row.obs, row.next_obs, row.action, reward_N, done_N, infos)
        self._committed += count * self.n_envs


class _DictRelabelReplayBuffer(RelabelReplayBuffer, DictReplayBuffer):
    """For Dict observations."""


class _NStepRelabelReplayBuffer(RelabelReplayBuffer, NStepReplayBuffer):
    """For n-step returns."""

    def _base_kwargs(self) -> dict[str, Any]:
        return {"n_steps": self.n_steps, "gamma": self.gamma}


def _copied(obs: Observation) -> Observation:
    # A vectorised env may write its next observation into the same array.
    return {key: np.array(value) for key, value in obs.items()} if isinstance(obs, dict) else np.array(obs)


def _at(obs: Observation, index: Any) -> Observation:
    return {key: value[index] for key, value in obs.items()} if isinstance(obs, Mapping) else obs[index]


def _rows(recorded: RecordedEpisode, episode: Episode, curve: ProgressCurve | None) -> list[_Row]:
    """Return the transitions of one recorded episode, without an env axis."""
    records_T = unlabelled(episode.length)
    records_T["env_reward"] = recorded.rewards_T
    records_T["done"][-1], records_T["terminated"][-1] = True, recorded.terminated
    if curve is not None:
        label(records_T, episode, curve)
    actions = np.asarray(recorded.actions_T)
    obs = recorded.observations_T1
    return [_Row(_at(obs, t), _at(obs, t + 1), actions[t], records_T[t]) for t in range(episode.length)]


def _joined(cells: Sequence[_Row]) -> _Row:
    """Return the row [n_envs] of one transition per env."""
    return _Row(
        _stacked([cell.obs for cell in cells]),
        _stacked([cell.next_obs for cell in cells]),
        np.stack([cell.action for cell in cells]),
        np.array([cell.records for cell in cells]),
    )


def _stacked(observations: Sequence[Observation]) -> Observation:
    if isinstance(observations[0], Mapping):
        return {key: np.stack([obs[key] for obs in observations]) for key in observations[0]}
    return np.stack(observations)
