"""SAC with LayerNorm in its critics: the Q values stay bounded outside the data, which steadies training."""

from __future__ import annotations

import math
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.policies import ContinuousCritic
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, create_mlp
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.sac.policies import SACPolicy
from torch import nn


class LayerNormCritic(ContinuousCritic):
    """SB3's Q(s, a), each hidden linear layer followed by LayerNorm (before the activation)."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Box,
        net_arch: list[int],
        features_extractor: BaseFeaturesExtractor,
        features_dim: int,
        activation_fn: type[nn.Module] = nn.ReLU,
        normalize_images: bool = True,
        n_critics: int = 2,
        share_features_extractor: bool = True,
    ) -> None:
        """Take what `ContinuousCritic` takes; SB3 passes it."""
        common = (observation_space, action_space, net_arch, features_extractor, features_dim, activation_fn)
        base: Any = super()
        # No plain network is built only to be thrown away: the loop below makes them all.
        base.__init__(*common, normalize_images, n_critics=0, share_features_extractor=share_features_extractor)
        self.n_critics = n_critics
        width = features_dim + math.prod(action_space.shape)
        for index in range(n_critics):
            layers = create_mlp(width, 1, net_arch, activation_fn, post_linear_modules=[nn.LayerNorm])
            self.q_networks.append(nn.Sequential(*layers))
            self.add_module(f"qf{index}", self.q_networks[-1])


class LayerNormSACPolicy(SACPolicy):
    """SB3's SAC policy with `LayerNormCritic`s; the actor is unchanged.

    `SAC(LayerNormSACPolicy, env, policy_kwargs=dict(net_arch=[256, 256], n_critics=2))`; every argument is that of
    SB3's policies, and models save and load as usual. Box and Dict observations.

    |Q| <= |w| sqrt(d) + |b| for the last layer (w, b) of d inputs while the LayerNorms hold their first values,
    whatever the size of observation and action. Source: RLPD (arXiv 2302.02948), section 4.2.
    """

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Box, lr_schedule: Schedule, **kwargs: Any
    ) -> None:
        """Take what `SACPolicy` takes; Dict observations get SB3's `CombinedExtractor` unless another is named."""
        if isinstance(observation_space, spaces.Dict):
            kwargs.setdefault("features_extractor_class", CombinedExtractor)
        base: Any = super()
        base.__init__(observation_space, action_space, lr_schedule, **kwargs)

    def make_critic(self, features_extractor: BaseFeaturesExtractor | None = None) -> ContinuousCritic:
        """Return a new critic; SB3 calls it for the critic and its target."""
        own: Any = self
        arguments = own._update_features_extractor(own.critic_kwargs, features_extractor)
        return LayerNormCritic(**arguments).to(self.device)
