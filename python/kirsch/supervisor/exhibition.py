"""The child behind ``--metrics-bind``, as the supervisor sees it: it is started, ended, and started again."""

from __future__ import annotations

import signal
import time

from kirsch import assembly
from kirsch.reports import ERROR
from kirsch.supervisor import privileges, titles
from kirsch.supervisor.system import how_ended, kill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from kirsch.supervisor.control import Channel
    from kirsch.supervisor.service import Service

    class Host(Protocol):
        """The supervisor, as far as it is needed here."""

        def fork(self, main: Callable[[], int], *channels: Channel) -> int: ...


# One that lives for less is not started again at once: another would hardly live longer.
_YOUNG_SECONDS = 1.0


class Exhibition:
    def __init__(self, service: Service, host: Host) -> None:
        self._service = service
        self._host = host
        self._pid = 0
        self._started = 0.0

    def start(self) -> None:
        """Once there is something to tell. Nothing where it runs already, or nobody has asked for it."""
        service, held, board = self._service, self._service.held, self._service.board
        if not held.metrics or self._pid:
            return
        from kirsch.supervisor import metrics_child

        def main() -> int:
            service.close_directories()
            held.close_sockets()
            self._service.group.close()
            if held.identity is not None:
                privileges.drop(held.identity)
            titles.other("metrics", board.application)
            return metrics_child.run(board, held.metrics, held.errors)

        try:
            self._pid = self._host.fork(main)
            self._started = time.monotonic()
        except OSError as error:
            self._service.report(ERROR, f"metrics are not served: {assembly.reason(error)}")

    def stop(self) -> None:
        kill(self._pid, signal.SIGTERM)
        self._pid = 0

    def ended(self, pid: int, code: int) -> bool:
        """The process ``pid`` has ended with ``code``; False where it was not this one."""
        if pid != self._pid:
            return False
        self._pid = 0
        if not self._service.is_stopping:
            self._service.report(ERROR, f"the process that serves metrics {how_ended(code)}")
            if time.monotonic() > self._started + _YOUNG_SECONDS:
                self.start()
        return True
