"""Dense rewards for SAC, TD3 and DDPG of stable-baselines3: a replay buffer that relabels, and the callback that asks.

model = SAC(
    "MultiInputPolicy", env, learning_starts=1000,
    replay_buffer_class=RelabelReplayBuffer, replay_buffer_kwargs=dict(shaping=Shaping("potential", gamma=0.99)),
)
model.learn(20_000, callback=RelabelCallback(judge))
"""

from __future__ import annotations

from rl_reward.adapters.sb3.buffer import Counts, RelabelReplayBuffer
from rl_reward.adapters.sb3.callback import RelabelCallback
from rl_reward.adapters.sb3.layer_norm import LayerNormSACPolicy
from rl_reward.adapters.sb3.recorded import RecordedEpisode

__all__ = ["Counts", "LayerNormSACPolicy", "RecordedEpisode", "RelabelCallback", "RelabelReplayBuffer"]
