"""Frozen policies by name: small ones, trained from scripted demonstrations (see `training/`), and one that holds."""

from __future__ import annotations

from pathlib import Path

from rl_reward.errors import ConfigError
from rl_reward.policies import FrozenPolicy
from rl_reward.policies.hold import Hold

HOLD = "hold"
"""The name of the policy that holds an action (see `rl_reward.policies.hold`); there is no file of it."""
_HERE = Path(__file__).parent


def check_policy(name: str) -> None:
    """Raise ConfigError unless `frozen_policy` would find a policy."""
    if name != HOLD:
        find_policy(name)


def find_policy(name: str) -> Path:
    """Return the file of a shipped policy, by its name, or the .safetensors file called `name`.

    Raises:
        ConfigError: There is neither.
    """
    shipped = sorted(file.stem for file in _HERE.glob("*.safetensors"))
    file = _HERE / f"{name}.safetensors" if name in shipped else Path(name)
    if not file.is_file():
        raise ConfigError(
            f"policy must be one of {', '.join(shipped)}, or a .safetensors file of a flow policy, or {HOLD!r}, "
            f"got {name!r}"
        )
    return file


def frozen_policy(name: str, *, chunk: int = 1, action_dim: int = 1) -> FrozenPolicy:
    """Return a shipped policy by its name, the flow policy in a .safetensors file, or the one that holds an action.

    Args:
        name: A name, a path, or "hold".
        chunk: Steps that "hold" holds an action for; the others have their own.
        action_dim: Numbers in an action of "hold"; the others have their own.

    Raises:
        ConfigError: There is none of these, or the file holds something else.
    """
    if name == HOLD:
        return Hold(chunk, action_dim)
    # Imported here because torch takes seconds, and a config must be checked without it.
    from rl_reward.policies.flow import FlowPolicy

    return FlowPolicy.load(find_policy(name))
