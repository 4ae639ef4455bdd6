"""Start and stop callbacks of an application, by WSGI and by ASGI."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web.testing import Client


class Root:
    def index(self) -> str:
        return "hello"

    def show(self, number: int) -> str:
        return str(number)


def app_with(trace: list[str]) -> web.App:
    app = web.App(Root())
    for name in ("first", "second"):
        app.on_start(lambda found, name=name: trace.append(f"start {name} {found is app}"))
        app.on_stop(lambda found, name=name: trace.append(f"stop {name} {found is app}"))
    return app


STARTED = ["start first True", "start second True"]
STOPPED = ["stop second True", "stop first True"]


@pytest.mark.parametrize("path", ["/", "/show/7", "/nothing"])
def test_first_request_starts_the_application_once(path: str) -> None:
    trace: list[str] = []
    app = app_with(trace)
    client = Client(app)
    assert trace == []
    for _ in range(2):
        client.get(path)
        client.get("/")
        assert trace == STARTED
    app.stop()
    app.stop()
    assert trace == STARTED + STOPPED
    assert client.get("/").text == "hello", "requests that are late are answered, and start nothing again"
    assert trace == STARTED + STOPPED


def test_server_may_start_the_application_before_requests() -> None:
    trace: list[str] = []
    app = app_with(trace)
    app.start()
    app.start()
    assert trace == STARTED
    assert Client(app).get("/show/7").text == "7"
    assert trace == STARTED


def test_application_that_has_not_started_does_not_stop() -> None:
    trace: list[str] = []
    app = app_with(trace)
    app.stop()
    assert trace == []
    Client(app).get("/")
    app.stop()
    assert trace == STARTED + STOPPED


def test_refresh_keeps_an_application_waiting_for_its_start() -> None:
    trace: list[str] = []
    app = app_with(trace)
    app.refresh()
    assert Client(app).get("/").text == "hello"
    app.refresh()
    assert (Client(app).get("/").text, trace) == ("hello", STARTED)


def test_request_fails_while_a_start_callback_raises() -> None:
    trace: list[str] = []
    app = web.App(Root())
    app.on_start(lambda _: trace.append("before"))

    @app.on_start
    def connect(_: web.App) -> None:
        trace.append("connect")
        if len(trace) < 3:
            raise OSError("no database")

    client = Client(app)
    with pytest.raises(OSError, match="no database"):
        client.get("/")
    assert client.get("/").text == "hello"
    assert trace == ["before", "connect", "connect"]


def test_requests_of_other_threads_wait_for_the_start() -> None:
    app = web.App(Root())
    ready: list[bool] = []
    seen: list[bool] = []

    class Slow(Root):
        def index(self) -> str:
            seen.append(bool(ready))
            return "hello"

    app = web.App(Slow())

    @app.on_start
    def slowly(_: web.App) -> None:
        time.sleep(0.05)
        ready.append(True)

    threads = [threading.Thread(target=lambda: Client(app).get("/")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (ready, seen) == ([True], [True] * 8)


def test_every_stop_callback_is_called_although_one_raises() -> None:
    trace: list[str] = []
    app = web.App(Root())
    app.on_stop(lambda _: trace.append("last"))

    @app.on_stop
    def fails(_: web.App) -> None:
        raise OSError("cannot close")

    app.start()
    with pytest.raises(OSError, match="cannot close"):
        app.stop()
    assert trace == ["last"]


def test_callback_that_is_late_or_needs_asgi_is_refused() -> None:
    app = app_with([])
    app.start()
    with pytest.raises(RuntimeError, match="started already"):
        app.on_start(print)
    with pytest.raises(RuntimeError, match="started already"):
        app.on_stop(print)
    other = web.App(Root())

    @other.on_start
    async def connect(_: web.App) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="connect is asynchronous and needs ASGI"):
        Client(other).get("/")


PROGRAM = """
import kirsch_web as web

class Root:
    def index(self): return "hello"

app = web.App(Root())
app.on_stop(lambda _: print("closed"))
{}
print("end")
"""


@pytest.mark.parametrize(("call", "printed"), [("app.start()", "end\nclosed\n"), ("", "end\n")])
def test_process_that_ends_stops_what_it_has_started(call: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(call)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


def test_server_of_asgi_starts_and_stops() -> None:
    trace: list[str] = []
    app = app_with(trace)
    main = threading.get_ident()

    @app.on_start
    async def connect(_: web.App) -> None:
        await asyncio.sleep(0)
        trace.append("coroutine")

    @app.on_stop
    async def close(_: web.App) -> None:
        await asyncio.sleep(0)
        trace.append("closed")

    app.on_stop(lambda _: trace.append(f"in a thread {threading.get_ident() != main}"))
    client = Client(web.ASGI(app))
    assert trace == [*STARTED, "coroutine"]
    assert client.get("/").text == "hello"
    client.close()
    app.stop()
    assert trace == [*STARTED, "coroutine", "in a thread True", "closed", *STOPPED]


def test_server_of_asgi_hears_of_a_start_that_fails() -> None:
    app = web.App(Root())

    @app.on_start
    async def connect(_: web.App) -> None:
        raise OSError("no database")

    with pytest.raises(OSError, match="no database"):
        Client(web.ASGI(app))


def test_server_of_asgi_without_lifespan_starts_with_the_first_request() -> None:
    trace: list[str] = []
    app = app_with(trace)

    @app.on_start
    async def connect(_: web.App) -> None:
        await asyncio.sleep(0.01)
        trace.append("coroutine")

    asgi = web.ASGI(app)
    statuses: list[int] = []

    async def ask(path: str) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                assert trace == [*STARTED, "coroutine"]

        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], "scheme": "http"}
        await asgi({**scope, "http_version": "1.1", "server": ("localhost", 80)}, receive, send)

    async def ask_both() -> None:
        await asyncio.gather(ask("/"), ask("/show/7"))

    asyncio.run(ask_both())
    assert statuses == [200, 200]
    app.stop()
    assert trace[-2:] == STOPPED
