"""The resources that the supervisor holds for its workers: their user, the sockets, the logs, the pid file.

They are acquired before the first worker, so that errors are reported at the start. All of them survive an upgrade.
"""

from __future__ import annotations

import os

from kirsch import bootstrap
from kirsch.config.setting import UsageError
from kirsch.net import addresses, inherited, sockets
from kirsch.net.certificates import TlsFiles
from kirsch.net.sockets import Rebound
from kirsch.reports import ERROR, LEVELS, WARNING, ErrorLog, write_stderr
from kirsch.supervisor import privileges
from kirsch.supervisor.pid_file import PidFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kirsch.config.schema import Settings
    from kirsch.net.sockets import Listener
    from kirsch.supervisor.upgrade import State


class Resources:
    """The opened resources, or those of the previous image (``state``). Raises StartupError and UsageError if one
    cannot be opened; then all are released again. At an upgrade, a file or an address that cannot be opened is reported
    instead: a wrong setting must not end the running service.
    """

    def __init__(self, chosen: Settings, state: State | None) -> None:
        self.pid_file: PidFile | None = None
        self.listeners: list[Listener] = []
        self.metrics: list[Listener] = []
        self._is_upgrade = state is not None
        try:
            privileges.set_umask(chosen.umask)
            self.identity = privileges.identity(chosen.user, chosen.group)
            self._take_pid_file(chosen, state)
            self._open_logs(chosen)
            self.errors.redirect_stderr()
            self._listen(chosen, state)
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError):
                raise bootstrap.StartupError(bootstrap.EXIT_FAILED, bootstrap.reason(error)) from None
            if isinstance(error, ValueError):
                raise UsageError(str(error)) from None
            raise
        complaint = privileges.root_warning(self.identity)
        if complaint and any(map(_is_reachable, self.listeners)):
            self.errors(WARNING, complaint)
        self._warn_of_exposure(chosen)

    def _warn_of_exposure(self, chosen: Settings) -> None:
        given = chosen.trusted_proxies, chosen.proxy_from
        # With --reuse-port several listeners have the same address: report its warning once.
        for warning in dict.fromkeys(sockets.exposure(listener, *given) for listener in self.listeners):
            if warning:
                self.errors(WARNING, warning)

    @property
    def sets(self) -> int:
        """The number of socket sets with ``--reuse-port``; 0 if all workers share one."""
        return 1 + max((-1 if listener.set is None else listener.set for listener in self.listeners), default=-1)

    def give_logs(self, chosen: Settings) -> None:
        """Make the logs writable for the workers' user. Raises OSError."""
        if self.identity is not None:
            privileges.give(self.identity, chosen.error_logfile)
            # Until the reload succeeds, this process has not changed to the directory of the new settings.
            path = chosen.access_logfile
            if path not in ("", "-"):
                path = os.path.join(chosen.directory, chosen.chdir, path)
            privileges.give(self.identity, path)

    def close_sockets(self) -> None:
        """Close the listening sockets in this process; workers that have them still accept."""
        for listener in self.listeners:
            listener.close()

    def discard(self) -> None:
        """Close the sockets, and remove their paths and the pid file."""
        sockets.discard(self.listeners)
        sockets.discard(self.metrics)
        if self.pid_file is not None:
            self.pid_file.remove()

    def export(self) -> State:
        """Return data for the next image of this program. The descriptors survive an exec from now on; :meth:`stay`
        undoes that."""
        return {
            "pid_file": None if self.pid_file is None else self.pid_file.export(),
            "listeners": sockets.export(self.listeners),
            "metrics": sockets.export(self.metrics) if self.metrics else None,
        }

    def stay(self) -> None:
        sockets.stay([*self.listeners, *self.metrics])
        if self.pid_file is not None:
            self.pid_file.stay()

    def _take_pid_file(self, chosen: Settings, state: State | None) -> None:
        before = None if state is None or state["pid_file"] is None else PidFile.inherit(state["pid_file"])
        if before is not None and before.path == os.path.abspath(chosen.pid_file or os.curdir):
            self.pid_file = before
            return
        if chosen.pid_file:
            self.pid_file = PidFile(chosen.pid_file)
            try:
                self.pid_file.write()
            except OSError as error:
                if not self._is_upgrade:
                    raise
                write_stderr(f"kirsch: SIGUSR2: {error.strerror}; keeping the previous pid file")
                self.pid_file = before
                return
        if before is not None:
            before.remove()

    def _open_logs(self, chosen: Settings) -> None:
        try:
            self.give_logs(chosen)
            self.errors = bootstrap.open_logs(chosen)
        except (OSError, bootstrap.StartupError) as error:
            if not self._is_upgrade:
                raise
            self.errors = ErrorLog("", LEVELS[chosen.log_level], json=chosen.error_logformat == "json")
            self.errors(ERROR, f"SIGUSR2: {error.args[-1]}; writing errors to standard error instead")

    def _listen(self, chosen: Settings, state: State | None) -> None:
        sets = chosen.workers if chosen.reuse_port else 0
        old = [] if state is None else sockets.inherit(state["listeners"])
        old_metrics = [] if state is None or state["metrics"] is None else sockets.inherit(state["metrics"])
        binds, complaint = inherited.choose_binds(chosen.bind, explicit=chosen.origins["bind"] != "default")
        if complaint and state is None:
            self.errors(WARNING, complaint)
        rebound = self._rebind(old, binds, chosen, sets)
        self.listeners = rebound.listeners
        sockets.encrypt(self.listeners, with_certificates=bool(TlsFiles(chosen.values)))
        if chosen.metrics_bind:
            self.metrics = self._rebind(old_metrics, chosen.metrics_bind, chosen).listeners
        # The previous workers still have the removed sockets, and accept the queued connections before they close them.
        sockets.discard(rebound.gone)
        sockets.discard(each for each in old_metrics if each not in self.metrics)

    def _rebind(self, old: list[Listener], binds: Iterable[str], chosen: Settings, sets: int = 0) -> Rebound:
        owner = None if self.identity is None else self.identity.owner
        try:
            return sockets.rebind(old, binds, chosen.backlog, owner=owner, sets=sets)
        except (OSError, ValueError) as error:
            if not self._is_upgrade:
                raise
            self.errors(ERROR, f"SIGUSR2: {error.args[-1]}; keeping the current addresses")
            return Rebound(old, [], [])


def _is_reachable(listener: Listener) -> bool:
    """Return whether other machines may be able to connect to the listener."""
    address = listener.address
    return not isinstance(address, str) and not addresses.is_loopback(address[0])
