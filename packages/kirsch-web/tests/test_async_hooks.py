"""Hooks and tools that are coroutine functions."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web.hooks import POINTS, is_asynchronous
from kirsch_web.testing import Client


class Root:
    def index(self) -> str:
        return "page"

    async def later(self) -> str:
        return "later"

    def user(self, *, request: web.Request) -> str:
        return str(request.user)

    def stream(self) -> Any:
        yield "a"

    def fails(self) -> None:
        raise RuntimeError("unplanned")


def client_of(*tools: web.Tool, config: Any = None) -> Client:
    return Client(web.ASGI(web.App(Root(), config, tools=list(tools))))


@pytest.mark.parametrize("path", ["/", "/later", "/stream"])
def test_coroutines_run_at_every_point_in_their_order(path: str) -> None:
    trace: list[str] = []

    def tool(point: str) -> web.Tool:
        async def hook(request: web.Request) -> None:
            await asyncio.sleep(0)
            assert web.current() is request
            trace.append(point)

        return web.Tool(point, hook, point, priority=40)

    def plain(request: web.Request) -> None:
        trace.append("plain")

    with client_of(*map(tool, POINTS), web.Tool("before_handler", plain, "plain")) as client:
        assert client.get(path).status == 200
        assert trace == [*POINTS[:3], "plain", *POINTS[3:6]]
        trace.clear()
        assert client.get("/fails").status == 500
        assert trace == [*POINTS[:3], "plain", "on_end_resource", *POINTS[6:], "on_end_request"]


def test_coroutines_run_in_the_event_loop() -> None:
    seen: list[tuple[bool, int]] = []

    async def note(request: web.Request) -> None:
        seen.append((asyncio.get_running_loop() is request.environ["asgi.loop"], threading.get_ident()))

    def other(request: web.Request) -> None:
        seen.append((False, threading.get_ident()))

    with client_of(web.Tool("before_handler", note, "note"), web.Tool("before_handler", other, "other")) as client:
        client.get("/")
    assert [found for found, _ in seen] == [True, False]
    assert seen[0][1] != seen[1][1]


def test_options_and_exceptions_are_those_of_other_hooks() -> None:
    @web.tool("before_handler")
    async def guard(request: web.Request, *, name: str = "") -> None:
        await asyncio.sleep(0)
        if not name:
            raise web.HTTPError(403, "who are you?")
        request.user = name

    config = {"/user": {"tools.guard.name": "Ann"}}
    with client_of(guard, config=config) as client:
        assert client.get("/user").text == "Ann"
        assert client.get("/").status == 403
    with pytest.raises(web.ConfigError, match="7 is not of type str"):
        client_of(guard, config={"tools.guard.name": 7})


def test_failsafe_coroutine_runs_after_one_that_raises() -> None:
    trace: list[str] = []

    async def fails(request: web.Request) -> None:
        raise OSError("a hook")

    async def always(request: web.Request) -> None:
        trace.append("always")

    tools = [web.Tool("before_handler", fails, "fails"), web.Tool("before_handler", always, "always", failsafe=True)]
    with client_of(*tools) as client:
        assert client.get("/").status == 500
    assert trace == ["always"]


def test_other_requests_run_while_a_hook_waits() -> None:
    release: list[asyncio.Event] = []

    async def wait(request: web.Request) -> None:
        if request.path == "/":
            release.append(asyncio.Event())
            await asyncio.wait_for(release[0].wait(), 30)
        else:
            release[0].set()

    asgi = web.ASGI(web.App(Root(), tools=[web.Tool("before_handler", wait, "wait")]), threads=2)

    async def ask(path: str) -> int:
        statuses: list[int] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], "scheme": "http"}
        await asgi({**scope, "http_version": "1.1", "server": ("localhost", 80)}, receive, send)
        return statuses[0]

    async def both() -> list[int]:
        first = asyncio.ensure_future(ask("/"))
        while not release:
            await asyncio.sleep(0.001)
        return [await ask("/later"), await first]

    assert asyncio.run(both()) == [200, 200]


def test_wsgi_answers_500_and_the_log_says_what_to_do() -> None:
    async def hook(request: web.Request) -> None:
        raise AssertionError

    app = web.App(Root(), {"hooks.before_handler": hook})
    reply = Client(app).get("/")
    assert reply.status == 500
    assert "needs ASGI: serve web.ASGI(app)" in reply.errors
    assert "never awaited" not in reply.errors


class Callables:
    async def method(self, request: web.Request) -> None: ...

    async def __call__(self, request: web.Request) -> None: ...

    def plain(self, request: web.Request) -> None: ...


def test_every_form_of_a_coroutine_function_is_known() -> None:
    found = Callables()
    assert [
        is_asynchronous(each) for each in (found.method, found, partial(found.method), partial(partial(found)))
    ] == [True] * 4
    assert [
        is_asynchronous(each) for each in (found.plain, partial(found.plain), print, Callables, lambda _: None)
    ] == [False] * 5
