from __future__ import annotations

import numpy as np
import pytest

from rl_reward.errors import ConfigError
from rl_reward.evaluation.efficiency import area
from rl_reward.evaluation.intervals import bootstrap, bootstrap_band, iqm, percentiles, sign_flip_p, wilson


def test_iqm_drops_a_quarter_at_both_ends() -> None:
    assert iqm([0.0, 0.2, 0.4, 1.0]) == pytest.approx(0.3)
    assert iqm([0.9, 0.0, 0.5, 0.4, 0.3, 1.0]) == pytest.approx((0.3 + 0.4 + 0.5 + 0.9) / 4)
    assert iqm([0.0, 0.3, 0.9]) == pytest.approx(0.4), "fewer than four: the mean"


def test_wilson_by_hand() -> None:
    interval = wilson(17, 20)
    assert (round(interval.low, 2), round(interval.high, 2)) == (0.64, 0.95)
    z, n, p = 1.959964, 20, 0.85
    centre, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert interval.low == pytest.approx((centre - half) / (1 + z**2 / n))
    assert wilson(20, 20).low == pytest.approx(20 / (20 + z**2)), "a perfect score is not certainty"


@pytest.mark.parametrize(("successes", "trials"), [(3, 2), (-1, 5), (0, 0)])
def test_wilson_refuses_impossible_counts(successes: int, trials: int) -> None:
    with pytest.raises(ConfigError, match=f"got {successes} of {trials}"):
        wilson(successes, trials)


def test_six_flat_runs_are_as_uncertain_as_six_coins() -> None:
    """Three runs at 0, three at 1, flat: the mean area is Binomial(6, 1/2) / 6, its 95 % interval [1/6, 5/6].

    Resampling every point by itself averages the spread away and would give about [.41, .58].
    """
    flat_NS = np.repeat([0.0, 0.0, 0.0, 1.0, 1.0, 1.0], 24).reshape(6, 24)
    steps, rng = np.arange(24), np.random.default_rng(0)
    interval = bootstrap(area(steps, flat_NS), rng, statistic=np.mean)
    assert (interval.low, interval.high) == pytest.approx((1 / 6, 5 / 6))

    pointwise_BNS = flat_NS[rng.integers(6, size=(5000, 6, 24)), np.arange(24)]
    low, high = percentiles(area(steps, pointwise_BNS).mean(axis=1))
    assert (round(low, 2), round(high, 2)) == pytest.approx((0.41, 0.58), abs=0.015)
    assert interval.high - interval.low > 3 * (high - low)


def test_a_band_keeps_each_run_whole() -> None:
    """Each run ends at 1 minus its start, so in every resample of whole runs both ends add to 1."""
    start_N = np.random.default_rng(1).random(12)
    crossing_NS = np.stack([start_N, 1.0 - start_N], axis=1)
    band = bootstrap_band(crossing_NS, np.random.default_rng(0))
    np.testing.assert_allclose(band.low_S, 1.0 - band.high_S[::-1])
    assert (band.low_S < iqm(crossing_NS)).all() and (iqm(crossing_NS) < band.high_S).all()


def test_runs_that_all_agree_give_a_point_and_no_nan() -> None:
    interval = bootstrap(np.full(5, 0.7), np.random.default_rng(0))
    assert (interval.low, interval.high) == pytest.approx((0.7, 0.7))


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    intervals = [bootstrap(rng.normal(0.5, 0.1, size=20), rng, statistic=np.mean, draws=400) for _ in range(300)]
    covered = np.mean([interval.low <= 0.5 <= interval.high for interval in intervals])
    assert 0.87 <= covered <= 0.98


def test_one_run_has_no_interval() -> None:
    with pytest.raises(ConfigError, match="at least 2 runs, got 1; add seeds"):
        bootstrap([0.5], np.random.default_rng(0))


def test_percentiles_keep_infinities() -> None:
    draws = np.concatenate([np.full(900, 2.0), np.full(100, np.inf)])
    assert percentiles(draws) == (2.0, np.inf)


def test_sign_flip_by_hand() -> None:
    rng = np.random.default_rng(0)
    # 8 sign patterns of (.1, .2, .3): only +++ and --- are as extreme.
    assert sign_flip_p([0.1, 0.2, 0.3], rng) == pytest.approx(2 / 8)
    # (.3, .2, -.1) sums to .4; +-.6 and +-.4 are as extreme: 4 of 8.
    assert sign_flip_p([0.3, 0.2, -0.1], rng) == pytest.approx(4 / 8)
    assert sign_flip_p(np.linspace(0.1, 1.0, 10), rng) == pytest.approx(2 / 1024)
    assert sign_flip_p([0.0, 0.0, 0.0], rng) == 1.0


def test_sign_flip_needs_pairs() -> None:
    with pytest.raises(ConfigError, match="at least 2 pairs, got 1"):
        sign_flip_p([0.1], np.random.default_rng(0))
