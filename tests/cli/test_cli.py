"""The command line, in this process: what a user sees, the exit codes, and one line for every wrong input."""

import json
from pathlib import Path

import pytest

from rl_reward.backends.simulated import Simulated
from rl_reward.cli import main
from rl_reward.cli.probe import _table

JUDGE = ("--backend", "simulated")
ATIF = {
    "schema_version": "ATIF-v1.2",
    "steps": [
        {"source": "system", "message": "be good"},
        {"source": "user", "message": "List the files."},
        {
            "source": "agent",
            "message": "I list them.",
            "tool_calls": [{"arguments": {"keystrokes": "ls\n"}}],
            "observation": {"results": [{"content": "a.txt"}]},
        },
        {"source": "agent", "message": "Done."},
    ],
}


@pytest.fixture
def trajectory(tmp_path):
    path = tmp_path / "episode.json"
    path.write_text(json.dumps({"trial_id": 1, "trajectory": ATIF}))
    return str(path)


@pytest.fixture
def no_calls(monkeypatch):
    def answer(*_):
        raise AssertionError("a judge was asked")

    monkeypatch.setattr(Simulated, "reply", answer)


def test_score_prints_the_letters_and_writes_them(tmp_path, capsys):
    out = tmp_path / "scores.json"
    assert main(["score", "2+2?", "4", *JUDGE, "--criteria", "math", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "A|" in shown and "|T" in shown and "judge simulated(): 3 calls" in shown
    (record,) = json.loads(out.read_text())["scores"]
    assert 0 <= record["value"] <= 1 and record["distributions"]["Reasoning"][0]["coverage"] == pytest.approx(0.98)
    assert not list(tmp_path.glob("*.partial"))


def test_score_reads_jsonl_and_files(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"task": "t", "candidate": "a"}\n\n{"task": "t", "candidate": "b"}\n')
    assert main(["score", "--jsonl", str(rows), *JUDGE]) == 0
    assert "[2] b" in capsys.readouterr().out
    (tmp_path / "t.txt").write_text("t")
    assert (
        main(["score", "--task-file", str(tmp_path / "t.txt"), "--candidate-file", str(tmp_path / "t.txt"), *JUDGE])
        == 0
    )


def test_track_reads_an_agent_trajectory(trajectory, tmp_path, capsys):
    out = tmp_path / "curve.json"
    assert main(["track", trajectory, *JUDGE, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "I list them. $ ls a.txt" in shown and "value-order correlation none" in shown
    curve = json.loads(out.read_text())
    assert curve["task"] == "List the files." and len(curve["values"]) == 2


def test_track_reads_a_list_of_steps_and_shows_steps_not_asked(tmp_path, capsys):
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(["a", {"text": "b"}, "c", "d"]))
    assert main(["track", str(path), "--task", "t", "--every", "2", *JUDGE]) == 0
    shown = capsys.readouterr().out
    assert shown.count("held") == 1 and "3 checkpoints asked, 0 unread" in shown


def test_probe_shows_coverage(capsys):
    assert main(["probe", *JUDGE]) == 0
    assert "serves scores" in capsys.readouterr().out


def test_probe_exits_with_1_where_nothing_is_served(capsys):
    assert main(["probe", "--backend", "openai:m", "--base-url", "http://127.0.0.1:9/v1"]) == 1
    assert "no server at http://127.0.0.1:9/v1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["score", "t", "", *JUDGE], "the candidate is empty"),
        (["score", " ", "c", *JUDGE], "the task is empty"),
        (["score", "t", *JUDGE], "the candidate is missing"),
        (["score", "t", "c", "--task-file", "t.txt", *JUDGE], "the task is given twice"),
        (["score", "t", "c", "--candidate-file", "c.txt", *JUDGE], "the candidate is given twice"),
        (["score", "--task-file", "t.txt", "--jsonl", "rows.jsonl", *JUDGE], "give --jsonl or a task and a candidate"),
        (["score", "--jsonl", "", *JUDGE], "cannot read ''"),
        (["score", "--jsonl", "a\0b", *JUDGE], "embedded null byte"),
        (["score", "t", "c", *JUDGE, "--base-url", "http://127.0.0.1:9/v1"], "--base-url belongs to openai:MODEL"),
        (["score", "t", "c", "--backend", "gpt"], "must be openai:MODEL or local:FOLDER or simulated, got 'gpt'"),
        (["score", "t", "c", *JUDGE, "--granularity", "40"], "granularity must be an integer in [2, 26], got 40"),
        (["score", "t", "c", *JUDGE, "--repeats", "0"], "repeats must be an integer of at least 1, got 0"),
        (["score", "t", "c", *JUDGE, "--criteria", "maths"], "did you mean 'math'"),
        (["score", "t", "c", *JUDGE, "--out", "no/such/folder/x.json"], "cannot write 'no/such/folder/x.json'"),
        (["score", "--jsonl", "missing.jsonl", *JUDGE], "cannot read 'missing.jsonl': No such file"),
        (["score", "t", "c", "--backend", "openai:m", "--base-url", "http://127.0.0.1:9/v1"], "no server at"),
        (["score", "t", "c", "--backend", "openai:m", "--base-url", "localhost"], "base_url must look like"),
        (["score", "t", "c", "--backend", "local:no/such/model"], "no/such/model"),
        (["track", "missing.json", *JUDGE], "cannot read 'missing.json'"),
        (["compare", "missing.yaml"], "missing.yaml"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert message in shown.err and shown.err.count("\n") == 1 and "Traceback" not in shown.err
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "is not JSON: Expecting value at line 1"),
        ("[]", "holds no steps"),
        ('["a"]', "names no task; give it with --task"),
        ('{"task": "t"}', "has no steps; its keys are task"),
        (
            json.dumps({f"k{n:02d}": 0 for n in range(99)}),
            "its keys are k00, k01, k02, k03, k04, k05, k06, k07, k08, k09, ...",
        ),
        ("[" * 100_000, "a number is too long or the nesting too deep"),
        ("9" * 5000, "a number is too long or the nesting too deep"),
        ('{"task": ["do"], "steps": ["a"]}', "task of 'x.json' must be a text, got ['do']"),
        ('{"task": null, "steps": ["a"]}', "names no task"),
        ('{"task": "t", "steps": [{"text": null}]}', "text of item 1 of steps of 'x.json' must be a text, got None"),
        ('{"task": "t", "steps": ["a", {"text": 3}]}', "text of item 2 of steps of 'x.json' must be a text, got 3"),
        *(
            (f'{{"task": "t", "steps": [{{"image": {image}}}]}}', "image of item 1 of steps of 'x.json' must be a text")
            for image in ("3", "[]", "{}", "false")
        ),
        ('{"task": "t", "steps": [{"image": "a\\u0000b"}]}', "image of item 1 of steps of 'x.json' is no file"),
        ('{"task": "t", "steps": [{"image": "."}]}', "is no file: '.'"),
        ('{"task": "t", "steps": "a"}', "steps of 'x.json' must be a list, got 'a'"),
        ('{"task": "t", "steps": [1]}', "item 1 of steps of 'x.json' must be an object, got 1"),
        ('{"task": "t", "steps": [{"txt": "a"}]}', "must be a text or have the keys text and image, got txt"),
        ('{"task": "t", "steps": [{"image": "http://a/b.png"}]}', "never a URL"),
    ],
)
def test_wrong_trajectories_are_one_line(content, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.json").write_text(content)
    assert main(["track", "x.json", *JUDGE]) == 2
    shown = capsys.readouterr().err
    assert message in shown and shown.count("\n") == 1


def test_what_the_machine_refuses_is_one_line(capsys):
    quickstart = Path(__file__).parents[2] / "configs" / "quickstart.yaml"
    assert main(["compare", str(quickstart), "--out", "/dev/null"]) == 2
    assert "\nrl-reward: error: [Errno 20] Not a directory: '/dev/null/" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["judge"], ["compare"], ["compare", "c.yaml", "--seeds", "a\nb"]])
def test_wrong_usage_is_one_line_and_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2 and capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"task": "t", "answer": "b"}', "line 2 of 'rows.jsonl' has no candidate; its keys are task, answer"),
        ('{"task": null, "candidate": "b"}', "task of line 2 of 'rows.jsonl' must be a text, got None"),
        ('{"task": "t", "candidate": " "}', "candidate of line 2 of 'rows.jsonl' is empty"),
        ('{"task": "", "candidate": "b"}', "task of line 2 of 'rows.jsonl' is empty"),
        ("[]", "line 2 of 'rows.jsonl' must be an object, got []"),
    ],
)
def test_a_wrong_row_is_named_before_any_call(row, message, tmp_path, capsys, monkeypatch, no_calls):
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text(f'{{"task": "t", "candidate": "a"}}\n{row}\n')
    assert main(["score", "--jsonl", "rows.jsonl", *JUDGE]) == 2
    assert message in capsys.readouterr().err


def test_jsonl_rows_end_only_at_line_feeds(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes('\ufeff{"task": "t", "candidate": "a\u2028b"}\r\n{"task": "t", "candidate": "c\u0085d"}'.encode())
    assert main(["score", "--jsonl", str(rows), *JUDGE]) == 0
    shown = capsys.readouterr().out
    assert "[1] a b" in shown and "[2] c d" in shown


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"message": 3}, "message of item 1 of steps of"),
        ({"tool_calls": {}}, "tool_calls of item 1 of steps of"),
        ({"tool_calls": ["ls"]}, "item 1 of tool_calls of item 1 of steps of"),
        ({"tool_calls": [{"arguments": "ls"}]}, "arguments of item 1 of tool_calls of item 1 of steps of"),
        ({"tool_calls": [{"arguments": {"keystrokes": 1}}]}, "keystrokes of arguments of item 1 of"),
        ({"observation": []}, "observation of item 1 of steps of"),
        ({"observation": {"results": "a"}}, "results of observation of item 1 of steps of"),
        ({"observation": {"results": [{"content": [1]}]}}, "content of item 1 of results of observation of item 1 of"),
    ],
)
def test_a_wrong_agent_trajectory_names_the_place(step, message, tmp_path, capsys):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"schema_version": "ATIF-v1.2", "steps": [{"source": "agent", **step}]}))
    assert main(["track", str(path), "--task", "t", *JUDGE]) == 2
    shown = capsys.readouterr().err
    assert f"error: {message}" in shown and " must be " in shown


def test_nulls_of_an_agent_trajectory_are_nothing(tmp_path, capsys):
    path = tmp_path / "x.json"
    steps = [
        {"source": "agent", "message": None, "tool_calls": [{"arguments": None}], "observation": {"results": None}},
        {"source": "agent", "message": "Done.", "tool_calls": None, "observation": None},
    ]
    path.write_text(json.dumps({"schema_version": "ATIF-v1.2", "steps": steps}))
    assert main(["track", str(path), "--task", "t", *JUDGE]) == 0
    shown = capsys.readouterr().out
    assert "None" not in shown and "0 unread" in shown


def test_control_characters_are_shown_and_not_obeyed(tmp_path, capsys):
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(["\x1b[2Jgone", "left\u202eright", "half \ud800"]))
    assert main(["track", str(path), "--task", "t", *JUDGE]) == 0
    shown = capsys.readouterr().out
    assert "\\x1b[2Jgone" in shown and "left\\u202eright" in shown and "half \\ud800" in shown
    assert shown.replace("\n", "").isprintable()


def test_a_probe_row_is_one_line():
    assert _table({"models": "m\nverdict        serves scores\x1b[2J"}) == (
        "models         m verdict serves scores\\x1b[2J"
    )
