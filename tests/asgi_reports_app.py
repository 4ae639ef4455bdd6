"""An ASGI application whose pages do what applications did in reports of bugs of other servers, and what is wrong."""

from __future__ import annotations

import asyncio
import builtins
import gc
import json
import os
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asgi_app import answer, lifespan, read, say
from kirsch import ClientDisconnected

if TYPE_CHECKING:
    from collections.abc import Callable

START = {"type": "http.response.start", "status": 200, "headers": []}
gates: dict[str, asyncio.Event] = {}
kept: list[Any] = []


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await LIFESPANS.get(os.environ.get("ODD", ""), lifespan)(scope, receive, send)
        return
    name = scope["path"].split("/")[1].replace("-", "_")
    await globals()[f"page_{name}" if name else "page_hello"](scope, receive, send)


async def page_hello(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, b"hello")


def gate(scope: Any) -> asyncio.Event:
    return gates.setdefault(scope["path"].split("/")[2], asyncio.Event())


async def page_wait(scope: Any, receive: Any, send: Any) -> None:
    """Answers when /open/NAME is asked for, or the client has left."""
    say(f"waits {scope['path']}")
    await gate(scope).wait()
    await answer(send, b"waited")


async def page_open(scope: Any, receive: Any, send: Any) -> None:
    gate(scope).set()
    await answer(send, b"opened")


async def page_behind(scope: Any, receive: Any, send: Any) -> None:
    """A call that goes on behind its response."""
    await answer(send, b"answered")
    say(f"goes on {scope['path']}")
    await gate(scope).wait()
    say(f"ends {scope['path']}")


# Reports


async def page_dictionaries(scope: Any, receive: Any, send: Any) -> None:
    scopes = [scope, scope["asgi"], scope["extensions"], scope["state"]]
    seen = [name for name, each in zip(("scope", "asgi", "extensions", "state"), scopes, strict=True) if "mark" in each]
    for each in scopes:
        each["mark"] = True
    scope["headers"].append((b"mark", b""))
    scope["asgi"]["version"] = "9"
    await answer(send, json.dumps([seen, len(scope["headers"])]).encode())


async def page_types(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    found = [type(scope["client"][1]), type(scope["server"][1]), type(scope["headers"][0][0]), type(message["body"])]
    lower = all(name == name.lower() for name, _ in scope["headers"])
    await answer(send, json.dumps([*(each.__name__ for each in found), lower, scope["path"]]).encode())


async def page_after_body(scope: Any, receive: Any, send: Any) -> None:
    """receive() behind the body waits; behind the response it is a disconnect, again and again."""
    await read(receive)
    waiting = asyncio.ensure_future(receive())
    done, _ = await asyncio.wait({waiting}, timeout=0.05)
    await answer(send, json.dumps(len(done)).encode())
    say(f"waiter of {scope['method']}: {(await waiting)['type']}, then {(await receive())['type']}")


async def page_listener(scope: Any, receive: Any, send: Any) -> None:
    """As Starlette and Django: a task listens for the disconnect, and is cancelled when the response is over."""

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    await read(receive)
    listener = asyncio.create_task(listen())
    await asyncio.sleep(0)
    listener.cancel()
    try:
        await listener
    except asyncio.CancelledError:
        said = "cancelled"
    else:
        said = "swallowed"
    await answer(send, said.encode())


async def page_stream(scope: Any, receive: Any, send: Any) -> None:
    """Streams until the client leaves, and cleans up."""
    await send(START)
    try:
        while True:
            await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
            await asyncio.sleep(0.001)
    except OSError:
        say("stream ends by OSError")
        raise
    finally:
        say("stream cleaned up")


async def page_full(scope: Any, receive: Any, send: Any) -> None:
    """Sends to a client that reads nothing, until it leaves."""
    await send(START)
    try:
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"x" * (1 << 20), "more_body": True})
    except OSError:
        say("full send woken")


class ClientDisconnect(Exception):
    """As frameworks have it."""


def group(*errors: Exception) -> Any:
    """A group of exceptions, from CPython 3.11 on."""
    return vars(builtins)["ExceptionGroup"]("a group", errors)


LEFT: dict[str, Callable[[], BaseException]] = {
    "framework": ClientDisconnect,
    "cancelled": asyncio.CancelledError,
    "group": lambda: group(ClientDisconnect(), ClientDisconnected()),
    "key": lambda: KeyError("a bug"),
    "file": lambda: FileNotFoundError("a missing file"),
    "mixed": lambda: group(ClientDisconnect(), ValueError("a bug in a group")),
}


async def page_raises_when_left(scope: Any, receive: Any, send: Any) -> None:
    """Raises when its client has left: an exception that says only that, or another one."""
    kind = scope["path"].split("/")[2]
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
    say(f"waits {kind}")
    while not (await receive())["type"].endswith(".disconnect"):
        pass
    say(f"raises {kind}")
    if kind == "send":
        if scope["type"] == "http":
            await send(START)
        while True:
            await send(
                {"type": "http.response.body", "body": b"too late", "more_body": True}
                if scope["type"] == "http"
                else {"type": "websocket.send", "text": "too late"}
            )
            await asyncio.sleep(0)
    if kind != "nothing":
        make = LEFT[kind]
        raise make()


async def page_two(scope: Any, receive: Any, send: Any) -> None:
    """Two tasks receive at a time; each part comes to one of them, and the disconnect to both."""

    async def collect() -> int:
        total = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return total
            total += len(message["body"])
            parts[0] += len(message["body"])
            if not message["more_body"]:
                whole.set()

    parts, whole = [0], asyncio.Event()
    tasks = [asyncio.create_task(collect()) for _ in range(2)]
    await whole.wait()
    await answer(send, str(parts[0]).encode())
    await asyncio.gather(*tasks)
    say("both ended")


async def page_cancelled_receive(scope: Any, receive: Any, send: Any) -> None:
    """Each receive() is cancelled many times before it gets its part."""
    total = 0
    while True:
        try:
            message = await asyncio.wait_for(receive(), 0.0005)
        except (asyncio.TimeoutError, TimeoutError):
            continue
        total += len(message["body"])
        if not message["more_body"]:
            break
    await answer(send, str(total).encode())


def count_futures() -> int:
    gc.collect()
    return sum(type(each).__name__ == "Future" for each in gc.get_objects())


async def cancel_often(start: Any) -> int:
    """How many futures 2,000 waits leave behind that are cancelled before anything happens."""
    before = count_futures()
    for _ in range(2000):
        waiting = asyncio.ensure_future(start())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
    return count_futures() - before


async def page_cancelled_waits(scope: Any, receive: Any, send: Any) -> None:
    """As Starlette's is_disconnected(), and as a heartbeat: waits that are cancelled again and again."""
    await read(receive)
    left = [await cancel_often(receive)]
    await send(START)
    waiting = asyncio.ensure_future(asyncio.sleep(0))
    await waiting
    while waiting.done():  # until the client, which does not read, has no room
        part = {"type": "http.response.body", "body": b"x" * (1 << 20), "more_body": True}
        waiting = asyncio.ensure_future(send(part))
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    left.append(await cancel_often(lambda: send({"type": "http.response.body", "body": b"x", "more_body": True})))
    say(f"futures left: {left}")


async def page_timeout(scope: Any, receive: Any, send: Any) -> None:
    try:
        await asyncio.wait_for(asyncio.sleep(60), 0.01)
    except (asyncio.TimeoutError, TimeoutError):
        await answer(send, b"timed out")


async def page_collected(scope: Any, receive: Any, send: Any) -> None:
    """Nothing but the server refers to the request while it waits (granian #436)."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_later(0.05, future.set_result, None)
    gc.collect()
    await future
    gc.collect()
    await answer(send, b"kept")


async def page_raises_group(scope: Any, receive: Any, send: Any) -> None:
    async def fail() -> None:
        raise ValueError("in a task")

    await asyncio.gather(fail(), asyncio.sleep(0))


async def page_early(scope: Any, receive: Any, send: Any) -> None:
    """Answers before the body is here, and does not read it."""
    await answer(send, b"early")


async def page_status(scope: Any, receive: Any, send: Any) -> None:
    """A body with a status that has none."""
    status = int(scope["path"].split("/")[2])
    await send({"type": "http.response.start", "status": status, "headers": [(b"x-a", b"1")]})
    await send({"type": "http.response.body", "body": b"null"})


async def page_cookies(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"x-latin", b"caf\xe9"), (b"Mixed-Case", b"")]
    await send({"type": "http.response.start", "status": 200, "headers": (header for header in headers)})
    await send({"type": "http.response.body"})


# Bad input


async def page_silent(scope: Any, receive: Any, send: Any) -> None:
    """Sends nothing, or the start alone, until it is ended."""
    if scope["path"].endswith("/start"):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    say(f"silent {scope['path']}")
    await asyncio.Event().wait()


async def page_swallows(scope: Any, receive: Any, send: Any) -> None:
    """Takes no notice of the first cancellations."""
    say("swallows")
    for _ in range(3):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            say("swallowed one")
            if gate(scope).is_set():
                raise
    await asyncio.sleep(60)


async def page_thread(scope: Any, receive: Any, send: Any) -> None:
    """Steps the awaitables of send in another thread, where no loop runs."""

    def respond() -> None:
        for message in (START, {"type": "http.response.body", "body": b"from a thread"}):
            try:
                send(message).send(None)
            except StopIteration:
                continue

    thread = threading.Thread(target=respond)
    thread.start()
    await asyncio.to_thread(thread.join)


async def page_later(scope: Any, receive: Any, send: Any) -> None:
    """Keeps send and receive, and uses those of the request before: they meet no other response."""
    said = []
    for old_send, old_receive in kept:
        try:
            await old_send({"type": "http.response.body", "body": b"intruder"})
        except (OSError, RuntimeError) as error:
            said.append(type(error).__name__)
        said.append((await old_receive())["type"])
    kept[:] = [(send, receive)]
    await answer(send, json.dumps(said).encode())


async def page_exit(scope: Any, receive: Any, send: Any) -> None:
    """Cancels itself, or raises what ends a task in another way."""
    kind = scope["path"].split("/")[2]
    if kind == "cancel":
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)
    if kind == "cancelled-error":
        raise asyncio.CancelledError
    if kind == "generator-exit":
        raise GeneratorExit
    if kind == "stop-async":
        raise StopAsyncIteration
    if kind == "stop":
        raise StopIteration
    if kind == "group":
        group: Any = vars(builtins)["ExceptionGroup"]  # from CPython 3.11 on
        raise group("two", [ValueError("one"), KeyError("two")])


class Odd(dict[str, Any]):
    """A message that fails when it is read."""

    def __getitem__(self, name: str) -> Any:
        raise KeyError(name)


class Loud:
    def __bool__(self) -> bool:
        raise ValueError("no truth")


BAD: dict[str, list[Any]] = {
    "bool": [{"type": "http.response.start", "status": True}],
    "huge": [{"type": "http.response.start", "status": 10**30}],
    "float": [{"type": "http.response.start", "status": 200.0}],
    "none": [{"type": "http.response.start", "status": None}],
    "length-twice": [{**START, "headers": [(b"content-length", b"1"), (b"Content-Length", b"1")]}],
    "length-text": [{**START, "headers": [(b"content-length", b"five")]}],
    "length-negative": [{**START, "headers": [(b"content-length", b"-1")]}],
    "headers-none": [{**START, "headers": None}],
    "headers-dict": [{**START, "headers": {b"a": b"b"}}],
    "name-empty": [{**START, "headers": [(b"", b"b")]}],
    "name-crlf": [{**START, "headers": [(b"a\r\nb", b"c")]}],
    "value-int": [{**START, "headers": [(b"content-length", 5)]}],
    "pseudo": [{**START, "headers": [(b":status", b"200")]}],
    "more-body": [START, {"type": "http.response.body", "body": b"", "more_body": Loud()}],
    "message-none": [None],
    "type-none": [{"type": None}],
    "lifespan": [{"type": "lifespan.startup.complete"}],
    "body-list": [START, {"type": "http.response.body", "body": [b"a"]}],
}


async def page_bad(scope: Any, receive: Any, send: Any) -> None:
    said = "nothing was raised"
    try:
        for message in BAD[scope["path"].split("/")[2]]:
            await send(message)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
    try:
        await send(START)
    except RuntimeError:
        pass  # it has been sent
    await send({"type": "http.response.body", "body": said.encode()})


# Cancellation at random moments

storm = random.Random(os.environ.get("SEED", "1"))
cancelled = {"requests": 0}


async def page_storm(scope: Any, receive: Any, send: Any) -> None:
    """Ends in one of many ways, at a random moment."""
    cancelled["requests"] += 1
    kind = int(scope["path"].split("/")[2])
    task = asyncio.current_task()
    assert task is not None
    later = asyncio.get_running_loop().call_later
    try:
        if kind == 0:  # by itself, from outside, wherever it is
            later(storm.random() / 200, task.cancel)
        elif kind == 1:  # its parts, by a time limit
            await asyncio.wait_for(work(receive, send), storm.random() / 200)
            return
        elif kind == 2:  # its parts, by their owner
            part = asyncio.ensure_future(work(receive, send))
            later(storm.random() / 200, part.cancel)
            await asyncio.wait({part})
            return
        elif kind == 3:  # what it waits for, before it has begun
            waiting = asyncio.ensure_future(receive())
            waiting.cancel()
            await asyncio.wait({waiting})
        await work(receive, send)
    except (asyncio.TimeoutError, TimeoutError):
        await asyncio.sleep(0)
    except RuntimeError:
        # A part that was cancelled between its start and its end.
        await asyncio.sleep(0)


async def work(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect" or not message["more_body"]:
            break
    await asyncio.sleep(storm.random() / 200)
    await send(START)
    for number in range(4):
        await send({"type": "http.response.body", "body": b"x" * storm.choice((1, 1000, 100_000)), "more_body": True})
        if number % 2:
            await asyncio.sleep(storm.random() / 500)
    listener = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    listener.cancel()
    await asyncio.wait({listener})
    await send({"type": "http.response.body", "body": b"end"})


async def page_left(scope: Any, receive: Any, send: Any) -> None:
    """How many requests there were, what is left of them, and how much memory the process has."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    memory = int(status.split("VmRSS:")[1].split()[0])
    names: dict[str, int] = {}
    for each in gc.get_objects():
        kind = type(each).__name__
        if kind in ("Task", "coroutine", "Future"):
            names[kind] = names.get(kind, 0) + 1
    found = [cancelled["requests"], len(asyncio.all_tasks()), names.get("Task", 0), names.get("coroutine", 0), memory]
    await answer(send, json.dumps(found).encode())


async def attempt(send: Any, message: Any) -> None:
    try:
        await send(message)
    except (RuntimeError, TypeError) as error:
        say(f"{type(error).__name__}: {error}")


async def odd_messages(scope: Any, receive: Any, send: Any) -> None:
    """Sends what cannot be sent, and goes on."""
    await attempt(send, "lifespan.startup.complete")
    await attempt(send, {})
    await attempt(send, {"type": "lifespan.shutdown.complete"})
    await attempt(send, {"type": "http.response.start", "status": 200})
    await lifespan(scope, receive, send)
    await attempt(send, {"type": "lifespan.shutdown.complete"})


async def odd_receive(scope: Any, receive: Any, send: Any) -> None:
    """Completes before it receives, and receives the shutdown after it has cancelled receive() often."""
    await send({"type": "lifespan.startup.complete"})
    assert (await receive())["type"] == "lifespan.startup"
    while True:
        try:
            message = await asyncio.wait_for(receive(), 0.01)
        except (asyncio.TimeoutError, TimeoutError):
            continue
        say(f"after time-outs: {message['type']}")
        break
    await send({"type": "lifespan.shutdown.complete"})


async def odd_later(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await asyncio.sleep(0)
    raise ValueError("raised after the start-up")


async def odd_returns(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})


async def odd_cancels(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    raise asyncio.CancelledError


async def odd_swallows(scope: Any, receive: Any, send: Any) -> None:
    """Does not end when it is cancelled."""
    await receive()
    await send({"type": "lifespan.startup.complete"})
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            say("lifespan swallowed one")


LIFESPANS = {
    "messages": odd_messages,
    "receive": odd_receive,
    "later": odd_later,
    "returns": odd_returns,
    "cancels": odd_cancels,
    "swallows": odd_swallows,
}


def returns_none(scope: Any, receive: Any, send: Any) -> None:
    """An application that is no coroutine function, and returns nothing to await."""


def returns_text(scope: Any, receive: Any, send: Any) -> str:
    return "text"
