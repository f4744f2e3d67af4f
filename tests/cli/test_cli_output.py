"""What the command line writes: nothing that is there is broken, and nothing that was paid for is lost."""

import json
import os
import subprocess
import sys

import pytest

from rl_reward.backends.simulated import Simulated
from rl_reward.cli import main, output
from rl_reward.errors import ConfigError

HERE = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
SCORE = ("score", "t", "c", "--backend", "simulated")


@pytest.fixture
def calls(monkeypatch):
    asked, reply = [], Simulated.reply
    monkeypatch.setattr(Simulated, "reply", lambda judge, request: asked.append(request) or reply(judge, request))
    return asked


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


@pytest.mark.parametrize(
    "out", ["", ".", "/", "..", "folder", "folder/", "loop", "a\0b", "no/file", "x" * 255, "/proc/x", "/dev/null/x"]
)
def test_what_cannot_be_written_is_refused_before_any_call(out, folder, calls, capsys):
    assert main([*SCORE, "--out", out]) == 2
    shown = capsys.readouterr().err
    assert "cannot write" in shown and "; choose another --out" in shown and shown.count("\n") == 1
    assert not calls and sorted(os.listdir(folder)) == ["folder", "loop"] and not os.listdir("folder")


def test_a_socket_is_refused(folder, monkeypatch):
    import socket

    with socket.socket(socket.AF_UNIX) as server, pytest.raises(ConfigError, match="a socket"):
        server.bind("socket")
        output.check("socket")


def test_a_link_is_followed_and_permissions_stay(folder, calls):
    (folder / "folder" / "scores.json").write_text("old")
    (folder / "folder" / "scores.json").chmod(0o600)
    (folder / "link.json").symlink_to("folder/scores.json")
    assert main([*SCORE, "--out", "link.json"]) == 0
    assert (folder / "link.json").is_symlink() and os.listdir("folder") == ["scores.json"]
    assert json.loads((folder / "folder" / "scores.json").read_text())["judge"] == "simulated()"
    assert (folder / "folder" / "scores.json").stat().st_mode & 0o777 == 0o600


def test_a_link_to_a_device_and_a_pipe_are_written_as_they_are(folder):
    (folder / "null").symlink_to(os.devnull)
    assert main([*SCORE, "--out", "null"]) == 0
    read, write = os.pipe()
    assert main([*SCORE, "--out", f"/dev/fd/{write}"]) == 0
    os.close(write)
    with open(read) as pipe:
        assert len(json.load(pipe)["scores"]) == 1
    assert (folder / "null").is_symlink() and sorted(os.listdir(folder)) == ["folder", "loop", "null"]


def test_a_failed_write_leaves_the_old_file_and_the_printed_scores(folder, monkeypatch, capsys):
    (folder / "scores.json").write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output.Path, "replace", full)
    assert main([*SCORE, "--out", "scores.json"]) == 2
    shown = capsys.readouterr()
    assert "cannot write 'scores.json': No space left" in shown.err and "score 0." in shown.out
    assert (folder / "scores.json").read_text() == "old"
    assert sorted(os.listdir(folder)) == ["folder", "loop", "scores.json"]


def test_half_characters_are_judged_and_written_as_they_came(folder):
    assert main(["score", "t", "half \ud800", "--backend", "simulated", "--out", "scores.json"]) == 0
    assert json.loads((folder / "scores.json").read_text())["scores"][0]["candidate"] == "half \ud800"


def test_a_reader_that_went_away_costs_no_scores(folder):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "rl_reward", *SCORE, "--out", "scores.json"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=HERE)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "rl-reward: the reader of the output went away\n")
    assert len(json.loads((folder / "scores.json").read_text())["scores"]) == 1


def test_a_terminal_without_the_bars_shows_them_escaped(folder):
    told = {**HERE, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "rl_reward", *SCORE], capture_output=True, text=True, env=told)
    assert done.returncode == 0 and "A|" in done.stdout and "\\u258" in done.stdout
