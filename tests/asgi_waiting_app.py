"""An ASGI application for ``test_asgi_waiting.py``: the path says what waits, and how."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import sys
import weakref
from typing import Any

VARIABLE: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("VARIABLE", default=())


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        raise ValueError("no lifespan here")
    page = globals()[scope["path"].strip("/")]
    if scope["type"] == "websocket":
        assert await receive() == {"type": "websocket.connect"}
        await send({"type": "websocket.accept"})
    await page(receive, send)


async def reply(send: Any, value: Any) -> None:
    await send({"type": "websocket.send", "text": value if isinstance(value, str) else json.dumps(value)})


async def steps(receive: Any, send: Any) -> None:
    """Says how a step that a message has woken runs."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    VARIABLE.set(("started",))
    while (message := await receive())["type"] == "websocket.receive":
        child = asyncio.create_task(asyncio.sleep(0))
        await child
        found = {
            "name": message["text"],
            "task": asyncio.current_task() is task,
            "loop": asyncio.get_running_loop() is loop,
            "variable": VARIABLE.get(),
            "waits for": await looks_at(task, receive),
        }
        VARIABLE.set((*VARIABLE.get(), message["text"]))
        await reply(send, found)


async def looks_at(task: Any, receive: Any) -> bool:
    """Return whether what a task waits for is a future of this loop, as asyncio has it."""
    waiting = asyncio.create_task(receive())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    future = waiting._fut_waiter  # type: ignore[attr-defined]
    found = asyncio.isfuture(future) and future.get_loop() is asyncio.get_running_loop() and task._fut_waiter is None
    waiting.cancel()
    await asyncio.wait([waiting])
    return bool(found and waiting.cancelled())


async def receivers(receive: Any, send: Any) -> None:
    """Several tasks receive from one WebSocket."""
    got: list[str] = []

    async def one() -> None:
        while "end" not in got:
            got.append((await receive())["text"])

    tasks = [asyncio.create_task(one()) for _ in range(3)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await reply(send, got)


async def elsewhere(receive: Any, send: Any) -> None:
    """Another loop, in a thread of its own, receives and answers."""

    async def echo() -> None:
        while (message := await receive())["type"] == "websocket.receive":
            await reply(send, f"another loop has {message['text']}")

    await asyncio.to_thread(asyncio.run, echo())


async def begins(receive: Any) -> None:
    """A task begins to wait, and is cancelled."""
    task = asyncio.create_task(receive())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


async def cancelled(receive: Any, send: Any) -> None:
    await receive()
    messages = []
    for arguments in (["why"], []):
        task = asyncio.create_task(receive())
        await asyncio.sleep(0)
        task.cancel(*arguments)
        try:
            await task
        except asyncio.CancelledError as error:
            messages.append(list(error.args))
    waited = 0
    for _ in range(200):
        try:
            await asyncio.wait_for(receive(), 0)
        except asyncio.TimeoutError:
            waited += 1
        await begins(receive)
    gc.collect()
    left = sum(type(each).__name__ == "LoopFuture" for each in gc.get_objects())
    await reply(send, {"messages": messages, "waited": waited, "futures left": left})
    await reply(send, (await receive())["text"])


async def collected(receive: Any, send: Any) -> None:
    """A coroutine that waits, and that nothing refers to any more, is closed; its wait ends with it."""
    await receive()
    gc.collect()

    class Marker:
        pass

    async def waits(marker: Marker) -> None:
        await receive()
        del marker

    marker = Marker()
    reference = weakref.ref(marker)
    coroutine = waits(marker)
    coroutine.send(None)
    del marker, coroutine
    gc.collect()
    await reply(send, {"collected": reference() is None})


async def exits(receive: Any, send: Any) -> None:
    await receive()
    sys.exit(3)


async def spins(receive: Any, send: Any) -> None:
    """Holds up the loop, in a step that a part of the body has woken."""
    say("waits to spin")
    while (await receive()).get("more_body"):
        pass
    try:
        while True:
            pass
    finally:
        say("spinning was interrupted")


async def parts(receive: Any, send: Any) -> None:
    body, has_more = b"", True
    while has_more:
        say("waits for a part")
        message = await receive()
        has_more = message["more_body"]
        if message["body"]:
            say(f"has part {message['body'].decode()}")
        body += message["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": body})
