"""Several applications in one process: the host of a request and the beginning of its path select the application."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
    # Prefix, prefix with a slash, application; the longest prefix first.
    Table = list[tuple[str, str, Application]]


class Mount:
    """One ``--mount``, or one ``[[mount]]`` of the settings file for one host.

    ``path`` is empty or ``/prefix`` without a slash at its end. ``host`` is empty (any), ``example.org`` or
    ``*.example.org``. ``app`` is written as on the command line.
    """

    __slots__ = ("app", "factory", "host", "origin", "path")

    def __init__(self, app: str, *, path: str = "", host: str = "", factory: bool = False, origin: str = "") -> None:
        self.app = app
        self.path = path
        self.host = host
        self.factory = factory
        self.origin = origin

    @property
    def place(self) -> str:
        """The host and path of the mount, as users write it."""
        return f"{self.host}{self.path}" or "/"

    def __str__(self) -> str:
        return f"{self.app} at {self.place}"


def check_path(text: str) -> str:
    """Return the prefix ``text`` without a slash at its end. Raises ValueError for a text that is no prefix."""
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
    """Return the host ``text`` in lower case. Raises ValueError for a text that is no host."""
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


def parse_mount(place: str, app: str, origin: str = "") -> Mount:
    """Parse ``/path``, ``host`` or ``host/path`` and the application there. Raises ValueError, which quotes the
    text."""
    host, slash, path = place.partition("/")
    try:
        return Mount(app, path=check_path(slash + path) if slash else "", host=host and check_host(host), origin=origin)
    except ValueError as error:
        raise ValueError(f"{place!r} {error}") from None


def combine(mounted: Sequence[tuple[Mount, Application]], fallback: Application | None = None) -> Application:
    """Return one WSGI application that calls several.

    A request goes to the mount that fits best: one for its host before one for ``*.host``, and that before one for any
    host; among those, the one with the longest prefix of whole segments, which moves from PATH_INFO to SCRIPT_NAME (PEP
    3333). If none fits, it goes to ``fallback``; without one, the answer is 404.

    PATH_INFO is compared as it is, as bytes of UTF-8 in Latin-1 characters: it is percent-decoded, and ``//`` differs
    from ``/``. An application gets the rest of the path as the client sent it.
    """
    hosts: dict[str, Table] = {}
    for mount, app in sorted(mounted, key=lambda pair: len(pair[0].path), reverse=True):
        prefix = mount.path.encode().decode("latin-1")
        hosts.setdefault(mount.host, []).append((prefix, prefix + "/", app))
    anywhere = hosts.pop("", [])
    no_host = (anywhere,)
    last = fallback or _not_found

    def dispatch(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        for table in _tables(environ.get("HTTP_HOST", ""), hosts, anywhere) if hosts else no_host:
            for prefix, directory, app in table:
                if not prefix or path == prefix or path.startswith(directory):
                    environ["SCRIPT_NAME"] += prefix
                    environ["PATH_INFO"] = path[len(prefix) :]
                    return app(environ, start_response)
        return last(environ, start_response)

    return dispatch


def _tables(host: str, hosts: dict[str, Table], anywhere: Table) -> Iterable[Table]:
    """The tables for ``host``: that of its own name, those with a star, the longest first, and that of any host."""
    name = _without_port(host.lower()).removesuffix(".")
    if name in hosts:
        yield hosts[name]
    _, dot, rest = name.partition(".")
    while dot:
        if f"*.{rest}" in hosts:
            yield hosts[f"*.{rest}"]
        _, dot, rest = rest.partition(".")
    yield anywhere


def _without_port(host: str) -> str:
    """Return ``host`` without ``:port``; an IPv6 address is in brackets."""
    name, colon, port = host.rpartition(":")
    return name if colon and (not port or port.isdigit()) and not ("[" in name and "]" not in name) else host


def _not_found(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = b"404 Not Found\nNo application is mounted here.\n"
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    start_response("404 Not Found", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]
