"""Which versions are installed, and which were tested together."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from rl_reward.doctor.finding import Finding

TESTED = {
    "gymnasium": ("1.1", "1.4.0"),
    "stable-baselines3": ("2.7", "2.9.2"),
    "mujoco": ("3.3", "3.3.0"),
    "gymnasium-robotics": ("1.4", "1.4.2"),
    "metaworld": ("3.1", "3.1.1"),
    "robosuite": ("1.4", "1.4.0"),
    "hf-libero": ("0.1.4", "0.1.4"),
    "trl": ("1.16", "1.16.0"),
}
"""For each package the oldest version that can work, and the one that was tested."""


def versions(installed: Callable[[str], str] = version) -> list[Finding]:
    """Return how the installed packages compare with what was tested; what is not installed is left out."""
    found = {name: told for name in TESTED if (told := _told(name, installed))}
    same = ", ".join(f"{name} {told}" for name, told in found.items() if told == TESTED[name][1])
    findings = [Finding("ok", "versions", f"as tested: {same}")] if same else []
    findings += [_compared(name, told) for name, told in found.items() if told != TESTED[name][1]]
    if _parts(found.get("robosuite", "0")) >= (1, 5):
        text = f"robosuite {found['robosuite']} has other physics than LIBERO's tasks; pip install robosuite==1.4.0"
        findings.append(Finding("error", "versions", text))
    if "hf-libero" in found and _parts(found.get("mujoco", "0")) >= (3, 4):
        text = f"mujoco {found['mujoco']} silently changes LIBERO's physics (from 3.4 on); pip install mujoco==3.3.0"
        findings.append(Finding("error", "versions", text))
    return findings


def _compared(name: str, told: str) -> Finding:
    oldest, tested = TESTED[name]
    severity = "error" if _parts(told) < _parts(oldest) else "warn"
    limit = f"at least {oldest} is needed" if severity == "error" else f"tested with {tested}"
    return Finding(severity, "versions", f"{name} {told}, {limit}; pip install {name}=={tested}")


def _told(name: str, installed: Callable[[str], str]) -> str | None:
    try:
        return installed(name)
    except PackageNotFoundError:
        return None


def _parts(told: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; zeros at the end say nothing."""
    numbers = [int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", told)[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
