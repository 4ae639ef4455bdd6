"""The supervisor's side of the relay of groups (``groups/relay.py``): starts it when a worker connects, or if rate
limits are shared with other hosts, and restarts it when it has ended. A server whose application uses no named group
has no relay, only two descriptors. The relay of the previous image of this program (USR2) keeps running, because its
messages would be lost.
"""

from __future__ import annotations

import signal
import time

from kirsch import bootstrap
from kirsch.reports import ERROR
from kirsch.supervisor import privileges
from kirsch.supervisor.backoff import Backoff
from kirsch.supervisor.system import how_ended, kill
from kirsch.supervisor.worker_plan import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kirsch.supervisor.event_loop import EventLoop
    from kirsch.supervisor.forking import Forker
    from kirsch.supervisor.service import Service


class RelayManager:
    """Manages the relay process. ``pid`` is that of the relay before the upgrade; 0 if there is none."""

    def __init__(self, service: Service, loop: EventLoop, forker: Forker, pid: int) -> None:
        self._service = service
        self._loop = loop
        self._forker = forker
        self._pid = pid
        self._started = 0.0
        self._backoff = Backoff()
        self._watch_at = NEVER
        self._is_watching = False
        if not pid:
            self._watch()

    def due(self) -> float:
        return self._watch_at

    def run_due(self, now: float) -> None:
        if now >= self._watch_at:
            self._watch_at = NEVER
            self._watch()
        chosen = self._service.chosen
        if self._is_watching and chosen.groups and chosen.rate_limit and not self._service.is_stopping:
            self._start()

    def _watch(self) -> None:
        """Start the relay when a worker tries to connect."""
        self._is_watching = True
        self._loop.add_reader(self._service.connector.relay_end, self._start)

    def _start(self) -> None:
        from kirsch.supervisor import relay_process

        service, connector = self._service, self._service.connector
        url = service.chosen.groups
        self._is_watching = False
        self._loop.remove_reader(connector.relay_end)

        def main() -> int:
            service.become_helper("groups", keeps=(connector,))
            if service.resources.identity is not None:
                privileges.drop(service.resources.identity)
            return relay_process.run(connector.relay_end, url, service.resources.errors, service.board)

        self._started = time.monotonic()
        try:
            self._pid = self._forker.fork(main)
        except OSError as error:
            service.report(ERROR, f"cannot start the relay of groups: {bootstrap.reason(error)}")
            self._wait()

    def _wait(self) -> None:
        now = time.monotonic()
        self._watch_at = now + self._backoff.ended(now, self._started)

    def export(self) -> dict[str, Any]:
        """Return JSON data for the next image of this program."""
        return {"fds": self._service.connector.export(), "pid": self._pid}

    def stop(self) -> None:
        """Stop the relay, when the service has ended."""
        kill(self._pid, signal.SIGTERM)
        self._pid = 0

    def on_exit(self, pid: int, code: int) -> bool:
        """Handle the exit of process ``pid`` with ``code``; False if it is not the relay."""
        if pid != self._pid:
            return False
        self._pid = 0
        if not self._service.is_stopping:
            if code:
                self._service.report(ERROR, f"the relay of groups {how_ended(code)}; another is started")
            self._wait()
        return True
