"""Dense RL rewards from the score-token expectation of a language-model verifier.

Importing this package loads numpy and nothing heavier; hosts and backends load where they are used.
"""

from rl_reward import shaping
from rl_reward.criteria import Criterion
from rl_reward.distribution import ScoreDistribution
from rl_reward.errors import BackendError, ConfigError, MissingExtraError, RlRewardError, Unscorable
from rl_reward.prompts import Exemplar
from rl_reward.scale import ScoreScale
from rl_reward.scores import PairScore, ProgressCurve, Ranking, Score
from rl_reward.shaping import Shaping
from rl_reward.types import Step, Trajectory, Usage
from rl_reward.verdict import read_score
from rl_reward.verifier import Verifier

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "ConfigError",
    "Criterion",
    "Exemplar",
    "MissingExtraError",
    "PairScore",
    "ProgressCurve",
    "Ranking",
    "RlRewardError",
    "Score",
    "ScoreDistribution",
    "ScoreScale",
    "Shaping",
    "Step",
    "Trajectory",
    "Unscorable",
    "Usage",
    "Verifier",
    "read_score",
    "shaping",
]
