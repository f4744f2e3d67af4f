"""Off-screen rendering: MuJoCo's own choice needs a display, so a machine without one gets EGL or OSMesa."""

from __future__ import annotations

import ctypes.util
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

from rl_reward.errors import ConfigError


def choose_gl() -> None:
    """Set `MUJOCO_GL` before the first frame, unless it is set already or there is a display to draw on.

    Raises:
        ConfigError: Neither EGL nor OSMesa is installed.
    """
    has_display = sys.platform != "linux" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if "MUJOCO_GL" not in os.environ and not has_display:
        os.environ["MUJOCO_GL"] = headless_gl()


@contextmanager
def unbound_gl() -> Generator[None]:
    """Let robosuite be imported where no headless OpenGL is installed, and leave `MUJOCO_GL` as it was.

    It binds OpenGL at import, EGL by default, and fails without it. "glx" makes it load a binding that needs nothing
    until a frame is drawn, and it never draws ours. MuJoCo itself binds by what the user chose.
    """
    import mujoco  # noqa: F401  # pyright: ignore[reportUnusedImport]

    before = os.environ.get("MUJOCO_GL")
    if sys.platform == "linux":
        os.environ["MUJOCO_GL"] = "glx"
    try:
        yield
    finally:
        os.environ.pop("MUJOCO_GL", None)
        if before is not None:
            os.environ["MUJOCO_GL"] = before


def headless_gl() -> str:
    """Return "egl" or "osmesa", whichever is installed; EGL is about three times as fast.

    Raises:
        ConfigError: Neither is installed.
    """
    for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if ctypes.util.find_library(library):
            return name
    raise ConfigError(
        "frames need a display or headless OpenGL, found neither; set frames=False, or run: "
        "apt install libegl1 libgl1 libegl-mesa0 libgl1-mesa-dri"
    )
