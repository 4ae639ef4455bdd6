"""The supervisor's side of the metrics process of ``--metrics-bind``: it starts, stops and restarts the process."""

from __future__ import annotations

import signal
import time

from kirsch import bootstrap
from kirsch.reports import ERROR
from kirsch.supervisor import privileges
from kirsch.supervisor.system import how_ended, kill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.supervisor.forking import Forker
    from kirsch.supervisor.service import Service


# A metrics process that lives for fewer seconds is not restarted: the next one would probably exit too.
_YOUNG_SECONDS = 1.0


class MetricsManager:
    def __init__(self, service: Service, forker: Forker) -> None:
        self._service = service
        self._forker = forker
        self._pid = 0
        self._started = 0.0

    def start(self) -> None:
        """Start the metrics process, unless it runs already or there is no ``--metrics-bind``."""
        service, resources = self._service, self._service.resources
        if not resources.metrics or self._pid:
            return
        from kirsch.supervisor import metrics_process

        def main() -> int:
            ends = service.certificates.ends
            service.become_helper("metrics", keeps=(*resources.metrics, ends))
            if resources.identity is not None:
                privileges.drop(resources.identity)
            return metrics_process.run(service.board, resources.metrics, resources.errors, ends)

        try:
            self._pid = self._forker.fork(main)
            self._started = time.monotonic()
        except OSError as error:
            self._service.report(ERROR, f"cannot start the metrics process: {bootstrap.reason(error)}")

    def stop(self) -> None:
        kill(self._pid, signal.SIGTERM)
        self._pid = 0

    def on_exit(self, pid: int, code: int) -> bool:
        """Handle the exit of process ``pid`` with ``code``; False if it is not the metrics process."""
        if pid != self._pid:
            return False
        self._pid = 0
        if not self._service.is_stopping:
            self._service.report(ERROR, f"the metrics process {how_ended(code)}")
            if time.monotonic() > self._started + _YOUNG_SECONDS:
                self.start()
        return True
