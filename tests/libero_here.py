"""Whether LIBERO runs here: `pytestmark = NEEDED` skips with the reason where it does not, and in CI it must."""

import os
from pathlib import Path

import pytest

from rl_reward.envs import libero_files
from rl_reward.errors import ConfigError

SHARED = Path(__file__).parents[2] / "shared" / "libero_assets"
KETCHUP = "libero_object/pick_up_the_ketchup_and_place_it_in_the_basket"


def missing():
    """Return why the simulator cannot run here, "" where it can."""
    try:
        import libero  # noqa: F401
        import robosuite  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed; run training/install_libero.sh"
    try:
        libero_files.find_assets()
    except ConfigError as error:
        return str(error)
    return ""


if SHARED.is_dir():
    os.environ.setdefault(libero_files.ASSETS_VARIABLE, str(SHARED))
REASON = missing()
assert not (REASON and SHARED.is_dir() and "CI" in os.environ), REASON
NEEDED = [pytest.mark.libero, pytest.mark.skipif(bool(REASON), reason=REASON)]
"""The marks of a module or a test that needs LIBERO."""
