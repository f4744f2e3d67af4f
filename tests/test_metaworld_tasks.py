"""The screening of MetaWorld tasks: its table by hand, what chance plays, and a task for a few episodes."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("metaworld")

import training.metaworld_tasks as screening
from rl_reward.envs import make

ROOT = Path(__file__).parents[1]
HANDLE = "handle-press-side-v3"


def test_the_table_by_hand():
    rows = {
        "a": {"expert": 9, "steps": 44.0, "chance": 5, "best": 0.124},
        "b": {"expert": 0, "steps": None, "chance": 0, "best": 0},
    }
    assert screening.table(rows, 10, 100)[2:] == [
        # Wilson: 5 of 100 is [.022, .112], 0 of 100 [0, .037].
        "| a | 9/10 | 44 | 0.05 [0.02, 0.11] | 0.12 |",
        "| b | 0/10 | - | 0.00 [0.00, 0.04] | 0.00 |",
    ]


def test_chance_holds_each_action_for_a_chunk_and_repeats_by_seed():
    acts = [screening.wandering(seed, 5) for seed in (3, 3, 4)]
    first, again, other = (np.array([act(None, None) for _ in range(15)]) for act in acts)
    np.testing.assert_array_equal(first, np.repeat(first[::5], 5, axis=0))
    assert len(np.unique(first[::5, 0])) == 3 and np.abs(first).max() <= 1
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_an_episode_counts_its_steps_to_success():
    env = make(f"metaworld/{HANDLE}", max_steps=100, terminate_on_success=True, stride=10)
    steps, best = screening.played(env, 0, screening.metaworld_expert(HANDLE).act)
    assert steps is not None and 20 < steps < 100 and best == 1.0
    steps, best = screening.played(env, 0, lambda truth, obs: np.zeros(4))
    assert steps is None and 0 <= best < 0.2
    env.close()


def test_both_parts_write_what_they_found(tmp_path, monkeypatch):
    monkeypatch.setattr(screening, "CONFIG", ROOT / screening.CONFIG)
    screening.main(["--out", str(tmp_path), "--expert", "2", "--chance", "3", HANDLE, "peg-unplug-side-v3"])
    rows = json.loads((tmp_path / "screen.json").read_text(), parse_constant=pytest.fail)
    assert (rows[HANDLE]["expert"], rows["peg-unplug-side-v3"]["steps"]) == (2, None)
    assert (tmp_path / "screen.md").read_text().splitlines() == screening.table(rows, 2, 3)
    screening.main(["--out", str(tmp_path), "--learn", "80", HANDLE])
    (curve,) = json.loads((tmp_path / "learn.json").read_text()).values()
    assert curve["steps"] == [0, 20, 40, 60, 80] and len(curve["success"]) == 5
