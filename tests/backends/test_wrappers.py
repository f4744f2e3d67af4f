from __future__ import annotations

import asyncio
import math
import os
import pickle
import sqlite3
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from forks import in_a_fork

from rl_reward.backends.base import Message, Reply, Request, Token
from rl_reward.backends.cache import Cached
from rl_reward.backends.limits import RateLimited
from rl_reward.backends.simulated import Simulated
from rl_reward.backends.usage import UsageMeter
from rl_reward.errors import BackendError, ConfigError, Unscorable
from rl_reward.scale import ScoreScale
from rl_reward.types import Usage

T = TypeVar("T")
SCALE = ScoreScale.letters(20)
COST = Usage(1, 100, 4, 0.5)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 10))


def question(candidate: str = "candidate", draw: int = 0) -> Request:
    messages = (Message("user", (candidate,)),)
    return Request("pointwise", messages, ("score",), SCALE, "task", "quality", (candidate,), draw > 0, draw)


class Scripted:
    """Answers with its own model name and the candidate, after the failures of its script."""

    sees_data = False

    def __init__(self, model: str = "m", failures: tuple[Exception, ...] = (), seconds: float = 0.0) -> None:
        self.name = f"scripted:{model}"
        self.identity: str | None = f"{self.name} at home"
        self.failures, self.seconds = list(failures), seconds
        self.calls, self.cancelled, self.closed = 0, 0, False

    async def reply(self, request: Request) -> Reply:
        self.calls += 1
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failures:
            raise self.failures.pop(0)
        letter = Token("T", -0.1, (("T", -0.1), ("S", math.nan), ("R", -math.inf)))
        return Reply((letter,), f"{self.name} {request.text} {request.draw}", "thought", "length", COST)

    async def aclose(self) -> None:
        self.closed = True


# Cached


def test_a_question_answered_before_costs_nothing():
    inner = Scripted()
    judge = Cached(inner)
    first, second = run(judge.reply(question())), run(judge.reply(question()))
    assert first.usage == COST and second.usage == Usage() and inner.calls == 1
    assert second.content == first.content


def test_other_candidates_and_other_draws_are_other_questions():
    inner = Scripted()
    judge = Cached(inner)
    contents = {run(judge.reply(question(text, draw))).content for text in "ab" for draw in range(3)}
    assert len(contents) == inner.calls == 6


def test_answers_on_disk_are_found_by_the_next_run_whole(tmp_path: Path):
    path = tmp_path / "answers.sqlite"
    first = run(Cached(Scripted(), path).reply(question()))
    inner = Scripted()
    second = run(Cached(inner, path).reply(question()))
    assert inner.calls == 0
    assert repr(replace(second, usage=COST)) == repr(first), "NaN and -inf included"


def test_another_model_never_gets_the_answers_of_the_same_file(tmp_path: Path):
    path = tmp_path / "answers.sqlite"
    contents = [run(Cached(Scripted(model), path).reply(question())).content for model in ("m", "n", "m")]
    assert contents == ["scripted:m candidate 0", "scripted:n candidate 0", "scripted:m candidate 0"]


def test_a_wrapped_backend_keeps_its_identity(tmp_path: Path):
    path = tmp_path / "answers.sqlite"
    run(Cached(RateLimited(Scripted("m"), 100.0), path).reply(question()))
    inner = Scripted("n")
    assert run(Cached(UsageMeter(inner), path).reply(question())).content.startswith("scripted:n")


def test_a_file_needs_a_backend_that_says_which_model_it_is(tmp_path: Path):
    nameless = Simulated(lambda request: 0.5)
    with pytest.raises(ConfigError, match="give identity="):
        Cached(nameless, tmp_path / "answers.sqlite")
    assert run(Cached(nameless, tmp_path / "answers.sqlite", identity="half").reply(question())).content
    assert run(Cached(nameless).reply(question())).content


def test_failures_are_not_kept(tmp_path: Path):
    inner = Scripted(failures=(Unscorable("busy"), TimeoutError("slow"), BackendError("none")))
    judge = Cached(inner, tmp_path / "answers.sqlite")
    for failure in (Unscorable, TimeoutError, BackendError):
        with pytest.raises(failure):
            run(judge.reply(question()))
    assert run(judge.reply(question())).usage == COST and inner.calls == 4


def test_the_same_question_at_the_same_time_is_asked_and_paid_once():
    inner = Scripted(seconds=0.02)
    judge = Cached(inner)

    async def together() -> list[Reply]:
        return await asyncio.gather(*(judge.reply(question()) for _ in range(5)))

    replies = run(together())
    assert inner.calls == 1
    assert sum((reply.usage for reply in replies), Usage()) == COST


def test_one_who_gives_up_does_not_take_the_answer_from_the_others():
    inner = Scripted(seconds=0.05)
    judge = Cached(inner)

    async def one_gives_up() -> Reply:
        first = asyncio.create_task(judge.reply(question()))
        second = asyncio.create_task(judge.reply(question()))
        await asyncio.sleep(0.01)
        first.cancel()
        return await second

    assert run(one_gives_up()).usage == COST
    assert (inner.calls, inner.cancelled) == (1, 0)


def test_a_question_nobody_waits_for_is_withdrawn_and_can_be_asked_again():
    inner = Scripted(seconds=0.05)
    judge = Cached(inner)

    async def all_give_up() -> Reply:
        waiting = asyncio.create_task(judge.reply(question()))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.sleep(0)
        return await judge.reply(question())

    assert run(all_give_up()).usage == COST
    assert (inner.calls, inner.cancelled) == (2, 1)


def test_the_least_recently_used_goes_first():
    inner = Scripted()
    judge = Cached(inner, max_entries=2)
    for text in ("a", "b", "a", "c", "a"):
        run(judge.reply(question(text)))
    assert inner.calls == 3
    run(judge.reply(question("b")))
    assert inner.calls == 4


def test_the_file_stays_within_its_limit(tmp_path: Path):
    path = tmp_path / "answers.sqlite"
    judge = Cached(Scripted(), path, max_entries=2)
    for text in "abc":
        run(judge.reply(question(text)))
    inner = Scripted()
    again = Cached(inner, path, max_entries=2)
    for text in "cba":
        run(again.reply(question(text)))
    assert inner.calls == 1, "only the oldest is gone"


def test_a_file_that_is_no_cache_is_refused(tmp_path: Path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, just notes\n" * 100)
    with pytest.raises(ConfigError, match="cannot be used as a cache"):
        Cached(Scripted(), path)
    with pytest.raises(ConfigError, match="cannot be used as a cache"):
        Cached(Scripted(), tmp_path / "missing" / "answers.sqlite")
    assert path.read_text().startswith("not a database")


def test_a_pickled_cache_reads_the_same_file(tmp_path: Path):
    judge = Cached(Scripted(), tmp_path / "answers.sqlite")
    run(judge.reply(question()))
    again = pickle.loads(pickle.dumps(judge))
    assert run(again.reply(question())).usage == Usage()


DAMAGED = ["", "{", "null", '{"tokens": 5}', '{"tokens": []}', "[" * 100_000, b"\xff", 7]
DAMAGED += ['{"tokens": [], "content": 5, "reasoning": "", "finish_reason": ""}']
DAMAGED += ['{"tokens": [{"text": "T", "logprob": "low", "alternatives": []}]}']


@pytest.mark.parametrize("row", DAMAGED)
def test_a_damaged_row_is_a_question_not_asked(row: Any, tmp_path: Path):
    path = tmp_path / "answers.sqlite"
    run(Cached(Scripted(), path).reply(question()))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE replies SET reply = ?", (row,))
    inner = Scripted()
    assert run(Cached(inner, path).reply(question())).usage == COST
    assert run(Cached(inner, path).reply(question())).usage == Usage() and inner.calls == 1


@pytest.mark.parametrize("table", ["users (name TEXT)", "replies (key TEXT UNIQUE, reply TEXT)"])
def test_a_database_of_another_program_is_no_cache_and_stays_as_it_is(table: str, tmp_path: Path):
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE {table}")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"cannot be used as a cache .*another program"):
        Cached(Scripted(), path)
    assert path.read_bytes() == before


def test_a_cache_that_breaks_in_the_middle_says_so(tmp_path: Path):
    path = tmp_path / "answers.sqlite"
    judge = Cached(Scripted(), path)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE replies")
    with pytest.raises(ConfigError, match=r"cannot be used as a cache .*no such table"):
        run(judge.reply(question()))


@pytest.mark.parametrize("limit", [0, True, 2.5, math.nan, "3"])
def test_a_number_of_entries_that_is_none_is_refused(limit: Any):
    with pytest.raises(ConfigError, match="max_entries must be an integer of at least 1"):
        Cached(Scripted(), max_entries=limit)


def test_a_fork_opens_the_file_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    opened, connect = list[int](), sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: opened.append(os.getpid()) or connect(*a, **k))
    judge = Cached(Scripted(), tmp_path / "answers.sqlite")
    run(judge.reply(question("parent")))
    assert in_a_fork(lambda: run(judge.reply(question("child"))) and opened[1:] == [os.getpid()])
    assert run(judge.reply(question("child"))).usage == Usage(), "written by the child, read by the parent"
    assert opened == [os.getpid()]


# UsageMeter


def test_the_meter_adds_up_replies_and_counts_failures_by_kind():
    failures = (Unscorable("busy"), TimeoutError("slow"), TimeoutError("slow"), BackendError("none"))
    meter = UsageMeter(Scripted(failures=failures))
    for failure in failures:
        with pytest.raises(type(failure)):
            run(meter.reply(question()))
    for _ in range(3):
        run(meter.reply(question()))
    assert meter.total == Usage(3, 300, 12, 1.5)
    assert meter.failures == {"unscorable": 1, "timeout": 2, "backend": 1}


def test_the_meter_outside_a_cache_counts_what_was_paid_for():
    meter = UsageMeter(Cached(Scripted()))
    for _ in range(3):
        run(meter.reply(question()))
    assert meter.total == COST


# RateLimited


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now, self.naps = 100.0, list[float]()

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        await asyncio.sleep(0)
        self.now += seconds


def test_requests_are_spaced_evenly():
    clock = Clock()
    judge = RateLimited(Scripted(), 4.0, clock=clock, sleep=clock.sleep)

    async def together() -> None:
        await asyncio.gather(*(judge.reply(question()) for _ in range(4)))

    run(together())
    assert clock.naps == pytest.approx([0.0, 0.25, 0.25, 0.25])
    clock.now += 60.0
    run(judge.reply(question()))
    assert clock.naps[-1] == 0.0, "a pause is not made up for"


def test_another_event_loop_has_a_queue_of_its_own():
    clock = Clock()
    judge = RateLimited(Scripted(), 4.0, clock=clock, sleep=clock.sleep)

    async def together() -> None:
        await asyncio.gather(*(judge.reply(question()) for _ in range(3)))

    run(together())
    run(together())
    assert clock.naps == pytest.approx([0.0] + [0.25] * 5), "the limit holds across them"


def test_who_gives_up_waiting_leaves_no_gap():
    clock = Clock()
    inner = Scripted()
    judge = RateLimited(inner, 1.0, clock=clock, sleep=clock.sleep)

    async def most_give_up() -> None:
        waiting = [asyncio.create_task(judge.reply(question())) for _ in range(10)]
        for task in waiting[1:9]:
            task.cancel()
        await asyncio.wait(waiting)

    run(most_give_up())
    assert inner.calls == 2 and clock.now == pytest.approx(101.0)


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, math.inf, True, "3", None])
def test_a_limit_that_is_none_is_refused(limit: Any):
    with pytest.raises(ConfigError, match="requests_per_second must be a finite number > 0"):
        RateLimited(Scripted(), limit)


# All of them


async def slowly(seconds: float) -> None:
    await asyncio.sleep(0.1)


WRAPPERS: list[Callable[[Any], Any]] = [Cached, UsageMeter, lambda backend: RateLimited(backend, 1000.0)]


@pytest.mark.parametrize("wrap", [*WRAPPERS, lambda backend: RateLimited(backend, 1000.0, sleep=slowly)])
def test_a_fork_in_the_middle_of_a_question_asks_its_own(wrap: Callable[[Any], Any]):
    async def forked() -> tuple[bool, Usage]:
        judge = wrap(Scripted(seconds=0.1))
        first = asyncio.create_task(judge.reply(question()))
        await asyncio.sleep(0.02)
        return in_a_fork(lambda: run(judge.reply(question())).usage == COST), (await first).usage

    assert run(forked()) == (True, COST)


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_wrappers_pass_on_what_they_do_not_change(wrap: Callable[[Any], Any]):
    inner = Scripted()
    judge = wrap(inner)
    assert (judge.name, judge.sees_data, judge.identity) == (inner.name, inner.sees_data, inner.identity)
    assert wrap(Simulated(lambda request: 0.5)).sees_data
    reply = run(judge.reply(question()))
    assert (reply.content, reply.finish_reason, reply.usage) == ("scripted:m candidate 0", "length", COST)
    run(judge.aclose())
    assert inner.closed
    assert run(pickle.loads(pickle.dumps(judge)).reply(question("b"))).content == "scripted:m b 0"
