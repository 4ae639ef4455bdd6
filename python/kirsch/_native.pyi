"""The native engine and WSGI gateway (``crates/gateway``). Everything here is re-exported or wrapped by ``kirsch``."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

__all__ = ["FileWrapper", "Server", "__version__"]

__version__: str

@final
class Server:
    """One engine and one WSGI application on listening sockets, turned by the thread that calls :meth:`run`.

    ``listeners`` are descriptors of listening stream sockets; they are duplicated, so the caller keeps and closes
    its own. Timeouts are seconds (0 means none), sizes are bytes, rates are bytes per second.
    """

    def __new__(
        cls,
        app: Callable[..., Any],
        listeners: Sequence[int],
        *,
        keep_alive: float = 75.0,
        header_timeout: float = 15.0,
        body_timeout: float = 30.0,
        write_timeout: float = 30.0,
        min_rate: int = 500,
        limit_request_line: int = 8190,
        limit_request_fields: int = 100,
        limit_request_field_size: int = 8190,
        limit_request_head: int = 65536,
        limit_request_body: int = 1073741824,
        body_memory: int = 262144,
        worker_connections: int = 65536,
        server_header: str = "kirsch",
        multiprocess: bool = False,
        access_log: str | None = None,
        access_log_format: str = "combined",
        access_logger: Callable[[str, dict[str, str]], None] | None = None,
        report: Callable[[int, str, BaseException | None], None] | None = None,
    ) -> Server: ...
    def run(self) -> None:
        """Serve until :meth:`stop`. Raises RuntimeError when it runs already or has been stopped."""

    def stop(self, graceful_timeout: float | None = None) -> None:
        """Stop accepting, finish what is in flight, cut what is left after ``graceful_timeout`` seconds.

        None waits without limit, 0 cuts at once. May be called from any thread and from a signal handler, and again
        with a shorter time. Returns at once; :meth:`run` returns when all is done.
        """

    def wake(self) -> None:
        """Make a waiting :meth:`run` look at pending signals now. May be called from any thread."""

    def reopen_logs(self) -> None:
        """Open the access log's path again, after a rotation; the old file stays in use if that fails.

        Raises OSError then, if the server is not running; a running one does it in its own thread, soon, and reports
        a failure.
        """

    def fileno(self) -> int:
        """The poller's descriptor: readable when a turn has something to do."""

    def wakeup_fd(self) -> int:
        """A descriptor for :func:`signal.set_wakeup_fd`: a byte written to it ends the engine's wait."""

    def statistics(self) -> dict[str, int]:
        """Counters since the start and gauges of now, as of the turn before: connections, accepted, requests, ..."""

@final
class FileWrapper:
    """``wsgi.file_wrapper``: an iterator over ``file.read(block_size)`` that the server sends with sendfile(2)
    where ``file`` is a regular file (PEP 3333, Optional Platform-Specific File Handling)."""

    def __new__(cls, file: Any, block_size: int = 8192) -> FileWrapper: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __next__(self) -> bytes: ...
    def close(self) -> None: ...
