import multiprocessing
from functools import partial

import numpy as np
import pytest
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.env_checker import check_env

from rl_reward.envs import make
from rl_reward.envs.check import check_task_env
from rl_reward.errors import ConfigError

FETCH = ["fetch/FetchReach-v4", "fetch/FetchPush-v4", "fetch/FetchPickAndPlace-v4"]
METAWORLD = ["metaworld/reach-v3", "metaworld/door-open-v3", "metaworld/window-close-v3"]
SHORT = {"max_steps": 12, "stride": 5}


@pytest.fixture
def build():
    built = []
    yield lambda *args, **options: built.append(make(*args, **options)) or built[-1]
    for env in built:
        env.close()


@pytest.mark.parametrize("name", FETCH + METAWORLD)
@pytest.mark.parametrize("options", [{}, {"reward": "minus_one_zero", "numbers": False, "terminate_on_success": True}])
def test_the_contract(name, options):
    check_task_env(partial(make, name, **SHORT, **options))


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in FETCH + METAWORLD), (FETCH[0], {"flat": True})])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_stable_baselines3_accepts_it(build, name, options):
    check_env(build(name, **SHORT, **options))


def test_hindsight_replay_runs_on_the_goal_dictionary(build):
    env = build(FETCH[0], reward="minus_one_zero")
    model = SAC(
        "MultiInputPolicy", env, replay_buffer_class=HerReplayBuffer, learning_starts=100, batch_size=32, device="cpu"
    )
    model.learn(110)
    rewards = model.replay_buffer.sample(512).rewards.unique().tolist()
    assert set(rewards) == {-1.0, 0.0}


@pytest.mark.parametrize("name", [*FETCH[:2], METAWORLD[1]])
def test_a_seed_fixes_the_whole_episode(build, name):
    env = build(name, **SHORT)
    actions = np.random.default_rng(0).uniform(-1, 1, (12, 4)).astype(np.float32)

    def play(seed):
        texts = [env.reset(seed=seed)[1]["rl_reward"].data]
        return texts + [info["rl_reward"].data for *_, info in map(env.step, actions) if "rl_reward" in info]

    first = play(3)
    assert play(4) != first
    assert play(3) == first


def test_fetch_defaults(build):
    env = build("fetch/FetchReach-v4")
    assert (env.config.success, env.config.max_steps) == ("final", 50)
    assert "target" in env.task


def test_metaworld_defaults_and_its_limit(build):
    env = build("metaworld/reach-v3")
    assert (env.config.success, env.config.max_steps) == ("latched", 500)
    with pytest.raises(ConfigError, match=r"at most 500 .* got 501"):
        make("metaworld/reach-v3", max_steps=501)


def test_a_whole_metaworld_episode_ends_by_truncation(build):
    env = build("metaworld/reach-v3", stride=500)
    env.reset(seed=0)
    ends = [env.step(np.zeros(4, np.float32))[2:4] for _ in range(500)]
    assert ends == [(False, False)] * 499 + [(False, True)]


def test_the_first_fetch_caption_by_hand(build):
    _, info = build("fetch/FetchReach-v4").reset(seed=3)
    step = info["rl_reward"]
    np.testing.assert_allclose(np.subtract(step.data["goal"], step.data["hand"]), [-0.124, -0.079, 0.090], atol=1e-3)
    assert step.text == (
        "The target is 17 cm from the gripper: 12 cm nearer the robot, 9 cm higher and 8 cm to the right."
    )
    assert step.data["progress"] == 0.0


def test_reach_solved_by_going_there(build):
    env = build("fetch/FetchReach-v4")
    obs, info = env.reset(seed=0)
    progress = [info["rl_reward"].data["progress"]]
    for _ in range(50):
        offset = obs["desired_goal"] - obs["achieved_goal"]
        obs, reward, terminated, truncated, info = env.step(np.clip([*offset * 10, 0], -1, 1))
        progress.append(info["rl_reward"].data["progress"])
    assert (info["is_success"], reward, terminated, truncated) == (True, 1.0, False, True)
    assert progress[-1] > 0.8 and (np.diff(progress[:5]) > 0).all()


@pytest.mark.parametrize("name", METAWORLD)
def test_metaworld_starts_owe_nothing_to_the_start_before(build, name):
    fresh, used = build(name), build(name)
    used.reset(seed=0)
    starts = [env.reset(seed=1)[1]["rl_reward"].data for env in (fresh, used)]
    assert starts[0] == starts[1]
    after = fresh.step(np.zeros(4, np.float32))[-1]["rl_reward"].data
    assert after["distance"] == pytest.approx(starts[0]["distance"], abs=0.01)


def test_metaworld_progress_is_one_where_solved(build):
    env = build("metaworld/reach-v3", terminate_on_success=True)
    obs, _ = env.reset(seed=0)
    terminated, progress = False, []
    while not terminated:
        obs, reward, terminated, truncated, info = env.step(np.clip([*(obs[-3:] - obs[:3]) * 10, 0], -1, 1))
        progress.append(info["rl_reward"].data["progress"])
        assert not truncated
    assert reward == 1.0 and 0.5 < progress[-2] < progress[-1] == 1.0


def test_solved_fetch_starts_are_left_out(build):
    import gymnasium
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    bare = gymnasium.make("FetchReach-v4").unwrapped
    env = build("fetch/FetchReach-v4")
    gaps = {"bare": [], "ours": []}
    for seed in range(60):
        for name, simulator in (("bare", bare), ("ours", env)):
            obs, _ = simulator.reset(seed=seed)
            gaps[name].append(np.linalg.norm(obs["achieved_goal"] - obs["desired_goal"]))
    assert min(gaps["bare"]) < 0.05 <= min(gaps["ours"])


def test_the_flat_observation_is_the_observation_and_the_goal(build):
    nested, _ = build("fetch/FetchReach-v4").reset(seed=1)
    env = build("fetch/FetchReach-v4", flat=True)
    flat, _ = env.reset(seed=1)
    assert flat.dtype == np.float32 and env.observation_space.shape == (13,)
    np.testing.assert_allclose(flat, [*nested["observation"], *nested["desired_goal"]], rtol=1e-6)


@pytest.mark.parametrize(("reward", "paid"), [("zero_one", [1, 0]), ("minus_one_zero", [0, -1])])
def test_hindsight_rewards_follow_the_sparse_reward(build, reward, paid):
    env = build("fetch/FetchReach-v4", reward=reward)
    np.testing.assert_array_equal(
        env.compute_reward(np.array([[0, 0, 0.04], [0, 0, 0.06]]), np.zeros((2, 3)), {}), paid
    )


def test_every_metaworld_task_has_its_words():
    from metaworld import ALL_V3_ENVIRONMENTS

    from rl_reward.envs.metaworld import TASKS

    assert set(TASKS) == set(ALL_V3_ENVIRONMENTS)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fetsh/FetchReach-v4", {}, "did you mean 'fetch'"),
        ("fetch/FetchReach-v3", {}, "did you mean 'FetchReach-v4'"),
        ("metaworld/reech-v3", {}, "did you mean 'reach-v3'"),
        ("fetch/quux", {}, "known: FetchPickAndPlace-v4, FetchPush-v4, FetchReach-v4"),
        ("fetch/FetchReach-v4", {"strides": 5}, "did you mean 'stride'"),
        ("metaworld/reach-v3", {"flat": True}, "no option of metaworld/reach-v3 is called 'flat'"),
    ],
)
def test_unknown_names_get_the_nearest_one(name, options, message):
    with pytest.raises(ConfigError, match=message):
        make(name, **options)


def first_caption(name):
    env = make(name)
    return env.reset(seed=5)[1]["rl_reward"].text


def test_a_spawned_process_builds_the_same_task():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(first_caption, ["fetch/FetchReach-v4"]) == first_caption("fetch/FetchReach-v4")
