"""The callback that tells the relabelling buffer where episodes begin, asks the judge, and refuses what cannot work."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, cast

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from rl_reward.adapters.sb3.buffer import RelabelReplayBuffer
from rl_reward.adapters.sb3.checks import check_model
from rl_reward.adapters.sb3.records import Episode, step_of
from rl_reward.errors import BackendError, ConfigError
from rl_reward.rewards import ProgressJudge
from rl_reward.scores import ProgressCurve
from rl_reward.types import Usage


class RelabelCallback(BaseCallback):
    """Scores whole episodes when they end and lets `RelabelReplayBuffer` turn progress into reward.

    Environments put a `Step` into `info["rl_reward"]` at reset, at a stride of their own and at done. The task text is
    `info["task"]` of the reset, else the env attribute `task`, else the argument.

    Logs under `rl_reward/`: progress_mean and unscored_rate (over the episodes since the last dump), judge_calls and
    judge_seconds (so far), lag and pending (transitions waiting).
    """

    def __init__(
        self,
        judge: ProgressJudge | None,
        *,
        task: str | None = None,
        every: int = 1,
        max_unscored: float = 0.2,
        window: int = 20,
        verbose: int = 0,
    ) -> None:
        """Ask `judge`.

        Args:
            judge: Who scores; None only where the shaping weight is 0: nothing is asked then.
            task: The task in words, for environments that do not say it.
            every: Ask every `every`-th `Step` of an episode, the first and the last, >= 1.
            max_unscored: Training stops when more than this share of the scores could not be read, in [0, 1].
            window: Finished episodes over which that share is taken, >= 1.
            verbose: See `BaseCallback`.
        """
        super().__init__(verbose)
        if every < 1 or window < 1:
            raise ConfigError(f"every and window must be at least 1, got {every} and {window}")
        if not 0.0 <= max_unscored <= 1.0:
            raise ConfigError(f"max_unscored must be in [0, 1], got {max_unscored}")
        self.judge = judge
        self.task = task
        self.every = every
        self.max_unscored = max_unscored
        self.usage = Usage()
        self.seconds = 0.0
        self._window: deque[tuple[int, int]] = deque(maxlen=window)
        self._env_says_task = False

    @property
    def buffer(self) -> RelabelReplayBuffer:
        """The buffer of the model."""
        return cast(RelabelReplayBuffer, cast(OffPolicyAlgorithm, self.model).replay_buffer)

    def _on_training_start(self) -> None:
        check_model(self.model, self.judge)
        self._env_says_task = self.training_env.has_attr("task")
        # SB3 keeps the very object of the last observation when it does not reset the env.
        env_goes_on = self.buffer.last_obs is not None and self._last_obs() is self.buffer.last_obs
        self.buffer.close(env_goes_on=env_goes_on)
        self._settle(flush=True)
        if not env_goes_on:
            self.buffer.begin([self._episode(env) for env in range(self.training_env.num_envs)])

    def _on_step(self) -> bool:
        # Called before SB3 stores the transition, after finished envs have been reset.
        self.buffer.announce({env: self._episode(env) for env in np.flatnonzero(self.locals["dones"]).tolist()})
        self.buffer.last_obs = self.locals["new_obs"]
        return True

    def _on_rollout_end(self) -> None:
        # The last transition is stored by now, and training comes after.
        self._settle()

    def _on_training_end(self) -> None:
        self._settle()

    def _last_obs(self) -> Any:
        return cast(Any, self.model)._last_obs

    def _episode(self, env: int) -> Episode:
        """Return the episode that begins at the latest reset of `env`."""
        # A wrapper has a reset_infos of its own that stays empty: only the innermost VecEnv's is filled.
        info = self.training_env.unwrapped.reset_infos[env]
        step = step_of(info)
        return Episode(self._task(env, info), {} if step is None else {0: step})

    def _task(self, env: int, info: dict[str, Any]) -> str:
        task = info.get("task")
        if task is None and self._env_says_task:
            task = self.training_env.get_attr("task", env)[0]
        task = self.task if task is None else task
        if self.judge is not None and not task:
            raise ConfigError('no task text: set env.task, put it into the reset info as "task", or pass task=')
        return str(task or "")

    def _settle(self, *, flush: bool = False) -> None:
        began = time.perf_counter()
        curves = self.buffer.score(self.judge, every=self.every)
        self.seconds += time.perf_counter() - began
        self.buffer.commit(flush=flush)
        if curves:
            self.usage = sum((curve.usage for curve in curves), self.usage)
            self._record(curves)

    def _record(self, curves: list[ProgressCurve]) -> None:
        scored = np.concatenate([curve.values[curve.scored] for curve in curves])
        reads = [(_asked(curve), int(curve.scored.sum())) for curve in curves]
        if scored.size:
            self.logger.record_mean("rl_reward/progress_mean", float(scored.mean()))
        asked, read = np.sum(reads, axis=0)
        self.logger.record_mean("rl_reward/unscored_rate", float(1 - read / asked))
        self.logger.record("rl_reward/judge_calls", self.usage.calls)
        self.logger.record("rl_reward/judge_seconds", self.seconds)
        self.logger.record("rl_reward/lag", self.buffer.lag)
        self.logger.record("rl_reward/pending", self.buffer.counts.pending)
        self._check_unscored(reads)

    def _check_unscored(self, reads: list[tuple[int, int]]) -> None:
        self._window.extend(reads)
        asked, read = np.sum(self._window, axis=0)
        if len(self._window) == self._window.maxlen and asked - read > self.max_unscored * asked:
            raise BackendError(
                f"{1 - read / asked:.0%} of the scores of the last {len(self._window)} episodes could not be read, "
                f"the limit is {self.max_unscored:.0%}; check the judge with `rl-reward probe` or raise max_unscored"
            )


def _asked(curve: ProgressCurve) -> int:
    """Return how many scores were asked for; curves without `scores` show it by a value or its absence."""
    return len(curve.checkpoints) or int((curve.scored | np.isnan(curve.values)).sum())
