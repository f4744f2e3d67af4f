"""Asks the judge about finished episodes, at once or in a thread beside the simulator. numpy only."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

from rl_reward.adapters.sb3.records import Episode, judged
from rl_reward.rewards import ProgressJudge
from rl_reward.scores import ProgressCurve


@dataclass(frozen=True, eq=False)
class Answer:
    """What the judge said about episodes that were handed over together."""

    episodes: int
    """How many they were."""
    curves: Sequence[ProgressCurve]
    """One for each, in order; none where nobody judges."""
    seconds: float
    """Wall seconds the judge took."""


@dataclass(frozen=True, eq=False)
class _Job:
    episodes: Sequence[Episode]
    answer: Future[Answer] = field(default_factory=Future[Answer])


class Scoring:
    """Episodes in, answers out, in the order of the asking.

    In the background one call of the judge runs at a time, so a judge with a state of its own is asked in the order in
    which episodes end. Each call starts the next one, and a failed call starts none.
    """

    waited: float
    """Wall seconds in which the simulator stood still for the judge."""
    has_failed: bool
    """Whether the judge raised; `take` raises it after the answers that came before."""

    def __init__(self, judge: ProgressJudge | None, every: int) -> None:
        """Ask `judge`, or nobody, about every `every`-th step; `start` comes first."""
        self.waited, self.has_failed = 0.0, False
        self._judge, self._every = judge, every
        self._jobs: deque[_Job] = deque()
        self._todo: deque[_Job] = deque()
        self._pool: ThreadPoolExecutor | None = None
        self._lock, self._busy = Lock(), False

    @property
    def asked(self) -> int:
        """Episodes handed over whose answer was not taken."""
        return sum(len(job.episodes) for job in self._jobs)

    @property
    def queued(self) -> int:
        """Episodes that wait for the judge."""
        return sum(len(job.episodes) for job in self._jobs if not job.answer.done())

    @property
    def is_ready(self) -> bool:
        """Whether the next answer is there."""
        return bool(self._jobs) and self._jobs[0].answer.done()

    def start(self, *, background: bool) -> None:
        """Begin anew, without earlier episodes; in the background the judge works while the simulator does."""
        self.stop()
        self._busy = self.has_failed = False
        self._pool = ThreadPoolExecutor(1, "rl_reward_judge") if background else None

    def stop(self) -> None:
        """Forget all episodes, and wait for the call that runs."""
        with self._lock:
            self._todo.clear()
        self._jobs.clear()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def ask(self, episodes: Sequence[Episode], limit: int) -> None:
        """Hand over `episodes`, standing still while more than `limit` would wait for the judge."""
        job = _Job(episodes)
        if self._pool is not None:
            self._make_room(len(episodes), limit)
            self._todo.append(job)
            self._start_next(self._pool)
        self._jobs.append(job)

    def take(self) -> Answer:
        """Return the oldest answer, standing still until it is there.

        Raises:
            Exception: What the judge raised.
        """
        job = self._jobs.popleft()
        began = time.perf_counter()
        try:
            if self._pool is None:
                self._run(job)
            return job.answer.result()
        finally:
            self.waited += time.perf_counter() - began

    def _make_room(self, count: int, limit: int) -> None:
        began = time.perf_counter()
        while not self.has_failed:
            waiting = [job for job in self._jobs if not job.answer.done()]
            if not waiting or sum(len(job.episodes) for job in waiting) + count <= limit:
                break
            wait([waiting[0].answer])
        self.waited += time.perf_counter() - began

    def _start_next(self, pool: ThreadPoolExecutor) -> None:
        with self._lock:
            if self._busy or not self._todo:
                return
            self._busy, job = True, self._todo.popleft()
        pool.submit(self._work, pool, job)

    def _work(self, pool: ThreadPoolExecutor, job: _Job) -> None:
        self._run(job)
        if self.has_failed:
            return
        self._busy = False
        # Starting each call from the one before, not all at once, lets a process that dies leave the queue behind:
        # the pool then refuses, while it would finish what it holds already.
        with suppress(RuntimeError):
            self._start_next(pool)

    def _run(self, job: _Job) -> None:
        began = time.perf_counter()
        try:
            curves = judged(self._judge, job.episodes, self._every) if self._judge is not None else []
        except BaseException as error:
            self.has_failed = True
            job.answer.set_exception(error)
        else:
            job.answer.set_result(Answer(len(job.episodes), curves, time.perf_counter() - began))
