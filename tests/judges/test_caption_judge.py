"""The judge of single captions over the simulated judge: who is asked what, how often, and what becomes of it."""

import pickle
import threading

import numpy as np
import pytest

from rl_reward.backends import Simulated
from rl_reward.backends.base import Reply
from rl_reward.errors import BackendError, ConfigError
from rl_reward.judges.captions import Anchors, CaptionJudge
from rl_reward.rewards import ProgressJudge
from rl_reward.types import Step
from rl_reward.verifier import Verifier

ANCHORS = Anchors(("0.3",), ("0.7",))


def truth_of(request):
    """The captions of these tests are numbers."""
    return float(request.text)


class Counting(Simulated):
    """Remembers what it was asked; `lost` captions get a reply without a score, `late` ones none."""

    def __init__(self, lost=(), late=()):
        super().__init__(truth_of)
        self.texts, self.lost, self.late = [], set(lost), set(late)

    async def reply(self, request):
        self.texts.append(request.text)
        assert (
            request.kind == "progress" and len(request.candidate.steps) == 1 and request.candidate.steps[0].data is None
        )
        if request.text in self.late:
            raise TimeoutError("late")
        return Reply((), "no score") if request.text in self.lost else await super().reply(request)


def judge_of(backend, anchors=None):
    return CaptionJudge(Verifier(backend), anchors=anchors)


def values(judge, *episodes, every=1):
    curves = judge.track_many(
        [("reach", [Step(text, data="truth") for text in texts]) for texts in episodes], every=every
    )
    return [curve.values.tolist() for curve in curves]


def test_a_step_is_worth_its_own_caption():
    judge: ProgressJudge = judge_of(Counting())
    assert values(judge, ["0.2", "0.8", "0.2"])[0] == pytest.approx([0.2, 0.8, 0.2])
    assert judge.name == "caption(simulated())"


def test_every_distinct_caption_is_asked_once():
    backend = Counting()
    judge = judge_of(backend)
    values(judge, ["0.1", "0.2", "0.1"], ["0.2", "0.3"])
    values(judge, ["0.3", "0.1", "0.4"])
    assert sorted(backend.texts) == ["0.1", "0.2", "0.3", "0.4"]
    assert (judge.asked, judge.distinct) == (4, 4)
    judge.track_many([("push", [Step("0.1")])])
    assert backend.texts.count("0.1") == 2, "another task is another question"


def test_only_checkpoints_are_asked():
    backend = Counting()
    assert values(judge_of(backend), ["0.1", "0.2", "0.3", "0.4"], every=2)[0] == pytest.approx([0.1, 0.1, 0.3, 0.4])
    assert sorted(backend.texts) == ["0.1", "0.3", "0.4"]


def test_anchoring_by_hand():
    backend = Counting()
    judge = judge_of(backend, Anchors(("0.2", "0.4"), ("0.7",)))
    assert values(judge, ["0.3", "0.4", "0.7", "0.9", "0.1"])[0] == pytest.approx([0.0, 0.25, 1.0, 1.0, 0.0])
    values(judge, ["0.5", "0.6"])
    assert len(backend.texts) == len(set(backend.texts)) == judge.asked == 8


def test_the_ends_of_an_episode_are_not_its_anchors():
    judge = judge_of(Counting(), ANCHORS)
    assert values(judge, ["0.4", "0.5"])[0] == pytest.approx([0.25, 0.5])


def test_anchors_that_cannot_stretch_are_refused():
    with pytest.raises(ConfigError, match=r"goal 0\.3000 and start 0\.7000"):
        values(judge_of(Counting(), Anchors(("0.7",), ("0.3",))), ["0.5"])
    with pytest.raises(BackendError, match=r"no score for the anchor '0\.3'"):
        values(judge_of(Counting(lost={"0.3"}), ANCHORS), ["0.5"])
    for start in ((), ("",), "0.3"):
        with pytest.raises(ConfigError, match="start"):
            Anchors(start, ("0.7",))


def test_an_unreadable_caption_stays_unscored_and_a_late_one_is_asked_again():
    backend = Counting(lost={"0.2"}, late={"0.3"})
    judge = judge_of(backend)
    (curve,) = judge.track_many([("reach", [Step("0.1"), Step("0.2"), Step("0.3")])])
    assert curve.scored.tolist() == [True, False, False] and np.isnan(curve.values[1:]).all()
    assert (curve.scores[1].status, curve.scores[2].status) == ("unreadable", "timeout")
    backend.lost, backend.late = set(), set()
    again = values(judge, ["0.2", "0.3"])[0]
    assert np.isnan(again[0]) and again[1] == pytest.approx(0.3)
    assert (judge.asked, judge.distinct, backend.texts.count("0.3")) == (4, 3, 2)


def test_a_caption_without_words_is_unscored():
    assert np.isnan(values(judge_of(Counting()), [" "])[0]).all()


def test_what_is_known_survives_a_pickle():
    judge = judge_of(Counting(), ANCHORS)
    before = values(judge, ["0.4", "0.6"])
    again = pickle.loads(pickle.dumps(judge))
    asked = len(again.verifier.backend.texts)
    assert values(again, ["0.4", "0.6"]) == before
    assert len(again.verifier.backend.texts) == asked and (again.asked, again.distinct) == (4, 4)


def test_the_first_to_ask_pays():
    judge = judge_of(Counting(), ANCHORS)
    first, second = judge.track_many([("reach", [Step("0.4"), Step("0.4")]), ("reach", [Step("0.4"), Step("0.5")])])
    assert (first.usage.calls, second.usage.calls) == (3, 1), "a caption and two anchors; one caption"
    assert judge.track_many([("reach", [Step("0.5")])])[0].usage.calls == 0


def test_no_episodes_ask_nothing():
    backend = Counting()
    assert judge_of(backend, ANCHORS).track_many([]) == [] and not backend.texts


def test_threads_do_not_ask_the_same_caption_twice():
    backend = Counting()
    judge = judge_of(backend)
    threads = [threading.Thread(target=values, args=(judge, [f"0.{i}" for i in range(1, 9)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    pickle.dumps(judge)
    for thread in threads:
        thread.join()
    assert sorted(backend.texts) == [f"0.{i}" for i in range(1, 9)]
