"""One run of an experiment as files: where it stands, whether it is finished, and what was changed since."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from rl_reward.errors import ConfigError
from rl_reward.experiments.config import Experiment
from rl_reward.experiments.results import RunResult


@dataclass(frozen=True)
class Run:
    """One arm with one seed, and its files below the folder of its experiment."""

    settings: Any
    """What all arms share; the function `run` beside its class trains."""
    arm: Any
    """The arm."""
    seed: int
    """The seed."""
    folder: Path
    """Folder of the experiment."""

    def __str__(self) -> str:
        """Return the arm and the seed."""
        return f"{self.arm.name}, seed {self.seed}"

    @property
    def work(self) -> Path:
        """Folder of what the run leaves besides its result, e.g. its last checkpoint."""
        plain = re.sub(r"[^\w.=+-]+", "_", self.arm.name).strip("._")[:100]
        return self.folder / (plain or "_") / f"seed_{self.seed}"

    @property
    def file(self) -> Path:
        """The result with the configuration it belongs to; it appears when the run is finished, whole."""
        return self.work.with_suffix(".json")

    @property
    def log(self) -> Path:
        """Everything the run prints."""
        return self.work.with_suffix(".log")

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration as JSON holds it."""
        # Through JSON, so that it equals what `result` reads back: tuples become lists.
        return json.loads(json.dumps({"settings": asdict(self.settings), "arm": asdict(self.arm), "seed": self.seed}))

    def result(self) -> RunResult | None:
        """Return what the finished run left, None where it has not finished.

        Raises:
            ConfigError: It ran with another configuration.
        """
        if not self.file.exists():
            return None
        try:
            stored = json.loads(self.file.read_text())
            before, result = stored["config"], RunResult(**stored["result"])
            for part, now in (("settings", self.settings), ("arm", self.arm)):
                before[part] = _completed(before[part], now)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"{self.file} holds no result ({error}); remove it, or add --fresh") from error
        changes = list(_changes(before, self.config))
        if changes:
            raise ConfigError(
                f"{self.file} was run with another configuration ({'; '.join(changes[:3])}); "
                "add --fresh to run everything again, or name another folder with --out"
            )
        return result

    def execute(self, tick: Callable[[int, int], None]) -> None:
        """Train and write the result."""
        trainer = import_module(type(self.settings).__module__)
        result = trainer.run(self.settings, self.arm, self.seed, self.work, tick)
        partial = self.file.with_suffix(".partial")
        partial.write_text(json.dumps({"config": self.config, "result": asdict(result)}, indent=1) + "\n")
        partial.replace(self.file)

    def forget(self) -> None:
        """Remove what an earlier run left."""
        if self.file.is_dir():
            shutil.rmtree(self.file)
        self.file.unlink(missing_ok=True)
        shutil.rmtree(self.work, ignore_errors=True)


def runs_of(experiment: Experiment, folder: Path) -> list[Run]:
    """Return the runs in the order they start: all arms of the first seed, then of the next."""
    arms = experiment.arms.values()
    runs = [Run(experiment.settings, arm, seed, folder) for seed in experiment.seeds for arm in arms]
    if len({run.work for run in runs}) < len(runs):
        raise ConfigError(f"{experiment.name}: two arms would share a folder; their names must differ in letters")
    return runs


def _completed(before: Mapping[str, Any], now: Any) -> dict[str, Any]:
    """Return stored settings, those that came into being after the run with the default they had then."""
    filled = {**_defaults(now), **before}
    for one in fields(now):
        part = getattr(now, one.name)
        if is_dataclass(part) and isinstance(filled[one.name], dict):
            filled[one.name] = _completed(filled[one.name], part)
    return filled


def _defaults(config: Any) -> dict[str, Any]:
    """Return the defaults of a configuration as JSON holds them."""
    plain = {one.name: one.default for one in fields(config) if one.default is not MISSING}
    made = {one.name: one.default_factory() for one in fields(config) if one.default_factory is not MISSING}
    return json.loads(json.dumps({**plain, **made}, default=asdict))


def _changes(before: Any, now: Any, key: str = "") -> Iterator[str]:
    """Say which values differ, by dotted key."""
    if isinstance(before, dict) and isinstance(now, dict):
        old, new = cast("Mapping[str, Any]", before), cast("Mapping[str, Any]", now)
        for name in {**old, **new}:
            yield from _changes(old.get(name), new.get(name), f"{key}.{name}" if key else name)
    elif before != now:
        yield f"{key} was {before!r}, is {now!r}"
