import ctypes.util
import os

import numpy as np
import pytest

from rl_reward.envs import headless, make
from rl_reward.envs.check import check_task_env
from rl_reward.errors import ConfigError

has_gl = any(map(ctypes.util.find_library, ("EGL", "OSMesa")))
needs_gl = pytest.mark.skipif(not has_gl, reason="no headless OpenGL here: neither libEGL nor libOSMesa is installed")
NAMES = ["fetch/FetchPush-v4", "metaworld/drawer-open-v3"]
OPTIONS = {"frames": True, "frame_size": 48, "stride": 5, "max_steps": 12}


def counted(env, monkeypatch):
    """Count the calls of the simulator's own renderer."""
    calls, render = [], env.simulator.mujoco_renderer.render
    monkeypatch.setattr(env.simulator.mujoco_renderer, "render", lambda *args: calls.append(1) or render(*args))
    return calls


def play(env, seed=0):
    rng = np.random.default_rng(seed)
    obs, info = env.reset(seed=seed)
    infos, over = [info], False
    while not over:
        obs, _, terminated, truncated, info = env.step(rng.uniform(-1, 1, 4).astype(np.float32))
        infos.append(info)
        over = terminated or truncated
    return obs, [info["rl_reward"] for info in infos if "rl_reward" in info]


@needs_gl
@pytest.mark.parametrize("name", NAMES)
def test_one_frame_is_rendered_per_step_emitted(name, monkeypatch):
    env = make(name, **OPTIONS)
    calls = counted(env, monkeypatch)
    steps = [step for seed in range(2) for step in play(env, seed)[1]]
    assert len(steps) == 8 and len(calls) == len(steps)
    assert all(step.image.shape == (48, 48, 3) and step.image.std() > 1 for step in steps)
    env.close()


@needs_gl
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_rendered_without_frames(name, monkeypatch):
    env = make(name, **OPTIONS | {"frames": False})
    calls = counted(env, monkeypatch)
    assert all(step.image is None for step in play(env)[1]) and not calls
    assert env.frame().shape == (48, 48, 3) and len(calls) == 1
    env.close()


@needs_gl
@pytest.mark.parametrize("name", NAMES)
def test_watching_does_not_change_the_episode(name):
    seen, unseen = (make(name, **OPTIONS | {"frames": frames, "max_steps": 40}) for frames in (True, False))
    np.testing.assert_equal(play(seen)[0], play(unseen)[0])
    seen.close()


@needs_gl
@pytest.mark.parametrize("name", NAMES)
def test_the_contract_with_frames(name):
    check_task_env(lambda: make(name, **OPTIONS))


@needs_gl
def test_the_metaworld_camera_is_upright_and_not_mirrored():
    env = make("metaworld/reach-v3", **OPTIONS | {"frame_size": 96})
    env.reset(seed=0)
    image = env.frame().astype(int)
    red_arm = (image[..., 0] > 120) & (image[..., 1:].max(-1) < 60)
    assert image[0].std(axis=0).max() < 1 < image[-1].std(axis=0).max(), (
        "the empty background is above, the floor below"
    )
    assert red_arm.sum() > 20 and np.nonzero(red_arm)[1].mean() < 48, "the camera looks from the right: the arm is left"
    env.close()


def test_without_a_display_egl_comes_before_osmesa(monkeypatch):
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(headless.sys, "platform", "linux")
    monkeypatch.setattr(headless.ctypes.util, "find_library", lambda name: name if name == "OSMesa" else None)
    headless.choose_gl()
    assert os.environ["MUJOCO_GL"] == "osmesa"
    headless.choose_gl()
    monkeypatch.setattr(headless.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(ConfigError, match="apt install"):
        headless.headless_gl()
    monkeypatch.delenv("MUJOCO_GL")


def test_the_choice_of_the_user_stands(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    headless.choose_gl()
    assert os.environ["MUJOCO_GL"] == "glfw"
