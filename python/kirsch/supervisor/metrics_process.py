"""The child behind ``--metrics-bind``: it serves what is on the scoreboard, with Kirsch itself, in one thread."""

from __future__ import annotations

import os
import signal

from kirsch.reports import WARNING
from kirsch.supervisor.status_page import SAMPLE_SECONDS, Pages, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.reports import Report
    from kirsch.scoreboard import Scoreboard
    from kirsch.server import Server
    from kirsch.sockets import Listener

# Scrapers send short requests, at once, and there are few of them. Clients that connect and say nothing have little
# time, and at the bound the one that has been silent for longest is closed, so that they keep no scraper out.
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


def run(board: Scoreboard, listeners: list[Listener], report: Report) -> int:
    """Serve until a signal, or until the process that made ``board`` (our parent) is gone.

    Returns the exit status. To be called at the bottom of a child's stack.
    """
    from kirsch.drivers import original
    from kirsch.server import Server, serve_until_signal

    _set_signals()
    status = Status(board)
    server = Server(Pages(status), report=report, **_OPTIONS)  # type: ignore[arg-type]
    server.engine_options["evicts_silent"] = True
    server.adopt(listeners)

    def ready() -> None:
        original("start_new_thread")(_sample, (server, status, board.pid))

    return serve_until_signal(server, ready=ready, owns_process=True)


def _set_signals() -> None:
    """Of what the supervisor has, nothing is left; and what is meant for it alone is ignored here: ``pkill -HUP
    kirsch`` sends it to everybody. Programs that would inherit that are never started."""
    signal.set_wakeup_fd(-1)
    for name in ("SIGHUP", "SIGTTIN", "SIGTTOU", "SIGUSR2", "SIGWINCH"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    for name in ("SIGTERM", "SIGINT", "SIGQUIT", "SIGCHLD", "SIGUSR1"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def _sample(server: Server, status: Status, parent: int) -> None:
    """Sample the board until the server has ended; end it when the supervisor has gone without a word."""
    while not server.wait(SAMPLE_SECONDS):
        status.sample()
        if os.getppid() != parent:
            server.report(WARNING, "the supervisor is gone; the metrics go too")
            server.begin_stop(0.0)
            return
