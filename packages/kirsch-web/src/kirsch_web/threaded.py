"""The standard library's HTTP server with a thread for each connection, for trials and tests."""

from __future__ import annotations

import threading
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_args: object) -> None:
        """Log nothing: the application decides what is logged."""


class ThreadedServer(ThreadingMixIn, WSGIServer):
    """Serves ``app`` over HTTP/1.0 at ``address``, a host and a port, which the constructor binds."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], app: Any) -> None:
        super().__init__(address, _Quiet)
        self.set_app(app)
        self._over = threading.Event()

    def serve(self) -> None:
        """Serve until another thread calls :meth:`stop`."""
        try:
            self.serve_forever(poll_interval=0.05)
        finally:
            self.server_close()
            self._over.set()

    def stop(self) -> None:
        """Stop serving, and wait up to 5 seconds until the port is free."""
        self.shutdown()
        self._over.wait(5)
