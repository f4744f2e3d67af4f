"""Answers kept, in memory and on disk, so that no question is paid for twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections import OrderedDict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rl_reward.backends.base import Backend, Reply, Request, Token
from rl_reward.backends.wrapper import Wrapper
from rl_reward.errors import ConfigError
from rl_reward.types import Usage

_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS replies (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, reply TEXT);
"""


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
        if max_entries < 1:
            raise ConfigError(f"max_entries must be >= 1, got {max_entries}")
        self._own_identity = identity
        if path is not None and self.identity is None:
            raise ConfigError(f"{self.name} does not say which model it is; give identity=... to keep answers on disk")
        self._max_entries = max_entries
        self._memory: OrderedDict[str, Reply] = OrderedDict()
        self._flights: dict[str, _Flight] = {}
        self._disk = None if path is None else _Disk(Path(path), max_entries)

    @property
    def identity(self) -> str | None:
        """What tells the model behind this backend from every other one."""
        return self._own_identity or super().identity

    async def reply(self, request: Request) -> Reply:
        """Answer one request; see `Backend.reply`."""
        key = hashlib.sha256(f"{self.identity or self.name}\0{request.key}".encode()).hexdigest()
        kept = self._kept(key)
        if kept is not None:
            return kept
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(self._fetch(key, request)))
        return await self._wait(key, flight)

    async def aclose(self) -> None:
        """Close the file and the backend."""
        if self._disk is not None:
            self._disk.close()
        await super().aclose()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memory": OrderedDict(), "_flights": {}}

    async def _wait(self, key: str, flight: _Flight) -> Reply:
        """Return the answer; when the last who waits for it gives up, the question is withdrawn."""
        flight.waiting += 1
        try:
            reply = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                flight.task.cancel()
                del self._flights[key]
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
    """The replies in one SQLite file, opened again after pickling: connections cross no processes."""

    def __init__(self, path: Path, max_entries: int) -> None:
        self.path, self._max_entries = path, max_entries
        self._connection: sqlite3.Connection | None = None
        self._open()

    def read(self, key: str) -> Reply | None:
        row = self._open().execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else _decoded(row[0])

    def write(self, key: str, reply: Reply) -> None:
        with self._open() as connection:
            connection.execute("INSERT OR REPLACE INTO replies (key, reply) VALUES (?, ?)", (key, _encoded(reply)))
            connection.execute(
                "DELETE FROM replies WHERE id <= (SELECT max(id) FROM replies) - ?", (self._max_entries,)
            )

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                # Used by the event loop's thread, whichever that is; never by two at a time.
                connection = sqlite3.connect(self.path, timeout=30.0, check_same_thread=False)
                # Losing the last answers in a power cut costs a few calls; a disk sync per answer costs more.
                connection.executescript(_SCHEMA)
            except sqlite3.Error as error:
                raise ConfigError(f"{self.path} cannot be used as a cache ({error}); give another path") from None
            self._connection = connection
        return self._connection


def _encoded(reply: Reply) -> str:
    return json.dumps(asdict(reply), separators=(",", ":"))


def _decoded(text: str) -> Reply:
    fields: dict[str, Any] = json.loads(text)
    tokens = tuple(
        Token(token["text"], token["logprob"], tuple((name, logprob) for name, logprob in token["alternatives"]))
        for token in fields["tokens"]
    )
    return Reply(tokens, fields["content"], fields["reasoning"], fields["finish_reason"])
