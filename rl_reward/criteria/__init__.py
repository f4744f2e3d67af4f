"""What a candidate is judged by: criteria with weights, from code, TOML, Markdown, or built in."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from rl_reward._checks import check_number, check_text
from rl_reward.errors import ConfigError

_HEADING = re.compile(r"^#{1,6}\s+(?P<name>.+?)(?:\s*\(weight\s+(?P<weight>[^)]+)\))?\s*$")
_PACKAGE = "rl_reward.criteria"


@dataclass(frozen=True)
class Criterion:
    """One thing to judge by."""

    name: str
    """Short name, the key of `Score.by_criterion`."""
    description: str
    """What to look at, as the judge reads it."""
    weight: float = 1.0
    """Share in the weighted mean, > 0; weights of a set are normalised to sum to 1."""

    def __post_init__(self) -> None:
        """Refuse empty texts and weights that are not positive."""
        check_text("the name of a criterion", self.name)
        check_text(f"the description of criterion {self.name!r}", self.description)
        check_number(f"the weight of criterion {self.name!r}", self.weight, above=0)


Criteria = str | Path | Mapping[str, Any] | Sequence["Criterion | str"]
"""A built-in set's name, a .toml or .md file, {name: description or {description, weight}}, or a list."""

DEFAULT = Criterion("Correctness", "Does the candidate do what the task asks, correctly and completely?")


def load(source: Criteria | None = None) -> tuple[Criterion, ...]:
    """Return the criteria of `source`, weights normalised to sum to 1.

    Raises:
        ConfigError: The source is empty, unknown or malformed, or two criteria share a name.
    """
    found = _read(source)
    if not found:
        raise ConfigError(
            f"no criterion in {source!r}; give a name and a description (in Markdown: a heading and a text below it)"
        )
    names = [criterion.name for criterion in found]
    if len(set(names)) < len(names):
        raise ConfigError(f"criteria must have different names, got {', '.join(names)}")
    total = sum(criterion.weight for criterion in found)
    return tuple(replace(criterion, weight=criterion.weight / total) for criterion in found)


def builtin() -> tuple[str, ...]:
    """Return the names of the built-in sets."""
    return tuple(
        sorted(f.name.removesuffix(".toml") for f in resources.files(_PACKAGE).iterdir() if f.name.endswith(".toml"))
    )


def _read(source: Criteria | None) -> list[Criterion]:
    if source is None:
        return [DEFAULT]
    if isinstance(source, Mapping):
        return [_criterion(name, value) for name, value in source.items()]
    if isinstance(source, str | Path):
        return _read_named(str(source))
    return [item if isinstance(item, Criterion) else Criterion(item, item) for item in source]


def _read_named(source: str) -> list[Criterion]:
    """Read a file by its ending, or a built-in set by its name."""
    if source.endswith(".toml"):
        return _read_toml(_file_text(source), source)
    if source.endswith(".md"):
        return _read_markdown(_file_text(source))
    if source not in builtin():
        near = difflib.get_close_matches(source, builtin(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"criteria {source!r} is no .toml or .md file and no built-in set ({', '.join(builtin())}){hint}"
        )
    return _read_toml(resources.files(_PACKAGE).joinpath(f"{source}.toml").read_text("utf-8"), source)


def _file_text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"criteria file {path!r} cannot be read: {error}") from error


def _read_toml(text: str, source: str) -> list[Criterion]:
    try:
        return [_criterion(name, value) for name, value in tomllib.loads(text).items()]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"criteria file {source!r} is not TOML: {error}") from error


def _read_markdown(text: str) -> list[Criterion]:
    """Read headings as names, "(weight 2)" at their end as weights, the text below as descriptions."""
    found: list[Criterion] = []
    name, weight, body = "", "1", list[str]()
    for line in [*text.splitlines(), "# end"]:
        heading = _HEADING.match(line)
        if heading is None:
            body.append(line)
            continue
        description = " ".join("\n".join(body).split())
        # A heading without text is a title, not a criterion.
        if name and description:
            found.append(_criterion(name, {"description": description, "weight": weight}))
        name, weight, body = heading["name"], heading["weight"] or "1", []
    return found


def _criterion(name: str, value: Any) -> Criterion:
    if isinstance(value, str):
        return Criterion(name, value)
    fields: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {}  # pyright: ignore[reportUnknownArgumentType]
    if not {"description"} <= set(fields) <= {"description", "weight"}:
        raise ConfigError(f"criterion {name!r} must be a text or {{description, weight}}, got {value!r}")
    try:
        weight = float(fields.get("weight", 1.0))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the weight of criterion {name!r} must be a number, got {fields['weight']!r}") from error
    return Criterion(name, str(fields["description"]), weight)
