"""Several applications in one process: the host of a request and the beginning of its path select the application."""

from __future__ import annotations

from kirsch.process.stacks import entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
    # Prefix, prefix with a slash, application; the longest prefix first.
    Table = list[tuple[str, str, Application]]


INTERFACES = ("wsgi", "asgi")


class MountedApplication:
    """An application at its place. ``host`` and ``path`` are those of :class:`Mount`; ``interface`` is ``wsgi`` or
    ``asgi``; ``name`` is empty for what answers where no application is."""

    __slots__ = ("app", "host", "interface", "name", "path")

    def __init__(self, app: Callable[..., Any], interface: str, *, host: str, path: str, name: str) -> None:
        self.app = app
        self.interface = interface
        self.host = host
        self.path = path
        self.name = name

    def __str__(self) -> str:
        return f"{self.name} at {self.host}{self.path}" if self.host or self.path else self.name


class Mounted:
    """Several applications, ASGI ones among them, as ``loading.load_all`` returns them. The last one gets the requests
    that no other is for.

    The native server calls each of them by its interface. This object is an ASGI application by its signature: to call
    it, as ``--ready-path`` does, is to call the ASGI application of a path.
    """

    def __init__(self, applications: Sequence[MountedApplication]) -> None:
        self.applications = tuple(applications)
        if any(each.host or each.path for each in self.applications[-1:]):
            nowhere = MountedApplication(_asgi_not_found, "asgi", host="", path="", name="")
            self.applications = (*self.applications, nowhere)

    def prepared(self, prepare: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Mounted:
        """The same with ``prepare`` of each ASGI application, made once for all its places."""
        of_asgi = {id(each.app): each.app for each in self.applications if each.interface == "asgi"}
        made = {number: prepare(app) for number, app in of_asgi.items()}
        return Mounted(
            [
                MountedApplication(
                    made[id(each.app)] if each.interface == "asgi" else each.app,
                    each.interface,
                    host=each.host,
                    path=each.path,
                    name=each.name,
                )
                for each in self.applications
            ]
        )

    def find(self, path: str) -> MountedApplication:
        """The application of a decoded ``path``, for a host that no mount names."""
        fitting = [each for each in self.applications if not each.host and _is_at(each.path, path)]
        return max(fitting, key=lambda each: len(each.path))

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        found = self.find(scope["path"])
        if found.interface != "asgi":
            raise TypeError(f"{found} is a WSGI application")
        await found.app({**scope, "root_path": scope.get("root_path", "") + found.path}, receive, send)


def _is_at(prefix: str, path: str) -> bool:
    return not prefix or path == prefix or path.startswith(prefix + "/")


class Mount:
    """One ``--mount``, or one ``[[mount]]`` of the settings file for one host.

    ``path`` is empty or ``/prefix`` without a slash at its end. ``host`` is empty (any), ``example.org`` or
    ``*.example.org``. ``app`` is written as on the command line. ``interface`` is ``wsgi`` or ``asgi``, or empty where
    ``--interface`` decides.
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
        """The host and path of the mount, as users write it."""
        return f"{self.host}{self.path}" or "/"

    def __str__(self) -> str:
        return f"{self.interface and self.interface + ':'}{self.app} at {self.place}"


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


def is_host(text: str) -> bool:
    """Return whether ``text`` of the form ``host`` or ``host/path`` begins with a host, and not with a path that lacks
    its slash: it is ``localhost``, or has a dot, a colon or a star before the first slash."""
    host = text.partition("/")[0]
    return host.lower() == "localhost" or any(character in host for character in ".:*")


def parse_mount(place: str, app: str, origin: str = "") -> Mount:
    """Parse ``/path``, ``host`` or ``host/path`` and the application there, ``module:app`` or, with its interface,
    ``asgi:module:app``. A host of a single label is written with a dot at its end (``shop.``), because ``shop`` more
    often is a path that lacks its slash. Raises ValueError, which quotes the text."""
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


def combine_all(applications: Sequence[MountedApplication]) -> Callable[..., Any]:
    """Return what serves all: one WSGI application if all are, and a :class:`Mounted` otherwise."""
    if any(each.interface == "asgi" for each in applications):
        return Mounted(applications)
    mounted = [(Mount("", path=each.path, host=each.host), each.app) for each in applications]
    return combine(mounted, is_outermost=True)


def combine(
    mounted: Sequence[tuple[Mount, Application]], fallback: Application | None = None, *, is_outermost: bool = False
) -> Application:
    """Return one WSGI application that calls several.

    A request goes to the mount that fits best: one for its host before one for ``*.host``, and that before one for any
    host; among those, the one with the longest prefix of whole segments, which moves from PATH_INFO to SCRIPT_NAME (PEP
    3333). If none fits, it goes to ``fallback``; without one, the answer is 404.

    PATH_INFO is compared as it is, as bytes of UTF-8 in Latin-1 characters: it is percent-decoded, and ``//`` differs
    from ``/``. An application gets the rest of the path as the client sent it.

    A web server that speaks FastCGI, uwsgi or SCGI may have moved the mount's path to SCRIPT_NAME by itself. So the
    combination that ``is_outermost`` looks for a mount of the whole path where there is none of PATH_INFO.
    """
    hosts: dict[str, Table] = {}
    for mount, app in sorted(mounted, key=lambda pair: len(pair[0].path), reverse=True):
        prefix = mount.path.encode().decode("latin-1")
        hosts.setdefault(mount.host, []).append((prefix, prefix + "/", app))
    anywhere = hosts.pop("", [])
    no_host = (anywhere,)
    last = fallback or _not_found

    def find(host: str, path: str) -> tuple[str, Application]:
        for table in _tables(host, hosts, anywhere) if hosts else no_host:
            for prefix, directory, app in table:
                if not prefix or path == prefix or path.startswith(directory):
                    return prefix, app
        return "", last

    @entry
    def dispatch(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path, host = environ["PATH_INFO"], environ.get("HTTP_HOST", "")
        prefix, app = find(host, path)
        if is_outermost and not prefix and environ["SCRIPT_NAME"] and (whole := _requested_path(environ)):
            prefix, moved = find(host, whole)
            if prefix:
                app, path, environ["SCRIPT_NAME"] = moved, whole, ""
        environ["SCRIPT_NAME"] += prefix
        environ["PATH_INFO"] = path[len(prefix) :]
        return app(environ, start_response)

    return dispatch


def _requested_path(environ: dict[str, Any]) -> str:
    """SCRIPT_NAME and PATH_INFO together where they are the path that the client asked for, else nothing. A prefix that
    a proxy has removed (X-Forwarded-Prefix) is not part of that path."""
    from urllib.parse import unquote

    whole: str = environ["SCRIPT_NAME"] + environ["PATH_INFO"]
    return whole if unquote(environ.get("RAW_URI", "").partition("?")[0], "latin-1") == whole else ""


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


_NOT_FOUND = b"404 Not Found\nNo application is mounted here.\n"
_TYPE = "text/plain; charset=utf-8"


def _not_found(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    headers = [("Content-Type", _TYPE), ("Content-Length", str(len(_NOT_FOUND)))]
    start_response("404 Not Found", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [_NOT_FOUND]


async def _asgi_not_found(scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ARG001
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    headers = [(b"content-type", _TYPE.encode()), (b"content-length", str(len(_NOT_FOUND)).encode())]
    await send({"type": f"{kind}.start", "status": 404, "headers": headers})
    await send({"type": f"{kind}.body", "body": b"" if scope.get("method") == "HEAD" else _NOT_FOUND})
