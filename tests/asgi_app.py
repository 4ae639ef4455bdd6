"""An ASGI application for the tests: the path says what it does. Where it waits, it says so on standard error."""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import sys
import threading
import time
from typing import Any

STARTED: contextvars.ContextVar[str] = contextvars.ContextVar("STARTED", default="not set")
SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("SEEN", default="clean")

background: list[str] = []


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def lifespan(scope: Any, receive: Any, send: Any) -> None:
    mode = os.environ.get("LIFESPAN", "")
    if mode == "unsupported":
        raise ValueError("only http here")
    assert (await receive())["type"] == "lifespan.startup"
    if mode == "raises":
        raise ValueError("raised in the start-up")
    if mode == "fails":
        await send({"type": "lifespan.startup.failed", "message": "no database"})
        return
    if mode == "waits":
        say("start-up waits")
        await asyncio.sleep(3600)
    if mode == "returns":
        return
    await asyncio.sleep(0)
    STARTED.set("in the lifespan")
    scope["state"]["numbers"] = [1]
    scope["state"]["name"] = "shared"
    await send({"type": "lifespan.startup.complete"})
    assert (await receive())["type"] == "lifespan.shutdown"
    say("lifespan.shutdown received")
    if mode == "hangs":
        await asyncio.sleep(3600)
    if mode == "shutdown-fails":
        await send({"type": "lifespan.shutdown.failed", "message": "still busy"})
        return
    await send({"type": "lifespan.shutdown.complete"})


async def read(receive: Any) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("disconnected")
        body += message["body"]
        if not message["more_body"]:
            return body


async def answer(send: Any, body: bytes, status: int = 200, headers: Any = ()) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {key: shown(each) for key, each in value.items()}
    return [shown(each) for each in value] if isinstance(value, (list, tuple)) else value


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        return await lifespan(scope, receive, send)
    page = PAGES.get(scope["path"].lstrip("/").split("/")[0], hello)
    await page(scope, receive, send)
    return None


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, b"hello", headers=[(b"content-type", b"text/plain")])


async def scope_page(scope: Any, receive: Any, send: Any) -> None:
    types = sorted(f"{name}:{type(value).__name__}" for name, value in scope.items())
    await answer(send, json.dumps({"scope": shown(dict(scope)), "types": types}).encode())


async def echo(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, await read(receive))


async def parts(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of each message of the request."""
    lengths = []
    while True:
        message = await receive()
        lengths.append(len(message["body"]))
        say(f"part of {lengths[-1]}")
        if not message["more_body"]:
            break
    await answer(send, json.dumps(lengths).encode())


async def stream(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for number in range(5):
        await send({"type": "http.response.body", "body": b"%d\n" % number, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b""})


gates: dict[str, asyncio.Event] = {}


async def gate(scope: Any, receive: Any, send: Any) -> None:
    """/gate/NAME sends its head and waits until /open/NAME is asked for."""
    name = scope["path"].split("/")[2]
    gates[name] = asyncio.Event()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-gate", name.encode())]})
    say(f"gate {name} waits")
    await gates[name].wait()
    await send({"type": "http.response.body", "body": b"open"})


async def open_gate(scope: Any, receive: Any, send: Any) -> None:
    gates[scope["path"].split("/")[2]].set()
    await answer(send, b"opened")


async def watch(scope: Any, receive: Any, send: Any) -> None:
    """Waits for the client to leave."""
    await read(receive)
    say("watch waits")
    message = await receive()
    say(f"watch received {message['type']}")
    try:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
    except OSError as error:
        say(f"send raised {type(error).__module__}.{type(error).__name__}")


async def big(scope: Any, receive: Any, send: Any) -> None:
    """64 MiB in parts of 1 MiB; says how many were taken."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for number in range(64):
        await send({"type": "http.response.body", "body": b"x" * (1 << 20), "more_body": True})
        say(f"part {number} was taken")
    await send({"type": "http.response.body"})


async def after(scope: Any, receive: Any, send: Any) -> None:
    """Goes on behind its response."""
    await answer(send, b"answered")
    say("after waits")
    gates["after"] = asyncio.Event()
    await gates["after"].wait()
    say("after goes on")
    say(f"after receives {(await receive())['type']}")


async def raises(scope: Any, receive: Any, send: Any) -> None:
    where = scope["path"].split("/")[2]
    if where == "late":
        await asyncio.sleep(0)
    if where in ("started", "within"):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
    if where == "within":
        await send({"type": "http.response.body", "body": b"12345", "more_body": True})
    if where == "behind":
        await answer(send, b"answered")
    raise ValueError(f"raised {where}")


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """Returns without a response, or with half of one."""
    if scope["path"] == "/nothing/started":
        await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/nothing/within":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"12345", "more_body": True})


START = {"type": "http.response.start", "status": 200, "headers": []}
WRONG: dict[str, list[Any]] = {
    "body-first": [{"type": "http.response.body", "body": b"x"}],
    "start-twice": [START, START],
    "no-dict": ["http.response.start"],
    "no-type": [{"status": 200}],
    "type-bytes": [{"type": b"http.response.start", "status": 200}],
    "unknown": [{"type": "http.response.strat", "status": 200}],
    "websocket": [{"type": "websocket.accept"}],
    "no-status": [{"type": "http.response.start"}],
    "status-text": [{"type": "http.response.start", "status": "200"}],
    "status-1000": [{"type": "http.response.start", "status": 1000}],
    "status-100": [{"type": "http.response.start", "status": 100}],
    "status-negative": [{"type": "http.response.start", "status": -1}],
    "headers-int": [{"type": "http.response.start", "status": 200, "headers": 5}],
    "header-str": [{"type": "http.response.start", "status": 200, "headers": [("a", "b")]}],
    "value-str": [{"type": "http.response.start", "status": 200, "headers": [(b"a", "b")]}],
    "header-single": [{"type": "http.response.start", "status": 200, "headers": [(b"a",)]}],
    "header-crlf": [{"type": "http.response.start", "status": 200, "headers": [(b"a", b"b\r\nc: d")]}],
    "header-nul": [{"type": "http.response.start", "status": 200, "headers": [(b"a", b"b\0")]}],
    "name-space": [{"type": "http.response.start", "status": 200, "headers": [(b"a b", b"c")]}],
    "body-str": [START, {"type": "http.response.body", "body": "text"}],
    "body-none": [START, {"type": "http.response.body", "body": None}],
    "after-end": [START, {"type": "http.response.body", "body": b"x"}, {"type": "http.response.body", "body": b"y"}],
    "too-long": [
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]},
        {"type": "http.response.body", "body": b"12345"},
    ],
    "too-short": [
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]},
        {"type": "http.response.body", "body": b"12345"},
    ],
}


async def wrong(scope: Any, receive: Any, send: Any) -> None:
    """Sends what it must not, and answers with the exception where it still can."""
    try:
        for message in WRONG[scope["path"].split("/")[2]]:
            await send(message)
    except Exception as error:
        say(f"{type(error).__name__}: {error}")
        if scope["query_string"] == b"recover":
            await answer(send, f"{type(error).__name__}: {error}".encode())
            return
        raise


async def tasks(scope: Any, receive: Any, send: Any) -> None:
    """Uses asyncio's own tools on receive, send and the task of the request."""
    task = asyncio.current_task()
    assert task is not None
    assert task in asyncio.all_tasks()
    found: dict[str, Any] = {"names": len({task.get_name()})}
    found["message"] = (await asyncio.create_task(receive()))["type"]
    waiting = asyncio.create_task(receive())
    await asyncio.sleep(0)
    waiting.cancel()
    found["cancelled"] = (await asyncio.wait({waiting})) and waiting.cancelled()
    try:
        await asyncio.wait_for(receive(), 0.01)
    except (asyncio.TimeoutError, TimeoutError):
        found["timeout"] = True
    unstarted = asyncio.create_task(receive())
    unstarted.cancel()
    await asyncio.wait({unstarted})
    found["unstarted"] = unstarted.cancelled()
    gathered = asyncio.gather(asyncio.sleep(0, "slept"), asyncio.to_thread(threading.get_ident))
    found["gathered"] = (await gathered)[0]
    task.cancel()
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        found["self-cancelled"] = True
        if hasattr(task, "uncancel"):
            task.uncancel()
    assert asyncio.current_task() is task
    body = json.dumps(found).encode()
    await asyncio.create_task(send({"type": "http.response.start", "status": 200, "headers": []}))
    await asyncio.create_task(send({"type": "http.response.body", "body": body}))


async def context(scope: Any, receive: Any, send: Any) -> None:
    before = SEEN.get()
    SEEN.set("touched")
    scope["asgi"]["touched"] = scope["extensions"]["touched"] = True
    scope["state"]["mine"] = scope["state"]["numbers"]
    scope["state"]["numbers"].append(len(scope["state"]["numbers"]) + 1)
    if scope["path"].endswith("wait"):
        await asyncio.sleep(0)
    assert SEEN.get() == "touched"
    await answer(send, json.dumps([before, STARTED.get(), len(scope["state"]), scope["state"]["numbers"]]).encode())


async def blocks(scope: Any, receive: Any, send: Any) -> None:
    await read(receive)
    say("blocks")
    until = time.monotonic() + 60
    while time.monotonic() < until:
        time.sleep(0.01)


async def sleeps(scope: Any, receive: Any, send: Any) -> None:
    say("sleeps")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError as error:
        say(f"sleep was cancelled: {error}")
        raise


async def threads(scope: Any, receive: Any, send: Any) -> None:
    """Sends from another thread, whose loop is another one."""

    async def respond() -> None:
        await answer(send, b"from a thread")

    await asyncio.to_thread(asyncio.run, respond())


async def tasks_left(scope: Any, receive: Any, send: Any) -> None:
    """How many tasks there are."""
    await answer(send, str(len(asyncio.all_tasks())).encode())


async def pid(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, str(os.getpid()).encode())


PAGES: dict[str, Any] = {
    "scope": scope_page,
    "echo": echo,
    "parts": parts,
    "stream": stream,
    "gate": gate,
    "open": open_gate,
    "watch": watch,
    "big": big,
    "after": after,
    "raises": raises,
    "nothing": nothing,
    "wrong": wrong,
    "tasks": tasks,
    "tasks-left": tasks_left,
    "context": context,
    "blocks": blocks,
    "sleeps": sleeps,
    "threads": threads,
    "pid": pid,
}


class Callable:
    """An application by its ``__call__``, which is no coroutine function but returns an awaitable."""

    def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        return app(scope, receive, send)


class Awaitable:
    """An application that is a class: an instance is made for each call, and awaited."""

    def __init__(self, scope: Any, receive: Any, send: Any) -> None:
        self.arguments = scope, receive, send

    def __await__(self) -> Any:
        return app(*self.arguments).__await__()


instance = Callable()


def create_app() -> Any:
    return app
