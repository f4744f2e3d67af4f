import gymnasium as gym
import numpy as np
import pytest
from line_task import Line, LineTask

from rl_reward.adapters.sb3 import RelabelCallback, RelabelReplayBuffer
from rl_reward.envs import make
from rl_reward.envs.steering import SteeringEnv
from rl_reward.errors import ConfigError, RlRewardError
from rl_reward.policies import FrozenPolicy
from rl_reward.rewards import Oracle
from rl_reward.shaping import Shaping

AT = {int(Line().reset(seed=seed)[0][0]): seed for seed in range(99)}
"""A seed for each start on the line."""


class Walker:
    """Walks on in steps of 1 whatever the noise, and remembers what it was asked."""

    action_dim = 1

    def __init__(self, chunk=4, noise_shape=(2,)):
        self.chunk, self.noise_shape, self.asked = chunk, noise_shape, []

    def act(self, obs, noise):
        self.asked.append((obs.copy(), noise.copy()))
        return np.ones((self.chunk, self.action_dim), np.float32)


class Follower(Walker):
    """Walks where the noise points."""

    def act(self, obs, noise):
        return np.full((self.chunk, 1), np.sign(noise[0]), np.float32)


def steered(chunk=None, gamma=1.0, policy=None, **options):
    return SteeringEnv(LineTask(**options), policy or Walker(), chunk=chunk, gamma=gamma)


def decide(env, start, count=1):
    """Reset to `start` and return what `count` decisions without noise gave."""
    env.reset(seed=AT[start])
    return [env.step(np.zeros(2, np.float32)) for _ in range(count)]


def test_rewards_are_discounted_inside_a_chunk():
    # From 2 to 1, 0 and -1: the task pays -1, 0, -1, and -1 + .5 * 0 - .25 * 1 = -1.25.
    [(obs, reward, terminated, truncated, info)] = decide(steered(3, 0.5, reward="minus_one_zero"), 2)
    assert (obs.item(), reward, terminated, truncated, info["env_steps"]) == (-1.0, -1.25, False, False, 3)


def test_gamma_of_one_adds_up():
    [(_, reward, *_)] = decide(steered(4, reward="minus_one_zero"), 2)
    assert reward == -3.0


@pytest.mark.parametrize(("ends", "reward"), [(True, 0.0), (False, -1.0)])
def test_a_decision_may_earn_its_last_reward(ends, reward):
    # From 2 the rewards are -1, 0 and, where solving does not end it, -1.
    env = SteeringEnv(
        LineTask(reward="minus_one_zero", terminate_on_success=ends), Walker(), chunk=3, gamma=0.5, pays="last"
    )
    assert decide(env, 2)[0][1] == reward


def test_the_learner_discounts_by_the_whole_chunk():
    assert steered(3, 0.5).decision_gamma == 0.125
    assert steered(None, 0.5).decision_gamma == 0.0625  # all 4 actions of the policy


def test_a_terminal_state_ends_the_chunk():
    # From 2 the goal is reached at the second of 4 steps: 0 + .5 * 1.
    [(obs, reward, terminated, truncated, info)] = decide(steered(4, 0.5, terminate_on_success=True), 2)
    assert (obs.item(), reward, terminated, truncated, info["env_steps"]) == (0.0, 0.5, True, False, 2)
    assert info["is_success"]


def test_a_time_limit_ends_the_chunk_and_is_no_terminal_state():
    first, second = decide(steered(3, max_steps=5), 2, count=2)
    assert (first[2], first[3], first[4]["env_steps"]) == (False, False, 3)
    assert (second[2], second[3], second[4]["env_steps"]) == (False, True, 2)


def test_both_ends_at_one_step():
    [(_, _, terminated, truncated, info)] = decide(steered(3, max_steps=2, terminate_on_success=True), 2)
    assert (terminated, truncated, info["env_steps"]) == (True, True, 2)


def test_the_time_limit_counts_decisions_and_the_options_low_level_steps():
    env = steered(3, max_steps=5)
    assert (env.max_episode_steps, env.config.max_steps, env.task) == (2, 5, "Walk to 0.")
    assert steered(3, max_steps=6).max_episode_steps == 2


def test_a_success_inside_a_chunk_stays_latched():
    [(_, _, _, _, info)] = decide(steered(4), 2)
    assert (info["is_success_latched"], info["is_success_final"]) == (True, False)


def test_the_judge_sees_the_reset_and_the_states_after_decisions():
    env = steered(2, max_steps=3)
    _, first = env.reset(seed=AT[3])
    steps = [first, *(env.step(np.zeros(2))[4] for _ in range(2))]
    assert [step["rl_reward"].data["progress"] for step in steps] == [0.0, pytest.approx(2 / 3), 1.0]


@pytest.mark.parametrize(("stride", "emitted"), [(1, 3), (2, 3), (4, 3), (8, 2), (10**9, 1)])
def test_strides_that_never_point_into_a_chunk_only(stride, emitted):
    infos = [info for *_, info in decide(steered(4, stride=stride, max_steps=12), 2, count=3)]
    assert sum("rl_reward" in info for info in infos) == emitted
    assert "rl_reward" in infos[-1]


def test_a_stride_inside_the_chunk_is_refused():
    with pytest.raises(ConfigError, match="stride must divide the chunk of 4 steps, got 3; use stride=4"):
        steered(4, stride=3)


def test_frames_are_rendered_for_the_judge_only():
    env = steered(4, stride=4, frames=True, max_steps=8)
    decide(env, 2, count=2)
    assert env.env.frames_rendered == 3
    assert env.render().shape == (224, 224, 3)


def test_the_policy_sees_what_the_agent_sees_and_its_own_noise():
    policy = Walker(noise_shape=(2, 3))
    env = steered(2, policy=policy)
    seen, _ = env.reset(seed=AT[3])
    noise = np.linspace(-1.5, 1.5, 6, dtype=np.float32)
    after, *_ = env.step(noise)
    env.step(noise)
    assert [obs.item() for obs, _ in policy.asked] == [seen.item(), after.item()]
    assert all((asked == noise.reshape(2, 3)).all() for _, asked in policy.asked)


def test_the_policy_may_see_a_part():
    policy = Walker()
    env = SteeringEnv(LineTask(), policy, policy_obs=lambda obs: obs * 10)
    decide(env, 2)
    assert policy.asked[0][0].item() == 20


def test_the_noise_decides():
    env = steered(1, policy=Follower())
    env.reset(seed=AT[2])
    assert [env.step(np.array([sign, 0.0]))[0].item() for sign in (1, -1, -1)] == [1, 2, 3]


def test_the_box_is_flat_and_bounded():
    env = SteeringEnv(LineTask(), Walker(noise_shape=(4, 3)), noise_bound=1.3)
    assert env.action_space == gym.spaces.Box(-1.3, 1.3, (12,), np.float32)
    assert env.observation_space == LineTask().observation_space


def test_random_actions_are_the_noise_of_the_policy_itself():
    space = SteeringEnv(LineTask(), Walker(noise_shape=(2000,))).action_space
    space.seed(0)
    drawn = space.sample()
    assert space.contains(drawn) and np.abs(drawn).max() > 1.45
    # N(0, 1) cut at 1.5 has the deviation .743; uniform noise would have .866.
    assert drawn.std() == pytest.approx(0.743, abs=0.03)
    space.seed(0)
    assert np.array_equal(space.sample(), drawn)


@pytest.mark.parametrize("value", [1.51, -1.50001, np.nan, np.inf])
def test_noise_outside_the_box_is_refused(value):
    env = steered()
    env.reset(seed=AT[2])
    with pytest.raises(ConfigError, match=r"noise must be in \[-1.5, 1.5\], got"):
        env.step(np.array([0.0, value]))
    assert env.policy.asked == []


def test_a_rounding_at_the_edge_of_the_box_passes():
    env = steered()
    env.reset(seed=AT[2])
    env.step(np.nextafter(env.action_space.high, np.float32(9)))
    assert len(env.policy.asked) == 1


def test_noise_of_another_shape_is_refused():
    env = steered()
    env.reset(seed=AT[2])
    with pytest.raises(ConfigError, match=r"noise must have shape \(2,\), got \(3,\)"):
        env.step(np.zeros(3))


def test_stepping_outside_an_episode_is_refused():
    env = steered(4, max_steps=4)
    with pytest.raises(RlRewardError, match="reset"):
        env.step(np.zeros(2))
    decide(env, 2)
    with pytest.raises(RlRewardError, match="reset"):
        env.step(np.zeros(2))


WIDE = type("Wide", (Walker,), {"action_dim": 7})
SIGHTED = type("Sighted", (Walker,), {"obs_dim": 5})


class Scaled(LineTask):
    def __init__(self):
        super().__init__()
        self.action_space = gym.spaces.Box(-2, 3, (1,), np.float32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chunk": 5}, "chunk must be an integer of at least 1 and at most 4, got 5"),
        ({"chunk": 0}, "chunk must be an integer of at least 1 and at most 4, got 0"),
        ({"noise_bound": 0}, "noise_bound must be a finite number > 0, got 0"),
        ({"pays": "mean"}, "pays must be one of sum, last, got 'mean'"),
        ({"gamma": 1.1}, "gamma must be a finite number > 0 and <= 1, got 1.1"),
        ({"policy": WIDE()}, r"makes actions of 7 numbers, the env takes shape \(1,\)"),
        ({"policy": SIGHTED()}, r"reads observations of 5 numbers, the env's have shape \(1,\); .* policy_obs"),
        (
            {"policy": SIGHTED(), "policy_obs": lambda obs: np.tile(obs, 3)},
            r"reads observations of 5 numbers, policy_obs makes shape \(3,\)$",
        ),
        ({"env": Scaled()}, r"actions in \[-1, 1\], got \[-2, 3\]; .* RescaleAction"),
        ({"env": Line()}, "needs a TaskEnv, as rl_reward.envs.make builds, got Line"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(arguments, message):
    with pytest.raises(ConfigError, match=message) as caught:
        SteeringEnv(**{"env": LineTask(), "policy": Walker(), **arguments})
    assert "\n" not in str(caught.value)


def test_what_fits_in_part_or_wrapped_is_accepted():
    SteeringEnv(LineTask(), SIGHTED(), policy_obs=lambda obs: np.tile(obs, 5))
    env = SteeringEnv(gym.wrappers.RescaleAction(Scaled(), np.float32(-1), np.float32(1)), Walker(chunk=1))
    # 1 of [-1, 1] is 3 of [-2, 3].
    assert decide(env, 3)[0][0].item() == 0


@pytest.mark.parametrize("actions", [np.ones((3, 1)), np.full((4, 1), np.nan)])
def test_a_policy_that_breaks_its_word_is_stopped(actions):
    policy = Walker()
    policy.act = lambda obs, noise: actions
    with pytest.raises(RlRewardError, match=r"finite actions of shape \(4, 1\)"):
        decide(steered(policy=policy), 2)


def test_the_protocol():
    assert isinstance(Walker(), FrozenPolicy)
    assert not isinstance(LineTask(), FrozenPolicy)


def test_close_and_reset_options_reach_the_task(monkeypatch):
    calls = []
    monkeypatch.setattr(Line, "close", lambda self: calls.append("close"))
    monkeypatch.setattr(
        LineTask,
        "_restart",
        lambda self, seed, options: calls.append((seed, options)) or self.simulator.reset(seed=AT[2]),
    )
    env = steered()
    env.reset(seed=7, options={"init_state": 3})
    env.close()
    assert calls == [(7, {"init_state": 3}), "close"]


@pytest.fixture(scope="module")
def reach_policy():
    """A flow policy of the sizes of reach, hardly trained."""
    flow = pytest.importorskip("rl_reward.policies.flow", exc_type=ImportError)
    rng = np.random.default_rng(0)
    obs_N, chunks_N = rng.normal(size=(64, 13)), rng.uniform(-1, 1, (64, 5, 4))
    return flow.fit(obs_N, chunks_N, hidden=(16,), steps=20)


def reach(policy):
    pytest.importorskip("gymnasium_robotics")
    env = make("fetch/FetchReach-v4", flat=True, stride=5, reward="minus_one_zero", max_steps=48)
    return SteeringEnv(env, policy, gamma=0.98)


def test_a_steered_episode_is_fixed_by_its_seed_and_noise(reach_policy):
    def play():
        env = reach(reach_policy)
        obs, _ = env.reset(seed=3)
        rng, seen, rewards, counts, over = np.random.default_rng(1), [obs], [], [], False
        while not over:
            noise = rng.uniform(-1.5, 1.5, 4).astype(np.float32)
            obs, reward, terminated, truncated, info = env.step(noise)
            over = terminated or truncated
            seen.append(obs)
            rewards.append(reward)
            counts.append(info["env_steps"])
        env.close()
        return np.array(seen), rewards, counts

    (obs_a, rewards_a, counts), (obs_b, rewards_b, _) = play(), play()
    assert np.array_equal(obs_a, obs_b) and rewards_a == rewards_b
    assert counts == [5] * 9 + [3]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_stable_baselines3_accepts_it(reach_policy):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    env = reach(reach_policy)
    checker.check_env(env)
    env.close()


def test_sac_learns_from_relabelled_decisions(reach_policy):
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.callbacks import BaseCallback

    class CountsSteps(BaseCallback):
        steps = 0

        def _on_step(self):
            self.steps += sum(info["env_steps"] for info in self.locals["infos"])
            return True

    env, counter = reach(reach_policy), CountsSteps()
    gamma = env.decision_gamma
    assert gamma == pytest.approx(0.98**5)
    model = sb3.SAC(
        "MlpPolicy",
        env,
        gamma=gamma,
        learning_starts=50,
        seed=0,
        device="cpu",
        policy_kwargs={"net_arch": [16]},
        replay_buffer_class=RelabelReplayBuffer,
        replay_buffer_kwargs={"shaping": Shaping("potential", gamma=gamma, env_reward="minus_one_zero")},
    )
    model.learn(300, callback=[RelabelCallback(Oracle()), counter])
    buffer = model.replay_buffer
    assert (buffer.counts.committed, buffer.counts.pending) == (300, 0)
    assert counter.steps == 30 * 48
    records = buffer.records[:300, 0]
    assert records["scored"].all()
    assert not records["terminated"].any() and records["done"].sum() == 30
    # The 5 low-level steps of an unsolved decision pay -1 each, discounted; the last decision of an episode has 3.
    worst = records["env_reward"][:9].min()
    assert worst == pytest.approx(-(1 - 0.98**5) / (1 - 0.98), abs=1e-5)
    before, after = records["progress"][:8], records["progress"][1:9]
    paid = records["env_reward"][1:9] + gamma * (after - 1.0) - (before - 1.0)  # -1/0 rewards: Phi is progress - 1
    assert np.allclose(buffer.rewards[1:9, 0], paid, atol=1e-5)
    assert model._n_updates == 250
