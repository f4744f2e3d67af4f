"""A robosuite arm as a gymnasium environment: its versions checked, its physics stepped, its cameras drawn late."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from rl_reward._checks import check_known, check_text
from rl_reward.envs.base import TaskConfig, gym
from rl_reward.envs.headless import choose_gl, unbound_gl
from rl_reward.errors import ConfigError, MissingExtraError, RlRewardError

try:
    # Its warnings about private macro files tell a user of this package nothing.
    logging.getLogger("robosuite_logs").setLevel(logging.ERROR)
    with unbound_gl():
        from rl_reward.envs.lite_physics import LitePhysics
    from robosuite.utils.errors import RandomizationError  # pyright: ignore[reportMissingTypeStubs]
except ImportError as error:
    raise MissingExtraError("robosuite", "libero") from error

Observations = Literal["state", "pixels", "both"]
Array = NDArray[np.float64]

_WRIST = "robot0_eye_in_hand"
_MAX_PLACEMENTS = 100
_NO_PLACE = f"{_MAX_PLACEMENTS} random placements in a row had objects in each other; give init states"
_TESTED = {"robosuite": ("1.4.0", "1.4", "1.5"), "mujoco": ("3.3.0", "3.3", "3.4")}


@dataclass(frozen=True)
class ArmConfig(TaskConfig):
    """Options of the arm tasks."""

    max_steps: int = 280
    """As in `TaskConfig`; 20 steps are a second."""
    terminate_on_success: bool = True
    """As in `TaskConfig`."""
    observations: Observations = "state"
    """What the agent sees: the privileged state (see `ArmTask`), two cameras, or both."""
    camera: str = "agentview"
    """Camera of the frames."""
    lite_physics: bool = False
    """Compute each physics step once instead of three times as the published tasks do (see `LitePhysics`): more than
    twice as fast, equal up to the tolerance of the contact solver, so not bit for bit."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        super().__post_init__()
        if self.observations not in get_args(Observations):
            raise ConfigError(
                f"observations must be one of {', '.join(get_args(Observations))}, got {self.observations!r}"
            )
        check_text("camera", self.camera)
        if not isinstance(self.lite_physics, bool):
            raise ConfigError(f"lite_physics must be true or false, got {self.lite_physics!r}")


class Pose(NamedTuple):
    """Where a body is."""

    position: Array
    """Metres, float [3]."""
    quaternion: Array
    """Orientation, w x y z, float [4]."""


class ArmSimulator(gym.Env[Any, Any]):
    """A robosuite environment without its cameras and the observables it updates 25 times a step.

    Random draws come from the generator given to `restart`; numpy's global stream, which robosuite uses, is left as it
    was.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - gymnasium's own name and kind

    def __init__(self, robosuite_env: Any, bodies: Mapping[str, int], config: ArmConfig) -> None:
        """Hold `robosuite_env`, built without renderers and with `hard_reset=False`.

        Args:
            robosuite_env: The environment, one Panda arm.
            bodies: The objects of the state observation, by name, and their body numbers.
            config: The options.
        """
        self.robosuite_env = robosuite_env
        """The environment itself."""
        self.objects = tuple(bodies)
        """Names of the objects of the state observation."""
        self._bodies = dict(bodies)
        self._config = config
        self._size = config.frame_size
        self._viewer: Any = None
        self._lite: LitePhysics | None = None
        check_known(config.camera, self._cameras(), "camera")
        self.action_space = gym.spaces.Box(-1.0, 1.0, (robosuite_env.action_dim,), np.float32)
        self.observation_space = self._space()

    @property
    def hand(self) -> Pose:
        """The end effector."""
        data, robot = self._data, self.robosuite_env.robots[0]
        body = self._model.body(robot.gripper.bodies[0]).id
        return Pose(data.site_xpos[robot.eef_site_id].copy(), data.xquat[body].copy())

    @property
    def fingers(self) -> Array:
        """Distance of each finger from the closed position, metres, float [2]."""
        robot = self.robosuite_env.robots[0]
        return np.abs(self._data.qpos[robot._ref_gripper_joint_pos_indexes])

    @property
    def solved(self) -> bool:
        """Whether the task is solved in the current state."""
        return bool(self.robosuite_env._check_success())

    def pose(self, name: str) -> Pose:
        """Return where the object `name` is."""
        body = self._bodies[name]
        return Pose(self._data.xpos[body].copy(), self._data.xquat[body].copy())

    def state(self) -> NDArray[np.float32]:
        """Return the state observation (see `ArmTask`)."""
        hand = self.hand
        parts: list[Array] = [hand.position, hand.quaternion, self.fingers]
        for name in self.objects:
            pose = self.pose(name)
            parts += [pose.position, pose.quaternion, pose.position - hand.position]
        return np.concatenate(parts, dtype=np.float32)

    def observe(self) -> Any:
        """Return what the agent sees."""
        if self._config.observations == "state":
            return self.state()
        images = {"image": self.image(self._config.camera), "wrist": self.image(_WRIST)}
        return images if self._config.observations == "pixels" else {**images, "state": self.state()}

    def restart(self, stream: np.random.Generator, state: Array | None = None, *, settle: Sequence[Array] = ()) -> Any:
        """Put robot and objects at a new start and return the observation.

        Args:
            stream: Where random placements come from.
            state: The simulator's state to start from, flat (time, positions, velocities), instead of random ones.
            settle: Actions played before the episode begins; they are no steps of it.

        Raises:
            RlRewardError: No free placement was found.
            ConfigError: `state` has another length than the simulator's.
        """
        with global_stream(stream):
            self._place()
        if state is not None:
            self._set(state)
        for action in settle:
            self._advance(action)
        return self.observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one action; reward and end flags are the task's to say.

        Raises:
            ConfigError: The action has another shape, or is not finite: MuJoCo would zero it without a word.
        """
        move = np.asarray(action)
        if move.shape != self.action_space.shape or move.dtype.kind not in "fiu" or not np.isfinite(move).all():
            raise ConfigError(f"an action must be {self.action_space.shape} finite numbers, got {action!r:.80}")
        self._advance(move.astype(np.float64))
        return self.observe(), 0.0, False, False, {}

    def image(self, camera: str) -> NDArray[np.uint8]:
        """Render one camera, RGB uint8 [frame_size, frame_size, 3], upright."""
        if self._viewer is None:
            self._viewer = _viewer(self._model, self._data, self._size)
        number = self._cameras().index(camera)
        self._viewer.make_context_current()  # another environment may have drawn in between
        return np.ascontiguousarray(self._viewer.render("rgb_array", camera_id=number))

    def close(self) -> None:
        """Free the simulator and its rendering context."""
        if self._viewer is not None:
            self._viewer.free()
            self._viewer = None
        self.robosuite_env.close()

    def _place(self) -> None:
        for _ in range(_MAX_PLACEMENTS):
            try:
                self.robosuite_env.reset()
            except RandomizationError:
                continue
            # robosuite leaves the fingers' command as the last episode ended.
            gripper = self.robosuite_env.robots[0].gripper
            gripper.current_action = np.zeros_like(gripper.current_action)
            # Anew after each reset, which gives the robot another controller.
            self._lite = LitePhysics(self.robosuite_env) if self._config.lite_physics else None
            return
        raise RlRewardError(_NO_PLACE)

    def _set(self, state: Array) -> None:
        expected = 1 + self._model.nq + self._model.nv
        if state.shape != (expected,):
            raise ConfigError(f"an init state of this task must have {expected} numbers, got {state.shape}")
        sim = self.robosuite_env.sim
        sim.set_state_from_flattened(state)
        sim.forward()

    def _advance(self, action: Array) -> None:
        """Play one action: 25 physics steps, the controller's torques in between."""
        env = self.robosuite_env
        env.timestep += 1
        if self._lite is not None:
            self._lite.play(action)
        else:
            self._play_as_published(action)
        env.cur_time += env.control_timestep
        env._post_action(action)

    def _play_as_published(self, action: Array) -> None:
        """Do what `step` of robosuite 1.4 does, without its observables."""
        env = self.robosuite_env
        for substep in range(round(env.control_timestep / env.model_timestep)):
            env.sim.forward()
            env._pre_action(action, substep == 0)
            env.sim.step()

    @property
    def _model(self) -> Any:
        return self.robosuite_env.sim.model._model

    @property
    def _data(self) -> Any:
        return self.robosuite_env.sim.data._data

    def _cameras(self) -> list[str]:
        return [self._model.camera(number).name for number in range(self._model.ncam)]

    def _space(self) -> gym.spaces.Space[Any]:
        state = gym.spaces.Box(-np.inf, np.inf, self.state().shape, np.float32)
        if self._config.observations == "state":
            return state
        picture = gym.spaces.Box(0, 255, (self._size, self._size, 3), np.uint8)
        parts: dict[str, gym.spaces.Space[Any]] = {"image": picture, "wrist": picture}
        return gym.spaces.Dict({**parts, "state": state} if self._config.observations == "both" else parts)


def check_versions() -> None:
    """Raise ConfigError unless robosuite and MuJoCo are versions with the published physics.

    From MuJoCo 3.4 on tasks change without a word (one libero_spatial task was reported to fall from 98 % to 12 %).
    """
    for package, (tested, least, below) in _TESTED.items():
        found = version(package)
        if not _numbers(least) <= _numbers(found) < _numbers(below):
            raise ConfigError(
                f"{package} must be at least {least} and below {below} for these tasks, got {found}; "
                f"run: pip install {package}=={tested}"
            )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def built(make: Callable[[], Any]) -> Any:
    """Return the robosuite environment that `make` builds, numpy's global stream left as it was.

    Raises:
        RlRewardError: No free placement was found.
    """
    with global_stream(np.random.default_rng(0)):
        for _ in range(_MAX_PLACEMENTS):
            try:
                return make()
            except RandomizationError:
                continue
    raise RlRewardError(_NO_PLACE)


@contextmanager
def global_stream(stream: np.random.Generator) -> Generator[None]:
    """Let numpy's global stream follow `stream` for a while, then put it back."""
    before = np.random.get_state()
    np.random.seed(int(stream.integers(2**32)))
    try:
        yield
    finally:
        np.random.set_state(before)


def _viewer(model: Any, data: Any, size: int) -> Any:
    """Return an off-screen renderer that draws what a camera would see: no collision shapes."""
    from gymnasium.envs.mujoco.mujoco_rendering import OffScreenViewer

    choose_gl()
    try:
        viewer: Any = OffScreenViewer(model, data, size, size)
    except Exception as error:
        raise ConfigError(
            f"this machine cannot draw frames ({' '.join(str(error).split())[:150]}); set MUJOCO_GL=osmesa and run: "
            "apt install libosmesa6; or set frames=False"
        ) from error
    viewer.vopt.geomgroup[0] = 0
    return viewer
