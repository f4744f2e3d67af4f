"""SAC over the noise of a frozen policy: decisions learn, low-level steps are counted, arms differ in reward alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from libero_here import NEEDED
from reach_policy import save_reach_policy
from stable_baselines3 import SAC

import rl_reward.experiments.sac as sac
import rl_reward.experiments.sac_training as sac_training
from rl_reward.backends import Simulated
from rl_reward.envs.noise_space import NoiseSpace
from rl_reward.errors import ConfigError
from rl_reward.experiments.config import load
from rl_reward.experiments.sac import CarryTask, SacArm, SacConfig, Steering, check_captions, run
from rl_reward.experiments.sac_training import Examiner, build_env, build_model
from rl_reward.judges.carry import Scene
from rl_reward.judges.rule import CaptionRule

SPARSE = SacArm("sparse -1/0")
RULE = SacArm("caption-rule", judge="caption-rule", weight=1.0, form="additive")
READER = SacArm("reader", judge="local:reader", reads="captions", weight=1.0, form="additive")
PUSHING, HELD = "fetch/FetchPickAndPlace-v4", Steering("hold", chunk=3, noise_bound=1.0)
CARRY = CarryTask(
    "block",
    start=(Scene((0.3, 0.0, 0.3), (0.0, 0.0, 0.0), (0.0, 0.5, 0.0), 1.0),),
    goal=(Scene((0.0, 0.5, 0.1), (0.0, 0.5, 0.0), (0.0, 0.5, 0.0), 1.0),),
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return str(save_reach_policy(tmp_path_factory.mktemp("policy")))


@pytest.fixture(scope="module")
def config(policy):
    """Episodes of 20 steps are six decisions of three steps and one of two."""
    return SacConfig(
        env="fetch/FetchReach-v4",
        options={"flat": True, "max_steps": 20},
        steering=Steering(policy, chunk=3),
        eval_options={"max_steps": 12},
        total_steps=120,
        eval_every=40,
        eval_episodes=1,
        learning_starts=40,
        net_arch=(8,),
        n_critics=3,
        layer_norm=True,
        ent_coef="auto_0.05",
        target_entropy=-2.0,
        learning_rate=0.01,
        gamma=0.98,
        normalize_obs=True,
    )


def trained(config, arm, folder, seed=0):
    return run(config, arm, seed, folder, lambda done, total: None)


def weights(folder):
    actor = SAC.load(folder / "policy.zip", device="cpu").actor
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in actor.parameters()])


@pytest.fixture(scope="module")
def sparse(config, tmp_path_factory):
    """The folder of a sparse run."""
    folder = tmp_path_factory.mktemp("sparse")
    trained(config, SPARSE, folder)
    return folder


def test_a_curve_counts_low_level_steps(config, tmp_path):
    ticks = []
    result = run(config, RULE, 0, tmp_path, lambda done, total: ticks.append((done, total)))
    assert result.steps == [0, 40, 80, 120]
    assert ticks[-1] == (120, 120) and ticks == sorted(set(ticks))
    assert (result.judge, result.extra["unscored_rate"]) == ("caption-rule", 0.0)
    model = SAC.load(tmp_path / "policy.zip", device="cpu")
    # Six episodes of seven decisions; the one after the last of them would be a decision too many.
    assert model.num_timesteps == 42
    assert type(model.action_space) is NoiseSpace


def test_the_learner_counts_and_discounts_decisions(config):
    model = build_model(config, RULE, 0)
    assert model.learning_starts == 13  # 40 steps
    assert model.gamma == model.replay_buffer.shaping.gamma == pytest.approx(0.98**3)
    assert model.action_space == NoiseSpace(1.5, 4)
    assert model.get_env().get_attr("decision_gamma")[0] == model.gamma


def test_the_recipe_reaches_the_learner(config):
    model = build_model(config, SPARSE, 0)
    assert len(model.critic.q_networks) == 3
    assert any(isinstance(layer, torch.nn.LayerNorm) for layer in model.critic.q_networks[0])
    assert model.log_ent_coef.exp().item() == pytest.approx(0.05)
    assert model.target_entropy == -2.0
    plain = build_model(replace(config, layer_norm=False, n_critics=1, ent_coef=0.2, target_entropy="auto"), SPARSE, 0)
    assert len(plain.critic.q_networks) == 1
    assert not any(isinstance(layer, torch.nn.LayerNorm) for layer in plain.critic.modules())
    assert plain.ent_coef_tensor.item() == pytest.approx(0.2)


def test_training_and_evaluation_differ_where_the_config_says_so(config):
    training = build_env(config, RULE)
    examiner = Examiner(config, RULE, lambda done, total: None)
    assert (training.config.max_steps, training.config.stride) == (20, 3)
    assert (examiner.env.config.max_steps, examiner.env.config.stride) == (12, 10**9)
    assert examiner.env.chunk == training.chunk == 3
    assert (training.pays, training.gamma) == ("last", 0.98)


def test_arms_of_weight_0_learn_the_same_and_a_judged_one_something_else(config, sparse, tmp_path):
    trained(config, SacArm("sparse, additive", form="additive"), tmp_path / "additive")
    np.testing.assert_array_equal(weights(tmp_path / "additive"), weights(sparse))
    trained(config, RULE, tmp_path / "rule")
    assert not np.array_equal(weights(tmp_path / "rule"), weights(sparse))


def test_evaluating_less_often_does_not_change_what_is_learned(config, sparse, tmp_path):
    result = trained(replace(config, eval_every=120), SPARSE, tmp_path)
    assert result.steps == [0, 120]
    np.testing.assert_array_equal(weights(tmp_path), weights(sparse))


def test_the_rule_reads_captions_in_words(config, tmp_path):
    result = trained(replace(config, options={**config.options, "numbers": False}), RULE, tmp_path)
    assert result.extra["unscored_rate"] == 0.0


def test_two_environments_step_together(config, tmp_path):
    # Learning begins once the first episode of each can be scored: two of seven decisions.
    result = trained(replace(config, n_envs=2, learning_starts=42), SPARSE, tmp_path)
    assert result.steps == [0, 40, 80, 120]
    # Both play three episodes.
    assert SAC.load(tmp_path / "policy.zip", device="cpu").num_timesteps == 42


class Reader(Simulated):
    """Reads distances as the rule does, and remembers what it was asked."""

    identity = "reader"

    def __init__(self):
        super().__init__(lambda request: CaptionRule().progress(request.text))
        self.asked = []

    async def reply(self, request):
        self.asked.append(request.text)
        return await super().reply(request)


def test_a_model_reads_each_caption_once_and_a_cache_answers_the_next_run(config, tmp_path, monkeypatch):
    config = replace(config, env=PUSHING, steering=HELD, carry=CARRY)
    arm = replace(READER, cache=str(tmp_path / "new" / "captions.sqlite"))
    readers = []
    monkeypatch.setattr(sac, "model_backend", lambda judge, base_url: readers.append(Reader()) or readers[-1])
    first = trained(config, arm, tmp_path / "first")
    again = trained(config, arm, tmp_path / "again")
    asked, asked_again = (reader.asked for reader in readers)
    assert len(asked) == len(set(asked)) == first.judge_calls > 10
    assert (asked_again, again.judge_calls) == ([], 0)
    assert first.extra["unscored_rate"] == again.extra["unscored_rate"] == 0.0
    assert any("The block is" in text for text in asked), "the ends of the task are asked about"
    np.testing.assert_array_equal(weights(tmp_path / "first"), weights(tmp_path / "again"))


@pytest.mark.parametrize(
    ("env", "thing", "message"),
    [
        (PUSHING, "bloc", "thing of carry is 'bloc', the environment's captions call it 'block'; write that"),
        ("fetch/FetchReach-v4", "block", "captions tell of no thing to move and its target"),
    ],
)
def test_ends_of_another_thing_are_refused_before_the_model_is_asked(config, env, thing, message, monkeypatch):
    reader = Reader()
    monkeypatch.setattr(sac, "model_backend", lambda judge, base_url: reader)
    config = replace(config, env=env, steering=None, carry=replace(CARRY, thing=thing))
    refused(message, trained, config, READER, "nowhere")
    assert reader.asked == []
    refused(message, check_captions, config, READER, build_env(config, READER))
    check_captions(config, RULE, build_env(config, RULE))


def test_checking_the_captions_changes_nothing_that_is_learned(config, tmp_path, monkeypatch):
    monkeypatch.setattr(sac, "model_backend", lambda judge, base_url: Reader())
    config = replace(config, env=PUSHING, steering=HELD, carry=CARRY)
    trained(config, READER, tmp_path / "checked")
    monkeypatch.setattr(sac_training, "check_captions", lambda *arguments: None)
    trained(config, READER, tmp_path / "unchecked")
    np.testing.assert_array_equal(weights(tmp_path / "checked"), weights(tmp_path / "unchecked"))


def test_ends_that_are_swapped_are_refused():
    refused(
        r"got 0.500 m in a goal and 0.000 m in a start; are they swapped\?", CarryTask, "block", CARRY.goal, CARRY.start
    )


def test_captions_need_both_ends_of_the_task(config, monkeypatch):
    monkeypatch.setattr(sac, "model_backend", lambda judge, base_url: Reader())
    refused(r"captions.* needs both ends of the task; add them to sac as carry", READER.judge_of, config, 0)


def refused(message, call, *arguments, **options):
    with pytest.raises(ConfigError, match=message) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ent_coef": "auto_0"}, r"the start of ent_coef must be .* got 0"),
        ({"ent_coef": "auto_x"}, """ent_coef, where it is not "auto" or "auto_START", .* got 'auto_x'"""),
        ({"target_entropy": "much"}, "target_entropy, where it is not \"auto\", .* got 'much'"),
        ({"n_envs": 20}, "eval_every must be at least n_envs x chunk = 60 steps, got 40"),
        ({"n_critics": 0}, "n_critics must be an integer of at least 1, got 0"),
        ({"eval_options": {"reward": "zero_one"}}, "options.reward belongs to each arm"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(config, options, message):
    refused(message, replace, config, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk": 0}, "chunk must be an integer of at least 1, got 0"),
        ({"noise_bound": 0}, "noise_bound must be a finite number > 0, got 0"),
    ],
)
def test_a_wrong_number_of_steering_is_one_clear_line(options, message):
    refused(message, Steering, "ketchup", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "repeats must be an integer of at least 1, got 0"),
        ({"repeats": 3, "reads": "steps"}, "reads: steps shows none, got 3; set reads: captions, or leave repeats out"),
        (
            {"repeats": 3, "judge": "oracle", "reads": "steps"},
            "repeats is for a language model as a judge, got judge oracle",
        ),
    ],
)
def test_wrong_repeats_of_a_judge_are_one_clear_line(options, message):
    refused(message, replace, READER, **options)


def test_a_caption_is_asked_as_often_as_the_arm_repeats(config, monkeypatch):
    reader = Reader()
    monkeypatch.setattr(sac, "model_backend", lambda judge, base_url: reader)
    config = replace(config, env=PUSHING, steering=HELD, carry=CARRY)
    _, info = build_env(config, READER).reset(seed=0)
    judge = replace(READER, repeats=3).judge_of(config, 0)
    judge.track_many([("Push the block.", [info["rl_reward"]])])
    assert len(reader.asked) == 3 * judge.asked > 0


def test_a_policy_that_does_not_fit_is_one_clear_line(config, tmp_path):
    def steering(*arguments, **options):
        return replace(config, steering=Steering(*arguments, **options))

    policy = config.steering.policy
    refused("chunk must be .* at most 5, got 6", build_env, steering(policy, chunk=6), SPARSE)
    refused("must be one of ketchup, or a .safetensors file", build_env, steering("mustard"), SPARSE)
    refused("makes actions of 7 numbers, the env takes shape", build_env, steering("ketchup"), SPARSE)
    narrow = str(save_reach_policy(tmp_path, obs_dim=5))
    refused("reads observations of 5 numbers, the env's have", build_env, steering(narrow, chunk=3), SPARSE)
    strided = replace(config, options={"flat": True, "stride": 2})
    refused("stride must divide the chunk of 3 steps, got 2", build_env, strided, SPARSE)


@pytest.mark.libero
@NEEDED[1]
def test_the_ketchup_experiment_runs(tmp_path):
    (experiment,) = load(Path(__file__).parents[2] / "configs" / "sac" / "libero_ketchup.yaml")
    short = {**experiment.settings.options, "max_steps": 20}
    config = replace(
        experiment.settings, options=short, total_steps=60, eval_every=60, eval_episodes=1, learning_starts=20
    )
    reader = experiment.arms["gemma-3-270m, potential"]
    check_captions(config, reader, build_env(config, reader))
    result = trained(config, experiment.arms["caption-rule"], tmp_path)
    assert (result.steps, result.episodes, result.judge) == ([0, 60], 1, "caption-rule")
    assert result.extra["unscored_rate"] == 0.0
    model = SAC.load(tmp_path / "policy.zip", device="cpu")
    assert (model.num_timesteps, model.observation_space.shape, model.action_space.shape) == (6, (29,), (7,))
