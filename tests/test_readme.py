"""What the README shows runs as it stands there, but for the server, the size of models, and the number of steps."""

import re
import shlex
from pathlib import Path

import pytest
from libero_here import REASON
from protocol_server import StubServer, uniform
from tiny_models import save_tiny

from rl_reward.cli.main import main

README = (Path(__file__).parents[1] / "README.md").read_text()
SERVED = "http://127.0.0.1:8000/v1"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def block(line, language="python"):
    (found,) = [one for one in blocks(language) if line in one]
    return found


@pytest.fixture
def server():
    with StubServer(uniform(), model="Qwen/Qwen3-8B") as server:
        yield server


@pytest.fixture
def run(server, tmp_path, monkeypatch):
    """Runs blocks one after another in the same namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    small = {
        SERVED: server.base_url,
        "Qwen/Qwen3-0.6B": str(save_tiny(tmp_path / "policy")),
        "max_steps=100": 'max_steps=1, use_cpu=True, bf16=False, report_to="none", save_strategy="no"',
        "max_completion_length=64": "max_completion_length=8",
        "learn(5_000": "learn(1_010",
        "learn(100_000": "learn(1_010",
        'folder("gemma-3-270m")': repr(str(save_tiny(tmp_path / "judge"))),
    }
    namespace = {"__name__": "readme"}

    def run(text):
        for shown, smaller in small.items():
            text = text.replace(shown, smaller)
        exec(compile(text, "README.md", "exec"), namespace)
        return namespace

    return run


def test_the_verifier(run):
    run(block("verifier.rank("))


def test_the_script_for_trl_the_three_lines_and_step_credit(run, server):
    named = run(block("trainer.train()"))
    run(block("from rl_reward.adapters.trl.step_credit"))
    assert named["trainer"].state.global_step == 1
    run(block("reward = VerifierReward(verifier, weight=0.1, group_size=8)\ntrainer"))
    named["trainer"].train()
    asked = server.requests
    run(block("StepCreditConfig(weight=0.1)"))
    named["trainer"].train()
    assert named["trainer"].state.global_step == 1
    assert server.requests > asked > 1


def test_the_script_for_stable_baselines3_and_the_three_lines(run, server):
    named = run(block("class Described"))
    assert named["model"].num_timesteps == 1_010
    asked = server.requests
    run(block('task="Put the ketchup'))
    assert server.requests > asked > 1
    named = run(block("import Simulated"))
    step = named["env"].reset(seed=0)[1]["rl_reward"]
    assert 0 <= named["verifier"].track("Keep the pole upright.", [step]).values[0] <= 1


@pytest.mark.libero
@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_libero_and_a_steered_policy(run):
    run(block("libero_object/pick_up"))
    named = run(block("SteeringEnv("))
    assert named["model"].action_space == named["steered"].action_space
    run(block("carry_judge("))


def test_the_command_line(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, ran = str(save_tiny(tmp_path / "judge")), 0
    for line in block("rl-reward rank", "bash").splitlines():
        words = shlex.split(line.replace(SERVED, server.base_url).replace("smollm2-135m-instruct", folder))
        if words[:1] == ["echo"]:
            Path(words[3]).write_text(words[1] + "\n")
        elif words[:2] in (["rl-reward", "score"], ["rl-reward", "rank"], ["rl-reward", "track"]):
            ran += main(words[1:]) == 0
    assert ran == 4
