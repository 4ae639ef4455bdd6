"""Mounts, the places of several applications in one process, and their syntax: ``--mount`` and ``[[mount]]``."""

from __future__ import annotations

INTERFACES = ("wsgi", "asgi")


class Mount:
    """One ``--mount``, or one ``[[mount]]`` of the settings file for one host.

    ``path`` is empty, or ``/prefix`` without a slash at the end. ``host`` is empty (any), ``example.org`` or
    ``*.example.org``. ``app`` is the application's name, as on the command line. ``interface`` is ``wsgi`` or ``asgi``,
    or empty if ``--interface`` decides.
    """

    __slots__ = ("app", "factory", "host", "interface", "origin", "path")

    def __init__(
        self,
        app: str,
        *,
        path: str = "",
        host: str = "",
        factory: bool = False,
        interface: str = "",
        origin: str = "",
    ) -> None:
        self.app = app
        self.interface = interface
        self.path = path
        self.host = host
        self.factory = factory
        self.origin = origin

    @property
    def place(self) -> str:
        """The host and path of the mount, in the form of ``--mount``."""
        return f"{self.host}{self.path}" or "/"

    def __str__(self) -> str:
        return f"{self.interface and self.interface + ':'}{self.app} at {self.place}"


def check_path(text: str) -> str:
    """Return the path prefix ``text`` without a slash at the end. Raises ValueError if it is not a path prefix."""
    if not text.startswith("/"):
        raise ValueError(f"is not the beginning of a path; did you mean {'/' + text!r}?")
    if any(character in text for character in "?#") or not text.isprintable():
        raise ValueError("is more than a path; omit what follows ? and #")
    if "%" in text:
        raise ValueError("is percent-encoded; write the decoded path")
    path = text.rstrip("/")
    if any(segment in ("", ".", "..") for segment in path.split("/")[1:]):
        raise ValueError("has an empty segment, or a . or .. that browsers remove; it would match no request")
    return path


def check_host(text: str) -> str:
    """Return the host ``text`` in lower case. Raises ValueError if it is not a host."""
    host = text.strip().lower().removesuffix(".")
    if "/" in host or not host or any(character.isspace() for character in host):
        raise ValueError("is not a host; write example.org or *.example.org")
    if _without_port(host) != host:
        raise ValueError(f"has a port, which is not compared; did you mean {_without_port(host)!r}?")
    if "*" in host.removeprefix("*.") or host == "*.":
        raise ValueError("is not a host; a star stands for whole labels at the beginning, as in *.example.org")
    if not host.isascii():
        raise ValueError("is not what requests contain; write it as DNS does, beginning with xn--")
    return host


def is_host(text: str) -> bool:
    """Return whether ``text`` (``host`` or ``host/path``) begins with a host, not with a path without its first
    slash: it is ``localhost``, or has a dot, a colon or a star before the first slash."""
    host = text.partition("/")[0]
    return host.lower() == "localhost" or any(character in host for character in ".:*")


def parse_mount(place: str, app: str, origin: str = "") -> Mount:
    """Parse a place (``/path``, ``host`` or ``host/path``) and its application (``module:app``, or with its
    interface ``asgi:module:app``). A host of a single label needs a dot at its end (``shop.``), because ``shop`` is
    more often a path without its slash. Raises ValueError, which quotes the text."""
    if place and not place.startswith("/") and not is_host(place):
        label, slash, rest = place.partition("/")
        raise ValueError(
            f"{place!r} is not the beginning of a path; did you mean /{place}? The host {label} is written "
            f"{label}.{slash}{rest}"
        )
    host, slash, path = place.partition("/")
    interface, _, rest = app.partition(":")
    if ":" not in rest.partition("(")[0]:
        interface = ""
    elif interface in INTERFACES:
        app = rest
    else:
        raise ValueError(f"{app!r} begins with {interface!r}, which is none of {', '.join(INTERFACES)}")
    try:
        path = check_path(slash + path) if slash else ""
        return Mount(app, path=path, host=host and check_host(host), interface=interface, origin=origin)
    except ValueError as error:
        raise ValueError(f"{place!r} {error}") from None


def _without_port(host: str) -> str:
    """Return ``host`` without ``:port``. An IPv6 address is in brackets."""
    name, colon, port = host.rpartition(":")
    return name if colon and (not port or port.isdigit()) and not ("[" in name and "]" not in name) else host
