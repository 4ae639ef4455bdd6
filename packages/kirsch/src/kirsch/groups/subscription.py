"""Subscriptions: iterators over the messages of a group, for server-sent events, tasks and long polling."""

from __future__ import annotations

import threading
import time
from base64 import b64decode
from collections import deque

from kirsch.groups.frames import message_of, place_of
from kirsch.stopping import is_stopping

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

    from typing_extensions import Self

    from kirsch.groups.frames import Message
    from kirsch.groups.link import Link

MESSAGES_MAX = 1_000
"""The messages that wait in a subscription for the code that takes them."""

BYTES_MAX = 1 << 20
"""The bytes of these messages."""

# The seconds between two checks of a waiting subscription whether the server stops.
_LOOK_SECONDS = 1.0


class Subscription:
    """An iterator, and an asynchronous iterator, of the messages of a group. :meth:`kirsch.Group.messages` returns it.

    It ends when it is closed or the server begins to stop. At most 1,000 messages or 1 MiB are queued for the reader.
    Beyond that the oldest messages are dropped, and ``lost`` counts them.
    """

    def __init__(self, leave: Callable[[Subscription], None], idle: float | None) -> None:
        self.lost = 0
        self._leave = leave
        self._idle = idle
        self._ready = threading.Condition()
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._is_closed = False
        # New messages that are held back until the history has arrived; None if no history is awaited.
        self._held: list[Message] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._future: asyncio.Future[None] | None = None

    def put(self, message: Message) -> int:
        """Queue a message; return how many messages were dropped for it. May be called in any thread."""
        dropped = 0
        with self._ready:
            if self._is_closed:
                return 0
            if self._held is not None:
                self._held.append(message)
                del self._held[:-MESSAGES_MAX]
                return 0
            self._messages.append(message)
            self._bytes += len(message.data)
            while len(self._messages) > MESSAGES_MAX or (self._bytes > BYTES_MAX and len(self._messages) > 1):
                self._bytes -= len(self._messages.popleft().data)
                dropped += 1
            self.lost += dropped
            self._wake()
        return dropped

    def resume(self, link: Link, name: bytes, last_id: str) -> None:
        """Request the messages after ``last_id`` from the history. New messages are held back until they have
        arrived."""
        with self._ready:
            self._held = []
        link.ask(name, ["after", last_id], self._put_history)

    def _put_history(self, answer: Any) -> None:
        """Queue the messages of the history (bodies in base64, or None for nothing), then those that were held back."""
        history = [message_of(b64decode(body)) for body in answer or ()]
        with self._ready:
            held, self._held = self._held or [], None
        last = place_of(history[-1].id) if history else (0, 0)
        for message in (*history, *(each for each in held if place_of(each.id) > last)):
            self.put(message)

    def close(self) -> None:
        """End the subscription and drop its queued messages. May be called again, in any thread."""
        with self._ready:
            if self._is_closed:
                return
            self._is_closed = True
            self._messages.clear()
            self._wake()
        self._leave(self)

    def _wake(self) -> None:
        self._ready.notify_all()
        if self._loop is not None:
            loop, self._loop = self._loop, None
            try:
                loop.call_soon_threadsafe(self._wake_task)
            except RuntimeError:
                pass  # the loop is closed

    def _wake_task(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def _take(self) -> Message | None:
        """Remove and return the next message; None if there is none. The caller holds the lock."""
        if not self._messages:
            return None
        message = self._messages.popleft()
        self._bytes -= len(message.data)
        return message

    def _is_over(self) -> bool:
        return self._is_closed or is_stopping()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message | None:
        """Return the next message; None after ``idle`` seconds without one, if ``idle`` is set."""
        until = None if self._idle is None else time.monotonic() + self._idle
        with self._ready:
            while True:
                message = self._take()
                if message is not None:
                    return message
                if self._is_over():
                    break
                wait = _LOOK_SECONDS if until is None else min(until - time.monotonic(), _LOOK_SECONDS)
                if wait <= 0:
                    return None
                self._ready.wait(wait)
        self.close()
        raise StopIteration

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message | None:
        """Return the next message; None after ``idle`` seconds without one, if ``idle`` is set."""
        import asyncio

        loop = asyncio.get_running_loop()
        until = None if self._idle is None else loop.time() + self._idle
        while True:
            with self._ready:
                message = self._take()
                if message is not None:
                    return message
                is_over = self._is_over()
                if not is_over:
                    self._loop, self._future = loop, loop.create_future()
            if is_over:
                self.close()
                raise StopAsyncIteration
            wait = _LOOK_SECONDS if until is None else min(until - loop.time(), _LOOK_SECONDS)
            if wait <= 0:
                return None
            assert self._future is not None
            timer = loop.call_later(wait, self._wake_task)
            try:
                await self._future
            finally:
                timer.cancel()

    async def aclose(self) -> None:
        """Do the same as :meth:`close`."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
