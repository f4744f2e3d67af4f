"""The callback that tells the relabelling buffer where episodes begin, and asks the judge when they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from rl_reward._checks import check_int, check_number
from rl_reward.adapters.sb3.buffer import RelabelReplayBuffer
from rl_reward.adapters.sb3.checks import check_model
from rl_reward.adapters.sb3.records import Episode, step_of
from rl_reward.adapters.sb3.scoring import Answer, Scoring
from rl_reward.errors import BackendError, ConfigError
from rl_reward.rewards import ProgressJudge
from rl_reward.scores import ProgressCurve
from rl_reward.types import Usage


class RelabelCallback(BaseCallback):
    """Has whole episodes scored when they end, and lets `RelabelReplayBuffer` turn progress into reward.

    Environments put a `Step` into `info["rl_reward"]` at reset, at a stride of their own and at done. The task text is
    `info["task"]` of the reset, else the env attribute `task`, else the argument.

    With a `lag`, or with `as_scored`, the judge works in a thread while the simulator goes on; the simulator stands
    still only where a row is due and unscored, or more than `max_queued` episodes would wait for the judge. Once the
    judge raises, `learn()` raises the same; the episodes it did not answer wait in the buffer, which can be saved, and
    the next `learn()` asks about them first. A judge that never answers needs a deadline of its own.

    Logs under `rl_reward/`: progress_mean and unscored_rate (over the episodes since the last dump), judge_calls,
    judge_seconds and waited_seconds (so far), lag (env steps between the latest commit and the simulator), pending
    (transitions waiting), queued (episodes waiting for the judge), discarded (transitions), and reproducible (1, or 0
    where rows commit by wall clock).
    """

    usage: Usage
    """What the judge cost so far."""
    seconds: float
    """Wall seconds in which the judge worked so far."""
    asked: int
    """Scores asked for so far."""
    read: int
    """Scores read so far; the others are unscored."""

    def __init__(
        self,
        judge: ProgressJudge | None,
        *,
        task: str | None = None,
        every: int = 1,
        max_unscored: float = 0.2,
        window: int = 20,
        max_queued: int = 8,
        verbose: int = 0,
    ) -> None:
        """Ask `judge`.

        Args:
            judge: Who scores; None only where the shaping weight is 0: nothing is asked then.
            task: The task in words, for environments that do not say it.
            every: The first, every `every`-th and the last `Step` of an episode are asked, >= 1.
            max_unscored: Training stops when more than this share of the scores could not be read, in [0, 1].
            window: Finished episodes over which that share is taken, >= 1.
            max_queued: Episodes that may wait for the judge in the background, >= 1; the one being read counts.
            verbose: See `BaseCallback`.
        """
        super().__init__(verbose)
        check_int("every", every, least=1)
        check_int("window", window, least=1)
        check_int("max_queued", max_queued, least=1)
        check_number("max_unscored", max_unscored, least=0, most=1)
        self.judge, self.task, self.max_unscored, self.max_queued = judge, task, max_unscored, max_queued
        self.usage, self.seconds, self.asked, self.read = Usage(), 0.0, 0, 0
        self._reads: deque[tuple[int, int]] = deque(maxlen=window)
        self._scoring = Scoring(judge, every)
        self._env_says_task = False

    @property
    def buffer(self) -> RelabelReplayBuffer:
        """The buffer of the model."""
        return cast(Any, self.model).replay_buffer

    @property
    def waited(self) -> float:
        """Wall seconds in which the simulator stood still for the judge so far."""
        return self._scoring.waited

    @property
    def reproducible(self) -> bool:
        """Whether equal seeds and an equal judge give equal buffers: rows do not commit by wall clock."""
        return self.judge is None or not self.buffer.as_scored

    def _on_training_start(self) -> None:
        check_model(self.model, self.judge)
        self._env_says_task = self.training_env.has_attr("task")
        self._scoring.start(background=self.judge is not None and (self.buffer.lag > 0 or self.buffer.as_scored))
        self.buffer.note_unstored()
        waiting, last_obs = self.buffer.waiting, cast(Any, self.model)._last_obs
        # SB3 replaces the object when it resets the env, and keeps it from one learn() to the next otherwise.
        env_goes_on = self.buffer.last_obs is last_obs
        waiting.close(env_goes_on=env_goes_on)
        self._ask()
        self._collect(everything=True)
        self.buffer.commit(flush=True)
        if not env_goes_on:
            waiting.running = [self._episode(env) for env in range(self.buffer.n_envs)]

    def _on_step(self) -> bool:
        # SB3 stores the transition after this call, and the envs that are done have been reset before it.
        done = np.flatnonzero(self.locals["dones"]).tolist()
        self.buffer.waiting.announced = {env: self._episode(env) for env in done}
        self.buffer.last_obs = self.locals["new_obs"]
        return True

    def _on_rollout_end(self) -> None:
        # Every transition of the rollout is stored by now, and no gradient step has been taken.
        self._ask()
        self._collect()

    def _on_training_end(self) -> None:
        self.buffer.note_unstored()
        self._ask()
        self._collect(everything=True)
        self._scoring.stop()

    def _episode(self, env: int) -> Episode:
        """Return the episode that begins at the latest reset of `env`."""
        # A VecEnvWrapper has reset_infos of its own that stay empty; the innermost VecEnv's are filled.
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

    def _ask(self) -> None:
        """Hand over the episodes that ended since the last call."""
        new = self.buffer.waiting.finished[self._scoring.asked :]
        if new:
            self._scoring.ask([ended.episode for ended in new], self.max_queued)

    def _collect(self, *, everything: bool = False) -> None:
        """Label the episodes whose turn it is, waiting for the judge where it has not answered, and commit."""
        while self._scoring.asked and (everything or self._is_turn):
            answer = self._scoring.take()
            self.buffer.waiting.label(answer.curves or [None] * answer.episodes)
            self.buffer.commit()
            if answer.curves:
                self._record(answer)
        self.buffer.commit()

    @property
    def _is_turn(self) -> bool:
        """Whether the oldest answer is to be taken now."""
        # What came before a failure is taken first, so that nothing is asked twice, and then the failure itself.
        if self._scoring.has_failed or not self.buffer.as_scored:
            return self._scoring.has_failed or self.buffer.is_due
        starving = not self.buffer.size() and self.num_timesteps > cast(Any, self.model).learning_starts
        return self._scoring.is_ready or starving

    def _record(self, answer: Answer) -> None:
        self.seconds += answer.seconds
        self.usage = sum((curve.usage for curve in answer.curves), self.usage)
        reads = [(_asked(curve), int(curve.scored.sum())) for curve in answer.curves]
        self.asked, self.read = self.asked + sum(a for a, _ in reads), self.read + sum(r for _, r in reads)
        scored = np.concatenate([curve.values[curve.scored] for curve in answer.curves])
        if scored.size:
            self.logger.record_mean("rl_reward/progress_mean", float(scored.mean()))
        self.logger.record_mean("rl_reward/unscored_rate", _unscored(reads))
        self.logger.record("rl_reward/judge_calls", self.usage.calls)
        self.logger.record("rl_reward/judge_seconds", self.seconds)
        counts = self.buffer.counts
        numbers = {"lag": self.buffer.behind, "pending": counts.pending, "discarded": counts.discarded}
        numbers |= {"waited_seconds": self.waited, "queued": self._scoring.queued, "reproducible": self.reproducible}
        for name, number in numbers.items():
            self.logger.record(f"rl_reward/{name}", float(number))
        self._reads.extend(reads)
        if len(self._reads) == self._reads.maxlen and _unscored(self._reads) > self.max_unscored:
            raise BackendError(
                f"{_unscored(self._reads):.0%} of the scores of the last {len(self._reads)} episodes could not be "
                f"read, the limit is {self.max_unscored:.0%}; try `rl-reward probe`, or raise max_unscored"
            )


def _asked(curve: ProgressCurve) -> int:
    """Return how many scores were asked for; a curve without `scores` shows it by a value or its absence."""
    return len(curve.checkpoints) or int((curve.scored | np.isnan(curve.values)).sum())


def _unscored(reads: Sequence[tuple[int, int]] | deque[tuple[int, int]]) -> float:
    """Return the share of (asked, read) scores that could not be read."""
    asked, read = np.sum(reads, axis=0)
    return float(1 - read / asked) if asked else 0.0
