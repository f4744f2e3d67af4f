"""The command `rl-reward`: probe a model, score candidates, track an episode, compare rewards."""

from rl_reward.cli.main import main

__all__ = ["main"]
