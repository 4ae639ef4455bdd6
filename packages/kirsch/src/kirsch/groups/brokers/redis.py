"""The brokers Redis and Valkey: pub/sub, and with ``history=N`` a stream for each group. With a history, one script
adds a message to the stream and publishes it, so that the id is published with the message and all hosts see one order.
After a lost connection, the missed messages are read from the streams.
"""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from kirsch.groups.brokers import Broker
from kirsch.groups.frames import place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch.groups.brokers import Receive
    from kirsch.reports import ErrorLog

_ADD = """
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'm', ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[4])
redis.call('PUBLISH', ARGV[3], id .. ' ' .. ARGV[1])
"""

_KEPT_SECONDS = 24 * 3600
"""The history of a group ends so long after its last message."""

_SECONDS = 5.0
"""How long Redis may take for an answer."""


class RedisBroker(Broker):
    def __init__(self, url: str, report: ErrorLog, count: Callable[[str, int], None]) -> None:
        super().__init__(url, report, count)
        if self.url.startswith("valkey:"):
            self.url = "redis:" + self.url.partition(":")[2]
        self._client: Any = None
        self._reader: Any = None
        # The id of the last message that this host received, by group.
        self._last: dict[bytes, str] = {}

    async def connect(self, receive: Receive) -> None:
        options: dict[str, Any] = {
            "retry": Retry(NoBackoff(), 0),  # do not retry: the message may have been published already
            "socket_timeout": _SECONDS,
            "socket_connect_timeout": _SECONDS,
            "health_check_interval": 0,
        }
        self._receive = receive
        self._client = Redis.from_url(self.url, **options)
        self._reader = self._client.pubsub()
        await self._client.ping()

    async def disconnect(self) -> None:
        for each in (self._reader, self._client):
            if each is not None:
                await each.aclose()

    async def read(self) -> None:
        pinged = asyncio.get_running_loop().time()
        while True:
            if not self._reader.subscribed:
                await asyncio.sleep(0.01)  # the first subscription makes it usable
                continue
            message = await self._reader.get_message(ignore_subscribe_messages=True, timeout=1.0)
            if message is None:
                # A frozen server keeps its connections open but does not answer: send a ping.
                now = asyncio.get_running_loop().time()
                if now > pinged + _SECONDS:
                    pinged = now
                    await self._client.ping()
            elif message["type"] == "message":
                name = message["channel"][len(self.prefix) :]
                self._take(name, message["data"])

    def _take(self, name: bytes, data: bytes) -> None:
        if not self.has_history or name[:1] == b"\0":
            self._receive(name, "", data)
            return
        mark, _, content = data.partition(b" ")
        self._take_kept(name, mark.decode(), content)

    def _take_kept(self, name: bytes, mark: str, content: bytes) -> None:
        if place_of(mark) > place_of(self._last.get(name, "")):
            self._last[name] = mark
            self._receive(name, mark, content)

    async def change_subscriptions(self, added: set[bytes], removed: set[bytes]) -> None:
        if added:
            await self._reader.subscribe(*(self.prefix.encode() + name for name in added))
        if removed:
            await self._reader.unsubscribe(*(self.prefix.encode() + name for name in removed))
        for name in removed:
            self._last.pop(name, None)
        if self.has_history:
            for name in added:
                if name in self._last:
                    for mark, content in await self.history(name, self._last[name]):
                        self._take_kept(name, mark, content)

    async def publish_now(self, batch: list[tuple[bytes, bytes, bool]]) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            for name, content, keeps in batch:
                channel = self.prefix.encode() + name
                if keeps:
                    key = self._key(name)
                    pipeline.eval(_ADD, 1, key, content, self.history_length, channel, _KEPT_SECONDS)
                else:
                    pipeline.publish(channel, content)
            await pipeline.execute()

    async def history(self, name: bytes, last_id: str) -> list[tuple[str, bytes]]:
        first, _, second = last_id.partition("-")
        if not (first.isdigit() and (second or "0").isdigit()):
            return []
        try:
            found = await self._client.xrange(self._key(name), min=f"({first}-{second or 0}", count=self.history_length)
        except Exception:  # noqa: BLE001 - the connection is lost, which its reader reports
            return []
        return [(mark.decode(), fields[b"m"]) for mark, fields in found]

    def _key(self, name: bytes) -> bytes:
        return f"{self.prefix}history:".encode() + name


make = RedisBroker
