"""The target of the load: a URL or a Unix socket, resolved once, and only allowed on the caller's own machines. A name
is resolved here, and the plan contains its addresses: the generator connects to the checked addresses, and no process
resolves the name during a measurement.
"""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import os
import re
import socket
import stat
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from kirsch_bench.errors import UnreachableError, UsageError

# Loopback, private, link-local and unspecified networks. ipaddress.is_private also includes others, such as
# 192.0.0.0/24 and 198.18.0.0/15, which can be foreign machines.
_OWN_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/32",  # connects to this machine
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",  # RFC 1918
        "169.254.0.0/16",  # RFC 3927
        "::/128",
        "::1/128",
        "fc00::/7",  # RFC 4193
        "fe80::/10",  # RFC 4291
    )
)

_CONNECT_SECONDS = 5.0

# The characters of a request target (RFC 3986, with RFC 9112 section 3.2): visible ASCII, and no fragment.
_TARGET = re.compile(r"/[!-\"$-~]*")


@dataclass(frozen=True)
class Target:
    """One server. ``authority`` is the value of Host; ``ips`` is empty if ``unix`` is a path."""

    host: str
    port: int
    path: str
    authority: str
    ips: tuple[str, ...] = ()
    unix: str = ""
    url: str = field(default="", compare=False)
    tls: bool = False
    own: bool = field(default=False, compare=False)
    """Whether the caller says that the host is theirs, whatever its address is."""

    def plan(self) -> dict[str, object]:
        """Return the target in the form of the native generator's plan."""
        if self.unix:
            return {"host": self.authority, "unix": self.unix}
        addresses = [f"[{ip}]:{self.port}" if ":" in ip else f"{ip}:{self.port}" for ip in self.ips]
        return {"host": self.authority, "addresses": addresses}

    def connect(self, timeout: float = _CONNECT_SECONDS) -> socket.socket:
        """Return a new connection, for clients other than the native generator. Raises OSError."""
        if self.unix:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(timeout)
            try:
                sock.connect(_socket_address(self.unix))
            except BaseException:
                sock.close()
                raise
            return sock
        refusal: OSError | None = None
        for ip in self.ips:
            try:
                sock = socket.create_connection((ip, self.port), timeout)
            except OSError as error:
                refusal = error
            else:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return sock
        raise refusal or OSError(errno.EADDRNOTAVAIL, "there is no address")


def parse(url: str, *, unix: str = "", own: bool = False, resolve: bool = True) -> Target:
    """Read ``http://host[:port][/path]``, the same with ``https``, ``host:port[/path]`` or
    ``unix:/path/of.sock[:/path]``, and resolve it. ``unix:@name`` is in Linux's abstract namespace.

    ``unix`` is a socket to connect to in place of the URL's host, as curl's --unix-socket; ``own`` says that the
    host is the caller's whatever its address is. Without ``resolve`` it has no addresses: another host finds and checks
    them. Raises UsageError for what is no such URL or not the caller's to
    load, and UnreachableError for a name without an address.
    """
    if url.startswith("unix:"):
        if unix:
            raise UsageError(f"{url!r} names a socket, and --unix-socket another")
        unix, _, path = url[5:].partition(":")
        if not unix:
            raise UsageError(f"{url!r} names no path; write unix:/run/app.sock, or unix:/run/app.sock:/page")
        url = f"http://localhost{path or '/'}"
        shown = f"unix:{unix}{':' + path if path else ''}"
    else:
        shown = url = _with_scheme(url)
    host, port, authority, path = _split(url)
    tls = url.startswith("https:")
    if unix:
        _check_socket(unix)
        return Target(
            host,
            port,
            path,
            authority,
            unix=unix if unix.startswith("@") else os.path.abspath(unix),
            url=shown,
            tls=tls,
        )
    ips = _resolve(host, port) if resolve else ()
    if not own:
        _refuse_public(host, ips)
    return Target(host, port, path, authority, ips=ips, url=shown, tls=tls, own=own)


def check_path(path: str, origin: str) -> str:
    """Return ``path``, if it is valid in a request line. Raises UsageError, whose message begins with ``origin``."""
    if not _TARGET.fullmatch(path):
        advice = (
            f"did you mean /{path}?" if re.fullmatch(r"[!-\"$-~]+", path) else "percent-encode it, without a fragment"
        )
        raise UsageError(f"{origin}: {path!r} is not a path with a query as a request has it; {advice}")
    return path


def require_answering(target: Target) -> Target:
    """Connect once, so that a missing server is reported before anything is started.

    Of the addresses of a name those stay that a server listens on, and of one family only: ``localhost`` is ::1 and
    127.0.0.1, which servers often are not both, and which do not cost the same. Raises UnreachableError.
    """
    answering: list[str] = []
    refusal: OSError | None = None
    for ip in target.ips or ("",):
        alone = dataclasses.replace(target, ips=(ip,)) if ip else target
        try:
            alone.connect().close()
        except OSError as error:
            refusal = refusal or error
        else:
            answering.append(ip)
    if not answering:
        raise UnreachableError(f"cannot connect to {where(target)}: {reason(refusal or OSError())}")
    if target.unix:
        return target
    family = [ip for ip in answering if (":" in ip) == (":" in answering[0])]
    return dataclasses.replace(target, ips=tuple(family))


def where(target: Target) -> str:
    """Return the address in a few words."""
    if target.unix:
        return target.unix
    ips = ", ".join(target.ips)
    name = f"[{target.host}]" if ":" in target.host else target.host
    return f"{name}:{target.port}" + (f" ({ips})" if ips not in ("", target.host) else "")


def reason(error: OSError) -> str:
    """Return the system's text for an error, without the number."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or type(error).__name__


def is_own(ip: str) -> bool:
    """Return whether an address is loopback, private or link-local."""
    address = ipaddress.ip_address(ip.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in _OWN_NETWORKS if network.version == address.version)


def _with_scheme(url: str) -> str:
    if "://" not in url and re.match(r"(\[[0-9a-fA-F:.]+\]|[^/:\[\]]*)(:\d+)?(/|\?|$)", url):
        return f"http://{'localhost' if url.startswith((':', '/')) else ''}{url}"
    return url


def _split(url: str) -> tuple[str, int, str, str]:
    """Return host, port, authority, and path with query. Raises UsageError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"{url!r} is no URL to measure; write http://127.0.0.1:8000/ or unix:/run/app.sock")
    if parts.username is not None:
        raise UsageError(f"{url!r}: write the user and password as a header, -H 'Authorization: …'")
    if not re.fullmatch(r"[0-9A-Za-z._~:%-]+", host):
        raise UsageError(f"{url!r}: {host!r} is no name of a host")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    name = f"[{host}]" if ":" in host else host
    usual = 443 if parts.scheme == "https" else 80
    return host, port or usual, name if port in (None, usual) else f"{name}:{port}", check_path(path, url)


def _socket_address(path: str) -> str:
    """Return the socket address for a path; ``@`` begins an abstract name, for which the address begins with NUL
    (unix(7))."""
    return f"\0{path[1:]}" if path.startswith("@") else path


def _check_socket(path: str) -> None:
    if path.startswith("@"):
        return
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise UnreachableError(f"cannot connect to {path}: {reason(error)}") from None
    if not stat.S_ISSOCK(mode):
        raise UsageError(f"{path} is no socket")


def _resolve(host: str, port: int) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise UnreachableError(f"cannot find {host!r}: {getattr(error, 'strerror', None) or error}") from None
    return tuple(dict.fromkeys(_ip(address) for *_, address in found))


def _ip(address: tuple[Any, ...]) -> str:
    """Return an IP address, with the number of its interface if it needs one (RFC 4007)."""
    ip = str(address[0]).partition("%")[0]
    return f"{ip}%{address[3]}" if len(address) == 4 and address[3] else ip


def _refuse_public(host: str, ips: tuple[str, ...]) -> None:
    public = [ip for ip in ips if not is_own(ip)]
    if public:
        name = host if host in public else f"{host} ({', '.join(public)})"
        raise UsageError(
            f"{name} is a public address, and loading a machine without its owner's consent is an attack; "
            "if it is yours, say --i-own-this-host"
        )
