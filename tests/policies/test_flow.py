import json
import struct

import numpy as np
import pytest
import torch

from rl_reward.errors import ConfigError
from rl_reward.policies import FrozenPolicy
from rl_reward.policies.flow import FORMAT, FlowPolicy, FlowSettings, VelocityField, chunked, fit


def noises(policy, count, seed=0):
    rng = np.random.default_rng(seed)
    return [policy.draw(rng) for _ in range(count)]


def random_policy(noise="shared", chunk=3, seed=0):
    torch.manual_seed(seed)
    settings = FlowSettings(obs_dim=4, action_dim=2, chunk=chunk, noise=noise, hidden=(8,), euler_steps=3)
    return FlowPolicy(settings, VelocityField(settings))


def test_an_episode_becomes_one_pair_per_step_and_its_last_action_is_repeated():
    pairs = chunked([[10], [11], [12]], [[0.1, 0], [0.2, 0], [0.3, 0]], chunk=2)
    assert pairs.obs_N.tolist() == [[10], [11], [12]]
    assert np.allclose(pairs.chunks_N[..., 0], [[0.1, 0.2], [0.2, 0.3], [0.3, 0.3]])
    assert pairs.chunks_N.shape == (3, 2, 2)


@pytest.mark.parametrize(("obs", "actions"), [(np.ones((3, 2)), np.ones((2, 2))), (np.ones(3), np.ones((3, 1)))])
def test_an_episode_of_two_lengths_is_refused(obs, actions):
    with pytest.raises(ConfigError, match=r"\[T, D\] and actions \[T, dim\]"):
        chunked(obs, actions, chunk=2)


def test_euler_steps_by_hand():
    # A field that is x itself: each of 4 steps multiplies by 1 + 1/4, so noise .1 becomes .1 * 1.25^4 = .24414.
    settings = FlowSettings(obs_dim=1, action_dim=1, chunk=2, euler_steps=4)
    field = VelocityField(settings)
    field.forward = lambda x, obs, time: x
    actions = FlowPolicy(settings, field).act([0.0], [0.1])
    assert np.allclose(actions, 0.244140625)
    assert np.allclose(FlowPolicy(settings, field).act([0.0], [-3.0]), -1.0)  # clipped


def test_time_goes_from_0_to_1():
    settings = FlowSettings(obs_dim=1, action_dim=1, chunk=1, euler_steps=4)
    field = VelocityField(settings)
    field.forward = lambda x, obs, time: time[:, :1]
    # (0 + .25 + .5 + .75) / 4
    assert FlowPolicy(settings, field).act([0.0], [0.0]).item() == pytest.approx(0.375)


def test_observations_are_normalised_and_limited():
    seen = []
    settings = FlowSettings(obs_dim=2, action_dim=1, chunk=1, euler_steps=1)
    field = VelocityField(settings)
    field.mean.copy_(torch.tensor([1.0, 0.0]))
    field.std.copy_(torch.tensor([2.0, 1.0]))
    field.forward = lambda x, obs, time: seen.append(obs) or x
    FlowPolicy(settings, field).act([4.0, -50.0], [0.0])
    assert seen[0].tolist() == [[1.5, -10.0]]


def test_shapes_and_protocol():
    shared, independent = random_policy(), random_policy("independent")
    assert isinstance(shared, FrozenPolicy)
    assert (shared.noise_shape, independent.noise_shape) == ((2,), (3, 2))
    assert (shared.chunk, shared.action_dim, shared.obs_dim) == (3, 2, 4)
    actions = shared.act(np.zeros(4), np.zeros(2))
    assert (actions.shape, actions.dtype) == ((3, 2), np.float32)


def test_shared_noise_is_one_vector_for_the_whole_chunk():
    shared, independent = random_policy(), random_policy("independent")
    independent._field.load_state_dict(shared._field.state_dict())
    noise = np.array([0.3, -0.7], np.float32)
    assert np.array_equal(shared.act(np.ones(4), noise), independent.act(np.ones(4), np.tile(noise, (3, 1))))


@pytest.mark.parametrize("draws", [0, 1])
def test_acting_is_a_function_of_observation_and_noise(draws):
    policy = random_policy()
    first = policy.act(np.ones(4), [0.5, 0.5])
    torch.rand(draws)
    assert np.array_equal(first, policy.act(np.ones(4), [0.5, 0.5]))
    assert not np.array_equal(first, policy.act(np.ones(4), [0.5, -0.5]))
    assert not np.array_equal(first, policy.act(np.zeros(4), [0.5, 0.5]))


@pytest.mark.parametrize(
    ("obs", "noise", "message"),
    [
        (np.ones(5), np.ones(2), r"observation must have shape \(4,\), got \(5,\)"),
        (np.ones((1, 4)), np.ones(2), r"observation must have shape \(4,\), got \(1, 4\)"),
        (np.ones(4), np.ones((3, 2)), r"noise must have shape \(2,\), got \(3, 2\)"),
    ],
)
def test_what_does_not_fit_is_named(obs, noise, message):
    with pytest.raises(ConfigError, match=message):
        random_policy().act(obs, noise)


def test_a_linear_map_is_recovered():
    rng = np.random.default_rng(0)
    obs_N = rng.normal(size=(1000, 3)) * [1, 10, 0.01] + [0, 5, 1]
    unit_N = (obs_N - [0, 5, 1]) / [1, 10, 0.01]
    actions_N = np.clip(unit_N @ np.array([[0.3, 0.0], [0.0, 0.3], [0.2, -0.2]]), -1, 1)
    chunks_N = np.stack([actions_N, -actions_N], axis=1)
    losses = []
    policy = fit(obs_N, chunks_N, hidden=(64, 64), steps=800, lr=3e-3, on_step=lambda *told: losses.append(told))
    assert [step for step, _ in losses] == list(range(1, 801))
    assert losses[-1][1] < 0.3 * losses[0][1]
    test = slice(0, 100)
    errors = [
        np.abs(policy.act(obs, noise) - chunk).mean()
        for obs, chunk, noise in zip(obs_N[test], chunks_N[test], noises(policy, 100), strict=True)
    ]
    assert np.mean(errors) < 0.05  # the mean |action| is .3


@pytest.mark.parametrize("noise", ["shared", "independent"])
def test_two_ways_to_act_are_both_kept(noise):
    """Left or right with equal odds: a mean would be 0, a policy that keeps both stays near -.8 and .8."""
    rng = np.random.default_rng(0)
    side_N = rng.choice([-0.8, 0.8], size=600)
    obs_N, chunks_N = rng.integers(0, 2, (600, 1)), np.repeat(side_N[:, None, None], 2, axis=1)
    policy = fit(obs_N, chunks_N, noise=noise, hidden=(64, 64), steps=1500, lr=3e-3)
    actions = np.array([policy.act([0.0], draw)[:, 0] for draw in noises(policy, 200)])
    assert np.mean(np.abs(np.abs(actions) - 0.8) < 0.25) > 0.85
    assert 0.35 < np.mean(actions[:, 0] > 0) < 0.65
    assert np.mean(np.sign(actions[:, 0]) == np.sign(actions[:, 1])) > 0.95


def test_training_is_fixed_by_its_seed_and_leaves_the_global_one_alone():
    rng = np.random.default_rng(0)
    obs_N, chunks_N = rng.normal(size=(50, 3)), rng.uniform(-1, 1, (50, 2, 2))
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    a = fit(obs_N, chunks_N, hidden=(8,), steps=5, seed=1)
    assert torch.equal(torch.rand(1), expected)
    b, c = (fit(obs_N, chunks_N, hidden=(8,), steps=5, seed=seed) for seed in (1, 2))
    obs, noise = np.ones(3), np.ones(2)
    assert np.array_equal(a.act(obs, noise), b.act(obs, noise))
    assert not np.array_equal(a.act(obs, noise), c.act(obs, noise))


def test_an_observation_that_never_varies_does_no_harm():
    obs_N = np.tile([0.0, 7.0], (20, 1)) + np.linspace(-1, 1, 20)[:, None] * [1, 0]
    policy = fit(obs_N, np.zeros((20, 2, 1)), hidden=(8,), steps=2)
    assert np.isfinite(policy.act([0.0, 7.1], [0.0])).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chunks_N": np.full((4, 2, 1), 1.2)}, r"actions must be in \[-1, 1\], got 1.2"),
        ({"chunks_N": np.full((4, 2, 1), np.nan)}, r"actions must be in \[-1, 1\], got nan"),
        ({"chunks_N": np.zeros((3, 2, 1))}, r"got \(4, 3\), \(3, 2, 1\)"),
        ({"obs_N": np.full((4, 3), np.inf)}, "observations must be finite, got inf"),
        ({"obs_N": np.zeros((0, 3)), "chunks_N": np.zeros((0, 2, 1))}, "fit needs observations"),
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"lr": 0}, "lr must be a finite number > 0, got 0"),
        ({"noise": "pink"}, "noise must be one of shared, independent, got 'pink'"),
        ({"hidden": ()}, "hidden must hold at least 1 width"),
        ({"hidden": (0,)}, "a hidden width must be an integer of at least 1, got 0"),
    ],
)
def test_demonstrations_and_settings_out_of_range_are_named(arguments, message):
    with pytest.raises(ConfigError, match=message):
        fit(**{"obs_N": np.zeros((4, 3)), "chunks_N": np.zeros((4, 2, 1)), "steps": 1, "hidden": (4,), **arguments})


@pytest.mark.parametrize("noise", ["shared", "independent"])
def test_a_saved_policy_comes_back_bit_for_bit(tmp_path, noise):
    policy, path = random_policy(noise), tmp_path / "policy.safetensors"
    policy.save(path)
    again = FlowPolicy.load(path)
    assert again.settings == policy.settings
    for draw in noises(policy, 5):
        assert np.array_equal(policy.act(np.ones(4), draw), again.act(np.ones(4), draw))
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def rewrite_settings(path, **changes):
    """Change settings in the header of a saved policy."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    settings = json.loads(header["__metadata__"][FORMAT])
    header["__metadata__"][FORMAT] = json.dumps({**settings, **changes})
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + size :])


def foreign(path):
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(2)}, str(path))


SPOILED = {
    "cannot read .* as a .safetensors file": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "cannot read .* as a .safetensors": lambda path: path.write_text("hello"),
    "cannot read": lambda path: path.unlink(),
    "is no flow policy: its metadata holds no": foreign,
    "is damaged: .* size mismatch": lambda path: rewrite_settings(path, chunk=4),
    "is damaged: .* unexpected keyword": lambda path: rewrite_settings(path, colour="red"),
    "is damaged: noise must be one of": lambda path: rewrite_settings(path, noise="pink"),
}


@pytest.mark.parametrize("message", SPOILED)
def test_a_damaged_or_foreign_file_is_refused_in_one_line(tmp_path, message):
    path = tmp_path / "policy.safetensors"
    random_policy().save(path)
    SPOILED[message](path)
    with pytest.raises(ConfigError, match=message) as caught:
        FlowPolicy.load(path)
    assert "\n" not in str(caught.value)
