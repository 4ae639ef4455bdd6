"""The child behind ``--metrics-bind``, as the supervisor sees it: it is started, ended, and started again."""

from __future__ import annotations

import signal
import time

from kirsch import bootstrap
from kirsch.reports import ERROR
from kirsch.supervisor import privileges, titles
from kirsch.supervisor.system import how_ended, kill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from kirsch.supervisor.control import Channel
    from kirsch.supervisor.service import Service

    class Forker(Protocol):
        """The supervisor, as far as it is needed here."""

        def fork(self, main: Callable[[], int], *channels: Channel) -> int: ...


# One that lives for less is not started again at once: another would hardly live longer.
_YOUNG_SECONDS = 1.0


class MetricsManager:
    def __init__(self, service: Service, forker: Forker) -> None:
        self._service = service
        self._forker = forker
        self._pid = 0
        self._started = 0.0

    def start(self) -> None:
        """Once there is something to tell. Nothing where it runs already, or nobody has asked for it."""
        service, resources, board = self._service, self._service.resources, self._service.board
        if not resources.metrics or self._pid:
            return
        from kirsch.supervisor import metrics_process

        def main() -> int:
            service.close_directories()
            resources.close_sockets()
            self._service.group.close()
            if resources.identity is not None:
                privileges.drop(resources.identity)
            titles.other("metrics", board.application)
            return metrics_process.run(board, resources.metrics, resources.errors)

        try:
            self._pid = self._forker.fork(main)
            self._started = time.monotonic()
        except OSError as error:
            self._service.report(ERROR, f"metrics are not served: {bootstrap.reason(error)}")

    def stop(self) -> None:
        kill(self._pid, signal.SIGTERM)
        self._pid = 0

    def on_exit(self, pid: int, code: int) -> bool:
        """The process ``pid`` has ended with ``code``; False where it was not this one."""
        if pid != self._pid:
            return False
        self._pid = 0
        if not self._service.is_stopping:
            self._service.report(ERROR, f"the process that serves metrics {how_ended(code)}")
            if time.monotonic() > self._started + _YOUNG_SECONDS:
                self.start()
        return True
