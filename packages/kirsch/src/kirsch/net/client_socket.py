"""The socket of a client, for WSGI applications that implement WebSocket themselves (flask-sock, simple-websocket). The
environ of a WebSocket handshake has it as ``environ["werkzeug.socket"]``, as under Werkzeug's server. The first use
takes over the connection from the server, which then neither reads nor writes it. An application that does not use this
socket sends a response, or uses ``environ["wsgi.websocket"]``.
"""

from __future__ import annotations

import os
import socket
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kirsch._native import Hijack

# Held only for short moments, while a connection is taken over.
_taking = threading.Lock()


class ClientSocket:
    """A proxy for a blocking :class:`socket.socket` with all of its attributes. The socket is created at the first
    use."""

    __slots__ = ("__weakref__", "_hijack", "_sending", "_socket")

    def __init__(self, hijack: Hijack) -> None:
        self._hijack = hijack
        self._socket: socket.socket | None = None
        self._sending: threading.Lock | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._socket or 'a connection that is not taken over'}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            # copy, pickle, inspect and others look up such names without using the socket.
            raise AttributeError(name)
        return getattr(self._take(), name)

    def send(self, data: Any, flags: int = 0, /) -> int:
        """Send all of ``data`` if the socket is blocking without a timeout; return the number of bytes sent.
        simple-websocket does not check that number. Data of several threads is not interleaved.
        """
        sock = self._take()
        if flags or sock.gettimeout() is not None:
            return sock.send(data, flags)
        self.sendall(data)
        return memoryview(data).nbytes

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """Send all of ``data``, after sends of other threads have ended."""
        sock = self._take()
        assert self._sending is not None
        with self._sending:
            sock.sendall(data, flags)

    def close(self) -> None:
        """Close the connection, unless the application has another reference to it (``makefile``)."""
        sock = self._take()
        sock.close()
        if sock.fileno() < 0:
            self._hijack.end()

    def __enter__(self) -> ClientSocket:
        self._take()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._socket is None:
            return
        try:
            self._socket.close()
            self._hijack.end()
        except RuntimeError:
            # The interpreter has run this finalizer in a thread that is inside the server. The server ends the
            # connection some seconds after the call.
            pass

    def _take(self) -> socket.socket:
        if self._socket is None:
            with _taking:
                if self._socket is None:
                    self._sending = threading.Lock()
                    self._socket = _opened(self._hijack.take())
        return self._socket


def _opened(descriptor: int) -> socket.socket:
    try:
        # The possibly patched class: under gevent it lets other greenlets run while it waits.
        opened = socket.socket(fileno=descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    # The server's descriptor is non-blocking, and both share one open file description.
    opened.setblocking(True)
    return opened
