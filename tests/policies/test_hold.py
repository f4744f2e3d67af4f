import numpy as np
import pytest

from rl_reward.envs import make
from rl_reward.envs.steering import SteeringEnv
from rl_reward.errors import ConfigError
from rl_reward.policies import FrozenPolicy
from rl_reward.policies.hold import Hold


def test_the_noise_is_the_action_and_every_step_repeats_it():
    policy = Hold(chunk=3, action_dim=2)
    assert isinstance(policy, FrozenPolicy) and policy.noise_shape == (2,)
    actions = policy.act("unread", np.array([0.25, -2.0], np.float32))
    assert actions.dtype == np.float32 and actions.tolist() == [[0.25, -1.0]] * 3


@pytest.mark.parametrize(("sizes", "message"), [((0, 4), "chunk must be .* got 0"), ((5, 0), "action_dim .* got 0")])
def test_sizes_below_1_are_refused(sizes, message):
    with pytest.raises(ConfigError, match=message):
        Hold(*sizes)


def test_steering_it_is_acting_with_action_repeat():
    options = {"flat": True, "max_steps": 8, "reward": "minus_one_zero"}
    plain, task = make("fetch/FetchReach-v4", **options), make("fetch/FetchReach-v4", **options)
    steered = SteeringEnv(task, Hold(3, 4), chunk=3, noise_bound=1.0)
    assert steered.action_space.shape == plain.action_space.shape
    np.testing.assert_array_equal(steered.reset(seed=1)[0], plain.reset(seed=1)[0])
    rng = np.random.default_rng(0)
    for played in (3, 3, 2):  # the time limit cuts the last one
        action = rng.uniform(-1, 1, 4).astype(np.float32)
        obs, _, terminated, truncated, info = steered.step(action)
        for _ in range(played):
            wanted, *_, late, _ = plain.step(action)
        np.testing.assert_array_equal(obs, wanted)
        assert (info["env_steps"], terminated, truncated) == (played, False, late)
