"""Frozen policies that ship with the package: small ones, trained from scripted demonstrations (see `training/`)."""

from __future__ import annotations

from pathlib import Path

from rl_reward.errors import ConfigError
from rl_reward.policies import FrozenPolicy

_HERE = Path(__file__).parent


def frozen_policy(name: str) -> FrozenPolicy:
    """Return a shipped policy by its name, or the flow policy in a .safetensors file.

    Raises:
        ConfigError: There is neither.
    """
    # Imported here because torch takes seconds, and a config must be checked without it.
    from rl_reward.policies.flow import FlowPolicy

    shipped = sorted(file.stem for file in _HERE.glob("*.safetensors"))
    if name in shipped:
        return FlowPolicy.load(_HERE / f"{name}.safetensors")
    if not Path(name).is_file():
        raise ConfigError(
            f"policy must be one of {', '.join(shipped)}, or a .safetensors file of a flow policy, got {name!r}"
        )
    return FlowPolicy.load(name)
