"""The metrics process of ``--metrics-bind``: it serves the data of the scoreboard, with Kirsch itself, in one
thread."""

from __future__ import annotations

import os
import signal

from kirsch.monitor.status_page import SAMPLE_SECONDS, Pages, Status
from kirsch.reports import WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.monitor.scoreboard import Scoreboard
    from kirsch.monitor.shared_value import SharedValue
    from kirsch.net.sockets import Listener
    from kirsch.reports import Report
    from kirsch.server import Server

# Scrapers send few, short requests without delay, so idle clients get little time. At the connection limit, the longest
# idle client is disconnected, so that idle clients cannot keep scrapers out.
_OPTIONS = {
    "threads": 1,
    "worker_connections": 1024,
    "header_timeout": 2.0,
    "body_timeout": 2.0,
    "write_timeout": 5.0,
    "limit_request_head": 16384,
    "limit_request_body": 4096,
    "graceful_timeout": 1.0,
}


def run(
    board: Scoreboard, listeners: list[Listener], report: Report, certificate_ends: SharedValue | None = None
) -> int:
    """Serve until a signal, or until the process that created ``board`` (the supervisor) has exited.

    Return the exit status. Must be called at the bottom of a child's stack.
    """
    from kirsch.process.real_threads import start_thread
    from kirsch.server import Server
    from kirsch.serving import serve_until_signal

    set_signals()
    status = Status(board, certificate_ends)
    server = Server(Pages(status), report=report, **_OPTIONS)  # type: ignore[arg-type]
    server.config.evicts_silent = True
    server.adopt(listeners)

    def ready() -> None:
        start_thread("kirsch-sample", _sample, (server, status, board.pid))

    return serve_until_signal(server, ready=ready, owns_process=True)


def set_signals() -> None:
    """Remove the supervisor's handlers, and ignore signals that are only for the supervisor: ``pkill -HUP kirsch``
    sends them to all processes. This process starts no program that would inherit the ignored signals."""
    signal.set_wakeup_fd(-1)
    for name in ("SIGHUP", "SIGTTIN", "SIGTTOU", "SIGUSR2", "SIGWINCH"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    for name in ("SIGTERM", "SIGINT", "SIGQUIT", "SIGCHLD", "SIGUSR1"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def _sample(server: Server, status: Status, parent: int) -> None:
    """Sample the board until the server has stopped. Stop the server if the supervisor has exited."""
    while not server.wait(SAMPLE_SECONDS):
        status.sample()
        if os.getppid() != parent:
            server.report(WARNING, "the supervisor has exited; stopping the metrics process")
            server.begin_stop(0.0)
            return
