"""Request deadlines: a thread waits for calls that miss their deadlines, reports their stacks, and interrupts them. The
engine itself detects a late call and responds with 504. Python then handles the call by its state::

    late      the client has received 504, or the response was aborted. Report the stack of this request alone, and
              raise RequestTimeout in the call, so that its thread becomes free for other requests
    stuck     the call has not ended after the graceful timeout: report that, and request the replacement of the worker,
              or stop the server if there is no supervisor
"""

from __future__ import annotations

import time
from collections import deque

from kirsch.monitor.running_requests import describe, stack_text, title
from kirsch.process.real_threads import original, start_thread
from kirsch.reports import CRITICAL, ERROR, write_traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch._native import Call, NativeServer
    from kirsch.drivers import Driver
    from kirsch.reports import Report

_OUTCOMES = {
    "504": "its client was sent 504",
    "cut": "the response that it had begun was cut",
    "whole": "its client has the whole response",
    "left": "its client had left",
}

# The least number of seconds for an interrupted call to unwind, even if SIGTERM leaves no time.
LEAST_PATIENCE = 1.0


class DeadlineMonitor:
    """Monitors the deadlines of one running server.

    ``graceful_timeout`` is the time that an interrupted call has to unwind, in seconds. ``wait(seconds)`` waits for the
    end of the server and returns whether it has ended. ``give_up()`` is called in a thread of the monitor when the
    first call is stuck. It begins to stop or replace the server, and returns at once; ``consequence`` is the text about
    that for the log.
    """

    def __init__(
        self,
        native: NativeServer,
        driver: Driver,
        *,
        report: Report,
        graceful_timeout: float,
        wait: Callable[[float], bool],
        give_up: Callable[[], None],
        consequence: str,
    ) -> None:
        self._native = native
        self._driver = driver
        self._report = report
        self._patience = max(graceful_timeout, LEAST_PATIENCE)
        self._wait = wait
        self._give_up = give_up
        self._consequence = consequence
        # The interrupted calls, as (time of the next check, call number), and whether a thread checks them now.
        self._lock = original("allocate_lock")()
        self._interrupted: deque[tuple[float, int]] = deque()
        self._is_watching = False
        self._given_up = False

    def start(self) -> None:
        """Monitor in a separate thread until the server has ended."""
        start_thread("kirsch-deadline", self._run)

    def _run(self) -> None:
        while (calls := self._native.await_overdue()) is not None:
            self._report_overdue(calls)
            self._driver.interrupt(calls)
            self._watch_interrupted(calls)

    def _report_overdue(self, calls: list[Call]) -> None:
        for call, exchange in zip(calls, describe(calls, self._native, self._driver), strict=True):
            self._send_report(
                ERROR,
                f"{title(exchange)} has passed its deadline of {exchange['limit'] or 0.0:g} s, and "
                f"{_OUTCOMES.get(call.outcome or '', 'was ended')}: "
                f"{exchange['state']} for {exchange['age']:.3f} s, {exchange['thread']}; "
                f"kirsch.RequestTimeout is raised in it{stack_text(' at', exchange)}",
            )

    def _watch_interrupted(self, calls: list[Call]) -> None:
        due = time.monotonic() + self._patience
        with self._lock:
            self._interrupted.extend((due, call.number) for call in calls)
            if not self._is_watching:
                self._is_watching = True
                start_thread("kirsch-stuck", self._find_stuck)

    def _find_stuck(self) -> None:
        """Check each interrupted call when its time has passed, and handle those that are stuck."""
        while True:
            with self._lock:
                if not self._interrupted:
                    self._is_watching = False
                    return
                due, number = self._interrupted.popleft()
            if self._wait(max(due - time.monotonic(), 0.0)):
                return
            stuck = [call for call in self._native.calls() if call.number == number]
            if stuck:
                self._native.write_off(number)
                self._report_stuck(stuck)

    def _report_stuck(self, stuck: list[Call]) -> None:
        for exchange in describe(stuck, self._native, self._driver):
            where = stack_text(", stuck at", exchange)
            self._send_report(
                CRITICAL,
                f"{title(exchange)} is stuck: {self._patience:g} s after kirsch.RequestTimeout it is still "
                f"{exchange['state']}, {exchange['thread']}; {self._consequence}{where}",
            )
        if not self._given_up:
            self._given_up = True
            self._give_up()

    def _send_report(self, level: int, message: str) -> None:
        try:
            self._report(level, message, None)
        except Exception as error:  # noqa: BLE001 - the report is the user's callable; the monitor must continue
            write_traceback(error)
