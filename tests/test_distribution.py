"""The peer's failures (its direction mirrored into ours: first level 0, last level 1) and hand-worked numbers."""

import math

import numpy as np
import pytest

from rl_reward import ConfigError, ScoreDistribution, ScoreScale, Unscorable

SCALE = ScoreScale.letters(20)


def logs(**probabilities):
    return [(token, math.log(p)) for token, p in probabilities.items()]


def read(alternatives, **options):
    return ScoreDistribution.from_alternatives(SCALE, alternatives, **options)


def test_expectation_variance_entropy_and_coverage_by_hand():
    d = ScoreDistribution.from_alternatives(ScoreScale.letters(3), logs(A=0.2, C=0.6, the=0.2))
    np.testing.assert_allclose(d.probs, [0.25, 0, 0.75])
    assert d.mean == pytest.approx(0.75)
    assert d.variance == pytest.approx(0.25 * 0.75)
    assert d.entropy == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))
    assert d.coverage == pytest.approx(0.8)


def test_spellings_of_a_level_add_up():
    d = read([("A", math.log(0.3)), (" A", math.log(0.3)), ("T", math.log(0.4))])
    assert d.mean == pytest.approx(0.4)


def test_equal_strings_are_different_tokens_and_add():
    d = read([("A", math.log(0.3)), ("A", math.log(0.3)), ("T", math.log(0.4))])
    assert d.mean == pytest.approx(0.4)


def test_the_sampled_token_is_added_only_where_it_is_missing():
    listed = [("A", math.log(0.3)), ("T", math.log(0.4))]
    assert read(listed, sampled=("A", math.log(0.3))).coverage == pytest.approx(0.7)
    assert read(listed, sampled=("B", math.log(0.2))).coverage == pytest.approx(0.9)


@pytest.mark.parametrize("logprob", [math.nan, 3.0])
def test_a_sampled_token_that_is_no_logprob_spoils_the_position(logprob):
    with pytest.raises(Unscorable):
        read(logs(A=0.6, T=0.2), sampled=("T", logprob))


def test_a_word_does_not_count_as_its_first_letter():
    assert read(logs(T=0.6, An=0.4)).mean == 1.0


def test_mass_off_the_scale_makes_it_unscored():
    with pytest.raises(Unscorable, match=r"floor is 0\.05"):
        read(logs(The=0.97, T=0.0001))


def test_coverage_floor_is_what_the_caller_says():
    assert read(logs(The=0.9, T=0.02), min_coverage=0.01).mean == 1.0
    with pytest.raises(ConfigError, match="min_coverage must be a finite number >= 0 and <= 1, got 2"):
        read(logs(T=0.5), min_coverage=2)


@pytest.mark.parametrize(
    ("alternatives", "reason"),
    [
        ([("A", math.nan), ("T", -0.1)], "NaN"),
        ([("A", 0.5), ("T", -3.0)], "above 0"),
        ([("A", math.inf)], "above 0"),
        ([("A", -0.1), ("T", -0.1)], "sum to"),
        ([("A", -9999.0), ("T", -math.inf)], "no alternatives"),
        ([], "no alternatives"),
        ([("A", 0.0)], "probability 1"),
        ([("T", 0.0), ("A", -9999.0)], "probability 1"),
        ([("T", 0.0005)], "probability 1"),
    ],
)
def test_what_is_no_distribution_is_unscored(alternatives, reason):
    with pytest.raises(Unscorable, match=reason):
        read(alternatives)


def test_rounding_above_zero_is_clipped():
    assert read([("T", 0.0009), ("A", math.log(0.0005))]).mean == pytest.approx(1 / 1.0005)


def test_coarsening_keeps_the_mass_and_the_coverage():
    d = read(logs(A=0.3, D=0.3, E=0.3)).coarsen(5)
    np.testing.assert_allclose(d.probs, [2 / 3, 1 / 3, 0, 0, 0])
    assert d.coverage == pytest.approx(0.9)
    assert d.mean == pytest.approx(1 / 3 * 0.25)


def test_probabilities_of_another_scale_are_refused():
    with pytest.raises(ConfigError, match="20 numbers"):
        ScoreDistribution(SCALE, np.array([0.5, 0.5]), 1.0)
