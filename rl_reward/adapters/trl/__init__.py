"""A verifier's scores inside TRL's GRPOTrainer. Importing this loads nothing heavy."""

from rl_reward.adapters.messages import Text, text_of
from rl_reward.adapters.trl.gates import Gates
from rl_reward.adapters.trl.judging import EMPTY_COMPLETION, AsyncRanker, AsyncVerifier
from rl_reward.adapters.trl.reward import VerifierReward
from rl_reward.adapters.trl.step_reward import ProgressReward

__all__ = [
    "EMPTY_COMPLETION",
    "AsyncRanker",
    "AsyncVerifier",
    "Gates",
    "ProgressReward",
    "Text",
    "VerifierReward",
    "text_of",
]
