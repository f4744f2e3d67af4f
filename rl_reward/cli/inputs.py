"""What the command line reads: texts, JSONL rows, lists of steps, recorded agent trajectories."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rl_reward.errors import ConfigError
from rl_reward.types import Step


@dataclass(frozen=True)
class Episode:
    """A task and what was done about it."""

    task: str
    """The task."""
    steps: tuple[Step, ...]
    """The steps, at least one."""


def read_text(path: str) -> str:
    """Return the text of a file; ConfigError where there is none."""
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path!r}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path!r} is not UTF-8 text; convert it") from error


def read_pairs(path: str) -> list[tuple[str, str]]:
    """Return the (task, candidate) pairs of a JSONL file with those two keys in every line."""
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            row = _mapping(_json(line, f"line {number} of {path!r}"), f"line {number} of {path!r}")
            pairs.append((_text(row, "task", path, number), _text(row, "candidate", path, number)))
    if not pairs:
        raise ConfigError(f'{path!r} has no rows; write one {{"task": ..., "candidate": ...}} a line')
    return pairs


def read_episode(path: str, task: str | None) -> Episode:
    """Return the episode of a JSON file: a list of steps, {"task", "steps"}, or an ATIF trajectory.

    A step is a text or {"text", "image"}; of an ATIF trajectory the agent's steps count, commands and outputs included,
    and the user's messages are the task. `task` replaces the file's own.

    Raises:
        ConfigError: The file is not JSON, has another form, no steps, or no task.
    """
    raw = _json(read_text(path), repr(path))
    found = Episode("", _steps(raw, path)) if isinstance(raw, list) else _episode(_mapping(raw, repr(path)), path)
    if not found.steps:
        raise ConfigError(f"{path!r} holds no steps; a trajectory needs at least 1")
    told = task or found.task
    if not told.strip():
        raise ConfigError(f"{path!r} names no task; give it with --task")
    return Episode(told, found.steps)


def _episode(raw: Mapping[str, Any], path: str) -> Episode:
    if "trajectory" in raw:
        raw = _mapping(raw["trajectory"], f"trajectory of {path!r}")
    if "steps" not in raw:
        raise ConfigError(f"{path!r} has no steps; its keys are {', '.join(raw)}")
    if str(raw.get("schema_version", "")).startswith("ATIF"):
        return _atif([_mapping(step, f"a step of {path!r}") for step in _rows(raw["steps"], path)])
    return Episode(str(raw.get("task", "")), _steps(raw["steps"], path))


def _atif(rows: Sequence[Mapping[str, Any]]) -> Episode:
    """Read an Agent Trajectory Interchange Format (v1.2) trajectory."""
    asked = [str(row.get("message", "")) for row in rows if row.get("source") == "user"]
    return Episode("\n\n".join(asked), tuple(Step(_atif_text(row)) for row in rows if row.get("source") == "agent"))


def _atif_text(row: Mapping[str, Any]) -> str:
    """Return what the agent said, what it ran, and what came back."""
    said = [str(row.get("message") or "")]
    calls: list[dict[str, Any]] = row.get("tool_calls") or []
    for call in calls:
        arguments: dict[str, Any] = call.get("arguments") or {}
        said.append(f"$ {arguments.get('keystrokes') or json.dumps(arguments)}".rstrip())
    results: list[dict[str, Any]] = (row.get("observation") or {}).get("results") or []
    said += [str(result.get("content") or "") for result in results]
    return "\n".join(part for part in said if part)


def _steps(raw: Any, path: str) -> tuple[Step, ...]:
    return tuple(_step(row, f"step {number} of {path!r}") for number, row in enumerate(_rows(raw, path), start=1))


def _step(raw: Any, where: str) -> Step:
    if isinstance(raw, str):
        return Step(raw)
    row = _mapping(raw, where)
    if not row or set(row) - {"text", "image"}:
        raise ConfigError(f"{where} must be a text or have the keys text and image, got {', '.join(row) or 'nothing'}")
    return Step(str(row.get("text", "")), image=row.get("image"))


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error


def _mapping(raw: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise ConfigError(f"{where} must be a JSON object, got {type(raw).__name__}")
    return cast("Mapping[str, Any]", raw)


def _rows(raw: Any, path: str) -> list[Any]:
    if not isinstance(raw, list):
        raise ConfigError(f"the steps of {path!r} must be a list, got {type(raw).__name__}")
    return cast("list[Any]", raw)


def _text(row: Mapping[str, Any], key: str, path: str, number: int) -> str:
    if not isinstance(row.get(key), str):
        raise ConfigError(f"line {number} of {path!r} has no text {key!r}; its keys are {', '.join(row) or 'none'}")
    return row[key]
