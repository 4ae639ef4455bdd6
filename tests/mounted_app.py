"""Applications of both interfaces for one process. Where they wait, and what their lifespans do, they say on standard
error."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from kirsch.websocket import accept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LOOP_THREAD: list[int] = []


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def wsgi(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    path = environ["PATH_INFO"]

    def answer(body: bytes, status: str = "200 OK") -> list[bytes]:
        start_response(status, [("Content-Length", str(len(body)))])
        return [body]

    if path == "/where":
        names = ("SCRIPT_NAME", "PATH_INFO", "RAW_URI", "QUERY_STRING", "HTTP_HOST", "wsgi.multithread")
        found = {name: environ.get(name) for name in names}
        found["in_loop"] = threading.get_ident() in LOOP_THREAD
        return answer(json.dumps(found).encode())
    if path == "/echo":
        return answer(environ["wsgi.input"].read())
    if path == "/lines":
        return answer(b"|".join(environ["wsgi.input"]))
    if path == "/raise":
        raise ValueError("raised in WSGI")
    if path == "/late":
        start_response("200 OK", [])
        return late()
    if path == "/write":
        write = start_response("200 OK", [])
        write(b"written ")
        return [b"and returned"]
    if path == "/file":
        start_response("200 OK", [])
        return environ["wsgi.file_wrapper"](open(__file__, "rb"))  # type: ignore[no-any-return]
    if path == "/parts":
        start_response("200 OK", [])
        return parts(int(environ["QUERY_STRING"]))
    if path == "/hang":
        say("WSGI hangs")
        while True:
            time.sleep(0.01)
    if path == "/wait":
        return answer(wait_for_file(environ["QUERY_STRING"], "WSGI waits"))
    if path == "/handler":
        return accept(environ, Handler())(environ, start_response)
    if path == "/upload":
        say("WSGI was called")
        return answer(str(len(environ["wsgi.input"].read())).encode())
    return answer(b"shop")


class Handler:
    """Is given the messages of a WebSocket."""

    def message(self, ws: Any, data: str) -> None:
        ws.send(
            wait_for_file(data.removeprefix("wait "), "handler waits").decode() if data.startswith("wait ") else data
        )

    def close(self, ws: Any, code: int) -> None:
        say(f"handler closed with {code}")


def wait_for_file(path: str, said: str) -> bytes:
    say(said)
    while not os.path.exists(path):
        time.sleep(0.01)
    return b"waited"


def late() -> Iterator[bytes]:
    yield b"begun"
    raise ValueError("raised late in WSGI")


def parts(count: int) -> Iterator[bytes]:
    thread = threading.get_ident()
    try:
        for _ in range(count):
            if threading.get_ident() != thread:
                say("the thread has changed")
            yield bytes(65536)
    finally:
        say("WSGI parts are closed")


def make_asgi(name: str) -> Callable[..., Any]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        serve = {"lifespan": lifespan, "websocket": websocket, "http": http}[scope["type"]]
        if scope["type"] == "http" and not LOOP_THREAD:
            LOOP_THREAD.append(threading.get_ident())
        await serve(name, scope, receive, send)

    return app


async def lifespan(name: str, scope: Any, receive: Any, send: Any) -> None:
    await receive()
    say(f"{name} starts")
    if os.environ.get("FAILS") == name:
        await send({"type": "lifespan.startup.failed", "message": f"no database for {name}"})
        return
    scope["state"]["of"] = name
    await send({"type": "lifespan.startup.complete"})
    await receive()
    say(f"{name} shuts down")
    await send({"type": "lifespan.shutdown.complete"})


async def websocket(name: str, scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": f"{name} {scope['root_path']} {scope['path']}"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


async def http(name: str, scope: Any, receive: Any, send: Any) -> None:
    async def answer(body: bytes) -> None:
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    path = scope["path"].removeprefix(scope["root_path"])
    if path == "/where":
        found = {key: scope[key] for key in ("root_path", "path", "state")}
        found |= {"name": name, "raw_path": scope["raw_path"].decode(), "query": scope["query_string"].decode()}
        await answer(json.dumps(found).encode())
    elif path == "/echo":
        body, more = b"", True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        await answer(body)
    elif path == "/raise":
        raise ValueError("raised in ASGI")
    elif path == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(3):
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": f"{number} ".encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"end"})
    elif path == "/hang":
        say("ASGI hangs")
        await asyncio.sleep(3600)
    elif path == "/wait":
        say("ASGI waits")
        while not os.path.exists(scope["query_string"].decode()):
            await asyncio.sleep(0.01)
        await answer(b"waited")
    else:
        await answer(name.encode())


api = make_asgi("api")
admin = make_asgi("admin")


class Opaque:
    """Its signature does not tell what it is."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, *arguments: Any) -> Any:
        return self._app(*arguments)


opaque = Opaque(api)
