"""The HTTP server of ``quickstart()`` and ``engine.start()``: Kirsch if it is installed, else cheroot, else wsgiref.

In production, prefer the command ``kirsch module:application``, which has workers and reloading.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from kirsch_cherrypy import _globals


class CPWSGIServer:
    """Serves ``cherrypy.tree`` at the address of a :class:`~kirsch_cherrypy._cpserver.Server`."""

    ready = False
    bound_addr: Any = None
    interrupt: Any = None
    _backend: Any = None

    def __init__(self, server_adapter: Any = None) -> None:
        self.server_adapter = _globals.server if server_adapter is None else server_adapter
        self.wsgi_app: Any = _globals.tree
        self.bind_addr = self.server_adapter.bind_addr

    def _app(self, environ: dict[str, Any], start_response: Any) -> Any:
        return self.wsgi_app(environ, start_response)

    def prepare(self) -> None:
        """Create the server and bind its address. Raises OSError if that fails."""
        adapter = self.server_adapter
        tls = bool(adapter.ssl_certificate)
        if importlib.util.find_spec("kirsch") and not tls:  # the ssl options are those of cheroot
            make = _kirsch
        elif importlib.util.find_spec("cheroot"):
            make = _cheroot
        elif tls:
            raise ValueError("server.ssl_certificate needs cheroot: pip install cheroot; or a proxy with TLS in front")
        else:
            make = _wsgiref
        self._backend, self.serve, self.bound_addr = make(self._app, self.bind_addr, adapter)
        self.ready = True

    def start(self) -> None:
        """Bind the address, and serve until :meth:`stop`."""
        self.prepare()
        self.serve()

    def stop(self) -> None:
        """Stop serving. Running requests have ``shutdown_timeout`` seconds to finish."""
        self.ready = False
        if self._backend is not None:
            self._backend.stop()

    @property
    def timeout(self) -> Any:
        """How many seconds a connection may be idle, if the server is cheroot."""
        return getattr(self._backend, "timeout", self.server_adapter.socket_timeout)

    @timeout.setter
    def timeout(self, seconds: Any) -> None:
        if hasattr(self._backend, "timeout"):
            self._backend.timeout = seconds


# Each of these functions binds, and returns the server, the function that serves, and the bound address.


def _kirsch(app: Any, address: Any, adapter: Any) -> tuple[Any, Any, Any]:
    import kirsch

    options: dict[str, Any] = {
        "threads": int(adapter.thread_pool), "graceful_timeout": float(adapter.shutdown_timeout)
    }  # fmt: skip
    if adapter.max_request_body_size:
        options["limit_request_body"] = int(adapter.max_request_body_size)
    if isinstance(address, tuple):
        host, port = address
        bind = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    else:
        bind = f"unix:{address}"
    server = kirsch.Server(app, bind=bind, **options)
    server.listen()
    found = server.addresses[0]
    return server, server.start, tuple(found[:2]) if isinstance(found, tuple) else found


def _cheroot(app: Any, address: Any, adapter: Any) -> tuple[Any, Any, Any]:
    import cheroot.server
    import cheroot.wsgi

    class Request(cheroot.server.HTTPRequest):  # type: ignore[misc, unused-ignore]
        """Accepts absolute URLs in request lines, as RFC 9112, 3.2.2 requires."""

        def __init__(self, server: Any, conn: Any) -> None:
            super().__init__(server, conn, proxy_mode=True)

    class Connection(cheroot.server.HTTPConnection):  # type: ignore[misc, unused-ignore]
        RequestHandlerClass = Request

    server = cheroot.wsgi.Server(
        address, app, numthreads=int(adapter.thread_pool), max=int(adapter.thread_pool_max),
        request_queue_size=int(adapter.socket_queue_size), timeout=adapter.socket_timeout,
        shutdown_timeout=adapter.shutdown_timeout,
    )  # fmt: skip
    server.ConnectionClass = Connection
    server.protocol, server.nodelay = adapter.protocol_version, adapter.nodelay
    server.max_request_header_size = adapter.max_request_header_size or 0
    server.max_request_body_size = adapter.max_request_body_size or 0
    if adapter.ssl_certificate:
        from cheroot.ssl.builtin import BuiltinSSLAdapter

        server.ssl_adapter = BuiltinSSLAdapter(
            adapter.ssl_certificate, adapter.ssl_private_key, adapter.ssl_certificate_chain, adapter.ssl_ciphers
        )
    server.prepare()
    return server, server.serve, server.bind_addr


def _wsgiref(app: Any, address: Any, adapter: Any) -> tuple[Any, Any, Any]:
    from kirsch_web.threaded import ThreadedServer

    if not isinstance(address, tuple):
        raise ValueError("a Unix socket needs Kirsch or cheroot: pip install kirsch")
    server = ThreadedServer(address, app)
    return server, server.serve, server.server_address[:2]
