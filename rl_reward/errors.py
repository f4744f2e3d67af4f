"""The exceptions of rl_reward: each message is one line with the value, the limit and the fix."""

from __future__ import annotations


class RlRewardError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(RlRewardError, ValueError):
    """A value the caller chose is out of its range or does not fit another one."""


class MissingExtraError(RlRewardError, ImportError):
    """An optional package is needed here; the message holds the exact pip line."""

    def __init__(self, package: str, extra: str) -> None:
        """Name the missing `package` and the `extra` of rl-reward that brings it."""
        super().__init__(f'{package} is not installed; run: pip install "rl-reward[{extra}]"')


class BackendError(RlRewardError):
    """The model or server cannot serve scores at all (wrong key, no such model, no logprobs)."""


class Unscorable(RlRewardError):
    """One reply holds no readable score; the message is the reason. Never turned into a number."""
