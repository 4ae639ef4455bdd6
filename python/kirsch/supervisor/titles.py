"""What ``ps`` and ``top`` show of a process: ``kirsch: supervisor [name]``, ``kirsch: worker 3 [module:app]``.

On Linux, ``ps`` reads the memory in which the kernel laid down the command line (proc(5), ``cmdline``). So a title is
written over it, and is at most as long; that is enough, because the line names the application too, and with
``--process-name`` the name. The environment, which lies behind it, is left alone.

Nothing is depended on for that: the library for it, setproctitle, imports logging, and with it takes longer (13 ms)
than all of Kirsch does to start. Where there is no such memory to write to, the process keeps its command line.
"""

from __future__ import annotations

# Fields 48 and 49 of stat (proc(5)), counted from the one behind the name, which is the third.
_ARG_START, _ARG_END = 48 - 3, 49 - 3

# More than Linux lets a command line have: what claims to be longer is something else.
_LONGEST = 1 << 23


def supervisor(name: str) -> None:
    """``name`` is --process-name, or else the application's."""
    _set(f"kirsch: supervisor [{name}]")
    _set_short("kirsch")


def single(name: str) -> None:
    """The only process of a server without a supervisor (``--workers 0``)."""
    _set(f"kirsch: single process [{name}]")
    _set_short("kirsch")


def worker(number: int, name: str) -> None:
    """``number`` counts from 1."""
    _set(f"kirsch: worker {number} [{name}]")


def other(role: str, name: str) -> None:
    """Any other process of ours, as in ``kirsch: zygote [module:app]``."""
    _set(f"kirsch: {role} [{name}]")


def _set(title: str) -> None:
    try:
        start, end = _command_line()
        room = end - start
        if 0 < room < _LONGEST:
            # The kernel takes a last byte other than NUL for a sign that the title goes on in the environment.
            _write(start, title.encode("utf-8", "replace")[: room - 1].ljust(room, b"\0"))
    except (OSError, ValueError, IndexError, ImportError):
        pass  # no Linux, no /proc, or one that does not tell: it is only a title


def _command_line() -> tuple[int, int]:
    """Where it lies in memory."""
    with open("/proc/self/stat", "rb", buffering=0) as file:
        stat = file.read()
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name stands in parentheses and may hold anything
    return int(fields[_ARG_START]), int(fields[_ARG_END])


def _write(address: int, data: bytes) -> None:
    try:
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(address)
            memory.write(data)
    except PermissionError:
        # A process that has given up root's rights may not open it any more (proc(5)), but the memory is still its own.
        import ctypes

        ctypes.memmove(address, data, len(data))


def _set_short(name: str) -> None:
    """What ``top``, ``pgrep`` and ``pidof`` go by; forked children have it too. The kernel keeps 15 bytes of it."""
    try:
        with open("/proc/self/comm", "wb", buffering=0) as file:
            file.write(name.encode())
    except OSError:
        pass
