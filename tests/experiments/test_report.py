from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_reward.errors import ConfigError
from rl_reward.experiments.facts import command
from rl_reward.experiments.plots import caption, curves_figure
from rl_reward.experiments.report import markdown, primary_endpoint, text, write_report
from rl_reward.experiments.results import Comparison, RunResult
from rl_reward.experiments.summary import summarize
from rl_reward.experiments.tables import Table

STEPS = (0, 100, 200, 300, 400)
FAST = (0.1, 0.6, 0.6, 0.6, 0.6)
SLOW = (0.1, 0.1, 0.6, 0.6, 0.6)
NEVER = (0.1, 0.1, 0.1, 0.1, 0.1)
Curves = Mapping[int, Sequence[float]]


def run(arm: str, seed: int, success: Sequence[float], **fields: Any) -> RunResult:
    return RunResult(arm, seed, fields.pop("steps", STEPS), success, episodes=20, **fields)


def comparison(arms: Mapping[str, Curves], **fields: Any) -> Comparison:
    """Return a comparison of `arms`, curves by seed; "simulated" is primary, what begins with "sparse" a baseline."""
    defaults: dict[str, Any] = {
        "name": "reach",
        "kind": "sac",
        "x_label": "environment steps",
        "y_label": "success rate at the final step",
        "baselines": [arm for arm in arms if arm.startswith("sparse")],
        "primary": "simulated",
        "illustrative": False,
        "config": {},
        "environment": {"git": "abc123"},
        "runs": [run(arm, seed, success) for arm, seeds in arms.items() for seed, success in seeds.items()],
    }
    return Comparison(**{**defaults, **fields})


def same(success: Sequence[float], seeds: int = 3) -> Curves:
    return dict.fromkeys(range(seeds), success)


def rows(table: str, *start: str) -> list[str]:
    return [line for line in table.splitlines() if line.startswith("| " + " | ".join(start) + " |")]


def test_the_numbers_by_hand() -> None:
    summary = summarize(comparison({"sparse": same(SLOW), "simulated": same(FAST)}))
    sparse, simulated = summary.arms
    # Trapezoids of 100 steps: .1, .35, .6, .6 and .35, .6, .6, .6, over four.
    assert (sparse.area, simulated.area) == pytest.approx((0.4125, 0.5375))
    assert (sparse.base, sparse.final, summary.base) == pytest.approx((0.1, 0.6, 0.1))
    assert (sparse.solved, sparse.episodes) == (36, 60)
    assert summary.targets == pytest.approx((0.2, 0.3, 0.4, 0.5))
    assert [reached.curve for reached in simulated.reached] == [100, 100, 100, 100]
    against = summary.against["simulated"]
    assert [ratio.at_least for ratio in against.speed_ups] == [2.0, 2.0, 2.0, 2.0]
    assert against.difference is not None
    assert against.difference.mean == pytest.approx(0.125)
    assert against.difference.p_value == pytest.approx(2 / 8)


def test_the_base_is_the_mean_first_evaluation_of_all_arms_and_targets_stay_below_one() -> None:
    high, higher = (0.6, 0.7, 0.8, 0.8, 0.8), (0.8, 0.9, 0.9, 0.9, 0.9)
    summary = summarize(comparison({"sparse": same(high), "simulated": same(higher)}))
    assert summary.base == pytest.approx(0.7)
    assert summary.targets == pytest.approx((0.8, 0.9, 1.0))


def test_the_final_success_is_the_last_checkpoint_not_the_best() -> None:
    collapsing = (0.1, 0.9, 0.9, 0.9, 0.2)
    summary = summarize(comparison({"sparse": same(SLOW), "simulated": same(collapsing)}))
    assert summary.arm("simulated").final == pytest.approx(0.2)


def test_the_better_sparse_arm_is_the_comparator() -> None:
    summary = summarize(comparison({"sparse 0/1": same(NEVER), "sparse -1/0": same(SLOW), "simulated": same(FAST)}))
    assert summary.comparator == "sparse -1/0"
    assert set(summary.against) == {"sparse 0/1", "simulated"}


def test_a_winner_needs_the_interval_and_the_test() -> None:
    few = summarize(comparison({"sparse": same(SLOW, 3), "simulated": same(FAST, 3)}))
    assert "p = 0.25 (3 pairs cannot give less than 0.25)" in primary_endpoint(few)
    assert "on the better side of sparse, but p is not below 0.05." in primary_endpoint(few)
    many = summarize(comparison({"sparse": same(SLOW, 6), "simulated": same(FAST, 6)}))
    assert primary_endpoint(many).endswith(
        "paired over 6 seeds: +0.125 [+0.125, +0.125], exact sign-flip p = 0.0312. simulated is better than sparse."
    )


def test_a_loser_is_reported_as_plainly() -> None:
    summary = summarize(comparison({"sparse": same(FAST, 6), "simulated": same(SLOW, 6)}))
    assert "-0.125 [-0.125, -0.125], exact sign-flip p = 0.0312. simulated is worse than sparse." in markdown(summary)


def test_no_difference_is_said() -> None:
    summary = summarize(comparison({"sparse": {0: FAST, 1: SLOW}, "simulated": {0: SLOW, 1: FAST}}))
    assert "The interval holds 0: no difference is shown." in primary_endpoint(summary)


def test_censoring_is_spelled_out() -> None:
    sparse = {0: SLOW, 1: NEVER, 2: SLOW, 3: NEVER, 4: NEVER}
    report = markdown(summarize(comparison({"sparse": sparse, "simulated": same(FAST, 5)})))
    (row,) = rows(report, "base + 40 points (0.50)", "sparse")
    assert row.endswith("| sparse | > 400 | 2/5 reached | > 400 | comparator |")
    (row,) = rows(report, "base + 40 points (0.50)", "simulated")
    assert row.endswith("| simulated | 100 | 5/5 reached | 100 | > 4.00 [2.00, open] |")


def test_two_arms_that_never_reach_have_no_ratio() -> None:
    report = markdown(summarize(comparison({"sparse": same(NEVER), "simulated": same(NEVER)})))
    (row,) = rows(report, "base + 10 points (0.20)", "simulated")
    assert row.endswith("| > 400 | 0/3 reached | > 400 | undefined: neither reached |")


def test_a_losing_arm_that_never_reaches_has_an_upper_bound() -> None:
    report = markdown(summarize(comparison({"sparse": same(SLOW), "simulated": same(NEVER)})))
    (row,) = rows(report, "base + 10 points (0.20)", "simulated")
    assert row.endswith("| < 0.50 [open, 0.50] |")


def test_one_seed_has_no_interval_and_no_verdict() -> None:
    summary = summarize(comparison({"sparse": same(SLOW, 1), "simulated": same(FAST, 1)}, illustrative=True))
    report = markdown(summary)
    assert "Illustrative: 1 seed per arm, too few to claim anything." in report
    assert "+0.125 (1 pair, no interval). One pair shows nothing." in report
    assert "0.60 (1 run, no interval) | 12/20 [0.39, 0.78]" in report, "episodes still have their Wilson interval"
    assert "2.00 (1 pair, no interval)" in report
    assert "no band: one seed has no interval" in caption(summary)


def test_runs_that_all_agree_print_no_nan() -> None:
    summary = summarize(comparison({"sparse": same(NEVER), "simulated": same(FAST)}))
    for report in (markdown(summary), text(summary)):
        assert "nan" not in report and "inf" not in report


def test_only_an_illustrative_comparison_says_so() -> None:
    arms = {"sparse": same(SLOW), "simulated": {0: FAST, 1: FAST}}
    claimed, shown = (summarize(comparison(arms, illustrative=flag)) for flag in (False, True))
    assert "llustrative" not in markdown(claimed) + text(claimed)
    for report in (markdown(shown), text(shown)):
        assert "Illustrative: 2 to 3 seeds per arm, too few to claim anything." in report
    assert "illustrative" in curves_figure(shown).get_suptitle()


def test_missing_seeds_are_said_and_pairs_are_the_common_ones() -> None:
    arms = {"sparse": {0: NEVER, 1: SLOW, 2: SLOW}, "simulated": {2: FAST, 1: FAST, 7: NEVER}}
    summary = summarize(comparison(arms))
    difference = summary.against["simulated"].difference
    assert difference is not None and difference.pairs == 2
    assert difference.mean == pytest.approx(0.125), "seeds 1 and 2; not 0 and 7"
    said = "simulated has seeds [1, 2, 7], sparse [0, 1, 2]: they are compared over 2 common seeds."
    assert said in markdown(summary) and said in text(summary)


def test_arms_without_a_common_seed_are_not_compared() -> None:
    summary = summarize(comparison({"sparse": {0: SLOW}, "simulated": {1: FAST}}))
    assert "simulated and sparse have no common seed: there is nothing to test." in markdown(summary)
    assert "no common seed |" in markdown(summary)


def test_targets_are_told_in_completions_where_every_run_counts_them() -> None:
    counted = {"extra": {"completions": [128 * step for step in STEPS]}}
    runs = [run(arm, seed, how, **counted) for arm, how in (("sparse", SLOW), ("simulated", FAST)) for seed in (0, 1)]
    summary = summarize(comparison({}, runs=runs, baselines=["sparse"]))
    report = markdown(summary)
    first = summary.arm("simulated").reached[0].curve
    assert f"| {first:,.0f} | 2/2 reached | {first:,.0f} |" in report
    assert "| completions |" in report and f"| {128 * first:,.0f} |\n" in report
    assert "completions" not in markdown(
        summarize(comparison({}, runs=[*runs, run("sparse", 2, SLOW)], baselines=["sparse"]))
    )


def test_judge_and_costs_are_means_per_run() -> None:
    cost = {"judge": "simulated(noise=0.1)", "judge_seconds": 1.5, "wall_seconds": 60.0}
    judged = [
        run("simulated", i, FAST, judge_calls=1000 + i, extra={"unscored_rate": 0.01 * i}, **cost) for i in (1, 3)
    ]
    plain = [run("sparse", seed, SLOW, wall_seconds=50.0) for seed in (1, 3)]
    report = markdown(summarize(comparison({}, runs=[*plain, *judged], baselines=["sparse"])))
    assert "| simulated | simulated(noise=0.1) | 1,002 | 1.5 | 2.0% | 60 |" in report
    assert "| sparse | none | 0 | 0.0 | - | 50 |" in report
    assert "right above wrong" not in report, "nobody knows"


def test_the_report_says_how_often_the_judge_put_right_above_wrong() -> None:
    judged = [run("simulated", seed, FAST, extra={"correct_agreement": 0.7 + 0.1 * seed}) for seed in (0, 1)]
    plain = [run("sparse", seed, SLOW) for seed in (0, 1)]
    report = markdown(summarize(comparison({}, runs=[*plain, *judged], baselines=["sparse"])))
    assert "| wall seconds | right above wrong |" in report
    assert re.search(r"^\| simulated .* \| 75\.0% \|$", report, re.MULTILINE)
    assert re.search(r"^\| sparse .* \| - \|$", report, re.MULTILINE)


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        (run("simulated", 3, FAST, steps=(0, 100, 200, 300, 500)), "5 points from 0 to 500.*5 points from 0 to 400"),
        (
            run("simulated", 3, FAST[:3], steps=STEPS[:3]),
            "arm 'simulated' seed 3 was evaluated at 3 points from 0 to 200",
        ),
        (run("simulated", 3, FAST[:4]), "4 successes for 5 evaluations"),
        (run("simulated", 3, (0.1, 0.2, float("nan"), 0.4, 0.5)), r"outside \[0, 1\]"),
        (run("simulated", 3, (0.1, 0.2, 1.5, 0.4, 0.5)), r"outside \[0, 1\]"),
        (run("simulated", 0, FAST), r"arm 'simulated' has a seed twice: \[0, 0, 1, 2\]"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused_and_nothing_is_written(
    spoiled: RunResult, message: str, tmp_path: Path
) -> None:
    good = comparison({"sparse": same(SLOW), "simulated": same(FAST)})
    with pytest.raises(ConfigError, match=message):
        write_report(comparison({}, runs=[*good.runs, spoiled], baselines=["sparse"]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_arms_are_refused() -> None:
    with pytest.raises(ConfigError, match="no finished run"):
        summarize(comparison({}))
    with pytest.raises(ConfigError, match=r"primary arm 'simulated' has no run, only \['sparse'\]"):
        summarize(comparison({"sparse": same(SLOW)}))
    with pytest.raises(ConfigError, match=r"none of the baselines \['sparse'\]"):
        summarize(comparison({"simulated": same(FAST)}, baselines=["sparse"]))


def test_report_and_picture_from_a_saved_results_file(tmp_path: Path) -> None:
    comparison({"sparse": same(SLOW), "simulated": same(FAST)}).save(tmp_path / "results.json")
    loaded = Comparison.load(tmp_path / "results.json")
    write_report(loaded, tmp_path)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    report = (tmp_path / "report.md").read_text()
    assert "![Success of every arm over training](curves.png)" in report and "git abc123" in report
    assert report == markdown(summarize(loaded)), "the same file gives the same numbers"


def test_every_run_is_drawn_and_the_legend_names_arm_judge_and_seeds() -> None:
    noisy = {seed: tuple(np.clip(np.add(FAST, 0.05 * seed), 0, 1)) for seed in range(4)}
    summary = summarize(comparison({"sparse": same(SLOW, 4), "simulated": noisy, "oracle": same(FAST, 4)}))
    overview, *panels = curves_figure(summary).axes
    labels = [line.get_label() for line in overview.get_lines()]
    assert labels[:2] == ["sparse (comparator); no judge; n = 4", "simulated (primary); no judge; n = 4"]
    assert (overview.get_xlabel(), overview.get_ylabel()) == ("environment steps", "success rate at the final step")
    drawn = [line.get_ydata() for axes in panels for line in axes.get_lines()]
    for arm in summary.arms:
        for success in arm.success_NS:
            assert any(np.array_equal(success, line) for line in drawn)
    assert "95 % whole-run percentile bootstrap" in caption(summary)
    assert overview.get_ylim() == pytest.approx((-0.02, 0.82)), "from 0 to the 20 points above the best run, .75"


def test_each_arm_has_a_colour_of_its_own() -> None:
    names = ("sparse 0/1", "sparse -1/0", "simulated", "shuffled", "oracle", "her", "constant", "other")
    overview = curves_figure(summarize(comparison({name: same(SLOW) for name in names}))).axes[0]
    assert len({line.get_color() for line in overview.get_lines()[: len(names)]}) == len(names)


def test_tables_in_both_forms() -> None:
    table = Table(("arm", "area"), [("a|b", "1"), ("longer", "2")])
    assert table.markdown() == "| arm | area |\n| --- | --- |\n| a\\|b | 1 |\n| longer | 2 |"
    assert table.text() == "arm     area\n------  ----\na|b     1\nlonger  2"


def test_the_command_of_a_result_names_no_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setattr("sys.argv", ["rl-reward", "compare", "/home/somebody/my runs/a.yaml", "--jobs", "2"])
    assert command("rl-reward") == "rl-reward compare '~/my runs/a.yaml' --jobs 2"
    monkeypatch.setenv("HOME", "/")
    assert command("rl-reward") == "rl-reward compare '/home/somebody/my runs/a.yaml' --jobs 2"
