"""Rendered camera frames on their way to a judge: environment, verifier, a server or a local model that sees."""

from __future__ import annotations

import base64
import ctypes.util
import io

import numpy as np
import pytest
from PIL import Image
from protocol_server import StubServer

from rl_reward import ScoreScale, Step, Trajectory, Verifier
from rl_reward.backends import OpenAICompatible
from rl_reward.envs import make

has_gl = any(map(ctypes.util.find_library, ("EGL", "OSMesa")))
pytestmark = pytest.mark.skipif(not has_gl, reason="no headless OpenGL here: neither libEGL nor libOSMesa is installed")
EVERY = 2


class Episode:
    """One played episode: what the judge is given, every frame of the simulator, and how often it rendered."""

    def __init__(self) -> None:
        env = make("fetch/FetchReach-v4", frames=True, stride=10, frame_size=48, max_steps=45)
        renderer, self.rendered = env.simulator.mujoco_renderer, []
        honest = renderer.render
        renderer.render = lambda *how: self.rendered.append(honest(*how)) or self.rendered[-1]
        rng = np.random.default_rng(0)
        _, info = env.reset(seed=0)
        self.task, self.steps, over = env.task, [info["rl_reward"]], False
        while not over:
            *_, terminated, truncated, info = env.step(rng.uniform(-1, 1, 4).astype(np.float32))
            self.steps += [info["rl_reward"]] if "rl_reward" in info else []
            over = terminated or truncated
        env.close()


@pytest.fixture(scope="module")
def episode():
    return Episode()


def letter_by_frames(messages, tag):
    """Say the further letter the more frames are shown: the first letter at one frame, the next at two."""
    return {ScoreScale.letters().levels[len(sent(messages)) - 1]: 0.98, "The": 0.02}


def sent(messages):
    """Return the frames in the messages of one request, decoded, in order."""
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert all(url.startswith("data:image/png;base64,") for url in urls)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))) for url in urls]


def test_only_the_frames_of_checkpoints_are_rendered(episode):
    assert len(episode.steps) == 6, "steps 0, 10, 20, 30, 40 and 45"
    assert len(episode.rendered) / len(episode.steps) == 1.0
    for step, frame in zip(episode.steps, episode.rendered, strict=True):
        np.testing.assert_array_equal(step.image, frame)
    assert all((a != b).any() for a, b in zip(episode.rendered, episode.rendered[1:], strict=False))


def test_a_server_gets_the_rendered_frames_up_to_each_checkpoint(episode):
    with StubServer(letter_by_frames) as server:
        verifier = Verifier(OpenAICompatible(server.model, server.base_url, api_key_env=None, prefill="never"))
        (curve,) = verifier.track_many([(episode.task, episode.steps)], every=EVERY)
        verifier.close()
    asked = sorted((sent(body["messages"]) for body in server.bodies), key=len)
    assert [len(frames) for frames in asked] == [1, 3, 5, 6], "the first step, every second one, and the last"
    for frames in asked:
        np.testing.assert_array_equal(frames, episode.rendered[: len(frames)])
    assert len(episode.rendered) == 6, "asking renders nothing"
    assert curve.values[[0, 2, 4, 5]] == pytest.approx(np.array([0, 2, 4, 5]) / 19)
    assert curve.scored.sum() == 4


def test_a_server_sees_no_privileged_truth(episode):
    with StubServer() as server:
        verifier = Verifier(OpenAICompatible(server.model, server.base_url, api_key_env=None, prefill="never"))
        verifier.track(episode.task, episode.steps[:1])
        verifier.close()
    text = str([part for message in server.bodies[0]["messages"] for part in message["content"]])
    assert "solved" in episode.steps[0].data and "'solved'" not in text and "progress': " not in text


@pytest.fixture(scope="module")
def local():
    pytest.importorskip("transformers")
    from tiny_models import tiny_vlm

    from rl_reward.backends import TransformersLocal

    model, processor = tiny_vlm()
    return Verifier(TransformersLocal(model, tokenizer=processor), min_coverage=0)


def pictures(episode):
    """Return the steps with nothing but their frames, so that whatever differs comes from what is seen."""
    return [Step(image=step.image) for step in episode.steps]


def test_a_local_model_scores_frames_and_equal_ones_alike(local, episode):
    (curve,) = local.track_many([(episode.task, episode.steps)], every=EVERY)
    (again,) = local.track_many([(episode.task, [*episode.steps])], every=EVERY)
    assert np.isfinite(curve.values[curve.scored]).all() and curve.scored.sum() == 4
    assert ((curve.values[curve.scored] >= 0) & (curve.values[curve.scored] <= 1)).all()
    np.testing.assert_allclose(again.values, curve.values, atol=1e-6)


def test_a_local_model_sees_nothing_that_comes_later(local, episode):
    shown = pictures(episode)
    other = [*shown[:3], Step(image=255 - shown[3].image), *shown[4:]]
    first, second = local.track_many([(episode.task, shown), (episode.task, other)])
    np.testing.assert_allclose(first.values[:3], second.values[:3], atol=1e-6)
    assert (np.abs(first.values[3:] - second.values[3:]) > 1e-5).all()


def test_a_local_model_tells_frames_apart(local, episode):
    shown = pictures(episode)
    start, end, again = (local.score(episode.task, Trajectory((shown[i],))) for i in (0, -1, 0))
    assert start.value == pytest.approx(again.value, abs=1e-6)
    assert abs(start.value - end.value) > 1e-6
