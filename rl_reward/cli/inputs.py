"""What the command line reads: texts, JSONL rows, lists of steps, recorded agent trajectories."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from rl_reward.cli.json_values import Json, names
from rl_reward.errors import ConfigError
from rl_reward.types import Step


@dataclass(frozen=True)
class Episode:
    """A task and what was done about it."""

    task: str
    """The task."""
    steps: tuple[Step, ...]
    """The steps, at least one."""


@dataclass(frozen=True)
class Contest:
    """A task and the candidates to be ranked."""

    task: str
    """The task."""
    candidates: tuple[str, ...]
    """The candidates, at least one."""
    references: tuple[str, ...] = ()
    """What they are held against in an anchored tournament."""


def read_text(path: str) -> str:
    """Return the text of a file, line ends as newlines; ConfigError where there is none."""
    try:
        return Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {path!r}: {error.strerror}; check the path") from error
    except ValueError as error:
        raise ConfigError(f"cannot read {path!r} as UTF-8 text: {error}") from error


def read_pairs(path: str) -> list[tuple[str, str]]:
    """Return the (task, candidate) pairs of a JSONL file with those two keys in every line; neither may be empty."""
    rows = _rows(path, '{"task": ..., "candidate": ...}')
    return [(row.at("task").filled(), row.at("candidate").filled()) for row in rows]


def read_contests(path: str) -> list[Contest]:
    """Return the contests of a JSONL file with the keys "task", "candidates" and, if wanted, "references" a line."""
    return [
        Contest(
            row.at("task").filled(),
            tuple(item.filled() for item in row.at("candidates").items()),
            tuple(item.filled() for item in row.get("references", []).items()),
        )
        for row in _rows(path, '{"task": ..., "candidates": [...]}')
    ]


def read_episode(path: str, task: str | None) -> Episode:
    """Return the episode of a JSON file: a list of steps, {"task", "steps"}, or an ATIF trajectory.

    A step is a text or {"text", "image"}; of an ATIF trajectory the agent's steps count, commands and outputs included,
    and the user's messages are the task. `task` replaces the file's own.

    Raises:
        ConfigError: The file is not JSON, has another form, no steps, or no task.
    """
    raw = Json.parse(read_text(path), repr(path))
    found = Episode("", _steps(raw)) if isinstance(raw.value, list) else _episode(raw)
    if not found.steps:
        raise ConfigError(f"{path!r} holds no steps; a trajectory needs at least 1")
    told = found.task if task is None else task
    if not told.strip():
        raise ConfigError(f"{path!r} names no task; give it with --task")
    return Episode(told, found.steps)


def _rows(path: str, form: str) -> list[Json]:
    # Not splitlines(): JSON texts may hold U+2028 and U+0085 as they are.
    lines = enumerate(read_text(path).split("\n"), start=1)
    rows = [Json.parse(line, f"line {number} of {path!r}") for number, line in lines if line.strip()]
    if not rows:
        raise ConfigError(f"{path!r} has no rows; write one {form} a line")
    return rows


def _episode(raw: Json) -> Episode:
    raw = raw.fields().get("trajectory", raw)
    if str(raw.get("schema_version", "").value).startswith("ATIF"):
        return _atif(raw)
    return Episode(raw.get("task", "").text(), _steps(raw.at("steps")))


def _atif(trajectory: Json) -> Episode:
    """Read an Agent Trajectory Interchange Format (v1.2) trajectory."""
    rows = trajectory.at("steps").items()
    asked = [row.get("message", "").text() for row in rows if row.get("source", "").value == "user"]
    done = [Step(_atif_text(row)) for row in rows if row.get("source", "").value == "agent"]
    return Episode("\n\n".join(asked), tuple(done))


def _atif_text(step: Json) -> str:
    """Return what the agent said, what it ran, and what came back."""
    said = [step.get("message", "").text()]
    for call in step.get("tool_calls", []).items():
        arguments = call.get("arguments", {})
        said.append(f"$ {arguments.get('keystrokes', '').text() or json.dumps(arguments.value)}".rstrip())
    results = step.get("observation", {}).get("results", []).items()
    said += [result.get("content", "").text() for result in results]
    return "\n".join(part for part in said if part)


def _steps(raw: Json) -> tuple[Step, ...]:
    return tuple(_step(row) for row in raw.items())


def _step(raw: Json) -> Step:
    if isinstance(raw.value, str):
        return Step(raw.value)
    fields = raw.fields()
    if not fields or set(fields) - {"text", "image"}:
        raise ConfigError(f"{raw.where} must be a text or have the keys text and image, got {names(fields)}")
    text = fields["text"].text() if "text" in fields else ""
    image = raw.get("image", None)
    if image.value is None:
        return Step(text)
    step = Step(text, image=image.text())
    if not os.path.isfile(image.text()):
        raise ConfigError(f"{image.where} is no file: {image.text()!r}; check the path")
    return step
