"""GRPO runs: arms that differ in their reward alone, seeds that reproduce, and any dataset and model."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from rl_reward import Score
from rl_reward.adapters.trl.step_reward import NOTHING_YET
from rl_reward.backends import Simulated
from rl_reward.errors import ConfigError
from rl_reward.experiments import config as configs
from rl_reward.experiments import grpo_judges
from rl_reward.experiments.grpo import GrpoArm, GrpoConfig, JudgeConfig, run
from rl_reward.experiments.grpo_judges import ShuffledInGroups, judge_of
from rl_reward.experiments.math_data import load_dataset

ROOT = Path(__file__).parents[2]
SHORT = GrpoConfig(group_size=4, prompts_per_step=4, max_steps=2, eval_every=1, eval_problems=20)
SPARSE = GrpoArm("sparse")
ORACLE = GrpoArm("oracle", "oracle", 0.5)
STAND_IN = GrpoArm("stand-in verifier", "stand-in", 0.5)


def no_tick(done, total):
    pass


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"judge": "gpt"}, "openai:MODEL"),
        ({"judge": "openai:"}, "openai:MODEL"),
        ({"judge": "none", "weight": 0.5}, "weight"),
        ({"judge": "oracle", "weight": 0.0}, "weight"),
        ({"judge": "oracle", "weight": -1.0}, "weight"),
        ({"judge": "none", "shuffled": True}, "shuffle"),
        ({"judge": "stand-in", "weight": 0.5}, "stand-in"),
        ({"judge": "oracle", "weight": 0.5, "noise": 0.1}, "simulated"),
        ({"judge": "oracle", "credit": "difference"}, "weight"),
        ({"judge": "oracle", "weight": 0.5, "credit": "difference"}, "credit_weight"),
        ({"judge": "oracle", "credit": "to_go", "credit_weight": 0.5, "mode": "tournament"}, "by itself"),
    ],
)
def test_an_arm_whose_parts_do_not_belong_together_is_refused(fields, says):
    with pytest.raises(ConfigError, match=says):
        GrpoArm(name="oracle verifier", **fields)


@pytest.mark.parametrize(
    "fields",
    [{"group_size": 1}, {"max_steps": 0}, {"eval_every": 0}, {"micro_batches": 3}, {"scale_rewards": "std"}],
)
def test_numbers_out_of_range_are_refused_by_name(fields):
    with pytest.raises(ConfigError, match=next(iter(fields))):
        GrpoConfig(**fields)


def test_a_judge_of_additions_is_not_asked_about_anything_else():
    with pytest.raises(ConfigError, match="reads additions only, got dataset 'math'"):
        judge_of(GrpoConfig(dataset="math"), ORACLE, 0)


def test_the_oracle_pays_the_fraction_of_right_numbers():
    scores = judge_of(SHORT, ORACLE, 0).score_many(
        [("74+47=", "11;12#121"), ("74+47=", "11;12#120"), ("74+47=", "11;11#120"), ("74+47=", "(empty answer)")]
    )
    assert [score.value for score in scores] == pytest.approx([1, 2 / 3, 1 / 3, 0], abs=1e-6)


class Numbered:
    """Scores the i-th pair i."""

    async def ascore_many(self, pairs, /, *, criteria=None):
        return [Score(float(i), None, {}, {}, 1, "logprob") for i in range(len(pairs))]


def test_the_shuffled_control_keeps_scores_in_their_group_and_loses_their_owner():
    def shuffled(seed):
        judge = ShuffledInGroups(Numbered(), seed)
        asked = [("one", "answer")] * 4 + [("another", "answer")] * 4
        calls = [asyncio.run(judge.ascore_many(asked)) for _ in range(3)]
        return np.array([[score.value for score in call] for call in calls])

    assert sorted(shuffled(0)[0][:4]) == [0, 1, 2, 3]
    assert sorted(shuffled(0)[0][4:]) == [4, 5, 6, 7]
    assert (shuffled(0) == shuffled(0)).all()
    assert (shuffled(0) != shuffled(1)).any()
    assert (shuffled(0)[0] != shuffled(0)[1]).any()
    assert (shuffled(0) != np.arange(8)).any()


def test_what_the_oracle_says_of_steps_and_pairs():
    judge = judge_of(SHORT, ORACLE, 0)
    curve = judge.track("74+47=", ["11;", "12#", "120"])
    assert curve.values == pytest.approx([1 / 3, 2 / 3, 2 / 3], abs=1e-6)
    assert judge.track("74+47=", [NOTHING_YET]).values == pytest.approx([0.0], abs=1e-6)
    pair = judge.compare("74+47=", "11;12#121", "11;11#120")
    assert (pair.first, pair.second) == pytest.approx((1, 1 / 3), abs=1e-6)


def test_the_shuffled_control_covers_steps_and_tournaments():
    judge = judge_of(SHORT, replace(ORACLE, name="shuffled(oracle)", shuffled=True), 0)
    workings = ["11;12#121", "11;12#120", "11;11#120", "1;1#1"]
    (ranking,) = asyncio.run(judge.arank_many([("74+47=", workings)]))
    (true,) = asyncio.run(judge.verifier.arank_many([("74+47=", workings)]))
    assert sorted(ranking.scores) == pytest.approx(sorted(true.scores)) and list(ranking.scores) != list(true.scores)
    episodes = [("74+47=", ["11;", "12#", "121"]), ("74+47=", [NOTHING_YET]), ("74+47=", ["1;", "2#", "1"])]
    curves = [asyncio.run(judge.atrack_many(episodes)) for _ in range(8)]
    assert {round(float(three[0].values[-1]), 3) for three in curves} == {0.0, 1.0}
    assert {round(float(three[1].values[-1]), 3) for three in curves} == {0.0}, "other lengths are another group"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a function that trains an arm once and returns its result and its last weights."""
    finished = {}

    def train(arm, seed, copy=0):
        if (arm, seed, copy) not in finished:
            out = tmp_path_factory.mktemp("run")
            result = run(SHORT, arm, seed, out, no_tick)
            finished[arm, seed, copy] = result, load_file(out / "model.safetensors")
        return finished[arm, seed, copy]

    return train


def same(first, second):
    return all(np.array_equal(first[name], second[name]) for name in first)


def test_a_run_tells_its_curve_its_judge_and_its_cost(trained):
    result, _ = trained(STAND_IN, 0)
    assert (result.arm, result.judge, result.seed) == ("stand-in verifier", "stand-in verifier", 0)
    assert result.steps == [0, 1, 2]
    assert len(result.success) == 3 and result.episodes == 20
    assert all(0 <= rate <= 1 and (rate * 20).is_integer() for rate in result.success)
    assert 2 <= result.judge_calls <= 32  # 2 steps of 16 completions, equal ones asked once
    assert result.judge_seconds > 0
    assert result.extra["completions"] == [0, 16, 32]
    assert result.extra["unscored_rate"] == 0
    assert 0 <= result.extra["correct_agreement"] <= 1
    json.dumps(result.extra)


def test_the_sparse_arm_has_no_judge(trained):
    result, _ = trained(SPARSE, 0)
    assert (result.judge, result.judge_calls, result.judge_seconds) == ("none", 0, 0.0)
    assert "unscored_rate" not in result.extra  # nothing was asked


def test_a_seed_reproduces_and_another_does_not(trained):
    assert trained(SPARSE, 0)[0].success == trained(SPARSE, 0, copy=1)[0].success
    assert same(trained(SPARSE, 0)[1], trained(SPARSE, 0, copy=1)[1])
    assert not same(trained(SPARSE, 0)[1], trained(SPARSE, 1)[1])


def test_arms_start_equal_and_differ_by_their_reward_alone(trained, monkeypatch):
    shuffled = replace(STAND_IN, name="shuffled(stand-in verifier)", shuffled=True)
    arms = [trained(arm, 0) for arm in (SPARSE, ORACLE, STAND_IN, shuffled)]
    assert len({result.success[0] for result, _ in arms}) == 1
    # The first completions were drawn before any reward was paid.
    assert len({result.extra["train_accuracy"][0] for result, _ in arms}) == 1
    weights = [weights for _, weights in arms]
    assert not any(same(weights[i], weights[j]) for i in range(4) for j in range(i))


def test_weight_zero_is_no_influence(trained, monkeypatch):
    """The sparse arm trains bit for bit alike whatever its judge says."""
    from rl_reward.experiments import grpo_training

    monkeypatch.setattr(grpo_training, "judge_of", lambda config, arm, seed: judge_of(config, ORACLE, seed))
    assert same(trained(SPARSE, 0)[1], trained(SPARSE, 0, copy="with the oracle's scores")[1])


@pytest.mark.parametrize(
    "arm",
    [
        GrpoArm("oracle, tournament", "oracle", 0.5, mode="tournament"),
        GrpoArm("oracle, step credit", "oracle", credit="difference", credit_weight=0.5),
        GrpoArm("stand-in verifier, step credit", "stand-in", credit="to_go", credit_weight=0.5),
        GrpoArm("simulated(noise=0.2)", "simulated", 0.5, noise=0.2, order_within="correctness"),
    ],
    ids=lambda arm: arm.name,
)
def test_every_way_to_judge_trains_from_the_same_start(arm, trained):
    result, weights = trained(arm, 0)
    assert result.success[0] == trained(SPARSE, 0)[0].success[0]
    assert result.judge_calls > 0 and not same(weights, trained(SPARSE, 0)[1])


def test_the_long_additions_train_through_the_same_code(tmp_path):
    config = replace(SHORT, model="long-additions", dataset="long-additions", max_completion_length=20, max_steps=1)
    result = run(config, STAND_IN, 0, tmp_path / "out", no_tick)
    assert result.steps == [0, 1] and result.judge_calls > 0


def test_it_leaves_the_terminal_to_its_caller(tmp_path, capfd):
    ticks = []
    run(SHORT, SPARSE, 2, tmp_path, lambda done, total: ticks.append((done, total)))
    captured = capfd.readouterr()
    assert ticks == [(1, 2), (2, 2)]
    assert captured.out == ""
    assert captured.err == ""


@pytest.fixture
def math_file(tmp_path):
    rows = [{"problem": f"{i}+{i}=", "solution": f"It is \\boxed{{{2 * i}}}."} for i in range(10, 30)]
    file = tmp_path / "math.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


COLUMNS = {"split": "train", "eval_split": "", "prompt": "problem", "answer": "solution", "eval_problems": 5}


def test_a_file_becomes_problems_and_the_last_rows_are_held_out(math_file):
    data = load_dataset(str(math_file), **COLUMNS, instruction="")
    assert [row["prompt"] for row in data.held_out] == [f"{i}+{i}=" for i in range(25, 30)]
    assert len(data.train) == 15
    assert data.correct(r"so \boxed{50}", data.held_out[0]["answer"])
    asked = load_dataset(str(math_file), **COLUMNS, instruction="Box it.").train[0]["prompt"]
    assert asked == [{"role": "user", "content": "10+10=\n\nBox it."}]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"prompt": "question"}, "column 'question' is not in dataset .*; it has problem, solution"),
        ({"answer": "final"}, "column 'final' is not in dataset .*; it has problem, solution"),
        ({"eval_problems": 20}, "too few rows"),
        ({"eval_split": "test"}, "a file has no splits"),
    ],
)
def test_a_dataset_that_does_not_fit_is_refused_in_one_line(math_file, change, says):
    with pytest.raises(ConfigError, match=says) as caught:
        load_dataset(str(math_file), **{**COLUMNS, **change}, instruction="")
    assert "\n" not in str(caught.value)


def test_no_such_dataset_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.jsonl"):
        load_dataset(str(tmp_path / "missing.jsonl"), **COLUMNS, instruction="")


def test_any_model_and_any_dataset_train_through_the_same_config(math_file, tmp_path):
    from rl_reward.experiments.additions.policy import POLICIES

    config = replace(
        SHORT,
        model=str(POLICIES["additions"]),
        dataset=str(math_file),
        prompt_column="problem",
        answer_column="solution",
        micro_batches=2,
        eval_problems=4,
        eval_batch=3,
        kl=0.1,
        trainer={"weight_decay": 0.1},
    )
    result = run(config, SPARSE, 0, tmp_path / "out", no_tick)
    assert result.steps == [0, 1, 2]
    assert result.success == [0, 0, 0]  # the policy of the additions draws no boxes
    with pytest.raises(ConfigError, match="cannot load model"):
        run(replace(config, model=str(tmp_path / "nothing")), SPARSE, 0, tmp_path / "out", no_tick)


@pytest.mark.parametrize("name", ["additions", "qwen3_8b_math"])
def test_the_configs_that_ship_are_read_whole(name):
    (experiment,) = configs.load(ROOT / "configs" / "grpo" / f"{name}.yaml")
    assert isinstance(experiment.settings, GrpoConfig)
    assert isinstance(experiment.settings.judge, JudgeConfig)
    for arm in experiment.arms.values():
        assert isinstance(arm, GrpoArm)
        judge_of(experiment.settings, arm, 0)


def test_the_paper_scale_config_is_the_papers():
    (experiment,) = configs.load(ROOT / "configs" / "grpo" / "qwen3_8b_math.yaml")
    config = experiment.settings
    assert (config.group_size, config.prompts_per_step, config.learning_rate) == (16, 64, 2e-5)
    assert (config.max_completion_length, experiment.arms["verifier"].weight) == (512, 0.1)


def test_the_flat_script_trains_the_same_policy(trained, tmp_path, capsys):
    from training.grpo import main

    file = tmp_path / "short.yaml"
    file.write_text(
        "name: short\nkind: grpo\nillustrative: true\nseeds: [0]\nbaselines: [sparse]\nprimary: oracle\n"
        "grpo: {group_size: 4, prompts_per_step: 4, max_steps: 2, eval_every: 1, eval_problems: 20}\n"
        "arms:\n  sparse: {}\n  oracle: {judge: oracle, weight: 0.5}\n"
    )
    curve = main([str(file), "--arm", "oracle", "--seed", "0", "--out", str(tmp_path / "policy")])
    result, weights = trained(ORACLE, 0)
    assert curve == result.success
    assert same(weights, load_file(tmp_path / "policy" / "model.safetensors"))
    assert "exact answers" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------- a judge's own examples


def test_exemplars_of_ones_own_are_read_from_a_file_and_asked(tmp_path, monkeypatch):
    file = tmp_path / "judged.jsonl"
    shots = [{"task": "1+1=", "candidate": "2", "level": "9"}, {"task": "5+5=", "candidate": "3", "level": "1"}]
    file.write_text("".join(json.dumps(shot) + "\n" for shot in shots))
    asked = []
    judge = Simulated(lambda request: asked.append(request) or 0.5)
    monkeypatch.setattr(grpo_judges, "_backend", lambda *_: judge)
    arm = GrpoArm("judge", judge="local:some", weight=0.1)
    verifier = judge_of(GrpoConfig(judge=JudgeConfig(exemplars=str(file))), arm, 0)
    assert verifier.score("2+2=", "4").value is not None
    told = "".join(message.text for message in asked[0].messages)
    places = [told.index(f"Task: {task}") for task in ("1+1=", "5+5=", "2+2=")]
    assert places == sorted(places) and told.count("Task: ") == 3, "the file's examples, then the question"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "holds no line"),
        ("{}", r"judged.jsonl:1 must be .*got '\{\}'"),
        ("2", "judged.jsonl:1 must be"),
        (None, "cannot read exemplars .*No such file"),
    ],
)
def test_a_file_that_holds_no_exemplars_is_one_line(tmp_path, content, says):
    file = tmp_path / "judged.jsonl"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=says):
        grpo_judges.exemplars_of(file)


def test_two_sets_of_examples_are_refused():
    with pytest.raises(ConfigError, match="two sets of examples"):
        JudgeConfig(few_shot=True, exemplars="mine.jsonl")


@pytest.mark.parametrize("unheard", [{"criteria": "agent"}, {"analysis": "sampled"}])
def test_settings_that_a_judge_by_example_does_not_hear_are_refused(unheard):
    with pytest.raises(ConfigError, match=f"sees examples alone has no {next(iter(unheard))}"):
        JudgeConfig(few_shot=True, **unheard)


def test_a_judge_by_example_is_asked_as_often_as_the_config_says(monkeypatch):
    asked = []

    def indifferent(request):
        asked.append(request)
        return 0.5

    monkeypatch.setattr(grpo_judges, "model_backend", lambda *_, **__: Simulated(indifferent))
    config = GrpoConfig(judge=JudgeConfig(few_shot=True, repeats=3))
    judge_of(config, GrpoArm("m", judge="local:m", weight=0.1), 0).score("1+1=", "2")
    assert len(asked) == 3
