"""Sanic in its ASGI mode."""

from __future__ import annotations

from typing import Any

from sanic import Sanic
from sanic.response import json, text

app = Sanic("site")


@app.before_server_start
async def begin(app: Any, _loop: Any) -> None:
    app.ctx.begun = True


@app.get("/")
async def hello(_request: Any) -> Any:
    return text("hello")


@app.post("/items")
async def items(request: Any) -> Any:
    return json({"item": request.json["item"], "begun": app.ctx.begun})


@app.get("/stream")
async def stream(request: Any) -> None:
    response = await request.respond(content_type="text/plain")
    for number in range(100):
        await response.send(f"{number}\n")
    await response.eof()
