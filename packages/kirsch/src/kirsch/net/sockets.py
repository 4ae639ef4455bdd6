"""Listening sockets: opening, rebinding and closing. A listener belongs to the process that created it. It survives a
fork, a reload (:func:`rebind`) and, with :func:`export` and :func:`inherit`, an exec of the same process. The path of a
``unix:`` socket is removed once, by the process that bound it.

Every failure is an ``OSError`` (or its subclass for the ``errno``) whose ``strerror`` is one line that says what is
wrong and how to fix it. A text that is not an address raises ``ValueError``.
"""

from __future__ import annotations

import errno
import os
import socket
import stat

from kirsch.net.addresses import FORMS, HTTP, Bind, is_loopback, parse_bind, refuse_repeated, url

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kirsch.net.addresses import Address

# sockaddr_un.sun_path has 108 bytes on Linux, including the final NUL (unix(7)).
UNIX_PATH_MAX = 107

# The number of tries for a common port: with port 0, a name with two addresses needs a port that is free on both.
_SAME_PORT_ATTEMPTS = 20
# PyPy 3.11 does not define O_PATH.
_O_PATH: int = getattr(os, "O_PATH", 0o10000000)


def exposure(listener: Bind | Listener, trusted_proxies: str, proxy_from: str) -> str:
    """Return a warning for a listener for web servers if it trusts the addresses that any peer reports, and other
    machines can connect; empty otherwise."""
    if isinstance(listener, Listener):
        text, host = listener.url, "" if isinstance(listener.address, str) else listener.address[0]
        is_known = not isinstance(listener.address, str)
    else:
        text, host = listener.text, listener.host
        is_known = not listener.path and listener.fd is None and not listener.name
    names_peers = trusted_proxies not in ("", "all") or (listener.proxy and proxy_from not in ("", "all"))
    if listener.protocol == HTTP or not is_known or is_loopback(host) or names_peers:
        return ""
    return (
        f"{text} believes everybody who can connect: REMOTE_ADDR, HTTPS and REMOTE_USER are what they say; name the "
        "web servers in --trusted-proxies, or bind 127.0.0.1 or a unix socket"
    )


class Listener:
    """One listening socket. ``address`` is ``(host, port)`` as bound, or the path of a unix socket.

    ``bind`` is the configured text, from which ``protocol`` follows. ``set`` is the number of its set if each worker
    has its own sockets (``--reuse-port``), and None if all workers share it. ``is_encrypted``: its connections use TLS,
    as :func:`encrypt` has decided.
    """

    __slots__ = ("_identity", "_owner_pid", "address", "bind", "is_encrypted", "set", "socket")

    def __init__(self, sock: socket.socket, bind: str, *, path: str | None = None, set: int | None = None) -> None:  # noqa: A002 - as the attribute
        self.socket = sock
        self.bind = bind
        self.set = set
        self.is_encrypted = False
        self.address: Address
        self._identity: tuple[int, int] | None = None
        self._owner_pid = os.getpid()
        if path is not None:
            status = os.stat(path)
            self._identity = (status.st_dev, status.st_ino)
            self.address = path
        elif sock.family == socket.AF_UNIX:
            name = sock.getsockname()
            # The name of an abstract socket (unix(7)) is bytes that begin with a NUL; show @ instead.
            self.address = name if isinstance(name, str) else f"@{os.fsdecode(name[1:])}"
        else:
            host, port = sock.getsockname()[:2]
            self.address = (host, port)

    @property
    def protocol(self) -> str:
        """The protocol of this socket: ``http``, ``fastcgi``, ``uwsgi`` or ``scgi``."""
        return parse_bind(self.bind).protocol

    @property
    def url(self) -> str:
        """The URL: ``http://host:port``, ``https://host:port`` or ``unix:path``; with another protocol
        ``fastcgi:host:port`` or ``fastcgi:unix:path``."""
        return url(self.protocol, self.address, is_encrypted=self.is_encrypted)

    @property
    def proxy(self) -> bool:
        """True if each connection must begin with a PROXY protocol header."""
        return parse_bind(self.bind).proxy

    def close(self) -> None:
        """Close this descriptor; the engine has a duplicate. May be called again."""
        self.socket.close()

    def unlink(self) -> None:
        """Remove the path of a ``unix:`` socket, if it is still this socket and this process has created it."""
        identity, self._identity = self._identity, None
        if identity is None or self._owner_pid != os.getpid():
            return
        path = str(self.address)
        try:
            status = os.lstat(path)
            if (status.st_dev, status.st_ino) == identity:
                os.unlink(path)
        except OSError:
            pass  # the path or its directory has been removed already

    def export(self) -> dict[str, Any]:
        return {
            "fd": self.socket.fileno(),
            "bind": self.bind,
            "set": self.set,
            "path": self.address if self._identity else None,
            "identity": self._identity,
            "owner": self._owner_pid,
        }

    @classmethod
    def inherit(cls, state: dict[str, Any]) -> Listener:
        listener = cls(_non_blocking_socket(state["fd"]), state["bind"], set=state["set"])
        if state["path"] is not None:
            listener.address = state["path"]
            listener._identity = tuple(state["identity"])
            listener._owner_pid = state["owner"]
        return listener


def _non_blocking_socket(fd: int) -> socket.socket:
    """Return the socket of the non-blocking descriptor ``fd``.

    By default PyPy would make it blocking. Workers share the file description: one that calls accept while it is
    blocking waits for the next connection, and does nothing else.
    """
    previous = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0)
    try:
        return socket.socket(fileno=fd)
    finally:
        socket.setdefaulttimeout(previous)


def listen(
    binds: Iterable[str], backlog: int = socket.SOMAXCONN, *, owner: tuple[int, int] | None = None, sets: int = 0
) -> list[Listener]:
    """Bind and listen on all addresses of ``binds``. If one fails, close all, and raise OSError or ValueError.

    ``owner`` (user, group) becomes the owner of the paths of ``unix:`` sockets. Their mode comes from the umask, unless
    the bind sets it. With ``sets`` each TCP address is bound that many times (SO_REUSEPORT), and the kernel distributes
    connections among the sets.
    """
    parsed = [parse_bind(text) for text in binds]
    if not parsed:
        raise ValueError(f"there is no address to listen on; {FORMS}")
    refuse_repeated(parsed)
    listeners: list[Listener] = []
    try:
        for bind in parsed:
            listeners += _listen(bind, backlog, owner, sets)
    except BaseException:
        discard(listeners)
        raise
    return listeners


def encrypt(listeners: Iterable[Listener], *, with_certificates: bool) -> None:
    """Set ``is_encrypted`` of each listener: true for https and, if there are certificates, for TCP without a scheme.

    Raises ValueError for https without certificates.
    """
    for listener in listeners:
        bind = parse_bind(listener.bind)
        if bind.encrypts and not with_certificates:
            raise ValueError(
                f"{bind.text}: https needs a certificate; give --certfile and --keyfile, or write http instead"
            )
        listener.is_encrypted = _encrypts(bind, listener.socket.family, with_certificates)


def _encrypts(bind: Bind, family: int, with_certificates: bool) -> bool:
    is_meant = with_certificates and bind.protocol == HTTP and family != socket.AF_UNIX
    return is_meant if bind.encrypts is None else bind.encrypts


def https_port(listeners: Iterable[Listener]) -> int:
    """Return the port of the first encrypted listener; 443 if none has a port."""
    ports = (each.address[1] for each in listeners if each.is_encrypted and not isinstance(each.address, str))
    return next(ports, 443)


def _listen(bind: Bind, backlog: int, owner: tuple[int, int] | None, sets: int) -> list[Listener]:
    if bind.path:
        return [_listen_unix(bind, backlog, owner)]
    if bind.fd is None and not bind.name:
        return _listen_tcp(bind, backlog, sets)
    from kirsch.net import inherited

    where = f"cannot listen on {bind.text}"
    descriptors = inherited.named(bind.name, where) if bind.fd is None else [bind.fd]
    return [Listener(inherited.adopt(fd, where), bind.text) for fd in descriptors]


def probe(text: str, with_certificates: bool = False) -> list[tuple[str, int, Any]]:
    """Return (URL, family, socket address) of each address on which :func:`listen` would listen for ``text``. It does
    not listen: a TCP address is only bound for a moment. An address in use is accepted, because the server to be
    replaced may use it. Raises OSError like :func:`listen`. Inherited sockets are omitted.
    """
    bind = parse_bind(text)
    if bind.path:
        path, where = _unix_path(bind)
        _is_socket(path, where)
        folder = os.path.dirname(path)
        if not os.access(folder, os.W_OK | os.X_OK):
            error = OSError(errno.EACCES if os.path.isdir(folder) else errno.ENOENT, "")
            raise OSError(error.errno, f"{where}: {_unix_trouble(path, error)}")
        is_encrypted = _encrypts(bind, socket.AF_UNIX, with_certificates)
        return [(url(bind.protocol, path, is_encrypted=is_encrypted), socket.AF_UNIX, path)]
    if bind.fd is not None or bind.name:
        return []
    found = []
    missing: OSError | None = None
    for family, address in _resolve(bind):
        host = address[0]
        try:
            _bind_address(family, (host, bind.port, *address[2:]), reuse_port=False).close()
        except OSError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                missing = OSError(error.errno, _tcp_trouble(bind, host, bind.port, error))
                continue
            if error.errno != errno.EADDRINUSE:
                raise OSError(error.errno, _tcp_trouble(bind, host, bind.port, error)) from error
        is_encrypted = _encrypts(bind, family, with_certificates)
        found.append((url(bind.protocol, (host, bind.port), is_encrypted=is_encrypted), family, address))
    if missing is not None and not found:
        raise missing
    return found


def discard(listeners: Iterable[Listener]) -> None:
    """Close the listeners and remove their paths from the file system."""
    for listener in listeners:
        listener.close()
        listener.unlink()


class Rebound:
    """The result of :func:`rebind`. ``listeners`` are the sockets to serve on; those in ``opened`` are new: discard
    them if the reload fails. ``gone`` are no longer configured: discard them after the reload has succeeded."""

    __slots__ = ("gone", "listeners", "opened")

    def __init__(self, listeners: list[Listener], opened: list[Listener], gone: list[Listener]) -> None:
        self.listeners = listeners
        self.opened = opened
        self.gone = gone


def rebind(
    old: Iterable[Listener],
    binds: Iterable[str],
    backlog: int = socket.SOMAXCONN,
    *,
    owner: tuple[int, int] | None = None,
    sets: int = 0,
) -> Rebound:
    """Listen on ``binds``, and reuse the sockets of ``old`` for unchanged addresses, so that no connection is lost. The
    other arguments are those of :func:`listen`; a changed backlog, mode or number of sets is applied. No socket of
    ``old`` is closed. Raises OSError or ValueError like :func:`listen`; then nothing has changed.
    """
    parsed = [parse_bind(text) for text in binds]
    if not parsed:
        raise ValueError(f"there is no address to listen on; {FORMS}")
    remaining: dict[object, list[Listener]] = {}
    for listener in old:
        remaining.setdefault(parse_bind(listener.bind).place, []).append(listener)
    result = Rebound([], [], [])
    try:
        for bind in parsed:
            kept = remaining.pop(bind.place, [])
            try:
                fresh = _refresh(kept, bind, backlog, owner, sets) if kept else _listen(bind, backlog, owner, sets)
            except OSError as error:
                raise _explained(error, bind, remaining.values()) from error
            result.opened += fresh
            result.listeners += kept + fresh
    except BaseException:
        discard(result.opened)
        raise
    result.gone = [listener for group in remaining.values() for listener in group]
    return result


def _refresh(
    kept: list[Listener], bind: Bind, backlog: int, owner: tuple[int, int] | None, sets: int
) -> list[Listener]:
    """Apply changed settings to open sockets; return the sockets that were opened for them."""
    for listener in kept:
        listener.bind = bind.text
        if bind.fd is None and not bind.name:
            listener.socket.listen(backlog)  # changes the backlog of a socket that is already listening
        if bind.path:
            _give_path(bind.path, bind.mode, owner)
    first = [listener for listener in kept if listener.set == 0]
    return _more_sets(bind, first, backlog, range(1 + max((listener.set or 0) for listener in kept), sets))


def _explained(error: OSError, bind: Bind, others: Iterable[list[Listener]]) -> OSError:
    """Return ``error``, or a better message if another socket of this server holds the port of a changed bind."""
    if error.errno == errno.EADDRINUSE and bind.port:
        for listener in (listener for group in others for listener in group):
            if not isinstance(listener.address, str) and listener.address[1] == bind.port:
                return OSError(
                    error.errno,
                    f"cannot listen on {bind.text}: {listener.url} of this server holds the port; that needs a restart",
                )
    return error


def share(listeners: Iterable[Listener], index: int, count: int) -> list[Listener]:
    """Return the listeners of worker ``index`` (from 0) of ``count``: all shared ones, and those of its sets.

    If there are fewer workers than sets, every set still has a worker, because the kernel sends connections to every
    set. If there are more workers, several serve one set.
    """
    listeners = list(listeners)
    sets = 1 + max((listener.set or 0 for listener in listeners), default=0)
    turns = min(count, sets)
    return [each for each in listeners if each.set is None or each.set % turns == index % turns]


def export(listeners: Iterable[Listener]) -> dict[str, Any]:
    """Return JSON data for :func:`inherit` in the next image of this process. From now on the descriptors survive an
    exec; :func:`stay` undoes that."""
    from kirsch.net import inherited

    listeners = list(listeners)
    _set_inheritable(listeners, True)
    return {"listeners": [listener.export() for listener in listeners], "systemd": inherited.passed()}


def stay(listeners: Iterable[Listener]) -> None:
    """Make the descriptors close-on-exec again, after a failed exec."""
    _set_inheritable(listeners, False)


def inherit(state: dict[str, Any]) -> list[Listener]:
    """Return the listeners that the previous image of this process has exported."""
    from kirsch.net import inherited

    inherited.restore((name, fd) for name, fd in state["systemd"])
    listeners = [Listener.inherit(each) for each in state["listeners"]]
    _set_inheritable(listeners, False)
    return listeners


def _set_inheritable(listeners: Iterable[Listener], inheritable: bool) -> None:
    for listener in listeners:
        listener.socket.set_inheritable(inheritable)


def _listen_tcp(bind: Bind, backlog: int, sets: int) -> list[Listener]:
    addresses = _resolve(bind)
    for attempt in range(1, _SAME_PORT_ATTEMPTS + 1):
        try:
            return _listen_addresses(bind, addresses, backlog, sets)
        except OSError as error:
            retry = error.errno == errno.EADDRINUSE and bind.port == 0 and len(addresses) > 1
            if not retry or attempt == _SAME_PORT_ATTEMPTS:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _resolve(bind: Bind) -> list[tuple[int, Any]]:
    """Return the distinct (family, socket address) pairs of a host, in the order of getaddrinfo(3)."""
    # If possible, use bytes, so that getaddrinfo does not import the IDNA codec, which takes a fifth of the startup
    # time.
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


def _listen_addresses(bind: Bind, addresses: list[tuple[int, Any]], backlog: int, sets: int) -> list[Listener]:
    listeners: list[Listener] = []
    missing: OSError | None = None
    port = bind.port
    try:
        for family, address in addresses:
            try:
                sock = _listen_address(family, (address[0], port, *address[2:]), backlog, reuse_port=sets > 0)
            except OSError as error:
                # `localhost` often has an IPv6 address on machines without IPv6; the other address suffices.
                if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    missing = error
                    continue
                raise OSError(error.errno, _tcp_trouble(bind, address[0], port, error)) from error
            listeners.append(Listener(sock, bind.text, set=0 if sets else None))
            port = sock.getsockname()[1]
        listeners += _more_sets(bind, listeners, backlog, range(1, sets))
    except BaseException:
        discard(listeners)
        raise
    if not listeners:
        assert missing is not None  # getaddrinfo never returns an empty list
        raise OSError(missing.errno, _tcp_trouble(bind, addresses[-1][1][0], port, missing)) from missing
    return listeners


def _more_sets(bind: Bind, first: list[Listener], backlog: int, numbers: range) -> list[Listener]:
    """Bind the addresses of ``first`` again, once for each set in ``numbers``."""
    listeners: list[Listener] = []
    try:
        for number in numbers:
            for listener in first:
                address = listener.socket.getsockname()
                try:
                    sock = _listen_address(listener.socket.family, address, backlog, reuse_port=True)
                except OSError as error:
                    raise OSError(error.errno, _tcp_trouble(bind, address[0], address[1], error)) from error
                listeners.append(Listener(sock, bind.text, set=number))
    except BaseException:
        discard(listeners)
        raise
    return listeners


def _listen_address(family: int, address: Any, backlog: int, *, reuse_port: bool) -> socket.socket:
    sock = _bind_address(family, address, reuse_port=reuse_port)
    try:
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_address(family: int, address: Any, *, reuse_port: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # On Linux, accepted sockets inherit this option, which saves a system call for each.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            # Allows [::]:80 and 0.0.0.0:80 together, and IPv4 clients do not appear as ::ffff:1.2.3.4.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
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


def _unix_path(bind: Bind) -> tuple[str, str]:
    """Return the absolute path of a Unix socket, and the prefix for error messages. Raises OSError if the path is
    too long."""
    path = os.path.abspath(bind.path)
    where = f"cannot listen on {bind.text}"
    length = len(os.fsencode(path))
    if length > UNIX_PATH_MAX:
        raise OSError(
            errno.ENAMETOOLONG,
            f"{where}: {path} has {length} bytes, and a socket's path at most {UNIX_PATH_MAX}; choose a shorter one",
        )
    return path, where


def _listen_unix(bind: Bind, backlog: int, owner: tuple[int, int] | None) -> Listener:
    path, where = _unix_path(bind)
    _remove_stale(path, where)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if bind.mode is not None:
            os.fchmod(sock.fileno(), bind.mode)  # before the bind, so that the path never has a wider mode
        sock.bind(path)
        listener = Listener(sock, bind.text, path=path)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"{where}: {_unix_trouble(path, error)}") from error
    try:
        _give_path(path, bind.mode, owner)
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        discard([listener])
        raise
    return listener


def _give_path(path: str, mode: int | None, owner: tuple[int, int] | None) -> None:
    """Set mode and owner of the socket at ``path``, unless another file is at the path by now."""
    if mode is None and owner is None:
        return
    fd = os.open(path, _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            itself = f"/proc/self/fd/{fd}"
            if owner is not None:
                os.chown(itself, *owner)
            if mode is not None:
                os.chmod(itself, mode)
    finally:
        os.close(fd)


def _unix_trouble(path: str, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"there is no directory {os.path.dirname(path)}; create it first"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"this user may not write in {os.path.dirname(path)}"
    if error.errno == errno.EADDRINUSE:
        return f"{path} is a dangling link, or was created just now; remove it or choose another path"
    return error.strerror or str(error)


def _is_socket(path: str, where: str) -> bool:
    """Return whether there is a socket at ``path``. Raises OSError if there is another file."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise OSError(error.errno, f"{where}: {_unix_trouble(path, error)}") from error
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, f"{where}: {path} exists and is not a socket; move it away or choose another path")
    return True


def _remove_stale(path: str, where: str) -> None:
    """Remove the socket that a dead server has left at ``path``. Raises OSError if it is in use or another file."""
    if not _is_socket(path, where):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            pass  # no process listens, so the path is stale
        except FileNotFoundError:
            return
        except BlockingIOError:
            _refuse_live(path, where)  # a process listens, and its backlog is full
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
        errno.EADDRINUSE, f"{where}: a live server listens there; stop it (`ss -lxp src {path}` shows who it is) first"
    )
