"""JSON whose every value knows where it stands, so that a wrong type is refused by its place and never becomes text."""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass
from typing import Any, cast

from rl_reward.errors import ConfigError

_KEYS_SHOWN = 10


@dataclass(frozen=True)
class Json:
    """A JSON value of yet unchecked type; every check raises ConfigError with the place and the value."""

    value: Any
    """As Python's `json` gives it."""
    where: str
    """The place, e.g. "message of item 3 of steps of 'episode.json'"."""

    @classmethod
    def parse(cls, text: str, where: str) -> Json:
        """Return the value that `text` spells."""
        try:
            return cls(json.loads(text), where)
        except json.JSONDecodeError as error:
            place = f"line {error.lineno}, column {error.colno}"
            raise ConfigError(f"{where} is not JSON: {error.msg} at {place}") from error
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where} cannot be read: a number is too long or the nesting too deep") from error

    def text(self) -> str:
        """Return the text this is."""
        if not isinstance(self.value, str):
            raise self._wrong("a text")
        return self.value

    def filled(self) -> str:
        """Return the text this is, which holds more than white space."""
        if not self.text().strip():
            raise ConfigError(f"{self.where} is empty; there is nothing to judge")
        return self.value

    def items(self) -> list[Json]:
        """Return the items of the list this is, counted from 1."""
        if not isinstance(self.value, list):
            raise self._wrong("a list")
        items = cast("list[Any]", self.value)  # pyright: ignore[reportUnknownMemberType]
        return [Json(item, f"item {number} of {self.where}") for number, item in enumerate(items, start=1)]

    def fields(self) -> dict[str, Json]:
        """Return the fields of the object this is."""
        if not isinstance(self.value, dict):
            raise self._wrong("an object")
        fields = cast("dict[str, Any]", self.value)  # pyright: ignore[reportUnknownMemberType]
        return {key: Json(value, f"{key} of {self.where}") for key, value in fields.items()}

    def at(self, key: str) -> Json:
        """Return the field `key` of the object this is."""
        fields = self.fields()
        if key not in fields:
            raise ConfigError(f"{self.where} has no {key}; its keys are {names(fields)}")
        return fields[key]

    def get(self, key: str, default: Any) -> Json:
        """Return the field `key`, or `default` where it is missing or null."""
        found = self.fields().get(key)
        return Json(default, f"{key} of {self.where}") if found is None or found.value is None else found

    def _wrong(self, kind: str) -> ConfigError:
        return ConfigError(f"{self.where} must be {kind}, got {reprlib.repr(self.value)}")


def names(fields: dict[str, Json]) -> str:
    """Return the first keys for an error message."""
    shown = [key[:40] for key in list(fields)[:_KEYS_SHOWN]]
    return ", ".join([*shown, "..."] if len(fields) > _KEYS_SHOWN else shown) or "none"
