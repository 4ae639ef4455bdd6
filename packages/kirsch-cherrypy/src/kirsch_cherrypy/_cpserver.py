"""``cherrypy.server``: the address, and the HTTP server that ``engine.start()`` starts."""

from __future__ import annotations

from typing import Any

from kirsch_cherrypy._cpwsgi_server import CPWSGIServer
from kirsch_cherrypy.lib.reprconf import attributes
from kirsch_cherrypy.process.servers import ServerAdapter
from kirsch_cherrypy.process.wspbus import bus


class Server(ServerAdapter):
    """The options of a server (see :mod:`_cpwsgi_server`). Other options can be set, but have no effect."""

    # Options of both Kirsch and cheroot.
    thread_pool: Any = 10
    shutdown_timeout: Any = 5
    max_request_body_size: Any = 100 * 1024 * 1024
    socket_port: Any = 8080
    socket_file: Any = None
    # Options of cheroot only.
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
    # The server: its class or dotted name; default: CPWSGIServer.
    instance: Any = None
    _socket_host: Any = "127.0.0.1"
    _bound: Any = None
    _made = False

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
        """The address to bind: ``(host, port)``, the path of a Unix socket, or None."""
        address = (self.socket_host, self.socket_port)
        return self.socket_file or (None if address == (None, None) else address)

    @bind_addr.setter
    def bind_addr(self, value: Any) -> None:
        is_path = isinstance(value, str)
        if not (value is None or is_path or (isinstance(value, tuple) and len(value) == 2)):
            raise ValueError(f"bind_addr is (host, port) or the path of a Unix socket, and not {value!r}")
        self.socket_file = value if is_path else None
        self.socket_host, self.socket_port = (None, None) if is_path or value is None else value

    @property
    def bound_addr(self) -> Any:
        """The address on which the server listens, with the actual port. ``bind_addr`` while it does not listen."""
        return self.bind_addr if self._bound is None else self._bound

    def httpserver_from_self(self, httpserver: Any = None) -> tuple[Any, Any]:
        """Return the server object and its address."""
        httpserver = self.instance if httpserver is None else httpserver
        if httpserver is None or isinstance(httpserver, str):
            httpserver = (attributes(httpserver) if httpserver else CPWSGIServer)(self)
        return httpserver, self.bind_addr

    def start(self) -> None:
        """Start the server."""
        if not self.httpserver or isinstance(self.httpserver, str):
            self.httpserver, _ = self.httpserver_from_self(self.httpserver or None)
            self._made = True
        super().start()
        self._bound = getattr(self.httpserver, "bound_addr", None)

    def stop(self) -> None:
        """Stop the server. If the port was 0, it is set to the actual port, for the next start."""
        super().stop()
        if isinstance(self._bound, tuple) and isinstance(self.bind_addr, tuple):
            self.socket_port = self._bound[1]
        self._bound = None
        if self._made:  # a server object cannot be started again
            self.httpserver, self._made = None, False

    def base(self) -> str:
        """Return scheme and host for URLs that are built outside of requests."""
        if self.socket_file:
            return str(self.socket_file)
        host = self.socket_host
        if host in ("0.0.0.0", "::", None):  # noqa: S104 - use a name that clients can reach
            import socket

            host = socket.gethostname()
        scheme, usual = ("https", 443) if self.ssl_certificate else ("http", 80)
        return f"{scheme}://{host}" + ("" if self.socket_port == usual else f":{self.socket_port}")
