"""Brokers, which connect a relay to the relays of other hosts: ``--groups URL``. A :class:`Broker` has a bounded queue
of messages to publish, and a task that connects, publishes and receives. It reconnects after growing pauses. A message
is removed from the queue before it is published, so that it is never published twice.
"""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs, urlsplit

from kirsch.config.group_settings import BROKERS
from kirsch.groups.bounded import BoundedQueue
from kirsch.reports import ERROR, INFO, WARNING, Seldom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch.reports import ErrorLog

    Receive = Callable[[bytes, str, bytes], None]

HISTORY_MAX = 1_000_000
"""The most messages of a group that ``history=`` may keep."""

PREFIX = "kirsch:"
"""The beginning of the channels and keys of a broker. ``prefix=`` in the URL replaces it."""

_RETRY_SECONDS, _RETRY_MOST_SECONDS = 0.1, 5.0
_REPORT_SECONDS = 10.0
_HISTORY_SECONDS = 5.0


class Broker:
    """The code that all brokers share. A subclass implements the four methods that raise NotImplementedError here."""

    def __init__(self, url: str, report: ErrorLog, count: Callable[[str, int], None]) -> None:
        parts = urlsplit(url)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self.prefix = options.pop("prefix", PREFIX)
        self.history_length = min(int(options.pop("history", 0)), HISTORY_MAX)
        query = "&".join(f"{name}={value}" for name, value in options.items())
        self.url = parts._replace(query=query).geturl()
        self.place = f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
        self._report = report
        self._count = count
        # For each message, the group name, the content and `keeps`.
        self._queue = BoundedQueue()
        self._filled = asyncio.Event()
        self._reports = Seldom(_REPORT_SECONDS)
        self.names: set[bytes] = set()
        """The groups that this host wants."""
        self._subscribed: set[bytes] = set()
        self._has_changed = asyncio.Condition()
        self._is_busy = False

    @property
    def has_history(self) -> bool:
        return self.history_length > 0

    @property
    def is_idle(self) -> bool:
        """True if no message waits to be published."""
        return not self._queue and not self._is_busy

    def publish(self, name: bytes, content: bytes, *, keeps: bool) -> None:
        """Queue a message for the group ``name``. ``keeps``: the message is added to the group's history. Does not
        wait."""
        if not self._queue.put((name, content, keeps), len(content)):
            self._count("lost-broker", 1)
            if self._reports.is_due():
                self._report(
                    WARNING, f"groups: {self.place} does not take messages: {len(self._queue)} wait, others are dropped"
                )
            return
        self._filled.set()

    def subscribe(self, name: bytes) -> None:
        """Receive the messages of the group ``name`` from now on, or from the next connection to the broker on."""
        self.names.add(name)
        self._filled.set()

    def unsubscribe(self, name: bytes) -> None:
        self.names.discard(name)
        self._filled.set()

    async def run(self, receive: Receive) -> None:
        """Connect, publish and receive, for ever. ``receive`` is called with the name, id and content of each
        message."""
        wait, was_lost = _RETRY_SECONDS, False
        while True:
            try:
                await self.connect(receive)
                if was_lost:
                    self._report(INFO, f"groups: {self.place} is connected again")
                wait, was_lost = _RETRY_SECONDS, False
                await self._work()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - each library has its own
                if not was_lost:
                    text = str(error) or type(error).__name__
                    self._report(ERROR, f"groups: {self.place} cannot be used, and is tried again: {text}")
                was_lost = True
            finally:
                self._is_busy = False
                await self._discard()
            await asyncio.sleep(wait)
            wait = min(2 * wait, _RETRY_MOST_SECONDS)

    async def _discard(self) -> None:
        try:
            await asyncio.wait_for(self.disconnect(), 1.0)
        except Exception:  # noqa: BLE001, S110 - it is gone in any case
            pass

    async def _work(self) -> None:
        """Publish queued messages, and keep the subscriptions up to date, until the connection fails."""
        reading = asyncio.ensure_future(self.read())
        try:
            while True:
                wanted = set(self.names)
                if wanted != self._subscribed:
                    await self.change_subscriptions(wanted - self._subscribed, self._subscribed - wanted)
                    async with self._has_changed:
                        self._subscribed = wanted
                        self._has_changed.notify_all()
                await self._publish_queue()
                self._filled.clear()
                if self._queue or self.names != self._subscribed:
                    continue
                filled = asyncio.ensure_future(self._filled.wait())
                await asyncio.wait({filled, reading}, return_when=asyncio.FIRST_COMPLETED)
                filled.cancel()
                if reading.done():
                    reading.result()
                    raise ConnectionError("the connection has ended")
        finally:
            reading.cancel()
            self._subscribed = set()

    async def _publish_queue(self) -> None:
        while self._queue:
            batch = []
            size = 0
            while self._queue and size < 1 << 16:
                name, content, keeps = self._queue.take()
                size += len(content)
                batch.append((name, content, keeps and self.has_history))
            self._is_busy = True
            try:
                await self.publish_now(batch)
            except Exception:
                # It is not known whether the messages were published, so they are not published again.
                self._count("lost-broker", sum(name[:1] != b"\0" for name, _, _ in batch))
                raise
            self._is_busy = False

    # The methods of each broker. They may raise any exception if the connection has failed.

    async def connect(self, receive: Receive) -> None:
        raise NotImplementedError

    async def disconnect(self) -> None:
        raise NotImplementedError

    async def read(self) -> None:
        """Receive messages until the connection ends."""
        raise NotImplementedError

    async def change_subscriptions(self, added: set[bytes], removed: set[bytes]) -> None:
        raise NotImplementedError

    async def publish_now(self, batch: list[tuple[bytes, bytes, bool]]) -> None:
        raise NotImplementedError

    async def history_of(self, name: bytes, last_id: str) -> list[tuple[str, bytes]]:
        """Return the ids and contents of the messages after ``last_id``, once later messages are being received."""
        if not self.has_history:
            return []
        try:
            async with self._has_changed:
                await asyncio.wait_for(self._has_changed.wait_for(lambda: name in self._subscribed), _HISTORY_SECONDS)
        except asyncio.TimeoutError:
            return []
        return await self.history(name, last_id)

    async def history(self, name: bytes, last_id: str) -> list[tuple[str, bytes]]:
        raise NotImplementedError


def make(url: str, report: ErrorLog, count: Callable[[str, int], None]) -> Any:
    """Return the broker for a URL. Raises ImportError if its client library is not installed."""
    module = __import__(f"kirsch.groups.brokers.{BROKERS[urlsplit(url).scheme]}", fromlist=["make"])
    return module.make(url, report, count)
