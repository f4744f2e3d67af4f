import numpy as np
import pytest

from rl_reward.envs.captions import Axes, carry_caption, reach_caption
from rl_reward.errors import ConfigError
from rl_reward.evaluation.progress_report import progress_report
from rl_reward.judges.rule import CaptionRule, thing_in
from rl_reward.types import Step

AXES = Axes(x=("ahead", "behind"), y=("to the left", "to the right"), z=("higher", "lower"))
RULE = CaptionRule()


def test_a_caption_with_numbers_by_hand():
    caption = carry_caption([0, 0, 0.15], [0, 0, 0], [0.2, 0, 0], axes=AXES, name="alphabet soup", opening=1.0)
    assert "The alphabet soup is 15 cm from" in caption
    # Half of the reach and half of the way: .5 + .5 * .3 * .5
    assert RULE.progress(caption) == pytest.approx(0.575)


def test_a_caption_in_words_by_hand():
    caption = carry_caption([0, 0, 0.12], [0, 0, 0], [0.2, 0, 0], axes=AXES, name="alphabet soup", numbers=False)
    assert "some way from the gripper" in caption and "far from the alphabet soup" in caption
    # 15 of 30 cm to the thing, 30 of 40 cm to the target: .25 + .75 * .3 * .5
    assert RULE.progress(caption) == pytest.approx(0.3625)


@pytest.mark.parametrize("numbers", [True, False])
def test_the_ends_of_the_scale(numbers):
    far = carry_caption([0, 0, 0.9], [0, 0, 0], [0.9, 0, 0], axes=AXES, numbers=numbers)
    done = carry_caption([0, 0, 0.9], [0, 0, 0], [0, 0, 0], axes=AXES, numbers=numbers)
    assert CaptionRule(carry=0.3).progress(far) == pytest.approx(0.0)
    assert RULE.progress(done) == pytest.approx(1.0)


def test_a_caption_of_reaching():
    assert RULE.progress(reach_caption([0, 0, 0], [0.1, 0, 0], axes=AXES)) == pytest.approx(2 / 3)
    assert RULE.progress(reach_caption([0, 0, 0], [0.12, 0, 0], axes=AXES, numbers=False)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The robot is happy.",
        "The puck is 10 cm from the gripper: 10 cm lower.",
        "The puck is 10 cm from the gripper. The target is 5 cm from the lid.",
        "The puck is nowhere near the gripper. The target is at the puck.",
    ],
)
def test_what_it_cannot_parse_is_unscored(text):
    (curve,) = RULE.track_many([("task", [Step(text)])])
    assert np.isnan(curve.values).all() and not curve.scored.any()


def test_it_reads_every_second_step_and_no_data():
    texts = [reach_caption([0, 0, 0], [gap, 0, 0], axes=AXES) for gap in (0.3, 0.2, 0.15, 0.1)]
    (curve,) = RULE.track_many([("task", [Step(text, data={"progress": 1.0}) for text in texts])], every=2)
    assert curve.values == pytest.approx([0.0, 0.0, 0.5, 2 / 3])
    assert curve.scored.tolist() == [True, False, True, True]


@pytest.mark.parametrize("numbers", [True, False])
def test_it_tells_carrying_from_wandering(numbers):
    carried = [carry_caption([x, 0, 0], [x, 0, 0], [0.3, 0, 0], axes=AXES, numbers=numbers) for x in (0, 0.1, 0.2, 0.3)]
    wandered = [
        carry_caption([x, 0, 0.1], [0, 0, 0], [0.3, 0, 0], axes=AXES, numbers=numbers) for x in (0, 0.2, 0.1, 0.3)
    ]
    curves = RULE.track_many([("task", [Step(text) for text in texts]) for texts in (carried, wandered)])
    (row,) = progress_report({"rule": [curve.values for curve in curves]}, [True, False]).rows
    assert row.voc_success == pytest.approx(1.0) and row.auroc == 1.0 and row.voc_failure < 0.5


def test_lengths_must_be_positive():
    with pytest.raises(ConfigError, match="carry"):
        CaptionRule(carry=0.0)


def test_lengths_in_centimetres_are_refused():
    with pytest.raises(ConfigError, match="reach, in metres, must be a finite number > 0 and <= 5, got 30"):
        CaptionRule(reach=30)


def test_the_thing_of_a_caption():
    carrying = carry_caption([0, 0, 0.15], [0, 0, 0], [0.2, 0, 0], axes=AXES, name="alphabet soup", opening=1.0)
    assert thing_in(carrying) == "alphabet soup"
    assert thing_in(reach_caption([0, 0, 0], [0.1, 0, 0], axes=AXES)) is None
    assert thing_in("The puck is at the gripper. The target is at the lid.") is None
    assert thing_in(carrying + " " + carrying.replace("alphabet soup", "lid")) is None
