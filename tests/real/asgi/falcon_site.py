"""Falcon's ASGI application: media, a stream, server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import falcon.asgi


class Items:
    async def on_post(self, req: Any, resp: Any) -> None:
        resp.media = {"item": (await req.get_media())["item"], "length": req.content_length}
        resp.status = falcon.HTTP_201


class Stream:
    async def on_get(self, _req: Any, resp: Any) -> None:
        async def lines() -> AsyncIterator[bytes]:
            for number in range(100):
                yield b"%d\n" % number

        resp.stream = lines()


class Events:
    async def on_get(self, _req: Any, resp: Any) -> None:
        async def events() -> AsyncIterator[falcon.asgi.SSEvent]:
            for number in range(3):
                yield falcon.asgi.SSEvent(event="tick", text=str(number))

        resp.sse = events()


app = falcon.asgi.App()
app.add_route("/items", Items())
app.add_route("/stream", Stream())
app.add_route("/events", Events())
