"""Starting of another program, by posix_spawn(3) if Python has it: PyPy 3.11 does not."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CATCHABLE = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


def spawn(
    command: list[str],
    files: Mapping[int, int],
    default_signals: Iterable[signal.Signals | int] = _CATCHABLE,
    *,
    own_group: bool = False,
) -> int:
    """Start ``command``, with no signal blocked, and return its pid. Raises OSError if it cannot be executed.

    ``files`` maps descriptors of the program to descriptors of this process; ``default_signals`` get their default
    action, even if this process ignores them; with ``own_group`` the program gets its own process group.
    """
    if hasattr(os, "posix_spawn"):
        actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in files.items()]
        group: dict[str, int] = {"setpgroup": 0} if own_group else {}
        return os.posix_spawn(
            command[0],
            command,
            os.environ,
            file_actions=actions,
            setsigmask=(),
            setsigdef=list(default_signals),
            **group,  # type: ignore[arg-type]  # mypy takes them for any of the arguments
        )
    return _fork(command, files, set(default_signals), own_group=own_group)


def _fork(command: list[str], files: Mapping[int, int], default_signals: set[int], *, own_group: bool) -> int:
    """Do the same as :func:`spawn` by fork and exec. The child reports a failed exec through a pipe, which a
    successful exec closes."""
    reader, writer = os.pipe()
    # Block signals, so that no handler of this process runs in the child.
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _execute(command, files, default_signals, writer, own_group=own_group)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writer)
    with open(reader, "rb") as report:
        failed = report.read()
    if failed:
        os.waitpid(pid, 0)
        number = int(failed)
        raise OSError(number, os.strerror(number), command[0])
    return pid


def _execute(
    command: list[str], files: Mapping[int, int], default_signals: set[int], writer: int, *, own_group: bool
) -> None:
    """Execute the program, in the child. Never returns."""
    try:
        for number in _CATCHABLE:
            if number in default_signals or callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        for target, source in files.items():
            os.dup2(source, target)
        if own_group:
            os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(command[0], command, os.environ)  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(writer, str(error.errno).encode())
    finally:
        os._exit(127)
