"""The title of a process in ``ps`` and ``top``: ``kirsch: supervisor [name]``, ``kirsch: worker 3 [module:app]``.

On Linux, ``ps`` reads the memory in which the kernel stored the command line (proc(5), ``cmdline``). A title overwrites
it, and cannot be longer. That is enough, because the command line names the application too, and with
``--process-name`` the name. The environment, which lies behind it, is not touched.

The library for it, setproctitle, is not used: it imports logging, and takes longer to import (13 ms) than the rest of
Kirsch. Where that memory cannot be written, the process keeps its command line.
"""

from __future__ import annotations

# Fields 48 and 49 of stat (proc(5)), counted from the field behind the name, which is the third.
_ARG_START, _ARG_END = 48 - 3, 49 - 3

# Linux limits a command line to less; a longer one is something else.
_LONGEST = 1 << 23


def supervisor(name: str) -> None:
    """``name`` is --process-name, or otherwise the name of the application."""
    _set(f"kirsch: supervisor [{name}]")
    _set_short("kirsch")


def single(name: str) -> None:
    """Set the title of the only process of a server without a supervisor (``--workers 0``)."""
    _set(f"kirsch: single process [{name}]")
    _set_short("kirsch")


def worker(number: int, name: str) -> None:
    """``number`` counts from 1."""
    _set(f"kirsch: worker {number} [{name}]")


def child(number: int) -> None:
    """Set the title of a process that the application of worker ``number`` has forked."""
    _set(f"kirsch: forked by worker {number}")


def other(role: str, name: str) -> None:
    """Any other process of the server, as in ``kirsch: zygote [module:app]``."""
    _set(f"kirsch: {role} [{name}]")


def _set(title: str) -> None:
    try:
        start, end = _command_line()
        room = end - start
        if 0 < room < _LONGEST:
            # The kernel takes a last byte other than NUL as a sign that the title continues in the environment.
            _write(start, title.encode("utf-8", "replace")[: room - 1].ljust(room, b"\0"))
    except (OSError, ValueError, IndexError, ImportError):
        pass  # not Linux, no /proc, or a restricted one: the title is not essential


def _command_line() -> tuple[int, int]:
    """Return the start and the end of the command line in memory."""
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
        # A process that has given up root may not open it any more (proc(5)), but the memory is still its own.
        import ctypes

        ctypes.memmove(address, data, len(data))


def _set_short(name: str) -> None:
    """Set the name that ``top``, ``pgrep`` and ``pidof`` use; forked children inherit it. The kernel keeps 15 bytes."""
    try:
        with open("/proc/self/comm", "wb", buffering=0) as file:
            file.write(name.encode())
    except OSError:
        pass
