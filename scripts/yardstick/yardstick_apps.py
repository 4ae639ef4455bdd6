"""The applications that every server under the yardstick runs: plain WSGI, and ASGI."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    Environ = dict[str, Any]
    StartResponse = Callable[..., Any]

BODY = b"My Own Hello World!"
LARGE = b"x" * 100_000
CHUNK = b"y" * 5_000


def hello(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """19 bytes."""
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "19")])
    return [BODY]


def echo(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """The request's body."""
    body: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start_response("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(body)))])
    return [body]


def large(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """100 kB in one block."""
    start_response("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(LARGE)))])
    return [LARGE]


def stream(environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
    """20 blocks of 5 kB."""
    start_response("200 OK", [("Content-Type", "application/octet-stream")])
    for _ in range(20):
        yield CHUNK


def slow(environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
    """Two blocks with 0.1 s of waiting between them."""
    start_response("200 OK", [("Content-Type", "text/plain"), ("X-paul", "pbrian")])
    yield b"Hello"
    time.sleep(0.1)
    yield b"World"


def slowmix(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """As ``hello``; ``/slow`` waits for 50 ms before."""
    if environ["PATH_INFO"] == "/slow":
        time.sleep(0.05)
    return hello(environ, start_response)


async def asgi(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """As ``hello``."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await send({"type": "lifespan.shutdown.complete"})
                return
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"19")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


async def asgi_echo(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """As ``echo``."""
    if scope["type"] == "lifespan":
        await asgi(scope, receive, send)
        return
    parts = []
    has_more = True
    while has_more:
        message = await receive()
        parts.append(message["body"])
        has_more = message["more_body"]
    body = b"".join(parts)
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def ws_echo(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Each message of a WebSocket, back again."""
    if scope["type"] != "websocket":
        await asgi(scope, receive, send)
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "bytes": message["bytes"]})


class EchoHandler:
    """A handler of a WSGI application that sends each message back."""

    def message(self, websocket: Any, data: str | bytes) -> None:
        websocket.send(data)


_HANDLER = EchoHandler()


def ws_echo_handler(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """The same by a handler (docs/websocket.md): ``--server 'NAME=kirsch yardstick_apps:ws_echo_handler ...'``."""
    import importlib

    websocket: Any = importlib.import_module("kirsch.websocket")  # this file is read where it is not installed
    found: Iterable[bytes] = websocket.accept(environ, _HANDLER)(environ, start_response)
    return found


def picows_echo(port: int) -> None:
    """The same by picows, which has a server of its own and no ASGI. It runs until it is killed."""
    import asyncio
    import importlib

    picows: Any = importlib.import_module("picows")  # this file is read where it is not installed

    class Listener(picows.WSListener):  # type: ignore[misc]
        def on_ws_frame(self, transport: Any, frame: Any) -> None:
            if frame.msg_type == picows.WSMsgType.CLOSE:
                transport.send_close(frame.get_close_code())
                transport.disconnect()
            else:
                transport.send(frame.msg_type, frame.get_payload_as_bytes())

    async def serve() -> None:
        server = await picows.ws_create_server(lambda _: Listener(), "127.0.0.1", port)
        await server.serve_forever()

    asyncio.run(serve())
