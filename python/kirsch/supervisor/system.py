"""What the supervisor asks of the operating system about its children, in a line each."""

from __future__ import annotations

import os
import signal


def kill(pid: int, number: int) -> None:
    """Send a signal to ``pid``, if that is a child of ours which has not been waited for.

    A worker that a zygote has forked tells its pid itself, and it may be another user's: so what it tells is believed
    only where the kernel agrees. Nor can the number have been given to somebody else meanwhile.
    """
    if pid > 0:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.kill(pid, number)
        except OSError:
            pass  # it is no child, or has ended, and SIGCHLD is on its way


def how_ended(code: int | None) -> str:
    """``os.waitstatus_to_exitcode`` in words; None: nobody knows."""
    if code is None:
        return "has ended"
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def random_up_to(most: int) -> int:
    """A number from 0 to ``most``. Importing random would take as long as all of the supervisor."""
    return int.from_bytes(os.urandom(8), "big") % (most + 1)


def random_share() -> float:
    return random_up_to(1 << 30) / (1 << 30)


def has_terminal() -> bool:
    """Whether this process is in the foreground of a terminal, whose resizing sends SIGWINCH."""
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
    """What a process has used of processors; 0 where the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
