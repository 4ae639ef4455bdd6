"""WebSockets of WSGI applications.

The environ of a WebSocket handshake (RFC 6455) has a :class:`WebSocket` as ``environ["wsgi.websocket"]``; those of
other requests have no such variable. The application may reject the handshake with an ordinary response, or use the
WebSocket in one of these ways::

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
        """The interface of an object that receives WebSocket messages. Every method is optional.

        Any thread may call the methods; the calls for one WebSocket are serial and in order. Each call is scheduled
        like a request: it waits for a thread, and ``--timeout`` applies. An exception is logged and closes the
        WebSocket with code 1011.
        """

        def open(self, ws: WebSocket, /) -> object:
            """Called once when the WebSocket is open and the call that accepted it has returned."""

        def message(self, ws: WebSocket, data: Any, /) -> object:
            """Called for each message: ``str`` for text, ``bytes`` for binary."""

        def close(self, ws: WebSocket, code: int, /) -> object:
            """Called exactly once, after the last message. ``code`` is the code of the side that closed first (RFC 6455
            section 7.4): 1005 if the client gave none, 1006 if the connection ended without a Close frame."""

    GeneratorHandler: TypeAlias = (
        Callable[[WebSocket], Generator[Message | None, Message, object]] | Generator[Message | None, Message, object]
    )
    AnyHandler: TypeAlias = Handler | GeneratorHandler | object

__all__ = ["Closed", "Group", "QueueFull", "Response", "WebSocket", "accept"]


class Closed(ConnectionError):
    """Raised if a closed WebSocket is used. The application need not catch it: the call ends, and nothing is logged.

    ``code`` and ``reason`` are those of the side that closed first, see :attr:`WebSocket.close_code`; ``is_own`` is
    true if the application closed first.
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
    """Raised by :meth:`WebSocket.send` if the client does not read fast enough. The message was not sent."""

    def __str__(self) -> str:
        return (
            "the client has more than 64 KiB still to read, and the message was not sent: leave it out, send it later, "
            "wait longer (timeout), or close the WebSocket"
        )


class Response:
    """The WSGI response that :func:`accept` returns: a view returns it, or calls it as a WSGI application."""

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
    """Accept the WebSocket handshake of a request; ``handler`` receives the messages after the call has returned.

    ``handler`` is an object with methods (:class:`Handler`), a generator function that takes the WebSocket, or a
    generator. ``subprotocol`` is one of :attr:`WebSocket.subprotocols`. ``headers`` are added to the handshake
    response.

    Returns a WSGI application as the response of the call: a Flask view returns it, plain WSGI calls it with
    ``environ`` and ``start_response``. The server ignores its output, because the handshake was the response. If the
    request is no valid WebSocket handshake, it responds with 400 and the supported version (RFC 6455 section 4.2.2).

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
