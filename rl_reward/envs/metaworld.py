"""The fifty MetaWorld v3 tasks behind the TaskEnv contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_reward.envs.base import TaskConfig, TaskEnv, gym
from rl_reward.envs.captions import Axes, carry_caption, reach_caption
from rl_reward.envs.headless import choose_gl
from rl_reward.envs.oracle import closeness, distance, staged
from rl_reward.errors import ConfigError, MissingExtraError

try:
    import metaworld  # noqa: F401  # pyright: ignore[reportMissingTypeStubs, reportUnusedImport]
    from mujoco import mj_forward as _forward  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
except ImportError as error:
    raise MissingExtraError("metaworld", "metaworld") from error


class Wording(NamedTuple):
    """How to speak of a task."""

    instruction: str
    """What to do."""
    thing: str
    """What has to move; "" where only the gripper moves."""


TASKS = {
    "assembly-v3": Wording("Pick up the wrench and put its ring over the peg.", "wrench"),
    "basketball-v3": Wording("Drop the ball into the basket.", "ball"),
    "bin-picking-v3": Wording("Move the cube from its bin into the other bin.", "cube"),
    "box-close-v3": Wording("Pick up the lid and close the box with it.", "lid"),
    "button-press-topdown-v3": Wording("Press the button from above.", "button"),
    "button-press-topdown-wall-v3": Wording("Reach over the wall and press the button from above.", "button"),
    "button-press-v3": Wording("Press the button.", "button"),
    "button-press-wall-v3": Wording("Reach around the wall and press the button.", "button"),
    "coffee-button-v3": Wording("Press the button of the coffee machine.", "button"),
    "coffee-pull-v3": Wording("Pull the mug away from the coffee machine to the target.", "mug"),
    "coffee-push-v3": Wording("Push the mug under the coffee machine.", "mug"),
    "dial-turn-v3": Wording("Turn the dial.", "dial"),
    "disassemble-v3": Wording("Lift the wrench off the peg.", "wrench"),
    "door-close-v3": Wording("Close the door.", "door handle"),
    "door-lock-v3": Wording("Lock the door by turning the lock.", "lock"),
    "door-open-v3": Wording("Open the door.", "door handle"),
    "door-unlock-v3": Wording("Unlock the door by turning the lock.", "lock"),
    "drawer-close-v3": Wording("Push the drawer shut.", "drawer handle"),
    "drawer-open-v3": Wording("Pull the drawer open.", "drawer handle"),
    "faucet-close-v3": Wording("Turn the faucet off.", "faucet handle"),
    "faucet-open-v3": Wording("Turn the faucet on.", "faucet handle"),
    "hammer-v3": Wording("Pick up the hammer and drive the nail in.", "hammer"),
    "hand-insert-v3": Wording("Put the block into the hole with the gripper.", "block"),
    "handle-press-side-v3": Wording("Press the handle down, coming from the side.", "handle"),
    "handle-press-v3": Wording("Press the handle down.", "handle"),
    "handle-pull-side-v3": Wording("Pull the handle up, coming from the side.", "handle"),
    "handle-pull-v3": Wording("Pull the handle up.", "handle"),
    "lever-pull-v3": Wording("Pull the lever up.", "lever"),
    "peg-insert-side-v3": Wording("Push the peg sideways into the hole.", "peg"),
    "peg-unplug-side-v3": Wording("Pull the peg sideways out of its hole.", "peg"),
    "pick-out-of-hole-v3": Wording("Pick the puck out of the hole and bring it to the target.", "puck"),
    "pick-place-v3": Wording("Pick up the puck and bring it to the target.", "puck"),
    "pick-place-wall-v3": Wording("Pick up the puck and bring it over the wall to the target.", "puck"),
    "plate-slide-back-side-v3": Wording("Slide the plate sideways out of the cabinet.", "plate"),
    "plate-slide-back-v3": Wording("Slide the plate back out of the cabinet.", "plate"),
    "plate-slide-side-v3": Wording("Slide the plate sideways into the cabinet.", "plate"),
    "plate-slide-v3": Wording("Slide the plate into the cabinet.", "plate"),
    "push-back-v3": Wording("Pull the puck back to the target.", "puck"),
    "push-v3": Wording("Push the puck to the target.", "puck"),
    "push-wall-v3": Wording("Push the puck around the wall to the target.", "puck"),
    "reach-v3": Wording("Move the gripper to the target.", ""),
    "reach-wall-v3": Wording("Move the gripper around the wall to the target.", ""),
    "shelf-place-v3": Wording("Pick up the block and put it on the shelf.", "block"),
    "soccer-v3": Wording("Push the ball into the goal.", "ball"),
    "stick-pull-v3": Wording("Pick up the stick and pull the thermos with it.", "stick"),
    "stick-push-v3": Wording("Pick up the stick and push the thermos with it.", "stick"),
    "sweep-into-v3": Wording("Sweep the cube into the hole.", "cube"),
    "sweep-v3": Wording("Sweep the cube off the table.", "cube"),
    "window-close-v3": Wording("Slide the window shut.", "window handle"),
    "window-open-v3": Wording("Slide the window open.", "window handle"),
}
"""The wording of each task."""

# The robot looks along +y, so its right is +x.
_AXES = Axes(x=("to the right", "to the left"), y=("farther ahead", "nearer the robot"), z=("higher", "lower"))
_HORIZON = 500


@dataclass(frozen=True)
class MetaWorldConfig(TaskConfig):
    """Options of the MetaWorld tasks; success is latched, as their papers count it."""

    max_steps: int = _HORIZON
    """As in `TaskConfig`, at most 500: the simulator refuses to be stepped further."""
    camera: str = "corner2"
    """Camera of the frames: corner, corner2, corner3, corner4, topview, behindGripper or gripperPOV."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        super().__post_init__()
        if self.max_steps > _HORIZON:
            raise ConfigError(f"max_steps must be at most {_HORIZON} in MetaWorld, got {self.max_steps}")


class MetaWorldTask(TaskEnv):
    """One MetaWorld task. Solved is what the simulator calls success; goal and object are drawn afresh at each reset.

    (MetaWorld's own list of 50 goals per task would let fixed evaluation states come up in training.)

    Progress is 1 where solved, as the distance left over at success differs by task. Before that it is `staged`: the
    share of the object's way to its goal and, before that, of the gripper's way to the object. It is rough where the
    object has to turn, or to go around something.
    """

    Config: ClassVar[type[TaskConfig]] = MetaWorldConfig
    axes = _AXES
    config: MetaWorldConfig

    def __init__(self, task: str, config: MetaWorldConfig | None = None) -> None:
        """Build the simulator of `task`, one of `names()`."""
        config = config or MetaWorldConfig()
        self._arm: Any = _build(task, config)
        super().__init__(self._arm, TASKS[task].instruction, config)
        # The simulator declares its space before it knows that the goal is to be seen.
        self.observation_space = self._arm.sawyer_observation_space
        self._thing = TASKS[task].thing
        self._initial: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the tasks of this family."""
        return tuple(TASKS)

    def frame(self) -> NDArray[np.uint8]:
        """Render the current state, RGB uint8 [frame_size, frame_size, 3]."""
        choose_gl()
        image: NDArray[np.uint8] = self._arm.render()
        # corner2 hangs upside down: turned by half a turn; flipped it would swap left and right.
        return np.ascontiguousarray(image[::-1, ::-1] if self.config.camera == "corner2" else image)

    def _restart(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        arm = self._arm
        if seed is not None:
            arm.seed(seed)  # reset() ignores its seed
        _, info = arm.reset(options=options)
        # Without this some positions are still those of the last episode, and a start depends on what was before it.
        _forward(arm.model, arm.data)
        arm._prev_obs = arm._get_curr_obs_combined_no_goal()
        return arm._get_obs(), info

    def _solved(self) -> bool:
        return bool(self._sim.get("success", 0.0) > 0.0)  # not said at reset, where no task is solved

    def _begin(self) -> None:
        self._initial = self._distances()

    def _distances(self) -> tuple[float, float]:
        """Return the distances in metres from gripper to object (0 without one) and from object or gripper to goal."""
        hand, goal = self._arm.tcp_center, self._arm._get_pos_goal()
        moved = self._object if self._thing else hand
        return distance(hand, moved), distance(moved, goal)

    @property
    def _object(self) -> NDArray[np.float64]:
        return self._arm._get_pos_objects()[:3]

    def _truth(self) -> dict[str, Any]:
        to_object, to_goal = self._distances()
        hand, goal = self._arm.tcp_center.tolist(), self._arm._get_pos_goal().tolist()
        truth: dict[str, Any] = {"distance": to_goal, "hand": tuple(hand), "goal": tuple(goal)}
        placed = closeness(to_goal, self._initial[1])
        if self._thing:
            truth["object"] = tuple(self._object.tolist())
            placed = staged(closeness(to_object, self._initial[0]), placed)
        return {**truth, "progress": 1.0 if self._solved() else placed}

    def _caption(self, truth: Mapping[str, Any]) -> str:
        hand, goal, numbers = truth["hand"], truth["goal"], self.config.numbers
        if not self._thing:
            return reach_caption(hand, goal, axes=_AXES, numbers=numbers)
        opening = float(self._obs[3])
        return carry_caption(
            hand, truth["object"], goal, axes=_AXES, name=self._thing, opening=opening, numbers=numbers
        )


def _build(task: str, config: MetaWorldConfig) -> Any:
    """Return the bare simulator, drawing goal and object from its own seeded stream at each reset."""
    size = config.frame_size
    env: Any = gym.make(
        "Meta-World/MT1",
        disable_env_checker=True,
        env_name=task,
        seed=0,  # without one it draws from numpy's global stream
        render_mode="rgb_array",
        camera_name=config.camera,
        width=size,
        height=size,
    )
    env.reset()  # sets a task from its list, which makes the goal part of the observation
    arm = env.unwrapped
    arm._freeze_rand_vec = False
    arm.seeded_rand_vec = True
    return arm
