from __future__ import annotations

import numpy as np
import pytest

from rl_reward.errors import ConfigError
from rl_reward.evaluation.calibration import prediction_powered_mean

Z = 1.959964
LABELS, JUDGED = [1.0, 0.0, 1.0, 0.0], [0.8, 0.2, 0.6, 0.4]


def test_ppi_by_hand() -> None:
    result = prediction_powered_mean(LABELS, JUDGED, [0.5, 0.7, 0.9, 0.3], tune=False)
    # theta = mean(g) - mean(f - y) = .6 - 0; var(g)/N = .2/3/4, var(f - y)/n = .4/3/4.
    assert result.mean == pytest.approx(0.6)
    half = Z * np.sqrt(0.2 / 12 + 0.4 / 12)
    assert (result.interval.low, result.interval.high) == pytest.approx((0.6 - half, 0.6 + half))
    assert result.judge_weight == 1.0


def test_ppi_plus_plus_by_hand() -> None:
    result = prediction_powered_mean(LABELS, JUDGED, [0.2, 0.4, 0.8, 1.0])
    # cov(y, f)/n = .4/12, var(f)/n = .2/12, var(g)/N = .4/12: lambda = 2/3 and theta = .5 + 2/3 (.6 - .5).
    assert result.judge_weight == pytest.approx(2 / 3)
    assert result.mean == pytest.approx(0.5 + 2 / 30)
    # y - 2/3 f deviates by +-.3 and +-(.5 - .2/3): sum of squares 5/9.
    half = Z * np.sqrt(4 / 9 * 0.4 / 12 + 5 / 9 / 12)
    assert (result.interval.low, result.interval.high) == pytest.approx((result.mean - half, result.mean + half))


@pytest.mark.parametrize("judged", [[0.5, 0.5, 0.5, 0.5], [0.2, 0.8, 0.4, 0.6]])
def test_a_useless_or_contrary_judge_leaves_the_labels_alone(judged: list[float]) -> None:
    result = prediction_powered_mean(LABELS, judged, [0.9, 0.9, 0.9])
    assert (result.judge_weight, result.mean) == (0.0, 0.5)
    half = Z * np.sqrt(1 / 12)
    assert (result.interval.low, result.interval.high) == pytest.approx((0.5 - half, 0.5 + half))


def test_a_biased_judge_is_corrected_and_the_interval_covers_the_truth() -> None:
    rng, covered, narrower = np.random.default_rng(0), 0, 0
    for _ in range(300):
        truth = (rng.random(1060) < 0.3).astype(float)
        judge = np.clip(0.6 * truth + 0.3 + rng.normal(0, 0.1, 1060), 0, 1)
        labels, f, g = truth[:60], judge[:60], judge[60:]
        result = prediction_powered_mean(labels, f, g)
        covered += result.interval.low <= 0.3 <= result.interval.high
        narrower += result.interval.high - result.interval.low < 2 * Z * labels.std(ddof=1) / np.sqrt(60)
    assert 0.90 <= covered / 300 <= 0.99
    assert narrower == 300
    assert judge.mean() > 0.4, "the judge alone is far off"


def test_unscored_items_are_refused_rather_than_dropped() -> None:
    with pytest.raises(ConfigError, match="rescore the unscored"):
        prediction_powered_mean([1.0, 0.0], [0.5, np.nan], [0.5, 0.5])


def test_shapes_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"got \(2,\), \(3,\), \(2,\)"):
        prediction_powered_mean([1.0, 0.0], [0.5, 0.5, 0.5], [0.5, 0.5])
    with pytest.raises(ConfigError, match="at least 2"):
        prediction_powered_mean([1.0], [0.5], [0.5, 0.5])
