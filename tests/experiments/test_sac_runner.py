"""SAC runs: the same code for every arm, a judge that only changes the reward, an evaluation that changes nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from reach_policy import save_reach_policy
from stable_baselines3 import HerReplayBuffer

from rl_reward.adapters.sb3 import RelabelReplayBuffer
from rl_reward.errors import ConfigError
from rl_reward.experiments.config import load
from rl_reward.experiments.sac import SacArm, SacConfig, run
from rl_reward.experiments.sac_training import Average, Examiner, build_model
from rl_reward.types import Step
from training import sac as script

CONFIG = SacConfig(
    env="fetch/FetchReach-v4",
    options={"flat": True},
    total_steps=200,
    eval_every=50,
    eval_episodes=3,
    learning_starts=100,
    net_arch=(8,),
    learning_rate=0.01,
    normalize_obs=True,
)
SPARSE = SacArm("sparse -1/0")
ORACLE = SacArm("oracle", judge="oracle", weight=0.5, form="additive")


def trained(tmp_path, arm, config=CONFIG, seed=0):
    return run(config, arm, seed, tmp_path / "run", lambda done, total: None)


def test_a_run_reports_its_curve_and_leaves_its_last_policy(tmp_path):
    ticks = []
    result = run(CONFIG, ORACLE, 3, tmp_path / "run", lambda done, total: ticks.append((done, total)))
    assert (result.arm, result.seed, result.judge, result.episodes) == ("oracle", 3, "oracle", 3)
    assert result.steps == [0, 50, 100, 150, 200]
    assert result.success == result.extra["final_step_success"]
    assert all(late >= now for late, now in zip(result.extra["latched_success"], result.success, strict=True))
    assert result.extra["unscored_rate"] == 0.0
    assert ticks[-1] == (200, 200)
    assert ticks == sorted(set(ticks))
    assert (tmp_path / "run" / "policy.zip").exists()


def test_evaluating_more_often_does_not_change_what_is_learned(tmp_path):
    often = trained(tmp_path / "often", ORACLE, replace(CONFIG, eval_every=50))
    seldom = trained(tmp_path / "seldom", ORACLE, replace(CONFIG, eval_every=200))
    # Success may agree by chance; the weights would not.
    assert [often.success[0], often.success[-1]] == list(seldom.success)
    np.testing.assert_array_equal(weights(tmp_path / "often"), weights(tmp_path / "seldom"))


def weights(folder):
    from stable_baselines3 import SAC

    policy = SAC.load(folder / "run" / "policy.zip", device="cpu").actor
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in policy.parameters()])


PLAIN = "total_steps: 200, eval_every: 50, eval_episodes: 3, learning_starts: 100, net_arch: [8], normalize_obs: true"
STEERED = (
    "steering: {policy: POLICY, chunk: 3, noise_bound: 1.2, pays: sum}, eval_options: {max_steps: 9}, gamma: 0.98, "
    "n_critics: 3, layer_norm: true, ent_coef: auto_0.05, target_entropy: -2.0, average: 0.05, "
    "total_steps: 120, eval_every: 40, eval_episodes: 2, learning_starts: 60, net_arch: [8], normalize_obs: true"
)


@pytest.mark.parametrize("settings", [PLAIN, STEERED], ids=["plain", "steered"])
def test_the_script_of_the_training_folder_learns_the_same(tmp_path, capsys, settings):
    file, settings = tmp_path / "reach.yaml", settings.replace("POLICY", str(save_reach_policy(tmp_path)))
    file.write_text(
        "{name: reach, kind: sac, illustrative: true, seeds: [0], baselines: [sparse -1/0], primary: oracle, "
        f"sac: {{env: fetch/FetchReach-v4, options: {{flat: true}}, learning_rate: 0.01, {settings}}}, "
        "arms: {sparse -1/0: {}, oracle: {judge: oracle, weight: 0.5, form: additive}}}"
    )
    policy = tmp_path / "script" / "run" / "policy.zip"
    curve = script.main([str(file), "--arm", "oracle", "--seed", "0", "--out", str(policy)])
    (experiment,) = load(file)
    assert curve == trained(tmp_path, experiment.arms["oracle"], experiment.settings).success
    np.testing.assert_array_equal(weights(tmp_path / "script"), weights(tmp_path))
    assert "oracle, seed 0, judge: oracle" in capsys.readouterr().out


def test_evaluations_see_the_running_average_of_the_actor_and_training_does_not():
    actor = torch.nn.Linear(1, 1, bias=False)
    weight = next(actor.parameters())
    torch.nn.init.constant_(weight, 0.0)
    average = Average(actor, 0.25)
    torch.nn.init.constant_(weight, 1.0)
    average.follow()
    average.follow()
    with average.in_place():
        assert weight.item() == 0.4375  # 0.25, then 0.25 + 0.25 * 0.75
    assert weight.item() == 1.0


@pytest.mark.parametrize(("arm", "kind"), [(SPARSE, RelabelReplayBuffer), (ORACLE, RelabelReplayBuffer)])
def test_sparse_and_dense_arms_share_the_buffer(arm, kind):
    buffer = build_model(CONFIG, arm, 0).replay_buffer
    assert type(buffer) is kind
    assert buffer.shaping.weight == arm.weight


def test_the_hindsight_reference_is_stable_baselines_own(tmp_path):
    her = SacArm("her", her=True)
    assert type(build_model(CONFIG, her, 0).replay_buffer) is HerReplayBuffer
    result = trained(tmp_path, her)
    assert result.steps == [0, 50, 100, 150, 200]
    assert result.judge == "none"


def test_evaluation_starts_are_the_same_at_all_times_in_all_arms_and_with_all_seeds():
    first, later, other_arm = [*evaluation_starts(SPARSE, seed=0, times=2), *evaluation_starts(ORACLE, seed=7, times=1)]
    np.testing.assert_array_equal(first, later)
    np.testing.assert_array_equal(first, other_arm)
    goals = {tuple(start[-3:]) for start in first}
    assert len(goals) == CONFIG.eval_episodes


def evaluation_starts(arm, seed, times):
    """Return the first observations of the episodes of each evaluation."""
    examiner, starts = Examiner(CONFIG, arm, lambda done, total: None), []
    examiner.init_callback(build_model(CONFIG, arm, seed))
    reset = examiner.env.reset

    def recording(**options):
        obs, info = reset(**options)
        starts.append(obs)
        return obs, info

    examiner.env.reset = recording
    for _ in range(times):
        examiner.examine(0)
    return np.split(np.array(starts), times)


def test_each_judge_scores_what_its_name_says():
    steps = [Step(data={"progress": progress}) for progress in (0.0, 0.3, 0.9)]

    def values(**options):
        (curve,) = SacArm(**options, weight=1.0).judge_of(CONFIG, seed=0).track_many([("reach", steps)])
        return curve.values

    np.testing.assert_allclose(values(name="oracle", judge="oracle"), [0.0, 0.3, 0.9])
    np.testing.assert_allclose(values(name="constant", judge="constant", value=0.4), [0.4, 0.4, 0.4])
    np.testing.assert_allclose(values(name="simulated()", judge="simulated"), [0.0, 0.3, 0.9], atol=1e-9)
    noisy = values(name="simulated(noise=0.1)", judge="simulated", noise=0.1)
    assert 0.0 < np.abs(noisy - [0.0, 0.3, 0.9]).max() < 0.5
    assert SPARSE.judge_of(CONFIG, seed=0) is None


def test_a_shuffled_arm_hands_out_earlier_curves():
    judge = SacArm("shuffled(oracle)", judge="oracle", shuffled=True, weight=1.0).judge_of(CONFIG, seed=0)
    low, high = ([Step(data={"progress": p})] * 2 for p in (0.1, 0.9))
    first, second = judge.track_many([("reach", low), ("reach", high)])
    np.testing.assert_allclose([first.values, second.values], 0.1)
    assert judge.name == "shuffled(oracle)"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "verifier", "judge": "simulated", "weight": 1.0, "noise": 0.1}, r"must say simulated\(noise=0.1\)"),
        ({"name": "a", "judge": "oracle"}, "weight must be above 0 with a judge and 0 without, got 0.0 with oracle"),
        ({"name": "a", "weight": 1.0}, "weight must be above 0 with a judge and 0 without, got 1.0 with none"),
        ({"name": "a", "judge": "oracle", "weight": 1.0, "her": True}, "set judge: none"),
        ({"name": "a", "shuffled": True}, "nothing to shuffle"),
        ({"name": "a", "judge": "oracle", "weight": 1.0, "noise": 0.1}, "noise is for simulated .* got judge oracle; "),
        ({"name": "a", "judge": "oracle", "weight": 1.0, "value": 0.1}, "value is for constant .* leave value out"),
        ({"name": "a", "cache": "a.sqlite"}, "cache is for a language model as a judge, got judge none"),
        ({"name": "a", "judge": "gpt", "weight": 1.0}, "judge must be none, oracle, .* got 'gpt'"),
    ],
)
def test_an_arm_that_contradicts_itself_is_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        SacArm(**options)


def test_the_reward_belongs_to_the_arm():
    with pytest.raises(ConfigError, match=r"options.reward belongs to each arm"):
        replace(CONFIG, options={"reward": "zero_one"})
