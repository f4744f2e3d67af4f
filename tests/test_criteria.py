import pytest

from rl_reward import ConfigError, Criterion
from rl_reward.criteria import builtin, load


def test_weights_are_normalised():
    a, b = load({"A": "is it a?", "B": {"description": "is it b?", "weight": 3}})
    assert (a.name, a.weight, b.description, b.weight) == ("A", 0.25, "is it b?", 0.75)


@pytest.mark.parametrize("name", ["math", "agent", "manipulation"])
def test_built_in_sets(name):
    assert name in builtin()
    assert sum(criterion.weight for criterion in load(name)) == pytest.approx(1.0)


def test_markdown_and_toml_files_say_the_same(tmp_path):
    markdown, toml = tmp_path / "c.md", tmp_path / "c.toml"
    markdown.write_text("# How to judge\n\n## Truth (weight 3)\nIs it\ntrue?\n\n## Form\nIs it tidy?\n")
    toml.write_text('[Truth]\ndescription = "Is it true?"\nweight = 3\n[Form]\ndescription = "Is it tidy?"\n')
    assert (
        load(markdown)
        == load(str(toml))
        == (Criterion("Truth", "Is it true?", 0.75), Criterion("Form", "Is it tidy?", 0.25))
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({}, "no criterion"),
        ("maths", "did you mean 'math'"),
        ("missing.toml", "cannot be read"),
        ({"A": {"description": "x", "wieght": 2}}, r"\{description, weight\}"),
        ({"A": {"description": "x", "weight": 0}}, "must be a finite number > 0, got 0"),
        ({"A": {"description": "x", "weight": "much"}}, "must be a number, got 'much'"),
        ({"A": " "}, "description of criterion 'A' must be a text that is not empty"),
        ([Criterion("A", "x"), Criterion("A", "y")], "different names"),
    ],
)
def test_bad_criteria_are_refused(source, message):
    with pytest.raises(ConfigError, match=message):
        load(source)


def test_a_file_that_is_not_toml_is_refused(tmp_path):
    (tmp_path / "c.toml").write_text("Truth: yes")
    with pytest.raises(ConfigError, match="is not TOML"):
        load(tmp_path / "c.toml")
