"""Configurations: what a file may say, and the one line that answers a mistake."""

from pathlib import Path

import pytest

from rl_reward.errors import ConfigError
from rl_reward.experiments.config import arm_called, load
from rl_reward.experiments.sac import SacArm, SacConfig

ROOT = Path(__file__).parents[2]
GOOD = """
name: reach
kind: sac
illustrative: true
seeds: [0, 1]
baselines: [sparse -1/0]
primary: oracle
sac:
  env: fetch/FetchReach-v4
  total_steps: 1000
  eval_every: 500
  net_arch: [32, 16]
  gamma: 1
arms:
  sparse -1/0: {}
  oracle: {judge: oracle, weight: 0.5, form: additive}
"""


def loaded(tmp_path, text):
    (tmp_path / "my.yaml").write_text(text)
    return load(tmp_path / "my.yaml")


def refusal(tmp_path, old, new):
    """Return the message that answers `GOOD` with `old` replaced by `new`, checked to be one line."""
    assert old in GOOD
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, GOOD.replace(old, new))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_file_becomes_typed_dataclasses(tmp_path):
    (experiment,) = loaded(tmp_path, GOOD)
    assert experiment.seeds == (0, 1)
    assert experiment.settings == SacConfig(
        env="fetch/FetchReach-v4", total_steps=1000, eval_every=500, net_arch=(32, 16), gamma=1.0
    )
    assert isinstance(experiment.settings.gamma, float)
    assert experiment.arms["oracle"] == SacArm("oracle", judge="oracle", weight=0.5, form="additive")


@pytest.mark.parametrize(
    ("written", "number"), [("5e-1", 0.5), ("5E-1", 0.5), ("1e-03", 0.001), (".5e-1", 0.05), ("1.0e-2", 0.01)]
)
def test_a_number_needs_no_point_before_its_exponent(tmp_path, written, number):
    (experiment,) = loaded(tmp_path, GOOD.replace("gamma: 1", f"gamma: {written}"))
    assert experiment.settings.gamma == number


def test_a_file_may_hold_several_experiments(tmp_path):
    several = "experiments:\n" + "".join(
        "  -" + "\n    ".join(GOOD.replace("name: reach", f"name: {name}").splitlines())[4:] + "\n" for name in "ab"
    )
    assert [experiment.name for experiment in loaded(tmp_path, several)] == ["a", "b"]


@pytest.mark.parametrize("path", sorted(ROOT.glob("configs/**/*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_file_loads_and_keeps_the_tuning_seeds_out(path):
    for experiment in load(path):
        assert not set(experiment.seeds) & set(range(100, 105))


def test_an_unknown_key_is_named_with_the_nearest_known_one_and_the_file(tmp_path):
    message = refusal(tmp_path, "gamma: 1", "gama: 1")
    assert message.startswith(f"unknown key sac.gama in {tmp_path / 'my.yaml'}, did you mean 'gamma'?")
    assert "unknown key arms.oracle.wait" in refusal(tmp_path, "weight: 0.5", "wait: 0.5")
    assert "did you mean 'seeds'?" in refusal(tmp_path, "seeds:", "sedes:")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("gamma: 1", "gamma: high", "sac.gamma in {file} must be a number, got 'high' (str)"),
        ("gamma: 1", "gamma: '1e-3'", "must be a number, got '1e-3' (str); write 0.001 without quotes"),
        ("total_steps: 1000", "total_steps: 1e9x", "must be a whole number, got '1e9x' (str)"),
        ("gamma: 1", "gamma: .nan", "sac.gamma in {file} must be a finite number, got nan"),
        ("gamma: 1", "gamma: true", "must be a number, got True (bool)"),
        ("total_steps: 1000", "total_steps: 1000.5", "must be a whole number, got 1000.5 (float)"),
        ("total_steps: 1000", "total_steps: true", "must be a whole number, got True (bool)"),
        ("illustrative: true", "illustrative: 1", "must be true or false, got 1 (int)"),
        ("net_arch: [32, 16]", "net_arch: 32", "sac.net_arch in {file} must be a list, got 32 (int)"),
        (
            "net_arch: [32, 16]",
            "net_arch: [32, big]",
            "sac.net_arch.1 in {file} must be a whole number, got 'big' (str)",
        ),
        ("name: reach", "name: 3", 'name in {file} must be text, got 3 (int); write "3" in quotes'),
        ("kind: sac", "kind: ppo", "kind in {file} must be one of sac, grpo, got 'ppo' (str)"),
        ("form: additive", "form: add", "must be one of additive, step_cost, difference, potential, got 'add' (str)"),
        ("seeds: [0, 1]", "seeds: [0, 0]", "seeds must be one or more different numbers, got [0, 0]"),
        ("primary: oracle", "primary: oracel", "no arm is called 'oracel', did you mean 'oracle'?"),
        ("  total_steps: 1000\n", "", "sac.total_steps in {file} is missing; add it"),
        ("kind: sac\n", "", "kind in {file} is missing; add it"),
        ("weight: 0.5", "weight: 0", "arms.oracle in {file}: weight must be above 0 with a judge"),
        (
            "eval_every: 500",
            "eval_every: 300",
            "sac in {file}: n_envs must divide eval_every and eval_every must divide",
        ),
    ],
)
def test_a_wrong_value_is_answered_with_what_was_expected(tmp_path, old, new, said):
    assert said.format(file=tmp_path / "my.yaml") in refusal(tmp_path, old, new)


def test_a_file_that_is_missing_or_no_mapping_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*none.yaml: No such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="is not YAML"):
        loaded(tmp_path, "a: [1")
    with pytest.raises(ConfigError, match="must hold keys and values, got"):
        loaded(tmp_path, "- 1\n- 2")


def test_an_arm_is_found_by_the_beginning_of_its_name(tmp_path):
    (experiment,) = loaded(tmp_path, GOOD)
    assert arm_called("ora", experiment).name == "oracle"
    with pytest.raises(ConfigError, match="no single arm is called 'x'; arms: sparse -1/0, oracle"):
        arm_called("x", experiment)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  gamma: 1\n", "  gamma: 1\n  gamma: 0.9\n", "'gamma' stands twice"),
        ("name: reach", "name: ../reach", "name must be usable as a folder"),
        ("seeds: [0, 1]", "seeds: [-1]", "a seed must be an integer of at least 0"),
        ("gamma: 1", "batch_size: 0", "batch_size must be an integer of at least 1, got 0"),
        ("gamma: 1", "learning_rate: -1.0", "learning_rate must be a finite number > 0, got -1"),
        ("[32, 16]", "[0]", "a layer of net_arch must be an integer of at least 1, got 0"),
        ("gamma: 1", "ent_coef: much", "ent_coef"),
        ("form: additive", "form: step_cost", "set reward: zero_one"),
    ],
)
def test_values_that_would_fail_later_are_refused_at_once(tmp_path, old, new, said):
    assert said in refusal(tmp_path, old, new)


def test_experiments_of_one_file_have_different_names(tmp_path):
    one = "  -" + "\n    ".join(GOOD.splitlines())[4:] + "\n"
    for text in ("experiments: []\n", f"experiments:\n{one}{one}"):
        with pytest.raises(ConfigError, match="each with its own name"):
            loaded(tmp_path, text)


def test_merged_keys_may_be_written_again(tmp_path):
    merged = GOOD.replace("oracle: {judge", "oracle: &o {judge").rstrip() + "\n  other: {<<: *o, weight: 0.7}\n"
    assert loaded(tmp_path, merged)[0].arms["other"].weight == 0.7


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: " + b"[" * 100_000, b"a: " + b"9" * 5000])
def test_what_is_no_text_or_too_deep_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "my.yaml").write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load(tmp_path / "my.yaml")
    assert "\n" not in str(error.value) and len(str(error.value)) < 600
