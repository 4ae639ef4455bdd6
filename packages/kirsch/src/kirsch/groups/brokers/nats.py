"""The broker NATS: one subject for each group. The name is in base64, because spaces and dots are special in a
subject."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode

import nats

from kirsch.groups.brokers import Broker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from kirsch.groups.brokers import Receive
    from kirsch.reports import ErrorLog

_SECONDS = 5.0
"""How long NATS may take for an answer."""


class NatsBroker(Broker):
    def __init__(self, url: str, report: ErrorLog, count: Callable[[str, int], None]) -> None:
        super().__init__(url, report, count)
        self._client: Any = None
        self._subscriptions: dict[bytes, Any] = {}
        self._ended = asyncio.Event()

    async def connect(self, receive: Receive) -> None:
        self._receive = receive
        self._subscriptions.clear()
        self._ended = asyncio.Event()
        ended = self._ended

        async def end(*_: object) -> None:
            ended.set()

        async def ignore(*_: object) -> None:
            """Do nothing: an error is reported when it ends the connection."""

        # Disable the client's own reconnection, so that all brokers wait and report in the same way.
        self._client = await nats.connect(
            self.url,
            allow_reconnect=False,
            connect_timeout=_SECONDS,
            ping_interval=_SECONDS,
            max_outstanding_pings=1,
            max_reconnect_attempts=0,
            disconnected_cb=end,
            closed_cb=end,
            error_cb=ignore,
        )

    async def disconnect(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def read(self) -> None:
        await self._ended.wait()

    async def change_subscriptions(self, added: set[bytes], removed: set[bytes]) -> None:
        for name in added:
            self._subscriptions[name] = await self._client.subscribe(self._subject(name), cb=self._taker(name))
        for name in removed:
            await self._subscriptions.pop(name).unsubscribe()

    def _taker(self, name: bytes) -> Callable[[Any], Awaitable[None]]:
        async def take(message: Any) -> None:
            self._receive(name, "", message.data)

        return take

    async def publish_now(self, batch: list[tuple[bytes, bytes, bool]]) -> None:
        for name, content, _ in batch:
            await self._client.publish(self._subject(name), content)
        # The messages count as waiting until the NATS server has them.
        await self._client.flush(timeout=_SECONDS)

    def _subject(self, name: bytes) -> str:
        # A subject may not contain a NUL either, with which the name of the relays' own group begins.
        return f"{self.prefix.rstrip(':').replace(':', '.')}.{urlsafe_b64encode(name).decode().rstrip('=')}"


make = NatsBroker
