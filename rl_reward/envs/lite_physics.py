"""The control loop of a robosuite arm without its repetitions: the same torques at a fraction of the time."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray
from robosuite.utils import control_utils  # pyright: ignore[reportMissingTypeStubs]

Array = NDArray[np.float64]

_mj: Any = mujoco
_osc: Any = control_utils


class LitePhysics:
    """Plays actions of one arm under operational-space control with fixed impedance (OSC_POSE) and a Panda gripper.

    robosuite 1.4 computes each physics step three times and looks every index up by name, 500 times a simulated second.
    Here a physics step is computed once, split where the controller needs it, as robosuite does from 1.5 on, and the
    indices are looked up once. The torques are those of robosuite's own formulas; what differs is where the contact
    solver starts, so trajectories agree up to its tolerance.
    """

    def __init__(self, robosuite_env: Any) -> None:
        """Prepare for `robosuite_env`, whose model must not be rebuilt (`hard_reset=False`)."""
        self._env = robosuite_env
        self._robot = robot = robosuite_env.robots[0]
        sim = robosuite_env.sim
        self._model, self._data = sim.model._model, sim.data._data
        self._substeps = round(robosuite_env.control_timestep / robosuite_env.model_timestep)
        self._hand: int = robot.eef_site_id
        positions, velocities = robot.controller.qpos_index, robot.controller.qvel_index
        self._joints, self._block = (np.asarray(positions), np.asarray(velocities)), np.ix_(velocities, velocities)
        self._motors = np.asarray(robot._ref_joint_actuator_indexes)
        self._torque_limits: tuple[Array, Array] = robot.torque_limits
        self._fingers = np.array([sim.model.actuator_name2id(name) for name in robot.gripper.actuators])
        low, high = self._model.actuator_ctrlrange[self._fingers].T
        self._finger_mid, self._finger_half = (high + low) / 2, (high - low) / 2
        size = self._model.nv
        self._jacobian, self._mass = np.zeros((6, size)), np.zeros((size, size))

    def play(self, action: Array) -> None:
        """Play one action, float [7] in [-1, 1]: every physics step of one control step."""
        gripper = self._robot.gripper
        for substep in range(self._substeps):
            _mj.mj_step1(self._model, self._data)
            if substep == 0:
                self._aim(action[:6])
            self._data.ctrl[self._motors] = np.clip(self._torques(), *self._torque_limits)
            # The fingers approach the commanded side by a fixed amount per physics step.
            self._data.ctrl[self._fingers] = self._finger_mid + self._finger_half * gripper.format_action(action[6:])
            _mj.mj_step2(self._model, self._data)

    def _aim(self, move: Array) -> None:
        """Let robosuite's controller set its goal from the state of now."""
        sim, controller = self._env.sim, self._robot.controller
        forward = sim.forward
        sim.forward = _nothing  # it has just been computed
        try:
            controller.set_goal(move)
        finally:
            sim.forward = forward
        controller.new_update = True
        self._goal = controller.goal_pos, controller.goal_ori

    def _torques(self) -> Array:
        """Return the torques of the arm's joints, as robosuite's OperationalSpaceController.run_controller does."""
        data, controller = self._data, self._robot.controller
        positions, velocities = self._joints
        _mj.mj_jacSite(self._model, data, self._jacobian[:3], self._jacobian[3:], self._hand)
        _mj.mj_fullM(self._model, self._mass, data.qM)
        jacobian, mass = np.ascontiguousarray(self._jacobian[:, velocities]), self._mass[self._block]
        speed = self._jacobian @ data.qvel
        goal_position, goal_orientation = self._goal
        error = np.empty(6)
        error[:3] = goal_position - data.site_xpos[self._hand]
        error[3:] = _osc.orientation_error(goal_orientation, data.site_xmat[self._hand].reshape(3, 3))
        pull = controller.kp * error - controller.kd * speed
        matrices = _osc.opspace_matrices(mass, jacobian, jacobian[:3], jacobian[3:])
        _, inertia_position, inertia_orientation, null_space = matrices
        wrench = np.concatenate([inertia_position @ pull[:3], inertia_orientation @ pull[3:]])
        posture = _osc.nullspace_torques(
            mass, null_space, controller.initial_joint, data.qpos[positions], data.qvel[velocities]
        )
        return jacobian.T @ wrench + data.qfrc_bias[velocities] + posture


def _nothing() -> None:
    """Stand in for a recomputation that is not needed."""
