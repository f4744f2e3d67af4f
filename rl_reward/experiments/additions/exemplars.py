"""Judged workings for a small base model that reads additions beside the right answer."""

from __future__ import annotations

from rl_reward.criteria import Criterion
from rl_reward.prompts import Exemplar

CRITERION = Criterion("Correctness", "How much of the working is right.")

_SHOTS = (
    ("23+45=", "68", "8;6#68", 9),
    ("57+38=", "95", "14;9#94", 4),
    ("81+64=", "145", "5;14#145", 9),
    ("46+29=", "75", "13;6#63", 1),
    ("72+19=", "91", "11;8#81", 3),
    ("35+53=", "88", "8;8#88", 9),
    ("98+67=", "165", "17;15#157", 2),
    ("64+27=", "91", "11;9#91", 9),
)

EXEMPLARS = tuple(
    Exemplar(f"{task}\n\nReference answer:\n{answer}", working, str(level)) for task, answer, working, level in _SHOTS
)
"""Eight workings with the levels "0" to "9" that they deserve."""
