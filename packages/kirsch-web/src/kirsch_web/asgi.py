"""The ASGI interface of an application: ``asgi = web.ASGI(app)`` runs under every ASGI 3 server.

Under ASGI handlers may be coroutine functions and asynchronous generators, and a handler with a parameter of type
:class:`kirsch_web.websocket.WebSocket` answers a WebSocket. Plans and pipeline are the same as for WSGI. A request has
the environ that a WSGI server would make, and ``asgi.scope`` in it.

Only coroutines run in the event loop. Code that may block runs in threads: handlers that are plain functions, each
step of their streams, hooks, dispatchers that call the application, and the parsing of a multipart body.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from kirsch_web.asgi_request import BodilessRequest, Input, encoded, environ_with
from kirsch_web.errors import InternalRedirect
from kirsch_web.fields import media_type
from kirsch_web.finalize import end, with_earlier_cookies
from kirsch_web.hooks import is_asynchronous
from kirsch_web.pipeline import MAX_INTERNAL_REDIRECTS, PLAIN, handle, redirected, response_of, too_many_redirects
from kirsch_web.request import NOTHING, Request, current, reset_current, set_current
from kirsch_web.response import Response, encode_json, length_fields, lengths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from kirsch_web.app import App
    from kirsch_web.asgi_request import Receive, Scope, Send
    from kirsch_web.finalize import Parts
    from kirsch_web.plan import Plan

    Begun = tuple[Exception | None, object]
    """The exception that a handler has raised, or None, and the result that it has returned."""


class ASGI:
    """An ASGI 3 application that serves ``app``.

    Args:
        app: the application.
        lifespan: a function from the application to an asynchronous context manager. The manager is entered after the
            application's start callbacks and before the first request, and left after the last request.
        threads: the maximum number of threads in which plain functions run.
    """

    def __init__(
        self, app: App, *, lifespan: Callable[[App], AbstractAsyncContextManager[object]] | None = None,
        threads: int = 40,
    ) -> None:  # fmt: skip
        self.app = app
        self._lifespan = lifespan
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._starting = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            request = self._quick_request(scope, receive)
            await (self._http(scope, receive, send) if request is None else self._quick(request, send))
        elif kind == "websocket":
            from kirsch_web.websocket import converse

            await converse(self, scope, receive, send)
        elif kind == "lifespan":
            await self._live(receive, send)
        else:
            raise RuntimeError(f"kirsch_web serves the scopes http, websocket and lifespan, not {kind!r}")

    async def _live(self, receive: Receive, send: Send) -> None:
        """Serve the lifespan scope, from the server's startup to its shutdown."""
        await receive()
        manager = None if self._lifespan is None else self._lifespan(self.app)
        try:
            await self._start()
            if manager is not None:
                await manager.__aenter__()
        except BaseException as error:
            await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        try:
            if manager is not None:
                await manager.__aexit__(None, None, None)
            await self.app._lifecycle.stop_in_loop(self.thread)
        except BaseException as error:
            await send({"type": "lifespan.shutdown.failed", "message": f"{type(error).__name__}: {error}"})
            raise
        finally:
            pool, self._pool = self._pool, None
            if pool is not None:
                pool.shutdown(wait=False)
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> None:
        """Run the start callbacks that have not run yet. Without lifespan events the first request causes this."""
        async with self._starting:
            await self.app._lifecycle.start_in_loop(self.thread)
        self.app._set_tables()

    # Requests

    def _quick_request(self, scope: Scope, receive: Receive) -> BodilessRequest | None:
        """Return the request if it needs nothing but a coroutine function: it has no body and no hooks, and at most the
        last segment of its path is variable. Return None for other requests."""
        path, app = scope["path"], self.app
        plans = app._exact.get(scope["method"])
        if plans is None or scope.get("root_path") or not path.isascii():
            return None
        rest: tuple[str, ...] = ()
        plan = plans.get(path)
        if plan is None:
            head, _, last = path.rpartition("/")
            plan = app._leaves.get(scope["method"], {}).get(head) if last else None
            if plan is None:
                return None
            rest = (last,)
        encoded_fields = plan.encoded
        if encoded_fields is None:
            encoded_fields = plan.encoded = _encoded_fields(plan)
        if not encoded_fields:
            return None
        for name, _ in scope["headers"]:
            if name in _OF_A_BODY:
                return None
        return BodilessRequest(scope, receive, app, plan, rest)

    async def _quick(self, request: BodilessRequest, send: Send) -> None:
        token = set_current(request)
        try:
            error: Exception | None = None
            result: Any = NOTHING
            content = None
            try:
                result = await request.plan.run(request)  # type: ignore[misc]
                if request._response is None:
                    if type(result) is str:
                        content, fields = result.encode(), request.plan.encoded[0]
                    elif type(result) in PLAIN:
                        content, fields = encode_json(result), request.plan.encoded[1]
            except Exception as failure:  # noqa: BLE001 - whatever a handler raises becomes a response
                error, content = failure, None
            if content is None:
                await self._rest(request, request.input(), send, (error, result))
                return
            fields = fields + (lengths.get(len(content)) or length_fields(len(content)))[1]
            if request._varies:
                fields.append(_VARY)
            await send({"type": "http.response.start", "status": request.plan.status, "headers": fields})
            await send({"type": "http.response.body", "body": content})
            request.end_input()
        finally:
            reset_current(token)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = Input(receive, asyncio.get_running_loop())
        environ = environ_with(scope, body)
        if scope["method"] not in ("GET", "HEAD") or "CONTENT_LENGTH" in environ or "HTTP_TRANSFER_ENCODING" in environ:
            await body.fill(1)
            if body.more:
                environ["wsgi.input_terminated"] = True
            else:  # a request of HTTP/2 may omit the length, and the complete body shows it
                environ.setdefault("CONTENT_LENGTH", str(len(body.data)))
        else:
            body.more = False
        request = await self.found(environ)
        token = set_current(request)
        try:
            await self._rest(request, body, send)
        finally:
            reset_current(token)

    async def _rest(self, request: Request, body: Input, send: Send, begun: Begun | None = None) -> None:
        """Answer the current request, and end it. ``begun`` is the outcome of its handler, if it has already run."""
        try:
            await self._respond(await self._answer(request, body, begun), send, body)
        finally:
            body.end()
            await self.end(current())

    async def found(self, environ: dict[str, Any]) -> Request:
        """Return the request of ``environ`` with its plan. If the look-up may call the application's code, it runs in a
        thread."""
        app = self.app
        plan = app._exact.get(environ["REQUEST_METHOD"], {}).get(environ["PATH_INFO"])
        if plan is not None:
            return Request(environ, app, plan, (), None)
        if app._lifecycle.pending:
            await self._start()
        return await self.thread(app._request, environ) if app.finder.dynamic else app._request(environ)

    async def _answer(self, request: Request, body: Input, begun: Begun | None) -> Parts:
        """Return the response. After an internal redirect it is that of a new request, which has become the current
        one."""
        for _ in range(MAX_INTERNAL_REDIRECTS + 1):
            try:
                if begun is not None:
                    (error, result), begun = begun, None
                    return _with_cookies(request, await self.resource(request, error, result))
                return _with_cookies(request, await self._parts(request, body))
            except InternalRedirect as redirect:
                try:
                    request, _ = await self.thread(redirected, request, redirect)
                except Exception as failure:  # noqa: BLE001 - saving the session failed: the error becomes the response
                    return _with_cookies(request, await self.resource(request, failure, NOTHING))
                set_current(request)
        return _with_cookies(request, await self.thread(too_many_redirects, request))

    async def _parts(self, request: Request, body: Input) -> Parts:
        plan: Any = request.plan
        inline = is_asynchronous(plan.function, _RUNS_LATER)
        if inline and body.more and request.environ["wsgi.input"] is body:
            if media_type(request.environ.get("CONTENT_TYPE", ""))[0] == "multipart/form-data":
                inline = False  # parsing it blocks: it reads the whole body and writes files
            else:
                await body.fill(plan.limits.limit + 1)
        inline = inline and not plan.hooks
        found = self._begin(request) if inline else await self.thread(self._begin, request)
        if type(found) is tuple:
            return found
        error: Exception | None = None
        result = NOTHING
        try:
            result = await found
        except Exception as failure:  # noqa: BLE001 - whatever a handler raises becomes a response
            error = failure
        return await self.resource(request, error, result)

    def _begin(self, request: Request) -> Any:
        """Run the hooks and call the handler. Return the response, or an awaitable whose result is the handler's."""
        try:
            result = handle(request)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises becomes a response
            return response_of(request, error, NOTHING)
        if inspect.isawaitable(result):
            return result
        if inspect.isasyncgen(result) and not request.plan.streams:
            return _collected(result, request.plan.status)
        return response_of(request, None, result)

    async def resource(self, request: Request, error: Exception | None, result: object) -> Parts:
        """Return the response for the handler's ``error`` or ``result``."""
        make = partial(response_of, request, error, result)
        return make() if not request.plan.hooks else await self.thread(make)

    async def end(self, request: Request) -> None:
        """End a request: run its hooks of ``on_end_request`` and remove its temporary files."""
        if request.plan.points.on_end_request is not None or request._form is not None:
            await self.thread(end, request)

    async def thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a thread, with the context of this task, and return its result.

        If the task is cancelled meanwhile, it waits for the thread, because only one thread may work on a request.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "kirsch_web")
        call = partial(contextvars.copy_context().run, function, *arguments)
        future = asyncio.get_running_loop().run_in_executor(self._pool, call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            future.exception()  # retrieved, so that asyncio does not report it as never retrieved
            raise

    # Responses

    async def _respond(self, parts: Parts, send: Send, body: Input) -> None:
        line, fields, content = parts
        await send({"type": "http.response.start", "status": int(line[:3]), "headers": encoded(fields)})
        if type(content) is list:
            await send({"type": "http.response.body", "body": content[0] if content else b""})
            return
        producer = asyncio.ensure_future(self._produce(content, send))
        tasks: set[asyncio.Future[None]] = {producer}
        if not body.more:
            tasks.add(body.watch())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not producer.done():
                producer.cancel()
                await asyncio.wait([producer])
        if not producer.cancelled():
            producer.result()

    async def _produce(self, content: Any, send: Send) -> None:
        """Send a streamed body part by part, and close it."""
        is_async = hasattr(content, "__aiter__")
        parts = content.__aiter__() if is_async else content
        try:
            while (part := await (anext(parts, None) if is_async else self.thread(next, parts, None))) is not None:
                if part:
                    data = part.encode() if isinstance(part, str) else bytes(part)
                    if not await _sent(send, {"type": "http.response.body", "body": data, "more_body": True}):
                        return
            await _sent(send, {"type": "http.response.body", "body": b""})
        finally:
            if is_async:
                for each in (parts, content):
                    if hasattr(each, "aclose"):
                        await each.aclose()
            else:
                await self.thread(content.close)


_RUNS_LATER = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""The flags of functions whose call runs none of their code."""
_OF_A_BODY = frozenset((b"content-length", b"transfer-encoding"))
_VARY = (b"vary", b"Cookie")


def _encoded_fields(plan: Plan) -> tuple[list[tuple[bytes, bytes]], ...]:
    """Return the header fields of a text and of JSON, encoded for ASGI; () unless the handler is a coroutine function
    and no hooks run."""
    if not (is_asynchronous(plan.function) and plan.direct and plan.quiet) or plan.hooks:
        return ()
    return encoded(plan.html_fields), encoded(plan.json_fields)


def _with_cookies(request: Request, parts: Parts) -> Parts:
    line, fields, content = parts
    return line, with_earlier_cookies(request, fields), content


async def _sent(send: Send, message: dict[str, Any]) -> bool:
    """Send a part of a body. Return False if the server raises OSError, because the client has left."""
    try:
        await send(message)
    except OSError:
        return False
    return True


async def _collected(parts: Any, status: int) -> Response:
    """Read an asynchronous generator to its end and return the response, for a configuration without streaming."""
    response = Response(status=status)
    response.body = b"".join([part.encode() if isinstance(part, str) else part async for part in parts])
    return response
