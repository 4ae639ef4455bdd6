"""Signals as events of the event loop: each signal writes a byte to a pipe."""

from __future__ import annotations

import os
import signal

from kirsch.process.signal_handlers import do_nothing, set_handlers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = (
    "SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTTIN", "SIGTTOU", "SIGWINCH", "SIGCHLD",
    "SIGPWR", "SIGINFO",
)  # fmt: skip


class SignalPipe:
    """Handles the signals of ``NAMES``. Must be created in the main thread. If signals were blocked before, as during
    an exec (``upgrade.py``), the pending ones arrive now.
    """

    def __init__(self) -> None:
        self._come: list[int] = []
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        set_handlers({getattr(signal, name): do_nothing for name in NAMES if hasattr(signal, name)})
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def fileno(self) -> int:
        return self._read_fd

    def signals(self) -> Iterator[int]:
        """Yield the signals that have arrived, in order."""
        self._read()
        while self._come:
            yield self._come.pop(0)

    def hold(self) -> None:
        """Block all signals, and make the unhandled ones pending again. They stay pending across an exec, until
        there is another :class:`SignalPipe` or :func:`unblock` is called."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._read()
        while self._come:
            os.kill(os.getpid(), self._come.pop(0))

    def end(self) -> None:
        """Ignore further signals: this process is about to exit."""
        for name in NAMES:
            if name != "SIGCHLD" and (number := getattr(signal, name, None)) is not None:
                signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)

    def close(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _read(self) -> None:
        try:
            self._come += os.read(self._read_fd, 4096)
        except BlockingIOError:
            pass


def unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
