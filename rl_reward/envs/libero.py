"""The tasks of LIBERO behind the TaskEnv contract: five suites, 130 tasks, by name.

`make("libero_object/pick_up_the_ketchup_and_place_it_in_the_basket")` builds one; importing this module also
registers them with gymnasium, so `gym.make("libero_object/...")` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rl_reward._checks import check_int, check_known, check_text
from rl_reward.envs import make
from rl_reward.envs.arm import ArmTask, Goal
from rl_reward.envs.arm_simulator import ArmConfig, ArmSimulator, built, check_versions
from rl_reward.envs.base import TaskConfig, TaskEnv, gym
from rl_reward.envs.libero_files import FETCH, find_assets, import_libero, init_states, task_file, task_names
from rl_reward.errors import ConfigError, RlRewardError

Starts = Literal["published", "sampled"]

_NOTHING = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])


@dataclass(frozen=True)
class LiberoConfig(ArmConfig):
    """Options of the LIBERO tasks."""

    starts: Starts = "published"
    """Where episodes start: at one of the 50 published init states, or at placements drawn from the task's regions."""
    init_states: tuple[int, ...] = ()
    """Numbers of the published init states in use; all of them by default."""
    settle_steps: int = 10
    """Steps of doing nothing before an episode begins, so that what was put down lies still; they are not counted."""
    assets: str | None = None
    """Folder of LIBERO's assets; by default it is looked for (see `libero_files.find_assets`)."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        super().__post_init__()
        if self.starts not in get_args(Starts):
            raise ConfigError(f"starts must be one of {', '.join(get_args(Starts))}, got {self.starts!r}")
        check_int("settle_steps", self.settle_steps, least=0)
        if self.assets is not None:
            check_text("assets", self.assets)
        if not isinstance(self.init_states, tuple | list):
            raise ConfigError(f"init_states must be a list of numbers, got {self.init_states!r}")
        for number in self.init_states:
            check_int("an entry of init_states", number, least=0)


class LiberoTask(ArmTask):
    """One LIBERO task. Solved is what its BDDL file says; the instruction is its, too.

    An episode starts at a published init state or at a random placement (see `LiberoConfig.starts`).
    `reset(options={"init_state": i})` starts at published state i, and `info["init_state"]` says which one it was.
    `reset(seed=s)` fixes the start: with published states it is number s modulo their count, so consecutive seeds
    visit all of them.

    The state observation holds the task's objects of interest in the order of the BDDL file.
    """

    Config: ClassVar[type[TaskConfig]] = LiberoConfig
    suite: ClassVar[str]
    """The suite this class stands for."""

    def __init__(self, task: str, config: LiberoConfig | None = None) -> None:
        """Build the simulator of `task`, one of `names()`; about four seconds."""
        config = config or LiberoConfig()
        check_known(task, self.names(), f"task of the suite {self.suite}")
        check_versions()
        self._states = init_states(self.suite, task)
        beyond = [number for number in config.init_states if number >= len(self._states)]
        if beyond:
            raise ConfigError(f"init_states must be below {len(self._states)}, got {beyond[0]}")
        self._pool = tuple(config.init_states) or tuple(range(len(self._states)))
        self._domain, instruction = _build(self.suite, task, config)
        super().__init__(_simulator(self._domain, config), instruction, config)
        self._starts, self._settle = config.starts, [_NOTHING] * config.settle_steps

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the tasks of this suite."""
        return task_names(cls.suite)

    def _restart(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        number = self._number(seed, options or {})
        state = None if number is None else self._states[number]
        # What a published state does not hold (where fixtures stand) must follow from its number, too.
        stream = self.np_random if number is None else np.random.default_rng(number)
        obs = self._arm.restart(stream, state, settle=self._settle)
        if "init_state" in (options or {}) and self._solved():
            raise RlRewardError(f"init state {number} is solved already; take another one")
        return obs, {} if number is None else {"init_state": number}

    def _number(self, seed: int | None, options: Mapping[str, Any]) -> int | None:
        """Return the published init state to start from, None for a random placement."""
        if not isinstance(options, Mapping) or set(options) - {"init_state"}:
            raise ConfigError(f"reset knows the option init_state, got {options!r:.80}")
        if "init_state" in options:
            return check_int("init_state", options["init_state"], least=0, most=len(self._states) - 1)
        if self._starts == "sampled":
            return None
        place = int(self.np_random.integers(len(self._pool))) if seed is None else seed % len(self._pool)
        return self._pool[place]

    def _goals(self) -> list[Goal]:
        return [self._goal(*predicate) for predicate in self._domain.parsed_problem["goal_state"]]

    def _goal(self, verb: str, thing: str, place: str = "") -> Goal:
        thing_at = self._where(thing)
        place_at = self._where(place) if place else thing_at
        predicate = [verb, thing, place] if place else [verb, thing]
        holds = bool(self._domain._eval_predicate(predicate))
        return Goal(_words(thing), thing_at, _words(place), place_at, holds)

    def _where(self, name: str) -> NDArray[np.float64]:
        """Return the position of an object or of a region of one, metres, float [3]."""
        sim = self._domain.sim
        if name in self._domain.obj_body_id:
            return sim.data.body_xpos[self._domain.obj_body_id[name]].copy()
        return np.array(sim.data.get_site_xpos(name))


class LiberoObject(LiberoTask):
    """Ten tasks: pick up one of ten groceries and place it in the basket."""

    suite = "libero_object"


class LiberoSpatial(LiberoTask):
    """Ten tasks: the same bowl from ten places onto the plate."""

    suite = "libero_spatial"


class LiberoGoal(LiberoTask):
    """Ten tasks in one scene."""

    suite = "libero_goal"


class Libero10(LiberoTask):
    """Ten long tasks."""

    suite = "libero_10"


class Libero90(LiberoTask):
    """Ninety tasks."""

    suite = "libero_90"


def register() -> None:
    """Make every task known to `gym.make` as "suite/task"; a second call does nothing."""
    for task_type in (LiberoObject, LiberoSpatial, LiberoGoal, Libero10, Libero90):
        for name in (f"{task_type.suite}/{task}" for task in task_type.names()):
            if name not in gym.registry:
                known: Any = gym
                known.register(name, partial(_made, name))


def _made(name: str, render_mode: str = "rgb_array", **options: Any) -> TaskEnv:
    """Return the environment of a `gym.make` call."""
    if render_mode != "rgb_array":
        raise ConfigError(f"render_mode must be rgb_array, got {render_mode!r}")
    return make(name, **options)


def _build(suite: str, task: str, config: LiberoConfig) -> tuple[Any, str]:
    """Return LIBERO's own environment of a task, without cameras, and the instruction."""
    envs = import_libero(config.assets)
    robosuite: Any = import_module("robosuite")
    file = str(task_file(suite, task))
    problem = import_module("libero.libero.envs.bddl_utils").get_problem_info(file)
    make_domain = partial(
        envs.TASK_MAPPING[problem["problem_name"]],
        file,
        robots=["Panda"],
        controller_configs=robosuite.load_controller_config(default_controller="OSC_POSE"),
        initialization_noise="default" if config.starts == "sampled" else None,
        use_camera_obs=False,
        has_offscreen_renderer=False,
        ignore_done=True,
        hard_reset=False,
        control_freq=20,
    )
    try:
        domain = built(make_domain)
    except (OSError, ValueError) as error:
        where, told = find_assets(config.assets), " ".join(str(error).split())[:200]
        raise ConfigError(f"{where} lacks assets of {task}: {told}; fetch all with: python -c '{FETCH}'") from error
    return domain, f"{problem['language_instruction'].strip().rstrip('.').capitalize()}."


def _simulator(domain: Any, config: LiberoConfig) -> ArmSimulator:
    return ArmSimulator(domain, {name: domain.obj_body_id[name] for name in domain.obj_of_interest}, config)


def _words(name: str) -> str:
    """Return "white bowl" for white_bowl_2 and "basket" for basket_1_contain_region."""
    return re.sub(r"_\d+(_[a-z_]+)?$", "", name).replace("_", " ")


register()
