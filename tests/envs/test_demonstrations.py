"""Demonstrations in robomimic's layout: what comes back is what was written, and a wrong file is one clear line."""

import json
import sys

import numpy as np
import pytest

from rl_reward.envs.demonstrations import Demonstration, read, write
from rl_reward.errors import ConfigError, MissingExtraError

h5py = pytest.importorskip("h5py")
ENV, OPTIONS = "libero_object/x", {"starts": "sampled", "init_states": (1, 2), "max_steps": 130}


def demo(steps, seed=0, success=True):
    rng = np.random.default_rng(seed)
    obs_T1 = rng.normal(size=(steps + 1, 3)).astype(np.float32)
    return Demonstration(obs_T1, rng.uniform(-1, 1, (steps, 2)).astype(np.float32), success, seed)


# Twelve, because demo_10 must not come between demo_1 and demo_2.
DEMOS = [demo(1 + seed % 3, seed, success=seed % 2 == 0) for seed in range(12)]


@pytest.fixture
def file(tmp_path):
    write(tmp_path / "demos.hdf5", DEMOS, env=ENV, options=OPTIONS)
    return tmp_path / "demos.hdf5"


def test_what_is_written_comes_back_to_the_bit(file):
    back = read(file)
    assert [(one.success, one.seed) for one in back] == [(one.success, one.seed) for one in DEMOS]
    for one, other in zip(back, DEMOS, strict=True):
        for array, expected in ((one.obs_T1, other.obs_T1), (one.actions_T, other.actions_T)):
            assert array.dtype == np.float32
            assert array.tobytes() == expected.tobytes() and array.shape == expected.shape


def test_odd_numbers_come_back_to_the_bit(tmp_path):
    odd = np.array([[np.nan, -0.0], [np.inf, 1e-45]], np.float32)
    write(tmp_path / "odd.hdf5", [Demonstration(odd, np.ones((1, 1), np.float32), False, 2**40)], env=ENV, options={})
    (back,) = read(tmp_path / "odd.hdf5")
    assert back.obs_T1.tobytes() == odd.tobytes() and back.seed == 2**40


def test_the_layout_is_robomimics(file):
    with h5py.File(file) as content:
        data = content["data"]
        assert data.attrs["total"] == 24  # 12 episodes of 1, 2 and 3 steps in turn
        assert json.loads(data.attrs["env_args"]) == {
            "env_name": ENV, "env_kwargs": {**OPTIONS, "init_states": [1, 2]}, "type": "rl_reward",
        }  # fmt: skip
        assert set(data) == {f"demo_{number}" for number in range(12)}
        episode = data["demo_2"]
        assert episode.attrs["num_samples"] == 3
        assert set(episode) == {"actions", "dones", "rewards", "obs", "next_obs"}
        assert set(episode["obs"]) == set(episode["next_obs"]) == {"state"}
        shapes = {name: episode[name].shape for name in ("actions", "dones", "rewards", "obs/state", "next_obs/state")}
        assert shapes == {
            "actions": (3, 2), "dones": (3,), "rewards": (3,), "obs/state": (3, 3), "next_obs/state": (3, 3),
        }  # fmt: skip
        np.testing.assert_array_equal(episode["next_obs/state"][:2], episode["obs/state"][1:])


@pytest.mark.parametrize(("number", "rewards"), [(2, [0, 0, 1]), (5, [0, 0, 0])])
def test_only_a_solved_episode_is_paid_and_only_at_its_end(file, number, rewards):
    with h5py.File(file) as content:
        episode = content[f"data/demo_{number}"]
        assert episode["rewards"][()].tolist() == rewards
        assert episode["dones"][()].tolist() == [0, 0, 1]


def test_a_second_write_replaces_the_first(file):
    write(file, DEMOS[:1], env=ENV, options={})
    assert len(read(file)) == 1


def without(name):
    def break_it(content):
        del content[name]

    return break_it


def with_array(name):
    def break_it(content):
        del content[name]
        content[name] = np.zeros(3)

    return break_it


def without_attribute(content):
    del content["data/demo_0"].attrs["success"]


def with_group(content):
    del content["data/demo_0/obs/state"]
    content.create_group("data/demo_0/obs/state")


def with_stranger(content):
    content.create_group("data/episode")


def shortened(content):
    actions = content["data/demo_2/actions"][:2]
    del content["data/demo_2/actions"]
    content["data/demo_2/actions"] = actions


@pytest.mark.parametrize(
    "break_it",
    [
        *map(without, ["data", "data/demo_0/obs", "data/demo_0/obs/state", "data/demo_0/actions"]),
        *map(with_array, ["data", "data/demo_0", "data/demo_0/obs"]),
        *(without_attribute, with_group, with_stranger, shortened),
    ],
)
def test_another_layout_is_one_line(file, break_it):
    with h5py.File(file, "a") as content:
        break_it(content)
    refused(file)


def refused(path):
    with pytest.raises(ConfigError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(f"cannot read demonstrations from {path}: ") and "\n" not in message
    return message


def test_damaged_foreign_and_missing_files_are_one_line(file, tmp_path):
    content = file.read_bytes()
    for name, data in {"short": content[: len(content) // 2], "empty": b"", "text": b"obs: 1\n" * 500}.items():
        (tmp_path / name).write_bytes(data)
        refused(tmp_path / name)
    refused(tmp_path / "none.hdf5")
    refused(tmp_path)


def test_a_folder_that_does_not_exist_is_one_line(tmp_path):
    with pytest.raises(
        ConfigError, match=r"cannot write demonstrations to .*none/demos.hdf5: .*No such file"
    ) as caught:
        write(tmp_path / "none" / "demos.hdf5", DEMOS, env=ENV, options={})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("obs", "actions"), [((3, 3), (3, 2)), ((1, 3), (0, 2)), ((4,), (3, 2)), ((4, 3), (3,))])
def test_arrays_that_do_not_belong_together_are_refused(obs, actions):
    with pytest.raises(ConfigError, match=r"needs actions \[T, A\] and observations \[T\+1, D\], T > 0, got"):
        Demonstration(np.zeros(obs, np.float32), np.zeros(actions, np.float32), True, 0)


def test_a_missing_h5py_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "h5py", None)
    for use in (lambda: read(tmp_path / "a"), lambda: write(tmp_path / "a", DEMOS, env=ENV, options={})):
        with pytest.raises(MissingExtraError, match=r"h5py.*rl-reward\[libero\]"):
            use()
