"""The applications that every server of a survey runs: in WSGI, and those of ``*_asgi`` the same in ASGI.

This file is on the path of other interpreters, PyPy 3.9 among them, and has nothing but the standard library.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Any

    Environ = dict[str, Any]
    Start = Callable[..., Any]
    Message = dict[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

HELLO = b"Hello World!"
LARGE = b"x" * 100_000
CHUNK = b"y" * 5_000
CHUNKS = 20
TEXT = "text/plain"
BINARY = "application/octet-stream"

_KIB = b"z" * 1024
_PAUSE_SECONDS = 0.1


def hello(environ: Environ, start_response: Start) -> list[bytes]:
    """Respond with twelve bytes."""
    return _whole(start_response, TEXT, HELLO)


def large(environ: Environ, start_response: Start) -> list[bytes]:
    """Respond with 100,000 bytes in one block."""
    return _whole(start_response, BINARY, LARGE)


def stream(environ: Environ, start_response: Start) -> Iterator[bytes]:
    """Respond with the same bytes as ``large`` in 20 blocks, without Content-Length."""
    start_response("200 OK", [("Content-Type", BINARY)])
    for _ in range(CHUNKS):
        yield CHUNK


def echo(environ: Environ, start_response: Start) -> list[bytes]:
    """Respond with the request body."""
    return _whole(start_response, BINARY, environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))


def sizer(environ: Environ, start_response: Start) -> list[bytes]:
    """Respond with a body whose size is the last segment of the path: ``16`` is 16 KiB, ``16B`` is 16 bytes."""
    return _whole(start_response, BINARY, sized(environ.get("PATH_INFO", "")))


def slow(environ: Environ, start_response: Start) -> Iterator[bytes]:
    """Respond with two blocks, 0.1 s apart."""
    start_response("200 OK", [("Content-Type", TEXT)])
    yield HELLO[:6]
    time.sleep(_PAUSE_SECONDS)
    yield HELLO[6:]


async def hello_asgi(scope: Message, receive: Receive, send: Send) -> None:
    """Do the same as ``hello``."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
    else:
        await _send(send, TEXT, HELLO)


async def large_asgi(scope: Message, receive: Receive, send: Send) -> None:
    """Do the same as ``large``."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
    else:
        await _send(send, BINARY, LARGE)


async def stream_asgi(scope: Message, receive: Receive, send: Send) -> None:
    """Do the same as ``stream``."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    await _begin(send, BINARY)
    for index in range(CHUNKS):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": index < CHUNKS - 1})


async def echo_asgi(scope: Message, receive: Receive, send: Send) -> None:
    """Do the same as ``echo``."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    await _send(send, BINARY, body)


async def sizer_asgi(scope: Message, receive: Receive, send: Send) -> None:
    """Do the same as ``sizer``."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
    else:
        await _send(send, BINARY, sized(scope["path"]))


async def slow_asgi(scope: Message, receive: Receive, send: Send) -> None:
    """Do the same as ``slow``, without delaying other requests."""
    import asyncio  # imported here, because only servers with asyncio need it

    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    await _begin(send, TEXT)
    await send({"type": "http.response.body", "body": HELLO[:6], "more_body": True})
    await asyncio.sleep(_PAUSE_SECONDS)
    await send({"type": "http.response.body", "body": HELLO[6:]})


def _whole(start_response: Start, kind: str, body: bytes) -> list[bytes]:
    start_response("200 OK", [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]


def sized(path: str) -> bytes:
    """Return a body whose size is the last segment of the path, in KiB, or in bytes as in ``/sizer/10B``; without a
    number, the body of ``hello``."""
    last = path.rpartition("/")[2]
    if last.endswith("B") and last[:-1].isdigit():
        return (_KIB * (int(last[:-1]) // 1024 + 1))[: int(last[:-1])]
    return _KIB * int(last) if last.isdigit() else HELLO


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


async def _begin(send: Send, kind: str, *fields: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", kind.encode()), *fields]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _send(send: Send, kind: str, body: bytes) -> None:
    await _begin(send, kind, (b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.body", "body": body})
