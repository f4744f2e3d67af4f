"""Exchanges over a gloo group of torch.distributed that can say which process is missing."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rl_reward._checks import check_number
from rl_reward.errors import BackendError, MissingExtraError

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    raise MissingExtraError("torch", "trl") from error

TIMED_OUT = "sent nothing within {timeout_s:g} s"
GONE = "is gone"
_known: dict[tuple[str, float], TorchProcesses] = {}


class TorchProcesses:
    """All processes of torch.distributed, over a gloo group of their own.

    Point to point and not `all_gather_object`: of a collective that fails, gloo does not say who was missing.
    """

    def __init__(self, *, timeout_s: float) -> None:
        """Create the group; waits for the same call on all processes.

        Args:
            timeout_s: Most seconds to wait for the slowest process, > 0.

        Raises:
            ConfigError: `timeout_s` is out of its range.
            BackendError: Another process never came.
        """
        self.timeout_s = check_number("timeout_s", timeout_s, above=0)
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()
        self._world = dist.group.WORLD
        try:
            torch_dist: Any = dist  # its new_group is not typed
            self._group = torch_dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
        except RuntimeError as error:
            raise BackendError(
                f"process {self.rank} waited {timeout_s:g} s for all {self.size} processes to call the reward; "
                "one has died or hangs, look at its output"
            ) from error

    @classmethod
    def named(cls, name: str, timeout_s: float) -> TorchProcesses:
        """Return the processes under `name`, the same ones for as long as torch.distributed is not started anew."""
        known = _known.get((name, timeout_s))
        if known is None or known._world is not dist.group.WORLD:
            known = _known[name, timeout_s] = cls(timeout_s=timeout_s)
        return known

    @property
    def judge_timeout_s(self) -> float:
        """Less than the others wait, so that the error of a judge that hangs still reaches them."""
        return 0.9 * self.timeout_s

    def exchange(self, message: bytes) -> list[bytes]:
        """Return the message of every process, in rank order; blocks until all have called this.

        Raises:
            BackendError: A process is gone, or has sent nothing in time; the message names it.
        """
        deadline = time.monotonic() + self.timeout_s
        told: dict[int, bytes] = {self.rank: message}
        lost: dict[int, str] = {}
        parts = torch.tensor([len(message)]), torch.frombuffer(bytearray(message), dtype=torch.uint8)
        peers = [rank for rank in range(self.size) if rank != self.rank]
        sends: dict[int, list[Any]] = {}
        for peer in peers:
            with self._losing(peer, lost, deadline):
                sends[peer] = [dist.isend(part, peer, self._group, tag) for tag, part in enumerate(parts)]
        for peer in peers:
            if peer not in lost and TIMED_OUT not in lost.values():
                with self._losing(peer, lost, deadline):
                    told[peer] = self._received(peer, deadline)
        # Wait for the sends after a loss too: who leaves before a busy process has its message is blamed by it.
        for peer in peers:
            if peer not in lost and TIMED_OUT not in lost.values():
                with self._losing(peer, lost, deadline):
                    for send in sends[peer]:
                        _wait(send, deadline)
        if lost:
            raise self._error(lost)
        return [told[rank] for rank in range(self.size)]

    def _received(self, peer: int, deadline: float) -> bytes:
        size = torch.zeros(1, dtype=torch.int64)
        _wait(dist.irecv(size, peer, self._group, 0), deadline)
        body = torch.empty(int(size.item()), dtype=torch.uint8)
        _wait(dist.irecv(body, peer, self._group, 1), deadline)
        return body.numpy().tobytes()

    @contextmanager
    def _losing(self, peer: int, lost: dict[int, str], deadline: float) -> Generator[None]:
        """Note `peer` as lost where gloo fails.

        One wait that runs out closes gloo's connections to all peers. So after it nothing more is asked: what fails
        then is no proof against anyone.
        """
        try:
            yield
        except RuntimeError:
            lost[peer] = TIMED_OUT if time.monotonic() >= deadline else GONE

    def _error(self, lost: dict[int, str]) -> BackendError:
        told = " and ".join(f"process {rank} {how}" for rank, how in sorted(lost.items()))
        return BackendError(f"{told.format(timeout_s=self.timeout_s)}; look at its output for the first error")


def _wait(work: Any, deadline: float) -> None:
    # Past the deadline by a millisecond: a wait of 0 means "no limit" to torch, and what ends early looks like a crash.
    work.wait(timedelta(seconds=max(deadline - time.monotonic(), 0.0) + 0.001))
