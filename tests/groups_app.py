"""An application whose clients are in groups: as WSGI (``app``) and as ASGI (``asgi``).

    /room/NAME?DATA   a WebSocket, which joins: its first message is the pid of its worker
    /events/NAME      the messages as server-sent events, after those of Last-Event-ID
    /send/NAME?TEXT   sends a message, and answers with the pid
    /send-pid/NAME    sends the pid
    /late/NAME?PATH   sends what it reads from a pipe, and answers with the pid
    /pid/NAME         answers with the pid
    /count/NAME       how many members there are
    /members/NAME     their data as JSON
    /slow/NAME        a WebSocket in a group that closes slow clients

What a WebSocket sends is sent to its group.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import kirsch
from kirsch.websocket import accept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kirsch.groups import Subscription

PID = str(os.getpid())


class Room:
    def __init__(self, name: str, data: str, close_slow: bool) -> None:
        self.group = kirsch.Group(name, close_slow=close_slow)
        self.data = data

    def open(self, ws: Any) -> None:
        self.group.add(ws, self.data or None)
        ws.send(str(os.getpid()))

    def message(self, ws: Any, data: str | bytes) -> None:
        self.group.send_all(data)

    def close(self, ws: Any, code: int) -> None:
        self.group.discard(ws)


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    _, what, name = environ["PATH_INFO"].split("/")
    data = unquote(environ["QUERY_STRING"])
    if what in ("room", "slow"):
        response: Iterable[bytes] = accept(environ, Room(name, data, what == "slow"))(environ, start_response)
        return response
    group = kirsch.Group(name)
    if what == "events":
        start_response("200 OK", [("Content-Type", "text/event-stream")])
        return events(group.messages(environ.get("HTTP_LAST_EVENT_ID", ""), idle=0.2))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [answer(group, what, data).encode()]


def answer(group: kirsch.Group, what: str, data: str) -> str:
    if what == "send":
        group.send_all(data)
        return str(os.getpid())
    if what == "send-pid":
        group.send_all(str(os.getpid()))
    if what == "late":
        with open(data) as gate:
            group.send_all(gate.read())
        return str(os.getpid())
    if what in ("pid", "send-pid"):
        return str(os.getpid())
    if what == "count":
        return str(len(group))
    return json.dumps(sorted(str(member.data) for member in group.members()))


def events(messages: Subscription) -> Iterator[bytes]:
    with messages:
        yield f": {os.getpid()}\n\n".encode()
        for message in messages:
            yield event(message)


def event(message: Any) -> bytes:
    return b":\n\n" if message is None else f"id: {message.id}\ndata: {message.data}\n\n".encode()


async def asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        return
    _, what, name = scope["path"].split("/")
    data = unquote(scope["query_string"].decode())
    group = kirsch.Group(name, close_slow=what == "slow")
    if scope["type"] == "websocket":
        await room(group, data, scope, receive, send)
        return
    kind = b"text/event-stream" if what == "events" else b"text/plain"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    if what == "events":
        last = dict(scope["headers"]).get(b"last-event-id", b"").decode()
        async with group.messages(last, idle=0.2) as messages:
            await send({"type": "http.response.body", "body": f": {os.getpid()}\n\n".encode(), "more_body": True})
            async for message in messages:
                await send({"type": "http.response.body", "body": event(message), "more_body": True})
        await send({"type": "http.response.body"})
        return
    body = json.dumps(sorted(str(each.data) for each in await group.members_async()))
    if what != "members":
        body = answer(group, what, data)
    await send({"type": "http.response.body", "body": body.encode()})


async def room(group: kirsch.Group, data: str, scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    group.add(scope, data or None)
    await send({"type": "websocket.send", "text": str(os.getpid())})
    try:
        while (message := await receive())["type"] == "websocket.receive":
            group.send_all(message.get("text") or message["bytes"])
    finally:
        group.discard(scope)
