"""Parsing of the addresses of ``--bind``. No socket is opened here."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Address = tuple[str, int] | str

FORMS = "write HOST:PORT, :PORT, [IPV6]:PORT, unix:PATH or fd://N"

_MODE = "mode="
_PROXY = "proxy"

HTTP = "http"
HTTP_VERSIONS = {"auto": HTTP, "1": "http1", "2": "http2"}
"""For each value of ``--http`` the engine's name of the protocol of an address for HTTP."""

GATEWAY_PROTOCOLS = ("fastcgi", "uwsgi", "scgi")
"""The protocols that a web server in front may speak instead of HTTP: the word before the address, with a colon. The
engine has the same names (``_native.PROTOCOLS``); this module is used where there is no engine."""

_ENCRYPTS = {"http": False, "https": True}

_PORTS = {"http": 80, "https": 443}

_PROTOCOLS_BY_OTHER_NAMES = {"fcgi": "fastcgi"}


class Bind:
    """A parsed ``--bind``: a path with an optional mode, an inherited descriptor, the name of a descriptor from
    systemd, or a host (empty: all addresses of the machine) and a port; and the protocol. ``proxy``: each connection
    must begin with a PROXY protocol header. ``encrypts`` is True for https, False for http, and None if the text says
    neither.
    """

    __slots__ = ("encrypts", "fd", "host", "mode", "name", "path", "port", "protocol", "proxy", "text")

    def __init__(
        self,
        text: str,
        *,
        host: str = "",
        port: int = 0,
        path: str = "",
        mode: int | None = None,
        fd: int | None = None,
        name: str = "",
        proxy: bool = False,
    ) -> None:
        self.text = text
        self.host = host
        self.port = port
        self.path = path
        self.mode = mode
        self.fd = fd
        self.name = name
        self.protocol = HTTP
        self.encrypts: bool | None = None
        self.proxy = proxy

    @property
    def place(self) -> object:
        """A value that is equal for two binds of the same socket, even if their modes differ."""
        # An absolute path, which is still valid at the end if the application changes the directory.
        return os.path.abspath(self.path) if self.path else (self.host, self.port, self.fd, self.name)


def parse_bind(text: str) -> Bind:
    """Parse ``host:port``, ``:port``, ``[ipv6]:port``, ``name:port``, ``unix:path``, ``unix:path?mode=660``, ``fd://3``
    or ``systemd:name``. An optional prefix selects the protocol: ``fastcgi:``, ``uwsgi:``, ``scgi:``, ``https:`` or
    ``http:``, the last two also with ``//``. An optional suffix is ``?proxy``; a path can have both suffixes:
    ``unix:path?mode=660&proxy``.

    Raises ValueError, with a message that shows the correct spelling.
    """
    protocol, colon, address = text.partition(":")
    if protocol in _PROTOCOLS_BY_OTHER_NAMES and not address.isdigit():  # otherwise a host of this name and a port
        raise ValueError(
            f"{text!r}: {protocol} is called {_PROTOCOLS_BY_OTHER_NAMES[protocol]} here; did you mean "
            f"{_PROTOCOLS_BY_OTHER_NAMES[protocol]}:{address}?"
        )
    if protocol not in (*GATEWAY_PROTOCOLS, *_ENCRYPTS) or not colon:
        return _parse_address(text)
    if protocol in _ENCRYPTS and address.startswith("//"):
        address = address[2:]
        place, slash, rest = address.partition("/")
        if slash:
            hint = f"; did you mean {protocol}://{place}?" if not rest and ":" in place else ""
            raise ValueError(f"{text!r} has a path, and an address to listen on has none{hint}")
        if ":" not in place.rpartition("]")[2] and place:
            raise ValueError(f"{text!r} lacks a port; did you mean {protocol}://{place}:{_PORTS[protocol]}?")
    if address.isdigit():
        raise ValueError(
            f"{text!r} lacks a host; did you mean {protocol}:127.0.0.1:{address} or {protocol}::{address}?"
        )
    try:
        bind = _parse_address(address)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    if protocol in _ENCRYPTS:
        bind.encrypts = _ENCRYPTS[protocol]
    else:
        bind.protocol = protocol
    bind.text = text
    return bind


def _parse_address(text: str) -> Bind:
    """Parse an address without a protocol prefix. Raises ValueError."""
    address, options = _split_options(text)
    if address.startswith("/"):
        raise ValueError(f"{text!r} is a path; did you mean unix:{text}?")
    proxy = _PROXY in options
    if address.startswith("unix:"):
        path = address[5:]
        modes = [option.removeprefix(_MODE) for option in options if option.startswith(_MODE)]
        if not path or "\0" in path:
            raise ValueError(f"{text!r} names no path; write unix:/run/app.sock")
        unknown = path.rpartition("?")[2] if "?" in path else ""
        if _looks_like_an_option(unknown):
            raise ValueError(
                f"{text!r}: there is no option {unknown!r}; behind the question mark may stand mode=660 and proxy"
            )
        if not all(len(mode) in (3, 4) and set(mode) <= set("01234567") and int(mode, 8) <= 0o777 for mode in modes):
            raise ValueError(f"{text!r}: the mode is three octal digits, as in unix:/run/app.sock?mode=660")
        return Bind(text, path=path, mode=int(modes[-1], 8) if modes else None, proxy=proxy)
    if "?" in address or set(options) - {_PROXY}:
        raise ValueError(f"{text!r}: behind the question mark may stand proxy, as in {address.partition('?')[0]}?proxy")
    if address.startswith("fd://"):
        number = address[5:]
        if not (number.isascii() and number.isdigit() and int(number) < 1 << 20):
            raise ValueError(f"{text!r} names no descriptor; write fd://3")
        return Bind(text, fd=int(number), proxy=proxy)
    name = address.removeprefix("systemd:")
    if name != address and not name.isdigit():  # otherwise a host of this name and a port
        if not name:
            raise ValueError(f"{text!r} names no socket; write systemd:NAME, with the unit's FileDescriptorName=")
        return Bind(text, name=name, proxy=proxy)
    if "://" in address:
        scheme, _, rest = address.partition("://")
        place = rest.partition("/")[0]
        if scheme in ("ws", "wss"):
            raise ValueError(f"{text!r}: WebSockets come over HTTP; did you mean http{scheme[2:]}://{place}?")
        meant = f"; did you mean {place}?" if scheme == "tcp" and ":" in place else ""
        raise ValueError(f"{text!r} is not an address to listen on{meant or f'; {FORMS}'}")
    host, colon, port_text = address.rpartition(":")
    if not colon:
        if any(character.isspace() for character in address):
            raise ValueError(f"{text!r} is not an address to listen on; {FORMS}")
        example = f":{address} or 127.0.0.1:{address}" if address.isdigit() else f"{address or '127.0.0.1'}:8000"
        raise ValueError(f"{text!r} lacks a host or a port; did you mean {example}?")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if ":" not in host:
            raise ValueError(f"{text!r}: brackets are for IPv6 addresses; did you mean {host}:{port_text}?")
    elif ":" in host or "[" in address or "]" in address:
        raise ValueError(f"{text!r} is ambiguous; put an IPv6 address in brackets, as in [::1]:8000")
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) <= 65535):
        raise ValueError(f"{text!r}: the port is a number from 0 (any free one) to 65535")
    if any(character.isspace() or character in "/\0" for character in host):
        raise ValueError(f"{text!r} is not an address to listen on; {FORMS}")
    return Bind(text, host=host, port=int(port_text), proxy=proxy)


def _split_options(text: str) -> tuple[str, list[str]]:
    """Split an address from its options, which follow the last question mark. A path may contain question marks."""
    address, mark, query = text.rpartition("?")
    options = query.split("&")
    if mark and all(option == _PROXY or option.startswith(_MODE) for option in options):
        return address, options
    return text, []


def _looks_like_an_option(text: str) -> bool:
    """Return whether the text after a question mark in a path is probably a misspelled option: ``mod=600``,
    ``proxi``."""
    return "=" in text or text.isalpha()


def refuse_repeated(binds: Iterable[Bind]) -> None:
    """Raise ValueError if two of ``binds`` are the same place. Port 0 may be repeated: each is another free port."""
    places: dict[object, Bind] = {}
    for bind in binds:
        other = places.setdefault(bind.place, bind)
        if other is not bind and (bind.path or bind.port or bind.fd is not None or bind.name):
            raise ValueError(f"{bind.text!r} is the address of {other.text!r}; give each address once")


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is a loopback address, which only this machine can reach."""
    return host in ("localhost", "::1") or host.startswith("127.")


def url(protocol: str, address: Address, *, is_encrypted: bool = False) -> str:
    """Return the URL of an address: ``http://host:port``, ``unix:path``, or with another protocol
    ``fastcgi:host:port`` or the like; https if ``is_encrypted``."""
    if isinstance(address, str):
        place, scheme = f"unix:{address}", "https:" if is_encrypted else ""
    else:
        host, port = address
        place, scheme = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}"), f"http{'s' * is_encrypted}://"
    return f"{scheme}{place}" if protocol == HTTP else f"{protocol}:{place}"
