"""Where `--out` leads: refused before the first judge is asked, and written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_reward.errors import ConfigError


def check(path: str) -> None:
    """Refuse what cannot be written: folders, disks, sockets, and what belongs to others. Nothing changes.

    Raises:
        ConfigError: With the reason.
    """
    with _refusals(path):
        if os.path.exists(path) and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not _is_stream(path):
            _partial(path).unlink()


def write_json(path: str, value: Any) -> None:
    """Write `value` as JSON: a file appears whole or not at all, pipes and terminals are written as they are.

    Raises:
        ConfigError: It cannot be written.
    """
    # In JSON the backslash form of a lone surrogate is that surrogate.
    data = f"{json.dumps(value, indent=1, ensure_ascii=False)}\n".encode("utf-8", "backslashreplace")
    with _refusals(path):
        if _is_stream(path):
            Path(path).write_bytes(data)
        else:
            _replace(path, data)


def _replace(path: str, data: bytes) -> None:
    """Put `data` in the place of the file that `path` leads to, links followed and permissions kept."""
    target = Path(os.path.realpath(path))
    partial = _partial(path)
    try:
        partial.write_bytes(data)
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _partial(path: str) -> Path:
    """Return a new empty file of this process beside the file that `path` leads to."""
    target = Path(os.path.realpath(path))
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    partial.touch(exist_ok=False)
    return partial


def _is_stream(path: str) -> bool:
    """Return whether `path` is a pipe or a character device; OSError where it is neither that nor a file."""
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise OSError(errno.EINVAL, "it is a folder, a disk or a socket")
    return not stat.S_ISREG(mode)


@contextmanager
def _refusals(path: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write {path!r}: {error.strerror}; choose another --out") from error
    except ValueError as error:
        raise ConfigError(f"cannot write {path!r}: {error}; choose another --out") from error
