"""The supervisor's side of the process that obtains certificates: it starts, stops and restarts the process."""

from __future__ import annotations

import os
import signal
import time

from kirsch import bootstrap
from kirsch.net.acme_files import AcmeFiles
from kirsch.net.addresses import HTTP
from kirsch.reports import ERROR, WARNING
from kirsch.supervisor.system import how_ended, kill
from kirsch.supervisor.worker_plan import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kirsch.config.schema import Settings
    from kirsch.supervisor.forking import Forker
    from kirsch.supervisor.service import Service


# The seconds to wait before a restart after the process has exited by itself: doubled each time, up to the longest.
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 3600.0
# A process that has run for this many seconds ends a series of failures.
_SETTLED_SECONDS = 600.0


class AcmeManager:
    def __init__(self, service: Service, forker: Forker) -> None:
        self._service = service
        self._forker = forker
        self._pid = 0
        self._pipe = -1  # the process exits when this is closed
        self._started = 0.0
        self._wait = _FIRST_WAIT
        self._restart_at = NEVER
        self._chosen: Settings | None = None
        self._is_wanted = False

    def start(self) -> None:
        """Start the process, unless it runs already or there is no ``--acme``."""
        self._is_wanted = True
        self._chosen = self._service.chosen
        self._restart_at = NEVER
        values, service = self._chosen.values, self._service
        files = AcmeFiles(values)
        # Without encrypted listeners, which need a restart, no listener would use the certificates.
        if not files.names or self._pid or service.certificates.shared is None:
            return
        listeners = service.resources.listeners
        web = [each for each in listeners if each.protocol == HTTP]
        from kirsch.supervisor import acme_client, acme_process

        challenges = acme_client.usable_challenges(
            values,
            has_plain=any(not each.is_encrypted for each in web),
            has_encrypted=any(each.is_encrypted for each in web),
        )
        reading, writing = -1, -1
        try:
            files.create()
            reading, writing = os.pipe()

            def main() -> int:
                os.close(writing)
                service.become_helper("acme")
                return acme_process.run(files, values, service.resources.errors, challenges, reading)

            self._pid = self._forker.fork(main)
            self._started = time.monotonic()
        except OSError as error:
            if writing >= 0:
                os.close(writing)
            service.report(
                ERROR, f"acme: cannot start the process that obtains certificates: {bootstrap.reason(error)}"
            )
            self._fail()
            return
        finally:
            if reading >= 0 and self._pid:
                os.close(reading)
        self._pipe = writing

    def stop(self) -> None:
        """Stop the process."""
        self._is_wanted = False
        self._end()

    def due(self) -> float:
        """Return the time at which :meth:`run_due` must be called."""
        return self._restart_at

    def run_due(self, now: float) -> None:
        """Restart the process if it has exited, or if a reload has changed its settings."""
        if not self._is_wanted or self._service.is_stopping:
            return
        if self._chosen is not self._service.chosen:
            before, self._chosen = self._chosen, self._service.chosen
            if before is not None and _settings(before) != _settings(self._chosen):
                self._wait = _FIRST_WAIT
                self.restart()
        elif now >= self._restart_at and not self._pid:
            self.start()

    def restart(self) -> None:
        """Restart the process, so that it reads its settings and reopens the log."""
        if self._is_wanted:
            self._end()
            self.start()

    def close_in_child(self) -> None:
        """Close the pipe in a child of the supervisor, so that this child does not keep the process alive."""
        if self._pipe >= 0:
            os.close(self._pipe)

    def on_exit(self, pid: int, code: int) -> bool:
        """Handle the exit of process ``pid`` with ``code``; False if it is another process."""
        if pid != self._pid:
            return False
        self._pid = 0
        self._close_pipe()
        if self._is_wanted and not self._service.is_stopping:
            wait = self._fail()
            text = f"acme: the process that obtains certificates {how_ended(code)}; it is started again in {wait:g} s"
            self._service.report(WARNING, text)
        return True

    def _fail(self) -> float:
        now = time.monotonic()
        if now > self._started + _SETTLED_SECONDS:
            self._wait = _FIRST_WAIT
        wait, self._wait = self._wait, min(2 * self._wait, _LONGEST_WAIT)
        self._restart_at = now + wait
        return wait

    def _end(self) -> None:
        kill(self._pid, signal.SIGTERM)
        self._pid = 0
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def _settings(chosen: Settings) -> list[Any]:
    return [value for name, value in chosen.values.items() if name.startswith("acme")]
