"""Applications for the tests of the quarantine, WSGI and ASGI: some paths end the worker.

``/boom``: the worker is killed by a signal (``?exit``: it exits; ``?fault``: it reads from address 0). ``/item/N``: the
worker exits. ``/good``: says after a while on standard error that it runs, and answers when the file that the variable
GATE names exists.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import os
import signal
import time
from typing import Any

GATE = os.environ.get("GATE", "")

OLD_SECONDS = 0.05
"""After this time a request is clearly older than the next one."""


def end(query: str) -> None:
    if query == "exit":
        os._exit(9)
    if query == "fault":
        faulthandler.disable()
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


def act(path: str, query: str) -> None:
    if "/boom" in path:
        end(query)
    if path.startswith("/item/"):
        os._exit(9)


def say(path: str) -> None:
    os.write(2, f"inside {path}\n".encode())  # whole, whatever other threads write


def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    path = environ["SCRIPT_NAME"] + environ["PATH_INFO"]
    act(path, environ["QUERY_STRING"])
    if path.startswith("/good"):
        time.sleep(OLD_SECONDS)
        say(path)
        while not os.path.exists(GATE):
            time.sleep(0.01)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [path.encode()]


other = app


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    path = scope["path"]
    act(path, scope["query_string"].decode())
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})
        return
    if path.startswith("/good"):
        await asyncio.sleep(OLD_SECONDS)
        say(path)
        while not os.path.exists(GATE):
            await asyncio.sleep(0.01)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": path.encode()})
