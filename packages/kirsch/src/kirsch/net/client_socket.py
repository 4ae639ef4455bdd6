"""The socket of a client, for WSGI applications that speak WebSocket by themselves (flask-sock, simple-websocket).

A request that asks for a WebSocket has ``environ["werkzeug.socket"]``, where Werkzeug's server puts its socket too. It
is lazy: with the first use the application takes the connection over, and from then on Kirsch neither reads nor writes
there. An application that does not use it answers with a response, or by ``environ["wsgi.websocket"]``.
"""

from __future__ import annotations

import os
import socket
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kirsch._native import Hijack

# Held for moments, and only where a connection is taken over.
_taking = threading.Lock()


class ClientSocket:
    """A :class:`socket.socket` that blocks, with all of its attributes, made when one is used for the first time."""

    __slots__ = ("__weakref__", "_hijack", "_sending", "_socket")

    def __init__(self, hijack: Hijack) -> None:
        self._hijack = hijack
        self._socket: socket.socket | None = None
        self._sending: threading.Lock | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._socket or 'a connection that is not taken over'}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            # Asked by copy, pickle, inspect and the like, which do not use the socket.
            raise AttributeError(name)
        return getattr(self._take(), name)

    def send(self, data: Any, flags: int = 0, /) -> int:
        """Send all of ``data``, as far as the socket waits for that; return its length.

        simple-websocket does not look how much was sent. And several threads may send: what one of them sends is not
        torn apart.
        """
        sock = self._take()
        if flags or sock.gettimeout() is not None:
            return sock.send(data, flags)
        self.sendall(data)
        return memoryview(data).nbytes

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """Send all of ``data``; another thread that sends waits."""
        sock = self._take()
        assert self._sending is not None
        with self._sending:
            sock.sendall(data, flags)

    def close(self) -> None:
        """Close the connection, as far as nothing else of the application's has it open (``makefile``)."""
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
            # The interpreter has run this finalizer while its thread is in the server. The connection ends some seconds
            # after its call.
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
        # From the module as it may be patched: under gevent the function lets other greenlets run.
        opened = socket.socket(fileno=descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    # The server's own does not block, and both are one open file.
    opened.setblocking(True)
    return opened
