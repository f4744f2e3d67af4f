"""YAML experiments as frozen dataclasses: an unknown key or a value of the wrong type is an error that says the fix."""

from __future__ import annotations

import difflib
import math
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import yaml

from rl_reward._checks import check_int
from rl_reward.errors import ConfigError

Kind = Literal["sac", "grpo"]

_FOLDER = re.compile(r"[\w+=-][\w.+=-]{0,99}")


@dataclass(frozen=True)
class Experiment:
    """Arms compared on one task: every arm runs with every seed."""

    name: str
    """Name of the experiment and of its output folder."""
    kind: Kind
    """Which trainer: sac (stable-baselines3) or grpo (TRL)."""
    seeds: tuple[int, ...]
    """Seeds of the runs; 100-104 are kept for tuning."""
    baselines: tuple[str, ...]
    """The sparse arms; the better one is the comparator."""
    primary: str
    """The primary endpoint, named before running: the arm whose area is compared with the better baseline's."""
    illustrative: bool
    """True where too few seeds stand behind the curves to claim anything."""
    settings: Any
    """What all arms share: a `SacConfig` or a `GrpoConfig`."""
    arms: Mapping[str, Any]
    """The arms by name: `SacArm` or `GrpoArm`."""

    def __post_init__(self) -> None:
        """Check that seeds and arms exist once and that baselines and primary are arms."""
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"{self.name}: seeds must be one or more different numbers, got {list(self.seeds)}")
        for seed in self.seeds:
            check_int(f"{self.name}: a seed", seed, least=0, most=2**32 - 1)
        if not _FOLDER.fullmatch(self.name):
            raise ConfigError(f"name must be usable as a folder: letters, digits and _ - + = ., got {self.name!r}")
        for name in (*self.baselines, self.primary):
            if name not in self.arms:
                raise ConfigError(f"{self.name}: no arm is called {name!r}{_nearest(name, self.arms)}")
        if not self.baselines:
            raise ConfigError(f"{self.name}: baselines must name one sparse arm or more, got none")


def load(path: str | Path) -> list[Experiment]:
    """Read the experiments of a YAML file: one at the top level, or several under `experiments`.

    Raises:
        ConfigError: The file is missing or no YAML, a key is unknown or missing, or a value has the wrong type.
    """
    path = Path(path)
    try:
        raw: Any = yaml.load(path.read_text("utf-8"), _Loader)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; give the path of a YAML file") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} must hold keys and values, got {_shown(raw)}")
    raw = cast("dict[str, Any]", raw)
    if "experiments" not in raw:
        return [_experiment(raw, Place(path))]
    _refuse_unknown(raw, ["experiments"], Place(path))
    entries = parse(tuple[dict[str, Any], ...], raw["experiments"], Place(path, "experiments"))
    found = [_experiment(entry, Place(path, f"experiments[{i}]")) for i, entry in enumerate(entries)]
    if not found or len({one.name for one in found}) < len(found):
        names = ", ".join(one.name for one in found) or "none"
        raise ConfigError(f"experiments in {path} must be one or more, each with its own name, got {names}")
    return found


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, where YAML would keep the last one without a word; 5e-5 is a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping; keys merged with `<<` may be written again."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} stands twice", key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


# YAML 1.1 wants a point in front of an exponent and calls 5e-5 a text; YAML 1.2 and everybody's fingers do not.
cast(Any, _Loader).add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789")
)


def arm_called(name: str, experiment: Experiment) -> Any:
    """Return the arm called `name`, or the only one whose name begins with it."""
    if name in experiment.arms:
        return experiment.arms[name]
    begin = [arm for arm in experiment.arms if arm.startswith(name)]
    if len(begin) != 1:
        raise ConfigError(f"{experiment.name}: no single arm is called {name!r}; arms: {_listed(experiment.arms)}")
    return experiment.arms[begin[0]]


@dataclass(frozen=True)
class Place:
    """Where in which file a value stands, for messages."""

    file: Path
    """The file."""
    key: str = ""
    """Dotted path of keys; empty at the top."""

    def of(self, key: object) -> Place:
        """Return the place of `key` below this one."""
        return Place(self.file, f"{self.key}.{key}" if self.key else str(key))

    def __str__(self) -> str:
        """Return "key in file"."""
        return f"{self.key} in {self.file}" if self.key else str(self.file)


def parse(kind: Any, raw: Any, at: Place) -> Any:
    """Return `raw` as a value of type `kind`: dataclass, Literal, union, tuple, mapping or plain scalar.

    An int stands for a float; a bool stands for neither.

    Raises:
        ConfigError: A value has another type, or a key is unknown or missing.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return raw
    if origin in (Union, types.UnionType):
        return _first_that_fits(inner, raw, at)
    if origin is Literal and any(raw == choice and type(raw) is type(choice) for choice in inner):
        return raw
    if is_dataclass(kind) and isinstance(raw, dict):
        return _dataclass(kind, cast("dict[str, Any]", raw), at)
    if origin in (tuple, Sequence) and isinstance(raw, list):
        items = cast("list[Any]", raw)
        if origin is tuple and inner[-1] is not Ellipsis and len(items) != len(inner):
            raise ConfigError(f"{at} must be a list of {len(inner)}, got {_shown(items)}")
        return tuple(parse(inner[0], item, at.of(i)) for i, item in enumerate(items))
    if origin in (dict, Mapping) and isinstance(raw, dict):
        return {key: parse(inner[1], value, at.of(key)) for key, value in cast("dict[str, Any]", raw).items()}
    if kind is float and type(raw) in (int, float):
        return _finite(float(raw), at)
    if kind in (int, str, bool) and type(raw) is kind:
        return raw
    raise ConfigError(f"{at} must be {_expected(kind)}, got {_shown(raw)}{_hint(kind, raw)}")


def _experiment(raw: Mapping[str, Any], at: Place) -> Experiment:
    """Return the experiment of one mapping; its kind says which dataclasses fill settings and arms."""
    kind = parse(Kind, _required(raw, "kind", at), at.of("kind"))
    hints = {name: hint for name, hint in get_type_hints(Experiment).items() if name not in ("settings", "arms")}
    _refuse_unknown(raw, [*hints, kind, "arms"], at)
    # Imported here because only the kinds a file names should need their packages.
    module = import_module(f"rl_reward.experiments.{kind}")
    config_class, arm_class = getattr(module, f"{kind.title()}Config"), getattr(module, f"{kind.title()}Arm")
    plain = {name: parse(hint, _required(raw, name, at), at.of(name)) for name, hint in hints.items()}
    settings = parse(config_class, raw.get(kind) or {}, at.of(kind))
    raw_arms = parse(dict[str, dict[str, Any]], _required(raw, "arms", at), at.of("arms"))
    arms = {name: parse(arm_class, {"name": name, **arm}, at.of("arms").of(name)) for name, arm in raw_arms.items()}
    return Experiment(**plain, settings=settings, arms=arms)


def _dataclass(kind: Any, raw: Mapping[str, Any], at: Place) -> Any:
    hints = get_type_hints(kind)
    known = [field for field in fields(kind) if field.init]
    _refuse_unknown(raw, [field.name for field in known], at)
    for field in known:
        if field.default is MISSING and field.default_factory is MISSING:
            _required(raw, field.name, at)
    values = {name: parse(hints[name], value, at.of(name)) for name, value in raw.items()}
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(f"{at}: {error}") from error


def _first_that_fits(kinds: Sequence[Any], raw: Any, at: Place) -> Any:
    """Return `raw` as the first of `kinds` it fits; the last one's error says what was expected."""
    if raw is None and type(None) in kinds:
        return None
    choices = [kind for kind in kinds if kind is not type(None)]
    for kind in choices[:-1]:
        try:
            return parse(kind, raw, at)
        except ConfigError:
            continue
    return parse(choices[-1], raw, at)


def _required(raw: Mapping[str, Any], key: str, at: Place) -> Any:
    if key not in raw:
        raise ConfigError(f"{at.of(key)} is missing; add it")
    return raw[key]


def _refuse_unknown(raw: Mapping[str, Any], known: Sequence[str], at: Place) -> None:
    for key in raw:
        if key not in known:
            raise ConfigError(f"unknown key {at.of(key)}{_nearest(key, known)} (known: {_listed(known)})")


def _nearest(key: object, known: Mapping[str, Any] | Sequence[str]) -> str:
    close = difflib.get_close_matches(str(key), list(known), n=1, cutoff=0.0)
    return f", did you mean {close[0]!r}?" if close else ""


def _listed(names: Mapping[str, Any] | Sequence[str]) -> str:
    return ", ".join(names)


def _finite(value: float, at: Place) -> float:
    if not math.isfinite(value):
        raise ConfigError(f"{at} must be a finite number, got {value}")
    return value


def _expected(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) in (tuple, Sequence):
        return "a list"
    return names.get(kind, "keys and values")


def _shown(raw: Any) -> str:
    return f"{raw!r} ({'nothing' if raw is None else type(raw).__name__})"


def _hint(kind: Any, raw: Any) -> str:
    """Return what to write instead, for the mistakes YAML invites."""
    if isinstance(raw, str) and kind in (int, float):
        try:
            number = float(raw)
        except ValueError:
            return ""
        return f"; write {number!r} without quotes" if kind is float or number.is_integer() else ""
    if kind is str and isinstance(raw, (bool, int, float)):
        return f'; write "{str(raw).lower()}" in quotes'
    return ""
