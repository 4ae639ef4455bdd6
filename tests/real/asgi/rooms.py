"""WebSockets by Starlette and FastAPI: a room that tells everybody, a page for a browser, a dependency."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import Depends, FastAPI, WebSocket, WebSocketDisconnect, WebSocketException
from fastapi.responses import HTMLResponse

app = FastAPI()
room: set[WebSocket] = set()
log: list[str] = []

PAGE = """<!doctype html><title>room</title><script>
const socket = new WebSocket(location.origin.replace("http", "ws") + "/rooms/browser?token=secret");
const seen = [];
socket.onopen = () => socket.send("hello from the browser");
socket.onmessage = (event) => {
  seen.push(event.data);
  if (seen.length === 1) socket.send("x".repeat(100000));
  else socket.close(4001, seen.map((text) => text.length).join(" "));
};
</script>"""


async def session() -> AsyncIterator[str]:
    log.append("opened")
    try:
        yield "session"
    finally:
        log.append("closed")


@app.get("/page")
async def page() -> HTMLResponse:
    return HTMLResponse(PAGE)


@app.get("/log")
async def show_log() -> list[str]:
    return log


@app.get("/count")
async def count() -> int:
    return len(room)


@app.post("/say")
async def say(text: str) -> int:
    members = list(room)
    await asyncio.gather(*(member.send_text(text) for member in members))
    return len(members)


@app.websocket("/rooms/{name}")
async def enter(websocket: WebSocket, name: str, token: str = "", session: str = Depends(session)) -> None:
    if token != "secret":
        raise WebSocketException(1008, "no token")
    await websocket.accept()
    room.add(websocket)
    try:
        while True:
            text = await websocket.receive_text()
            await websocket.send_text(f"{name}: {text}")
    except WebSocketDisconnect as left:
        log.append(f"{name} left: {left.code} {left.reason}")
    finally:
        room.discard(websocket)
