"""Frozen policies that make actions out of noise, for `rl_reward.envs.steering`."""

from __future__ import annotations

from rl_reward.policies.base import FrozenPolicy

__all__ = ["FrozenPolicy"]
