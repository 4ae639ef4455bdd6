"""Listening sockets: addresses as people write them, bound, listening, and tidied away afterwards.

Every failure is an ``OSError`` (or its subclass that fits ``errno``) whose ``strerror`` is one line that says what is
wrong and how to mend it; a text that is no address at all is a ``ValueError``.
"""

from __future__ import annotations

import errno
import os
import socket
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Address = tuple[str, int] | str

DEFAULT_BIND = "127.0.0.1:8000"
DEFAULT_BACKLOG = 2048

# sockaddr_un.sun_path holds 108 bytes on Linux, the closing NUL among them (unix(7)).
UNIX_PATH_MAX = 107

# A name with two addresses and port 0 asks for one free port on both; another program may hold the second.
_SAME_PORT_ATTEMPTS = 20

_FORMS = "write HOST:PORT, :PORT, [IPV6]:PORT or unix:PATH"


class Bind:
    """One parsed ``--bind``: a file system path, or a host (empty: every address of the machine) and a port."""

    __slots__ = ("host", "path", "port", "text")

    def __init__(self, text: str, *, host: str = "", port: int = 0, path: str = "") -> None:
        self.text = text
        self.host = host
        self.port = port
        self.path = path


def parse_bind(text: str) -> Bind:
    """Read ``host:port``, ``:port``, ``[ipv6]:port``, ``name:port`` or ``unix:path``.

    Raises ValueError, with a message that shows the right spelling.
    """
    if text.startswith("unix:"):
        path = text[5:]
        if not path or "\0" in path:
            raise ValueError(f"{text!r} names no path; write unix:/run/app.sock")
        return Bind(text, path=path)
    if "://" in text:
        raise ValueError(f"{text!r} is not an address to listen on; {_FORMS}")
    host, colon, port_text = text.rpartition(":")
    if not colon:
        example = f":{text} or 127.0.0.1:{text}" if text.isdigit() else f"{text or '127.0.0.1'}:8000"
        raise ValueError(f"{text!r} lacks a host or a port; did you mean {example}?")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if ":" not in host:
            raise ValueError(f"{text!r}: brackets are for IPv6 addresses; did you mean {host}:{port_text}?")
    elif ":" in host or "[" in text or "]" in text:
        raise ValueError(f"{text!r} is ambiguous; put an IPv6 address in brackets, as in [::1]:8000")
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) <= 65535):
        raise ValueError(f"{text!r}: the port is a number from 0 (any free one) to 65535")
    if any(character.isspace() or character in "/\0" for character in host):
        raise ValueError(f"{text!r} is not an address to listen on; {_FORMS}")
    return Bind(text, host=host, port=int(port_text))


class Listener:
    """One listening socket. ``address`` is ``(host, port)`` as bound, or the absolute path of a ``unix:`` socket."""

    __slots__ = ("_identity", "_owner_pid", "address", "socket", "url")

    def __init__(self, sock: socket.socket, path: str | None = None) -> None:
        self.socket = sock
        self.address: Address
        self._identity: tuple[int, int] | None = None
        self._owner_pid = os.getpid()
        if path is not None:
            status = os.stat(path)
            self._identity = (status.st_dev, status.st_ino)
            self.address = path
            self.url = f"unix:{path}"
        else:
            host, port = sock.getsockname()[:2]
            self.address = (host, port)
            self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        """Close our descriptor; the engine holds a duplicate. May be called again."""
        self.socket.close()

    def unlink(self) -> None:
        """Remove the ``unix:`` path if it is still the socket that we made, and we are the process that made it."""
        identity, self._identity = self._identity, None
        if identity is None or self._owner_pid != os.getpid():
            return
        path = str(self.address)
        try:
            status = os.lstat(path)
            if (status.st_dev, status.st_ino) == identity:
                os.unlink(path)
        except OSError:
            pass  # it is gone, or the directory is: either way nothing of ours is left there


def listen(binds: Iterable[str], backlog: int = DEFAULT_BACKLOG) -> list[Listener]:
    """Bind and listen on every address of every ``bind``; all of them, or none and an OSError or ValueError."""
    parsed = [parse_bind(text) for text in binds]
    if not parsed:
        raise ValueError(f"there is no address to listen on; {_FORMS}")
    listeners: list[Listener] = []
    try:
        for bind in parsed:
            listeners += [_listen_unix(bind, backlog)] if bind.path else _listen_tcp(bind, backlog)
    except BaseException:
        discard(listeners)
        raise
    return listeners


def discard(listeners: Iterable[Listener]) -> None:
    """Close each and remove what it left in the file system."""
    for listener in listeners:
        listener.close()
        listener.unlink()


def _listen_tcp(bind: Bind, backlog: int) -> list[Listener]:
    addresses = _resolve(bind)
    for attempt in range(1, _SAME_PORT_ATTEMPTS + 1):
        try:
            return _listen_addresses(bind, addresses, backlog)
        except OSError as error:
            retry = error.errno == errno.EADDRINUSE and bind.port == 0 and len(addresses) > 1
            if not retry or attempt == _SAME_PORT_ATTEMPTS:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _resolve(bind: Bind) -> list[tuple[int, Any]]:
    """The distinct (family, socket address) pairs of a host, as getaddrinfo(3) orders them."""
    # Bytes, where they do, keep getaddrinfo from loading the IDNA codec: a fifth of our start-up.
    host: str | bytes | None = (bind.host.encode("ascii") if bind.host.isascii() else bind.host) or None
    try:
        found = socket.getaddrinfo(host, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        code = error.errno if isinstance(error, socket.gaierror) else socket.EAI_NONAME
        raise socket.gaierror(
            code,
            f"cannot listen on {bind.text}: no address is known for {bind.host!r}; check the spelling, or bind 0.0.0.0",
        ) from error
    return list(dict.fromkeys((int(family), address) for family, _type, _protocol, _name, address in found))


def _listen_addresses(bind: Bind, addresses: list[tuple[int, Any]], backlog: int) -> list[Listener]:
    listeners: list[Listener] = []
    missing: OSError | None = None
    port = bind.port
    try:
        for family, address in addresses:
            try:
                sock = _listen_address(family, (address[0], port, *address[2:]), backlog)
            except OSError as error:
                # `localhost` often has an IPv6 address on machines that have no IPv6; the other one will do.
                if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    missing = error
                    continue
                raise OSError(error.errno, _tcp_trouble(bind, address[0], port, error)) from error
            listeners.append(Listener(sock))
            port = sock.getsockname()[1]
    except BaseException:
        discard(listeners)
        raise
    if not listeners:
        assert missing is not None  # getaddrinfo never answers with an empty list
        raise OSError(missing.errno, _tcp_trouble(bind, addresses[-1][1][0], port, missing)) from missing
    return listeners


def _listen_address(family: int, address: Any, backlog: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Linux hands this on to every accepted socket, which saves a system call on each.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            # So that [::]:80 and 0.0.0.0:80 can be bound side by side, and no peer shows up as ::ffff:1.2.3.4.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _tcp_trouble(bind: Bind, host: str, port: int, error: OSError) -> str:
    where = f"cannot listen on {bind.text}"
    if error.errno == errno.EADDRINUSE:
        return f"{where}: port {port} is taken; `ss -ltnp 'sport = :{port}'` shows by whom; or choose another"
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"{where}: this user may not bind port {port}; take one from 1024 up, "
            "or lower net.ipv4.ip_unprivileged_port_start"
        )
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return f"{where}: this machine has no address {host}; `ip address` lists those it has"
    return f"{where}: {error.strerror}"


def _listen_unix(bind: Bind, backlog: int) -> Listener:
    # Absolute, so that it is found again at the end even if the application has changed the directory.
    path = os.path.abspath(bind.path)
    where = f"cannot listen on {bind.text}"
    length = len(os.fsencode(path))
    if length > UNIX_PATH_MAX:
        raise OSError(
            errno.ENAMETOOLONG,
            f"{where}: {path} has {length} bytes, and a socket's path at most {UNIX_PATH_MAX}; choose a shorter one",
        )
    _remove_stale(path, where)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        listener = Listener(sock, path)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"{where}: {_unix_trouble(path, error)}") from error
    try:
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        discard([listener])
        raise
    return listener


def _unix_trouble(path: str, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"there is no directory {os.path.dirname(path)}; create it first"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"this user may not write in {os.path.dirname(path)}"
    if error.errno == errno.EADDRINUSE:
        return f"{path} is a link that leads nowhere, or was made just now; remove it or choose another path"
    return error.strerror or str(error)


def _remove_stale(path: str, where: str) -> None:
    """Remove a socket that a dead server left at ``path``; refuse to touch anything else that is there."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise OSError(error.errno, f"{where}: {_unix_trouble(path, error)}") from error
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, f"{where}: {path} exists and is not a socket; move it away or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            pass  # nobody holds the other end: it is a leftover
        except FileNotFoundError:
            return
        except BlockingIOError:
            _refuse_live(path, where)  # somebody listens, with a full backlog
        except OSError as error:
            raise OSError(error.errno, f"{where}: {path} is a socket of another program: {error.strerror}") from error
        else:
            _refuse_live(path, where)
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise OSError(error.errno, f"{where}: {_unix_trouble(path, error)}") from error


def _refuse_live(path: str, where: str) -> None:
    raise OSError(
        errno.EADDRINUSE, f"{where}: a live server answers there; stop it (`ss -lxp src {path}` shows who it is) first"
    )
