"""SIGUSR2, from the signal to the exec: the new installation looks at itself, and then this process becomes it."""

from __future__ import annotations

import os
import time

from kirsch import assembly
from kirsch.reports import ERROR, INFO, WARNING
from kirsch.supervisor import upgrade
from kirsch.supervisor.crew import NEVER, STARTING
from kirsch.supervisor.system import how_ended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.supervisor.changes import Changes
    from kirsch.supervisor.exhibition import Exhibition
    from kirsch.supervisor.nursery import Nursery
    from kirsch.supervisor.service import Service
    from kirsch.supervisor.waiting import Waiting
    from kirsch.supervisor.wakeup import Wakeup
    from kirsch.supervisor.workforce import Workforce


class Upgrading:
    """What an exec would cut off is stopped before it, and started again where the exec fails: ``changes`` and the
    ``exhibition``. Workers stay, and zygotes do not."""

    def __init__(
        self,
        service: Service,
        waiting: Waiting,
        workforce: Workforce,
        nursery: Nursery,
        changes: Changes,
        exhibition: Exhibition,
        wakeup: Wakeup,
    ) -> None:
        self._service = service
        self._waiting = waiting
        self._workforce = workforce
        self._nursery = nursery
        self._changes = changes
        self._exhibition = exhibition
        self._wakeup = wakeup
        self._check: upgrade.Check | None = None

    def begin(self, name: str) -> None:
        service = self._service
        if service.ending:
            return
        if self._check is not None:
            service.report(WARNING, f"{name}: an upgrade is under way already")
            return
        service.report(INFO, f"{name}: checking the new installation")
        timeout = service.chosen.startup_timeout
        try:
            self._check = upgrade.Check(service.chosen, time.monotonic() + timeout if timeout else NEVER)
        except OSError as error:
            service.report(ERROR, f"{name}: the new installation cannot be run: {assembly.reason(error)}")
        else:
            self._waiting.attend(self._check.fileno(), self._hear)

    def due(self) -> float:
        """When it will have taken too long."""
        return NEVER if self._check is None else self._check.deadline

    def look(self, now: float) -> None:
        if now >= self.due():
            self.give_up()

    def give_up(self) -> None:
        if self._check is not None:
            self._check.give_up()

    def close(self) -> None:
        """In a forked child."""
        if self._check is not None:
            self._check.close()

    def ended(self, pid: int, code: int) -> bool:
        """The process ``pid`` has ended with ``code``; False where it was not the one that checks."""
        check = self._check
        if check is None or check.pid != pid:
            return False
        self._check = None
        self._waiting.ignore(check.fileno())
        output = check.finish()
        if self._service.ending:
            return True
        if code == 0:
            self._become()
        else:
            output = output or f"it {how_ended(code)}"
            told = f"SIGUSR2: the new installation does not start, and this one serves on:\n{output}"
            self._service.report(ERROR, told)
        return True

    def _hear(self) -> None:
        assert self._check is not None
        if not self._check.read():
            self._waiting.ignore(self._check.fileno())

    def _become(self) -> None:
        """Become the new installation, with the same sockets and workers. Returns only where that fails."""
        service = self._service
        self._nursery.dismiss_all()
        for worker in service.workers:
            if worker.state is STARTING or service.is_trial(worker):
                self._workforce.tell_to_stop(worker, "upgrade", service.chosen.graceful_timeout, None)
        self._exhibition.stop()
        self._changes.stop()
        os.set_inheritable(service.board.fd, True)
        state = {
            **service.held.export(),
            "board": service.board.fd,
            "group": service.group.export(),
            "generation": service.current.number,
            "served": service.served,
            "wanted": service.wanted if service.wanted != service.chosen.workers else 0,
            "workers": [worker.export() for worker in service.workers],
        }
        try:
            upgrade.become(service.chosen, state, [worker.channel for worker in service.workers], self._wakeup)
        except OSError as error:
            os.set_inheritable(service.board.fd, False)
            service.group.set_inheritable(False)
            service.held.stay()
            told = f"the new installation cannot be run: {assembly.reason(error)}; serving on"
            service.report(ERROR, f"SIGUSR2: {told}")
            self._exhibition.start()
            self._changes.start()
