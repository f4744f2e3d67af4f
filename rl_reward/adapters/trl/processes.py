"""Groups over the processes of one training: TRL splits a group over processes, here it is judged as one.

Row i of process p is row p*B + i of the batch, as in `GRPOTrainer`; every `group_size` rows in that order are a group.

Why each reward has a process group of its own: TRL awaits all async rewards of a process together, so the exchanges of
two rewards overlap and finish in another order on each process. Inside one reward their order is fixed, and the groups
are created in the order in which TRL starts the rewards, which is the same everywhere. A group of the training itself
(NCCL) is never used, so a judge that hangs is told apart from a training that hangs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rl_reward._checks import check_int
from rl_reward.adapters.trl.agreement import Processes, agreed
from rl_reward.errors import BackendError, ConfigError

Row = TypeVar("Row")
Verdict = TypeVar("Verdict")

TIMEOUT_S = 1800.0
"""How long a process waits for the others unless it is told otherwise."""


@dataclass(frozen=True)
class Alone:
    """One process, which needs no torch.distributed."""

    rank: int = 0
    """The only one."""
    size: int = 1
    """Itself."""
    judge_timeout_s: float | None = None
    """None: nobody else waits for the judge."""

    def exchange(self, message: bytes) -> list[bytes]:
        """Return [message]."""
        return [message]


def processes(name: str = "verifier", *, timeout_s: float = TIMEOUT_S) -> Processes:
    """Return the processes of this training, `Alone` outside torch.distributed.

    The first call under a name waits for the same call on all processes. So call it before anything that can raise on
    one process alone, and before the first `await` of a reward function: up to there TRL runs them in order.

    Args:
        name: Whose exchanges these are; every reward function needs a name of its own.
        timeout_s: Most seconds to wait for the slowest process, > 0. The judge has nine tenths of it.

    Raises:
        ConfigError: `WORLD_SIZE` promises more processes than torch.distributed knows of.
        BackendError: Another process never came.
    """
    distributed = sys.modules.get("torch.distributed")  # not imported is not initialised
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        if distributed.get_world_size() == 1:
            return Alone()
        from rl_reward.adapters.trl.gloo import TorchProcesses

        return TorchProcesses.named(name, timeout_s)
    promised = int(os.environ.get("WORLD_SIZE") or 1)
    if promised > 1:
        raise ConfigError(
            f"WORLD_SIZE is {promised} but torch.distributed knows of 1 process; create the trainer before the first "
            "call, and start with `accelerate launch` or `torchrun`"
        )
    return Alone()


async def judged_together(
    rows: Sequence[Row] | Callable[[], Sequence[Row]],
    group_size: int,
    judge: Callable[[Sequence[Sequence[Row]]], Awaitable[Sequence[Sequence[Verdict]]]],
    procs: Processes,
    *,
    cost: Callable[[Sequence[Row]], float] = len,
) -> list[Verdict]:
    """Judge every group of the batch once, on one process, and return the verdicts of this process's rows.

    Args:
        rows: The rows of this process, or a function that makes them: what it raises is raised on all processes.
            Processes may have different numbers of rows. Rows and verdicts must pickle.
        group_size: Rows of a group, the same on all processes.
        judge: Takes the groups that fall to this process, each of `group_size` rows, and returns one verdict per row of
            each. Not called where none fall to it.
        procs: From `processes`.
        cost: What judging a group costs beside the others; each process gets about the same sum.

    Raises:
        ConfigError: The rows of all processes do not fill groups of one size; or one process raised it.
        BackendError: One process raised it, or anything else; the judge took too long; a process is gone.
    """

    async def own() -> tuple[int, list[Row]]:
        check_int("group_size", group_size, least=1)
        return group_size, list(rows() if callable(rows) else rows)

    gathered = await agreed(own(), procs)
    groups = _groups([size for size, _ in gathered], [row for _, rows in gathered for row in rows])
    shares = shared_out([cost(group) for group in groups], procs.size)
    mine = [groups[index] for index in shares[procs.rank]]
    judged = await agreed(_judged(judge, mine, procs.judge_timeout_s), procs)

    by_group = {
        index: verdicts
        for share, done in zip(shares, judged, strict=True)
        for index, verdicts in zip(share, done, strict=True)
    }
    verdicts = [verdict for index in range(len(groups)) for verdict in by_group[index]]
    counts = [len(rows) for _, rows in gathered]
    start = sum(counts[: procs.rank])
    return verdicts[start : start + counts[procs.rank]]


def shared_out(costs: Sequence[float], size: int) -> list[list[int]]:
    """Return which groups each process judges, in their order.

    The dearest are given out first, each to the process with the least so far.
    """
    loads = [0.0] * size
    shares: list[list[int]] = [[] for _ in range(size)]
    for group in sorted(range(len(costs)), key=lambda group: -costs[group]):
        rank = min(range(size), key=loads.__getitem__)
        loads[rank] += costs[group]
        shares[rank].append(group)
    return [sorted(share) for share in shares]


def _groups(sizes: Sequence[int], rows: Sequence[Row]) -> list[Sequence[Row]]:
    size = sizes[0]
    if set(sizes) != {size}:
        raise ConfigError(f"group_size must be the same on all processes, got {list(sizes)}")
    if len(rows) % size:
        raise ConfigError(f"{len(rows)} rows of {len(sizes)} processes do not fill groups of {size}")
    return [rows[start : start + size] for start in range(0, len(rows), size)]


async def _judged(
    judge: Callable[[Sequence[Sequence[Row]]], Awaitable[Sequence[Sequence[Verdict]]]],
    groups: Sequence[Sequence[Row]],
    timeout_s: float | None,
) -> list[list[Verdict]]:
    if not groups:
        return []
    task = asyncio.ensure_future(judge(groups))
    # Not wait_for: that would wait on for a judge that does not let itself be cancelled.
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    finally:
        task.cancel()  # whoever stops waiting stops the judge; one that is done does not mind
    if not done:
        raise BackendError(f"the judge has not finished {sum(map(len, groups))} rows within {timeout_s:g} s")
    verdicts = [list(group) for group in task.result()]
    given, asked = [len(group) for group in verdicts], [len(group) for group in groups]
    if given != asked:
        raise BackendError(f"the judge returned {given} verdicts for groups of {asked} rows")
    return verdicts
