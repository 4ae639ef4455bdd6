"""Reports of the supervisor to the service manager, with the protocol of sd_notify(3).

Without ``NOTIFY_SOCKET`` nothing is sent. A message that cannot be sent is dropped: serving is more important than
reporting, and a service manager that misses a message has its own timeouts.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

# The seconds that sending may block. The manager reads at once, unless the machine is in trouble.
_SEND_SECONDS = 1.0


class Notifier:
    """The service manager at the other end of ``NOTIFY_SOCKET``, if there is one.

    ``watchdog_interval`` is the interval in seconds at which to call :meth:`watchdog`: half of the manager's limit
    (sd_watchdog_enabled(3)), or 0 if it does not watch this process. The variables stay in the environment for the next
    image (USR2); a worker calls :func:`leave_environment`.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self.watchdog_interval = _watchdog_seconds(environ) / 2 if self._address else 0.0

    def __bool__(self) -> bool:
        return bool(self._address)

    def ready(self, status: str = "") -> None:
        """Report that the first workers are ready, or that a reload has ended: ``READY=1``, with a ``STATUS``."""
        self._send("READY=1", _status(status))

    def reloading(self, status: str = "") -> None:
        """Report that a reload or an upgrade begins: ``RELOADING=1``. :meth:`ready` must follow, even if the reload
        fails.

        ``MONOTONIC_USEC`` identifies this reload for ``Type=notify-reload``.
        """
        import time

        microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={microseconds}", _status(status))

    def stopping(self, status: str = "", patience: float = 0.0) -> None:
        """Report a stop: ``STOPPING=1``. ``patience`` is the number of seconds that it may take by the server's
        settings; the manager waits that long (``EXTEND_TIMEOUT_USEC``), regardless of its ``TimeoutStopSec``."""
        extend = f"EXTEND_TIMEOUT_USEC={int(patience * 1_000_000)}" if patience > 0 else ""
        self._send("STOPPING=1", extend, _status(status))

    def status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows."""
        self._send(_status(text))

    def watchdog(self) -> None:
        """Report that the event loop is alive: ``WATCHDOG=1``, if the manager watches this process."""
        if self.watchdog_interval:
            self._send("WATCHDOG=1")

    def main_pid(self, pid: int) -> None:
        """Report that process ``pid`` is the main process of the service from now on: ``MAINPID=``."""
        self._send(f"MAINPID={pid}")

    def _send(self, *assignments: str) -> None:
        if not self._address:
            return
        import socket

        message = "\n".join(filter(None, assignments)).encode("utf-8", "replace")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.settimeout(_SEND_SECONDS)
                sock.sendto(message, self._address)
        except OSError:
            pass  # dropped, as the module's docstring says


def leave_environment() -> None:
    """Remove the variables from the environment, in workers: they are not the main process of the service."""
    for name in _VARIABLES:
        os.environ.pop(name, None)


def _address(text: str) -> str:
    """Return the socket address for ``text``: ``@`` begins an abstract name (unix(7)). Empty if it is no address."""
    if text.startswith("@"):
        return f"\0{text[1:]}"
    return text if text.startswith("/") else ""


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    microseconds = environ.get("WATCHDOG_USEC", "")
    if not (microseconds.isascii() and microseconds.isdigit()):
        return 0.0
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    return int(microseconds) / 1_000_000


def _status(text: str) -> str:
    return f"STATUS={' '.join(text.split())}" if text else ""
