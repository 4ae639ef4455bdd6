"""Applications for test_compression.py: responses as the cases of the corpus say, and streams that wait."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "corpus" / "compression.json").read_text("utf-8"))
LONG = 3_000_000

_go_on = threading.Event()
_line = b"All work and no play makes Jack a dull boy. "


def body_of(length: int) -> bytes:
    """Return text of ``length`` bytes."""
    return (_line * (length // len(_line) + 1))[:length]


def _response(path: str) -> tuple[int, list[tuple[str, str]], list[bytes]]:
    if path == "/long":
        return 200, [("Content-Type", "text/plain"), ("Content-Length", str(LONG))], [body_of(LONG)]
    if path in ("/too-long", "/too-short"):
        length = 5000 if path == "/too-long" else 7000
        return 200, [("Content-Type", "text/plain"), ("Content-Length", str(length))], [body_of(3000), body_of(3000)]
    case = CASES[int(path[1:])]
    kind = case.get("type", "text/html")
    fields = [*([("Content-Type", kind)] if kind else []), *((name, value) for name, value in case.get("fields", []))]
    body, count = body_of(case.get("length", 4000)), case.get("parts", 1)
    size = max(len(body) // count, 1)
    return case.get("status", 200), fields, [body[at : at + size] for at in range(0, len(body), size)]


def wsgi(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if path == "/go":
        _go_on.set()
        start_response("204 No Content", [])
        return []
    if path == "/events":
        start_response("200 OK", [("Content-Type", "text/event-stream")])
        return _events()
    status, fields, parts = _response(path)
    start_response(f"{status} Status", fields)
    return parts


def _events() -> Iterable[bytes]:
    for number in range(3):
        yield b"data: %d\n\n" % number
        assert _go_on.wait(30)
        _go_on.clear()


async def asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    path = scope["path"]
    if path == "/go":
        _go_on.set()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})
        return
    if path == "/events":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for number in range(3):
            await send({"type": "http.response.body", "body": b"data: %d\n\n" % number, "more_body": True})
            assert await asyncio.to_thread(_go_on.wait, 30)
            _go_on.clear()
        await send({"type": "http.response.body"})
        return
    status, fields, parts = _response(path)
    headers = [(name.lower().encode(), value.encode()) for name, value in fields]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if len(parts) == 1:
        await send({"type": "http.response.body", "body": parts[0]})
        return
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body"})
