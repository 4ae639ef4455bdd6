"""The quarantine: for a while, the engine responds with 503 to a route that has crashed several workers. After a crash,
the workers record the routes of their calls in shared memory (``recorded_routes`` of the native module). When another
worker crashes, its record is evaluated (``crash_evidence.py``). A convicted route is added to a list that all workers
read before they call the application. Without a crash, workers record nothing. Each route leaves the list after its
time. A reload clears the list, because the new code may have removed the cause, and so does ``kirsch quarantine
--lift``.
"""

from __future__ import annotations

import os
import time

from kirsch import _native
from kirsch.reports import ERROR, INFO
from kirsch.supervisor.crash_evidence import WINDOW_SECONDS, Crash, Evidence, RecordedRoute
from kirsch.supervisor.system import how_ended
from kirsch.supervisor.worker_plan import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.monitor.scoreboard import Slot
    from kirsch.supervisor.crash_evidence import Conviction
    from kirsch.supervisor.service import Service
    from kirsch.supervisor.worker_plan import Worker

# The seconds between two checks for a request to lift the quarantine, while a route is in it.
_LOOK_SECONDS = 0.25

# The number of crashes that a report names, the last ones.
_SHOWN_MAX = 5


class _Route:
    """A quarantined route. Times are seconds of CLOCK_MONOTONIC."""

    def __init__(self, key: int, name: str, since: float, until: float) -> None:
        self.key = key
        self.name = name
        self.since = since
        self.until = until


class Quarantine:
    """Maintains the list of quarantined routes on the scoreboard."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._list = service.board.quarantine_list
        self._evidence = Evidence()
        self._routes: list[_Route] = []
        # The unique number of the current recording; None while workers do not record.
        self._recording: int | None = None
        self._recording_until = NEVER
        self._generation = service.current.number
        # The list of the previous image of this program (SIGUSR2) is cleared: all its workers are about to be replaced.
        for name, _since, _until in service.board.quarantined():
            service.report(INFO, f"{name} is no longer in quarantine: the server was upgraded")
        secret = os.urandom(16)
        half = len(secret) // 2
        key = (int.from_bytes(secret[:half], "little"), int.from_bytes(secret[half:], "little"))
        _native.start_quarantine(self._list, key)

    def on_crash(self, worker: Worker, code: int) -> None:
        """Handle the unexpected end of a worker whose slot has not been released yet."""
        seconds = self._service.chosen.quarantine
        if not seconds or worker.slot is None or worker.generation < self._service.current.number:
            return
        now = time.monotonic()
        if self._recording is not None and now >= self._recording_until:
            self._recording = None
        conviction = self._judge(worker, worker.slot, f"{worker} {how_ended(code)}", now)
        if conviction is not None:
            self._begin(conviction, now, seconds)
        if self._recording is None:
            self._recording = time.monotonic_ns() // 1_000_000
        self._keep_recording(now)
        self._publish()

    def _judge(self, worker: Worker, slot: Slot, how: str, now: float) -> Conviction | None:
        recording, unrecorded, records = _records(slot)
        if self._recording is None:
            crash = Crash(now, how, None)
        elif recording == self._recording:
            crash = Crash(now, how, records, unrecorded)
        else:
            crash = Crash(now, how, [])  # no call has begun since recording began
        ended: dict[int, int] = {}
        for other in self._service.workers:
            if other is not worker and other.slot is not None:
                for record in _records(other.slot)[2] if self._recording is not None else ():
                    ended[record.key] = ended.get(record.key, 0) + record.ended
        return self._evidence.add(crash, ended)

    def _begin(self, conviction: Conviction, now: float, seconds: float) -> None:
        self._routes = [each for each in self._routes if each.key != conviction.key]
        if len(self._routes) == _native.QUARANTINED_MAX:
            self._lift(self._routes[:1], "too many routes are in quarantine")
        self._routes.append(_Route(conviction.key, conviction.name, now, now + seconds))
        crashes = conviction.crashes
        shown = ", ".join(each.how for each in crashes[-_SHOWN_MAX:])
        more = f" and {len(crashes) - _SHOWN_MAX} more" if len(crashes) > _SHOWN_MAX else ""
        self._service.report(
            ERROR,
            f"{conviction.name} is in quarantine for {seconds:g} s (--quarantine), because it was running when workers "
            f"crashed: {shown}{more}. Requests for it are answered with 503. To lift it earlier: SIGHUP, which reloads "
            "the application, or kirsch quarantine --lift; see kirsch help quarantined-routes",
        )

    def _keep_recording(self, now: float) -> None:
        """Continue to record while another crash could add evidence, also against a route that is in quarantine."""
        self._recording_until = max([now, *(each.until for each in self._routes)]) + WINDOW_SECONDS

    def _publish(self) -> None:
        routes = [(each.key, int(each.until * 1e9), int(each.since * 1e9), each.name) for each in self._routes]
        _native.publish_quarantine(self._list, self._recording, routes)

    def due(self) -> float:
        """Return the time at which :meth:`run_due` must be called."""
        if self._recording is None:
            return NEVER
        if not self._routes:
            return self._recording_until
        return min(time.monotonic() + _LOOK_SECONDS, *(each.until for each in self._routes))

    def run_due(self, now: float) -> None:
        """Remove routes from the list after their time, after a reload, or on request."""
        if self._recording is None:
            return
        service = self._service
        if service.current.number != self._generation:
            self._generation = service.current.number
            self._evidence = Evidence()
            self._lift(self._routes, "the application was reloaded")
        elif service.board.take_lift_request():
            self._evidence = Evidence()
            self._lift(self._routes, "kirsch quarantine --lift")
        over = [each for each in self._routes if now >= each.until]
        self._lift(over, "its time is over (--quarantine)")
        if not self._routes and now >= self._recording_until:
            self._recording = None
            self._publish()

    def _lift(self, routes: list[_Route], why: str) -> None:
        if routes:
            self._routes = [each for each in self._routes if each not in routes]
            self._publish()
        for route in routes:
            self._service.report(INFO, f"{route.name} is no longer in quarantine: {why}")


def _records(slot: Slot) -> tuple[int, int, list[RecordedRoute]]:
    """Return the number of a worker's recording, the number of running calls that it lacks, and the recorded routes."""
    recording, unrecorded, routes = _native.recorded_routes(slot.route_table)
    records = [
        RecordedRoute(key, family, is_family, running, ended, since / 1e9, name)
        for key, family, is_family, running, ended, since, name in routes
    ]
    return recording, unrecorded, records
