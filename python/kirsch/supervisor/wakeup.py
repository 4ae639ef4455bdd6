"""Signals as events of a loop: each one that comes is a byte in a pipe."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

NAMES = (
    "SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTTIN", "SIGTTOU", "SIGWINCH", "SIGCHLD",
    "SIGPWR", "SIGINFO",
)  # fmt: skip


class Wakeup:
    """Takes the signals of ``NAMES`` over, for good. To be made in the main thread.

    They may have been blocked before, as they are over an exec (``upgrade.py``): what came meanwhile comes now.
    """

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for name in NAMES:
            if (number := getattr(signal, name, None)) is not None:
                signal.signal(number, _do_nothing)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def fileno(self) -> int:
        return self._read_fd

    def read(self) -> list[int]:
        """The signals that have come, in their order."""
        try:
            return list(os.read(self._read_fd, 4096))
        except BlockingIOError:
            return []

    def end(self) -> None:
        """What comes from now on changes nothing: this process is about to end."""
        for name in NAMES:
            if name != "SIGCHLD" and (number := getattr(signal, name, None)) is not None:
                signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)

    def close(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)


def block() -> None:
    """Let signals wait until there is a :class:`Wakeup` again."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass
