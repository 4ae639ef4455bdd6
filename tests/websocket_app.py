"""An ASGI application of WebSockets for the tests: the path says what it does."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

MESSAGES = {
    "no type": {"bytes": b"x"},
    "both": {"type": "websocket.send", "text": "a", "bytes": b"b"},
    "neither": {"type": "websocket.send"},
    "None": {"type": "websocket.send", "text": None, "bytes": None},
    "text is bytes": {"type": "websocket.send", "text": b"a"},
    "bytes is str": {"type": "websocket.send", "bytes": "a"},
    "surrogate": {"type": "websocket.send", "text": "\ud800"},
    "accept twice": {"type": "websocket.accept"},
    "http": {"type": "http.response.start", "status": 200},
    "denial": {"type": "websocket.http.response.start", "status": 401},
    "close code": {"type": "websocket.close", "code": 1006},
    "close text": {"type": "websocket.close", "code": "1000"},
    "close reason": {"type": "websocket.close", "reason": b"bye"},
}
"""Messages that are wrong after websocket.accept."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def echo(receive: Any, send: Any) -> None:
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})
    say(f"disconnect {message['code']} {message['reason']!r}")


async def echo_app(scope: Any, receive: Any, send: Any) -> None:
    """Echoes on every path, for the Autobahn test suite."""
    if scope["type"] == "websocket":
        await accepted(receive, send)
        await echo(receive, send)


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        raise ValueError("no lifespan here")
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello"})
        return
    await globals()[scope["path"].strip("/").replace("-", "_")](scope, receive, send)


async def accepted(receive: Any, send: Any, **more: Any) -> None:
    assert await receive() == {"type": "websocket.connect"}
    await send({"type": "websocket.accept", **more})


async def echoes(scope: Any, receive: Any, send: Any) -> None:
    await accepted(receive, send)
    await echo(receive, send)


async def scope(scope: Any, receive: Any, send: Any) -> None:
    chosen = scope["subprotocols"][-1] if scope["subprotocols"] else None
    await accepted(receive, send, subprotocol=chosen, headers=[(b"x-one", b"1"), (b"X-One", b"2")])
    shown = {key: value for key, value in scope.items() if key not in ("headers", "raw_path", "query_string")}
    shown["headers"] = [[name.decode(), value.decode()] for name, value in scope["headers"]]
    shown["query_string"] = scope["query_string"].decode()
    # That of groups is no JSON.
    shown["extensions"] = {name: value for name, value in scope["extensions"].items() if name != "kirsch.websocket"}
    await send({"type": "websocket.send", "text": json.dumps(shown)})
    await send({"type": "websocket.close", "code": 3000, "reason": "that is all"})
    say(f"then {json.dumps(await receive())}")
    try:
        await send({"type": "websocket.send", "text": "late"})
    except RuntimeError as error:
        say(f"RuntimeError: {error}")


async def receives_early(scope: Any, receive: Any, send: Any) -> None:
    """Waits for a message before it accepts, in a task of its own."""
    assert await receive() == {"type": "websocket.connect"}
    task = asyncio.create_task(receive())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": (await task)["text"]})
    await echo(receive, send)


async def denies(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.close", "code": 4000})
    say(f"denied, then {json.dumps(await receive())}")


async def responds(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
    await send({"type": "websocket.http.response.start", "status": 401, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": b"who ", "more_body": True})
    await send({"type": "websocket.http.response.body", "body": b"are you?"})


async def raises_early(scope: Any, receive: Any, send: Any) -> None:
    raise ValueError("raised before accepting")


async def raises(scope: Any, receive: Any, send: Any) -> None:
    await accepted(receive, send)
    raise ValueError("raised after accepting")


async def returns_early(scope: Any, receive: Any, send: Any) -> None:
    await receive()


async def returns(scope: Any, receive: Any, send: Any) -> None:
    await accepted(receive, send)
    await send({"type": "websocket.send", "text": "one"})


async def wrong(scope: Any, receive: Any, send: Any) -> None:
    await accepted(receive, send)
    found = {}
    for name, message in MESSAGES.items():
        try:
            await send(message)
        except Exception as error:  # noqa: BLE001 - its type and its text are what the test compares
            found[name] = [type(error).__name__, str(error)]
    await send({"type": "websocket.send", "text": json.dumps(found)})


async def wrong_accept(scope: Any, receive: Any, send: Any) -> None:
    found = []
    for message in (
        {"type": "websocket.send", "text": "early"},
        {"type": "websocket.accept", "subprotocol": "not offered"},
        {"type": "websocket.accept", "subprotocol": b"a"},
        {"type": "websocket.accept", "headers": [("x", "y")]},
        {"type": "websocket.accept", "headers": [(b"x", b"y\r\nz: 1")]},
        {"type": "websocket.accept", "headers": [(b"Sec-WebSocket-Protocol", b"a")]},
    ):
        try:
            await send(message)
        except Exception as error:  # noqa: BLE001 - as above
            found.append([type(error).__name__, str(error)])
    await accepted(receive, send)
    await send({"type": "websocket.send", "text": json.dumps(found)})


async def left(scope: Any, receive: Any, send: Any) -> None:
    """Sends without receiving until the client has gone."""
    await accepted(receive, send)
    try:
        while True:
            await send({"type": "websocket.send", "bytes": bytes(1000)})
            await asyncio.sleep(0)
    except OSError as error:
        say(f"send raised {type(error).__module__}.{type(error).__name__}")
    await send({"type": "websocket.close"})
    say("close raised nothing")


async def cancels(scope: Any, receive: Any, send: Any) -> None:
    """Cancels receive again and again; no message is lost."""
    await accepted(receive, send)
    got: list[Any] = []
    while len(got) < 100:
        task = asyncio.create_task(receive())
        for _ in range(len(got) % 4):
            await asyncio.sleep(0)
        task.cancel()
        try:
            got.append((await task)["text"])
        except asyncio.CancelledError:
            try:
                message = await asyncio.wait_for(receive(), 0.001)
            except asyncio.TimeoutError:
                continue
            got.append(message["text"])
    await send({"type": "websocket.send", "text": json.dumps(got)})


async def floods(scope: Any, receive: Any, send: Any) -> None:
    """Sends from many tasks at once to a client that reads slowly."""
    await accepted(receive, send)

    async def one(number: int) -> None:
        await send({"type": "websocket.send", "text": f"{number}" + "x" * 20_000})

    await asyncio.gather(*(one(number) for number in range(300)))
    say("all sent")
    await echo(receive, send)


async def sleeps(scope: Any, receive: Any, send: Any) -> None:
    """Takes no message for a while."""
    await accepted(receive, send)
    say("sleeps")
    while not os.path.exists(os.environ["WAKE"]):
        await asyncio.sleep(0.01)
    await echo(receive, send)
