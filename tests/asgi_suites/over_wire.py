"""A pytest plugin that puts a Kirsch server and a socket between Starlette's TestClient and its application.

TestClient calls an application in the same process, with ``receive`` and ``send`` of its own. With ``-p over_wire`` it
sends each request through httpx's own transport to a :class:`kirsch.Server` that serves the application on a free port
of 127.0.0.1, and its ``with`` statement runs the server's lifespan. FastAPI's TestClient is the same class.

What stays as TestClient has it, because tests look at it and no server could know it: the addresses ``client`` and
``server``, the scheme and ``root_path`` of the scope; the extension ``http.response.debug``; and that a request ends
when the application's call has ended, whose exception is raised in the test. Fields that only a server adds (Date,
Transfer-Encoding) are taken out of responses.

``--outcomes FILE`` writes the outcome of each test as JSON, also without the servers: ``--in-process``.
"""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette import testclient

import kirsch

if TYPE_CHECKING:
    import pytest

httpx = testclient.httpx
SECONDS = 20.0
MARK = b"x-over-wire"
ADDED = {b"date", b"transfer-encoding"}


class Call:
    """One request, as the test waits for it."""

    def __init__(self, transport: Any, scope: dict[str, Any]) -> None:
        self.transport = transport
        self.scope = scope
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self.has_started = False
        self.debug: dict[str, Any] | None = None


class Wire:
    """A server for one application, in a thread. ``state`` gets what its lifespan has put into the scope's."""

    def __init__(self, app: Any, lifespan: str, state: dict[str, Any] | None = None) -> None:
        self._app = app
        self._state = {} if state is None else state
        self._calls: dict[bytes, Call] = {}
        self._numbers = itertools.count(1)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self.lifespan_error: BaseException | None = None
        self._server = kirsch.Server(
            self._serve, "127.0.0.1:0", interface="asgi", lifespan=lifespan, server_header="", report=lambda *_: None
        )
        self._server.listen()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait(SECONDS)
        if self._failure is not None:
            self._thread.join(SECONDS)
            raise self.lifespan_error or self._failure
        self.port = self._server.addresses[0][1]
        self.http = httpx.HTTPTransport()

    def _run(self) -> None:
        try:
            self._server.start(self._ready.set)
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self._failure = error
        finally:
            Transport.release()
            self._ready.set()

    def close(self) -> None:
        self.http.close()
        if not self._server.stop(SECONDS):
            raise RuntimeError("the server did not end")
        self._thread.join(SECONDS)
        if self.lifespan_error is not None:
            raise self.lifespan_error

    def new_call(self, transport: Any, scope: dict[str, Any]) -> tuple[bytes, Call]:
        mark = b"%d" % next(self._numbers)
        self._calls[mark] = call = Call(transport, scope)
        return mark, call

    def is_called(self, mark: bytes) -> bool:
        """Return whether the request has reached the application; a bad one is the server's to refuse."""
        return mark not in self._calls

    async def _serve(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            state = scope["state"]  # an application may take it out

            async def send_and_note(message: dict[str, Any]) -> None:
                self._state.update(state)
                await send(message)

            try:
                await self._app(scope, receive, send_and_note)
            except BaseException as error:
                self.lifespan_error = error
                raise
            return
        mark = next(value for name, value in scope["headers"] if name == MARK)
        call = self._calls.pop(mark)
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != MARK]
        scope.update(call.scope)
        scope["extensions"]["http.response.debug"] = {}

        async def send_but_debug(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.debug":
                call.debug = message["info"]
                return
            call.has_started = True
            await send(message)

        try:
            await self._app(scope, receive, send_but_debug)
        except BaseException as error:
            call.error = error
            raise
        finally:
            call.ended.set()


class Transport(testclient._TestClientTransport):  # type: ignore[misc]
    """The transport with which TestClient sends its requests."""

    wire: Wire | None = None
    # A server of a TestClient that is not in a ``with`` statement is kept until another one in this thread sends a
    # request.
    kept = threading.local()

    def handle_request(self, request: Any) -> Any:
        if request.url.scheme in ("ws", "wss"):
            return super().handle_request(request)
        wire = self.wire
        if wire is None:
            self.release()
            Transport.kept.transport = self
            wire = self.wire = Wire(self.app, "off")
        port = request.url.port or {"http": 80, "https": 443}[request.url.scheme]
        mark, call = wire.new_call(
            self,
            {
                "client": self.client,
                "server": [request.url.raw_host.decode("ascii"), port],
                "scheme": request.url.scheme,
                "root_path": self.root_path,
            },
        )
        sent = httpx.Request(
            request.method,
            request.url.copy_with(scheme="http", host="127.0.0.1", port=wire.port),
            headers=[*request.headers.raw, (MARK, mark)],
            stream=request.stream,
            extensions={"timeout": dict.fromkeys(("connect", "read", "write", "pool"), SECONDS)},
        )
        got, body, broken = None, b"", None
        try:
            got = wire.http.handle_request(sent)
            body = b"".join(got.stream)
        except httpx.TransportError as error:
            broken = error
        finally:
            if got is not None:
                got.close()
        is_called = wire.is_called(mark)
        if is_called and not call.ended.wait(SECONDS):
            raise RuntimeError("the application's call did not end")
        if self.raise_server_exceptions and is_called:
            if call.error is not None:
                raise call.error
            assert call.has_started, "TestClient did not receive any response."
        if got is None or broken is not None:
            raise broken or RuntimeError("no response")
        headers = [(name, value) for name, value in got.headers.raw if name.lower() not in ADDED]
        response = httpx.Response(got.status_code, headers=headers, stream=httpx.ByteStream(body), request=request)
        if call.debug is not None:
            response.extensions["http.response.debug"] = call.debug
            for name in ("template", "context"):
                if name in call.debug:
                    setattr(response, name, call.debug[name])
        return response

    @staticmethod
    def release() -> None:
        before = getattr(Transport.kept, "transport", None)
        Transport.kept.transport = None
        if before is not None and before.wire is not None:
            wire, before.wire = before.wire, None
            wire.close()


def _enter(client: Any) -> Any:
    transport = client._transport
    Transport.release()
    transport.wire = Wire(client.app, "on", client.app_state)
    return client


def _exit(client: Any, *_: object) -> None:
    wire, client._transport.wire = client._transport.wire, None
    wire.close()


outcomes: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", default="")
    parser.addoption("--in-process", action="store_true")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--in-process"):
        testclient._TestClientTransport = Transport
        testclient.TestClient.__enter__ = _enter
        testclient.TestClient.__exit__ = _exit


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Kirsch has no loop of trio's."""
    items[:] = [item for item in items if "trio" not in getattr(getattr(item, "callspec", None), "id", "").split("-")]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        outcomes[report.nodeid] = "xfail" if hasattr(report, "wasxfail") else report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    Transport.release()
    name = session.config.getoption("--outcomes")
    if name and not hasattr(session.config, "workerinput"):
        Path(name).write_text(json.dumps(outcomes), encoding="utf-8")
