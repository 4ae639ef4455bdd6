"""The HTTP server of ``quickstart()`` and ``engine.start()``: Kirsch if it is installed, else cheroot, else wsgiref.

Programs in production are better served by the command, ``kirsch module:application``, which has workers and reloading.
"""

from __future__ import annotations

import importlib.util
import threading
from typing import Any

from kirsch_web.compat.cherrypy import _globals


class CPWSGIServer:
    """Serves ``cherrypy.tree`` at the address of a :class:`~kirsch_web.compat.cherrypy._cpserver.Server`."""

    ready = False

    def __init__(self, server_adapter: Any = None) -> None:
        self.server_adapter = adapter = _globals.server if server_adapter is None else server_adapter
        self.wsgi_app: Any = _globals.tree
        self.bind_addr = adapter.bind_addr
        self.bound_addr: Any = None
        self.timeout = adapter.socket_timeout
        self.interrupt: Any = None
        self._backend: Any = None

    def _app(self, environ: dict[str, Any], start_response: Any) -> Any:
        return self.wsgi_app(environ, start_response)

    def prepare(self) -> None:
        """Bind the address. Raises OSError where it cannot be bound."""
        self._backend = _backend(self)
        self.bound_addr = self._backend.bound_addr
        self.ready = True

    def serve(self) -> None:
        """Serve until :meth:`stop`."""
        self._backend.serve()

    def start(self) -> None:
        """Bind and serve."""
        self.prepare()
        self.serve()

    def stop(self) -> None:
        """Stop serving; requests that run have ``shutdown_timeout`` seconds."""
        self.ready = False
        if self._backend is not None:
            self._backend.stop()

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        backend = self.__dict__.get("_backend")
        if name == "timeout" and backend is not None and hasattr(backend, "set_timeout"):
            backend.set_timeout(value)


def _backend(server: CPWSGIServer) -> Any:
    tls = bool(server.server_adapter.ssl_certificate)
    for name, backend in (("kirsch", _Kirsch), ("cheroot", _Cheroot)):
        # Kirsch leaves TLS to a proxy in front.
        if importlib.util.find_spec(name) is not None and not (tls and backend is _Kirsch):
            return backend(server)
    if tls:
        raise ValueError("server.ssl_certificate needs cheroot: pip install cheroot; or put a proxy with TLS in front")
    return _Wsgiref(server)


class _Kirsch:
    def __init__(self, server: CPWSGIServer) -> None:
        import kirsch

        adapter = server.server_adapter
        options: dict[str, Any] = {
            "threads": int(adapter.thread_pool),
            "graceful_timeout": float(adapter.shutdown_timeout),
        }
        if adapter.max_request_body_size:
            options["limit_request_body"] = int(adapter.max_request_body_size)
        address = server.bind_addr
        if isinstance(address, tuple):
            host, port = address
            bind = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        else:
            bind = f"unix:{address}"
        self._server = kirsch.Server(server._app, bind=bind, **options)
        self._server.listen()
        found = self._server.addresses[0]
        self.bound_addr = tuple(found[:2]) if isinstance(found, tuple) else found

    def serve(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()


class _Cheroot:
    def __init__(self, server: CPWSGIServer) -> None:
        import cheroot.server
        import cheroot.wsgi

        class Request(cheroot.server.HTTPRequest):  # type: ignore[misc, unused-ignore]
            """Accepts absolute URLs, as RFC 9112, 3.2.2 asks of servers."""

            def __init__(self, server: Any, conn: Any) -> None:
                super().__init__(server, conn, proxy_mode=True)

        class Connection(cheroot.server.HTTPConnection):  # type: ignore[misc, unused-ignore]
            RequestHandlerClass = Request

        adapter = server.server_adapter
        self._server = made = cheroot.wsgi.Server(
            server.bind_addr, server._app, numthreads=int(adapter.thread_pool), max=int(adapter.thread_pool_max),
            request_queue_size=int(adapter.socket_queue_size), timeout=adapter.socket_timeout,
            shutdown_timeout=adapter.shutdown_timeout,
        )  # fmt: skip
        made.ConnectionClass = Connection
        made.protocol = adapter.protocol_version
        made.nodelay = adapter.nodelay
        made.max_request_header_size = adapter.max_request_header_size or 0
        made.max_request_body_size = adapter.max_request_body_size or 0
        if adapter.ssl_certificate:
            from cheroot.ssl.builtin import BuiltinSSLAdapter

            made.ssl_adapter = BuiltinSSLAdapter(
                adapter.ssl_certificate, adapter.ssl_private_key, adapter.ssl_certificate_chain, adapter.ssl_ciphers
            )
        made.prepare()
        self.bound_addr = made.bind_addr

    def set_timeout(self, seconds: float) -> None:
        self._server.timeout = seconds

    def serve(self) -> None:
        self._server.serve()

    def stop(self) -> None:
        self._server.stop()


class _Wsgiref:
    """For trying things out: HTTP/1.0, a thread for each connection."""

    def __init__(self, server: CPWSGIServer) -> None:
        from socketserver import ThreadingMixIn
        from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

        class Threading(ThreadingMixIn, WSGIServer):
            daemon_threads = True

        class Quiet(WSGIRequestHandler):
            def log_message(self, *_: Any) -> None:
                """The access log is the application's."""

        if not isinstance(server.bind_addr, tuple):
            raise ValueError("a Unix socket needs Kirsch or cheroot: pip install kirsch")
        self._server = Threading(server.bind_addr, Quiet)
        self._server.set_app(server._app)
        self._over = threading.Event()
        self.bound_addr = self._server.server_address[:2]

    def serve(self) -> None:
        try:
            self._server.serve_forever(poll_interval=0.05)
        finally:
            self._server.server_close()
            self._over.set()

    def stop(self) -> None:
        self._server.shutdown()
        self._over.wait(5)
