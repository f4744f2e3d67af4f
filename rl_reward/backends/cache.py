"""Answers kept, in memory and on disk, so that no question is paid for twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rl_reward._checks import check_int
from rl_reward.backends.base import Backend, Reply, Request, Token
from rl_reward.backends.per_loop import PerLoop
from rl_reward.backends.untrusted import MISSHAPEN, string
from rl_reward.backends.wrapper import Wrapper
from rl_reward.errors import ConfigError
from rl_reward.types import Usage

_TABLE = "replies (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, reply TEXT)"
# Losing the last answers in a power cut costs a few calls; a disk sync per answer costs more.
_SETUP = f"PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; CREATE TABLE IF NOT EXISTS {_TABLE};"
_TABLES = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"


class Cached(Wrapper):
    """Answers a question that was answered before from memory or disk, at no usage.

    A question is the backend's identity and everything in the request that could change the answer: another model,
    server, setting, candidate, prompt or draw is another question. Failures are not kept. The same question asked again
    while it is on its way is asked once; the first to get the answer pays for it.
    """

    def __init__(
        self,
        backend: Backend,
        path: str | Path | None = None,
        *,
        max_entries: int = 10_000,
        identity: str | None = None,
    ) -> None:
        """Open the cache.

        Args:
            backend: Who answers what is not kept.
            path: A file that keeps answers between runs and may be shared by processes; None: memory only.
            max_entries: Replies kept in memory (the least recently used goes first) and on disk (the oldest), >= 1.
            identity: What tells the backend's model from others in the file; needed for a backend that does not say.

        Raises:
            ConfigError: The limit is too low, the file is no cache, or the backend has no identity.
        """
        super().__init__(backend)
        self._own_identity = identity
        if path is not None and self.identity is None:
            raise ConfigError(f"{self.name} does not say which model it is; give identity=... to keep answers on disk")
        self._max_entries = check_int("max_entries", max_entries, least=1)
        self._memory: OrderedDict[str, Reply] = OrderedDict()
        self._flights = PerLoop(dict[str, _Flight])
        self._disk = None if path is None else _Disk(Path(path), self._max_entries)

    @property
    def identity(self) -> str | None:
        """What tells the model behind this backend from every other one."""
        return self._own_identity or super().identity

    async def reply(self, request: Request) -> Reply:
        """Answer one request; see `Backend.reply`."""
        key = hashlib.sha256(f"{self.identity or self.name}\0{request.key}".encode()).hexdigest()
        kept = self._kept(key)
        return kept if kept is not None else await self._join(key, request)

    async def aclose(self) -> None:
        """Close the file and the backend."""
        if self._disk is not None:
            self._disk.close()
        await super().aclose()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memory": OrderedDict()}

    async def _join(self, key: str, request: Request) -> Reply:
        """Wait for the answer with all who asked the same; when the last gives up, the question is withdrawn."""
        flights = self._flights.get()
        if key not in flights:
            flights[key] = _Flight(asyncio.ensure_future(self._fetch(key, request)))
        flight = flights[key]
        flight.waiting += 1
        try:
            reply = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                flight.task.cancel()
                del flights[key]
        if flight.paid:
            return replace(reply, usage=Usage())
        flight.paid = True
        return reply

    async def _fetch(self, key: str, request: Request) -> Reply:
        reply = await self.backend.reply(request)
        self._remember(key, replace(reply, usage=Usage()))
        if self._disk is not None:
            self._disk.write(key, reply)
        return reply

    def _kept(self, key: str) -> Reply | None:
        reply = self._memory.get(key)
        if reply is None and self._disk is not None:
            reply = self._disk.read(key)
        if reply is not None:
            self._remember(key, reply)
        return reply

    def _remember(self, key: str, reply: Reply) -> None:
        self._memory[key] = reply
        self._memory.move_to_end(key)
        if len(self._memory) > self._max_entries:
            self._memory.popitem(last=False)


@dataclass
class _Flight:
    """A question on its way."""

    task: asyncio.Future[Reply]
    waiting: int = 0
    paid: bool = False


class _Disk:
    """The replies in one SQLite file, opened by each process for itself: no connection survives a fork."""

    def __init__(self, path: Path, max_entries: int) -> None:
        self.path, self._max_entries = path, max_entries
        # By process. One that was inherited is kept and left alone: closing it could hurt the parent's.
        self._connections: dict[int, sqlite3.Connection] = {}
        with self._connected() as connection:
            connection.execute("SELECT 1")

    def read(self, key: str) -> Reply | None:
        with self._connected() as connection:
            row = connection.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else _decoded(row[0])

    def write(self, key: str, reply: Reply) -> None:
        with self._connected() as connection:
            connection.execute("INSERT OR REPLACE INTO replies (key, reply) VALUES (?, ?)", (key, _encoded(reply)))
            connection.execute(
                "DELETE FROM replies WHERE id <= (SELECT max(id) FROM replies) - ?", (self._max_entries,)
            )

    def close(self) -> None:
        connection = self._connections.pop(os.getpid(), None)
        if connection is not None:
            connection.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connections": {}}

    @contextmanager
    def _connected(self) -> Generator[sqlite3.Connection]:
        """Lend this process's connection for one transaction; raise ConfigError if the file cannot be used."""
        try:
            if os.getpid() not in self._connections:
                self._connections[os.getpid()] = self._open()
            with self._connections[os.getpid()] as connection:
                yield connection
        except sqlite3.Error as error:
            raise ConfigError(f"{self.path} cannot be used as a cache ({error}); give another path") from None

    def _open(self) -> sqlite3.Connection:
        # Used by the event loop's thread, whichever that is; never by two at a time.
        connection = sqlite3.connect(self.path, timeout=30.0, check_same_thread=False)
        if {sql for (sql,) in connection.execute(_TABLES)} - {f"CREATE TABLE {_TABLE}"}:
            raise sqlite3.DatabaseError("it holds the tables of another program")
        connection.executescript(_SETUP)
        return connection


def _encoded(reply: Reply) -> str:
    return json.dumps(asdict(reply), separators=(",", ":"))


def _decoded(row: Any) -> Reply | None:
    """Return the reply that `row` holds, None where it is damaged: the question is asked again."""
    try:
        fields = json.loads(row)
        tokens = tuple(_token(token) for token in fields["tokens"])
        return Reply(tokens, string(fields["content"]), string(fields["reasoning"]), string(fields["finish_reason"]))
    except MISSHAPEN:
        return None


def _token(fields: Any) -> Token:
    logprob = fields["logprob"]
    alternatives = tuple((string(name), float(number)) for name, number in fields["alternatives"])
    return Token(string(fields["text"]), None if logprob is None else float(logprob), alternatives)
