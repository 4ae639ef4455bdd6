"""A development server inside the process of another tool: ``manage.py runserver``, ``flask kirsch`` and tests.

The tool reloads the code by starting itself again as a child process when a file changes. The first process opens the
sockets, and each child serves on them. So requests wait during a reload, and none is refused.
"""

from __future__ import annotations

import os
import threading

from kirsch.net import sockets
from kirsch.server import Server
from kirsch.serving import serve_until_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SOCKETS_VARIABLE = "_KIRSCH_DEVELOPMENT_SOCKETS"
"""The descriptors of the sockets that the first process has opened, with commas between them."""

_BACKLOG = 128

# The seconds that requests in flight have when the code changes: few, because a person waits.
_RELOAD_TIMEOUT = 0.5


def address(host: str, port: int) -> str:
    """Return ``host`` and ``port`` as a value of ``--bind``. The host ``0`` means all IPv4 addresses, as for the
    operating system."""
    if host == "0":
        host = "0.0.0.0"  # noqa: S104
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def open_sockets(bind: str) -> int:
    """Open listening sockets for the child processes that the tool will start, and return the port. Raises OSError."""
    listeners = sockets.listen([bind], _BACKLOG)
    for listener in listeners:
        listener.socket.set_inheritable(True)
    _open.extend(listeners)
    os.environ[SOCKETS_VARIABLE] = ",".join(str(listener.socket.fileno()) for listener in listeners)
    where = listeners[0].address
    return 0 if isinstance(where, str) else where[1]


_open: list[sockets.Listener] = []


def binds(bind: str) -> list[str]:
    """Return the values of ``--bind``: the sockets that the first process has opened, or else ``bind``."""
    numbers = os.environ.get(SOCKETS_VARIABLE, "")
    return [f"fd://{number}" for number in numbers.split(",")] if numbers else [bind]


def serve(server: Server) -> None:
    """Serve: in the main thread until a signal stops it, in another thread until the process exits."""
    if threading.current_thread() is threading.main_thread():
        serve_until_signal(server)
        return
    import atexit

    def stop() -> None:
        # A client whose connection was accepted may still send a request.
        server.begin_stop(_RELOAD_TIMEOUT)
        server.wait(2 * _RELOAD_TIMEOUT)

    atexit.register(stop)
    server.start()


class LiveServer:
    """A server in a thread of this process, on a free port of 127.0.0.1, for tests.

    ``url`` is ``http://127.0.0.1:PORT``; called with a path, it returns the URL of that path, as in pytest-flask.
    ``log`` contains the lines of the access log and the error log.
    """

    class _ModifiedSettings:
        """A placeholder for Django's changes to ALLOWED_HOSTS, which pytest-django makes by itself."""

        def enable(self) -> None:
            pass

        disable = enable

    _live_server_modified_settings = _ModifiedSettings()
    """pytest-django looks for it where a test has a fixture ``live_server``, which may return this server."""

    def __init__(self, app: Callable[..., Any], host: str = "127.0.0.1", port: int = 0, **options: Any) -> None:
        """Create the server; ``options`` are those of :class:`kirsch.Server`. Raises the same exceptions."""
        self.app = app
        self.log: list[str] = []
        options.setdefault("access_logger", self._log_access)
        options.setdefault("report", self._report)
        self.server = Server(app, address(host, port), **options)
        self.host = host
        self.port = port
        self._options = options
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def url(self) -> Url:
        """The base URL, without a slash at the end."""
        scheme = "https" if self._options.get("certfile") else "http"
        return Url(f"{scheme}://{address(self.host, self.port)}")

    def start(self) -> None:
        """Listen, and serve in a thread. Raises the error that prevents it, such as a lifespan startup that fails."""
        if self._thread is not None:
            return
        self.server.listen()
        where = self.server.addresses[0]
        assert not isinstance(where, str)
        self.port = where[1]
        begun = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(begun,), name=f"kirsch {self.url}", daemon=True)
        self._thread.start()
        begun.wait()
        if self._error is not None:
            raise self._error

    def stop(self, graceful_timeout: float = 5.0) -> bool:
        """Stop serving; return whether all requests have ended within ``graceful_timeout`` seconds."""
        if self._thread is None:
            return True
        ended = self.server.stop(graceful_timeout)
        self._thread.join(graceful_timeout if ended else 0)
        return ended

    def __str__(self) -> str:
        return self.url

    def __add__(self, path: str) -> str:
        return f"{self.url}{path}"

    def __repr__(self) -> str:
        return f"<LiveServer listening at {self.url}>"

    def _serve(self, begun: threading.Event) -> None:
        try:
            self.server.start(begun.set)
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that starts the server
            self._error = error
        finally:
            begun.set()

    def _log_access(self, line: str, _atoms: dict[str, str]) -> None:
        self.log.append(line)

    def _report(self, level: int, message: str, error: BaseException | None) -> None:
        from kirsch.reports import level_name, traceback_text

        self.log.append(f"[{level_name(level).upper()}] {message}")
        if error is not None:
            self.log += traceback_text(error).splitlines()


class Url(str):
    """A URL as a string. Called with a path, it returns the URL of that path."""

    __slots__ = ()

    def __call__(self, path: str = "") -> str:
        return f"{self}{path}"
