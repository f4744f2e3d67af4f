import re

import numpy as np
import pytest

from rl_reward.envs.captions import Axes, carry_caption, reach_caption, relation
from rl_reward.envs.oracle import closeness, staged

AXES = Axes(x=("ahead", "behind"), y=("to the left", "to the right"), z=("higher", "lower"))


def test_reach_by_hand():
    caption = reach_caption([1.0, 0.5, 0.4], [1.03, 0.54, 0.28], axes=AXES)
    assert caption == "The target is 13 cm from the gripper: 12 cm lower, 4 cm to the left and 3 cm ahead."


def test_reach_by_hand_without_numbers():
    caption = reach_caption([1.0, 0.5, 0.4], [1.01, 0.54, 0.28], axes=AXES, numbers=False)
    assert caption == "The target is some way from the gripper: lower and to the left."


def test_carry_by_hand():
    caption = carry_caption([0, 0, 0.1], [0, 0, 0], [-0.2, 0, 0], axes=AXES, name="puck", opening=1.0)
    assert caption == (
        "The gripper is open. The puck is 10 cm from the gripper: 10 cm lower. "
        "The target is 20 cm from the puck: 20 cm behind."
    )


def test_a_gripper_that_cannot_move_is_not_mentioned():
    assert "gripper is" not in carry_caption([0, 0, 0.1], [0, 0, 0], [1, 0, 0], axes=AXES)


@pytest.mark.parametrize(("opening", "words"), [(0.0, "closed"), (0.5, "half open"), (1.0, "open")])
def test_the_opening_in_words(opening, words):
    caption = carry_caption([0, 0, 0], [0, 0, 0], [1, 0, 0], axes=AXES, opening=opening)
    assert caption.startswith(f"The gripper is {words}.")


@pytest.mark.parametrize("numbers", [True, False])
def test_two_things_in_one_place(numbers):
    assert relation("target", [0, 0, 0.001], "puck", [0, 0, 0], axes=AXES, numbers=numbers) == (
        "The target is at the puck."
    )


@pytest.mark.parametrize(
    ("metres", "words"),
    [(0.01, "at"), (0.03, "very close to"), (0.07, "close to"), (0.15, "some way from"), (3.0, "far from")],
)
def test_distances_in_words(metres, words):
    assert f" is {words} the " in relation("a", [metres, 0, 0], "b", [0, 0, 0], axes=AXES, numbers=False)


def test_numbers_are_printed_only_where_wanted():
    for position in np.random.default_rng(0).uniform(-0.5, 0.5, (50, 3)):
        assert re.search(r"\d", reach_caption([0, 0, 0], position, axes=AXES))
        assert not re.search(r"\d", reach_caption([0, 0, 0], position, axes=AXES, numbers=False))


def test_closeness_by_hand():
    assert [closeness(now, 0.2) for now in (0.3, 0.2, 0.15, 0.0)] == pytest.approx([0.0, 0.0, 0.25, 1.0])
    assert (closeness(0.0, 0.0), closeness(0.1, 0.0)) == (1.0, 0.0)


def test_staged_by_hand():
    assert staged(0.5, 0.0) == pytest.approx(0.15)
    assert staged(0.5, 0.6) == pytest.approx(0.6 + 0.4 * 0.15)
    assert [staged(approach, 1.0) for approach in (0.0, 1.0)] == [1.0, 1.0]


def test_staged_grows_with_both_shares_and_stays_in_range():
    grid = np.linspace(0, 1, 11)
    values = np.array([[staged(approach, placed) for placed in grid] for approach in grid])
    assert values.min() == 0 and values.max() == 1
    assert (np.diff(values, axis=1) > 0).all() and (np.diff(values[:, :-1], axis=0) > 0).all()
