"""What the episodes that were played say: do they end, are the ends marked, is success told, what does a judge see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rl_reward.doctor.finding import Finding
from rl_reward.doctor.settings import Training
from rl_reward.doctor.visit import Episode, Visit
from rl_reward.types import STEP_KEY, Step

_UPSIDE_DOWN = ("robosuite", "libero", "metaworld")
"""Packages whose cameras give frames that stand on their head."""


def behaviour(seen: Visit, training: Training) -> Iterator[Finding]:
    """Return what the played episodes show."""
    if seen.trouble:
        yield seen.trouble
    if seen.episodes:
        yield _time_limit(seen, training)
        yield _rewards(seen, training)
    if seen.finished:
        yield _ends(seen)
        yield _success(seen)
        yield _steps(seen)
        yield _task(seen)
    if seen.blind:
        yield Finding("warn", "frame", f"cannot be rendered ({seen.blind}); try MUJOCO_GL=egl or osmesa")
    elif seen.frames:
        yield _frame(seen)


def _time_limit(seen: Visit, training: Training) -> Finding:
    limit, longest = seen.limit, max(episode.length for episode in seen.episodes)
    cut = seen.episodes[-1]
    if limit is not None and longest > limit:
        text = f"{limit} steps are declared and an episode had {longest}; set truncated where the limit is reached"
        return Finding("error", "time limit", text)
    if not cut.over and longest >= seen.bounds.max_steps:
        text = f"an episode did not end in {longest} steps; wrap it in gymnasium.wrappers.TimeLimit(env, max_steps)"
        return Finding("error", "time limit", text)
    if limit is None:
        text = f"none is declared (longest episode: {longest}); wrap it in gymnasium.wrappers.TimeLimit(env, max_steps)"
        return Finding("warn", "time limit", text)
    needed = training.steps_needed
    if needed is not None and limit < needed:
        return Finding("error", "time limit", f"{limit} steps, a solution needs {needed}; raise the limit")
    return Finding("ok", "time limit", f"{limit} steps" + (f", a solution needs {needed}" if needed else ""))


def _ends(seen: Visit) -> Finding:
    """A time limit that is stored as a terminal state teaches that being late is worth nothing."""
    for episode in seen.finished:
        late = episode.terminated and not episode.truncated and not episode.solved
        if late and (episode.length == seen.limit or episode.end.get("TimeLimit.truncated")):
            text = (
                f"the time limit at step {episode.length} sets terminated, and the learner will not bootstrap; "
                "set truncated instead"
            )
            return Finding("error", "end flags", text)
    if seen.limit is None and _same_ends(seen.finished):
        text = (
            f"all {len(seen.finished)} episodes terminated after {seen.finished[0].length} steps, unsolved; "
            "if that is a time limit, set truncated instead"
        )
        return Finding("warn", "end flags", text)
    terminated = sum(episode.terminated for episode in seen.finished)
    truncated = sum(episode.truncated for episode in seen.finished)
    return Finding("ok", "end flags", f"{terminated} terminated, {truncated} truncated")


def _same_ends(episodes: list[Episode]) -> bool:
    unsolved = all(e.terminated and not e.truncated and not e.solved for e in episodes)
    return len(episodes) > 1 and unsolved and len({episode.length for episode in episodes}) == 1


def _rewards(seen: Visit, training: Training) -> Finding:
    paid = np.array([reward for episode in seen.episodes for reward in episode.rewards])
    told = f"{paid.min():g} to {paid.max():g}" if paid.size else "none"
    if not np.isfinite(paid).all():
        return Finding("error", "env reward", f"a step paid {paid[~np.isfinite(paid)][0]}; pay finite numbers")
    shaping = training.shaping
    if shaping is not None and shaping.weight:
        allowed = (0.0, 1.0) if shaping.env_reward == "zero_one" else (-1.0, 0.0)
        odd = paid[~np.isin(paid, allowed)]
        if odd.size:
            text = f"the shaping is told {shaping.env_reward}, a step paid {odd[0]:g}; its hover arithmetic is void"
            return Finding("warn", "env reward", f"{text}: pay sparse rewards or name the right env_reward")
    return Finding("ok", "env reward", told)


def _success(seen: Visit) -> Finding:
    told = [episode.success[-1] for episode in seen.finished]
    missing = sum(value is None for value in told)
    if missing:
        text = (
            f'missing at the end of {missing} of {len(told)} episodes; put info["is_success"] (bool) there: '
            "EvalCallback and every curve read it"
        )
        return Finding("error", "success key", text)
    odd = next((value for value in told if not isinstance(value, bool | np.bool_ | int | float)), None)
    if odd is not None:
        return Finding("error", "success key", f'info["is_success"] must be a bool, got {odd!r:.60}')
    lost = [episode for episode in seen.finished if episode.solved and not episode.success[-1]]
    if lost and not _means_final(seen):
        text = (
            f"true inside {len(lost)} of {len(told)} episodes and false at their end; latch it, "
            "unless only the last step counts"
        )
        return Finding("warn", "success key", text)
    return Finding("ok", "success key", f"told at the end of {len(told)} episodes, true in {sum(map(bool, told))}")


def _means_final(seen: Visit) -> bool:
    """Return whether this is one of this package's environments, asked for success at the last step."""
    return any(getattr(getattr(layer, "config", None), "success", None) == "final" for layer in seen.layers)


def _steps(seen: Visit) -> Finding:
    for episode in seen.finished:
        for where, info in (("reset", episode.start), ("done", episode.end)):
            if not isinstance(info.get(STEP_KEY), Step):
                text = (
                    f"the {where} info has no Step; put one into info[{STEP_KEY!r}] at reset, at a stride and at done"
                )
                return Finding("error", "judge's steps", text)
    return Finding("ok", "judge's steps", f"a Step at reset and at done in {len(seen.finished)} episodes")


def _task(seen: Visit) -> Finding:
    said = seen.episodes[0].start.get("task") or next(
        (task for layer in seen.layers if (task := getattr(layer, "task", None))), None
    )
    if not said:
        text = 'the env does not say it; set env.task, info["task"] at reset, or RelabelCallback(task=...)'
        return Finding("warn", "task", text)
    return Finding("ok", "task", f"{said!r:.80}")


def _frame(seen: Visit) -> Finding:
    first: Any = seen.frames[0]
    kind: Any = getattr(first, "dtype", None)
    shape: list[int] = list(getattr(first, "shape", []))
    if kind != np.uint8 or shape[2:] != [3]:
        shown = f"{kind} {shape}" if kind is not None else type(first).__name__
        return Finding("error", "frame", f"a frame must be uint8 [H, W, 3], got {shown}")
    size = f"{shape[1]}x{shape[0]}"
    if (first == first[0, 0]).all():
        return Finding("error", "frame", f"{size}, all of one colour; check camera, lights and MUJOCO_GL")
    if len(seen.frames) == 2 and np.array_equal(first, seen.frames[1]):
        return Finding("warn", "frame", f"{size}, the same at reset and at the end; render the current state")
    homes = [type(layer).__module__.split(".") for layer in seen.layers]
    if any(home[:2] == ["rl_reward", "envs"] for home in homes):
        return Finding("ok", "frame", f"{size}, upright (this package's environments are)")
    if upside_down := next((home[0] for home in homes if home[0] in _UPSIDE_DOWN), None):
        text = f"{size}; {upside_down} cameras give frames upside down: rotate by 180 degrees unless you do already"
        return Finding("warn", "frame", f"{text}, and look at one (--frame FILE)")
    # No picture says by itself which way is up.
    return Finding("ok", "frame", f"{size}; whether it is upright only a person can see: look at one (--frame FILE)")
