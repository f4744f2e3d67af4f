from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3 import SAC

from rl_reward.adapters.sb3.layer_norm import LayerNormSACPolicy


class Drift(gym.Env[Any, Any]):
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, dict_obs: bool = False) -> None:
        box = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.observation_space = gym.spaces.Dict(state=box) if dict_obs else box
        self.dict_obs = dict_obs

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self._obs(), float(action[0]), False, self.time == 5, {}

    def _obs(self) -> Any:
        state = self.np_random.normal(size=3).astype(np.float32)
        return {"state": state} if self.dict_obs else state


def make(policy: Any = LayerNormSACPolicy, *, dict_obs: bool = False, **policy_kwargs: Any) -> SAC:
    settings = {"net_arch": [16, 16], **policy_kwargs}
    options: Any = {"learning_starts": 10, "batch_size": 8, "seed": 0, "device": "cpu"}
    return SAC(policy, Drift(dict_obs), policy_kwargs=settings, **options)


def norms(module: th.nn.Module) -> list[tuple[int, ...]]:
    return [m.normalized_shape for m in module.modules() if isinstance(m, th.nn.LayerNorm)]


def q_values(model: SAC, scale: float) -> th.Tensor:
    generator = th.Generator().manual_seed(0)
    obs, actions = (th.randn(64, size, generator=generator) * scale for size in (3, 1))
    with th.no_grad():
        return th.cat(model.critic(obs, actions), dim=1)


def test_each_hidden_layer_of_each_critic_is_normed_and_the_actor_is_not() -> None:
    model = make(net_arch={"pi": [4], "qf": [8, 6]}, n_critics=3)
    assert model.critic.n_critics == len(model.critic.q_networks) == 3
    for critic in (model.critic, model.critic_target):
        assert norms(critic) == [(8,), (6,)] * 3
    assert norms(model.actor) == []
    # By hand: (3 + 1) * 8 + 8, two of 8 for the norm, 8 * 6 + 6, two of 6, 6 + 1.
    assert sum(p.numel() for p in model.critic.parameters()) == 3 * (40 + 16 + 54 + 12 + 7)
    assert not any(th.equal(a, b) for a, b in zip(*[q[0].weight for q in model.critic.q_networks[:2]], strict=True))


def test_q_values_stay_bounded_however_large_the_input() -> None:
    model = make()
    last: Any = model.critic.q_networks[0][-1]
    bound = (last.weight.norm() * 16**0.5 + last.bias.abs()).item()
    far = q_values(model, 1e6)[:, 0]
    assert far.abs().max() <= bound
    assert (far - q_values(model, 1e3)[:, 0]).abs().max() < 0.01
    assert q_values(make("MlpPolicy"), 1e6)[:, 0].abs().max() > 1000, "without LayerNorm they grow with the input"


def test_the_bound_survives_training() -> None:
    model = make().learn(60)
    assert model._n_updates == 50
    assert (q_values(model, 1e6) - q_values(model, 1e3)).abs().max() < 0.05


@pytest.mark.parametrize("dict_obs", [False, True])
def test_training_saving_and_loading_give_equal_predictions(dict_obs: bool, tmp_path: Path) -> None:
    model = make(dict_obs=dict_obs, n_critics=3)
    before = {name: p.clone() for name, p in model.critic.named_parameters()}
    model.learn(30)
    assert all(not th.equal(before[name], p) for name, p in model.critic.named_parameters()), "every part learns"
    model.save(tmp_path / "model")
    loaded = SAC.load(tmp_path / "model", device="cpu")
    assert isinstance(loaded.policy, LayerNormSACPolicy)
    obs: Any = {"state": np.ones((4, 3), np.float32)} if dict_obs else np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(loaded.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])
    for mine, theirs in zip(loaded.critic.parameters(), model.critic.parameters(), strict=True):
        assert th.equal(mine, theirs)
    assert loaded.critic.n_critics == 3


def test_the_policy_alone_saves_and_loads(tmp_path: Path) -> None:
    policy = make(n_critics=1).policy
    policy.save(tmp_path / "policy")
    loaded = LayerNormSACPolicy.load(tmp_path / "policy", device="cpu")
    assert norms(loaded.critic) == [(16,), (16,)]
    obs = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(
        loaded.predict(obs, deterministic=True)[0], policy.predict(obs, deterministic=True)[0]
    )
