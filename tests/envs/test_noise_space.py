"""The noise box: N(0, I) cut off at its bound, seeded, and a plain box to everybody else."""

import copy
import pickle
from statistics import NormalDist

import gymnasium as gym
import numpy as np
import pytest

from rl_reward.envs.noise_space import NoiseSpace


def drawn(bound, size=20_000, seed=0):
    space = NoiseSpace(bound, size)
    space.seed(seed)
    return space.sample()


@pytest.mark.parametrize("bound", [0.1, 0.5, 1.5, 3.0])
def test_samples_have_the_moments_of_a_normal_cut_off(bound):
    # With density phi and mass Z inside: mean 0, variance 1 - 2 b phi(b) / Z.
    normal = NormalDist()
    deviation = (1 - 2 * bound * normal.pdf(bound) / (normal.cdf(bound) - normal.cdf(-bound))) ** 0.5
    noise = drawn(bound)
    assert noise.mean() == pytest.approx(0.0, abs=4 * deviation / 20_000**0.5)
    assert noise.std() == pytest.approx(deviation, rel=0.02)
    assert np.abs(noise).max() <= np.float32(bound)


def test_nothing_piles_up_at_the_bound():
    # Of |N(0, 1)| < 1.5 the outermost tenth, beyond 1.35, has (Phi(1.5) - Phi(1.35)) / (Phi(1.5) - .5) = 5.0 %.
    noise = np.abs(drawn(1.5))
    assert (noise > 1.35).mean() == pytest.approx(0.050, abs=0.005)
    assert (noise == np.float32(1.5)).mean() < 0.001


def test_numbers_are_independent():
    space = NoiseSpace(1.5, 2)
    space.seed(0)
    pairs = np.array([space.sample() for _ in range(2000)])
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.07


@pytest.mark.parametrize("bound", [1e-6, 1e-3])
def test_a_tiny_box_is_filled_evenly(bound):
    noise = drawn(bound) / bound
    assert noise.std() == pytest.approx(3**-0.5, rel=0.02)
    assert np.abs(noise).max() <= 1.0 + 1e-6 and np.unique(noise).size > 1000


@pytest.mark.parametrize("bound", [1e-30, 9.0, 40.0, 1e30])
def test_extreme_bounds_give_finite_noise_inside(bound):
    space = NoiseSpace(bound, 2000)
    space.seed(0)
    noise = space.sample()
    assert space.contains(noise) and np.isfinite(noise).all()
    if bound > 1:
        assert noise.std() == pytest.approx(1.0, rel=0.06)


class Lowest:
    """A stream whose uniform numbers are the lowest that can be drawn."""

    def uniform(self, low, high, shape):
        return np.full(shape, low)


@pytest.mark.parametrize("bound", [1.5, 40.0])
def test_the_lowest_draw_is_still_a_number(bound):
    space = NoiseSpace(bound, 1)
    space._np_random = Lowest()
    assert -bound <= space.sample()[0] < -1.4


@pytest.mark.parametrize("bound", [0.1, 0.7, 1.3, 1.5])
def test_samples_lie_in_the_box_as_it_rounds(bound):
    space = NoiseSpace(bound, 5000)
    space.seed(1)
    noise = space.sample()
    assert space.contains(noise) and noise.dtype == np.float32


def test_a_seed_fixes_the_stream():
    space = NoiseSpace(1.5, 7)
    space.seed(3)
    first = [space.sample() for _ in range(3)]
    assert not np.array_equal(first[0], first[1])
    space.seed(3)
    np.testing.assert_array_equal([space.sample() for _ in range(3)], first)
    space.seed(4)
    assert not np.array_equal(space.sample(), first[0])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda space: pickle.loads(pickle.dumps(space))])
def test_a_copy_goes_on_in_the_same_stream(copied):
    space = NoiseSpace(1.5, 7)
    space.seed(3)
    space.sample()
    other = copied(space)
    assert type(other) is NoiseSpace and other == space
    np.testing.assert_array_equal(other.sample(), space.sample())


def test_to_others_it_is_a_box():
    space = NoiseSpace(1.5, 7)
    assert space == gym.spaces.Box(-1.5, 1.5, (7,), np.float32)
    assert space != NoiseSpace(1.4, 7)


@pytest.mark.parametrize("options", [{"mask": np.ones(7)}, {"probability": np.ones(7)}])
def test_what_a_box_refuses_is_refused(options):
    with pytest.raises(gym.error.Error, match=f"cannot be provided a {next(iter(options))}"):
        NoiseSpace(1.5, 7).sample(**options)


class Still(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self):
        self.action_space = NoiseSpace(1.5, 3)
        self.played = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.played.append(action)
        return np.zeros(2, np.float32), 0.0, False, False, {}


def test_the_warm_up_of_stable_baselines3_plays_it(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    env = Still()
    model = sb3.SAC("MlpPolicy", env, learning_starts=400, seed=0, device="cpu", policy_kwargs={"net_arch": [4]})
    model.learn(400)
    played = np.array(env.played)
    # Uniform noise would have the deviation .866.
    assert played.std() == pytest.approx(0.743, abs=0.04) and np.abs(played).max() <= 1.5
    stored = model.replay_buffer.actions[:400, 0]
    np.testing.assert_allclose(stored * 1.5, played, atol=1e-6)
    model.save(tmp_path / "model")
    assert type(sb3.SAC.load(tmp_path / "model").action_space) is NoiseSpace
