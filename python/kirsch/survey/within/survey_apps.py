"""The applications that every server of a survey runs: in WSGI, and those of ``*_asgi`` the same in ASGI.

This file is on the path of other interpreters, PyPy 3.9 among them, and has nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import time

HELLO = b"Hello World!"
LARGE = b"x" * 100_000
CHUNK = b"y" * 5_000
CHUNKS = 20
TEXT = "text/plain"
BINARY = "application/octet-stream"

_KIB = b"z" * 1024
_PAUSE_SECONDS = 0.1


def hello(environ, start_response):  # type: ignore[no-untyped-def]
    """Twelve bytes."""
    return _whole(start_response, TEXT, HELLO)


def large(environ, start_response):  # type: ignore[no-untyped-def]
    """100,000 bytes in one block."""
    return _whole(start_response, BINARY, LARGE)


def stream(environ, start_response):  # type: ignore[no-untyped-def]
    """The same as 20 blocks, of a length that nobody told."""
    start_response("200 OK", [("Content-Type", BINARY)])
    for _ in range(CHUNKS):
        yield CHUNK


def echo(environ, start_response):  # type: ignore[no-untyped-def]
    """The request's body."""
    return _whole(start_response, BINARY, environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))


def sizer(environ, start_response):  # type: ignore[no-untyped-def]
    """So many KiB as the path's last part says."""
    return _whole(start_response, BINARY, _kib(environ.get("PATH_INFO", "")))


def slow(environ, start_response):  # type: ignore[no-untyped-def]
    """Two blocks with 0.1 s of waiting between them."""
    start_response("200 OK", [("Content-Type", TEXT)])
    yield HELLO[:6]
    time.sleep(_PAUSE_SECONDS)
    yield HELLO[6:]


async def hello_asgi(scope, receive, send):  # type: ignore[no-untyped-def]
    """As ``hello``."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
    else:
        await _send(send, TEXT, HELLO)


async def large_asgi(scope, receive, send):  # type: ignore[no-untyped-def]
    """As ``large``."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
    else:
        await _send(send, BINARY, LARGE)


async def stream_asgi(scope, receive, send):  # type: ignore[no-untyped-def]
    """As ``stream``."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    await _begin(send, BINARY)
    for index in range(CHUNKS):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": index < CHUNKS - 1})


async def echo_asgi(scope, receive, send):  # type: ignore[no-untyped-def]
    """As ``echo``."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    await _send(send, BINARY, body)


async def sizer_asgi(scope, receive, send):  # type: ignore[no-untyped-def]
    """As ``sizer``."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
    else:
        await _send(send, BINARY, _kib(scope["path"]))


async def slow_asgi(scope, receive, send):  # type: ignore[no-untyped-def]
    """As ``slow``, with a wait that holds up nobody else."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    await _begin(send, TEXT)
    await send({"type": "http.response.body", "body": HELLO[:6], "more_body": True})
    await asyncio.sleep(_PAUSE_SECONDS)
    await send({"type": "http.response.body", "body": HELLO[6:]})


def _whole(start_response, kind, body):  # type: ignore[no-untyped-def]
    start_response("200 OK", [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]


def _kib(path):  # type: ignore[no-untyped-def]
    last = path.rpartition("/")[2]
    return _KIB * int(last) if last.isdigit() else HELLO


async def _live(receive, send):  # type: ignore[no-untyped-def]
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


async def _begin(send, kind, *fields):  # type: ignore[no-untyped-def]
    headers = [(b"content-type", kind.encode()), *fields]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _send(send, kind, body):  # type: ignore[no-untyped-def]
    await _begin(send, kind, (b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.body", "body": body})
