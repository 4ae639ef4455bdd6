"""Server-sent events: a generator whose items reach the browser's EventSource one by one."""

from __future__ import annotations

from kirsch_web.response import Response, StreamBody, close, encode_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
    from typing import Any


class Event:
    """One event.

    Args:
        data: text, or what becomes JSON.
        event: the name of the event. The browser calls the listeners of this name; empty: ``message``.
        id: the value that the browser sends as ``Last-Event-ID`` when it connects again.
        retry: the milliseconds after which the browser connects again.
    """

    __slots__ = ("data", "event", "id", "retry")

    def __init__(self, data: object = "", *, event: str = "", id: str = "", retry: int | None = None) -> None:  # noqa: A002 - the standard's word
        for name, value in (("event", event), ("id", id)):
            if any(character in value for character in "\r\n\0"):
                raise ValueError(f"the {name} of an event is one line, not {value!r}")
        self.data = data
        self.event = event
        self.id = id
        self.retry = retry

    def encode(self) -> bytes:
        """Return the event as it is sent."""
        lines = []
        if self.event:
            lines.append(f"event: {self.event}")
        if self.id:
            lines.append(f"id: {self.id}")
        if self.retry is not None:
            lines.append(f"retry: {self.retry}")
        text = self.data if isinstance(self.data, str) else encode_json(self.data).decode()
        lines += [f"data: {line}" for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
        return ("\n".join(lines) + "\n\n").encode()


_OPENING = b": stream\n\n"
"""The first bytes, from which the browser learns that it is connected."""


def _encoded(item: Any) -> bytes:
    """Return an item of the stream. None is a heartbeat: a comment, which keeps proxies from giving up."""
    return b":\n\n" if item is None else (item if isinstance(item, Event) else Event(item)).encode()


class Events(StreamBody):
    """The body of a stream of events."""

    content_type = "text/event-stream"

    def __init__(self, items: Any) -> None:
        self._items = items
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        from kirsch_web.request import current

        yield _OPENING
        for item in self._items:
            if current().disconnected():
                break
            yield _encoded(item)
        self.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            close(self._items)


class AsyncEvents(Events):
    """The body of a stream of events that an asynchronous generator makes."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield _OPENING
        async for item in self._items:
            yield _encoded(item)

    async def aclose(self) -> None:
        """Close the events at the end of the response, or when the client has left."""
        await self._items.aclose()


def events(items: Iterable[Any] | AsyncIterable[Any]) -> Response:
    """Return a response of server-sent events.

    Args:
        items: a generator, or under ASGI an asynchronous one, of :class:`Event`, of text, or of what becomes JSON. It
            yields None as a heartbeat when there is nothing to say. It is closed when the client leaves, where the
            server can tell, and in any case when the response ends.
    """
    body = (AsyncEvents if hasattr(items, "__aiter__") else Events)(items)
    return Response(body, headers=[("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")])
