import numpy as np
import pytest

from rl_reward import ConfigError, ScoreScale


def test_first_level_is_zero_and_last_is_one():
    np.testing.assert_allclose(ScoreScale.letters(5).values, [0, 0.25, 0.5, 0.75, 1])
    assert ScoreScale.letters(20).levels[0] == "A" and ScoreScale.letters(20).levels[-1] == "T"
    assert ScoreScale.digits().values[9] == 1.0


@pytest.mark.parametrize("token", ["A", " A", "a", "▁A", "ĠA", ">A", "\nA", "A</"])
def test_spellings_of_a_level(token):
    assert ScoreScale.letters(20).index(token) == 0


@pytest.mark.parametrize("token", ["The", "AB", "A.", "", " ", "U", "1", "An", "A/"])
def test_what_merely_begins_with_a_letter_is_no_level(token):
    assert ScoreScale.letters(20).index(token) is None


@pytest.mark.parametrize("granularity", [40, 1, 0, -3, 2.5, True])
def test_granularity_outside_2_to_26_is_refused(granularity):
    with pytest.raises(ConfigError, match=r"granularity must be an integer in \[2, 26\], got"):
        ScoreScale.letters(granularity)


def test_coarsening_merges_equal_runs_of_levels():
    scale = ScoreScale.letters(20)
    assert scale.coarsen(5).levels == ("A", "B", "C", "D", "E")
    np.testing.assert_array_equal(scale.bins(5), np.repeat(np.arange(5), 4))
    with pytest.raises(ConfigError, match=r"2\.\.20 levels, got 21"):
        scale.coarsen(21)


def test_levels_that_cannot_be_told_apart_are_refused():
    for levels in (("a", "A"), ("A", " A"), ("B", ">A", "A"), ("A", "")):
        with pytest.raises(ConfigError, match="distinct"):
            ScoreScale(levels)
