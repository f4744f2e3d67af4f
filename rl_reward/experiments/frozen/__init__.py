"""Frozen policies that ship with the package: small ones, trained from scripted demonstrations (see `training/`)."""

from __future__ import annotations

from pathlib import Path

from rl_reward.errors import ConfigError
from rl_reward.policies import FrozenPolicy

_HERE = Path(__file__).parent


def find_policy(name: str) -> Path:
    """Return the file of a shipped policy, by its name, or the .safetensors file called `name`.

    Raises:
        ConfigError: There is neither.
    """
    shipped = sorted(file.stem for file in _HERE.glob("*.safetensors"))
    file = _HERE / f"{name}.safetensors" if name in shipped else Path(name)
    if not file.is_file():
        raise ConfigError(
            f"policy must be one of {', '.join(shipped)}, or a .safetensors file of a flow policy, got {name!r}"
        )
    return file


def frozen_policy(name: str) -> FrozenPolicy:
    """Return a shipped policy by its name, or the flow policy in a .safetensors file.

    Raises:
        ConfigError: There is neither, or the file holds something else.
    """
    # Imported here because torch takes seconds, and a config must be checked without it.
    from rl_reward.policies.flow import FlowPolicy

    return FlowPolicy.load(find_policy(name))
