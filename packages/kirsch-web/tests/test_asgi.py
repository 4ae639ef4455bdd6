"""Applications by ASGI: coroutines and asynchronous generators as handlers, bodies, streams, the lifespan."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web.testing import Client


@pytest.fixture
def client() -> Iterator[Any]:
    made: list[Client] = []

    def make(root: object, *args: Any, lifespan: Any = None, **options: Any) -> Client:
        mount = options.pop("mount", "")
        found = Client(web.ASGI(web.App(root, *args, **options), lifespan=lifespan), mount=mount)
        made.append(found)
        return found

    yield make
    for each in made:
        each.close()


@dataclass
class Book:
    title: str
    price: float = 1.0


class Pages:
    async def index(self, page: int = 1) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"page": page}

    async def show(self, id: int, *, request: web.Request) -> dict[str, object]:
        await asyncio.sleep(0)
        assert web.current() is request
        return {"id": id, "path": web.current().path}

    @web.post(status=201)
    async def add(self, book: Book) -> Book:
        return book

    @web.post
    async def raw(self) -> dict[str, object]:
        request = web.current()
        return {"json": request.json(), "bytes": len(request.environ["wsgi.input"].read())}

    @web.post(limit="1KiB")
    async def small(self) -> str:
        return str(len(web.current().body()))

    @web.post
    async def upload(self, title: str, file: web.Upload) -> dict[str, object]:
        return {"title": title, "bytes": file.size}

    @web.post
    async def form_in_the_loop(self) -> str:
        return web.current().form["title"]

    @web.post
    async def form_in_a_thread(self) -> str:
        form = await asyncio.to_thread(lambda: web.current().form)
        return form["title"]

    def plain(self) -> str:
        return threading.current_thread().name

    async def where(self) -> str:
        return threading.current_thread().name

    async def stream(self) -> AsyncIterator[str]:
        for each in ("one ", "two ", web.current().path):
            await asyncio.sleep(0)
            yield each

    async def broken(self) -> AsyncIterator[str]:
        yield "one"
        raise RuntimeError("unplanned")

    async def ticks(self) -> web.Response:
        async def generate() -> AsyncIterator[object]:
            yield web.Event("a", id="1")
            await asyncio.sleep(0)
            yield None
            yield {"b": 2}

        return web.events(generate())

    async def gone(self) -> str:
        raise web.HTTPError(410, "it is gone")

    async def unplanned(self) -> str:
        await asyncio.sleep(0)
        raise RuntimeError("unplanned")

    async def inside(self) -> str:
        raise web.InternalRedirect("/show/5")

    def inside_too(self) -> str:
        raise web.InternalRedirect("/inside")

    async def again(self) -> str:
        raise web.InternalRedirect("/again")


def test_coroutines_answer_with_converted_parameters(client: Any) -> None:
    asked = client(Pages())
    assert asked.get("/?page=3").json() == {"page": 3}
    assert asked.get("/show/7").json() == {"id": 7, "path": "/show/7"}
    assert asked.get("/show/x").status == 404
    assert asked.get("/?page=x").status == 400
    assert asked.get("/gone").json()["detail"] == "it is gone"
    assert asked.request("PUT", "/show/7").headers["Allow"] == "GET, HEAD, OPTIONS"
    head = asked.request("HEAD", "/show/7")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["Content-Length"]) == len(asked.get("/show/7").body)


def test_a_coroutine_receives_a_body_as_a_plain_function_does(client: Any) -> None:
    asked = client(Pages())
    assert asked.post("/add", json={"title": "Emma"}).json() == {"title": "Emma", "price": 1.0}
    assert asked.post("/add", form={"title": "Emma", "price": "2"}).status == 201
    refused = asked.post("/add", json={"title": 7})
    assert (refused.status, refused.json()["errors"][0]["name"]) == (422, "title")
    assert asked.post("/raw", json=[1, 2]).json() == {"json": [1, 2], "bytes": 0}
    assert asked.post("/small", body=b"x" * 1024).text == "1024"
    assert asked.post("/small", body=b"x" * 1025).status == 413
    big = {"file": ("a.bin", b"y" * 3_000_000)}
    assert asked.post("/upload", form={"title": "A"}, files=big).json() == {"title": "A", "bytes": 3_000_000}


def test_a_multipart_body_is_parsed_in_threads_alone(client: Any) -> None:
    # In parts, because a body that has arrived as a whole can be parsed anywhere.
    app = web.ASGI(web.App(Pages()))
    body = b'--b\r\nContent-Disposition: form-data; name="title"\r\n\r\nEmma\r\n--b--\r\n'
    fields = [(b"content-type", b"multipart/form-data; boundary=b"), (b"content-length", str(len(body)).encode())]
    parts: list[bytes | None] = [body[:20], body[20:]]
    assert exchange(app, "/form_in_a_thread", parts, fields)[1] == b"Emma"
    assert exchange(app, "/form_in_the_loop", parts, fields)[0]["status"] == 500


def exchange(
    app: Any,
    path: str,
    parts: list[bytes | None],
    fields: list[tuple[bytes, bytes]],
    method: str = "POST",
    **scope: Any,
) -> tuple[dict[str, Any], bytes]:
    """Send one request whose body comes in parts; a part of None is the client's leaving."""
    given = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "scheme": "http", "headers": fields, "server": ("testserver", 80), "client": None, **scope,
    }  # fmt: skip
    messages: list[dict[str, Any]] = [
        {"type": "http.disconnect"} if part is None
        else {"type": "http.request", "body": part, "more_body": number < len(parts) - 1}
        for number, part in enumerate(parts)
    ]  # fmt: skip
    sent: list[dict[str, Any]] = []

    async def run() -> None:
        async def receive() -> dict[str, Any]:
            if not messages:
                await asyncio.Event().wait()
            await asyncio.sleep(0)
            return messages.pop(0)

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await asyncio.wait_for(app(given, receive, send), 60)

    asyncio.run(run())
    return sent[0], b"".join(each.get("body", b"") for each in sent[1:])


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_in_parts_is_read_up_to_its_limit_and_its_end(declared: bool) -> None:
    app = web.ASGI(web.App(Pages()))

    def status(path: str, parts: list[Any], declare: int) -> int:
        length = [(b"content-length", str(declare).encode())] if declared else [(b"transfer-encoding", b"chunked")]
        found: int = exchange(app, path, parts, [(b"content-type", b"application/json"), *length])[0]["status"]
        return found

    assert status("/add", [b'{"title":', b' "Em', b'ma"}'], 17) == 201
    assert status("/small", [b"x" * 500] * 3, 1500) == 413
    assert status("/add", [b'{"title":', None], 17) == 400, "the client has left"


def test_a_body_without_length_and_without_bytes_is_none() -> None:
    app = web.ASGI(web.App(Pages()))
    assert exchange(app, "/index", [b""], [], method="GET")[0]["status"] == 404
    start, body = exchange(app, "/add", [b""], [])  # HTTP/2 sends no Content-Length here
    assert (start["status"], b"is missing" in body) == (422, True)


def test_plain_functions_run_in_threads_and_coroutines_in_the_loop(client: Any) -> None:
    asked = client(Pages())
    assert asked.get("/plain").text.startswith("kirsch_web")
    assert not asked.get("/where").text.startswith("kirsch_web")


def test_asynchronous_generators_stream(client: Any) -> None:
    asked = client(Pages())
    reply = asked.get("/stream")
    assert (reply.text, reply.headers["Content-Type"]) == ("one two /stream", "text/html; charset=utf-8")
    assert asked.request("HEAD", "/stream").status == 200
    with pytest.raises(RuntimeError, match="unplanned"):
        asked.get("/broken")
    ticks = asked.get("/ticks")
    assert ticks.headers["Content-Type"] == "text/event-stream"
    assert ticks.text == ': stream\n\nid: 1\ndata: a\n\n:\n\ndata: {"b":2}\n\n'


def test_asynchronous_generators_are_collected_where_nothing_streams(client: Any) -> None:
    asked = client(Pages(), {"response.stream": False})
    reply = asked.get("/stream")
    assert (reply.text, reply.headers["Content-Length"]) == ("one two /stream", "15")
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert asked.get("/broken").status == 500


def test_compressed_asynchronous_streams_are_whole(client: Any) -> None:
    import gzip

    asked = client(Pages(), {"tools.gzip.on": True, "tools.gzip.least": 1})
    reply = asked.get("/stream", headers={"Accept-Encoding": "gzip"})
    assert reply.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(reply.body) == b"one two /stream"


def test_errors_of_coroutines_become_responses(client: Any) -> None:
    asked = client(Pages())
    reply = asked.get("/unplanned")
    assert reply.status == 500
    assert "RuntimeError: unplanned" in reply.errors
    assert reply.json()["error_id"] in reply.errors


@pytest.mark.parametrize("path", ["/inside", "/inside_too"])
def test_internal_redirects_lead_from_and_to_coroutines(client: Any, path: str) -> None:
    asked = client(Pages())
    assert asked.get(path).json() == {"id": 5, "path": "/show/5"}
    assert asked.get("/again").status == 500


def test_hooks_run_in_threads_in_their_order_and_the_last_behind_the_stream(client: Any) -> None:
    trace: list[str] = []

    def tool(point: str) -> web.Tool:
        def note(request: web.Request) -> None:
            assert web.current() is request
            assert threading.current_thread().name.startswith("kirsch_web")
            trace.append(point)

        return web.Tool(point, note, point)

    class Root:
        async def index(self) -> str:
            trace.append("HANDLER")
            return "page"

        async def stream(self) -> AsyncIterator[str]:
            trace.append("PART")
            yield "one"

        async def error(self) -> str:
            raise RuntimeError("unplanned")

    from kirsch_web.hooks import POINTS

    asked = client(Root(), tools=[tool(point) for point in POINTS])
    asked.get("/")
    assert trace == [*POINTS[:3], "HANDLER", *POINTS[3:6]]
    trace.clear()
    asked.get("/stream")
    assert trace == [*POINTS[:3], *POINTS[3:5], "PART", POINTS[5]]
    trace.clear()
    asked.get("/error")
    assert trace == [*POINTS[:3], "on_end_resource", *POINTS[6:], "on_end_request"]


def test_tools_of_wsgi_serve_coroutines(client: Any) -> None:
    class Root:
        async def count(self, *, session: web.Session) -> int:
            session["count"] = session.get("count", 0) + 1
            return int(session["count"])

        @web.config({"tools.json_out.on": True})
        async def text(self) -> str:
            return "a text"

    asked = client(Root(), tools=[web.session(secret="of this test, and long", secure=False)])
    assert [asked.get("/count").json() for _ in range(3)] == [1, 2, 3]
    assert asked.get("/text").json() == "a text"


def test_requests_that_wait_at_once_never_see_each_other() -> None:
    class Root:
        async def who(self, number: int, name: str) -> dict[str, object]:
            request = web.current()
            request.mine = number  # type: ignore[attr-defined]
            for _ in range(5):
                await asyncio.sleep(0)
                assert web.current() is request
            return {"number": web.current().mine, "name": name}  # type: ignore[attr-defined]

        def plain(self, number: int) -> Iterator[str]:
            for _ in range(5):
                yield web.current().path

    app = web.ASGI(web.App(Root()))
    wrong: list[object] = []

    async def ask(number: int) -> None:
        for path, expected in (
            (f"/who/{number}/n{number}", f'{{"number":{number},"name":"n{number}"}}'),
            (f"/plain/{number}", f"/plain/{number}" * 5),
        ):
            sent: list[dict[str, Any]] = []

            async def receive() -> dict[str, Any]:
                await asyncio.Event().wait()
                return {}

            async def send(message: dict[str, Any], sent: list[dict[str, Any]] = sent) -> None:
                await asyncio.sleep(0)
                sent.append(message)

            scope = {"type": "http", "method": "GET", "path": path, "headers": [], "scheme": "http"}
            await app(scope, receive, send)
            text = b"".join(each.get("body", b"") for each in sent).decode()
            if text != expected:
                wrong.append((path, text))

    async def run() -> None:
        await asyncio.wait_for(asyncio.gather(*(ask(number) for number in range(100))), 60)

    asyncio.run(run())
    assert not wrong


@pytest.mark.parametrize("kind", ["asynchronous", "events", "plain"])
def test_a_stream_is_closed_when_its_client_leaves(kind: str) -> None:
    closed = threading.Event()
    ended: list[str] = []

    class Root:
        async def asynchronous(self) -> AsyncIterator[str]:
            try:
                yield "one"
                await asyncio.Event().wait()
            finally:
                closed.set()

        async def events(self) -> web.Response:
            return web.events(self.asynchronous())

        def plain(self) -> Iterator[str]:
            try:
                while True:
                    yield "one"
            finally:
                closed.set()

    tool = web.Tool("on_end_request", lambda request: ended.append(request.path), "note")
    app = web.ASGI(web.App(Root(), tools=[tool]))
    start, _ = exchange(app, f"/{kind}", [b"", None], [], method="GET")
    assert start["status"] == 200
    assert closed.is_set()
    assert ended == [f"/{kind}"]


def test_a_handler_can_ask_whether_its_client_has_left() -> None:
    class Root:
        async def index(self) -> str:
            while not web.current().disconnected():
                await asyncio.sleep(0)
            return "left"

    app = web.ASGI(web.App(Root()))
    assert exchange(app, "/", [b"", None], [], method="GET")[1] == b"left"


def test_a_cancelled_request_waits_for_its_thread_and_ends() -> None:
    began, go = threading.Event(), threading.Event()
    trace: list[str] = []

    class Root:
        def index(self) -> str:
            began.set()
            go.wait(30)
            trace.append("handler")
            return "page"

    app = web.ASGI(web.App(Root(), tools=[web.Tool("on_end_request", lambda request: trace.append("end"), "note")]))

    async def run() -> None:
        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

        async def send(message: dict[str, Any]) -> None:
            trace.append(message["type"])

        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "scheme": "http"}
        task = asyncio.ensure_future(app(scope, receive, send))
        assert await asyncio.to_thread(began.wait, 30)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert trace == ["handler", "end"]


def test_wsgi_refuses_what_needs_asgi() -> None:
    app = web.App(Pages())
    reply = Client(app).get("/where")
    assert reply.status == 500
    assert "serve web.ASGI(app)" in reply.errors
    reply = Client(app).get("/stream")
    assert (reply.status, "serve web.ASGI(app)" in reply.errors) == (500, True)


def test_the_lifespan_surrounds_the_requests(client: Any) -> None:
    trace: list[str] = []

    class Root:
        pool = ""

        async def index(self) -> str:
            return self.pool

    @asynccontextmanager
    async def lifespan(app: web.App) -> AsyncIterator[None]:
        app.root.pool = "open"  # type: ignore[attr-defined]
        yield
        trace.append("closed")

    asked = Client(web.ASGI(web.App(Root()), lifespan=lifespan))
    assert asked.get("/").text == "open"
    assert trace == []
    asked.close()
    assert trace == ["closed"]


def test_a_lifespan_that_fails_is_told() -> None:
    @asynccontextmanager
    async def lifespan(app: web.App) -> AsyncIterator[None]:
        if app.root is not None:
            raise ValueError("no database")
        yield

    with pytest.raises(ValueError, match="no database"):
        Client(web.ASGI(web.App(Pages()), lifespan=lifespan))


def test_the_environ_is_that_of_a_wsgi_server(client: Any) -> None:
    class Root:
        def default(self, *path: str) -> dict[str, object]:
            request = web.current()
            return {
                "path": path, "mount": request.mount, "cookies": request.cookies, "url": request.url(),
                "names": sorted(name for name, _ in request.headers), "several": request.headers.get("X-Several"),
            }  # fmt: skip

    asked = client(Root(), mount="/shöp")
    found = asked.get("/a%2Fb/%C3%A9").json()
    assert (found["path"], found["mount"]) == (["a", "b", "é"], "/shöp")
    assert found["url"] == "http://testserver/sh%C3%B6p/a/b/%C3%A9"
    app = web.ASGI(web.App(Root()))
    fields = [(b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"x-several", b"1"), (b"x-several", b"2"), (b"x_dash", b"no")]
    _, body = exchange(app, "/x", [b""], fields, method="GET")
    assert b'"cookies":{"a":"1","b":"2"}' in body
    assert b'"several":"1,2"' in body
    assert b'"names":["Cookie","X-Several"]' in body
    start, _ = exchange(app, "/\ufffd", [b""], [], method="GET", raw_path=b"/%FF")
    assert start["status"] == 400


# WebSockets


class Rooms:
    async def echo(self, room: str, *, ws: web.WebSocket) -> None:
        async for message in ws:
            await ws.send(f"{room}: {message}" if isinstance(message, str) else message)

    async def choose(self, ws: web.WebSocket) -> None:
        await ws.accept(ws.subprotocols[-1], headers=[("X-Room", "1")], origins=["https://shop.example"])
        await ws.close(4000, "enough")
        await ws.close()

    async def deny(self, ws: web.WebSocket) -> str:
        raise web.HTTPError(401, "log in")

    async def fail(self, ws: web.WebSocket) -> None:
        await ws.accept()
        raise RuntimeError("unplanned")

    async def use(self, ws: web.WebSocket) -> None:
        await ws.receive()
        await ws.send("to no one")

    def page(self) -> str:
        return "page"


def converse(
    path: str, *received: dict[str, Any], headers: Any = (), extensions: Any = (), tools: Any = (), **scope: Any
) -> list[dict[str, Any]]:
    messages = [{"type": "websocket.connect"}, *received]
    sent: list[dict[str, Any]] = []

    async def run() -> None:
        async def receive() -> dict[str, Any]:
            return messages.pop(0) if messages else {"type": "websocket.disconnect", "code": 1001}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        given = {
            "type": "websocket", "path": path, "headers": [(b"host", b"testserver"), *headers], "scheme": "ws",
            "subprotocols": ["a", "b"], "extensions": {name: {} for name in extensions}, **scope,
        }  # fmt: skip
        await asyncio.wait_for(web.ASGI(web.App(Rooms(), tools=tools))(given, receive, send), 60)

    asyncio.run(run())
    return sent


def text(data: str) -> dict[str, Any]:
    return {"type": "websocket.receive", "text": data, "bytes": None}


def test_messages_are_answered_until_the_client_leaves() -> None:
    sent = converse("/echo/lobby", text("a"), {"type": "websocket.receive", "bytes": b"\0"}, text(""))
    assert sent == [
        {"type": "websocket.accept", "headers": []},
        {"type": "websocket.send", "text": "lobby: a"},
        {"type": "websocket.send", "bytes": b"\0"},
        {"type": "websocket.send", "text": "lobby: "},
    ]


def test_a_handler_accepts_with_a_subprotocol_and_closes_once() -> None:
    assert converse("/choose") == [
        {"type": "websocket.accept", "headers": [(b"x-room", b"1")], "subprotocol": "b"},
        {"type": "websocket.close", "code": 4000, "reason": "enough"},
    ]


def test_pages_of_other_sites_are_refused() -> None:
    def accepted(path: str, origin: bytes, scheme: str = "ws") -> bool:
        return bool(converse(path, headers=[(b"origin", origin)], scheme=scheme)[0]["type"] == "websocket.accept")

    assert accepted("/echo/a", b"http://testserver")
    assert accepted("/echo/a", b"https://testserver", "wss")
    assert not accepted("/echo/a", b"https://evil.example")
    assert not accepted("/echo/a", b"null")
    assert accepted("/choose", b"https://SHOP.example")


@pytest.mark.parametrize(("path", "status"), [("/deny", 401), ("/nothing", 404), ("/page", 404), ("/echo/a/b", 404)])
def test_a_handshake_is_denied_with_the_response_of_the_path(path: str, status: int, capsys: Any) -> None:
    assert converse(path) == [{"type": "websocket.close", "code": 1008, "reason": ""}]
    start, body = converse(path, extensions=["websocket.http.response"])
    assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
    assert body["type"] == "websocket.http.response.body"
    assert str(status).encode() in body["body"]


def test_a_handler_that_raises_closes_with_1011(capsys: Any) -> None:
    assert converse("/fail")[-1] == {"type": "websocket.close", "code": 1011, "reason": ""}
    assert "RuntimeError: unplanned" in capsys.readouterr().err
    assert converse("/use") == [{"type": "websocket.accept", "headers": []}]
    assert capsys.readouterr().err == "", "that the client has left is no error"


def test_a_coroutine_that_has_no_body_still_sees_its_whole_request(client: Any) -> None:
    class Root:
        async def seen(self, id: int, *, request: web.Request) -> dict[str, object]:
            host = await asyncio.to_thread(lambda: request.headers.get("X-Word"))
            return {
                "id": id, "host": host, "body": len(request.body()), "left": request.disconnected(),
                "query": request.query, "same": web.current() is request,
            }  # fmt: skip

        async def text(self, *, request: web.Request) -> str:
            request.response.headers["X-Own"] = "1"
            return "x" * 5000

        async def nothing(self) -> None:
            return None

        async def wrong(self) -> Any:
            return {1, object()}

        async def gone(self) -> str:
            raise web.HTTPError(410, "gone")

    asked = client(Root())
    assert asked.get("/seen/7?a=b", headers={"X-Word": "w"}).json() == {
        "id": 7, "host": "w", "body": 0, "left": False, "query": {"a": ["b"]}, "same": True,
    }  # fmt: skip
    reply = asked.get("/text")
    assert (reply.headers["X-Own"], reply.headers["Content-Length"], len(reply.text)) == ("1", "5000", 5000)
    assert [asked.get(f"/{path}").status for path in ("nothing", "wrong", "gone", "seen/x")] == [204, 500, 410, 404]
    assert asked.request("HEAD", "/seen/7").text == ""
    assert asked.get("/gone", headers={"Accept": "text/html"}).headers["Content-Type"] == "text/html; charset=utf-8"


def test_a_coroutine_reads_the_body_of_a_get(client: Any) -> None:
    class Root:
        async def length(self, *, request: web.Request) -> int:
            return len(request.body())

    assert client(Root()).request("GET", "/length", body=b"12345", headers={"Content-Type": "text/plain"}).json() == 5


def test_an_asynchronous_hook_runs_before_a_websocket() -> None:
    seen: list[str] = []

    async def note(request: web.Request) -> None:
        await asyncio.sleep(0)
        seen.append(request.path)

    class Root:
        async def talk(self, *, ws: web.WebSocket) -> None:
            await ws.send("hello")

    async def converse() -> list[dict[str, Any]]:
        asgi = web.ASGI(web.App(Root(), tools=[web.Tool("before_handler", note, "note")]))
        sent: list[dict[str, Any]] = []
        messages: list[dict[str, Any]] = [{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}]

        async def receive() -> dict[str, Any]:
            return messages.pop(0)

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {"type": "websocket", "scheme": "ws", "path": "/talk", "headers": [], "subprotocols": []}
        await asgi(scope, receive, send)
        return sent

    assert [each["type"] for each in asyncio.run(converse())][:2] == ["websocket.accept", "websocket.send"]
    assert seen == ["/talk"]


def test_hooks_guard_websockets() -> None:
    def refuse(request: web.Request) -> None:
        raise web.HTTPError(403, "not you")

    sent = converse("/echo/a", tools=[web.Tool("on_start_resource", refuse, "refuse")])
    assert sent == [{"type": "websocket.close", "code": 1008, "reason": ""}]


def test_a_plain_request_of_a_websocket_is_refused(client: Any) -> None:
    assert client(Rooms()).get("/echo/a").status == 426
    assert Client(web.App(Rooms())).get("/echo/a").status == 426


def test_a_page_that_read_the_session_has_vary_under_asgi_too() -> None:
    class Root:
        async def data(self, *, session: web.Session) -> Any:
            return {"user": session.get("user")}

        def text(self, *, session: web.Session) -> str:
            return str(len(session))

        async def plain(self) -> str:
            return "for all"

    tools = [web.session("a secret of enough characters", secure=False)]
    with Client(web.ASGI(web.App(Root(), tools=tools))) as client:
        found = [client.get(f"/{name}").headers.get("Vary") for name in ("data", "text", "plain")]
    assert found == ["Cookie", "Cookie", ""]
