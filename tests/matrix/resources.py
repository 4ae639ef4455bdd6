"""Deeds that change what the process may use: descriptors, directory, limits, environment."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import shutil
import socket
import stat
import tempfile
import time
from typing import TYPE_CHECKING

from matrix.process import KEPT
from matrix.table import DEEDS

if TYPE_CHECKING:
    from collections.abc import Iterator

# Descriptors

descriptors = DEEDS.group("descriptors", alone=True)


def _descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def _kind(fd: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/fd/{fd}")
    return ""


def _sockets(listening: bool) -> Iterator[int]:
    """Listening sockets over TCP, or those that are connected."""
    for fd in _descriptors():
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                with socket.socket(fileno=os.dup(fd)) as sock:
                    is_tcp = sock.family in (socket.AF_INET, socket.AF_INET6)
                    if is_tcp and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)) == listening:
                        yield fd


def _close_all(found: Iterator[int] | list[int]) -> None:
    for fd in list(found):
        with contextlib.suppress(OSError):
            os.close(fd)


@descriptors
def close_stdin() -> None:
    os.close(0)


@descriptors
def close_stdout() -> None:
    os.close(1)


@descriptors
def close_stderr() -> None:
    os.close(2)


@descriptors
def close_connections() -> None:
    _close_all(_sockets(listening=False))


@descriptors
def close_listeners() -> None:
    _close_all(_sockets(listening=True))


@descriptors
def close_pollers() -> None:
    _close_all([fd for fd in _descriptors() if "eventpoll" in _kind(fd)])


@descriptors
def close_pipes() -> None:
    _close_all([fd for fd in _descriptors() if fd > 2 and _kind(fd).startswith("pipe:")])


@descriptors
def close_event_counters() -> None:
    _close_all([fd for fd in _descriptors() if "eventfd" in _kind(fd)])


@descriptors
def close_unix_sockets() -> None:
    for fd in _descriptors():
        with contextlib.suppress(OSError):
            if _kind(fd).startswith("socket:"):
                with socket.socket(fileno=os.dup(fd)) as sock:
                    is_unix = sock.family == socket.AF_UNIX
                if is_unix:
                    os.close(fd)


@descriptors
def closerange() -> None:
    os.closerange(3, 256)


@descriptors
def closerange_and_open() -> None:
    os.closerange(3, 256)
    KEPT.extend(open(os.devnull) for _ in range(40))  # noqa: SIM115


@descriptors
def dup2_over_all() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in _descriptors():
        if fd not in (0, 1, 2, null):
            with contextlib.suppress(OSError):
                os.dup2(null, fd)


@descriptors
def dup2_over_stderr() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)


@descriptors
def shut_down_connections() -> None:
    for fd in list(_sockets(listening=False)):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as sock:
            sock.shutdown(socket.SHUT_RDWR)


@descriptors
def listener_blocking() -> None:
    for fd in list(_sockets(listening=True)):
        os.set_blocking(fd, True)


@descriptors
def connections_blocking() -> None:
    for fd in list(_sockets(listening=False)):
        os.set_blocking(fd, True)


@descriptors
def leaks_all() -> None:
    with contextlib.suppress(OSError):
        while True:
            KEPT.append(os.open(os.devnull, os.O_RDONLY))
            if len(KEPT) > 20_000:
                break


@descriptors
def empty_pollers() -> None:
    for fd in _descriptors():
        if "eventpoll" in _kind(fd):
            with contextlib.suppress(OSError, ValueError):
                poller = select.epoll.fromfd(os.dup(fd))
                for each in _descriptors():
                    with contextlib.suppress(OSError):
                        poller.unregister(each)


@descriptors
def writes_to_connection() -> None:
    for fd in list(_sockets(listening=False)):
        with contextlib.suppress(OSError):
            os.write(fd, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


# Directory, limits, environment

limits = DEEDS.group("limits", alone=True)


def _limit(number: int, soft: int) -> None:
    _, hard = resource.getrlimit(number)
    resource.setrlimit(number, (soft if hard < 0 else min(soft, hard), hard))


@limits
def directory_removed() -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    shutil.rmtree(folder)


@limits
def directory_root() -> None:
    os.chdir("/")


@limits
def umask_777() -> None:
    os.umask(0o777)


@limits
def nofile_low() -> None:
    _limit(resource.RLIMIT_NOFILE, 4)


@limits
def nofile_at_its_end() -> None:
    _limit(resource.RLIMIT_NOFILE, max(_descriptors()) + 1)


@limits
def fsize_zero() -> None:
    _limit(resource.RLIMIT_FSIZE, 0)


@limits
def nproc_zero() -> None:
    _limit(resource.RLIMIT_NPROC, 0)


@limits(cause="MemoryError|SIGABRT|memory|SIGSEGV|Aborted|-6|-11")
def address_space() -> None:
    with open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[0])
    _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + (40 << 20))
    KEPT.append(bytearray(200 << 20))


@limits(lasts=True, cause=r"SIGXCPU|signal 24|-24")
def processor_time() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        pass


@limits
def lowest_priority() -> None:
    os.nice(19)


@limits
def session_of_its_own() -> None:
    with contextlib.suppress(OSError):
        os.setsid()
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)


@limits
def environment_cleared() -> None:
    os.environ.clear()
    ctypes.CDLL(None).clearenv()


@limits
def temporary_directory_missing() -> None:
    os.environ["TMPDIR"] = "/nowhere"
    tempfile.tempdir = "/nowhere"


@limits
def process_title() -> None:
    ctypes.CDLL(None).prctl(15, b"\xff\n) R 1 (", 0, 0, 0)


@limits
def dies_with_its_thread() -> None:
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG: no signal


@limits
def one_processor() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
