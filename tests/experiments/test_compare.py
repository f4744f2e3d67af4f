"""`compare`: what runs, what is kept, what is refused, and what is left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from fake_trainer import FakeArm, FakeConfig

from rl_reward.errors import ConfigError
from rl_reward.experiments.compare import compare, compare_one
from rl_reward.experiments.config import Experiment, load
from rl_reward.experiments.facts import facts, git_hash
from rl_reward.experiments.results import Comparison, RunResult
from rl_reward.experiments.runs import Run, runs_of

TINY_SAC = """
name: tiny
kind: sac
illustrative: true
seeds: [0]
baselines: [sparse -1/0]
primary: simulated(noise=0.1)
sac:
  env: fetch/FetchReach-v4
  options: {flat: true}
  total_steps: 200
  eval_every: 100
  eval_episodes: 2
  learning_starts: 100
  net_arch: [8]
arms:
  sparse -1/0: {}
  simulated(noise=0.1): {judge: simulated, noise: 0.1, weight: 1.0}
"""


def experiment(*arms, seeds=(0, 1)):
    arms = arms or (FakeArm("sparse", final=0.0), FakeArm("dense"))
    return Experiment(
        name="fake",
        kind="sac",
        seeds=seeds,
        baselines=(arms[0].name,),
        primary=arms[-1].name,
        illustrative=True,
        settings=FakeConfig(),
        arms={arm.name: arm for arm in arms},
    )


def order(folder):
    return (folder / "order.txt").read_text().splitlines()


def test_runs_start_with_all_arms_of_the_first_seed_and_end_in_one_results_file(tmp_path, capsys):
    assert compare_one(replace(experiment(), settings=FakeConfig(threads=3)), tmp_path, jobs=1) == 0
    assert order(tmp_path) == ["sparse 0", "dense 0", "sparse 1", "dense 1"]
    result = Comparison.load(tmp_path / "results.json")
    assert [(run.arm, run.seed, run.success[-1]) for run in result.runs] == [
        ("sparse", 0, 0.0),
        ("dense", 0, 1.0),
        ("sparse", 1, 0.0),
        ("dense", 1, 1.0),
    ]
    assert (result.x_label, result.config["settings"]["points"]) == ("steps", [0, 10])
    assert {"git", "command", "numpy", "python"} <= set(result.environment)
    assert {run.extra["threads"] for run in result.runs} == {3}
    assert (tmp_path / "curves.png").exists()
    assert "4 runs, 0 finished before, 1 at a time" in capsys.readouterr().out.splitlines()[0]


def test_finished_runs_are_not_repeated_and_more_seeds_are_added(tmp_path):
    compare_one(experiment(), tmp_path, jobs=2)
    assert compare_one(experiment(seeds=(0, 1, 2)), tmp_path, jobs=1) == 0
    assert order(tmp_path)[4:] == ["sparse 2", "dense 2"]
    assert len(Comparison.load(tmp_path / "results.json").runs) == 6


def test_a_killed_run_lets_the_others_finish_and_is_repeated_by_the_same_command(tmp_path, capsys):
    plan = experiment(FakeArm("fragile", behaviour="die once"), FakeArm("dense"), seeds=(0,))
    assert compare_one(plan, tmp_path, jobs=1) == 1
    assert "fragile, seed 0 failed: its process ended with code 9" in capsys.readouterr().err
    assert not (tmp_path / "results.json").exists()
    assert compare_one(plan, tmp_path, jobs=1) == 0
    assert order(tmp_path) == ["fragile 0", "dense 0", "fragile 0"]


def test_a_failure_is_one_line_that_names_a_log_with_the_traceback(tmp_path, capsys):
    plan = experiment(FakeArm("bad", behaviour="raise"), FakeArm("dense"), seeds=(0,))
    assert compare_one(plan, tmp_path, jobs=1) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert "bad, seed 0 failed: ValueError: no luck; see " in line
    assert "Traceback" in Path(line.partition("see ")[2]).read_text()


def test_a_wrong_configuration_stops_everything(tmp_path):
    plan = experiment(FakeArm("wrong", behaviour="misconfigured"), FakeArm("dense"))
    with pytest.raises(ConfigError, match="the size must be at least 1, got 0"):
        compare_one(plan, tmp_path, jobs=1)
    assert order(tmp_path) == ["wrong 0"]


def test_a_changed_configuration_is_refused_by_name_unless_fresh(tmp_path):
    compare_one(experiment(), tmp_path, jobs=2)
    changed = replace(experiment(), settings=FakeConfig(points=(0, 20)))
    with pytest.raises(ConfigError, match=r"settings.points was \[0, 10\], is \[0, 20\].*--fresh"):
        compare_one(changed, tmp_path, jobs=2)
    assert len(order(tmp_path)) == 4
    assert compare_one(changed, tmp_path, jobs=2, fresh=True) == 0
    assert Comparison.load(tmp_path / "results.json").runs[0].steps == [0, 20]


def test_a_setting_that_came_later_had_its_default_before(tmp_path):
    compare_one(experiment(seeds=(0,)), tmp_path, jobs=1)
    file = tmp_path / "dense" / "seed_0.json"
    stored = json.loads(file.read_text())
    del stored["config"]["settings"]["points"], stored["config"]["arm"]["behaviour"]
    file.write_text(json.dumps(stored))
    assert compare_one(experiment(seeds=(0,)), tmp_path, jobs=1) == 0
    assert len(order(tmp_path)) == 2
    with pytest.raises(ConfigError, match=r"settings.points was \[0, 10\], is \[0, 30\]"):
        compare_one(replace(experiment(seeds=(0,)), settings=FakeConfig(points=(0, 30))), tmp_path, jobs=1)


def stored_run(config: Path, folder: Path) -> Run:
    """Return the first run of a file that ships, with a result as `compare` leaves it."""
    first = load(config)[0]
    run = runs_of(first, folder)[0]
    run.file.parent.mkdir(parents=True, exist_ok=True)
    found = asdict(RunResult(run.arm.name, run.seed, (0, 1), (0.0, 1.0), 10))
    run.file.write_text(json.dumps({"config": run.config, "result": found}))
    return run


@pytest.mark.parametrize("config", sorted(Path("configs").rglob("*.yaml")), ids=lambda file: file.stem)
def test_every_file_that_ships_finds_its_finished_runs_again(tmp_path, config):
    assert stored_run(config, tmp_path).result().success == [0.0, 1.0]


def test_a_setting_inside_another_that_came_later_had_its_default_too(tmp_path):
    run = stored_run(Path("configs/grpo/gemma_additions.yaml"), tmp_path)
    stored = json.loads(run.file.read_text())
    del stored["config"]["settings"]["judge"]["pivots"], stored["config"]["settings"]["judge"]["few_shot"]
    run.file.write_text(json.dumps(stored))
    with pytest.raises(ConfigError, match=r"\(settings.judge.few_shot was False, is True\)"):
        run.result()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"config": {}, "result": {"odd": 1}}'])
def test_a_result_that_cannot_be_read_is_named(tmp_path, content):
    compare_one(experiment(seeds=(0,)), tmp_path, jobs=1)
    (tmp_path / "dense" / "seed_0.json").write_text(content)
    with pytest.raises(ConfigError, match=r"seed_0\.json holds no result .* --fresh"):
        compare_one(experiment(seeds=(0,)), tmp_path, jobs=1)


def test_an_arm_called_dots_stays_in_the_folder_of_its_experiment(tmp_path):
    assert compare_one(experiment(FakeArm(".."), seeds=(0,)), tmp_path / "here", jobs=1) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]


def test_arms_that_would_share_a_folder_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="two arms would share a folder"):
        compare_one(experiment(FakeArm("a/b"), FakeArm("a b")), tmp_path)


def test_an_interrupt_ends_the_processes_and_keeps_what_is_finished(tmp_path):
    script = (
        "import signal\nfrom fake_trainer import FakeArm\nfrom pathlib import Path\nimport test_compare as t\n"
        # A shell that starts tests in the background has them ignore interrupts, and their children too.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "if __name__ == '__main__':\n"
        "    arms = FakeArm('quick'), FakeArm('slow', behaviour='hang')\n"
        f"    t.compare_one(t.experiment(*arms, seeds=(0,)), Path({str(tmp_path)!r}), jobs=1)\n"
    )
    (tmp_path / "main.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    main = subprocess.Popen([sys.executable, tmp_path / "main.py"], env=environment, start_new_session=True)
    slow = tmp_path / "slow" / "pid.txt"
    while not slow.exists() or not slow.read_text():
        assert main.poll() is None
        time.sleep(0.1)
    os.killpg(main.pid, signal.SIGINT)
    assert main.wait() != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(slow.read_text()), 0)
    assert (tmp_path / "quick" / "seed_0.json").exists()
    assert not (tmp_path / "slow" / "seed_0.json").exists()


def test_bad_arguments_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match="jobs must be at least 1, got 0"):
        compare(tmp_path / "none.yaml", out=tmp_path / "out", jobs=0)
    with pytest.raises(ConfigError, match="cannot read"):
        compare(tmp_path / "none.yaml", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_two_real_arms_from_a_file_to_a_report(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY_SAC)
    assert compare(tmp_path / "tiny.yaml", out=tmp_path / "out") == 0
    sparse, simulated = Comparison.load(tmp_path / "out" / "tiny" / "results.json").runs
    assert sparse.steps == simulated.steps == [0, 100, 200]
    assert (sparse.judge, sparse.judge_calls) == ("none", 0)
    assert (simulated.judge, simulated.judge_calls) == ("simulated(noise=0.1)", 4 * 51)
    assert sparse.success[0] == simulated.success[0]
    assert "simulated(noise=0.1)" in (tmp_path / "out" / "tiny" / "report.md").read_text()


def test_reading_a_configuration_loads_nothing_heavy():
    script = (
        "import sys; from rl_reward.experiments import compare; from rl_reward.experiments.config import load\n"
        "load('configs/sac/fetch_reach.yaml')\nprint(*{module.split('.')[0] for module in sys.modules})"
    )
    root = Path(__file__).parents[2]
    loaded = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert not set(loaded.stdout.split()) & {"torch", "stable_baselines3", "gymnasium", "mujoco", "trl", "matplotlib"}


def test_the_git_hash_says_whether_tracked_files_were_changed(tmp_path):
    file = tmp_path / "code.py"
    file.write_text("a = 1\n")
    assert git_hash(file) == "untracked"
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    assert re.fullmatch("[0-9a-f]{40}", git_hash(file))
    file.write_text("a = 2\n")
    assert re.fullmatch("[0-9a-f]{40}-dirty", git_hash(file))


def test_the_recorded_command_shows_no_folder_of_the_machine(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/home/somebody/bin/rl-reward", "compare", "configs/my file.yaml"])
    assert facts()["command"] == "rl-reward compare 'configs/my file.yaml'"
