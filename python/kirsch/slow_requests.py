"""Slow requests (``--slow-request``): told while they still run, each once, and when they are over.

A profile after the fact shows where time went on average; a request that hangs now is seen by asking it. So a thread
looks at the calls that are not over, as often as one of them could have become slow, and takes the stack of those that
did. It interrupts nothing: that is what deadlines are for.
"""

from __future__ import annotations

import json
import os
import time

from kirsch import requests
from kirsch.drivers import start_thread
from kirsch.reports import INFO, WARNING, write_traceback
from kirsch.scoreboard import SLOW_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch._native import Call
    from kirsch._native import Server as NativeServer
    from kirsch.drivers import Driver
    from kirsch.reports import Report
    from kirsch.requests import RunningRequest
    from kirsch.scoreboard import Slot

# Calls become slow one after another, and each may be told this share of the limit late.
_LATE = 0.05
_LEAST_PAUSE = 0.01
# How exact the end of a slow request is known.
_FOLLOW_SECONDS = 0.25
# Where everything hangs it hangs in the same place: so many stacks at a time say it.
_STACKS_MAX = 16


class SlowRequestMonitor:
    """The watch over one running server.

    ``limit`` is in seconds, from when the application is called. ``native()`` is the engine, None when it has ended;
    ``wait(seconds)`` waits for that and tells whether it came. What is slow also goes on the scoreboard where there is
    a ``slot``.
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
        """Watch in a thread of its own, until the server has ended."""
        start_thread("kirsch-slow", self._run)

    def _run(self) -> None:
        pause = self._limit
        while not self._wait(pause):
            pause = self._check()

    def _check(self) -> float:
        """Tell what there is to tell, and how many seconds it takes until there may be more."""
        native = self._native()
        if native is None:
            return self._limit
        calls = native.calls()
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
            for exchange in requests.describe(calls[at : at + _STACKS_MAX], native, self._driver, stack=at == 0):
                self._reported[exchange["number"]] = _SlowRequest(exchange, self._slot)
                self._send_report(
                    WARNING,
                    f"{requests.title(exchange)} takes longer than {self._limit:g} s: {exchange['state']} for "
                    f"{exchange['age']:.3f} s, {exchange['thread']}{requests.stack_text(', at', exchange)}",
                )

    def _report_end(self, request: _SlowRequest) -> None:
        took = request.end()
        self._send_report(INFO, f"{request.title} is over after {took:.1f} s")

    def _send_report(self, level: int, message: str) -> None:
        try:
            self._report(level, message, None)
        except Exception as error:  # noqa: BLE001 - the report is somebody's callable; the watch must go on
            write_traceback(error)


class _SlowRequest:
    """A slow request, and its record on the scoreboard."""

    def __init__(self, exchange: RunningRequest, slot: Slot | None) -> None:
        self.title = requests.title(exchange)
        self._began = time.monotonic() - exchange["age"]
        self._slot = slot
        self._record: dict[str, Any] = {
            "pid": os.getpid(),
            "number": exchange["number"],
            "id": exchange["id"],
            "method": exchange["method"],
            "path": exchange["path"],
            "began": round(time.time() - exchange["age"], 3),
            "began_monotonic": round(self._began, 3),
            "took": None,
            "state": exchange["state"],
            "thread": exchange["thread"],
            "stack": exchange["stack"],
        }
        self._number = 0 if slot is None else slot.add_slow(_encode(self._record))

    def end(self) -> float:
        """It is over. Returns how many seconds it took."""
        took = time.monotonic() - self._began
        if self._slot is not None:
            self._record |= {"took": round(took, 3), "state": "over"}
            self._slot.update_slow(self._number, _encode(self._record))
        return took


def _encode(record: dict[str, Any]) -> bytes:
    """As JSON, without as much of the stack's outer end as there is no room for."""
    while len(data := json.dumps(record, separators=(",", ":")).encode()) > SLOW_BYTES_MAX:
        stack = record["stack"]
        record["stack"] = stack[len(stack) // 8 + 1 :]
        if not stack:
            record["thread"] = record["thread"][:100]
    return data
