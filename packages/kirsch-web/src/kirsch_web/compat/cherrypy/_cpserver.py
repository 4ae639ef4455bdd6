"""``cherrypy.server``: the address, and the HTTP server that ``engine.start()`` starts."""

from __future__ import annotations

from typing import Any

from kirsch_web.compat.cherrypy._cpwsgi_server import CPWSGIServer
from kirsch_web.compat.cherrypy.lib.reprconf import attributes
from kirsch_web.compat.cherrypy.process.servers import ServerAdapter
from kirsch_web.compat.cherrypy.process.wspbus import bus


class Server(ServerAdapter):
    """The options of a server. Its engine is Kirsch, or what is installed: see :mod:`_cpwsgi_server`."""

    # Kirsch and cheroot both have these.
    thread_pool: Any = 10
    shutdown_timeout: Any = 5
    max_request_body_size: Any = 100 * 1024 * 1024
    socket_port: Any = 8080
    socket_file: Any = None
    # cheroot's.
    protocol_version: Any = "HTTP/1.1"
    nodelay: Any = True
    socket_timeout: Any = 10
    socket_queue_size: Any = 5
    thread_pool_max: Any = -1
    max_request_header_size: Any = 500 * 1024
    ssl_certificate: Any = None
    ssl_private_key: Any = None
    ssl_certificate_chain: Any = None
    ssl_ciphers: Any = None
    # Of no effect: names that configurations set.
    accepted_queue_size: Any = -1
    accepted_queue_timeout: Any = 10
    max_request_line_size: Any = None
    peercreds: Any = False
    peercreds_resolve: Any = False
    ssl_context: Any = None
    ssl_module: Any = "builtin"
    statistics: Any = False
    wsgi_version: Any = (1, 0)
    using_apache = False
    using_wsgi = True
    instance: Any = None
    _socket_host: Any = "127.0.0.1"

    def __init__(self) -> None:
        super().__init__(bus)

    @property
    def socket_host(self) -> Any:
        """The address to listen on."""
        return self._socket_host

    @socket_host.setter
    def socket_host(self, value: Any) -> None:
        if value == "":
            raise ValueError("server.socket_host may not be ''; use '0.0.0.0' to listen on all IPv4 addresses")
        self._socket_host = value

    @property
    def bind_addr(self) -> Any:
        """``(host, port)``, or the path of a Unix socket."""
        address = (self.socket_host, self.socket_port)
        return self.socket_file or (None if address == (None, None) else address)

    @bind_addr.setter
    def bind_addr(self, value: Any) -> None:
        if value is None:
            self.socket_file = self.socket_host = self.socket_port = None
        elif isinstance(value, str):
            self.socket_file = value
            self.socket_host = self.socket_port = None
        elif isinstance(value, tuple) and len(value) == 2:
            self.socket_host, self.socket_port = value
            self.socket_file = None
        else:
            raise ValueError(f"bind_addr is (host, port) or the path of a Unix socket, and not {value!r}")

    @property
    def bound_addr(self) -> Any:
        """Where it listens, with the real port; while it does not, ``bind_addr``."""
        return self.bind_addr if self._bound is None else self._bound

    _bound: Any = None

    def httpserver_from_self(self, httpserver: Any = None) -> tuple[Any, Any]:
        """The server object and its address."""
        httpserver = self.instance if httpserver is None else httpserver
        make = attributes(httpserver) if isinstance(httpserver, str) else CPWSGIServer if httpserver is None else None
        if make is not None:
            httpserver = make(self)
        return httpserver, self.bind_addr

    def start(self) -> None:
        """Start the server."""
        if not self.httpserver or isinstance(self.httpserver, str):
            self.httpserver, _ = self.httpserver_from_self(self.httpserver or None)
            self._made = True
        super().start()
        self._bound = getattr(self.httpserver, "bound_addr", None)

    start.priority = 75  # type: ignore[attr-defined]
    _made = False

    def stop(self) -> None:
        """Stop the server. A port 0 keeps the number that it became."""
        super().stop()
        if self._bound is not None and isinstance(self._bound, tuple) and isinstance(self.bind_addr, tuple):
            self.socket_port = self._bound[1]
        self._bound = None
        if self._made:  # a server serves once
            self.httpserver, self._made = None, False

    stop.priority = 25  # type: ignore[attr-defined]

    def base(self) -> str:
        """Scheme and host for URLs that are made outside of requests."""
        if self.socket_file:
            return str(self.socket_file)
        host = self.socket_host
        if host in ("0.0.0.0", "::", None):  # noqa: S104 - a name that clients can use
            import socket

            host = socket.gethostname()
        scheme = "https" if self.ssl_certificate else "http"
        port = self.socket_port
        shown = "" if port == {"http": 80, "https": 443}[scheme] else f":{port}"
        return f"{scheme}://{host}{shown}"
