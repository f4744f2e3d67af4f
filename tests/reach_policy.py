"""A flow policy with the sizes of FetchReach, hardly trained: something to steer."""

import numpy as np

from rl_reward.policies.flow import fit


def save_reach_policy(folder, *, obs_dim=13):
    """Write it (chunk 5, actions of 4 numbers) and return the file."""
    rng = np.random.default_rng(0)
    obs_N, chunks_N = rng.normal(size=(64, obs_dim)), rng.uniform(-1, 1, (64, 5, 4))
    file = folder / f"reach{obs_dim}.safetensors"
    fit(obs_N, chunks_N, hidden=(8,), euler_steps=3, steps=5).save(file)
    return file
