"""Scripted experts: each phase by hand, then MetaWorld's own on its simulator."""

import sys

import numpy as np
import pytest

from rl_reward.envs import make
from rl_reward.envs.experts import MetaWorldExpert, PickAndPlace, metaworld_expert
from rl_reward.errors import ConfigError, MissingExtraError

THING, PLACE = (0.10, -0.20, 0.05), (0.0, 0.30, 0.02)


def state(hand):
    return {"hand": hand, "thing_at": THING, "place_at": PLACE}


def advanced(*hands):
    """Return an expert that has acted with the hand at each of these places."""
    expert = PickAndPlace()
    for hand in hands:
        expert.act(state(hand))
    return expert


ABOVE, AT = (0.10, -0.20, 0.17), (0.10, -0.20, 0.08)
GRASPED = [ABOVE, AT, *[AT] * 6]
LIFTED, OVER = (0.10, -0.20, 0.30), (0.0, 0.30, 0.30)


@pytest.mark.parametrize(
    ("before", "hand", "action"),
    [
        # 12 cm above the thing is (.10, -.20, .17): errors of 5, -2 and 4 cm, times 12.
        ([], (0.05, -0.18, 0.13), [0.6, -0.24, 0.48, 0, 0, 0, -1]),
        # 30 cm away is clipped.
        ([], (-0.20, 0.10, 0.17), [1, -1, 0, 0, 0, 0, -1]),
        # 3 cm above it: 5 cm further down.
        ([ABOVE], (0.10, -0.20, 0.13), [0, 0, -0.6, 0, 0, 0, -1]),
        ([ABOVE, AT], AT, [0, 0, 0, 0, 0, 0, 1]),
        # Up to 28 cm above the place, straight above where it grasped, (.09, -.21).
        ([ABOVE, AT, *[(0.09, -0.21, 0.08)] * 6], (0.08, -0.19, 0.25), [0.12, -0.24, 0.6, 0, 0, 0, 1]),
        ([*GRASPED, LIFTED], (0.05, 0.26, 0.31), [-0.6, 0.48, -0.12, 0, 0, 0, 1]),
        ([*GRASPED, LIFTED, OVER], OVER, [0, 0, 0, 0, 0, 0, -1]),
        ([*GRASPED, LIFTED, OVER, OVER, OVER], (9, 9, 9), [0, 0, 0, 0, 0, 0, -1]),
    ],
)
def test_each_phase_by_hand(before, hand, action):
    np.testing.assert_allclose(advanced(*before).act(state(hand)), action, atol=1e-12)


@pytest.mark.parametrize(("off", "arrived"), [(0.0149, True), (0.0151, False)])
def test_a_phase_ends_within_a_centimetre_and_a_half_along_every_axis(off, arrived):
    expert = advanced((0.10 + off, -0.20 - off, 0.17))
    # Between the heights of both phases: one goes up to 17 cm, the next one down to 8.
    assert (expert.act(state((0.10, -0.20, 0.15)))[2] < 0) == arrived


def test_lifting_ends_within_three_centimetres():
    for height, arrived in ((0.271, True), (0.269, False)):
        expert = advanced(*GRASPED, (0.10, -0.20, height))
        assert (expert.act(state(LIFTED))[1] > 0) == arrived


def test_the_fingers_close_for_six_steps():
    expert = advanced(ABOVE, AT)
    actions = [expert.act(state(AT)) for _ in range(7)]
    assert [action[2] for action in actions[:6]] == [0.0] * 6
    assert actions[6][2] > 0 and all(action[6] == 1 for action in actions)


def test_grasped_is_told_from_the_moment_the_fingers_begin_to_close():
    assert not advanced(ABOVE).grasped
    assert advanced(ABOVE, AT).grasped


def test_begin_forgets_the_episode():
    expert = advanced(*GRASPED, LIFTED, OVER)
    expert.begin()
    fresh = PickAndPlace()
    for hand in [(0.0, 0.0, 0.3), *GRASPED, LIFTED, OVER, OVER]:
        np.testing.assert_array_equal(expert.act(state(hand)), fresh.act(state(hand)))


class Scripted:
    def get_action(self, obs):
        return np.array([obs[0], -30.0, 0.5, 2.0], np.float32)


def test_a_metaworld_policy_reads_the_observation_and_is_clipped():
    expert = MetaWorldExpert(Scripted())
    expert.begin()
    action = expert.act({}, np.full(39, 0.25))
    np.testing.assert_array_equal(action, [0.25, -1.0, 0.5, 1.0])
    assert action.dtype == np.float64
    with pytest.raises(ConfigError, match=r"read its own observation \[39\], got \(36,\)"):
        expert.act({}, np.zeros(36))


class Idle(MetaWorldExpert):
    def act(self, truth, obs):
        return np.zeros(4)


@pytest.mark.parametrize("task", ["drawer-close-v3", "reach-v3"])
@pytest.mark.filterwarnings("error:Constant")
def test_metaworlds_own_experts_solve_their_tasks(task):
    pytest.importorskip("metaworld")
    env = make(f"metaworld/{task}", terminate_on_success=True, max_steps=150, stride=150)
    expert = metaworld_expert(task)
    assert [solves(env, expert, seed) for seed in range(3)] == [True] * 3
    assert not solves(env, Idle(None), 0)
    env.close()


def solves(env, expert, seed):
    """Play one episode."""
    (obs, _), over, info = env.reset(seed=seed), False, {}
    expert.begin()
    while not over:
        action = expert.act(env.truth(), obs).astype(np.float32)
        assert env.action_space.contains(action)
        obs, _, terminated, truncated, info = env.step(action)
        over = terminated or truncated
    return info["is_success"]


def test_every_metaworld_task_has_an_expert():
    pytest.importorskip("metaworld")
    from rl_reward.envs.metaworld import TASKS

    assert all(isinstance(metaworld_expert(task), MetaWorldExpert) for task in TASKS)


def test_an_unknown_task_names_the_nearest():
    pytest.importorskip("metaworld")
    with pytest.raises(ConfigError, match="no MetaWorld task is called 'drawer-close'; did you mean 'drawer-close-v3'"):
        metaworld_expert("drawer-close")


def test_a_missing_metaworld_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "metaworld.policies", None)
    with pytest.raises(MissingExtraError, match=r"rl-reward\[metaworld\]"):
        metaworld_expert("reach-v3")
