from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rl_reward.backends.images import decode, encode
from rl_reward.errors import ConfigError

FRAME = np.random.default_rng(0).integers(0, 256, (3, 5, 3), dtype=np.uint8)


def test_a_frame_becomes_png_without_loss():
    encoded = encode(FRAME)
    assert encoded.media_type == "image/png"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(encoded.data))), FRAME)
    head, body = encoded.data_url.split(",")
    assert head == "data:image/png;base64" and base64.b64decode(body) == encoded.data


@pytest.mark.parametrize(("kind", "media_type"), [("PNG", "image/png"), ("JPEG", "image/jpeg")])
def test_files_and_bytes_pass_unchanged(kind: str, media_type: str, tmp_path: Path):
    path = tmp_path / "image"
    Image.fromarray(FRAME).save(path, format=kind)
    for image in (path, str(path), path.read_bytes()):
        assert (encode(image).data, encode(image).media_type) == (path.read_bytes(), media_type)


@pytest.mark.parametrize("shape", [(0, 5, 3), (3, 5), (3, 5, 4)])
def test_what_is_no_frame_is_refused(shape: tuple[int, ...]):
    with pytest.raises(ConfigError, match=r"a frame must be uint8 \[H, W, 3\] and not empty, got uint8"):
        encode(np.zeros(shape, np.uint8))
    with pytest.raises(ConfigError, match="got float64"):
        encode(np.zeros((3, 5, 3)))


def test_what_is_no_image_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"cannot read the image .*missing.png': No such file"):
        encode(tmp_path / "missing.png")
    (tmp_path / "notes.txt").write_text("hello there")
    with pytest.raises(ConfigError, match=r"must be PNG or JPEG, got .*notes.txt' that start with b'hello th'"):
        encode(tmp_path / "notes.txt")
    with pytest.raises(ConfigError, match=r"cannot read the image .*null"):
        encode("a\0b.png")
    with pytest.raises(ConfigError, match="got 4 bytes that start with b'GIF8'"):
        encode(b"GIF8")


def test_local_models_get_rgb_from_frames_and_files():
    file = io.BytesIO()
    Image.fromarray(FRAME).convert("RGBA").save(file, format="PNG")
    for image in (FRAME, file.getvalue()):
        decoded = decode(image)
        assert decoded.mode == "RGB" and np.array_equal(np.asarray(decoded), FRAME)
    with pytest.raises(ConfigError, match=r"an image of \d+ bytes cannot be decoded: .*; write it again"):
        decode(file.getvalue()[:-30])
    with pytest.raises(ConfigError, match=r"a frame must be uint8"):
        decode(np.zeros((3, 5, 4), np.uint8))
