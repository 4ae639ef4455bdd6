"""Listening sockets that another process has opened for this one: ``fd://N``, and systemd socket activation. Each
descriptor is checked: if it is no listening stream socket, it is refused with a message that says what it is. Nothing
is bound here, so no path is created or removed in the file system.
"""

from __future__ import annotations

import errno
import os
import socket
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

# The first passed descriptor: SD_LISTEN_FDS_START of sd_listen_fds(3).
_FIRST = 3

_VARIABLES = ("LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES")

_FAMILIES = frozenset({socket.AF_INET, socket.AF_INET6, socket.AF_UNIX})

_KINDS = ((stat.S_ISREG, "a file"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISCHR, "a device"), (stat.S_ISDIR, "a folder"))

# The (name, descriptor) of each socket that systemd passed; None until the variables have been read.
_passed: list[tuple[str, int]] | None = None


def adopt(fd: int, where: str) -> socket.socket:
    """Return descriptor ``fd`` as a non-blocking socket that programs of the application do not inherit. Raises
    OSError, with a message in one line that begins with ``where``, if it is no listening stream socket.
    """
    try:
        mode = os.fstat(fd).st_mode
    except OSError as error:
        raise OSError(
            error.errno, f"{where}: descriptor {fd} is not open; the program that starts kirsch has to pass it on"
        ) from None
    if not stat.S_ISSOCK(mode):
        kind = next((name for test, name in _KINDS if test(mode)), "something else")
        raise OSError(errno.ENOTSOCK, f"{where}: descriptor {fd} is {kind} and not a socket; check the number")
    sock = socket.socket(fileno=fd)
    trouble = _trouble(sock)
    if trouble:
        sock.detach()  # keep it open: the descriptor belongs to another part of the process
        raise OSError(errno.EINVAL, f"{where}: descriptor {fd} {trouble}")
    sock.set_inheritable(False)
    sock.setblocking(False)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _trouble(sock: socket.socket) -> str:
    """Return why ``sock`` cannot be used to serve, as the end of a sentence; empty if it can."""
    if sock.family not in _FAMILIES:
        return "is a socket of another kind than TCP or unix"
    if sock.type != socket.SOCK_STREAM:
        return "is a datagram socket; HTTP needs a stream, which is ListenStream= in a socket unit"
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        try:
            sock.getpeername()
        except OSError:
            return "is a socket that does not listen; the program that opens it has to call listen() first"
        return "is a connection; pass the socket that listens, which is Accept=no in a socket unit"
    return ""


def passed(environ: MutableMapping[str, str] = os.environ) -> list[tuple[str, int]]:
    """Return the (name, descriptor) of each socket that systemd passed to this process (sd_listen_fds_with_names(3)).

    The environment variables are read once and removed from ``environ``, so that no child uses them.
    """
    global _passed
    if _passed is None:
        _passed = _read(environ)
        for name in _VARIABLES:
            environ.pop(name, None)
        for _, fd in _passed:
            try:
                os.set_inheritable(fd, False)
            except OSError:
                pass  # the descriptor is not open; adopt() reports that if it is used
    return _passed


def restore(sockets: Iterable[tuple[str, int]]) -> None:
    """Restore the result of :func:`passed` from the previous image of this process (USR2)."""
    global _passed
    _passed = [(name, fd) for name, fd in sockets]


def _read(environ: MutableMapping[str, str]) -> list[tuple[str, int]]:
    count = environ.get("LISTEN_FDS", "")
    if environ.get("LISTEN_PID") != str(os.getpid()) or not (count.isascii() and count.isdigit()):
        return []
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    return [(names[i] if i < len(names) and names[i] else "unknown", _FIRST + i) for i in range(min(int(count), 1024))]


def named(name: str, where: str) -> list[int]:
    """Return the descriptors that systemd passed as ``name`` (``FileDescriptorName=``, by default the unit's name).

    Raises OSError, with a message in one line that begins with ``where``, if there is none.
    """
    found = [fd for known, fd in passed() if known == name]
    if not found:
        names = ", ".join(dict.fromkeys(known for known, _ in passed()))
        there_are = f"those that it passed are called {names}" if names else "it passed none to this process"
        raise OSError(errno.ENOENT, f"{where}: systemd passed no socket of this name; {there_are}")
    return found


def is_listening(fd: int) -> bool:
    """Return whether descriptor ``fd`` is a listening stream socket, such as a web server passes to a FastCGI
    application that it starts (FastCGI specification, section 2.2)."""
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        sock = socket.socket(fileno=fd)
    except OSError:
        return False
    try:
        return not _trouble(sock)
    except OSError:
        return False
    finally:
        sock.detach()


def choose_binds(binds: Iterable[str], *, explicit: bool) -> tuple[tuple[str, ...], str]:
    """Return the addresses to listen on, and a warning (empty if there is none). ``explicit``: the addresses were
    configured. Then they are used, and the warning names unused sockets of systemd; otherwise sockets of systemd are
    used. If there are neither, descriptor 0 is used if it listens: then a web server has started this process for
    FastCGI.
    """
    binds = tuple(binds)
    sockets = passed()
    if not sockets and not explicit and is_listening(0):
        return ("fastcgi:fd://0",), ""
    if not sockets:
        return binds, ""
    if not explicit:
        return tuple(f"fd://{fd}" for _, fd in sockets), ""
    left = [name for name, fd in sockets if not {f"fd://{fd}", f"systemd:{name}"}.intersection(binds)]
    if not left:
        return binds, ""
    names = " ".join(f"--bind systemd:{name}" for name in dict.fromkeys(left))
    what = "a socket" if len(left) == 1 else f"{len(left)} sockets"
    return binds, f"systemd passed {what} that --bind leaves out, unserved: remove --bind, or add {names}"
