"""The command line, in this process: what a user sees, the exit codes, and one line for every wrong input."""

import json
from pathlib import Path

import pytest

from rl_reward.cli import main

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
        (["score", "t", *JUDGE], "give TASK and CANDIDATE"),
        (["score", "t", "c", "--backend", "gpt"], "--backend must be openai:MODEL, local:PATH or simulated, got 'gpt'"),
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
        ('{"task": "t", "steps": "a"}', "must be a list, got str"),
        ('{"task": "t", "steps": [1]}', "must be a JSON object, got int"),
        ('{"task": "t", "steps": [{"txt": "a"}]}', "must be a text or have the keys text and image, got txt"),
        ('{"task": "t", "steps": [{"image": "http://a/b.png"}]}', "never a URL"),
    ],
)
def test_wrong_trajectories_are_one_line(content, message, tmp_path, capsys):
    path = tmp_path / "x.json"
    path.write_text(content)
    assert main(["track", str(path), *JUDGE]) == 2
    shown = capsys.readouterr().err
    assert message in shown and shown.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["judge"], ["compare"], ["compare", "c.yaml", "--seeds", "a,b"]])
def test_wrong_usage_is_one_line_and_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2 and capsys.readouterr().err.count("\n") == 1


def test_a_row_without_a_candidate_names_the_line(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"task": "t", "candidate": "a"}\n{"task": "t", "answer": "b"}\n')
    assert main(["score", "--jsonl", str(rows), *JUDGE]) == 2
    assert "line 2 of" in capsys.readouterr().err
