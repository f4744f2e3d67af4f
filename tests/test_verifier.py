"""The verifier over the simulated judge, whose true answers are known."""

import asyncio
import os
import pickle

import numpy as np
import pytest

from rl_reward import BackendError, ConfigError, Exemplar, ScoreScale, Step, Trajectory, Unscorable, Verifier
from rl_reward.backends import Simulated
from rl_reward.backends.base import Reply, Token


def quality(request):
    return 0.8 if "good" in request.text else 0.3


class Counting(Simulated):
    """Remembers every request and how many were in flight at once."""

    def __init__(self, truth=quality, **faults):
        super().__init__(truth, **faults)
        self.requests, self.flying, self.most = [], 0, 0

    async def reply(self, request):
        self.requests.append(request)
        self.flying += 1
        self.most = max(self.most, self.flying)
        await asyncio.sleep(0.001)
        self.flying -= 1
        return await super().reply(request)


class Broken:
    """A backend that raises what it is told to."""

    name, sees_data = "broken", False

    def __init__(self, error):
        self.error = error

    async def reply(self, request):
        if isinstance(self.error, Exception):
            raise self.error
        await asyncio.sleep(self.error)

    async def aclose(self):
        pass


def test_the_expectation_is_the_true_quality():
    score = Verifier(Simulated(quality)).score("t", "a good answer")
    assert score.value == pytest.approx(0.8)
    assert score.status == "logprob"
    assert score.distributions["Correctness"][0].coverage == pytest.approx(0.98)


def test_nothing_random_means_one_call_whatever_the_repeats():
    judge = Counting()
    score = Verifier(judge, repeats=4).score("t", "good")
    assert (len(judge.requests), score.repeats_used, score.std_error) == (1, 1, None)


def test_a_sampled_analysis_is_drawn_k_times():
    judge = Counting(noise=0.1)
    score = Verifier(judge, repeats=4, analysis="sampled").score("t", "good")
    assert (len(judge.requests), score.repeats_used) == (4, 4)
    assert score.std_error > 0
    assert [request.draw for request in judge.requests] == [0, 1, 2, 3]


def test_the_order_of_exemplars_is_redrawn_but_equal_orders_are_one_call():
    shots = [Exemplar("t", "x", "T"), Exemplar("t", "y", "A")]
    judge = Counting()
    Verifier(judge, repeats=8, exemplars=shots).score("t", "good")
    assert len(judge.requests) == 2


def test_identical_questions_are_paid_once_and_answered_each():
    judge = Counting(noise=0.2)
    scores = Verifier(judge).score_many([("t", "good"), ("t", "bad"), ("t", "good")])
    assert len(judge.requests) == 2
    assert scores[0].value == scores[2].value
    assert [score.usage.calls for score in scores] == [1, 1, 0]


def test_every_criterion_is_asked_and_weighted():
    def by_criterion(request):
        return {"Right": 1.0, "Tidy": 0.2}[request.criterion]

    criteria = {"Right": {"description": "?", "weight": 3}, "Tidy": "?"}
    assert Verifier(Simulated(by_criterion), criteria=criteria).score("t", "c").value == pytest.approx(0.8)
    replaced = Verifier(Simulated(by_criterion), criteria=criteria).score_many([("t", "c")], criteria={"Tidy": "?"})
    assert replaced[0].value == pytest.approx(0.2)


def test_slot_bias_cancels_over_both_orders():
    judge = Counting(slot_bias=0.1)
    pair = Verifier(judge).compare("t", "good", "bad")
    assert len(judge.requests) == pair.repeats_used == 2
    assert pair.first - pair.second == pytest.approx(0.5)
    assert Verifier(judge).compare("t", "good", "good").p_first == pytest.approx(0.5)


def test_an_odd_number_of_sampled_pair_repeats_is_rounded_up_to_both_orders():
    judge = Counting()
    Verifier(judge, repeats=3, analysis="sampled").compare("t", "good", "bad")
    assert len(judge.requests) == 4


def test_preference_temperature():
    assert Verifier(Simulated(quality), preference_temperature=0.1).compare(
        "t", "good", "bad"
    ).p_first == pytest.approx(1 / (1 + np.exp(-5.0)))


def test_tracking_is_causal_and_asks_the_first_and_last_step():
    judge = Counting(lambda request: request.candidate.steps[-1].data)
    steps = [Step(f"step {t}", data=t / 10) for t in range(8)]
    curve = Verifier(judge).track("t", steps, every=3)
    assert curve.checkpoints == (0, 3, 6, 7)
    np.testing.assert_allclose(curve.values, [0, 0, 0, 0.3, 0.3, 0.3, 0.6, 0.7], atol=1e-9)
    for request, last in zip(judge.requests, curve.checkpoints, strict=True):
        assert [step.text for step in request.candidate.steps] == [step.text for step in steps[: last + 1]]


def test_no_real_backend_sees_privileged_data():
    class Real(Counting):
        sees_data = False

    judge = Real(lambda request: 0.5 if request.candidate.steps[0].data is None else 1.0)
    verifier = Verifier(judge)
    assert verifier.score("t", Trajectory((Step("same", data=1),))).value == pytest.approx(0.5)
    verifier.score_many([("t", Trajectory((Step("same", data=n),))) for n in range(5)])
    assert len(judge.requests) == 2


def test_an_image_file_counts_by_what_it_holds(tmp_path):
    picture, judge = tmp_path / "x.png", Counting()
    for content in (b"one", b"two", b"two"):
        picture.write_bytes(content)
        Verifier(judge).track("t", [Step("good", image=str(picture))])
    assert len({request.key for request in judge.requests}) == 2
    with pytest.raises(ConfigError, match="cannot read the image"):
        Verifier(judge).track("t", [Step("good", image=str(tmp_path / "missing.png"))])


def test_requests_in_flight_are_bounded():
    judge = Counting()
    Verifier(judge, max_concurrency=5).score_many([("t", f"good {n}") for n in range(40)])
    assert judge.most == 5


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (5.0, "timeout", "deadline of 0.05 s"),
        (TimeoutError("no answer within 9 s"), "timeout", "no answer within 9 s"),
        (Unscorable("HTTP 429 five times"), "error", "HTTP 429 five times"),
    ],
)
def test_failures_are_unscored_with_their_reason(error, status, reason):
    verifier = Verifier(Broken(error), deadline=0.05)
    score, pair, curve = verifier.score("t", "c"), verifier.compare("t", "c", "d"), verifier.track("t", ["a", "b", "c"])
    assert (score.value, score.status) == (pair.p_first, pair.status) == (None, status)
    assert reason in score.reason
    assert np.isnan(curve.values).all() and not curve.scored.any() and curve.voc is None


@pytest.mark.parametrize("error", [KeyError("x"), OSError("gone"), TypeError("tokens")])
def test_what_goes_wrong_with_one_request_leaves_that_one_unscored(error):
    score = Verifier(Broken(error)).score("t", "c")
    assert (score.value, score.status) == (None, "error")
    assert type(error).__name__ in score.reason


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_exit_inside_a_judge_is_an_error_and_not_the_end_of_all_judging(error):
    def quits(request):
        raise error

    with pytest.raises(BackendError, match=type(error).__name__):
        Verifier(Simulated(quits)).score("t", "c")
    assert Verifier(Simulated(quality)).score("t", "good").value == pytest.approx(0.8)


def test_a_synchronous_call_from_inside_a_judge_is_refused_instead_of_waiting_for_itself():
    inner = Verifier(Simulated(quality))
    with pytest.raises(ConfigError, match="would wait for itself"):
        Verifier(Simulated(lambda request: inner.score("t", request.text).value)).score("t", "good")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_used_verifier_works_in_a_forked_process():
    verifier = Verifier(Counting(), max_concurrency=1)
    verifier.score_many([("t", f"good {n}") for n in range(5)])
    child = os.fork()
    if child == 0:
        os._exit(round(10 * verifier.score("t", "good").value))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 8


def test_a_backend_that_cannot_serve_stops_everything():
    with pytest.raises(BackendError, match="no such model"):
        Verifier(Broken(BackendError("no such model"))).score("t", "c")


def test_equal_data_is_one_question_whoever_holds_it():
    judge = Counting(lambda request: request.candidate.steps[-1].data["progress"], noise=0.1)
    shared, names = "progress", ["prog" + "ress", "".join(["prog", "ress"])]
    mine = [Step("s", data={shared: 0.1}), Step("s", data={shared: 0.2})]
    theirs = [pickle.loads(pickle.dumps(Step("s", data={name: v}))) for name, v in zip(names, (0.1, 0.2), strict=True)]
    first, second = Verifier(judge).track_many([("t", mine), ("t", theirs)])
    assert len(judge.requests) == 2
    np.testing.assert_array_equal(first.values, second.values)


def test_the_batch_deadline_leaves_the_late_ones_unscored():
    score = Verifier(Broken(5.0), batch_deadline=0.05).score("t", "c")
    assert (score.value, score.status) == (None, "timeout")
    assert "batch deadline" in score.reason


def test_unread_verdicts_are_unscored():
    class Chatty(Broken):
        async def reply(self, request):
            return Reply((Token("fine work", -0.1, (("fine work", -0.1),)),), "fine work")

    score = Verifier(Chatty(None)).score("t", "c")
    assert (score.value, score.status) == (None, "unreadable")


def test_an_empty_candidate_is_unscored_without_a_call():
    judge = Counting()
    score = Verifier(judge).score("t", "  ")
    assert (score.value, score.status, len(judge.requests)) == (None, "unreadable", 0)


def test_unscored_rate_is_seen_and_never_a_number():
    scores = Verifier(Simulated(quality, unscored_rate=0.3)).score_many([("t", f"good {n}") for n in range(200)])
    assert 0.2 < np.mean([score.value is None for score in scores]) < 0.4
    assert {round(score.value, 6) for score in scores if score.value is not None} == {0.8}


def test_the_synchronous_face_works_inside_a_running_loop():
    async def notebook():
        verifier = Verifier(Simulated(quality))
        return (
            verifier.score("t", "good"),
            await verifier.ascore("t", "good"),
            await verifier.acompare("t", "good", "bad"),
        )

    sync, twin, pair = asyncio.run(notebook())
    assert sync.value == twin.value
    assert pair.first > pair.second


def test_batch_forms_keep_the_order():
    verifier = Verifier(Simulated(lambda request: len(request.text) / 10))
    pairs = verifier.compare_many([("t", "x" * n, "y") for n in range(1, 6)])
    assert [round(pair.first, 6) for pair in pairs] == [0.1, 0.2, 0.3, 0.4, 0.5]
    curves = verifier.track_many([("t", ["x"] * n) for n in (1, 3)])
    assert [len(curve.values) for curve in curves] == [1, 3]


def test_a_used_verifier_pickles():
    verifier = Verifier(Simulated(quality))
    verifier.score("t", "good")
    assert pickle.loads(pickle.dumps(verifier)).score("t", "good").value == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "repeats must be an integer of at least 1, got 0"),
        ({"repeats": 1.5}, "at least 1, got 1.5"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"deadline": 0}, "deadline must be a finite number > 0, got 0"),
        ({"preference_temperature": 0}, "preference_temperature"),
        ({"batch_deadline": -1}, "batch_deadline"),
        ({"min_coverage": 1.5}, "min_coverage"),
        ({"analysis": "long"}, "analysis must be one of none, sampled, got 'long'"),
        ({"exemplars": [Exemplar("t", "c", "Z")]}, r"exemplar level 'Z' is not on the scale A\.\.T"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Verifier(Simulated(quality), **options)


def test_bad_calls_are_refused():
    verifier = Verifier(Simulated(quality), scale=ScoreScale.digits())
    with pytest.raises(ConfigError, match="task must be a text that is not empty"):
        verifier.score(" ", "c")
    with pytest.raises(ConfigError, match="at least 1 step, got 0"):
        verifier.track("t", [])
    for steps in ("abc", Trajectory.of(["a"]), [1], None):
        with pytest.raises(ConfigError, match="must be a"):
            verifier.track("t", steps)
    for pair in (("t", None), ("t", 3), (None, "c")):
        with pytest.raises(ConfigError, match="must be a"):
            verifier.score(*pair)
    with pytest.raises(ConfigError, match="every must be at least 1"):
        verifier.track("t", ["a"], every=0)
