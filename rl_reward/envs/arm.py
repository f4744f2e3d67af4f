"""Robot arms simulated by robosuite behind the TaskEnv contract: what LIBERO's tasks and robosuite's own share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_reward.envs.arm_simulator import ArmConfig, ArmSimulator, Array
from rl_reward.envs.base import TaskConfig, TaskEnv
from rl_reward.envs.captions import Axes, carry_caption, work_caption
from rl_reward.envs.oracle import closeness, distance, staged

AXES = Axes(x=("farther ahead", "nearer the robot"), y=("to the left", "to the right"), z=("higher", "lower"))
"""How captions name the directions, seen by the robot, which looks along +x."""

_FINGERS_OPEN = 0.08


class Goal(NamedTuple):
    """One thing that has to come true."""

    thing: str
    """What has to be moved or worked, in words."""
    thing_at: Array
    """Where it is, metres, float [3]."""
    place: str
    """Where it has to go, in words; "" where it stays and something is done to it."""
    place_at: Array
    """Where that is, metres, float [3]; `thing_at` where it stays."""
    holds: bool
    """Whether it is true now."""
    worked: float = 0.0
    """Share done of what is done to it on the spot, in [0, 1]; 0 where it is not known before it holds."""


class ArmTask(TaskEnv):
    """One task of a robosuite arm (Panda, operational-space control, actions float32 [7] in [-1, 1], gripper last).

    State observations are float32: end effector position [3] and orientation [4] (w x y z), the two finger joints [2],
    then for each object of the task position [3], orientation [4] and position minus that of the end effector [3];
    metres, world frame. `objects` names them in order. Pixel observations are a dictionary of `agentview`-like frames
    `image` and `wrist`, uint8 [frame_size, frame_size, 3]; "both" adds `state`. Frames are upright and not mirrored.
    (Policies trained on robosuite's raw images rotated by half a turn, as those of LeRobot are, expect the mirror
    image: `frame[:, ::-1]`.)

    Progress is the mean over the goals; a goal that holds counts 1, one whose object has to move is `staged` by the
    shares of the ways hand to object and object to place; of one that is worked on the spot, by the hand's way and the
    share of the work.

    `terminated` means solved. Nothing is rendered unless a frame is asked for.
    """

    Config: ClassVar[type[TaskConfig]] = ArmConfig
    axes = AXES

    def __init__(self, simulator: ArmSimulator, task: str, config: ArmConfig) -> None:
        """Put `simulator` behind the contract."""
        super().__init__(simulator, task, config)
        self._arm, self._camera = simulator, config.camera
        self._initial: list[tuple[float, float]] = []

    @property
    def objects(self) -> tuple[str, ...]:
        """The objects of the state observation, in order."""
        return self._arm.objects

    def frame(self) -> NDArray[np.uint8]:
        """Render the current state, RGB uint8 [frame_size, frame_size, 3]."""
        return self._arm.image(self._camera)

    @abstractmethod
    def _goals(self) -> list[Goal]:
        """Return what has to come true, as things are now."""

    def _restart(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        return self._arm.restart(self.np_random), {}

    def _begin(self) -> None:
        self._initial = [self._gaps(goal) for goal in self._goals()]

    def _solved(self) -> bool:
        return self._arm.solved

    def _gaps(self, goal: Goal) -> tuple[float, float]:
        """Return the distances in metres from hand to thing and from thing to place."""
        return distance(self._arm.hand.position, goal.thing_at), distance(goal.thing_at, goal.place_at)

    def _truth(self) -> dict[str, Any]:
        goals, fingers = self._goals(), float(self._arm.fingers.sum())
        shares = [self._share(goal, initial) for goal, initial in zip(goals, self._initial, strict=True)]
        open_goals = [goal for goal in goals if not goal.holds] or goals
        current = open_goals[0]
        return {
            "progress": 1.0 if self._solved() else float(np.mean(shares)),
            "hand": tuple(self._arm.hand.position.tolist()),
            "opening": min(max(fingers / _FINGERS_OPEN, 0.0), 1.0),
            "thing": current.thing,
            "thing_at": tuple(current.thing_at.tolist()),
            "place": current.place,
            "place_at": tuple(current.place_at.tolist()),
        }

    def _share(self, goal: Goal, initial: tuple[float, float]) -> float:
        if goal.holds:
            return 1.0
        to_thing, to_place = self._gaps(goal)
        placed = closeness(to_place, initial[1]) if goal.place else goal.worked
        return staged(closeness(to_thing, initial[0]), placed)

    def _caption(self, truth: Mapping[str, Any]) -> str:
        hand, thing, place = truth["hand"], truth["thing_at"], truth["place_at"]
        words: dict[str, Any] = {"axes": AXES, "name": truth["thing"], "numbers": self.config.numbers}
        if not truth["place"]:
            return work_caption(hand, thing, opening=truth["opening"], **words)
        return carry_caption(hand, thing, place, opening=truth["opening"], **words)
