"""WebSockets of WSGI applications.

A request that asks for a WebSocket (RFC 6455) has ``environ["wsgi.websocket"]``, a :class:`WebSocket`; other requests
have no such variable. An application that does not use it answers with an ordinary response. Otherwise it has a
choice::

    def echo(environ, start_response):              # the call takes the messages, and holds its thread
        for message in environ["wsgi.websocket"]:
            environ["wsgi.websocket"].send(message)
        return []

    class Chat:                                     # a handler is called for each message, by any thread
        def message(self, ws, data):
            peers.send_all(data)

    def chat(environ, start_response):
        return accept(environ, Chat())(environ, start_response)

    def count(ws):                                  # a generator is a handler too: what it yields is sent
        total = 0
        while True:
            data = yield str(total)
            total += len(data)
"""

from __future__ import annotations

from kirsch._native import WebSocket
from kirsch.groups import Group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from typing import Any, Protocol, TypeAlias

    Message: TypeAlias = str | bytes

    class Handler(Protocol):
        """The receiver of the messages of WebSockets. Each method may be missing.

        They are called by any thread, one at a time for each WebSocket, in order. Each call is work as a request is: it
        waits for a thread, and ``--timeout`` applies to it. An exception is logged and closes the WebSocket with 1011.
        """

        def open(self, ws: WebSocket, /) -> object:
            """The WebSocket is open, and the call that has accepted it has returned."""

        def message(self, ws: WebSocket, data: Any, /) -> object:
            """A message has come: ``str`` or ``bytes``."""

        def close(self, ws: WebSocket, code: int, /) -> object:
            """No message follows: once, in every case. The code is that of the side that closed first (RFC 6455 section
            7.4): 1005 if the client gave none, 1006 if the connection ended without a word."""

    GeneratorHandler: TypeAlias = (
        Callable[[WebSocket], Generator[Message | None, Message, object]] | Generator[Message | None, Message, object]
    )
    AnyHandler: TypeAlias = Handler | GeneratorHandler | object

__all__ = ["Closed", "Group", "QueueFull", "Response", "WebSocket", "accept"]


class Closed(ConnectionError):
    """Raised where a WebSocket is used that is closed. It need not be caught: the call ends, and nothing is logged.

    ``code`` and ``reason`` are those of the side that closed first, see :attr:`WebSocket.close_code`; ``is_own`` says
    whether that was the application.
    """

    def __init__(self, code: int = 1006, reason: str = "", is_own: bool = False) -> None:
        super().__init__(code, reason, is_own)
        self.code = code
        self.reason = reason
        self.is_own = is_own

    def __str__(self) -> str:
        side = "the application has closed the WebSocket" if self.is_own else "the WebSocket is closed"
        return f"{side}: {self.code} {self.reason}".rstrip()


class QueueFull(Exception):
    """Raised by :meth:`WebSocket.send` where the client does not read: the message was not sent."""

    def __str__(self) -> str:
        return (
            "the client has more than 64 KiB still to read, and the message was not sent: leave it out, send it later, "
            "wait longer (timeout), or close the WebSocket"
        )


class Response:
    """A response of WSGI: to be returned from an application, and called as one. What :func:`accept` returns."""

    def __init__(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        self._status = status
        self._headers = headers
        self._body = body

    def __call__(
        self,
        environ: dict[str, Any],  # noqa: ARG002 - PEP 3333
        start_response: Callable[..., object],
    ) -> Iterable[bytes]:
        start_response(self._status, list(self._headers))
        return [self._body]


def accept(
    environ: dict[str, Any],
    handler: AnyHandler,
    *,
    subprotocol: str | None = None,
    headers: Iterable[tuple[str, str]] = (),
) -> Response:
    """Accept the WebSocket that the request asks for, and have ``handler`` take its messages when the call has
    returned.

    ``handler`` is an object with methods (:class:`Handler`), a generator function of the WebSocket, or a generator.
    ``subprotocol`` is one of :attr:`WebSocket.subprotocols`. ``headers`` are added to those of the handshake.

    Returns a WSGI application that the call passes on as its response: a Flask view returns it, plain WSGI calls it
    with ``environ`` and ``start_response``. What it answers is ignored, because the handshake was the response. Where
    the request does not ask for a WebSocket, or breaks a rule of the handshake, it answers with 400 and the version
    that is supported (RFC 6455 section 4.2.2).

    Raises ValueError and TypeError for a subprotocol, header or handler that cannot be used, and :class:`Closed` if the
    client has left.
    """
    websocket = environ.get("wsgi.websocket")
    if not isinstance(websocket, WebSocket):
        body = b"This address is for WebSocket: the request is no handshake of version 13.\n"
        fields = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Sec-WebSocket-Version", "13"),
        ]
        return Response("400 Bad Request", fields, body)
    websocket.accept(subprotocol, list(headers))
    websocket.handle(handler)
    return Response("200 OK", [("Content-Length", "0")], b"")
