"""Imports go down only, and the package itself loads numpy and nothing heavier."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rl_reward

ROOT = Path(rl_reward.__file__).parent
HEAVY = {
    "torch": {
        *("models/", "envs/libero_files.py", "policies/", "backends/transformers_local.py", "backends/local/"),
        *("adapters/", "experiments/"),
    },
    "transformers": {"models/", "backends/transformers_local.py", "backends/local/", "adapters/", "experiments/"},
    "trl": {"adapters/", "experiments/"},
    "datasets": {"experiments/"},
    "stable_baselines3": {"adapters/", "experiments/"},
    "openai": {"backends/openai_"},
    "httpx2": {"backends/openai_"},
    "gymnasium": {"envs/", "adapters/", "experiments/"},
    "gymnasium_robotics": {"envs/"},
    "metaworld": {"envs/"},
    "mujoco": {"envs/"},
    "safetensors": {"policies/flow.py"},
    "lerobot": {"policies/lerobot.py"},
    "matplotlib": {"experiments/"},
    "choix": {"strengths.py"},
    "PIL": {"backends/images.py"},
}
SHARED = {"_cache", "_checks", "errors"}
BELOW = {
    "envs": {"types", "envs", "policies"},
    "policies": {"policies"},
    "evaluation": {"evaluation", "progress", "preference"},
    "adapters": {
        *("adapters", "criteria", "groups", "progress", "prompts", "rewards", "scores", "shaping", "step_credit"),
        *("steps", "types"),
    },
    "steps.py": set(),
    "step_credit.py": {"groups"},
    "backends": {"backends", "distribution", "models", "scale", "types", "verdict"},
    "criteria": set(),
    "models": {"models"},
    "doctor": {"doctor", "shaping", "types"},
}


def modules():
    return [pytest.param(path, id=str(path.relative_to(ROOT))) for path in sorted(ROOT.rglob("*.py"))]


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", modules())
def test_heavy_packages_are_imported_only_where_they_are_needed(path):
    home = str(path.relative_to(ROOT))
    for name in imported(path):
        homes = HEAVY.get(name.split(".")[0])
        assert homes is None or home.startswith(tuple(homes)), f"{home} imports {name}"


@pytest.mark.parametrize("path", modules())
def test_imports_go_down_only(path):
    layer = path.relative_to(ROOT).parts[0]
    for name in imported(path):
        if layer in BELOW and name.startswith("rl_reward."):
            assert name.split(".")[1] in BELOW[layer] | SHARED, f"{path.relative_to(ROOT)} imports {name}"


def test_importing_the_package_loads_nothing_heavy():
    script = "import sys, rl_reward, rl_reward.backends; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in loaded
    assert not set(loaded) & {*HEAVY, "scipy", "yaml", "tqdm", "httpx", "pandas"}
