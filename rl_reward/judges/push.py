"""Examples for a small model that judges captions of pushing or pressing something: scenes as positions, in words."""

from __future__ import annotations

from rl_reward.envs.captions import Axes
from rl_reward.judges.carry import Scene
from rl_reward.prompts import Exemplar

PUSH, PRESS = "Push the box to the wall.", "Press the lever down."
"""The tasks of the examples: other things than those judged, one moved along and one moved down."""
_BOX, _WALL = (0.0, 0.0, 0.03), (0.15, 0.0, 0.03)
_UP, _DOWN = (0.0, 0.0, 0.10), (0.0, 0.0, 0.02)
# Order and number are part of the prompt: of three sets tried on scripted scenes of two MetaWorld tasks (no episodes of
# them), with captions in words, this one ranked them best, so it is fitted to those tasks. Ten examples of one task
# alone did not teach the model to rank another.
_PUSH_SHOTS = (
    (Scene((-0.2, 0.1, 0.25), _BOX, _WALL, 1.0), 0),
    (Scene((0.14, 0.0, 0.12), _WALL, _WALL, 0.0), 9),
    (Scene((-0.04, 0.0, 0.03), _BOX, _WALL, 0.0), 4),
    (Scene((-0.15, 0.02, 0.12), _BOX, _WALL, 1.0), 1),
    (Scene((0.10, 0.0, 0.03), (0.12, 0.0, 0.03), _WALL, 0.0), 8),
    (Scene((-0.06, 0.0, 0.08), _BOX, _WALL, 0.5), 3),
    (Scene((0.14, 0.0, 0.03), (0.145, 0.0, 0.03), _WALL, 0.0), 9),
    (Scene((-0.13, 0.02, 0.03), _BOX, _WALL, 1.0), 2),
)
_PRESS_SHOTS = (
    (Scene((-0.25, 0.2, 0.3), _UP, _DOWN, 1.0), 0),
    (Scene((0.0, 0.01, 0.03), (0.0, 0.0, 0.025), _DOWN, 0.0), 9),
    (Scene((0.0, 0.03, 0.13), _UP, _DOWN, 0.0), 4),
    (Scene((-0.15, -0.1, 0.2), _UP, _DOWN, 1.0), 1),
    (Scene((0.0, 0.0, 0.06), (0.0, 0.0, 0.045), _DOWN, 0.0), 8),
    (Scene((0.05, 0.04, 0.16), _UP, _DOWN, 0.5), 3),
    (Scene((0.0, 0.0, 0.075), (0.0, 0.0, 0.065), _DOWN, 0.0), 6),
    (Scene((0.2, -0.2, 0.25), _UP, _DOWN, 1.0), 0),
)


def push_exemplars(*, axes: Axes, numbers: bool) -> tuple[Exemplar, ...]:
    """Return judged captions of `PUSH` and then of `PRESS`, levels "0" to "9", worded as an environment words them."""
    kinds = ((PUSH, "box", _PUSH_SHOTS), (PRESS, "lever", _PRESS_SHOTS))
    return tuple(
        Exemplar(task, scene.caption(name, axes=axes, numbers=numbers), str(level))
        for task, name, shots in kinds
        for scene, level in shots
    )
