import asyncio

import numpy as np
import pytest

from rl_reward import ConfigError, ScoreScale, Verifier, read_score
from rl_reward.backends import Simulated
from rl_reward.backends.base import Message, Request
from rl_reward.types import Step, Trajectory


def judged(judge, text="x", scale=None, **fields):
    request = Request("pointwise", (), ("score",), scale or ScoreScale.letters(20), "t", "c", (text,), **fields)
    return read_score(asyncio.run(judge.reply(request)), "score", request.scale).value


@pytest.mark.parametrize("quality", [0.0, 0.013, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("scale", [ScoreScale.letters(2), ScoreScale.letters(20), ScoreScale.digits()])
def test_the_expectation_is_exactly_the_quality(quality, scale):
    assert judged(Simulated(lambda r: quality), scale=scale) == pytest.approx(quality)


def test_faults_by_hand():
    assert judged(Simulated(lambda r: 0.4, bias=0.1)) == pytest.approx(0.5)
    assert judged(Simulated(lambda r: 0.4, saturation=0.2)) == pytest.approx(0.5)
    assert judged(Simulated(lambda r: 0.9, saturation=0.2)) == pytest.approx(1.0)
    assert judged(Simulated(lambda r: 0.4, length_bias=0.1), text="x" * 500) == pytest.approx(0.45)


def test_noise_has_its_standard_deviation_and_is_fixed_by_seed_and_draw():
    judge = Simulated(lambda r: 0.5, noise=0.1, seed=3)
    values = [judged(judge, draw=draw) for draw in range(400)]
    assert np.std(values) == pytest.approx(0.1, abs=0.015)
    assert judged(judge, draw=7) == values[7]
    assert judged(Simulated(lambda r: 0.5, noise=0.1, seed=4), draw=7) != values[7]


def test_noise_belongs_to_what_is_judged_and_not_to_how_it_is_asked():
    judge = Simulated(lambda r: 0.5, noise=0.1)

    def value(*steps, said="Rate it.", scale=20, **changed):
        about = {"task": "t", "criterion": "c", "candidates": (Trajectory(steps or (Step("x"),)),), **changed}
        request = Request("progress", (Message("user", (said,)),), ("score",), ScoreScale.letters(scale), **about)
        return read_score(asyncio.run(judge.reply(request)), "score", request.scale).value

    assert value() == value(said="Please rate it, A to T.") == pytest.approx(value(scale=5))
    others = [
        value(task="u"),
        value(criterion="d"),
        value(draw=1),
        value(Step("y")),
        value(Step("x", data={"done": 1})),
    ]
    others += [value(Step("x"), Step("x")), value(Step("x", image=np.zeros((2, 2, 3), np.uint8)))]
    assert len({value(), *others}) == 8


def test_slot_bias_favours_slot_a_of_a_pair_only():
    verifier = Verifier(Simulated(lambda r: 0.5, slot_bias=0.2))
    assert verifier.score("t", "x").value == pytest.approx(0.5)
    pair = verifier.compare("t", "x", "y")
    assert pair.first == pair.second == pytest.approx(0.6)


def test_its_name_shows_what_it_is():
    assert Simulated(lambda r: 0.5, noise=0.1, unscored_rate=0.05).name == "simulated(noise=0.1, unscored_rate=0.05)"
    assert Simulated(lambda r: 0.5).name == "simulated()"


def test_bad_numbers_are_refused():
    with pytest.raises(ConfigError, match="noise must be a finite number >= 0, got -1"):
        Simulated(lambda r: 0.5, noise=-1)
    with pytest.raises(ConfigError, match=r"must be in \[0, 1\], got 7"):
        judged(Simulated(lambda r: 7))
