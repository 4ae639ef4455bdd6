"""Signals as events of a loop: each one that comes is a byte in a pipe."""

from __future__ import annotations

import os
import signal

from kirsch.handlers import do_nothing, handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = (
    "SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTTIN", "SIGTTOU", "SIGWINCH", "SIGCHLD",
    "SIGPWR", "SIGINFO",
)  # fmt: skip


class SignalPipe:
    """Takes the signals of ``NAMES`` over, for good. To be made in the main thread.

    They may have been blocked before, as they are over an exec (``upgrade.py``): what came meanwhile comes now.
    """

    def __init__(self) -> None:
        self._come: list[int] = []
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        handle({getattr(signal, name): do_nothing for name in NAMES if hasattr(signal, name)})
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def fileno(self) -> int:
        return self._read_fd

    def signals(self) -> Iterator[int]:
        """Those that have come, in their order."""
        self._read()
        while self._come:
            yield self._come.pop(0)

    def hold(self) -> None:
        """Let signals wait until there is another :class:`SignalPipe`, or until :func:`unblock`; also those that have come
        and that nobody has seen yet. An exec changes nothing about that."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._read()
        while self._come:
            os.kill(os.getpid(), self._come.pop(0))

    def end(self) -> None:
        """What comes from now on changes nothing: this process is about to end."""
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
