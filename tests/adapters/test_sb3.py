from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from sb3_toys import (
    ABSENT,
    HALF,
    NAN,
    PAID,
    PAID_REVERSED,
    SOLVED,
    TIMED_OUT,
    Reader,
    Scripted,
    Wander,
    in_ring,
    make_model,
    played,
)
from stable_baselines3 import DDPG, SAC, TD3
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback, StopTrainingOnMaxEpisodes
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rl_reward.adapters.sb3 import Counts, RecordedEpisode, RelabelCallback, RelabelReplayBuffer
from rl_reward.adapters.sb3.records import Episode
from rl_reward.distribution import ScoreDistribution
from rl_reward.errors import BackendError, ConfigError
from rl_reward.rewards import Oracle, Shuffled
from rl_reward.scale import ScoreScale
from rl_reward.scores import ProgressCurve, Score, curve_of
from rl_reward.shaping import Shaping
from rl_reward.types import Step

# Hand-worked episodes


@pytest.mark.parametrize("dict_obs", [False, True])
def test_two_episodes_by_hand(dict_obs: bool) -> None:
    judge = Reader()
    model = make_model(Scripted(SOLVED, TIMED_OUT, dict_obs=dict_obs))
    model.learn(5, callback=RelabelCallback(judge))
    buffer = model.replay_buffer
    assert isinstance(buffer, DictReplayBuffer) == dict_obs
    assert in_ring(buffer) == pytest.approx(PAID, abs=1e-6)
    assert in_ring(buffer, "dones") == [0, 1, 0, 0, 1]
    assert in_ring(buffer, "timeouts") == [0, 0, 0, 0, 1]
    assert judge.tasks == ["follow the script"] * 2
    assert judge.asked[0] == [0.2, 0.5, 1.0]
    np.testing.assert_equal(judge.asked[1], [0.1, NAN, 0.6])
    next_obs = buffer.next_observations["copy"] if dict_obs else buffer.next_observations
    assert next_obs[1, 0].tolist() == [0, 2], "the last observation of an episode, not the first of the next"


def test_what_was_read_stays_beside_each_transition() -> None:
    records = played(5, SOLVED, TIMED_OUT).replay_buffer.records[:5, 0]
    assert records["env_reward"].tolist() == [0, 1, 0, 0, 0]
    np.testing.assert_allclose(records["progress"], [0.5, 1.0, 0.1, NAN, 0.6], rtol=1e-6)
    assert records["scored"].tolist() == [True, True, False, False, True]
    assert records["terminated"].tolist() == [False, True, False, False, False]


@pytest.mark.parametrize("dict_obs", [False, True])
def test_rows_of_three_envs_commit_once_every_column_is_scored(dict_obs: bool) -> None:
    scripts = [(SOLVED, TIMED_OUT), (TIMED_OUT, SOLVED), (SOLVED, TIMED_OUT)]
    committed = []
    for rows in range(1, 6):
        env = DummyVecEnv([lambda s=s: Scripted(*s, dict_obs=dict_obs) for s in scripts])
        model = make_model(env)
        model.learn(3 * rows, callback=RelabelCallback(Reader()))
        buffer = model.replay_buffer
        committed.append(buffer.counts.committed)
        assert buffer.counts == Counts(3 * rows, 3 * buffer.size(), 3 * (rows - buffer.size()), 0)
    # Episodes end after rows 2 and 5, 3 and 5, 2 and 5.
    assert committed == [0, 0, 6, 6, 15]
    assert in_ring(buffer, env=0) == pytest.approx(PAID, abs=1e-6)
    assert in_ring(buffer, env=1) == pytest.approx(PAID_REVERSED, abs=1e-6)
    assert in_ring(buffer, env=2) == pytest.approx(PAID, abs=1e-6)
    assert in_ring(buffer, "timeouts", env=1) == [0, 0, 1, 0, 0]


def test_the_success_transition_is_there_before_the_next_gradient_step() -> None:
    sizes: list[int] = []

    class Spy(BaseCallback):
        def _on_rollout_end(self) -> None:
            sizes.append(self.model.replay_buffer.size())

        def _on_step(self) -> bool:
            return True

    make_model(Scripted(SOLVED)).learn(4, callback=[RelabelCallback(Reader()), Spy()])
    assert sizes == [0, 2, 2, 4]


def test_a_wrapped_ring_holds_the_last_transitions_with_their_own_rewards() -> None:
    buffer = played(10, SOLVED, TIMED_OUT, buffer_size=4).replay_buffer
    assert np.roll(in_ring(buffer), -buffer.pos) == pytest.approx(PAID[1:], abs=1e-6)
    assert buffer.counts == Counts(added=10, committed=10, pending=0, discarded=0)


def test_the_spread_is_that_of_the_distributions() -> None:
    scale = ScoreScale.letters(2)
    sure, torn = (ScoreDistribution(scale, np.array(p), 1.0) for p in ([0.0, 1.0], [0.5, 0.5]))

    class Distributions(Reader):
        def track_many(self, episodes: Any, *, every: int = 1) -> list[ProgressCurve]:
            found = {i: Score(d.mean, None, {}, {"c": (d,)}, 1, "logprob") for i, d in enumerate([torn, torn, sure])}
            return [curve_of(found, 3) for _ in episodes]

    records = played(2, SOLVED, judge=Distributions()).replay_buffer.records
    assert records["spread"][:2, 0].tolist() == [0.5, 0.0]
    assert np.isnan(played(2, SOLVED).replay_buffer.records["spread"][:2]).all()


# The sparse arm


@pytest.mark.parametrize("dict_obs", [False, True])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("judge", [None, Oracle()])
def test_weight_zero_stores_what_sb3_stores(dict_obs: bool, n_envs: int, judge: Any) -> None:
    def run(callback: BaseCallback | None, **kwargs: Any) -> Any:
        model = make_model(DummyVecEnv([lambda: Wander(dict_obs)] * n_envs), **kwargs)
        return model.learn(90, callback=callback).replay_buffer

    ours = run(RelabelCallback(judge), buffer={"shaping": Shaping("additive", weight=0.0)})
    theirs = run(None, replay_buffer_class=None, replay_buffer_kwargs=None)
    rows = ours.size()
    assert 90 // n_envs - 12 <= rows <= theirs.size()
    for name in ("actions", "rewards", "dones", "timeouts", "observations", "next_observations"):
        mine, reference = getattr(ours, name), getattr(theirs, name)
        for key in ["state"] if isinstance(mine, dict) else [slice(None)]:
            np.testing.assert_array_equal(mine[key][:rows], reference[key][:rows], err_msg=name)


def test_weight_zero_without_a_judge_asks_for_no_task_and_no_steps() -> None:
    mute = (ABSENT, [(0.0, ABSENT), (1.0, ABSENT)], "terminated")
    model = make_model(Scripted(mute), buffer={"shaping": Shaping(weight=0.0, gamma=0.5)})
    assert in_ring(model.learn(2, callback=RelabelCallback(None)).replay_buffer) == [0, 1]


# Real training


@pytest.mark.parametrize("algorithm", [SAC, TD3, DDPG])
@pytest.mark.parametrize("n_envs", [1, 2])
def test_training_repeats_under_its_seed(algorithm: Any, n_envs: int) -> None:
    def run() -> Any:
        env = DummyVecEnv([Wander] * n_envs)
        model = make_model(env, algorithm, learning_starts=60, buffer={"lag": 8})
        return model.learn(250, callback=RelabelCallback(Shuffled(Oracle(), seed=1)))

    one, two = run(), run()
    assert one._n_updates > 50
    for name in ("rewards", "records", "observations", "actions"):
        assert getattr(one.replay_buffer, name).tobytes() == getattr(two.replay_buffer, name).tobytes()
    obs = np.zeros((1, 2), dtype=np.float32)
    assert one.predict(obs, deterministic=True)[0] == two.predict(obs, deterministic=True)[0]
    counts = one.replay_buffer.counts
    assert counts.added == counts.committed + counts.pending == one.num_timesteps


def test_metrics_reach_the_logger() -> None:
    seen: dict[str, float] = {}

    class Spy(BaseCallback):
        def _on_step(self) -> bool:
            seen.update(self.logger.name_to_value)
            return True

    callback = RelabelCallback(Reader(), max_unscored=1.0)
    make_model(Scripted(SOLVED, TIMED_OUT)).learn(6, callback=[callback, Spy()], log_interval=100)
    assert seen["rl_reward/progress_mean"] == pytest.approx((np.mean([0.2, 0.5, 1.0]) + np.mean([0.1, 0.6])) / 2)
    assert seen["rl_reward/unscored_rate"] == pytest.approx((0 + 1 / 3) / 2)
    assert seen["rl_reward/judge_calls"] == 6
    assert seen["rl_reward/lag"] == 0
    assert {"rl_reward/judge_seconds", "rl_reward/pending"} <= set(seen)
    assert (callback.asked, callback.read, callback.usage.calls) == (6, 5, 6)


def test_training_stops_when_too_many_scores_are_unread() -> None:
    dead = (NAN, [(0.0, NAN), (0.0, 0.5)], "truncated")
    model = make_model(Scripted(dead))
    with pytest.raises(BackendError, match="67% of the scores of the last 3 episodes"):
        model.learn(100, callback=RelabelCallback(Reader(), max_unscored=0.6, window=3))
    assert model.num_timesteps == 6
    make_model(Scripted(dead)).learn(10, callback=RelabelCallback(Reader(), max_unscored=0.7, window=3))


# Lag


def test_a_lag_commits_rows_at_fixed_counts() -> None:
    for steps, committed in [(5, 0), (6, 0), (7, 1), (8, 2), (12, 6)]:
        buffer = played(steps, SOLVED, TIMED_OUT, buffer={"lag": 6}).replay_buffer
        assert buffer.counts == Counts(steps, committed, steps - committed, 0)
    assert in_ring(buffer) == pytest.approx([*PAID, PAID[0]], abs=1e-6)


def test_with_a_lag_the_judge_works_while_training_goes_on() -> None:
    gate = threading.Event()

    class Slow(Reader):
        def track_many(self, episodes: Any, *, every: int = 1) -> list[ProgressCurve]:
            assert gate.wait(timeout=60), "training stood still"
            return super().track_many(episodes, every=every)

    class OpenAtSix(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps == 6:
                gate.set()
            return True

    model = make_model(Scripted(SOLVED, TIMED_OUT), buffer={"lag": 6})
    model.learn(11, callback=[RelabelCallback(Slow()), OpenAtSix()])
    assert in_ring(model.replay_buffer) == pytest.approx(PAID, abs=1e-6)


def test_waiting_rows_do_not_follow_the_arrays_they_came_from() -> None:
    buffer = empty_buffer()
    buffer.waiting.running, buffer.waiting.announced = [Episode("t", {})], {}
    obs, action, paid = np.zeros((1, 2)), np.zeros((1, 2)), np.zeros(1)
    buffer.add(obs, obs, action, paid, np.array([False]), [{}])
    for array in (obs, action, paid):
        array += 1
    (row,) = buffer.waiting.rows
    assert not any(part.any() for part in (row.obs, row.next_obs, row.action, row.records["env_reward"]))


# Interrupted episodes


@pytest.mark.parametrize("new_callback", [False, True])
def test_a_second_learn_that_goes_on_closes_the_episode_and_reads_it_from_its_beginning(new_callback: bool) -> None:
    judge = Reader()
    callback = RelabelCallback(judge)
    model = make_model(Scripted(SOLVED, TIMED_OUT))
    model.learn(1, callback=callback)
    assert model.replay_buffer.counts.pending == 1
    callback = RelabelCallback(judge) if new_callback else callback
    model.learn(4, callback=callback, reset_num_timesteps=False)
    assert in_ring(model.replay_buffer) == pytest.approx(PAID, abs=1e-6)
    assert in_ring(model.replay_buffer, "dones") == [1, 1, 0, 0, 1]
    assert in_ring(model.replay_buffer, "timeouts") == [1, 0, 0, 0, 1], "the learner bootstraps where it was closed"
    assert judge.asked[:2] == [[0.2, 0.5], [0.2, 0.5, 1.0]]


def test_a_second_learn_with_a_reset_closes_the_episode_and_begins_another() -> None:
    model = played(3, SOLVED, TIMED_OUT)
    model.learn(2, callback=RelabelCallback(Reader()))
    assert in_ring(model.replay_buffer) == pytest.approx([*PAID[:3], *PAID[:2]], abs=1e-6)
    assert in_ring(model.replay_buffer, "timeouts") == [0, 0, 1, 0, 0]


def test_training_stopped_by_another_callback_can_go_on() -> None:
    model = make_model(Scripted(SOLVED, TIMED_OUT))
    model.learn(50, callback=[RelabelCallback(Reader()), StopTrainingOnMaxEpisodes(1)])
    dropped = {"stepped but not stored by SB3": 1}
    assert model.replay_buffer.counts == Counts(2, 0, 1, 1, dropped), "SB3 drops the transition at which it is stopped"
    model.learn(3, callback=RelabelCallback(Reader()), reset_num_timesteps=False)
    assert in_ring(model.replay_buffer) == pytest.approx([PAID[0], *PAID[2:]], abs=1e-6)


def test_a_loaded_buffer_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "buffer.pkl"
    model = played(3, SOLVED, TIMED_OUT, buffer={"lag": 2})
    assert model.replay_buffer.counts == Counts(3, 1, 2, 0)
    model.save_replay_buffer(path)
    loaded = make_model(Scripted(SOLVED))
    loaded.load_replay_buffer(path)
    assert loaded.replay_buffer.counts == Counts(3, 1, 2, 0)
    loaded.learn(2, callback=RelabelCallback(Reader()))
    assert in_ring(loaded.replay_buffer) == pytest.approx(PAID[:3], abs=1e-6)
    assert in_ring(loaded.replay_buffer, "timeouts") == [0, 0, 1]
    assert loaded.replay_buffer.counts == Counts(5, 3, 2, 0)


@pytest.mark.parametrize(("dict_obs", "n_steps"), [(True, 1), (False, 2)])
def test_every_variant_pickles(tmp_path: Path, dict_obs: bool, n_steps: int) -> None:
    model = make_model(Scripted(SOLVED, dict_obs=dict_obs), buffer={"n_steps": n_steps})
    model.learn(3, callback=RelabelCallback(Reader()))
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    before = model.replay_buffer
    model.load_replay_buffer(tmp_path / "buffer.pkl")
    assert type(model.replay_buffer) is type(before)
    assert model.replay_buffer.counts == before.counts == Counts(3, 2, 1, 0)


# Changing the shaping, and episodes recorded elsewhere


def test_relabel_by_hand_and_back() -> None:
    buffer = played(6, SOLVED, TIMED_OUT).replay_buffer
    buffer.relabel(Shaping("step_cost", weight=0.5, gamma=0.5))
    assert in_ring(buffer) == pytest.approx([-0.75, 0.5, -0.95, -1.0, -0.7], abs=1e-6)
    buffer.relabel(HALF)
    assert in_ring(buffer) == pytest.approx(PAID, abs=1e-6)


def test_relabel_knows_the_past_that_the_ring_has_overwritten() -> None:
    # Six rows were committed, the ring holds four: it begins at the end of TIMED_OUT's gap and ends inside SOLVED.
    sparse = Shaping(weight=0.0, gamma=0.5)
    ours = played(7, TIMED_OUT, SOLVED, SOLVED, buffer_size=4, buffer={"shaping": sparse, "lag": 1}).replay_buffer
    assert (ours.full, ours.pos) == (True, 2)
    ours.relabel(HALF)
    assert np.roll(in_ring(ours), -ours.pos) == pytest.approx([PAID[4], PAID[0], PAID[1], PAID[0]], abs=1e-6)


def test_relabel_reaches_waiting_rows() -> None:
    model = played(5, SOLVED, TIMED_OUT, buffer={"lag": 100, "shaping": Shaping(weight=0.0, gamma=0.5)})
    model.replay_buffer.relabel(HALF)
    model.learn(1, callback=RelabelCallback(Reader()))
    assert in_ring(model.replay_buffer) == pytest.approx(PAID, abs=1e-6)


def test_relabel_refuses_a_weight_where_nothing_was_scored() -> None:
    model = make_model(Scripted(SOLVED), buffer={"shaping": Shaping(weight=0.0, gamma=0.5)})
    buffer = model.learn(2, callback=RelabelCallback(None)).replay_buffer
    with pytest.raises(ConfigError, match="weight 2 needs scores"):
        buffer.relabel(HALF)


def recorded(start: float, transitions: Sequence[tuple[float, Any]], end: str, mark: float = 0.0) -> RecordedEpisode:
    states = [start, *(progress for _, progress in transitions)]
    return RecordedEpisode(
        "follow the script",
        observations_T1=np.array([[mark, t] for t in range(len(states))]),
        actions_T=np.zeros((len(transitions), 2)),
        rewards_T=[reward for reward, _ in transitions],
        terminated=end == "terminated",
        steps={t: Step("", data=progress) for t, progress in enumerate(states) if progress != ABSENT},
    )


def empty_buffer(n_envs: int = 1, space: gym.Space[Any] | None = None, **kwargs: Any) -> RelabelReplayBuffer:
    space = space or Scripted().observation_space
    settings = {"shaping": HALF, **kwargs}
    return RelabelReplayBuffer(100, space, Scripted.action_space, n_envs=n_envs, device="cpu", **settings)


def test_prefill_equals_playing() -> None:
    buffer = empty_buffer()
    curves = buffer.prefill([recorded(*SOLVED), recorded(*TIMED_OUT, mark=1.0)], Reader())
    assert [len(curve.values) for curve in curves] == [3, 3]
    live = played(5, SOLVED, TIMED_OUT).replay_buffer
    for name in ("rewards", "dones", "timeouts", "observations", "next_observations", "records"):
        assert getattr(buffer, name)[:5].tobytes() == getattr(live, name)[:5].tobytes(), name


def test_prefill_deals_episodes_to_columns_and_counts_the_rest() -> None:
    buffer = empty_buffer(n_envs=2)
    buffer.prefill([recorded(*SOLVED), recorded(*TIMED_OUT)], Reader())
    assert in_ring(buffer, env=0) == pytest.approx(PAID[:2], abs=1e-6)
    assert in_ring(buffer, env=1) == pytest.approx(PAID[2:4], abs=1e-6)
    assert in_ring(buffer, "timeouts", env=1) == [0, 1], "cut, so it bootstraps"
    cut = {"prefilled, did not fill a row of all envs": 1}
    assert buffer.counts == Counts(added=5, committed=4, pending=0, discarded=1, reasons=cut)


def test_prefill_takes_dict_observations_and_training_goes_on_behind() -> None:
    model = make_model(Scripted(SOLVED, dict_obs=True))
    states = {"state": np.zeros((3, 2)), "copy": np.ones((3, 2))}
    demo = RecordedEpisode("t", states, np.zeros((2, 2)), [0, 1], True, recorded(*SOLVED).steps)
    model.replay_buffer.prefill([demo], Reader())
    model.learn(2, callback=RelabelCallback(Reader()))
    assert in_ring(model.replay_buffer) == pytest.approx(PAID[:2] * 2, abs=1e-6)
    assert model.replay_buffer.counts == Counts(4, 4, 0, 0)
    assert model.replay_buffer.observations["copy"][:2].min() == 1


def test_learning_may_start_at_once_on_a_prefilled_buffer() -> None:
    model = make_model(Wander(), learning_starts=0)
    demo = RecordedEpisode("t", np.zeros((3, 2)), np.zeros((2, 1)), [0, 1], True)
    model.replay_buffer.shaping = Shaping(weight=0.0, gamma=0.5)
    model.replay_buffer.prefill([demo], None)
    model.learn(3, callback=RelabelCallback(None))
    assert model._n_updates == 3


def test_prefill_refuses_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match=r"needs T actions and T\+1 observations, got 2, 2 and 2"):
        RecordedEpisode("t", np.zeros((2, 2)), np.zeros((2, 2)), [0, 1], True)
    with pytest.raises(ConfigError, match=r"in 0\.\.2, got \[3\]"):
        RecordedEpisode("t", np.zeros((3, 2)), np.zeros((2, 2)), [0, 1], True, {3: Step("late")})
    with pytest.raises(ConfigError, match="the done info has no Step"):
        silent = RecordedEpisode("t", np.zeros((3, 2)), np.zeros((2, 2)), [0, 1], True, {0: Step("start")})
        empty_buffer().prefill([silent], Reader())
    with pytest.raises(ConfigError, match="needs a judge"):
        empty_buffer().prefill([recorded(*SOLVED)], None)
    with pytest.raises(ConfigError, match="prefill before learn"):
        played(1, SOLVED).replay_buffer.prefill([recorded(*SOLVED)], Reader())


# n-step returns


def test_n_step_returns_by_hand() -> None:
    buffer = played(5, SOLVED, TIMED_OUT, buffer={"n_steps": 2}).replay_buffer
    batch = buffer._get_samples(np.arange(5))
    # Over two transitions, cut at the end of each episode.
    assert batch.rewards[:, 0].tolist() == pytest.approx([0.1, 0.0, -0.1, 0.05, 0.1], abs=1e-6)
    assert batch.discounts[:, 0].tolist() == [0.25, 0.5, 0.25, 0.25, 0.5]
    assert batch.dones[:, 0].tolist() == [1, 1, 0, 0, 0]


def test_n_step_training_samples_what_sb3_samples() -> None:
    space = Wander().observation_space
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SB3 says that it ignores the model's own n_steps
        model = make_model(Wander(), n_steps=3, learning_starts=30, buffer={"n_steps": 3})
    ours = model.learn(100, callback=RelabelCallback(Oracle())).replay_buffer
    theirs = NStepReplayBuffer(1000, space, Wander.action_space, device="cpu", n_steps=3, gamma=0.5)
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts", "pos"):
        setattr(theirs, name, getattr(ours, name))
    np.random.seed(0)
    mine = ours.sample(64)
    np.random.seed(0)
    for a, b in zip(mine, theirs.sample(64), strict=True):
        np.testing.assert_array_equal(a, b)


# What is refused


def refused(model: Any, reason: str, judge: Any = None, **kwargs: Any) -> None:
    with pytest.raises(ConfigError, match=reason) as error:
        model.learn(100, callback=RelabelCallback(judge or Oracle(), **kwargs))
    assert "\n" not in str(error.value)
    assert model.num_timesteps == 0


def test_hindsight_is_refused() -> None:
    class Goals(Wander):
        def __init__(self) -> None:
            box = gym.spaces.Box(-10, 10, (2,), np.float32)
            self.observation_space = gym.spaces.Dict(observation=box, achieved_goal=box, desired_goal=box)

        def _obs(self) -> Any:
            return dict.fromkeys(self.observation_space.keys(), self.state)

    from stable_baselines3 import HerReplayBuffer

    model = make_model(Goals(), replay_buffer_class=HerReplayBuffer, replay_buffer_kwargs={})
    refused(model, "recomputes the rewards")


def test_normalised_rewards_are_refused_and_normalised_observations_work() -> None:
    refused(make_model(VecNormalize(DummyVecEnv([Wander]), gamma=0.5)), "norm_reward")
    model = make_model(VecNormalize(DummyVecEnv([lambda: Scripted(SOLVED, TIMED_OUT)]), norm_reward=False))
    model.learn(5, callback=RelabelCallback(Reader()))
    assert in_ring(model.replay_buffer) == pytest.approx(PAID, abs=1e-6)
    assert model.replay_buffer.observations[4, 0].tolist() == [1, 2], "stored as the env gave it"


def test_learning_starts_must_cover_the_longest_episode() -> None:
    refused(make_model(Wander(), learning_starts=11), r"at least 12 = n_envs \(1\) x longest episode \(12\)")
    refused(make_model(DummyVecEnv([Wander] * 2), learning_starts=28, buffer={"lag": 5}), "at least 29")
    limited = gym.wrappers.TimeLimit(Scripted(SOLVED), 7)
    refused(make_model(limited, learning_starts=6), r"longest episode \(7\)")
    endless = (0.1, [(0.0, 0.2)] * 50, "truncated")
    with pytest.raises(ConfigError, match="none of 4 transitions is scored yet; raise learning_starts"):
        make_model(Scripted(endless), learning_starts=3).learn(10, callback=RelabelCallback(Reader()))


def test_discounts_must_agree() -> None:
    refused(make_model(Wander(), gamma=0.9), r"model's gamma 0\.9, got 0\.5")
    refused(make_model(Wander(), buffer={"n_steps": 2, "gamma": 0.7}), r"n-step returns need .* 0\.5, got 0\.7")
    with pytest.warns(UserWarning, match="n_steps"):
        model = make_model(Wander(), n_steps=3)
    refused(model, "ignores n_steps=3")


def test_the_buffer_and_the_callback_need_each_other() -> None:
    refused(make_model(Wander(), replay_buffer_class=ReplayBuffer, replay_buffer_kwargs={}), "RelabelReplayBuffer")
    with pytest.raises(ConfigError, match="RelabelCallback"):
        make_model(Wander()).learn(100)
    model = played(2, SOLVED)
    with pytest.raises(ConfigError, match="RelabelCallback"):
        model.learn(1, reset_num_timesteps=False)


def test_a_judge_is_needed_unless_the_weight_is_zero() -> None:
    with pytest.raises(ConfigError, match="weight 2 needs a judge"):
        make_model(Wander()).learn(1, callback=RelabelCallback(None))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"optimize_memory_usage": True}, "optimize_memory_usage"),
        ({"as_scored": "yes"}, "as_scored must be True or False, got 'yes'"),
        ({"lag": -1}, "lag must be an integer of at least 0, got -1"),
        ({"n_steps": 0}, "n_steps must be an integer of at least 1, got 0"),
        ({"n_steps": 2, "space": Wander(True).observation_space}, "n_steps must be 1 for Dict observations"),
    ],
)
def test_buffer_settings_out_of_range(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        empty_buffer(**settings)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: RelabelCallback(None, every=0), "at least 1, got 0"),
        (lambda: RelabelCallback(None, max_queued=0), "max_queued must be an integer of at least 1, got 0"),
        (lambda: RelabelCallback(None, window=0), "window must be an integer of at least 1, got 0"),
        (
            lambda: RelabelCallback(None, max_unscored=20.0),
            "max_unscored must be a finite number >= 0 and <= 1, got 20",
        ),
    ],
)
def test_callback_settings_out_of_range(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make()


# What environments must say


def test_steps_must_be_there_at_reset_and_at_done() -> None:
    silent_start = (ABSENT, [(0.0, 0.5)], "truncated")
    with pytest.raises(ConfigError, match="the reset info has no Step"):
        played(1, silent_start)
    silent_end = (0.1, [(0.0, ABSENT)], "truncated")
    with pytest.raises(ConfigError, match="the done info has no Step"):
        played(1, silent_end)


def test_a_step_must_be_a_step() -> None:
    class Wrong(Scripted):
        def _info(self, progress: Any) -> dict[str, Any]:
            return {"rl_reward": "the arm moved"}

    refused(make_model(Wrong(SOLVED)), "must be a rl_reward Step, got str", judge=Reader())


def test_the_task_comes_from_the_reset_info_then_the_env_then_the_argument() -> None:
    class Told(Scripted):
        def _info(self, progress: Any) -> dict[str, Any]:
            return {**super()._info(progress), "task": f"task of episode {self.number}"}

    class Untold(Scripted):
        task = None  # type: ignore[assignment]

    def asked(env: Any, **kwargs: Any) -> list[str]:
        judge = Reader()
        make_model(env).learn(5, callback=RelabelCallback(judge, **kwargs))
        return judge.tasks

    assert asked(Told(SOLVED, TIMED_OUT), task="unused") == ["task of episode 0", "task of episode 1"]
    assert asked(Scripted(SOLVED, TIMED_OUT), task="unused") == ["follow the script"] * 2
    assert asked(Untold(SOLVED, TIMED_OUT), task="given") == ["given"] * 2
    refused(make_model(Untold(SOLVED)), "no task text")
