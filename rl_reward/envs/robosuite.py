"""robosuite's own tasks behind the TaskEnv contract: lifting a cube, opening a door, putting a can into its bin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rl_reward._checks import check_known
from rl_reward.envs.arm import ArmTask, Goal
from rl_reward.envs.arm_simulator import ArmConfig, ArmSimulator, Array, built, check_versions
from rl_reward.envs.base import TaskConfig

_LIFT = np.array([0.0, 0.0, 0.05])
_OPEN_ANGLE = 0.3


class Wording(NamedTuple):
    """How to speak of a task."""

    instruction: str
    """What to do."""
    thing: str
    """The object of the state observation."""


TASKS = {
    "Lift": Wording("Lift the cube off the table.", "cube"),
    "Door": Wording("Turn the handle and pull the door open.", "door"),
    "PickPlaceCan": Wording("Put the can into its bin.", "can"),
}
"""The wording of each task."""


@dataclass(frozen=True)
class RobosuiteConfig(ArmConfig):
    """Options of robosuite's own tasks."""

    max_steps: int = 400
    """As in `TaskConfig`."""


class RobosuiteTask(ArmTask):
    """One of robosuite's tasks. Solved is what robosuite calls success; every reset draws a new placement.

    Lift is over 4 cm above the table, so its goal is 5 cm above where the cube stood. The door counts by its angle, 0.3
    rad being open. The can is done once it lies in its bin and the hand has left it.
    """

    Config: ClassVar[type[TaskConfig]] = RobosuiteConfig

    def __init__(self, task: str, config: ArmConfig | None = None) -> None:
        """Build the simulator of `task`, one of `names()`."""
        config = config or RobosuiteConfig()
        check_known(task, TASKS, "task of robosuite")
        check_versions()
        self._domain = built(partial(_build, task))
        self._thing = TASKS[task].thing
        simulator = ArmSimulator(self._domain, {self._thing: _body(self._domain, self._thing)}, config)
        super().__init__(simulator, TASKS[task].instruction, config)
        self._goal: Callable[[], Goal] = {"Lift": self._lift, "Door": self._door, "PickPlaceCan": self._can}[task]
        self._stood: Array = np.zeros(3)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the tasks of this family."""
        return tuple(TASKS)

    def _begin(self) -> None:
        self._stood = self._arm.pose(self._thing).position
        super()._begin()

    def _goals(self) -> list[Goal]:
        return [self._goal()]

    def _lift(self) -> Goal:
        return Goal("cube", self._arm.pose("cube").position, "target", self._stood + _LIFT, self._solved())

    def _can(self) -> Goal:
        domain = self._domain
        bin_at = np.array(domain.target_bin_placements[domain.object_to_id["can"]])
        return Goal("can", self._arm.pose("can").position, "bin", bin_at, self._solved())

    def _door(self) -> Goal:
        handle = np.array(self._domain._handle_xpos)
        angle = float(self._domain.sim.data.qpos[self._domain.hinge_qpos_addr])
        worked = min(max(angle / _OPEN_ANGLE, 0.0), 1.0)
        return Goal("door handle", handle, "", handle, self._solved(), worked)


def _body(domain: Any, thing: str) -> int:
    """Return the body number of the object; each of robosuite's environments keeps it elsewhere."""
    if thing == "cube":
        return domain.cube_body_id
    return domain.object_body_ids["door"] if thing == "door" else domain.obj_body_id["Can"]


def _build(task: str) -> Any:
    """Return robosuite's own environment of a task, without cameras."""
    import robosuite  # pyright: ignore[reportMissingTypeStubs]

    suite: Any = robosuite
    return suite.make(
        task,
        robots="Panda",
        controller_configs=suite.load_controller_config(default_controller="OSC_POSE"),
        use_camera_obs=False,
        has_renderer=False,
        has_offscreen_renderer=False,
        ignore_done=True,
        hard_reset=False,
        control_freq=20,
    )
