"""LIBERO and robosuite for real: `pytest -m libero`, after `training/install_libero.sh`."""

import os
import subprocess
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
from libero_here import KETCHUP, NEEDED

from rl_reward.envs import libero_files, make
from rl_reward.envs.check import check_task_env
from rl_reward.errors import ConfigError

SHORT = {"max_steps": 4, "stride": 2, "settle_steps": 1, "lite_physics": True}
OBJECTS = sorted(
    f"libero_object/pick_up_the_{thing}_and_place_it_in_the_basket"
    for thing in (
        *("alphabet_soup", "bbq_sauce", "butter", "chocolate_pudding", "cream_cheese", "ketchup", "milk"),
        *("orange_juice", "salad_dressing", "tomato_sauce"),
    )
)


pytestmark = NEEDED


@pytest.fixture
def build():
    built = []
    yield lambda *args, **options: built.append(make(*args, **options)) or built[-1]
    for env in built:
        env.close()


@pytest.fixture(scope="module")
def ketchup():
    env = make(KETCHUP, lite_physics=True)
    yield env
    env.close()


@pytest.mark.parametrize("name", OBJECTS)
def test_the_contract(name):
    check_task_env(partial(make, name, **SHORT))


@pytest.mark.parametrize("name", ["robosuite/Lift", "robosuite/Door", "robosuite/PickPlaceCan"])
def test_the_contract_of_robosuites_own_tasks(name):
    options = {key: value for key, value in SHORT.items() if key != "settle_steps"}
    check_task_env(partial(make, name, **options, numbers=False, reward="minus_one_zero"))


@pytest.mark.parametrize("observations", ["pixels", "both"])
def test_the_contract_with_pixels(observations):
    check_task_env(partial(make, KETCHUP, **SHORT, observations=observations, frames=True, frame_size=32), episodes=1)


def test_all_suites_are_listed():
    counts = {suite: len(libero_files.task_names(suite)) for suite in libero_files.SUITES}
    assert counts == {
        "libero_object": 10, "libero_spatial": 10, "libero_goal": 10, "libero_10": 10, "libero_90": 90,
    }  # fmt: skip
    assert [f"libero_object/{task}" for task in libero_files.task_names("libero_object")] == OBJECTS


def test_gymnasium_makes_it(build):
    env = gymnasium.make(f"rl_reward.envs.libero:{KETCHUP}", disable_env_checker=True, **SHORT)
    try:
        assert env.unwrapped.task == "Pick the ketchup and place it in the basket."
        obs, info = env.reset(seed=7)
        assert obs.shape == (29,) and info["init_state"] == 7
        assert f"{KETCHUP}" in gymnasium.registry
    finally:
        env.close()


def test_a_published_start_is_the_published_state(ketchup):
    _, info = ketchup.reset(options={"init_state": 3})
    state = libero_files.init_states("libero_object", KETCHUP.split("/")[1])[3]
    assert state.shape == (110,)
    arm = ketchup.simulator
    arm.restart(np.random.default_rng(0), state)
    # Time, then positions: nine of the arm, then seven of each object; ketchup comes first.
    np.testing.assert_allclose(arm.pose("ketchup_1").position, state[10:13], atol=1e-9)
    assert info["init_state"] == 3 and ketchup._steps == 0


def test_seeds_visit_the_chosen_init_states_in_turn(build):
    env = build(KETCHUP, **SHORT, init_states=(5, 8, 13))
    assert [env.reset(seed=seed)[1]["init_state"] for seed in (0, 1, 2, 3)] == [5, 8, 13, 5]
    env.reset(seed=0)
    assert {env.reset()[1]["init_state"] for _ in range(12)} == {5, 8, 13}


def test_sampled_starts_differ_and_leave_numpys_stream_alone(build):
    env = build(KETCHUP, **SHORT, starts="sampled")
    np.random.seed(0)
    expected = np.random.RandomState(0).rand(3)
    first, second = (env.reset(seed=seed)[0] for seed in (0, 1))
    np.testing.assert_array_equal(np.random.rand(3), expected)
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(env.reset(seed=0)[0], first)


def test_settling_is_not_counted_and_objects_lie_still(ketchup):
    ketchup.reset(options={"init_state": 0})
    before = ketchup.simulator.pose("ketchup_1").position
    *_, info = ketchup.step(np.array([0, 0, 0, 0, 0, 0, -1], dtype=np.float32))
    assert np.abs(ketchup.simulator.pose("ketchup_1").position - before).max() < 1e-4
    assert ketchup._steps == 1 and "is_success" in info


def test_the_state_observation_by_hand(ketchup):
    obs, info = ketchup.reset(options={"init_state": 3})
    assert ketchup.objects == ("ketchup_1", "basket_1")
    hand, thing = obs[:3], obs[9:12]
    np.testing.assert_allclose(hand, info["rl_reward"].data["hand"], rtol=1e-5)
    np.testing.assert_allclose(obs[16:19], thing - hand, atol=1e-6)
    np.testing.assert_allclose(obs[7:9].sum() / 0.08, info["rl_reward"].data["opening"], rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(obs[[3, 4, 5, 6]]), 1.0, atol=1e-5)
    assert info["rl_reward"].text.startswith("The gripper is open. The ketchup is 32 cm from the gripper: 25 cm")


def test_both_physics_agree(build):
    exact, lite = build(KETCHUP, max_steps=30), build(KETCHUP, max_steps=30, lite_physics=True)
    for env in (exact, lite):
        env.reset(options={"init_state": 1})
    down = np.array([0.3, -0.5, -0.2, 0, 0, 0, -1], dtype=np.float32)
    for _ in range(20):
        (a, *_), (b, *_) = exact.step(down), lite.step(down)
    np.testing.assert_allclose(a, b, atol=5e-4)


def test_the_expert_solves_it_and_progress_grows(ketchup):
    from rl_reward.envs.experts import PickAndPlace

    _, info = ketchup.reset(options={"init_state": 11})
    expert, progress, terminated, reward = PickAndPlace(), [0.0], False, 0.0
    while not terminated:
        _, reward, terminated, truncated, info = ketchup.step(expert.act(info["rl_reward"].data).astype(np.float32))
        progress.append(info["rl_reward"].data["progress"])
        assert not truncated
    assert (reward, info["is_success"], progress[-1]) == (1.0, True, 1.0)
    assert 90 < len(progress) < 130
    assert progress[40] > progress[10] and progress[-10] > progress[50]


def test_nothing_is_rendered_unless_asked_for(build):
    env = build(KETCHUP, **SHORT)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    assert env.simulator._viewer is None
    frame = env.frame()
    assert frame.shape == (224, 224, 3) and frame.std() > 20


def test_frames_are_upright_and_not_mirrored(build):
    """The basket is where the camera's own matrix puts it, and at none of the mirrored places."""
    env = build(KETCHUP, **SHORT, frame_size=128)
    env.reset(options={"init_state": 0})
    model, data = env.simulator._model, env.simulator._data
    number = model.camera("agentview").id
    seen = data.cam_xmat[number].reshape(3, 3).T @ (env.simulator.pose("basket_1").position - data.cam_xpos[number])
    focal = 64 / np.tan(np.radians(model.cam_fovy[number]) / 2)
    right, down = round(focal * seen[0] / -seen[2]), round(focal * -seen[1] / -seen[2])
    assert abs(right) > 15 and abs(down) > 3, "the basket is too near the middle to tell"
    frame = env.frame().astype(int)

    def brown(x, y):
        patch = frame[64 + y - 2 : 64 + y + 3, 64 + x - 2 : 64 + x + 3]
        return float(((patch[..., 0] - patch[..., 2] > 25) & (patch[..., 0] < 170)).mean())

    assert brown(right, down) > 0.9
    assert brown(-right, down) < 0.5 and brown(-right, -down) < 0.5


VECTORISED = """
from functools import partial
import numpy as np
from stable_baselines3.common.vec_env import SubprocVecEnv
from rl_reward.envs import make

if __name__ == "__main__":
    build = partial(make, {name!r}, **{options!r}, frames=True, frame_size=32)
    envs = SubprocVecEnv([build] * 2, start_method={start_method!r})
    envs.seed(4)
    first = envs.reset()
    *_, infos = envs.step(np.zeros((2, 7), np.float32))
    print(first.shape, [info["is_success"] for info in infos], [info["init_state"] for info in envs.reset_infos])
    envs.close()
"""


@pytest.mark.parametrize("start_method", ["spawn", "fork"])
def test_vectorised_processes(start_method, tmp_path):
    # In a process of its own: one that has drawn frames cannot be forked and draw again.
    script = tmp_path / "vectorised.py"
    script.write_text(VECTORISED.format(name=KETCHUP, options=SHORT, start_method=start_method))
    done = in_a_process(str(script))
    assert done.stdout.splitlines()[-1] == "(2, 29) [False, False] [4, 5]", done.stderr


def in_a_process(*arguments, **variables):
    """Run Python with this process's import path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def test_contexts_are_freed(build):
    for _ in range(3):
        env = make(KETCHUP, **SHORT, frames=True, frame_size=32)
        env.reset(seed=0)
        env.close()
        assert env.simulator._viewer is None


def test_importing_asks_nothing_and_leaves_the_users_configuration(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    script = f"from rl_reward.envs import make; make({KETCHUP!r}, **{SHORT!r}).reset(seed=0); print('built')"
    monkeypatch.delenv("LIBERO_CONFIG_PATH", raising=False)
    done = in_a_process("-c", script, HOME=str(home), RL_REWARD_CACHE=str(tmp_path / "cache"))
    assert done.stdout.strip().endswith("built"), done.stderr
    assert not (home / ".libero").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observations": "words"}, "observations must be one of state, pixels, both, got 'words'"),
        ({"starts": "anywhere"}, "starts must be one of published, sampled, got 'anywhere'"),
        ({"init_states": (50,)}, "init_states must be below 50, got 50"),
        ({"assets": "/nowhere"}, "assets must be the folder of LIBERO's assets, got /nowhere"),
        ({"camera": "moon"}, "no camera is called 'moon'; known: agentview, birdview, frontview"),
    ],
)
def test_wrong_options_are_one_clear_line(options, message):
    with pytest.raises(ConfigError, match=message) as caught:
        make(KETCHUP, **options).frame()
    assert "\n" not in str(caught.value)


def test_a_wrong_reset_option_is_one_clear_line(ketchup):
    with pytest.raises(ConfigError, match=r"init_state must be .* got 50"):
        ketchup.reset(options={"init_state": 50})
    with pytest.raises(ConfigError, match=r"reset knows the option init_state, got \{'state': 1\}"):
        ketchup.reset(options={"state": 1})


def test_unknown_suites_and_tasks_name_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'libero_object'"):
        make("libero_objects/x")
    with pytest.raises(ConfigError, match="did you mean 'pick_up_the_ketchup_and_place_it_in_the_basket'"):
        make("libero_object/pick_up_the_ketchup")


def test_missing_assets_say_where_they_were_looked_for(monkeypatch, tmp_path):
    monkeypatch.delenv(libero_files.ASSETS_VARIABLE)
    monkeypatch.setenv("RL_REWARD_CACHE", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=rf"{tmp_path}/libero_assets.*fetch them once with: python -c"):
        libero_files.find_assets()


@pytest.mark.parametrize(("package", "found"), [("mujoco", "3.4.0"), ("robosuite", "1.5.1"), ("mujoco", "2.3.7")])
def test_other_physics_is_refused(monkeypatch, package, found):
    import rl_reward.envs.arm_simulator as simulator

    real = simulator.version
    monkeypatch.setattr(simulator, "version", lambda name: found if name == package else real(name))
    with pytest.raises(ConfigError, match=rf"{package} must be .*, got {found}; run: pip install {package}=="):
        simulator.check_versions()
