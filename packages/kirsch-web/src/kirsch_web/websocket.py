"""WebSockets as handlers, under ASGI.

    async def chat(self, room: str, *, ws: web.WebSocket) -> None:
        async for message in ws:
            await ws.send(f"{room}: {message}")

The path, its parameters, hooks and configuration are those of GET. A handler that raises or returns before it has
accepted the handshake rejects it with the response that a GET would have.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from kirsch_web import pages
from kirsch_web.asgi_request import Input, encoded, environ_of
from kirsch_web.errors import HTTPError, InternalRedirect, NotFound
from kirsch_web.pipeline import handle
from kirsch_web.request import NOTHING, reset_current, set_current

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from kirsch_web.app import App
    from kirsch_web.asgi_request import Receive, Scope, Send
    from kirsch_web.request import Request

    class Face(Protocol):
        """The part of :class:`kirsch_web.asgi.ASGI` that a WebSocket uses."""

        app: App

        async def found(self, environ: dict[str, Any]) -> Request: ...
        async def resource(
            self, request: Request, error: Exception | None, result: object
        ) -> tuple[str, list[tuple[str, str]], Any]: ...
        async def end(self, request: Request) -> None: ...
        async def thread(self, function: Callable[..., Any], *arguments: Any) -> Any: ...


KEY = "asgi.websocket"
"""The key in ``environ`` of the request's WebSocket."""


class Closed(ConnectionError):
    """Raised when a closed WebSocket is used. A handler need not catch it.

    ``code`` is the code of the client's Close frame: 1005 if it had none, 1006 if the connection ended without one.
    """

    def __init__(self, code: int = 1006, reason: str = "") -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return f"the WebSocket is closed: {self.code} {self.reason}".rstrip()


class WebSocket:
    """The WebSocket of a request: a parameter of this type makes a coroutine function its handler.

    ``async for message in ws`` yields all messages. The first use accepts the handshake unless :meth:`accept` was
    called. The WebSocket is closed with 1000 when the handler returns, with 1011 when it raises an exception.
    """

    _request: Request
    accepted = False
    closed = False
    """True if either side has closed the WebSocket."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        """The scope of ASGI, by which ``kirsch.Group`` finds the WebSocket."""
        self._receive = receive
        self._send = send
        self.subprotocols: list[str] = list(scope.get("subprotocols", ()))
        """The subprotocols that the client offers."""

    @classmethod
    def __from_request__(cls, request: Request) -> WebSocket:
        found: WebSocket | None = request.environ.get(KEY)
        if found is None:
            raise HTTPError(426, "this path speaks WebSocket, and needs ASGI for it")
        found._request = request
        return found

    async def accept(
        self, subprotocol: str = "", *, headers: Iterable[tuple[str, str]] = (), origins: Iterable[str] = ()
    ) -> None:
        """Accept the handshake.

        Pages of other sites can open a WebSocket with the cookies of this site and read its messages. So a handshake
        from another origin is refused with 403.

        Args:
            subprotocol: one of :attr:`subprotocols`.
            headers: further fields of the response.
            origins: other origins that are accepted, such as ``https://shop.example``; ``*`` for all.
        """
        origin = self._request.headers.get("Origin").lower()
        others = {each.lower() for each in origins}
        if origin and origin != self._request.origin.lower() and not others & {origin, "*"}:
            raise HTTPError(403, "this handshake comes from another site (Origin)")
        message: dict[str, Any] = {"type": "websocket.accept", "headers": encoded(headers)}
        if subprotocol:
            message["subprotocol"] = subprotocol
        self.accepted = True
        await self._sent(message)

    async def receive(self) -> str | bytes:
        """Return the next message: text, or bytes. Raises :class:`Closed` if none follows."""
        if not self.accepted:
            await self.accept()
        if self.closed:
            raise Closed
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self.closed = True
            raise Closed(message.get("code", 1005), message.get("reason") or "")
        text: str | None = message.get("text")
        data: bytes = message.get("bytes") or b""
        return data if text is None else text

    async def send(self, data: str | bytes) -> None:
        """Send a message: text for a str, binary for bytes. Raises :class:`Closed` if the client has left."""
        if not self.accepted:
            await self.accept()
        await self._sent({"type": "websocket.send", "text" if isinstance(data, str) else "bytes": data})

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the WebSocket, unless it is already closed."""
        if not self.closed:
            if not self.accepted:
                await self.accept()
            await self._sent({"type": "websocket.close", "code": code, "reason": reason})
            self.closed = True

    async def _sent(self, message: dict[str, Any]) -> None:
        if self.closed:
            raise Closed
        try:
            await self._send(message)
        except OSError:
            self.closed = True
            raise Closed from None

    async def __aiter__(self) -> Any:
        try:
            while True:
                yield await self.receive()
        except Closed:
            return


async def converse(face: Face, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a scope of the type ``websocket``."""
    if (await receive())["type"] != "websocket.connect":
        return
    loop = asyncio.get_running_loop()
    environ = environ_of(scope, Input(receive, loop))
    environ["asgi.loop"] = loop  # for asynchronous hooks
    ws = environ[KEY] = WebSocket(scope, receive, send)
    request = await face.found(environ)
    token = set_current(request)
    try:
        error, result = await _handled(face, request)
        if ws.accepted:
            await _finished(request, ws, error)
            return
        line, fields, content = await face.resource(request, error, result)
        await _deny(scope, send, int(line[:3]), fields, content)
    finally:
        await face.end(request)
        reset_current(token)


async def _handled(face: Face, request: Request) -> tuple[Exception | None, object]:
    """Return the exception of the handler, and its result."""
    plan: Any = request.plan
    shape = plan.shape
    takes = shape is not None and any(getattr(each.inject, "__self__", None) is WebSocket for each in shape.parameters)
    try:
        if plan.function is not None and not takes:
            raise NotFound("this path speaks no WebSocket")
        result = await face.thread(handle, request)
        return None, await result if inspect.isawaitable(result) else result
    except InternalRedirect as redirect:
        return RuntimeError(f"a WebSocket cannot be redirected to {redirect.path}"), NOTHING
    except Exception as error:  # noqa: BLE001 - it closes the WebSocket, or becomes a response
        return error, NOTHING


async def _finished(request: Request, ws: WebSocket, error: Exception | None) -> None:
    """Close a WebSocket whose handler has ended."""
    if error is not None and not isinstance(error, Closed):
        pages.report(request, error)
    try:
        await ws.close(1000 if error is None else 1011)
    except Closed:
        return


async def _deny(scope: Scope, send: Send, status: int, fields: list[tuple[str, str]], content: Any) -> None:
    """Reject the handshake with a response, if the server can send one; otherwise the server answers 403."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    # A response that succeeds would be read as one to the handshake.
    status = status if status >= 300 else 403
    await send({"type": "websocket.http.response.start", "status": status, "headers": encoded(fields)})
    body = content[0] if type(content) is list and content else b""
    await send({"type": "websocket.http.response.body", "body": body})
