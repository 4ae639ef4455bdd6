"""SIGUSR2, from the signal to the exec: the new installation checks itself, and then replaces this process."""

from __future__ import annotations

import os
import time

from kirsch import bootstrap
from kirsch.reports import ERROR, INFO, WARNING
from kirsch.supervisor import upgrade
from kirsch.supervisor.system import how_ended
from kirsch.supervisor.worker_plan import NEVER, STARTING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.supervisor.acme_manager import AcmeManager
    from kirsch.supervisor.event_loop import EventLoop
    from kirsch.supervisor.metrics_manager import MetricsManager
    from kirsch.supervisor.relay_manager import RelayManager
    from kirsch.supervisor.reload_manager import ReloadManager
    from kirsch.supervisor.reload_triggers import ReloadTriggers
    from kirsch.supervisor.service import Service
    from kirsch.supervisor.signal_pipe import SignalPipe
    from kirsch.supervisor.worker_manager import WorkerManager
    from kirsch.supervisor.zygote_pool import ZygotePool


class UpgradeManager:
    """Performs upgrades. Stops ``triggers`` and ``helpers`` before the exec, and restarts them if it fails. Workers
    continue, zygotes are stopped."""

    def __init__(
        self,
        service: Service,
        loop: EventLoop,
        worker_manager: WorkerManager,
        zygotes: ZygotePool,
        reload_manager: ReloadManager,
        triggers: ReloadTriggers,
        helpers: tuple[MetricsManager, AcmeManager],
        relay_manager: RelayManager,
        signal_pipe: SignalPipe,
    ) -> None:
        self._service = service
        self._loop = loop
        self._worker_manager = worker_manager
        self._zygotes = zygotes
        self._reload_manager = reload_manager
        self._reload_triggers = triggers
        self._helpers = helpers
        self._relay_manager = relay_manager
        self._signal_pipe = signal_pipe
        self._check: upgrade.Check | None = None
        self._awaits_reload = False  # the check has succeeded; a reload is still in progress
        self._warned = False

    def begin(self, name: str) -> None:
        service = self._service
        if service.ending:
            return
        if self._check is not None or self._awaits_reload:
            if not self._warned:
                service.report(WARNING, f"{name}: an upgrade is in progress already")
            self._warned = True
            return
        self._warned = False
        service.report(INFO, f"{name}: checking the new installation")
        timeout = service.chosen.startup_timeout
        try:
            self._check = upgrade.Check(service.chosen, time.monotonic() + timeout if timeout else NEVER)
        except OSError as error:
            service.report(ERROR, f"{name}: the new installation cannot be run: {bootstrap.reason(error)}")
        else:
            self._loop.add_reader(self._check.fileno(), self._read_output)

    def due(self) -> float:
        """Return the deadline of the running check."""
        return NEVER if self._check is None else self._check.deadline

    def run_due(self, now: float) -> None:
        if now >= self.due():
            self.give_up()

    def give_up(self) -> None:
        if self._check is not None:
            self._check.give_up()

    def close(self) -> None:
        """Close the descriptors of the check, in a forked child."""
        if self._check is not None:
            self._check.close()

    def on_exit(self, pid: int, code: int) -> bool:
        """Handle the exit of process ``pid`` with ``code``; False if it is not the check."""
        check = self._check
        if check is None or check.pid != pid:
            return False
        self._check = None
        self._loop.remove_reader(check.fileno())
        output = check.finish()
        if self._service.ending:
            return True
        if code == 0:
            self._awaits_reload = True
            self._reload_manager.begin_upgrade("SIGUSR2", self._become)
        else:
            output = output or f"it {how_ended(code)}"
            text = f"SIGUSR2: the new installation does not start, keeping this one:\n{output}"
            self._service.report(ERROR, text)
        return True

    def _read_output(self) -> None:
        assert self._check is not None
        if not self._check.read():
            self._loop.remove_reader(self._check.fileno())

    def _become(self) -> None:
        """Execute the new installation with the same sockets and workers. Returns only if that fails."""
        service = self._service
        self._awaits_reload = False
        self._zygotes.dismiss_all()
        for worker in service.workers:
            if worker.state is STARTING or service.is_trial(worker):
                self._worker_manager.stop(worker, "upgrade", service.chosen.graceful_timeout, None)
        for helper in self._helpers:
            helper.stop()
        self._reload_triggers.stop()
        os.set_inheritable(service.board.fd, True)
        state = {
            **service.resources.export(),
            "board": service.board.fd,
            "group": service.group.export(),
            "relay": self._relay_manager.export(),
            "certificates": service.certificates.export(),
            "generation": service.current.number,
            "served": service.served,
            "wanted": service.wanted if service.wanted != service.chosen.workers else 0,
            "workers": [worker.export() for worker in service.workers],
        }
        try:
            upgrade.become(service.chosen, state, [worker.channel for worker in service.workers], self._signal_pipe)
        except OSError as error:
            os.set_inheritable(service.board.fd, False)
            service.group.set_inheritable(False)
            service.connector.set_inheritable(False)
            service.certificates.stay()
            service.resources.stay()
            text = f"the new installation cannot be run: {bootstrap.reason(error)}; keeping this one"
            service.report(ERROR, f"SIGUSR2: {text}")
            for helper in self._helpers:
                helper.start()
            self._reload_triggers.start()
