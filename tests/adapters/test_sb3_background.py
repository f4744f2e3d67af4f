"""The judge works while the simulator does: order, back-pressure, crashes, resuming, memory."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sb3_toys import (
    HALF,
    NAN,
    PAID,
    PAID_REVERSED,
    SOLVED,
    TIMED_OUT,
    Reader,
    Scripted,
    Wander,
    in_ring,
    make_model,
    played,
)
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from rl_reward.adapters.sb3 import Counts, RelabelCallback
from rl_reward.errors import BackendError, ConfigError
from rl_reward.rewards import Oracle
from rl_reward.scores import ProgressCurve
from rl_reward.types import Step

PROMPT = {"lag": 0}
LAGGED = {"lag": 6}
BY_CLOCK = {"as_scored": True}


class Gated(Reader):
    """Answers the episodes that the gate lets through."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)

    def track_many(self, episodes: Any, *, every: int = 1) -> list[ProgressCurve]:
        assert self.gate.acquire(timeout=60), "training stood still"
        return super().track_many(episodes, every=every)


class Crashing(Reader):
    """Raises at its n-th call."""

    def __init__(self, n: int, error: BaseException) -> None:
        super().__init__()
        self.left, self.error = n, error

    def track_many(self, episodes: Any, *, every: int = 1) -> list[ProgressCurve]:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return super().track_many(episodes, every=every)


class Every(BaseCallback):
    """Calls a function with the model at each step."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def _on_step(self) -> bool:
        self.function(self.model)
        return True


def crashed(model: Any, judge: Crashing) -> Any:
    with pytest.raises(type(judge.error), match=str(judge.error)):
        model.learn(100, callback=RelabelCallback(judge))
    counts = model.replay_buffer.counts
    assert counts.added == model.num_timesteps == counts.committed + counts.pending
    return model


# By wall clock


def test_as_scored_commits_when_the_score_is_there_and_waits_for_nothing() -> None:
    judge, seen = Gated(), []

    def step(model: Any) -> None:
        if model.num_timesteps == 9:
            judge.gate.release(2)
            wait_until(lambda: len(judge.asked) == 2, callback._scoring)
        seen.append(model.replay_buffer.size())

    callback = RelabelCallback(judge)
    model = make_model(Scripted(SOLVED, TIMED_OUT), buffer=BY_CLOCK)
    # SOLVED ends at 2 and 7, TIMED_OUT at 5 and 10: at step 9 the judge answers two, and the third is out.
    model.learn(9, callback=[callback, Every(step), Every(lambda m: judge.gate.release() if len(seen) == 9 else None)])
    assert seen == [0] * 9, "SB3 stores after the callback"
    assert in_ring(model.replay_buffer) == pytest.approx([*PAID, *PAID[:2]], abs=1e-6)
    assert model.replay_buffer.counts == Counts(9, 7, 2, 0)


def wait_until(holds: Any, scoring: Any) -> None:
    """Wait for the judge's thread, which answers right after the gate."""
    for job in list(scoring._jobs)[:2]:
        job.answer.result(timeout=60)
    assert holds()


def test_as_scored_gives_the_learner_something_to_sample() -> None:
    judge = Gated()

    def release(model: Any) -> None:
        if model.num_timesteps == 5:
            judge.gate.release(100)

    # The first update falls on step 5, where nothing was answered yet: there training waits.
    model = make_model(Scripted(SOLVED), learning_starts=4, buffer=BY_CLOCK)
    model.learn(8, callback=[RelabelCallback(judge), Every(release)])
    assert model._n_updates == 4
    assert in_ring(model.replay_buffer)[:2] == pytest.approx(PAID[:2], abs=1e-6)


def test_the_run_says_whether_it_can_be_repeated() -> None:
    logged: dict[str, float] = {}
    spy = Every(lambda model: logged.update(model.logger.name_to_value))
    for settings, reproducible in ((PROMPT, 1.0), (LAGGED, 1.0), (BY_CLOCK, 0.0)):
        logged.clear()
        callback = RelabelCallback(Reader(), max_unscored=1.0)
        model = make_model(Scripted(SOLVED, TIMED_OUT), buffer=settings)
        model.learn(20, callback=[callback, spy], log_interval=1000)
        assert logged["rl_reward/reproducible"] == callback.reproducible == reproducible
        assert callback.waited >= logged["rl_reward/waited_seconds"] >= 0


def test_the_lag_is_logged_as_it_is() -> None:
    logged: list[float] = []
    spy = Every(lambda model: logged.append(model.logger.name_to_value.get("rl_reward/lag", NAN)))
    callback = RelabelCallback(Reader(), max_unscored=1.0)
    make_model(Scripted(SOLVED, TIMED_OUT), buffer={"lag": 4}).learn(12, callback=[callback, spy], log_interval=1000)
    # The first row is due at 5 steps; from there on the newest row in the ring is 4 steps behind.
    np.testing.assert_equal(logged, [NAN] * 5 + [4.0] * 7)


# Back-pressure


def test_a_full_queue_stops_the_simulator_until_the_judge_has_answered() -> None:
    judge, queued = Gated(), []
    callback = RelabelCallback(judge, max_queued=2)

    def step(model: Any) -> None:
        queued.append(callback._scoring.queued)
        if model.num_timesteps == 6:
            # Episodes end at 2, 4 and 6; the third waits in `ask` until the first is answered.
            threading.Timer(0.2, judge.gate.release).start()
        if model.num_timesteps == 7:
            judge.gate.release(100)

    make_model(Scripted(SOLVED), buffer={"lag": 100}).learn(7, callback=[callback, Every(step)])
    assert queued == [0, 0, 1, 1, 2, 2, 2], "the fifth and sixth steps see two, and after the third came one had left"
    assert callback.waited > 0


def test_a_group_larger_than_the_queue_passes_when_the_queue_is_empty() -> None:
    env = DummyVecEnv([lambda: Scripted(SOLVED)] * 3)
    model = make_model(env, buffer={"lag": 12})
    model.learn(30, callback=RelabelCallback(Reader(), max_queued=1))
    assert model.replay_buffer.counts == Counts(30, 18, 12, 0)


@pytest.mark.parametrize("settings", [LAGGED, {"lag": 100}, BY_CLOCK])
def test_the_judge_is_asked_about_each_episode_once_and_in_order(settings: Any) -> None:
    class Told(Scripted):
        def _info(self, progress: Any) -> dict[str, Any]:
            return {**super()._info(progress), "task": f"episode {self.number}"}

    judge = Reader()
    make_model(Told(SOLVED, TIMED_OUT), buffer=settings).learn(50, callback=RelabelCallback(judge, max_queued=3))
    assert judge.tasks == [f"episode {number}" for number in range(20)]


# Crashes


@pytest.mark.parametrize("error", [BackendError("server gone"), TimeoutError("too slow"), ZeroDivisionError("a bug")])
@pytest.mark.parametrize("settings", [PROMPT, LAGGED, BY_CLOCK])
def test_a_crash_of_the_judge_stops_training_and_loses_nothing(settings: Any, error: Exception, tmp_path: Path) -> None:
    model = crashed(make_model(Scripted(SOLVED, TIMED_OUT), buffer=settings), Crashing(3, error))
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    before = model.replay_buffer.counts
    assert before.pending >= 2, "the third episode, SOLVED, was not read"

    resumed = make_model(Scripted(SOLVED, TIMED_OUT), buffer=settings)
    resumed.load_replay_buffer(tmp_path / "buffer.pkl")
    assert resumed.replay_buffer.counts == before
    judge = Reader()
    resumed.learn(10, callback=RelabelCallback(judge))
    whole = np.tile(PAID, 10)
    # The loaded run begins with an episode of its own, behind the one that ran when the judge crashed.
    ring = in_ring(resumed.replay_buffer)
    assert ring[: before.added] == pytest.approx(whole[: before.added], abs=1e-6)
    assert ring[before.added :] == pytest.approx(whole[: len(ring) - before.added], abs=1e-6)
    assert resumed.replay_buffer.counts.added == before.added + 10


@pytest.mark.parametrize("settings", [PROMPT, LAGGED])
@pytest.mark.parametrize("n_envs", [1, 2])
def test_a_crashed_and_resumed_run_holds_the_transitions_of_one_that_went_through(settings: Any, n_envs: int) -> None:
    def model() -> Any:
        return make_model(DummyVecEnv([Wander] * n_envs), buffer=settings)

    class Late(Oracle):
        calls = 0

        def track_many(self, episodes: Any, *, every: int = 1) -> list[ProgressCurve]:
            Late.calls += 1
            if Late.calls == 9:
                raise BackendError("server gone")
            return super().track_many(episodes, every=every)

    through = model().learn(200, callback=RelabelCallback(Oracle())).replay_buffer
    resumed = model()
    with pytest.raises(BackendError, match="server gone"):
        resumed.learn(200, callback=RelabelCallback(Late()))
    at = resumed.num_timesteps
    assert 20 < at < 150
    resumed.learn(200 - at, callback=RelabelCallback(Oracle()), reset_num_timesteps=False)
    ours = resumed.replay_buffer
    assert ours.counts == through.counts
    assert ours.counts.committed > 150
    for name in ("observations", "next_observations", "actions", "rewards"):
        np.testing.assert_allclose(getattr(ours, name)[: ours.size()], getattr(through, name)[: ours.size()], atol=1e-6)
    # Only where the episodes that ran at the crash were closed do the flags differ: one row, where learners bootstrap.
    differ = np.flatnonzero((ours.dones != through.dones).any(axis=1))
    assert list(differ) in ([], [at // n_envs - 1])
    assert ours.timeouts[differ].all()


def test_a_crash_in_the_middle_of_learning_goes_on_from_files(tmp_path: Path) -> None:
    class Once(Oracle):
        calls = 0

        def track_many(self, episodes: Any, *, every: int = 1) -> list[ProgressCurve]:
            Once.calls += 1
            if Once.calls == 12:
                raise TimeoutError("no answer")
            return super().track_many(episodes, every=every)

    model = make_model(Wander(), learning_starts=60, buffer={"lag": 24})
    with pytest.raises(TimeoutError, match="no answer"):
        model.learn(300, callback=RelabelCallback(Once()))
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    stopped, updates = model.replay_buffer.counts, model._n_updates
    assert updates > 0 and stopped.pending >= 24

    loaded = type(model).load(tmp_path / "model", env=Wander(), device="cpu")
    loaded.load_replay_buffer(tmp_path / "buffer.pkl")
    loaded.learn(300 - loaded.num_timesteps, callback=RelabelCallback(Oracle()), reset_num_timesteps=False)
    buffer = loaded.replay_buffer
    assert buffer.counts == Counts(300, 276, 24, 0)
    assert loaded._n_updates > updates
    scored = buffer.records["scored"][:276, 0]
    dones = buffer.records["done"][:276, 0]
    assert scored[dones].mean() > 0.9, "all but the episode that was cut off between two of its steps"


def test_answers_that_came_before_the_crash_are_kept() -> None:
    judge = Crashing(3, BackendError("gone"))
    model = crashed(make_model(Scripted(SOLVED, TIMED_OUT), buffer={"lag": 50}), judge)
    assert len(judge.asked) == 2
    assert (
        len(model.replay_buffer.waiting.finished) == model.num_timesteps // 5 * 2 + (model.num_timesteps % 5 >= 2) - 2
    )
    again = Reader()
    model.learn(1, callback=RelabelCallback(again), reset_num_timesteps=False)
    assert again.asked[0] == [0.2, 0.5, 1.0], "the third episode; the first two were read"


def test_after_a_failure_the_judge_is_not_asked_again() -> None:
    class Broken(Reader):
        calls = 0

        def track_many(self, episodes: Any, *, every: int = 1) -> list[ProgressCurve]:
            Broken.calls += 1
            assert gate.wait(timeout=60)
            raise BackendError("gone")

    gate = threading.Event()
    # Four episodes are in the queue when the first call fails.
    open_late = Every(lambda model: gate.set() if model.num_timesteps == 9 else None)
    model = make_model(Scripted(SOLVED), buffer={"lag": 100})
    with pytest.raises(BackendError, match="gone"):
        model.learn(400, callback=[RelabelCallback(Broken()), open_late])
    assert Broken.calls == 1
    assert model.num_timesteps < 300, "training stops when the failure is known, not when the row is due"
    assert model.replay_buffer.counts.pending == model.num_timesteps


def test_a_failing_start_can_be_tried_again() -> None:
    model = crashed(make_model(Scripted(SOLVED, TIMED_OUT)), Crashing(2, BackendError("gone")))
    for _ in range(2):
        with pytest.raises(BackendError, match="still gone"):
            model.learn(5, callback=RelabelCallback(Crashing(1, BackendError("still gone"))))
    model.learn(5, callback=RelabelCallback(Reader()))
    # Every start resets the environment, so the third one begins with the other episode.
    assert in_ring(model.replay_buffer) == pytest.approx([*PAID, *PAID_REVERSED], abs=1e-6)


def test_a_process_that_dies_leaves_the_queue_behind() -> None:
    script = """
import threading, time
from sb3_toys import SOLVED, Reader, Scripted, make_model
from rl_reward.adapters.sb3 import RelabelCallback

class Slow(Reader):
    def track_many(self, episodes, *, every=1):
        print("asked", flush=True)
        assert died.wait(60)
        time.sleep(1)
        return super().track_many(episodes, every=every)

class Dies(Scripted):
    def step(self, action):
        if self.number == 20:
            died.set()
            raise RuntimeError("simulator gone")
        return super().step(action)

died = threading.Event()
make_model(Dies(SOLVED), buffer={"lag": 1000}).learn(100, callback=RelabelCallback(Slow(), max_queued=100))
"""
    here = str(Path(__file__).parent)
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=Path.cwd(),
        env={"PYTHONPATH": f"{here}:{Path.cwd()}", "PATH": "", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 1 and "RuntimeError: simulator gone" in run.stderr
    assert 1 <= run.stdout.count("asked") < 10, "twenty episodes were in the queue"


# What is given up


def test_discarded_episodes_are_counted_and_the_rest_goes_on() -> None:
    model = crashed(make_model(Scripted(SOLVED, TIMED_OUT)), Crashing(2, BackendError("never read")))
    buffer = model.replay_buffer
    assert buffer.discard("the judge cannot read it") == 3
    assert buffer.counts == Counts(5, 2, 0, 3, {"the judge cannot read it": 3})
    model.learn(5, callback=RelabelCallback(Reader()), reset_num_timesteps=False)
    assert in_ring(buffer) == pytest.approx([*PAID[:2], *PAID[:2], *PAID[2:]], abs=1e-6)
    assert buffer.counts == Counts(10, 7, 0, 3, {"the judge cannot read it": 3})
    with pytest.raises(ConfigError, match="reason must be a text"):
        buffer.discard(" ")


def test_where_the_rest_of_an_episode_was_discarded_the_learner_bootstraps() -> None:
    env = DummyVecEnv([lambda: Scripted(SOLVED), lambda: Scripted(TIMED_OUT)])
    model = make_model(env)
    # Envs end after rows 2, 4 and 6, and after rows 3 and 6; nothing of the second env is read.
    crashed(model, Crashing(2, BackendError("gone")))
    assert model.num_timesteps == 6
    model.learn(2, callback=RelabelCallback(Reader()), reset_num_timesteps=False)
    buffer = model.replay_buffer
    assert buffer.discard("enough") == buffer.counts.discarded == 2
    assert in_ring(buffer, "dones", env=0) == [0, 1, 1]
    assert in_ring(buffer, "timeouts", env=0) == [0, 0, 1]
    assert in_ring(buffer, "timeouts", env=1) == [0, 0, 1]


def test_a_checkpoint_inside_a_step_says_what_it_lacks(tmp_path: Path) -> None:
    save = CheckpointCallback(7, str(tmp_path), save_replay_buffer=True)
    model = make_model(Scripted(SOLVED, TIMED_OUT), buffer=LAGGED)
    model.learn(8, callback=[RelabelCallback(Reader()), save])
    (path,) = tmp_path.glob("*replay_buffer*.pkl")
    loaded = make_model(Scripted(SOLVED, TIMED_OUT), buffer=LAGGED)
    loaded.load_replay_buffer(path)
    loaded.learn(5, callback=RelabelCallback(Reader()))
    lost = {"stepped but not stored by SB3": 1}
    assert loaded.replay_buffer.counts == Counts(12, 6, 5, 1, lost)
    assert in_ring(loaded.replay_buffer) == pytest.approx([*PAID, PAID[0]], abs=1e-6)


# Memory


@pytest.mark.parametrize("settings", [PROMPT, LAGGED, BY_CLOCK])
def test_images_are_gone_once_their_episode_is_committed(settings: Any) -> None:
    images: list[tuple[int, Any]] = []

    class Filmed(Scripted):
        def _info(self, progress: Any) -> dict[str, Any]:
            image = np.zeros((8, 8, 3), np.uint8)
            images.append((self.number, weakref.ref(image)))
            return {"rl_reward": Step("seen", image, 0.5)}

    model = make_model(Filmed(SOLVED), buffer=settings)
    model.learn(40, callback=RelabelCallback(Reader()))
    buffer = model.replay_buffer
    committed = buffer.counts.committed // 2
    assert committed >= 17
    held = {number for number, image in images if image() is not None}
    # The last infos of SB3 belong to the episode that ended last, and its reset info to the one that runs.
    assert held <= {*range(committed, 21), 19, 20}
    if settings is not LAGGED:
        assert sum(image() is not None for _, image in images) <= 3


def test_potential_rewards_do_not_depend_on_when_rows_commit() -> None:
    rings = [in_ring(played(40, SOLVED, TIMED_OUT, buffer=s).replay_buffer) for s in (PROMPT, LAGGED, BY_CLOCK)]
    assert rings[1] == rings[0][: len(rings[1])]
    assert rings[2] == rings[0]
    assert len(rings[1]) == 34 and HALF.form == "potential"
