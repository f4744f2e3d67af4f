"""What is shown of a trajectory."""

import numpy as np
import pytest

from rl_reward import Step, Trajectory, Verifier
from rl_reward.backends import Simulated
from rl_reward.errors import ConfigError


def test_at_most_so_many_images_are_shown_the_first_and_the_last_among_them():
    frames = [np.full((4, 4, 3), number, np.uint8) for number in range(9)]
    steps = [Step(f"step {number}", image=frame) for number, frame in enumerate(frames)]
    trajectory = Trajectory.of([Step("no image"), *steps])

    def shown(most):
        return [int(step.image[0, 0, 0]) for step in trajectory.with_images(most).steps if step.image is not None]

    assert [shown(most) for most in (1, 2, 3, 5, 9, 12)] == [
        [8], [0, 8], [0, 4, 8], [0, 2, 4, 6, 8], list(range(9)), list(range(9)),
    ]  # fmt: skip
    assert len(trajectory.with_images(2).steps) == 10


def test_a_verifier_shows_no_more_images_than_it_was_told():
    seen = []
    judge = Simulated(lambda request: seen.append(request) or 0.5)
    steps = [Step(f"step {number}", image=np.full((4, 4, 3), number, np.uint8)) for number in range(5)]
    Verifier(judge, criteria={"Progress": "How far?"}, max_images=2).track_many([("Go.", steps)])
    images = [[part for part in request.messages[-1].parts if isinstance(part, np.ndarray)] for request in seen]
    assert sorted(tuple(int(image[0, 0, 0]) for image in shown) for shown in images) == [
        (0,),
        (0, 1),
        (0, 2),
        (0, 3),
        (0, 4),
    ]


@pytest.mark.parametrize("number", [0, -1, 2.5])
def test_a_number_of_images_below_one_is_refused(number):
    with pytest.raises(ConfigError, match=r"max_images must be .*1, got"):
        Verifier(Simulated(lambda request: 0.5), max_images=number)
