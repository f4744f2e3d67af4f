"""A verifier's scores inside TRL's GRPOTrainer. Importing this loads nothing heavy."""

from rl_reward.adapters.messages import Text, text_of
from rl_reward.adapters.trl.reward import EMPTY_COMPLETION, AsyncVerifier, VerifierReward

__all__ = ["EMPTY_COMPLETION", "AsyncVerifier", "Text", "VerifierReward", "text_of"]
