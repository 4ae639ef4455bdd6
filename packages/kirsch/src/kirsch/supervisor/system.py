"""Queries of the supervisor to the operating system, mostly about its children."""

from __future__ import annotations

import os
import signal


def kill(pid: int, number: int) -> None:
    """Send a signal to ``pid``, if that is an unreaped child of this process. A worker that a zygote has forked reports
    its own pid, and may run as another user. So the pid is used only if the kernel confirms that it is a child; then
    the pid cannot belong to another process either.
    """
    if pid > 0:
        try:
            if _is_child(pid):
                os.kill(pid, number)
        except OSError:
            pass  # it is no child, or has exited already


def _is_child(pid: int) -> bool:
    """Return true if ``pid`` is an unreaped child. Raises OSError or returns false if it is not."""
    if hasattr(os, "waitid"):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    # PyPy lacks waitid(2). In this file the name in parentheses may contain anything; the state and the parent's pid
    # follow.
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1]) == os.getpid()


def how_ended(code: int | None) -> str:
    """Return a text for an exit code of ``os.waitstatus_to_exitcode``; None means an unknown status."""
    if code is None:
        return "has ended"
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def random_up_to(most: int) -> int:
    """Return a random number from 0 to ``most``. Importing ``random`` takes as long as importing the whole
    supervisor."""
    return int.from_bytes(os.urandom(8), "big") % (most + 1)


def random_share() -> float:
    return random_up_to(1 << 30) / (1 << 30)


def has_terminal() -> bool:
    """Return whether this process is in the foreground of a terminal, which sends SIGWINCH at a resize."""
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)


def processor_seconds(pid: int) -> float:
    """Return the CPU time that process ``pid`` has used, in seconds; 0 if the system does not report it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
