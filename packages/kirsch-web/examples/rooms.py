"""Chat rooms: a WebSocket for each visitor, events for onlookers, and coroutines that wait without a thread.

kirsch rooms:asgi        or: uvicorn rooms:asgi
new WebSocket("ws://127.0.0.1:8000/talk/lobby"), new EventSource("/listen/lobby")
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import kirsch_web as web


class Rooms:
    def __init__(self) -> None:
        self._listeners: defaultdict[str, set[asyncio.Queue[str]]] = defaultdict(set)

    async def talk(self, room: str, *, ws: web.WebSocket) -> None:
        """Say to all in the room what this visitor says."""
        async for message in ws:
            if isinstance(message, str):
                await ws.send(str(self._say(room, message)))

    def listen(self, room: str) -> web.Response:
        """Send the messages of a room as server-sent events."""
        return web.events(self._events(room))

    @web.post
    async def say(self, room: str, text: str) -> dict[str, int]:
        """Say something without a WebSocket; how many have heard it."""
        return {"listeners": self._say(room, text)}

    async def wait(self, room: str) -> str:
        """The next thing that is said."""
        async with aclosing(self._heard(room)) as heard:
            return await anext(heard)

    def _say(self, room: str, text: str) -> int:
        for queue in self._listeners[room]:
            queue.put_nowait(text)
        return len(self._listeners[room])

    async def _heard(self, room: str) -> AsyncGenerator[str, None]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._listeners[room].add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners[room].discard(queue)

    async def _events(self, room: str) -> AsyncIterator[web.Event]:
        async with aclosing(self._heard(room)) as heard:
            async for text in heard:
                yield web.Event(text, event="said")


@asynccontextmanager
async def lifespan(app: web.App) -> AsyncIterator[None]:
    """Open and close connections to a database here, for example."""
    print(f"{type(app.root).__name__} opens")
    yield
    print(f"{type(app.root).__name__} closes")


app = web.App(Rooms())
asgi = web.ASGI(app, lifespan=lifespan)
