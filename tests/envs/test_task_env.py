import numpy as np
import pytest
from line_task import Line, LineTask, walk

from rl_reward.envs.base import TaskConfig
from rl_reward.envs.check import ContractError, check_task_env
from rl_reward.errors import ConfigError, RlRewardError

AT_ONE = next(seed for seed in range(99) if Line().reset(seed=seed)[0] == 1)


def test_a_step_for_the_judge_at_reset_on_the_stride_and_at_the_end_only():
    first, steps = walk(LineTask(stride=3, max_steps=8), [0] * 8)
    emitted = [0] * ("rl_reward" in first) + [t for t, step in enumerate(steps, 1) if "rl_reward" in step[3]]
    assert emitted == [0, 3, 6, 8]


def test_frames_are_rendered_for_those_steps_only():
    env = LineTask(stride=3, max_steps=8, frames=True)
    walk(env, [0] * 8)
    assert env.frames_rendered == 4
    blind = LineTask(stride=3, max_steps=8)
    walk(blind, [0] * 8)
    assert blind.frames_rendered == 0


@pytest.mark.parametrize(("reward", "paid"), [("zero_one", [1, 0, 1]), ("minus_one_zero", [0, -1, 0])])
def test_the_sparse_reward_is_paid_at_solved_steps(reward, paid):
    _, steps = walk(LineTask(reward=reward), [1, 1, -1], seed=AT_ONE)
    assert [step[0] for step in steps] == paid


@pytest.mark.parametrize(("success", "headline"), [("latched", [True, True]), ("final", [True, False])])
def test_success_latched_and_at_this_step(success, headline):
    _, steps = walk(LineTask(success=success), [1, 1], seed=AT_ONE)
    infos = [step[3] for step in steps]
    assert [info["is_success"] for info in infos] == headline
    assert [info["is_success_latched"] for info in infos] == [True, True]
    assert [info["is_success_final"] for info in infos] == [True, False]


def test_the_latch_opens_at_reset():
    env = LineTask()
    walk(env, [1], seed=AT_ONE)
    _, [[_, _, _, info]] = walk(env, [0], seed=AT_ONE)
    assert not info["is_success"]


def test_both_end_flags_are_kept_apart():
    _, steps = walk(LineTask(max_steps=2), [0, 0])
    assert [step[1:3] for step in steps] == [[False, False], [False, True]]
    _, steps = walk(LineTask(max_steps=2, terminate_on_success=True), [1], seed=AT_ONE)
    assert [step[1:3] for step in steps] == [[True, False]]
    _, steps = walk(LineTask(max_steps=1, terminate_on_success=True), [1], seed=AT_ONE)
    assert [step[1:3] for step in steps] == [[True, True]]


def test_success_does_not_end_the_episode_unless_asked():
    _, steps = walk(LineTask(), [1, 0], seed=AT_ONE)
    assert [step[1] for step in steps] == [False, False]


def test_progress_and_solved_travel_in_the_data():
    seed = next(seed for seed in range(99) if Line().reset(seed=seed)[0] == 2)
    first, steps = walk(LineTask(), [1, 1], seed=seed)
    data = [first["rl_reward"].data, *(step[3]["rl_reward"].data for step in steps)]
    assert [(entry["progress"], entry["solved"]) for entry in data] == [(0.0, False), (0.5, False), (1.0, True)]


def test_solved_starts_are_drawn_again_and_the_seed_fixes_what_comes_out():
    env = LineTask()
    starts = [env.reset(seed=seed)[0].item() for seed in range(40)]
    assert any(Line().reset(seed=seed)[0] == 0 for seed in range(40))
    assert set(starts) == {1.0, 2.0, 3.0}
    assert starts == [env.reset(seed=seed)[0].item() for seed in range(40)]


def test_redraws_are_bounded(monkeypatch):
    monkeypatch.setattr(LineTask, "_solved", lambda self: True)
    with pytest.raises(RlRewardError, match="100 starts"):
        LineTask().reset(seed=0)


def test_stepping_past_the_end_is_refused():
    env = LineTask(max_steps=1)
    walk(env, [0])
    with pytest.raises(RlRewardError, match="reset"):
        env.step(np.zeros(1))


@pytest.mark.parametrize(
    "options", [{"stride": 0}, {"max_steps": 0}, {"frame_size": 8}, {"reward": "dense"}, {"success": "ever"}]
)
def test_values_out_of_range_are_named(options):
    [(name, value)] = options.items()
    with pytest.raises(ConfigError, match=rf"{name} .* got {value!r}"):
        TaskConfig(**options)


OPTIONS = [
    {},
    {"stride": 4, "max_steps": 9},
    {"reward": "minus_one_zero", "success": "final"},
    {"terminate_on_success": True, "frames": True, "numbers": False, "frame_size": 16},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_check_passes_a_task_that_keeps_the_contract(options):
    check_task_env(lambda: LineTask(**options), episodes=4)


def broken(method, change):
    """Return a LineTask whose `method` returns what `change` makes of its result."""
    return type("Broken", (LineTask,), {method: lambda self, *a, **k: change(getattr(LineTask, method)(self, *a, **k))})


BREAKABLE = {
    "stride": 2,
    "max_steps": 3,
    "terminate_on_success": True,
    "numbers": False,
    "frames": True,
    "frame_size": 16,
}
BREAKS = {
    "progress must be in": ("_truth", lambda truth: {"progress": 1.3}),
    "lacks progress": ("_truth", lambda truth: {}),
    "caption is empty": ("_caption", lambda text: " "),
    "digits in a caption": ("_caption", lambda text: "3 cm"),
    "reward must be": ("_reward", lambda reward: reward + 0.5),
    "must be a Step": ("_checkpoint", lambda step: step.text),
    "off the stride": ("_info", lambda info: info | {"rl_reward": "always"}),
    "is_success_latched": ("_info", lambda info: info | {"is_success_latched": not info["is_success_latched"]}),
    "must be a bool": ("_info", lambda info: info | {"is_success": 1.0}),
    "the image must be": ("frame", lambda image: image[:8]),
    "same observation": ("_observe", lambda obs: obs + np.float32(np.random.random())),
    "not in observation_space": ("_observe", lambda obs: obs.astype(np.complex64)),
    "must set terminated": ("step", lambda out: (*out[:2], False, *out[3:])),
    "truncated is not set": ("step", lambda out: (*out[:3], False, out[4])),
}


@pytest.mark.parametrize("message", BREAKS)
def test_the_check_names_what_is_broken(message):
    method, change = BREAKS[message]
    Broken = broken(method, change)
    with pytest.raises(ContractError, match=message):
        check_task_env(lambda: Broken(**BREAKABLE), episodes=9)
