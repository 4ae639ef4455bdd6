"""Questions of the supervisor to the operating system about its children."""

from __future__ import annotations

import os
import signal


def kill(pid: int, number: int) -> None:
    """Send a signal to ``pid``, if that is a child of this process which has not been reaped.

    A worker that a zygote has forked reports its own pid, and it may run as another user. So the pid is used only where
    the kernel confirms that it is a child, which also means that no other process can have got the same pid.
    """
    if pid > 0:
        try:
            if _is_child(pid):
                os.kill(pid, number)
        except OSError:
            pass  # it is no child, or has exited, and SIGCHLD is on its way


def _is_child(pid: int) -> bool:
    """Return true if ``pid`` is a child that has not been reaped. Raise OSError if there is no such child."""
    if hasattr(os, "waitid"):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    # PyPy lacks waitid(2). The name of the program, in parentheses, may contain anything; the parent's pid follows it.
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1]) == os.getpid()


def how_ended(code: int | None) -> str:
    """``os.waitstatus_to_exitcode`` in words; None: the status is unknown."""
    if code is None:
        return "has ended"
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def random_up_to(most: int) -> int:
    """Return a number from 0 to ``most``. Importing ``random`` would take as long as importing the whole supervisor."""
    return int.from_bytes(os.urandom(8), "big") % (most + 1)


def random_share() -> float:
    return random_up_to(1 << 30) / (1 << 30)


def has_terminal() -> bool:
    """Return whether this process is in the foreground of a terminal, which sends SIGWINCH when it is resized."""
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
    """Return the processor time that a process has used; 0 if the system does not report it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
