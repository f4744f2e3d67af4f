from __future__ import annotations

import pytest

from rl_reward.errors import ConfigError
from rl_reward.rewards import Constant, Oracle, ProgressJudge, Shuffled, VerifierStepReward
from rl_reward.shaping import Shaping
from rl_reward.types import Step


def steps(*progress: float) -> list[Step]:
    return [Step(f"at {p}", data={"progress": p}) for p in progress]


def curves(judge: ProgressJudge, *episodes: list[Step], every: int = 1) -> list[list[float]]:
    return [c.values.tolist() for c in judge.track_many([("reach", e) for e in episodes], every=every)]


def test_oracle_reads_the_truth_and_holds_it_between_checkpoints() -> None:
    (curve,) = Oracle().track_many([("reach", steps(0.1, 0.2, 0.3, 0.4, 0.5))], every=3)
    assert curve.values.tolist() == [0.1, 0.1, 0.1, 0.4, 0.5]
    assert curve.scored.tolist() == [True, False, False, True, True]


def test_oracle_reads_another_key_and_names_a_missing_one() -> None:
    assert curves(Oracle("height"), [Step("up", data={"height": 0.7})]) == [[0.7]]
    with pytest.raises(ConfigError, match="'height'"):
        curves(Oracle("height"), steps(0.1))
    with pytest.raises(ConfigError, match="'progress'"):
        curves(Oracle(), [Step("no data at all")])


def test_constant_scores_every_state_alike() -> None:
    assert curves(Constant(0.25), steps(0.9, 0.1)) == [[0.25, 0.25]]
    assert Constant(0.25).name == "constant(0.25)"
    with pytest.raises(ConfigError, match=r"1\.5"):
        Constant(1.5)


def test_shuffled_gives_the_curve_of_an_earlier_episode_cut_or_held() -> None:
    judge = Shuffled(Oracle(), seed=0)
    first, second = curves(judge, steps(0.1, 0.2), steps(0.7, 0.8, 0.9))
    assert sorted(first) == [0.1, 0.2], "the first episode has no earlier one: its own scores in random order"
    assert second == [0.1, 0.2, 0.2]
    (third,) = judge.track_many([("reach", steps(0.5))])
    assert third.values[0] in (0.1, 0.7)
    assert third.scored.tolist() == [True]


def test_held_entries_of_a_shuffled_curve_are_not_scored() -> None:
    judge = Shuffled(Oracle(), seed=0)
    _, second = judge.track_many([("reach", steps(0.1, 0.2)), ("reach", steps(0.7, 0.8, 0.9))])
    assert second.scored.tolist() == [True, True, False]


def test_shuffled_never_returns_an_episode_its_own_curve_and_repeats_under_its_seed() -> None:
    episodes = [steps(i / 20, i / 20) for i in range(20)]
    once, again, other = (curves(Shuffled(Oracle(), seed=seed), *episodes) for seed in (3, 3, 4))
    assert once[1:] == again[1:]
    assert once[1:] != other[1:]
    assert all(curve[0] < own / 20 for own, curve in enumerate(once) if own)


def test_verifier_step_reward_pays_the_shaped_progress_of_one_episode() -> None:
    reward = VerifierStepReward(Oracle(), Shaping("potential", weight=2.0, gamma=0.5))
    paid = reward("reach", [0.0, 1.0], steps(0.2, 0.5, 1.0), terminated=True)
    assert paid.reward_T == pytest.approx([2 * (0.5 * 0.5 - 0.2), 1 + 2 * (0.0 - 0.5)])
    assert paid.progress_T1.tolist() == [0.2, 0.5, 1.0]
    assert paid.scored_T1.all()
    kept = reward("reach", [0.0, 1.0], steps(0.2, 0.5, 1.0), terminated=False)
    assert kept.reward_T[1] == pytest.approx(1 + 2 * (0.5 * 1.0 - 0.5)), "a time limit keeps the last potential"
