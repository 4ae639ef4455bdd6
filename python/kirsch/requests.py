"""What runs in a server now, for people and programs: each request with its age and its stack, and the counters."""

from __future__ import annotations

import os

from kirsch import stacks
from kirsch._native import is_request_id
from kirsch.options import TypedDict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kirsch._native import Call
    from kirsch._native import Server as NativeServer
    from kirsch.drivers import Driver

_PATH_MAX = 500


class RunningRequest(TypedDict):
    """One call of the application that is not over.

    ``number`` counts the server's requests from 1. ``id`` is the request's X-Request-ID, or else its number. ``age``
    and ``limit`` are seconds since the call and until its deadline (None: it has none). ``state`` is ``running``,
    ``suspended`` (no thread; its peer is slow) or ``waiting`` (in its thread, for its body or its peer). ``stack`` is
    that of the application alone, as in a traceback, a line of text each; empty where it has none now.
    """

    number: int
    id: str
    method: str
    path: str
    age: float
    limit: float | None
    state: str
    thread: str
    stack: list[str]


class Statistics(TypedDict, total=False):
    """Counters since the start, gauges of now, and the calls of the application that are not over."""

    draining: int
    stalled: int
    connections: int
    accepted: int
    requests: int
    running: int
    suspended: int
    queued: int
    queue_timeouts: int
    overdue: int
    left: int
    refused: int
    health_checks: int
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
    bytes_in: int
    bytes_out: int
    threads: int
    threads_idle: int
    threads_most: int
    handovers: int
    exchanges: list[RunningRequest]


def running(native: NativeServer, driver: Driver, most: int | None = None) -> list[RunningRequest]:
    """The calls that are not over, the oldest first, and only so many."""
    return describe(sorted(native.calls(), key=lambda call: -call.age)[:most], native, driver)


def describe(calls: list[Call], native: NativeServer, driver: Driver, *, stack: bool = True) -> list[RunningRequest]:
    """These calls, with the stacks that they have now unless nobody wants them."""
    taken = driver.stacks(calls) if stack else {}
    # A thread whose call has ended meanwhile may be in another one already.
    still = {(call.number, call.thread) for call in native.calls()}
    return [
        {
            "number": call.number,
            "id": request_id(call),
            "method": _text(call.environ.get("REQUEST_METHOD")),
            "path": _path(call),
            "age": call.age,
            "limit": call.limit,
            "state": call.state,
            "thread": driver.location(call),
            "stack": stacks.lines(taken.get(call.number, [])) if (call.number, call.thread) in still else [],
        }
        for call in calls
    ]


def request_id(call: Call) -> str:
    """The request's X-Request-ID if that is short and plain, else the number of the call."""
    given = call.environ.get("HTTP_X_REQUEST_ID")
    if isinstance(given, str) and is_request_id(given):
        return given
    return str(call.number)


def _path(call: Call) -> str:
    # As it was sent, so percent-encoded and without control characters; but an application may change its environ.
    return _text(call.environ.get("REQUEST_URI")).partition("?")[0][:_PATH_MAX]


def _text(value: object) -> str:
    return ascii(value)[1:-1] if isinstance(value, str) else ""


def title(exchange: RunningRequest) -> str:
    """A request in a log line: ``GET /reports (id 7f3a)``."""
    return f"{exchange['method']} {exchange['path']} (id {exchange['id']})"


def stack_text(words: str, exchange: RunningRequest) -> str:
    """``words`` and where the request is, line by line; nothing where no code of the application's runs."""
    return "\n".join((words, *exchange["stack"])) if exchange["stack"] else ""


def dump(native: NativeServer, driver: Driver, name: str) -> str:
    """All of it on a page, for a person in haste."""
    counters = native.statistics()
    head = [f"{counters.get(gauge, 0)} {gauge}" for gauge in ("running", "suspended", "queued", "connections")]
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
