"""SIGUSR2: this process becomes the new installation of the program, and keeps its pid, sockets and workers.

First the new installation runs as a child with ``--check-config``; if that fails, nothing changes. Then the process
executes the new installation (execve). The state is passed in an unnamed file, whose descriptor is in an environment
variable. Sockets, channels and the scoreboard stay open. Signals are blocked until the new image handles them, so that
none is lost and none ends the process.

The pid stays the same because systemd, a container or a pid file knows the service by it. The workers are still
children of the new image. They serve until their successors are ready, and longer if these fail.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from kirsch import reports
from kirsch.process.spawn import spawn
from kirsch.supervisor.signal_pipe import unblock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kirsch.config.schema import Settings
    from kirsch.supervisor.control import Channel
    from kirsch.supervisor.signal_pipe import SignalPipe

    State = dict[str, Any]

# The name begins with an underscore, because it is not a setting.
_VARIABLE = "_KIRSCH_HANDED_OVER"

# Only the end of the output of ``--check-config`` is kept, in bytes.
_OUTPUT_MAX = 16384


def receive() -> State | None:
    """Return the state from the previous image; None if there was none."""
    text = os.environ.pop(_VARIABLE, "")
    if not text:
        return None
    pid, _, fd = text.partition(":")
    if pid != str(os.getpid()):
        return None  # this process has inherited the environment of another supervisor
    with open(int(fd), "rb") as file:
        file.seek(0)
        state: State = json.load(file)
    return state


def become(chosen: Settings, state: State, channels: Iterable[Channel], signal_pipe: SignalPipe) -> None:
    """Execute the program again with ``state`` and ``channels``. Raises OSError if that fails; then nothing has
    changed."""
    fds = [channel.fileno() for channel in channels if channel.fileno() >= 0]
    file = os.memfd_create("kirsch-upgrade", 0) if hasattr(os, "memfd_create") else _temporary_file()
    before = _open_current_directory()
    try:
        os.write(file, json.dumps(state).encode())
        for fd in fds:
            os.set_inheritable(fd, True)
        if chosen.directory:
            os.chdir(chosen.directory)
        signal_pipe.hold()
        arguments = _command()
        reports.flush()
        os.execve(arguments[0], arguments, {**os.environ, _VARIABLE: f"{os.getpid()}:{file}"})  # noqa: S606 - our own
    except OSError:
        unblock()
        for fd in fds:
            os.set_inheritable(fd, False)
        os.close(file)
        os.fchdir(before)
        os.close(before)
        raise


def _open_current_directory() -> int:
    """Return a descriptor by which to return to the current directory, which may have no path any more: deployments
    remove old releases."""
    return os.open(os.curdir, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)


class Check:
    """The new installation, running as a child with ``--check-config``. Raises OSError if it cannot be started."""

    def __init__(self, chosen: Settings, deadline: float) -> None:
        self.deadline = deadline
        self._output = b""
        self._fd, write_fd = os.pipe()
        os.set_blocking(self._fd, False)
        arguments = [*_command(), "--check-config"]
        before = _open_current_directory()
        try:
            if chosen.directory:
                os.chdir(chosen.directory)
            self.pid = spawn(arguments, {1: write_fd, 2: write_fd}, [signal.SIGPIPE])
        except OSError:
            os.close(self._fd)
            raise
        finally:
            os.close(write_fd)
            os.fchdir(before)
            os.close(before)

    def fileno(self) -> int:
        return self._fd

    def read(self) -> bool:
        """Read output of the child; return False at its end."""
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return True
        self._output = (self._output + data)[-_OUTPUT_MAX:]
        return bool(data)

    def give_up(self) -> None:
        """Kill the check, which has taken too long."""
        self.deadline = float("inf")
        self._output += b"\nit took longer than --startup-timeout"
        try:
            os.kill(self.pid, signal.SIGKILL)
        except OSError:
            pass

    def finish(self) -> str:
        """Return the output of the check, after it has exited."""
        self.read()
        self.close()
        return self._output.decode("utf-8", "replace").strip()

    def close(self) -> None:
        os.close(self._fd)


def _command() -> list[str]:
    """Return the command that started this process. Symbolic links in the interpreter's path, such as those of a
    virtual environment, may now point to another version: that is the upgrade."""
    return [sys.executable, *sys.orig_argv[1:]]


def _temporary_file() -> int:
    import tempfile

    fd, path = tempfile.mkstemp(prefix="kirsch-")
    os.unlink(path)
    os.set_inheritable(fd, True)
    return fd
