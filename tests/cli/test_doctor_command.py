from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rl_reward.cli import main
from rl_reward.envs.fetch import FetchTask

TOYS = """
import gymnasium as gym
import numpy as np

class Toy(gym.Env):
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    render_mode = "rgb_array"
    task = "Wait."
    max_episode_steps = 5
    def reset(self, **_):
        self.time = 0
        return np.zeros(1, np.float32), self.info()
    def step(self, action):
        self.time += 1
        return np.zeros(1, np.float32), 0.0, False, self.time == 5, self.info()
    def info(self):
        from rl_reward import Step
        return {"rl_reward": Step("waiting"), "is_success": False}
    def render(self):
        image = np.zeros((16, 16, 3), np.uint8)
        image[self.time] = 200
        return image

class Mute(Toy):
    def info(self):
        return {}

not_callable = 3
if "ToyOfTests-v0" not in gym.registry:
    gym.register("ToyOfTests-v0", Toy)
"""


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"toys_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(TOYS)
    monkeypatch.chdir(tmp_path)
    return name


def test_a_function_that_builds_an_environment(toys: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"{toys}:Toy", "--learning-starts", "5", "--weight", "1"]) == 0
    out = capsys.readouterr().out
    assert "  ok     learning_starts       5, needed 5 = n_envs (1) x longest episode (5) + lag (0)" in out
    assert "  ok     hovering  " in out
    assert out.endswith("0 errors, 0 warnings\n")


def test_errors_are_counted_and_set_the_exit_code(toys: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"{toys}:Mute", "--weight", "0.05", "--form", "additive", "--learning-starts", "4"]) == 1
    out = capsys.readouterr().out
    for line in ("error  success key", "error  judge's steps", "error  learning_starts", "warn   hovering"):
        assert f"  {line}  " in out
    assert out.endswith("3 errors, 1 warning\n")


def test_a_gymnasium_id_and_the_module_that_registers_it(toys: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"{toys}:ToyOfTests-v0"]) == 0
    assert "OrderEnforcing" in capsys.readouterr().out


def test_the_frame_is_written(toys: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    assert main(["doctor", f"{toys}:Toy", "--frame", "frame.png"]) == 0
    frame = np.asarray(Image.open(tmp_path / "frame.png"))
    assert frame.shape == (16, 16, 3) and frame[0].min() == 200 and frame[1:].max() == 0
    assert "only a person can see" in capsys.readouterr().out


def test_a_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    frames = iter(range(100))
    monkeypatch.setattr(
        FetchTask, "frame", lambda _: np.eye(16, k=next(frames), dtype=np.uint8)[..., None].repeat(3, 2)
    )
    config = tmp_path / "compare.yaml"
    config.write_text("""
name: hovers
kind: sac
illustrative: true
seeds: [0]
baselines: [sparse]
primary: dense
sac:
  env: fetch/FetchReach-v4
  options: {terminate_on_success: true}
  total_steps: 100
  eval_every: 100
  learning_starts: 60
  lag: 20
arms:
  sparse: {reward: minus_one_zero}
  dense: {reward: zero_one, judge: oracle, form: additive, weight: 0.05}
  safe: {reward: zero_one, judge: oracle, form: potential, weight: 1.0}
""")
    assert main(["doctor", str(config), "--episodes", "1"]) == 1
    out = capsys.readouterr().out
    assert out.count("hovers: fetch/FetchReach-v4, reward") == 2
    assert out.count("error  learning_starts       60, needed 70 = n_envs (1) x longest episode (50) + lag (20)") == 2
    assert "warn   hovering              dense: additive, weight 0.05, gamma 0.99: staying at progress 0.9" in out
    assert "ok     hovering              safe: potential" in out
    assert out.endswith("2 errors, 1 warning\n")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("missing.yaml", "cannot read missing.yaml"),
        ("{toys}:Nothing", "has no function 'Nothing'"),
        ("{toys}:not_callable", "has no function 'not_callable'"),
        ("no_such_module:Env", "cannot import no_such_module"),
        ("no_such_module:Env-v0", "no environment 'no_such_module:Env-v0'"),
        ("NoSuch-v7", "no environment 'NoSuch-v7'"),
        ("grpo.yaml", "holds no experiment of kind: sac"),
    ],
)
def test_wrong_input_is_one_line_and_code_2(
    target: str, reason: str, toys: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(__file__).parents[2]
    (tmp_path / "grpo.yaml").write_text((root / "configs" / "grpo" / "additions.yaml").read_text())
    assert main(["doctor", target.format(toys=toys)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert reason in captured.err


def test_a_task_that_does_not_exist_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "fetch/FetchReech-v4"]) == 2
    assert "did you mean 'FetchReach-v4'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--weight", "-1"], "weight"),
        (["--episodes", "0"], "episodes"),
        (["--seconds", "0"], "seconds"),
        (["--n-envs", "0"], "n_envs"),
        (["--frame", "."], "cannot write '.'"),
        (["--ent-coef", "much"], "ent_coef"),
        (["--ent-coef", "-0.1"], "ent_coef"),
    ],
)
def test_flags_out_of_range(flags: list[str], reason: str, toys: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"{toys}:Toy", *flags]) == 2
    assert reason in capsys.readouterr().err
