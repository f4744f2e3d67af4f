"""Where LIBERO's files are: its package imported without questions, its tasks, its assets."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from rl_reward._cache import cache, writable
from rl_reward.errors import ConfigError, MissingExtraError

SUITES = ("libero_object", "libero_spatial", "libero_goal", "libero_10", "libero_90")
"""The suites; the name of a task is unique within its suite."""
ASSETS_VARIABLE = "RL_REWARD_LIBERO_ASSETS"
"""Environment variable with the folder of the assets."""

_ASSETS_INSIDE = ("scenes", "textures", "stable_hope_objects", "stable_scanned_objects")
FETCH = "from libero.libero.utils.download_utils import download_assets_from_huggingface as d; d()"
"""What fetches the assets, as a line of Python."""


@functools.cache
def package_folder() -> Path:
    """Return the folder of the installed LIBERO package.

    Raises:
        MissingExtraError: It is not installed.
    """
    spec = importlib.util.find_spec("libero")
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        if (Path(place) / "libero" / "bddl_files").is_dir():
            return Path(place) / "libero"
    raise MissingExtraError("LIBERO", "libero")


@functools.cache
def task_names(suite: str) -> tuple[str, ...]:
    """Return the tasks of `suite`, one of `SUITES`, in alphabetical order."""
    return tuple(sorted(file.stem for file in (package_folder() / "bddl_files" / suite).glob("*.bddl")))


def task_file(suite: str, task: str) -> Path:
    """Return the BDDL file of a task."""
    return package_folder() / "bddl_files" / suite / f"{task}.bddl"


@functools.cache
def init_states(suite: str, task: str) -> NDArray[np.float64]:
    """Return the published init states of a task, float [50, size of the simulator's state]."""
    import torch

    file = package_folder() / "init_files" / suite / f"{task}.pruned_init"
    # A pickled array from the installed package, which we run anyway.
    return np.asarray(torch.load(file, weights_only=False), dtype=np.float64)


def import_libero(assets: str | os.PathLike[str] | None = None) -> Any:
    """Import `libero.libero.envs` and return it; nothing is asked and no configuration of the user's is touched.

    Args:
        assets: Folder of the assets; None looks for it (see `find_assets`).

    Raises:
        MissingExtraError: LIBERO, or something it needs, is not installed.
        ConfigError: The assets were not found.
    """
    folder = find_assets(assets)
    with _own_configuration():
        try:
            settings: Any = importlib.import_module("libero.libero")
            envs = importlib.import_module("libero.libero.envs")
        except ImportError as error:
            raise MissingExtraError("LIBERO", "libero") from error
    settings._assets_path_cache = str(folder)
    return envs


def find_assets(assets: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of LIBERO's assets: `assets`, the environment variable, our cache, or what its package has.

    Raises:
        ConfigError: None of them holds the assets; the message says where it looked and what fetches them.
    """
    variable = os.environ.get(ASSETS_VARIABLE)
    if named := assets or variable:
        return _checked(Path(named).expanduser(), "assets" if assets else ASSETS_VARIABLE)
    places = [
        cache() / "libero_assets",
        package_folder() / "assets",
        Path("~/.cache/libero/assets").expanduser(),
    ]
    for place in places:
        if not _lacking(place):
            return place
    raise ConfigError(
        f"LIBERO's assets were not found; looked at the option assets, ${ASSETS_VARIABLE}, "
        f"{', '.join(map(str, places))}; fetch them once with: python -c '{FETCH}'"
    )


def _checked(folder: Path, origin: str) -> Path:
    if lacking := _lacking(folder):
        raise ConfigError(
            f"{origin} must be the folder of LIBERO's assets, got {folder}, which has no {lacking}; "
            f"fetch them once with: python -c '{FETCH}'"
        )
    return folder


def _lacking(folder: Path) -> str:
    """Return the first part of the assets that `folder` has not, "" where it has all."""
    return next((name for name in _ASSETS_INSIDE if not (folder / name).is_dir()), "")


@contextmanager
def _own_configuration() -> Generator[None]:
    """Let LIBERO find a configuration of ours at import, without which it asks questions at the terminal.

    It reads the variable once, at import; the user's is put back.
    """
    before = os.environ.get("LIBERO_CONFIG_PATH")
    os.environ["LIBERO_CONFIG_PATH"] = str(_configuration())
    try:
        yield
    finally:
        del os.environ["LIBERO_CONFIG_PATH"]
        if before is not None:
            os.environ["LIBERO_CONFIG_PATH"] = before


def _configuration() -> Path:
    """Write LIBERO's configuration into our cache and return its folder."""
    root, folder = package_folder(), writable(cache() / "libero_config")
    places = {"bddl_files": "bddl_files", "init_states": "init_files", "datasets": "datasets", "assets": "assets"}
    entries = {"benchmark_root": str(root), **{key: str(root / name) for key, name in places.items()}}
    # Many processes may do this at once: each writes a file of its own and moves it into place.
    with NamedTemporaryFile("w", dir=folder, suffix=".yaml", delete=False) as file:
        yaml.safe_dump(entries, file)
    os.replace(file.name, folder / "config.yaml")
    return folder
