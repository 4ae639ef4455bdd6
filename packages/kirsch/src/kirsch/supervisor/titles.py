"""The title of a process in ``ps`` and ``top``: ``kirsch: supervisor [name]``, ``kirsch: worker 3 [module:app]``.

On Linux, ``ps`` reads the memory in which the kernel stored the command line (proc(5), ``cmdline``). A title overwrites
this memory, and cannot be longer. That suffices, because the command line contains the application's name, or the name
in ``--process-name``, too. The environment, which follows in memory, is not changed. The library setproctitle is not
used: it imports logging, and takes longer to import (13 ms) than the rest of Kirsch. If the memory cannot be written,
the process keeps its command line.
"""

from __future__ import annotations

# Fields 48 and 49 of stat (proc(5)), relative to the third field, the first one after the name.
_ARG_START, _ARG_END = 48 - 3, 49 - 3

# Linux limits a command line to less than this; a larger value is an error.
_LONGEST = 1 << 23


def supervisor(name: str) -> None:
    """Set the title of the supervisor. ``name`` is --process-name, or the name of the application."""
    _set(f"kirsch: supervisor [{name}]")
    _set_short("kirsch")


def single(name: str) -> None:
    """Set the title of the only process of a server without a supervisor (``--workers 0``)."""
    _set(f"kirsch: single process [{name}]")
    _set_short("kirsch")


def worker(number: int, name: str) -> None:
    """Set the title of a worker. ``number`` counts from 1."""
    _set(f"kirsch: worker {number} [{name}]")


def child(number: int) -> None:
    """Set the title of a process that the application of worker ``number`` has forked."""
    _set(f"kirsch: forked by worker {number}")


def other(role: str, name: str) -> None:
    """Set the title of another process of the server, as in ``kirsch: zygote [module:app]``."""
    _set(f"kirsch: {role} [{name}]")


def _set(title: str) -> None:
    try:
        start, end = _command_line()
        room = end - start
        if 0 < room < _LONGEST:
            # The last byte must be NUL: otherwise the kernel assumes that the title continues in the environment.
            _write(start, title.encode("utf-8", "replace")[: room - 1].ljust(room, b"\0"))
    except (OSError, ValueError, IndexError, ImportError):
        pass  # not Linux, or no access to /proc; the title is not essential


def _command_line() -> tuple[int, int]:
    """Return the start and end address of the command line in memory."""
    with open("/proc/self/stat", "rb", buffering=0) as file:
        stat = file.read()
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name is in parentheses and may contain any character
    return int(fields[_ARG_START]), int(fields[_ARG_END])


def _write(address: int, data: bytes) -> None:
    try:
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(address)
            memory.write(data)
    except PermissionError:
        # After giving up root, the process may not open this file any more (proc(5)), but the memory is its own.
        import ctypes

        ctypes.memmove(address, data, len(data))


def _set_short(name: str) -> None:
    """Set the name for ``top``, ``pgrep`` and ``pidof``; forked children inherit it. The kernel keeps 15 bytes."""
    try:
        with open("/proc/self/comm", "wb", buffering=0) as file:
            file.write(name.encode())
    except OSError:
        pass
