"""The running requests of a server with ages and stacks, and its counters, for people and for programs."""

from __future__ import annotations

import os

from kirsch._native import is_request_id
from kirsch.process import stacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any
    from typing import TypedDict as TypedDict

    from kirsch._native import Call, NativeServer
    from kirsch.drivers import Driver
else:

    class TypedDict(dict):
        """A substitute that suffices for ``Statistics.__annotations__``: importing ``typing`` would add 5 ms to each
        start."""

        def __init_subclass__(cls, total=True):
            pass


_PATH_MAX = 500


class RunningRequest(TypedDict):
    """One call of the application that has not ended.

    ``number`` counts the server's requests from 1. ``id`` is the request's X-Request-ID, or otherwise its number.
    ``protocol`` is ``HTTP/1.1``, ``HTTP/2`` and so on. ``age`` is the number of seconds since the call began, and
    ``limit`` the number that it may take (None: no deadline). ``state`` is ``running``, ``queued`` (not begun, because
    another request blocks the event loop or no thread is free), ``suspended`` (holds no thread; its client is slow) or
    ``waiting`` (in its thread, for its body or its client). ``stack`` has only the application's frames, in lines of
    text as in a traceback; empty if there are none.
    """

    number: int
    id: str
    method: str
    path: str
    protocol: str
    age: float
    limit: float | None
    state: str
    thread: str
    stack: list[str]


class Statistics(TypedDict, total=False):
    """Counters since the start, current gauges, and the application calls that have not ended."""

    draining: int
    stalled: int
    connections: int
    http2_connections: int
    http2_streams: int
    accepted: int
    requests: int
    http2_requests: int
    running: int
    suspended: int
    queued: int
    queue_timeouts: int
    overdue: int
    left: int
    refused: int
    quarantined: int
    rate_limited: int
    health_checks: int
    static_files: int
    status_1xx: int
    status_2xx: int
    status_3xx: int
    status_4xx: int
    status_5xx: int
    timeouts: int
    cut: int
    accept_pauses: int
    panics: int
    log_lines_dropped: int
    websockets: int
    websocket_messages_in: int
    websocket_messages_out: int
    bytes_in: int
    bytes_out: int
    threads: int
    threads_idle: int
    threads_most: int
    handovers: int
    exchanges: list[RunningRequest]


def running(native: NativeServer, driver: Driver, most: int | None = None) -> list[RunningRequest]:
    """Return the calls that have not ended, the oldest first; at most ``most``, if that is given."""
    return describe(sorted(native.calls(), key=lambda call: -call.age)[:most], native, driver)


def describe(calls: list[Call], native: NativeServer, driver: Driver, *, stack: bool = True) -> list[RunningRequest]:
    """Describe ``calls``, with their current stacks unless ``stack`` is false."""
    taken = driver.stacks(calls) if stack else {}
    # If a call has ended, or has awaited for the first time, its thread may already run another call: then drop the
    # stack.
    still = {_place(call) for call in native.calls()}
    return [
        {
            "number": call.number,
            "id": request_id(call),
            "method": _method(call.environ),
            "path": _path(call),
            "protocol": _protocol(call.environ),
            "age": call.age,
            "limit": call.limit,
            "state": call.state,
            "thread": driver.location(call),
            "stack": stacks.lines(taken.get(call.number, [])) if _place(call) in still else [],
        }
        for call in calls
    ]


def _place(call: Call) -> tuple[int, int | None, bool]:
    """Return a key of the place from which the stack of a call is taken."""
    return call.number, call.thread, call.waiter is None


def request_id(call: Call) -> str:
    """Return the X-Request-ID of the request if it is short and plain, else the number of the call."""
    if "asgi" in call.environ:
        headers = call.environ.get("headers")
        found = [value for name, value in headers if name == b"x-request-id"] if isinstance(headers, list) else []
        given = found[0].decode("latin-1") if found and isinstance(found[0], bytes) else None
    else:
        given = call.environ.get("HTTP_X_REQUEST_ID")
    if isinstance(given, str) and is_request_id(given):
        return given
    return str(call.number)


def _path(call: Call) -> str:
    # The path as sent by the client: percent-encoded, without control characters; unless the application has changed
    # the environ.
    if "asgi" in call.environ:
        raw = call.environ.get("raw_path")
        return _text(raw.decode("latin-1"))[:_PATH_MAX] if isinstance(raw, bytes) else ""
    return _text(call.environ.get("REQUEST_URI")).partition("?")[0][:_PATH_MAX]


def _method(environ: Mapping[str, Any]) -> str:
    if environ.get("type") == "websocket":
        return "WEBSOCKET"
    return _text(environ.get("method" if "asgi" in environ else "REQUEST_METHOD"))


def _protocol(environ: Mapping[str, Any]) -> str:
    if "asgi" in environ:
        return f"HTTP/{_text(environ.get('http_version'))}"
    return {"HTTP/2.0": "HTTP/2"}.get(protocol := _text(environ.get("SERVER_PROTOCOL")), protocol)


def _text(value: object) -> str:
    return ascii(value)[1:-1] if isinstance(value, str) else ""


def title(exchange: RunningRequest) -> str:
    """Return the text for a request in a log line: ``GET /reports (id 7f3a)``, ``GET /reports (HTTP/2, id 7f3a)``."""
    protocol = "HTTP/2, " if exchange["protocol"] == "HTTP/2" else ""
    return f"{exchange['method']} {exchange['path']} ({protocol}id {exchange['id']})"


def stack_text(words: str, exchange: RunningRequest) -> str:
    """Return ``words`` and the stack of the request in lines; empty if no code of the application is running."""
    return "\n".join((words, *exchange["stack"])) if exchange["stack"] else ""


def dump(native: NativeServer, driver: Driver, name: str) -> str:
    """Return the counters and all running requests as text for people."""
    counters = native.statistics()
    head = [f"{counters.get(gauge, 0)} {gauge}" for gauge in ("running", "suspended", "queued", "connections")]
    if connections := counters.get("http2_connections"):
        head[-1] += f" ({connections} of HTTP/2 with {counters.get('http2_streams', 0)} streams)"
    lines = [f"kirsch, pid {os.getpid()}, driver {name}: {', '.join(head)}"]
    lines.append(f"counters: {', '.join(f'{counter} {value}' for counter, value in counters.items())}")
    lines += _pages(running(native, driver))
    return "\n".join(lines) + "\n"


def _pages(exchanges: Iterable[RunningRequest]) -> list[str]:
    lines = []
    for exchange in exchanges:
        limit = "" if exchange["limit"] is None else f" of {exchange['limit']:g} s"
        lines.append("")
        lines.append(f"{title(exchange)}: {exchange['state']} for {exchange['age']:.3f} s{limit}, {exchange['thread']}")
        lines += exchange["stack"] or ["  (no Python code of the application)"]
    return lines or ["", "no request is in the application"]
