"""Several applications in one process, selected by the host and the path prefix of a request. The native server selects
the application (``crates/gateway/src/mounts.rs``).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TypeAlias

    # One application, or several that are mounted.
    Application: TypeAlias = "Callable[..., Any] | Mounted"


class MountedApplication:
    """An application at its place. ``host`` and ``path`` are as in ``config.mounts.Mount``; ``interface`` is
    ``wsgi`` or ``asgi``; ``name`` is empty for the fallback application, which responds with 404."""

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
    """Several applications at their places. The last one gets the requests that match no other place. ``interface`` is
    the server's interface: ``asgi`` if one of them is an ASGI application, because then an event loop has to host the
    engine.
    """

    __slots__ = ("applications", "interface")

    def __init__(self, applications: Sequence[MountedApplication]) -> None:
        self.applications = tuple(applications)
        self.interface = "asgi" if any(each.interface == "asgi" for each in applications) else "wsgi"
        if any(each.host or each.path for each in self.applications[-1:]):
            not_found = _asgi_not_found if self.interface == "asgi" else _not_found
            nowhere = MountedApplication(not_found, self.interface, host="", path="", name="")
            self.applications = (*self.applications, nowhere)

    def wrapped(self, wrap: Callable[[Callable[..., Any], str], Callable[..., Any]]) -> Mounted:
        """Return the same places, with each application replaced by ``wrap(app, interface)``. An application at
        several places is wrapped once."""
        found = {id(each.app): each for each in self.applications}
        made = {number: wrap(each.app, each.interface) for number, each in found.items()}
        return Mounted(
            [
                MountedApplication(made[id(each.app)], each.interface, host=each.host, path=each.path, name=each.name)
                for each in self.applications
            ]
        )

    def find(self, host: str, path: str) -> MountedApplication:
        """Return the application for a request of a decoded ``path`` at ``host``."""
        from kirsch._native import find_mount

        found = find_mount([(each.host, each.path) for each in self.applications], host, path)
        return self.applications[-1 if found is None else found]

    def for_native(self) -> list[tuple[str, str, str, Callable[..., Any]]]:
        """Return the applications in the form of the native server: (host, path, interface, application)."""
        return [(each.host, each.path, each.interface, each.app) for each in self.applications]


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
