"""The broker PostgreSQL: LISTEN and NOTIFY, with asyncpg.

A channel name has at most 63 bytes, and a notification less than 8,000 bytes of text. So the channel of a group is a
hash of its name, and a message is sent as base64, in several notifications if needed. They are sent in one transaction,
and so arrive together and in order (PostgreSQL, "NOTIFY").
"""

from __future__ import annotations

import asyncio
import itertools
from base64 import b64decode, b64encode
from hashlib import blake2b

import asyncpg

from kirsch.groups.brokers import Broker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch.groups.brokers import Receive
    from kirsch.reports import ErrorLog

_PART = 7_500
_SECONDS = 5.0
"""How long PostgreSQL may take for an answer."""


class PostgresqlBroker(Broker):
    def __init__(self, url: str, report: ErrorLog, count: Callable[[str, int], None]) -> None:
        super().__init__(url, report, count)
        self._connection: Any = None
        self._ended: asyncio.Event | None = None
        # asyncpg refuses a second statement on a connection while one is running.
        self._statement = asyncio.Lock()
        self._names: dict[str, bytes] = {}
        # The parts of incomplete messages, by channel and by the pid of the PostgreSQL backend.
        self._parts: dict[tuple[str, int], list[str]] = {}

    async def connect(self, receive: Receive) -> None:
        self._receive = receive
        self._parts.clear()
        self._ended = ended = asyncio.Event()
        self._connection = await asyncpg.connect(self.url, timeout=_SECONDS, command_timeout=_SECONDS)
        self._connection.add_termination_listener(lambda _: ended.set())

    async def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def read(self) -> None:
        assert self._ended is not None
        while not self._ended.is_set():
            try:
                await asyncio.wait_for(self._ended.wait(), _SECONDS)
            except asyncio.TimeoutError:
                # A frozen database server keeps its connections open but does not answer: send a query.
                async with self._statement:
                    await self._connection.fetchval("SELECT 1")

    async def change_subscriptions(self, added: set[bytes], removed: set[bytes]) -> None:
        for name in added:
            channel = self._channel(name)
            self._names[channel] = name
            async with self._statement:
                await self._connection.add_listener(channel, self._take)
        for name in removed:
            channel = self._channel(name)
            self._names.pop(channel, None)
            async with self._statement:
                await self._connection.remove_listener(channel, self._take)

    async def publish_now(self, batch: list[tuple[bytes, bytes, bool]]) -> None:
        calls = list(itertools.chain.from_iterable(self._calls(name, content) for name, content, _ in batch))
        # executemany is a transaction by itself. An explicit one would need a ROLLBACK, which would wait once more for
        # a frozen server.
        async with self._statement:
            await self._connection.executemany("SELECT pg_notify($1, $2)", calls)

    def _calls(self, name: bytes, content: bytes) -> list[tuple[str, str]]:
        channel, text = self._channel(name), b64encode(content).decode()
        parts = [text[at : at + _PART] for at in range(0, len(text), _PART)]
        # Number the notifications, because PostgreSQL merges equal notifications of one transaction.
        return [(channel, f"{next(_numbers)}:{len(parts) - index}:{part}") for index, part in enumerate(parts)]

    def _take(self, _: object, pid: int, channel: str, payload: str) -> None:
        _, left, text = payload.split(":", 2)
        parts = self._parts.setdefault((channel, pid), [])
        parts.append(text)
        if left != "1":
            return
        del self._parts[channel, pid]
        name = self._names.get(channel)
        if name is not None:
            self._receive(name, "", b64decode("".join(parts)))

    def _channel(self, name: bytes) -> str:
        return f"kirsch_{blake2b(self.prefix.encode() + name, digest_size=16).hexdigest()}"


_numbers = itertools.count()

make = PostgresqlBroker
