"""What stands beside every result: versions, git hash, command, machine."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "rl-reward",
    "numpy",
    "torch",
    "stable-baselines3",
    "gymnasium",
    "gymnasium-robotics",
    "metaworld",
    "mujoco",
    "trl",
    "transformers",
    "openai",
)
"""Packages whose versions are recorded, those that are installed."""


def facts() -> dict[str, str]:
    """Return versions, git hash, command, platform and date."""
    return {
        **{name: found for name in PACKAGES if (found := _version(name))},
        "python": platform.python_version(),
        "git": git_hash(Path(__file__)),
        "command": command("rl-reward"),
        "platform": f"{platform.platform()}, {os.cpu_count()} cores",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def git_hash(file: Path) -> str:
    """Return the commit `file` is tracked in, "-dirty" appended where tracked files were changed; else "untracked"."""
    try:
        _git(file, "ls-files", "--error-unmatch", file.name)
        return _git(file, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        # No git, no repository, or an installed package inside someone else's repository.
        return "untracked"


def _git(file: Path, *arguments: str) -> str:
    command = ["git", "-C", str(file.parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def command(program: str) -> str:
    """Return the command that runs now, the home folder written as "~": results are read on other machines."""
    return " ".join([program, *map(shlex.quote, sys.argv[1:])]).replace(f"{Path.home()}/", "~/")
