"""The check of ``--ready-path``: a request to the application inside its process, before clients can send requests."""

from __future__ import annotations

import io
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch.apps.mounted import MountedApplication


class NotReadyError(Exception):
    """Raised if the application is not ready; the text is the reason. ``cause`` is the application's exception, if
    any."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause


def check(mounted: MountedApplication, path: str, server: str, port: str, errors: object = None) -> None:
    """Send GET ``path`` to a mounted WSGI application, like a client of ``server`` and ``port``, and read the whole
    response. ``errors`` is ``wsgi.errors``; None means ``sys.stderr``. Raises NotReadyError unless the status is
    2xx."""
    statuses: list[str] = []

    def start_response(status: str, _headers: object, exc_info: object = None) -> Callable[[bytes], None]:
        del exc_info
        statuses.append(status)
        return lambda _data: None

    environ = {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": mounted.path,
        "PATH_INFO": path[len(mounted.path) :],
        "QUERY_STRING": "",
        "REQUEST_URI": path,
        "RAW_URI": path,
        "SERVER_NAME": server,
        "SERVER_PORT": port,
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": f"{server}:{port}" if port else server,
        "HTTP_USER_AGENT": "kirsch (--ready-path)",
        "REMOTE_ADDR": "127.0.0.1",
        "REMOTE_PORT": "0",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr if errors is None else errors,
        "wsgi.multithread": False,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
    }
    try:
        body = mounted.app(environ, start_response)
        try:
            for _part in body:
                pass
        finally:
            close = getattr(body, "close", None)
            if close is not None:
                close()
    except Exception as error:
        raise NotReadyError(f"it raised {type(error).__name__} at --ready-path {path}", error) from error
    _judge(path, statuses[-1] if statuses else "nothing")


async def check_asgi(mounted: MountedApplication, path: str, server: str, port: str) -> None:
    """Do the same as :func:`check` for an ASGI application, in its loop. The response ends when the application
    returns."""
    statuses: list[str] = []
    is_first = True

    async def receive() -> dict[str, Any]:
        nonlocal is_first
        if is_first:
            is_first = False
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(str(message["status"]))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.5"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": mounted.path,
        "headers": [
            (b"host", f"{server}:{port}".encode() if port else server.encode()),
            (b"user-agent", b"kirsch (--ready-path)"),
        ],
        "client": ("127.0.0.1", 0),
        "server": (server, int(port or 80)),
        "state": {},
        "extensions": {},
    }
    try:
        await mounted.app(scope, receive, send)
    except Exception as error:
        raise NotReadyError(f"it raised {type(error).__name__} at --ready-path {path}", error) from error
    _judge(path, statuses[-1] if statuses else "nothing")


def _judge(path: str, status: str) -> None:
    if not status.startswith("2"):
        raise NotReadyError(f"it answered --ready-path {path} with {status}, and must answer 2xx")
