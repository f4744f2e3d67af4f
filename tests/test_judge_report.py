"""The report on judges of robot episodes: its numbers by hand, its episodes, a whole report with a made-up model."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("metaworld")
pytest.importorskip("torch")

import rl_reward.experiments.sac as sac
import training.judge_episodes as played
import training.judge_report as report
from rl_reward.backends import Simulated
from rl_reward.envs import make
from rl_reward.envs.experts import MetaWorldExpert
from rl_reward.errors import ConfigError
from rl_reward.experiments.config import load
from rl_reward.judges.rule import CaptionRule
from rl_reward.types import Step

CONFIG = Path(__file__).parents[1] / "configs/sac/metaworld.yaml"
HANDLE = "metaworld_handle_press_side"


@pytest.fixture(scope="module")
def config():
    return report.chosen(load(CONFIG), HANDLE).settings


@pytest.fixture
def env(config):
    env = make(config.env, **{**config.options, "stride": config.chunk})
    yield env
    env.close()


def test_changes_by_hand():
    curves = {
        "oracle": [np.array([0.0, 0.1, 0.1, 0.3]), np.array([0.5, 0.5, 0.4])],
        "judge": [np.array([0.2, 0.1, 0.3, 0.7]), np.array([0.5, 0.5, np.nan])],
    }
    row = report.changes_of("judge", curves)
    # Changes of the truth .1 0 .2 | 0, of the judge -.1 .2 .4 | 0; the last one has no score.
    assert (row.changes, row.still, row.ahead) == (4, 2, 2)
    assert row.correlation == pytest.approx(np.corrcoef([0.1, 0, 0.2, 0], [-0.1, 0.2, 0.4, 0])[0, 1])
    assert row.noise == pytest.approx(0.1), "deviation of .2 and 0"
    assert row.falls == 0.5
    assert report.changes_of("oracle", curves).correlation == pytest.approx(1.0)
    assert report.table([row])[2].endswith("| 0.10 | 0.50 |")
    assert report.table([row])[-1] == "4 changes, 2 of them still, 2 ahead"


def test_a_judge_that_never_changes_has_no_correlation():
    row = report.changes_of("flat", {"oracle": [np.array([0.0, 0.02])] * 3, "flat": [np.full(2, 0.5)] * 3})
    assert (row.correlation, row.interval, row.noise, row.falls) == (None, None, None, None)
    assert report.table([row])[2] == "| flat | - | - | - |"


def test_the_interval_draws_whole_episodes_again():
    rng = np.random.default_rng(0)
    truth = [np.cumsum(rng.normal(size=30)) for _ in range(12)]
    judge = [curve * sign for curve, sign in zip(truth, [1, -1] * 6, strict=True)]
    row = report.changes_of("judge", {"oracle": truth, "judge": judge})
    # Right in one half of the episodes and upside down in the other: 360 changes, and yet only twelve draws.
    assert row.interval.low < -0.3 < row.correlation < 0.3 < row.interval.high


def state(hand, thing, distance, solved=False):
    return {"hand": hand, "object": thing, "distance": distance, "solved": solved}


def test_phases_by_hand():
    truths = [
        state((0, 0, 0.2), (0, 0, 0), 0.1),
        state((0, 0, 0.11), (0, 0, 0), 0.1),
        state((0, 0, 0.09), (0, 0, 0), 0.095),
        state((0, 0, 0.3), (0, 0, 0), 0.08),
        state((0, 0, 0), (0, 0, 0), 0.0, solved=True),
    ]
    found = played.phases_of(([Step(data=truth) for truth in truths], True))
    assert found == ["far from the thing"] * 2 + ["near the thing", "on its way", "solved"]
    bottle = {"hand": (0, 0, 1), "thing_at": (-0.12, -0.24, 0.072), "place_at": (0, 0.26, 0.07), "solved": False}
    lifted = {**bottle, "thing_at": (-0.12, -0.24, 0.2)}
    above, lost = ({**bottle, "thing_at": place} for place in ((0, 0.2, 0.2), (0, 0.2, 0.07)))
    found = played.phases_of(([Step(data=truth) for truth in (bottle, lifted, above, lost)], False))
    assert found == ["far from the bottle", "carried", "above the basket", "dropped or pushed away"]


def test_an_expert_that_gives_up_stands_still_but_for_the_noise(env, config):
    expert = played.expert_of(config.env)
    acts = [played.noisy(env, expert, 0, last) for last in (None, 3)]
    obs, _ = env.reset(seed=0)
    going, giving_up = (np.array([act(obs, {}) for _ in range(2_000)]) for act in acts)
    np.testing.assert_array_equal(giving_up[:3], going[:3])
    assert np.abs(going[3:, :3].mean(axis=0)).max() > 0.3
    assert np.abs(giving_up[3:, :3].mean(axis=0)).max() < 0.02
    assert giving_up[3:, :3].std() == pytest.approx(played.NOISE, rel=0.1)
    np.testing.assert_array_equal(giving_up[3:, 3], giving_up[2, 3])


def test_every_kind_is_what_it_says_and_repeats(env, config):
    kinds = played.kinds_of(env, config, 2)
    assert list(kinds) == ["success", "failure", "near"]
    assert [[solved for _, solved in episodes] for episodes in kinds.values()] == [[True] * 2, [False] * 2, [False] * 2]
    best = {kind: np.mean([steps[-1].data["progress"] for steps, _ in episodes]) for kind, episodes in kinds.items()}
    assert best["failure"] < best["near"] < best["success"] == 1.0
    assert {len(steps) for steps, _ in kinds["near"]} == {11}, "a step at reset and one a decision"
    again = played.kinds_of(env, config, 1)
    assert all(told(again[kind][0]) == told(kinds[kind][0]) for kind in kinds)
    assert report.indices(kinds) == {"success": [0, 1], "failure": [2, 3], "near": [4, 5]}


def told(episode):
    return [(step.text, step.data) for step in episode[0]]


def test_chance_holds_its_actions_for_a_decision(env, config):
    act = played.in_chunks(played.held(env, config), 0)
    actions = np.array([act(None, None) for _ in range(30)])
    np.testing.assert_array_equal(actions, np.repeat(actions[::10], 10, axis=0))
    assert len(np.unique(actions[:, 0])) == 3


class Reader(Simulated):
    """Reads distances as the rule of the experiment does."""

    identity = "reader"

    def __init__(self):
        super().__init__(lambda request: CaptionRule(reach=0.3, carry=0.08).progress(request.text))


def test_a_whole_report(tmp_path, monkeypatch):
    monkeypatch.setattr(sac, "model_backend", lambda judge, base_url: Reader())
    chosen = ["--config", str(CONFIG), "--task", HANDLE, "--model", "reader", "--repeats", "1", "3"]
    report.main([*chosen, "--each", "2", "--out", str(tmp_path)])
    records = json.loads((tmp_path / "report.json").read_text())
    assert list(records) == ["failure", "near", "changes"]
    judges = ["oracle", "simulated(noise=0.1)", "caption-rule", "reader", "reader x 3"]
    assert [row["judge"] for row in records["near"]["rows"]] == [row["judge"] for row in records["changes"]] == judges
    oracle, noisy, rule, reader, thrice = records["changes"]
    assert oracle["correlation"] == pytest.approx(1.0) and oracle["noise"] < 0.01
    assert noisy["noise"] > 0.03
    # The reader's anchors are the ends of the task, so its scale differs from the rule's, and its order does not.
    assert reader["correlation"] == pytest.approx(rule["correlation"], abs=0.05)
    # No order of examples sways it, so asking more often changes nothing.
    assert thrice["correlation"] == pytest.approx(reader["correlation"])
    text = (tmp_path / "report.md").read_text()
    assert "Successes against near episodes:" in text and "| near the thing |" in text


def test_what_cannot_be_reported_is_one_line(config):
    experiments = load(CONFIG)
    for task in (None, "handle"):
        with pytest.raises(ConfigError, match=f"--task must name one of .*metaworld_coffee_button, got {task!r}"):
            report.chosen(experiments, task)
    assert isinstance(played.expert_of("metaworld/coffee-button-v3"), MetaWorldExpert)
    with pytest.raises(ConfigError, match="not for fetch/FetchPush-v4"):
        played.expert_of("fetch/FetchPush-v4")
    with pytest.raises(ConfigError, match="add steering"):
        played.kinds_of(None, replace(config, steering=None), 1)
