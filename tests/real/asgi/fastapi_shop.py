"""FastAPI: dependencies with ``yield``, background tasks, a stream without an end, uploads, a client of its own."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException, Request, UploadFile
from fastapi.responses import StreamingResponse

log: list[str] = []
gate = asyncio.Event()
closed = asyncio.Event()


@contextlib.asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    async with httpx.AsyncClient(trust_env=False) as client:
        yield {"client": client}


app = FastAPI(lifespan=lifespan)


@app.middleware("http")
async def add_field(request: Request, call_next: Any) -> Any:
    response = await call_next(request)
    response.headers["X-Path"] = request.url.path
    return response


async def connection() -> AsyncIterator[str]:
    log.append("opened")
    try:
        yield "connection"
    except HTTPException as error:
        log.append(f"rolled back: {error.detail}")
        raise
    finally:
        log.append("closed")


def cursor(connection: str = Depends(connection)) -> Any:
    # A plain generator: FastAPI runs both halves in a thread.
    yield f"cursor of {connection}"
    log.append("cursor closed")


@app.get("/items/{item}")
async def item(item: int, cursor: str = Depends(cursor)) -> dict[str, Any]:
    if item == 13:
        raise HTTPException(409, "unlucky")
    return {"item": item, "cursor": cursor}


@app.get("/log")
async def show_log() -> list[str]:
    return log


async def _later(name: str) -> None:
    await gate.wait()
    log.append(f"sent to {name}")


@app.post("/mail/{name}")
async def mail(name: str, tasks: BackgroundTasks) -> str:
    tasks.add_task(_later, name)
    tasks.add_task(log.append, f"counted {name}")  # in a thread
    return "accepted"


@app.post("/gate")
async def open_gate() -> None:
    gate.set()


@app.get("/endless")
async def endless() -> StreamingResponse:
    async def lines() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 999 + b"\n"
                await asyncio.sleep(0.001)
        finally:
            closed.set()

    return StreamingResponse(lines())


@app.get("/closed")
async def wait_closed() -> str:
    await asyncio.wait_for(closed.wait(), 15)
    return "closed"


@app.post("/digest")
async def digest(file: UploadFile, note: str = "") -> dict[str, Any]:
    sha256 = hashlib.sha256()
    while piece := await file.read(65536):
        sha256.update(piece)
    return {"name": file.filename, "note": note, "sha256": sha256.hexdigest()}


@app.post("/raw")
async def raw(request: Request) -> StreamingResponse:
    async def upper() -> AsyncIterator[bytes]:
        async for piece in request.stream():
            yield piece.upper()

    return StreamingResponse(upper())


@app.get("/through")
async def through(request: Request, path: str) -> Any:
    """Ask this very server for another page, while this request waits."""
    host, port = request.scope["server"]
    return (await request.state.client.get(f"http://{host}:{port}{path}")).json()
