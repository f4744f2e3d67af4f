"""The lite control loop: robosuite's own torques, at every one of 25 physics steps."""

import numpy as np
import pytest
from libero_here import KETCHUP, NEEDED

from rl_reward.envs import make

pytestmark = NEEDED

OPTIONS = {"lite_physics": True, "starts": "sampled", "settle_steps": 0, "max_steps": 60, "stride": 60}
STEPS = 30


def actions(seed=0):
    """Return moves and turns held for five steps each, the fingers closing and opening in turn."""
    rng = np.random.default_rng(seed)
    held = np.repeat(rng.uniform(-1, 1, (STEPS // 5, 7)), 5, axis=0).astype(np.float32)
    held[:, 6] = np.where(np.arange(STEPS) % 10 < 5, 1.0, -1.0)
    return held


@pytest.fixture(scope="module")
def env():
    env = make(KETCHUP, **OPTIONS)
    yield env
    env.close()


def test_torques_are_those_of_robosuites_own_controller(env, monkeypatch):
    from rl_reward.envs.lite_physics import LitePhysics

    ours, pairs = LitePhysics._torques, []

    def compared(self):
        torques = ours(self)
        pairs.append((torques, self._robot.controller.run_controller()))
        return torques

    monkeypatch.setattr(LitePhysics, "_torques", compared)
    env.reset(seed=0)
    before = env.simulator.hand
    fingers = []
    for action in actions():
        env.step(action)
        fingers.append(env.simulator.fingers.sum())
    lite, published = (np.array(torques) for torques in zip(*pairs, strict=True))
    assert lite.shape == (STEPS * 25, 7)
    np.testing.assert_allclose(lite, published, rtol=0, atol=1e-9)
    # The arm moved and turned, and the fingers closed and opened: the agreement is not that of standing still.
    after = env.simulator.hand
    assert np.linalg.norm(after.position - before.position) > 0.03
    assert abs(after.quaternion @ before.quaternion) < 0.999
    assert max(fingers) - min(fingers) > 0.02
    assert np.ptp(lite, axis=0).min() > 0.5


def test_a_control_step_is_25_physics_steps_of_two_milliseconds(env):
    env.reset(seed=0)
    data, before = env.simulator._data, env.simulator._data.time
    env.step(np.zeros(7, np.float32))
    assert data.time - before == pytest.approx(0.05, abs=1e-9)
    assert env.simulator._model.opt.timestep == 0.002


def test_the_fingers_approach_their_command_by_a_hundredth_each_physics_step(env):
    # From the middle of their range, 2 cm, closing: after 25 of 100 steps they are commanded to 1.5 cm, then 1.0.
    env.reset(seed=0)
    commands = []
    for _ in range(2):
        env.step(np.array([0, 0, 0, 0, 0, 0, 1], np.float32))
        commands.append(np.abs(env.simulator._data.ctrl[-2:]))
    np.testing.assert_allclose(commands, [[0.015, 0.015], [0.010, 0.010]], atol=1e-9)


def test_torques_stay_within_the_motors_limits(env):
    env.reset(seed=0)
    low, high = env.simulator.robosuite_env.robots[0].torque_limits
    for _ in range(3):
        env.step(np.array([1, -1, 1, 1, -1, 1, -1], np.float32))
        torques = env.simulator._data.ctrl[:7]
        assert (torques >= low).all() and (torques <= high).all()


def played(env, seed):
    first, _ = env.reset(seed=seed)
    return np.array([first, *(env.step(action)[0] for action in actions())])


def test_a_seed_fixes_the_episode_in_any_environment(env):
    first = played(env, 5)
    assert not np.allclose(played(env, 6)[0], first[0])
    np.testing.assert_array_equal(played(env, 5), first)
    other = make(KETCHUP, **OPTIONS)
    np.testing.assert_array_equal(played(other, 5), first)
    other.close()
