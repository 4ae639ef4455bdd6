"""Conversion of an ASGI request to WSGI: its environ and its input."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

from kirsch_web.errors import HTTPError
from kirsch_web.fields import environ_key
from kirsch_web.request import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from kirsch_web.interfaces import Application, RequestPlan

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]


def encoded(fields: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return header fields encoded for ASGI: bytes, with names in lower case."""
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields]


class Input(io.RawIOBase):
    """``wsgi.input`` over ``receive``.

    A read in another thread blocks until data arrives. The event loop's thread must not block, so the body, up to
    ``body.limit``, is received before an asynchronous handler is called.
    """

    def __init__(self, receive: Receive, loop: asyncio.AbstractEventLoop) -> None:
        self._receive = receive
        self.loop = loop
        self._thread = threading.get_ident()
        self.data = bytearray()
        """The bytes that have been received and not yet read."""
        self.more = True
        """True if more of the body can follow."""
        self.gone = False
        self._watcher: asyncio.Future[None] | None = None

    async def _arrive(self) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.more, self.gone = False, True
        else:
            self.data += message.get("body", b"")
            self.more = message.get("more_body", False)

    async def fill(self, size: int) -> None:
        """Receive until ``size`` bytes are in ``data`` or the body has ended."""
        while self.more and len(self.data) < size:
            await self._arrive()

    def readable(self) -> bool:
        """Return True, as io.RawIOBase demands of a readable stream."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the bytes that have arrived into ``buffer``; wait if there are none. Return their number, 0 at the
        end."""
        while not self.data and self.more:
            if threading.get_ident() == self._thread:
                raise RuntimeError(
                    "the body has not arrived, and this is the event loop's thread: take it as parameters of the "
                    "handler, or `await asyncio.to_thread(request.body)`, request.json or another that reads it"
                )
            asyncio.run_coroutine_threadsafe(self._arrive(), self.loop).result()
        if self.gone and not self.data:
            raise HTTPError(400, "the body ended before its time")
        count = min(len(buffer), len(self.data))
        buffer[:count] = self.data[:count]
        del self.data[:count]
        return count

    def disconnected(self) -> bool:
        """Return whether the client has closed the connection. The first call starts to watch for this."""
        if self._watcher is None and not self.more:
            self.loop.call_soon_threadsafe(self.watch)
        return self.gone

    def watch(self) -> asyncio.Future[None]:
        """Return a task that ends when the client closes the connection. The whole body must have been received,
        because the task receives all further messages."""
        if self._watcher is None:
            self._watcher = asyncio.ensure_future(self._watch())
        return self._watcher

    async def _watch(self) -> None:
        while not self.gone:
            await self._arrive()

    def end(self) -> None:
        """Stop watching the client, because the response is complete."""
        if self._watcher is not None:
            self._watcher.cancel()
        else:
            self._watcher = self.loop.create_future()  # so that no watcher starts later


@lru_cache(maxsize=1000)
def _key(name: bytes) -> str:
    """Return a header field's key in environ; "" for a name with an underscore, whose key would be that of the name
    with a dash."""
    return "" if b"_" in name else environ_key(name.decode("latin-1"))


def environ_of(scope: Scope, body: Input) -> dict[str, Any]:
    """Return the environ that a WSGI server makes for the request of ``scope``."""
    path, root, raw = scope["path"], scope.get("root_path", "").rstrip("/"), scope.get("raw_path")
    if "\ufffd" in path and raw:  # not UTF-8: keep the bytes, so that the path is refused later
        path = unquote_to_bytes(raw).decode("latin-1")
    elif not path.isascii():
        path = path.encode("utf-8", "surrogateescape").decode("latin-1")
    if not root.isascii():
        root = root.encode().decode("latin-1")
    if root and (path + "/").startswith(root + "/"):
        path = path[len(root) :]
    server, client = scope.get("server") or ("", None), scope.get("client")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope.get("method", "GET"),
        "SCRIPT_NAME": root,
        "PATH_INFO": path,
        "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
        "SERVER_NAME": server[0] or "localhost",
        "SERVER_PORT": str(server[1] or 80),
        "SERVER_PROTOCOL": f"HTTP/{scope.get('http_version', '1.1')}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"]),
        "wsgi.input": body,
        "wsgi.errors": scope.get("wsgi.errors") or sys.stderr,  # the test client gives its own
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "asgi.scope": scope,
    }
    if client:
        environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = client[0], str(client[1])
    for name, value in scope["headers"]:
        key = _key(bytes(name))
        if key:
            text = value.decode("latin-1")
            present = environ.get(key)
            if present is not None:
                text = f"{present}; {text}" if key == "HTTP_COOKIE" else f"{present},{text}"
            environ[key] = text
    return environ


def environ_with(scope: Scope, body: Input) -> dict[str, Any]:
    """Return the environ of an HTTP request, with ``kirsch.disconnected`` and the event loop for hooks and handlers."""
    environ = environ_of(scope, body)
    environ["kirsch.disconnected"] = body.disconnected
    environ["asgi.loop"] = body.loop
    return environ


class _Environ:
    """Descriptor of the environ of a :class:`BodilessRequest`. It makes the environ when it is first read."""

    def __get__(self, request: BodilessRequest, _owner: type) -> dict[str, Any]:
        environ = environ_with(request.scope, request.input())
        vars(request)["environ"] = environ
        return environ


class BodilessRequest(Request):
    """A request without a body, such as most GET requests. Its environ is made only if it is read, which few do."""

    environ: dict[str, Any] = _Environ()  # type: ignore[assignment]
    _input: Input | None = None

    def __init__(
        self, scope: Scope, receive: Receive, app: Application, plan: RequestPlan, rest: Sequence[str]
    ) -> None:
        self.scope = scope
        self._receive = receive
        self._loop = asyncio.get_running_loop()  # kept here, because the environ may be made in another thread
        self.app = app
        self.plan = plan
        self.rest = rest
        self.captured = None

    def input(self) -> Input:
        """Return the input, which is empty and only reports whether the client has left."""
        if self._input is None:
            self._input = Input(self._receive, self._loop)
            self._input.more = False
        return self._input

    def end_input(self) -> None:
        """End the input, if it was made, because the response is complete."""
        if self._input is not None:
            self._input.end()
