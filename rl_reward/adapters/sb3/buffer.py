"""A replay buffer that hands out a transition only once its episode is scored, and can change its shaping later."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_reward._checks import check_int, check_number, check_text
from rl_reward.adapters.sb3.recorded import RecordedEpisode, dealt
from rl_reward.adapters.sb3.records import Records, judged, rewards, step_of, unlabelled
from rl_reward.adapters.sb3.waiting import Observation, Row, WaitingRows, each
from rl_reward.errors import ConfigError, MissingExtraError
from rl_reward.rewards import ProgressJudge
from rl_reward.scores import ProgressCurve
from rl_reward.shaping import Shaping

try:
    from gymnasium import spaces
    from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
    from stable_baselines3.common.vec_env import VecNormalize
except ImportError as error:
    raise MissingExtraError("stable-baselines3", "sb3") from error


@dataclass(frozen=True)
class Counts:
    """Where the transitions went: added == committed + pending + discarded, always."""

    added: int
    """Transitions that came in: from the environment, and prefilled ones."""
    committed: int
    """Transitions that reached the ring; it may have overwritten old ones since."""
    pending: int
    """Transitions that wait for a score or for the lag."""
    discarded: int
    """Transitions that never reach the ring."""
    reasons: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many were discarded for which reason; they add up to `discarded`."""


class RelabelReplayBuffer(ReplayBuffer):
    """SB3's replay buffer, its rewards made of the environment's reward and the progress of the whole episode.

    Rows [n_envs] wait outside the ring. Episodes are scored when they end; a row commits, in order, once every env's
    column is scored and `lag` env steps have passed. So a wrapped ring never gets a late score, the learner never sees
    an unscored reward, and equal seeds give equal buffers (unless `as_scored`). What the environment paid, the
    progress, its spread and flags stay beside each transition in `records`.

    An env step is a call of `env.step`, counted over all envs: with `SteeringEnv` it is one decision of the policy, not
    one low-level step of the simulator.

    `RelabelCallback` feeds it and holds the judge, so the buffer pickles, waiting rows and unscored episodes included:
    after a crash of the judge `save_replay_buffer` keeps them, and `learn()` after `load_replay_buffer` has them scored
    first. A second `learn()` and a loaded buffer close the open episode: what there is of it is scored, and its last
    transition counts as truncated, so the learner bootstraps.

    Box and Dict observations, any number of envs; n-step returns for Box.
    """

    records: Records
    """What relabelling knows of each transition in the ring, [buffer_size, n_envs] of `RECORD`."""
    waiting: WaitingRows
    """The rows outside the ring."""
    behind: int
    """Env steps between the newest transition in the ring and the simulator, at the latest commit."""
    last_obs: Observation
    """SB3's last observation when the last row came; while SB3 holds the very same object, the env was not reset."""

    def __new__(cls, buffer_size: int = 1, observation_space: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return the variant whose SB3 base fits the observations and `n_steps`."""
        variant: Any = cls
        if cls is RelabelReplayBuffer and isinstance(observation_space, spaces.Dict):
            variant = _DictRelabelReplayBuffer
        elif cls is RelabelReplayBuffer and kwargs.get("n_steps", 1) != 1:
            variant = _NStepRelabelReplayBuffer
        return super().__new__(variant)

    def __init__(  # pyright: ignore[reportInconsistentConstructor] - SB3 passes the arguments, `__new__` looks at two
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        *,
        shaping: Shaping | None = None,
        lag: int = 0,
        as_scored: bool = False,
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
            lag: Env steps (over all envs), >= 0, that a row waits at least. From the longest episode x n_envs on, the
                judge works while training goes on, and the row commits at a fixed count whatever the judge's speed.
                Twice to three times that hides a judge who takes as long as an episode.
            as_scored: Not reproducible: a row commits when its score happens to be there, and nothing waits for a
                judge who is late, so equal seeds give different buffers. The sparse arm then learns from fresher data
                than the judged one.
            n_steps: Length of n-step returns, >= 1. It goes here: beside a custom buffer the model ignores its own.
            gamma: Discount inside n-step returns; `shaping.gamma` by default.

        Raises:
            ConfigError: A value is outside its range, or two do not fit together.
        """
        if optimize_memory_usage:
            raise ConfigError("optimize_memory_usage=True cannot tell time limits from terminal states; leave it False")
        check_int("lag", lag, least=0)
        check_int("n_steps", n_steps, least=1)
        if not isinstance(as_scored, bool):
            raise ConfigError(f"as_scored must be True or False, got {as_scored!r}")
        if n_steps > 1 and isinstance(observation_space, spaces.Dict):
            raise ConfigError(f"n_steps must be 1 for Dict observations, got {n_steps}; flatten them to a Box")
        self.shaping = shaping or Shaping()
        self.lag = lag
        self.as_scored = as_scored
        self.n_steps = n_steps
        self.gamma = self.shaping.gamma if gamma is None else check_number("gamma", gamma, above=0, most=1)
        base: Any = super()
        base.__init__(buffer_size, observation_space, action_space, device, n_envs, **self._base_kwargs())
        self.records = unlabelled((self.buffer_size, n_envs))
        self.waiting = WaitingRows()
        self.last_obs = None
        self.behind = self._added = self._committed = 0
        self._discarded: Counter[str] = Counter()

    @property
    def counts(self) -> Counts:
        """Where the transitions went."""
        discarded = self._discarded
        return Counts(self._added, self._committed, self._pending, discarded.total(), dict(discarded))

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
        if self.waiting.announced is None:
            raise ConfigError("RelabelReplayBuffer needs learn(..., callback=RelabelCallback(judge)), got no callback")
        truncated_N = np.array([info.get("TimeLimit.truncated", False) for info in infos], dtype=np.bool_)
        records_N = unlabelled(self.n_envs)
        records_N["env_reward"], records_N["done"], records_N["terminated"] = reward, done, done & ~truncated_N
        # Copies: a vectorised env may write its next observation into the same arrays.
        row = Row(each(np.array, obs), each(np.array, next_obs), np.array(action), records_N)
        self.waiting.store(row, [step_of(info) for info in infos])
        self._added += self.n_envs

    @property
    def is_due(self) -> bool:
        """Whether a row of a finished episode has waited for the lag, so that it commits once it is scored."""
        starts = [ended.start for ended in self.waiting.finished]
        return bool(starts) and self.waiting.total - min(starts) > self._young

    def commit(self, *, flush: bool = False) -> None:
        """Move the rows whose episodes are all scored into the ring, oldest first; `flush` ignores the lag."""
        old = len(self.waiting.rows) - (0 if flush else self._young)
        count = min(self.waiting.labelled, old)
        if count > 0:
            self._write(self.waiting.take(count))
            self.behind = self._pending

    def discard(self, reason: str) -> int:
        """Give up the transitions without a score and return how many: the way out where a judge never reads one.

        Call it between two `learn()`. What is cut off behind the last transition in the ring counts as truncated there,
        so the learner bootstraps. Running episodes go on and are read from their beginning.

        Raises:
            ConfigError: `reason` is blank.
        """
        check_text("reason", reason)
        self.commit(flush=True)
        if self.size() and self.waiting.rows:
            last, ended_N = self.pos - 1, self.dones[self.pos - 1] > 0
            self.records[last]["done"] = self.dones[last] = True
            self.timeouts[last][~ended_N] = True
        self._discarded[reason] += self._pending
        return self.waiting.drop() * self.n_envs

    def note_unstored(self) -> None:
        """Count as discarded the row SB3 has stepped and not stored, because training was stopped in between."""
        if self.waiting.announced is not None:
            self.waiting.announced = None
            self._added += self.n_envs
            self._discarded["stepped but not stored by SB3"] += self.n_envs

    def relabel(self, shaping: Shaping) -> None:
        """Change form and weight of the rewards of the whole buffer, of waiting rows too; no judge is asked.

        Raises:
            ConfigError: The weight is above 0 and nothing in the ring was ever scored.
        """
        order = np.roll(np.arange(self.buffer_size), -self.pos) if self.full else np.arange(self.pos)
        if order.size and shaping.weight and not self.records["scored"].any():
            raise ConfigError(f"shaping weight {shaping.weight:g} needs scores, and no transition here was ever scored")
        self.shaping = shaping
        if order.size:
            self.rewards[order] = rewards(self.records[order], shaping)

    def prefill(
        self, episodes: Sequence[RecordedEpisode], judge: ProgressJudge | None, *, every: int = 1
    ) -> list[ProgressCurve]:
        """Score recorded episodes in one call, commit them, and return their curves (none without a judge).

        With several envs each episode goes to the shortest column; in the end all columns are cut to the shortest one,
        where the episode counts as truncated. What is cut off is discarded and counted.

        Raises:
            ConfigError: Transitions wait for their score (prefill before `learn()`), or weight > 0 has no judge.
        """
        if self.waiting.rows:
            raise ConfigError(f"{len(self.waiting.rows)} rows wait for their score; call prefill before learn()")
        if judge is None and self.shaping.weight:
            raise ConfigError(f"shaping weight {self.shaping.weight:g} needs a judge, got None")
        curves = judged(judge, [recorded.episode() for recorded in episodes], every) if judge is not None else []
        labels = curves or [None] * len(episodes)
        parts = [recorded.rows(curve) for recorded, curve in zip(episodes, labels, strict=True)]
        rows = dealt(parts, self.n_envs)
        self._write(rows)
        given = sum(map(len, parts))
        self._added += given
        if given > len(rows) * self.n_envs:
            self._discarded["prefilled, did not fill a row of all envs"] += given - len(rows) * self.n_envs
        return curves

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Return a batch of committed transitions; see `ReplayBuffer.sample`."""
        if not self.size():
            raise ConfigError(
                f"none of {self.counts.added} transitions is scored yet; raise learning_starts to at least "
                f"n_envs ({self.n_envs}) x the longest episode + lag ({self.lag})"
            )
        return super().sample(batch_size, env)

    @property
    def _pending(self) -> int:
        return len(self.waiting.rows) * self.n_envs

    @property
    def _young(self) -> int:
        """The newest rows, which the lag holds back."""
        return math.ceil(self.lag / self.n_envs)

    def _base_kwargs(self) -> dict[str, Any]:
        return {}

    def _write(self, rows: Sequence[Row]) -> None:
        """Append `rows` to the ring."""
        if not rows:
            return
        rewards_TN = rewards(np.stack([row.records for row in rows]), self.shaping)
        for row, reward_N in zip(rows, rewards_TN, strict=True):
            done_N, terminated_N = row.records["done"], row.records["terminated"]
            infos = [{"TimeLimit.truncated": cut} for cut in done_N & ~terminated_N]
            self.records[self.pos] = row.records
            super().add(row.obs, row.next_obs, row.action, reward_N, done_N, infos)
        self._committed += len(rows) * self.n_envs


class _DictRelabelReplayBuffer(RelabelReplayBuffer, DictReplayBuffer):
    """For Dict observations."""


class _NStepRelabelReplayBuffer(RelabelReplayBuffer, NStepReplayBuffer):
    """For n-step returns."""

    def _base_kwargs(self) -> dict[str, Any]:
        return {"n_steps": self.n_steps, "gamma": self.gamma}
