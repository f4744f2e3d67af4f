"""The benchmarks run and measure what they say; what they measure is not checked here."""

import math

import pytest

pytest.importorskip("gymnasium_robotics")
pytest.importorskip("stable_baselines3")

from rl_reward.types import Step
from training import bench


def test_overlap_compares_both_ways_of_judging_with_none():
    found = bench.overlap(steps=210, rounds=1)
    assert found["lag_in_env_steps"] == 150
    assert all(math.isfinite(value) and value > 0 for value in found.values())
    assert {"ratio_background", "ratio_at_once"} <= set(found)


def test_memory_is_weighed_at_every_episode():
    found = bench.memory(episodes=6, settled=2)
    # Six episodes of eleven frames, 50 steps with a stride of 5.
    assert found["megabytes_of_frames_seen"] == pytest.approx(6 * 11 * 224 * 224 * 3 / 2**20)
    assert found["ratio"] >= 1 and found["megabytes_at_the_end"] > 0


def test_the_slow_judge_says_what_the_oracle_says():
    judge = bench.Slow(0.0)
    (curve,) = judge.track_many([("t", [Step("a", data={"progress": 0.25}), Step("b", data={"progress": 1.0})])])
    assert curve.values.tolist() == [0.25, 1.0]
    assert len(judge.megabytes) == 1
