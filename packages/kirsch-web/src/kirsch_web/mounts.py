"""Several WSGI applications in one, each at its own path."""

from __future__ import annotations

from kirsch_web.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    StartResponse = Callable[..., Any]


class Mounts:
    """Several WSGI applications, each mounted at a path. A request goes to the longest path that its own begins with,
    up to a slash.

    ``Mounts({"": shop, "/admin": admin})``. The mount's path moves from PATH_INFO to SCRIPT_NAME.
    """

    def __init__(self, applications: Mapping[str, Callable[..., Iterable[bytes]]]) -> None:
        found: dict[str, Callable[..., Iterable[bytes]]] = {}
        for path, app in applications.items():
            path = path.rstrip("/")
            if path and not path.startswith("/"):
                raise ConfigError(f"a mount's path begins with a slash, as in /{path}")
            if path in found:
                raise ConfigError(f"there are two applications at {path or '/'}")
            found[path] = app
        # Paths are decoded as Latin-1, as in PATH_INFO.
        mounts = [(path.encode().decode("latin-1"), app) for path, app in found.items()]
        self._longest_first = sorted(mounts, key=lambda each: len(each[0]), reverse=True)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        below = path + "/"
        for mount, app in self._longest_first:
            if not mount or below.startswith(mount + "/"):
                if mount:
                    script = environ.get("SCRIPT_NAME", "") + mount
                    environ = {**environ, "SCRIPT_NAME": script, "PATH_INFO": path[len(mount) :]}
                return app(environ, start_response)
        return _no_application(start_response)


def _no_application(start_response: StartResponse) -> list[bytes]:
    body = b"404 Not Found\n"
    start_response("404 Not Found", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
