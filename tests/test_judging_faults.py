"""Faults that once got through: what goes on after a reward is cancelled or a judge is closed, and odd trainers."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from protocol_server import StubServer
from trl_toys import call, reward_of, trainer_with

from rl_reward import Verifier
from rl_reward.adapters.trl import ProgressReward, VerifierReward
from rl_reward.adapters.trl.step_reward import NOTHING_YET
from rl_reward.backends import Simulated
from rl_reward.backends.openai_compatible import OpenAICompatible
from rl_reward.errors import BackendError, ConfigError
from rl_reward.experiments.grpo_judges import ShuffledInGroups
from rl_reward.scores import Score, curve_of


def score(value):
    return Score(value, None, {}, {}, 1, "logprob")


class Waiting:
    """Answers when it is told to; criteria "math" it cannot serve."""

    def __init__(self):
        self.started, self.may_go, self.cancelled = asyncio.Event(), asyncio.Event(), False

    async def ascore_many(self, pairs, *, criteria=None):
        if criteria == "math":
            await self.started.wait()
            raise BackendError("no such model")
        self.started.set()
        try:
            await self.may_go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return [score(0.5) for _ in pairs]


def test_a_reward_that_is_cancelled_stops_its_judge():
    async def main():
        judge = Waiting()
        reward = VerifierReward(judge, weight=1.0, group_size=2)
        call = asyncio.create_task(reward(prompts=["p"] * 2, completions=["a", "b"]))
        await judge.started.wait()
        call.cancel()
        await asyncio.wait({call})
        await asyncio.sleep(0)
        return judge.cancelled

    assert asyncio.run(main())


def test_a_judge_that_fails_for_some_rows_is_not_asked_on_for_the_others():
    async def main():
        judge = Waiting()
        reward = VerifierReward(judge, weight=1.0, group_size=2, criteria="by")
        with pytest.raises(BackendError, match="no such model"):
            await reward(prompts=["p"] * 4, completions=list("abcd"), by=["math"] * 2 + ["agent"] * 2)
        await asyncio.sleep(0)
        return judge.cancelled

    assert asyncio.run(main())


def test_closing_while_the_server_is_probed_leaves_rows_unscored():
    with StubServer(latency=0.5) as server:
        verifier = Verifier(OpenAICompatible("stub", server.base_url, api_key_env=None))
        scores = []
        thread = threading.Thread(target=lambda: scores.append(verifier.score("task", "answer")))
        thread.start()
        while not server.requests:
            time.sleep(0.01)
        verifier.close()
        thread.join(10)
        assert [one.status for one in scores] == ["error"]
        assert verifier.score("task", "answer").status == "logprob"


def test_a_trainer_without_a_token_limit_clips_nothing(tmp_path):
    reward = reward_of(0.1, 0.2, 0.3, 0.4)
    trainer = trainer_with(tmp_path, reward, max_completion_length=None, generation_kwargs={"max_new_tokens": 4})
    trainer.train()
    assert trainer.state.log_history[0]["verifier/clipped_rate"] == 0.0


def test_progress_that_would_train_nothing_is_refused(tmp_path):
    trainer = trainer_with(tmp_path, ProgressReward(Verifier(Simulated(lambda request: 0.5)), group_size=4))
    with pytest.raises(ConfigError, match="weight 0 and its trainer gives no step credit"):
        trainer.train()


def test_classes_that_differ_by_rounding_are_one():
    reward = reward_of(0.2, 0.4, 0.6, 0.8, order_within="correctness", correct="right")
    paid = call(reward, right=[0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2])
    assert paid == pytest.approx([-0.3, -0.1, 0.1, 0.3])


def test_an_empty_reference_is_named():
    judge = Verifier(Simulated(lambda request: 0.5))
    reward = VerifierReward(judge, weight=1.0, group_size=4, mode="anchored", references="pool")
    with pytest.raises(ConfigError, match="'pool' holds an empty answer"):
        call(reward, pool=["a", " ", "a", "a"])


def test_a_stand_in_that_breaks_tells_everybody_who_waits(monkeypatch):
    from rl_reward.experiments.additions import standin

    def broken(*_):
        raise RuntimeError("no memory")

    monkeypatch.setattr(standin, "grade_logprobs", broken)
    scores = Verifier(standin.StandIn()).score_many([("74+47=", "11;12#121"), ("74+47=", "11;12#120")])
    assert all("RuntimeError in stand-in verifier: no memory" in score.reason for score in scores)


class Starting:
    """Says 0 of the prompt alone and 1 of every answer."""

    async def atrack_many(self, episodes):
        return [curve_of({0: score(float(steps != [NOTHING_YET]))}, 1) for _, steps in episodes]


def test_the_shuffled_control_leaves_the_start_of_a_curve_where_it_is():
    asked = [("1+1=", [NOTHING_YET]), *(("1+1=", [answer]) for answer in "abcdefgh")]
    curves = asyncio.run(ShuffledInGroups(Starting(), 0).atrack_many(asked))
    assert [curve.values[0] for curve in curves] == [0.0, *[1.0] * 8]
