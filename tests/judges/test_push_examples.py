from pathlib import Path

import pytest

from rl_reward.backends import Simulated
from rl_reward.envs import make
from rl_reward.envs.captions import Axes
from rl_reward.experiments.config import load
from rl_reward.experiments.sac import check_captions
from rl_reward.judges.carry import carry_exemplars, carry_judge
from rl_reward.judges.push import PRESS, PUSH, push_exemplars
from rl_reward.judges.rule import CaptionRule
from rl_reward.types import Step

CONFIG = Path(__file__).parents[2] / "configs/sac/metaworld.yaml"
AXES = Axes(x=("to the right", "to the left"), y=("farther ahead", "nearer the robot"), z=("higher", "lower"))


@pytest.mark.parametrize("numbers", [True, False])
def test_the_examples_are_of_two_tasks_and_worded_as_asked(numbers):
    shots = push_exemplars(axes=AXES, numbers=numbers)
    assert [shot.task for shot in shots] == [PUSH] * 8 + [PRESS] * 8
    assert {shot.level for shot in shots} >= set("012489")
    assert all(("cm" in shot.candidate) is numbers for shot in shots)
    assert all(("box" in shot.candidate) == (shot.task == PUSH) for shot in shots)


def test_more_progress_never_has_a_lower_level():
    shots = push_exemplars(axes=AXES, numbers=True)
    for task, rule in ((PUSH, CaptionRule(0.3, 0.15)), (PRESS, CaptionRule(0.3, 0.08))):
        ranked = sorted((rule.progress(shot.candidate), int(shot.level)) for shot in shots if shot.task == task)
        levels = [level for _, level in ranked]
        assert levels == sorted(levels)


def test_a_judge_shows_them_instead_of_its_own():
    prompts = []

    class Reading(Simulated):
        async def reply(self, request):
            prompts.append("\n".join(message.text for message in request.messages))
            return await super().reply(request)

    shots = push_exemplars(axes=AXES, numbers=False)
    judge = carry_judge(Reading(lambda request: 0.5), axes=AXES, numbers=False, exemplars=shots)
    judge.track_many([("Press the handle down.", [Step("The handle is at the gripper.")])])
    assert PUSH in prompts[0] and PRESS in prompts[0]
    assert carry_exemplars(axes=AXES, numbers=False)[0].task not in prompts[0]


def test_no_judged_task_is_among_the_examples():
    metaworld = pytest.importorskip("rl_reward.envs.metaworld")
    for experiment in load(CONFIG):
        wording = metaworld.TASKS[experiment.settings.env.partition("/")[2]]
        assert wording.instruction not in (PUSH, PRESS) and wording.thing not in ("box", "lever")


def test_the_ends_of_the_judged_tasks_are_told_in_the_words_of_their_captions():
    pytest.importorskip("metaworld")
    for experiment in load(CONFIG):
        config = experiment.settings
        env = make(config.env, **config.options)
        check_captions(config, experiment.arms["gemma-3-270m, potential"], env)
        env.close()
