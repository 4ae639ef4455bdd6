"""Slow requests (``--slow-request``): reported once while they run, and once when they end.

A profile shows afterwards how time was spent on average. For a request that hangs now, its stack shows more. So a
thread checks the running calls whenever one of them could have become slow, and captures the stacks of slow ones. It
does not interrupt them; deadlines do that.
"""

from __future__ import annotations

import json
import os
import time

from kirsch.monitor.running_requests import describe, stack_text, title
from kirsch.monitor.scoreboard import SLOW_BYTES_MAX
from kirsch.process.real_threads import start_thread
from kirsch.reports import INFO, WARNING, write_traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch._native import Call, NativeServer
    from kirsch.drivers import Driver
    from kirsch.monitor.running_requests import RunningRequest
    from kirsch.monitor.scoreboard import Slot
    from kirsch.reports import Report

# The fraction of the limit by which a report may be late, so that one check reports several calls.
_LATE = 0.05
_LEAST_PAUSE = 0.01
# The interval of checks while slow requests run, and so the precision of their end.
_FOLLOW_SECONDS = 0.25
# The limit of stacks at a time. If many requests hang, most hang at the same place.
_STACKS_MAX = 16


class SlowRequestMonitor:
    """Monitors the slow requests of one running server.

    ``limit`` is in seconds from the call of the application. ``native()`` returns the engine, or None after it has
    ended. ``wait(seconds)`` waits for its end and returns whether it has ended. With a ``slot``, slow requests are also
    written to the scoreboard.
    """

    def __init__(
        self,
        native: Callable[[], NativeServer | None],
        driver: Driver,
        *,
        limit: float,
        report: Report,
        wait: Callable[[float], bool],
        slot: Slot | None = None,
    ) -> None:
        self._native = native
        self._driver = driver
        self._limit = limit
        self._report = report
        self._wait = wait
        self._slot = slot
        self._reported: dict[int, _SlowRequest] = {}

    def start(self) -> None:
        """Monitor in a separate thread until the server has ended."""
        start_thread("kirsch-slow", self._run)

    def _run(self) -> None:
        pause = self._limit
        while not self._wait(pause):
            pause = self._check()

    def _check(self) -> float:
        """Report requests that have become slow or have ended; return the seconds until the next check."""
        native = self._native()
        if native is None:
            return self._limit
        # Skip WebSockets, which last as long as both sides want.
        calls = [call for call in native.calls() if not call.websocket and call.environ.get("type") != "websocket"]
        running = {call.number for call in calls}
        for number in [number for number in self._reported if number not in running]:
            self._report_end(self._reported.pop(number))
        new = [call for call in calls if call.number not in self._reported]
        self._report_slow([call for call in new if call.age >= self._limit], native)
        youth = self._limit - max((call.age for call in new if call.age < self._limit), default=0.0)
        pause = max(youth, self._limit * _LATE, _LEAST_PAUSE)
        return min(pause, _FOLLOW_SECONDS) if self._reported else pause

    def _report_slow(self, calls: list[Call], native: NativeServer) -> None:
        for at in range(0, len(calls), _STACKS_MAX):
            for exchange in describe(calls[at : at + _STACKS_MAX], native, self._driver, stack=at == 0):
                self._reported[exchange["number"]] = _SlowRequest(exchange, self._slot)
                self._send_report(
                    WARNING,
                    f"{title(exchange)} takes longer than {self._limit:g} s: {exchange['state']} for "
                    f"{exchange['age']:.3f} s, {exchange['thread']}{stack_text(', at', exchange)}",
                )

    def _report_end(self, request: _SlowRequest) -> None:
        took = request.end()
        self._send_report(INFO, f"{request.title} is over after {took:.1f} s")

    def _send_report(self, level: int, message: str) -> None:
        try:
            self._report(level, message, None)
        except Exception as error:  # noqa: BLE001 - the report is the user's callable; the monitor must continue
            write_traceback(error)


class _SlowRequest:
    """A slow request, and its record on the scoreboard."""

    def __init__(self, exchange: RunningRequest, slot: Slot | None) -> None:
        self.title = title(exchange)
        self._began = time.monotonic() - exchange["age"]
        self._slot = slot
        self._record: dict[str, Any] = {
            "pid": os.getpid(),
            "number": exchange["number"],
            "id": exchange["id"],
            "method": exchange["method"],
            "path": exchange["path"],
            "protocol": exchange["protocol"],
            "began": round(time.time() - exchange["age"], 3),
            "began_monotonic": round(self._began, 3),
            "took": None,
            "state": exchange["state"],
            "thread": exchange["thread"],
            "stack": exchange["stack"],
        }
        self._number = 0 if slot is None else slot.add_slow(_encode(self._record))

    def end(self) -> float:
        """Record the end of the request. Returns how many seconds it took."""
        took = time.monotonic() - self._began
        if self._slot is not None:
            self._record |= {"took": round(took, 3), "state": "over"}
            self._slot.update_slow(self._number, _encode(self._record))
        return took


def _encode(record: dict[str, Any]) -> bytes:
    """Return the record as JSON, without as many outermost frames of its stack as do not fit."""
    while len(data := json.dumps(record, separators=(",", ":")).encode()) > SLOW_BYTES_MAX:
        stack = record["stack"]
        record["stack"] = stack[len(stack) // 8 + 1 :]
        if not stack:
            record["thread"] = record["thread"][:100]
    return data
