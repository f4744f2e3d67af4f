"""Images as the bytes that models and servers take; nothing is ever fetched."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_reward.errors import ConfigError, MissingExtraError
from rl_reward.types import Image

_MAGIC = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}


@dataclass(frozen=True)
class EncodedImage:
    """A PNG or JPEG file in memory."""

    data: bytes
    """The file's bytes."""
    media_type: str
    """"image/png" or "image/jpeg"."""

    @property
    def data_url(self) -> str:
        """The image as a `data:` URL."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode()}"


def encode(image: Image) -> EncodedImage:
    """Return `image` as PNG or JPEG: files and bytes as they are, a frame uint8 [H, W, 3] as PNG.

    Raises:
        ConfigError: There is no such file, it is neither PNG nor JPEG, or a frame is none.
        MissingExtraError: A frame was given and Pillow is not installed.
    """
    if isinstance(image, np.ndarray):
        return EncodedImage(_png(image), "image/png")
    data = image if isinstance(image, bytes) else _read(Path(image))
    media_type = next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), None)
    if media_type is None:
        shown = f"{len(data)} bytes" if isinstance(image, bytes) else repr(str(image))
        raise ConfigError(f"an image must be PNG or JPEG, got {shown} that start with {data[:8]!r}; convert it first")
    return EncodedImage(data, media_type)


def decode(image: Image) -> Any:
    """Return `image` as a PIL image, RGB: what processors of local models take.

    Raises:
        ConfigError: There is no such file, it is no whole PNG or JPEG, or a frame is none.
        MissingExtraError: Pillow is not installed.
    """
    pillow = _pillow("local")
    if isinstance(image, np.ndarray):
        return pillow.fromarray(_checked(image))
    data = encode(image).data
    try:
        return pillow.open(io.BytesIO(data)).convert("RGB")
    except Exception as error:  # a broken file shows as any kind of error
        raise ConfigError(f"an image of {len(data)} bytes cannot be decoded: {error}; write it again") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read the image {str(path)!r}: {reason}; check the path") from None


def _png(frame: NDArray[np.uint8]) -> bytes:
    pillow, file = _pillow("openai"), io.BytesIO()
    # Level 1: the default spends ten times the CPU on a tenth of the bytes.
    pillow.fromarray(_checked(frame)).save(file, format="PNG", compress_level=1)
    return file.getvalue()


def _pillow(extra: str) -> Any:
    try:
        from PIL import Image as pillow
    except ImportError:
        raise MissingExtraError("pillow", extra) from None
    return pillow


def _checked(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if frame.dtype != np.uint8 or frame.shape[2:] != (3,) or not frame.size:
        raise ConfigError(f"a frame must be uint8 [H, W, 3] and not empty, got {frame.dtype} {list(frame.shape)}")
    return frame
