"""The frozen policies that ship with the package."""

from pathlib import Path

import numpy as np
import pytest

from rl_reward.errors import ConfigError
from rl_reward.experiments.config import load
from rl_reward.experiments.frozen import check_policy, frozen_policy
from rl_reward.policies import FrozenPolicy
from rl_reward.policies.flow import fit

ROOT = Path(__file__).parents[2]


def test_the_ketchup_policy_has_the_sizes_of_its_task():
    # tests/envs/test_libero.py holds the task to observations of 29 numbers, and actions of 7.
    policy = frozen_policy("ketchup")
    assert isinstance(policy, FrozenPolicy)
    assert (policy.obs_dim, policy.action_dim, policy.chunk, policy.noise_shape) == (29, 7, 10, (7,))


def test_its_noise_decides_and_nothing_else():
    policy, obs = frozen_policy("ketchup"), np.zeros(29, np.float32)
    first, again, other = (policy.act(obs, np.full(7, noise, np.float32)) for noise in (0.5, 0.5, -0.5))
    assert first.shape == (10, 7) and np.abs(first).max() <= 1.0
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1


def test_a_file_is_found_by_its_path(tmp_path):
    rng = np.random.default_rng(0)
    own = fit(rng.normal(size=(8, 3)), rng.uniform(-1, 1, (8, 2, 4)), hidden=(4,), steps=1)
    own.save(tmp_path / "own.safetensors")
    policy = frozen_policy(str(tmp_path / "own.safetensors"))
    obs, noise = np.ones(3, np.float32), np.ones(4, np.float32)
    np.testing.assert_array_equal(policy.act(obs, noise), own.act(obs, noise))


def test_an_unknown_name_lists_what_there_is(tmp_path):
    for name in ("mustard", str(tmp_path), "ketchup.safetensors"):
        with pytest.raises(
            ConfigError, match=r"policy must be one of ketchup, or a .safetensors file .* got "
        ) as caught:
            frozen_policy(name)
        assert repr(name) in str(caught.value) and "\n" not in str(caught.value)


def test_hold_is_no_file_and_takes_the_sizes_it_is_given():
    policy = frozen_policy("hold", chunk=5, action_dim=4)
    assert (policy.chunk, policy.action_dim, policy.noise_shape) == (5, 4, (4,))
    check_policy("hold")
    with pytest.raises(ConfigError, match="or 'hold', got 'held'"):
        check_policy("held")


def test_a_file_of_something_else_is_one_line(tmp_path):
    (tmp_path / "text").write_text("no policy")
    with pytest.raises(ConfigError, match=r"cannot read .*text as a .safetensors file") as caught:
        frozen_policy(str(tmp_path / "text"))
    assert "\n" not in str(caught.value)


def test_every_shipped_experiment_that_steers_names_a_policy_its_chunk_fits():
    steered = [
        experiment.settings.steering
        for path in sorted(ROOT.glob("configs/sac/*.yaml"))
        for experiment in load(path)
        if experiment.settings.steering
    ]
    assert steered
    chunks = [(frozen_policy(one.policy, chunk=one.chunk).chunk, one.chunk) for one in steered]
    assert all(own >= played for own, played in chunks)
