"""Applications for test_tracing.py, which make spans of their own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.propagate import inject

if TYPE_CHECKING:
    from collections.abc import Iterator

_tracer = trace.get_tracer("site")


def _own_span() -> bytes:
    with _tracer.start_as_current_span("query"):
        return format(trace.get_current_span().get_span_context().trace_id, "032x").encode()


def _trace() -> bytes:
    """Return the trace that two requests of the application would name."""
    fields: list[dict[str, str]] = [{}, {}]
    for each in fields:
        inject(each)
    names = [each.get("traceparent", "-") for each in fields]
    return " ".join(names).encode()


def wsgi(environ: dict[str, Any], start_response: Any) -> Any:
    path = environ["PATH_INFO"]
    if path == "/error":
        raise LookupError("no such thing")
    start_response("503 Busy" if path == "/busy" else "200 OK", [("Content-Type", "text/plain")])
    if path == "/parts":
        return _parts()
    if path == "/given":
        return [environ.get("kirsch.traceparent", "-").encode()]
    return [_trace() if path == "/trace" else _own_span()]


def _parts() -> Iterator[bytes]:
    for _ in range(3):
        time.sleep(0.02)
        yield _own_span()


async def asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        assert (await receive())["type"] == "lifespan.startup"
        scope["state"]["trace"] = _trace()
        await send({"type": "lifespan.startup.complete"})
        return
    if scope["path"] == "/error":
        raise LookupError("no such thing")
    given = scope.get("extensions", {}).get("kirsch.trace", {}).get("traceparent", "-")
    pages = {"/given": given.encode, "/trace": _trace, "/lifespan": lambda: scope["state"]["trace"]}
    body = pages.get(scope["path"], _own_span)()
    status = 503 if scope["path"] == "/busy" else 200
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body})
