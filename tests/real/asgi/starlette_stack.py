"""Starlette's middleware, one upon the other: BaseHTTPMiddleware, sessions, GZip, CORS; static files; server-sent
events, by sse-starlette and by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

closed: asyncio.Queue[str] = asyncio.Queue()
reports: list[str] = []


class Times(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["X-Seen"] = request.method
        return response


async def visits(request: Request) -> JSONResponse:
    request.session["visits"] = request.session.get("visits", 0) + 1
    return JSONResponse({"visits": request.session["visits"]})


async def long(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("again and " * 10_000)


async def count(name: str) -> AsyncIterator[int]:
    number = 0
    try:
        while True:
            yield number
            number += 1
            await asyncio.sleep(0.01)
    finally:
        closed.put_nowait(name)


async def library_events(_request: Request) -> EventSourceResponse:
    async def events() -> AsyncIterator[dict[str, Any]]:
        async for number in (numbers := count("library")):
            try:
                yield {"event": "tick", "id": str(number), "data": str(number)}
            except (asyncio.CancelledError, GeneratorExit):
                await numbers.aclose()  # type: ignore[attr-defined]
                raise

    return EventSourceResponse(events())


async def own_events(_request: Request) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        async for number in count("own"):
            yield f"event: tick\nid: {number}\ndata: {number}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


async def next_closed(_request: Request) -> PlainTextResponse:
    return PlainTextResponse(await asyncio.wait_for(closed.get(), 15))


PAGE = """<!doctype html><title>ticks</title><script>
const source = new EventSource("/own");
const seen = [];
source.addEventListener("tick", async (event) => {
  seen.push(event.lastEventId);
  if (seen.length === 5) {
    source.close();
    await fetch("/report", {method: "POST", body: seen.join(" ")});
    document.title = "done";
  }
});
</script>"""


async def page(_request: Request) -> HTMLResponse:
    return HTMLResponse(PAGE)


async def report(request: Request) -> PlainTextResponse:
    reports.append((await request.body()).decode())
    return PlainTextResponse("thanks")


async def show_reports(_request: Request) -> JSONResponse:
    return JSONResponse(reports)


app = Starlette(
    routes=[
        Route("/visits", visits),
        Route("/long", long),
        Route("/library", library_events),
        Route("/own", own_events),
        Route("/closed", next_closed),
        Route("/page", page),
        Route("/report", report, methods=["POST"]),
        Route("/reports", show_reports),
        Mount("/static", StaticFiles(directory=Path(__file__).parent)),
    ],
    middleware=[
        Middleware(Times),
        Middleware(SessionMiddleware, secret_key="no secret"),
        Middleware(GZipMiddleware, minimum_size=1000),
        Middleware(CORSMiddleware, allow_origins=["https://shop.example"], allow_methods=["PUT"]),
    ],
)
