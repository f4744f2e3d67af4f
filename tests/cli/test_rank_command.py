"""`rl-reward rank`: what a user sees, the exit codes, and one line for every wrong input."""

import asyncio
import json
import sys

import pytest

from rl_reward.backends.base import Reply, Token
from rl_reward.backends.simulated import Simulated
from rl_reward.cli import main
from rl_reward.cli.bar import counted

JUDGE = ("--backend", "simulated")


@pytest.fixture
def no_calls(monkeypatch):
    def answer(*_):
        raise AssertionError("a judge was asked")

    monkeypatch.setattr(Simulated, "reply", answer)


@pytest.fixture
def mute(monkeypatch):
    async def answer(*_):
        return Reply((Token("no\x1b[31m idea"),), "no idea")

    monkeypatch.setattr(Simulated, "reply", answer)


def test_rank_tells_its_cost_first_then_the_order_and_writes_both(tmp_path, capsys):
    out = tmp_path / "ranking.json"
    assert main(["rank", "2+2?", "4", "5", "six", "7", *JUDGE, "--pivots", "1", "--strengths", "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert shown.err == "7 comparisons, at most 7 calls; retries and a server's first probe come on top\n"
    assert "7 comparisons, 0 unread" in shown.out and "judge simulated(): 7 calls" in shown.out
    record = json.loads(out.read_text())
    (ranking,) = record["rankings"]
    lines = shown.out.splitlines()[1:5]
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]
    assert [line.split()[-1] for line in lines] == [ranking["candidates"][i] for i in ranking["order"]]
    assert f"{ranking['scores'][ranking['order'][0]]:.3f}" in lines[0]
    assert f"{ranking['strengths'][ranking['order'][0]]:.3f}" in lines[0]
    assert len(ranking["comparisons"]) == ranking["usage"]["calls"] == 7
    assert {pair["stage"] for pair in ranking["comparisons"]} == {"ring", "pivots"}


def test_many_groups_of_a_file_share_one_budget(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"task": "t", "candidates": ["a", "b"]}\n{"task": "u", "candidates": ["only"]}\n')
    assert main(["rank", "--jsonl", str(rows), *JUDGE, "--criteria", "math", "--seed", "3"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "2 comparisons, at most 6 calls; retries and a server's first probe come on top\n"
    assert "task u" in shown.out and "0 comparisons, 0 unread" in shown.out


def test_anchored_takes_references_from_the_line_or_the_file(tmp_path, capsys):
    assert main(["rank", "t", "a", "b", *JUDGE, "--method", "anchored", "--reference", "c", "--reference", "d"]) == 0
    shown = capsys.readouterr()
    assert "8 comparisons" in shown.err and "strength" not in shown.out
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"task": "t", "candidates": ["a", "b"], "references": ["c"]}\n')
    assert main(["rank", "--jsonl", str(rows), *JUDGE, "--method", "anchored"]) == 0
    assert "4 comparisons" in capsys.readouterr().err


def test_nothing_readable_is_exit_code_1_with_the_reason(mute, tmp_path, capsys):
    out = tmp_path / "x.json"
    assert main(["rank", "t", "a", "b", *JUDGE, "--out", str(out), "--strengths"]) == 1
    shown = capsys.readouterr().out
    assert "2 comparisons, 2 unread" in shown and "unread" in shown.splitlines()[1] and "Correctness" in shown
    assert "\x1b" not in shown
    (ranking,) = json.loads(out.read_text())["rankings"]
    assert ranking["scores"] == ranking["strengths"] == ranking["ranks"] == [None, None]


def test_strengths_without_their_package_are_refused_before_anything_is_asked(no_calls, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "choix", None)
    assert main(["rank", "t", "a", "b", *JUDGE, "--strengths"]) == 2
    assert 'pip install "rl-reward[rank]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give TASK and CANDIDATES, or --jsonl FILE; got neither"),
        (["t", "a", "--jsonl", "rows.jsonl"], "give TASK and CANDIDATES, or --jsonl FILE; got both"),
        (["--jsonl", "missing.jsonl"], "cannot read 'missing.jsonl'"),
        (["t"], "candidates must be an integer of at least 1, got 0"),
        (["t", "a", " "], "a candidate is empty; there is nothing to judge"),
        ([" ", "a"], "the task is empty"),
        (["t", "a", "b", "--pivots", "-1"], "pivots must be an integer of at least 0, got -1"),
        (["t", "a", "b", "--method", "anchored"], "references must be an integer of at least 1, got 0"),
        (["t", "a", "b", "--reference", "c"], 'references belong to method "anchored", got 1 with'),
        (["t", "a", "b", "--out", "no/such/folder/x.json"], "cannot write 'no/such/folder/x.json'"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments, message, no_calls, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["rank", *arguments, *JUDGE]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and shown.err.count("\n") == 1 and not shown.out


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"task": "t"}', "line 1 of 'rows.jsonl' has no candidates; its keys are task"),
        ('{"task": "t", "candidates": "a"}', "candidates of line 1 of 'rows.jsonl' must be a list, got 'a'"),
        (
            '{"task": "t", "candidates": ["a", 5]}',
            "item 2 of candidates of line 1 of 'rows.jsonl' must be a text, got 5",
        ),
        ("", '\'rows.jsonl\' has no rows; write one {"task": ..., "candidates": [...]} a line'),
    ],
)
def test_a_wrong_row_is_one_line(row, message, no_calls, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text(row)
    assert main(["rank", "--jsonl", "rows.jsonl", *JUDGE]) == 2
    assert message in capsys.readouterr().err


def test_the_bar_counts_answers_and_failures_and_changes_nothing(monkeypatch):
    class Bar:
        done = 0

        def __init__(self, _, total, **form):
            self.total = total

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self):
            self.done += 1

    class Flaky(Simulated):
        async def reply(self, request):
            if request == "bad":
                raise TimeoutError
            return request

    async def ask(backend):
        assert await backend.reply("good") == "good"
        with pytest.raises(TimeoutError):
            await backend.reply("bad")

    monkeypatch.setattr("rl_reward.cli.bar.tqdm", Bar)
    with counted(Flaky(lambda request: 0.5), 3) as shown:
        asyncio.run(ask(shown))
        assert shown.name == "simulated()" and shown.sees_data
        assert (shown._bar.done, shown._bar.total) == (2, 3)
