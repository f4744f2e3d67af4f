"""The folder in which this package keeps what it may lose."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rl_reward.errors import ConfigError


def cache() -> Path:
    """Return the cache of this package: $RL_REWARD_CACHE, or `rl_reward` in the cache folder of the platform."""
    if chosen := os.environ.get("RL_REWARD_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "rl_reward"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/rl_reward"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rl_reward"


def writable(folder: Path) -> Path:
    """Return `folder` after making it.

    Raises:
        ConfigError: It cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fix = "set RL_REWARD_CACHE to a folder of yours"
        raise ConfigError(f"cannot make {folder}: {error.strerror}; {fix}") from error
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"cannot write to {folder}; set RL_REWARD_CACHE to a folder of yours")
    return folder
