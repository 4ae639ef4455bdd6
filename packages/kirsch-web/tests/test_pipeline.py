"""Hooks, tools, exceptions that stop, streams, errors, and the configuration that decides about them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web.hooks import POINTS
from kirsch_web.testing import Client


def traced(trace: list[str]) -> list[web.Tool]:
    def tool(point: str) -> web.Tool:
        return web.Tool(point, lambda request: trace.append(point), "trace_" + point)

    return [tool(point) for point in POINTS]


class Pages:
    def __init__(self, trace: list[str]) -> None:
        self.trace = trace

    def index(self) -> str:
        self.trace.append("HANDLER")
        return "page"

    def error(self) -> str:
        self.trace.append("HANDLER")
        raise RuntimeError("unplanned")

    def stop(self) -> str:
        self.trace.append("HANDLER")
        raise web.HTTPError(410, "it is gone")

    def leave(self) -> str:
        self.trace.append("HANDLER")
        raise web.HTTPRedirect("/elsewhere")

    def inside(self) -> str:
        self.trace.append("HANDLER")
        raise web.InternalRedirect("/", "a=b")

    def stream(self) -> Iterator[str]:
        self.trace.append("HANDLER")

        def generate() -> Iterator[str]:
            self.trace.append("CHUNK")
            yield "one "
            self.trace.append("CHUNK")
            yield f"two {web.current().path}"

        return generate()


BEFORE = ["on_start_resource", "before_request_body", "before_handler"]


@pytest.mark.parametrize(
    ("path", "status", "expected"),
    [
        ("/", 200, [*BEFORE, "HANDLER", "before_finalize", "on_end_resource", "START", "on_end_request"]),
        ("/stop", 410, [*BEFORE, "HANDLER", "before_finalize", "on_end_resource", "START", "on_end_request"]),
        ("/leave", 303, [*BEFORE, "HANDLER", "before_finalize", "on_end_resource", "START", "on_end_request"]),
        ("/nothing", 404, [*BEFORE, "before_finalize", "on_end_resource", "START", "on_end_request"]),
        (
            "/error",
            500,
            [*BEFORE, "HANDLER", "on_end_resource", "before_error_response", "after_error_response", "START",
             "on_end_request"],
        ),
        (
            "/inside",
            200,
            [*BEFORE, "HANDLER", "on_end_resource", "on_end_request", *BEFORE, "HANDLER", "before_finalize",
             "on_end_resource", "START", "on_end_request"],
        ),
        (
            "/stream",
            200,
            [*BEFORE, "HANDLER", "before_finalize", "on_end_resource", "START", "CHUNK", "CHUNK", "on_end_request"],
        ),
    ],
)  # fmt: skip
def test_hooks_run_in_the_documented_order(path: str, status: int, expected: list[str]) -> None:
    trace: list[str] = []
    app = web.App(Pages(trace), tools=traced(trace))

    def outer(environ: dict[str, Any], start_response: Any) -> Any:
        def started(*arguments: Any) -> Any:
            trace.append("START")
            return start_response(*arguments)

        return app(environ, started)

    reply = Client(outer).get(path)
    assert reply.status == status
    assert trace == expected


def test_hooks_run_by_priority_and_failsafe_ones_after_a_failure() -> None:
    trace: list[str] = []

    def fail(request: web.Request) -> None:
        trace.append("fail")
        raise web.HTTPError(403)

    tools = [
        web.Tool("before_handler", lambda request: trace.append("late"), "late", priority=80),
        web.Tool("before_handler", lambda request: trace.append("safe"), "safe", priority=70, failsafe=True),
        web.Tool("before_handler", fail, "fail"),
        web.Tool("before_handler", lambda request: trace.append("early"), "early", priority=10),
    ]
    assert Client(web.App(Pages([]), tools=tools)).get("/").status == 403
    assert trace == ["early", "fail", "safe"]
    trace.clear()
    app = web.App(Pages([]), {"/": {"tools.late.priority": 5, "tools.fail.on": False}}, tools=tools)
    assert Client(app).get("/").status == 200
    assert trace == ["late", "early", "safe"]


def test_a_tool_has_options_path_by_path() -> None:
    @web.tool("before_finalize")
    def label(request: web.Request, text: str = "none", times: int = 1) -> None:
        request.response.headers["X-Label"] = text * times

    class Shop:
        @web.config({"tools.label.times": 2})
        def index(self) -> str:
            return ""

        def plain(self) -> str:
            return ""

        @web.config(tools__label__on=False)
        def off(self) -> str:
            return ""

    class Root:
        shop = Shop()

    app = web.App(Root(), {"/shop": {"tools": {"label": {"text": "s"}}}}, tools=[label])
    client = Client(app)
    assert client.get("/shop").headers["X-Label"] == "ss"
    assert client.get("/shop/plain").headers["X-Label"] == "s"
    assert "X-Label" not in client.get("/shop/off").headers
    assert client.get("/nothing").headers["X-Label"] == "none"


def test_a_hook_may_replace_the_handler_or_answer_itself() -> None:
    def replace(request: web.Request) -> None:
        if request.path == "/replaced":
            request.handler = lambda: "replacement"
        elif request.path == "/answered":
            request.response.set_body("of the tool")
            request.handler = None
        elif request.path == "/finished":
            raise web.Finished(web.text("finished", 202))

    client = Client(web.App(None, tools=[web.Tool("before_handler", replace)]))
    assert client.get("/replaced").text == "replacement"
    assert client.get("/answered").text == "of the tool"
    reply = client.get("/finished")
    assert (reply.status, reply.text) == (202, "finished")
    assert client.get("/other").status == 404


def test_hooks_of_the_configuration_are_callables_or_names() -> None:
    seen: list[str] = []
    config = {"/": {"hooks.before_handler": lambda request: seen.append("a"), "hooks.on_end_resource.2": seen.append}}
    Client(web.App(Pages([]), config)).get("/")
    assert seen[0] == "a"
    assert isinstance(seen[1], web.Request)


CASES = [
    ({"/": {"tools.gzipp.on": True, "tools.gzip.on": True}}, "there is no tool gzipp"),
    ({"/": {"tools.label.txt": "x"}}, "no option txt; did you mean text?"),
    ({"/": {"tools.label.times": "x"}}, "'x' is not of type int"),
    ({"/": {"tools.label.on": 1}}, "1 is neither true nor false"),
    ({"/": {"tools.label": 1}}, "name an option of the tool"),
    ({"/": {"body.limt": 1}}, "there is no such key; did you mean body.limit?"),
    ({"/": {"body.limit": "1 mile"}}, "'1 mile' is not a size"),
    ({"/": {"hooks.befor_handler": print}}, "there is no hook point befor_handler; did you mean before_handler?"),
    ({"/": {"hooks.before_handler": "os.nothing"}}, "has no attribute 'nothing'"),
    ({"/": {"response.headers.X-A": "a\r\nb"}}, "a character that may not be sent"),
    ({"/": {"response.headers.X-A": 1}}, "the value of a header field is text"),
    ({"/": {"error_page.999": print}}, "999 is neither an error's status nor default"),
    ({"/": {"params.unknown": "maybe"}}, "neither 'ignore' nor 'refuse'"),
    ({"/": {"toolz.label.on": True}}, "there is no such key"),
    ({"/a": 1}, "/a is not a table"),
    ({"/a/": {}, "/a": {}}, "two sections for /a"),
    ({"/a-b": {}, "/a_b": {}}, "sections of the same path"),
    ({"/sub": {"request.dispatch": web.Routes()}}, "request.dispatch is for a whole application"),
    ({"hosts": "x"}, "not a list of host names"),
]


@pytest.mark.parametrize(("config", "message"), CASES)
def test_a_mistake_in_the_configuration_fails_at_mount(config: dict[str, Any], message: str) -> None:
    @web.tool("before_finalize")
    def label(request: web.Request, text: str = "none", times: int = 1) -> None:
        pass

    with pytest.raises(web.ConfigError) as caught:
        web.App(Pages([]), config, tools=[label])
    assert message in str(caught.value)


def test_all_mistakes_are_told_at_once_with_their_origin() -> None:
    class Root:
        @web.config({"tools.nosuch.on": True})
        def index(self) -> str:
            return ""

        def page(self, c: complex) -> str:
            return ""

    with pytest.raises(web.ConfigError) as caught:
        web.App(Root(), {"/page": {"body.limit": -1}})
    assert len(caught.value.mistakes) == 3
    text = str(caught.value)
    assert "index's decorator: tools.nosuch.on" in text
    assert "App(config=...) [/page]: body.limit: -1 is not a size" in text
    assert "parameter c" in text


def test_settings_are_read_from_a_toml_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('[response.headers]\nX-Shop = "yes"\n["/stop".response.headers]\nX-Shop = "stop"\n')
    client = Client(web.App(Pages([]), str(file)))
    assert client.get("/").headers["X-Shop"] == "yes"
    assert client.get("/stop").headers["X-Shop"] == "stop"
    with pytest.raises(web.ConfigError, match="No such file"):
        web.App(Pages([]), str(tmp_path / "missing.toml"))
    file.write_text("[")
    with pytest.raises(web.ConfigError, match=r"shop\.toml"):
        web.App(Pages([]), str(file))


def test_a_section_for_one_spelling_of_a_path_holds_for_the_other() -> None:
    class Root:
        def secret_area(self) -> str:
            return "in"

    def deny(request: web.Request) -> None:
        raise web.HTTPError(401)

    client = Client(web.App(Root(), {"/secret-area": {"hooks.before_handler": deny}}))
    for path in ("/secret_area", "/secret-area", "/secret.area", "/secret_area/", "/secret_area/x"):
        assert client.get(path).status == 401


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "application/problem+json"),
        ("*/*", "application/problem+json"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html; charset=utf-8"),
        ("application/json", "application/problem+json"),
        ("text/html;q=0.1, application/json", "application/problem+json"),
        ("image/png", "application/problem+json"),
        ("text/html;q=nan", "application/problem+json"),
    ],
)
def test_errors_are_html_or_a_problem_document_as_the_client_prefers(accept: str, content_type: str) -> None:
    reply = Client(web.App(Pages([]))).get("/stop", headers={"Accept": accept})
    assert reply.status == 410
    assert reply.headers["Content-Type"] == content_type
    assert "it is gone" in reply.text
    assert reply.headers["Vary"] == "Accept"


def test_error_pages_escape_what_the_client_sent() -> None:
    class Root:
        def page(self, n: int) -> str:
            return ""

    reply = Client(web.App(Root())).get("/page/%3Cscript%3E", headers={"Accept": "text/html"})
    assert "<script>" not in reply.text
    assert "&lt;script&gt;" in reply.text


def test_an_unexpected_exception_is_logged_and_not_shown() -> None:
    client = Client(web.App(Pages([])))
    reply = client.get("/error")
    assert reply.status == 500
    assert "unplanned" not in reply.text
    number = reply.json()["error_id"]
    assert f"error {number}: GET '/error'" in reply.errors
    assert "RuntimeError: unplanned" in reply.errors
    debug = Client(web.App(Pages([]), {"errors.debug": True}))
    assert "RuntimeError: unplanned" in debug.get("/error", headers={"Accept": "text/html"}).text


def test_error_pages_may_be_files_or_callables_and_may_fail(tmp_path: Path) -> None:
    file = tmp_path / "410.html"
    file.write_text("<p>{status}: {detail} {other}")
    client = Client(web.App(Pages([]), {"error_page.410": str(file)}))
    assert client.get("/stop").text == "<p>410 Gone: it is gone {other}"
    client = Client(web.App(Pages([]), {"error_page.default": lambda request, error: {"sorry": error.status}}))
    assert client.get("/nothing").json() == {"sorry": 404}
    file.unlink()
    reply = Client(web.App(Pages([]), {"error_page.410": str(file)})).get("/stop")
    assert reply.status == 410
    assert "FileNotFoundError" in reply.errors


@pytest.mark.parametrize(
    "location",
    ["//evil.example/", "https://evil.example/", "http://testserver.evil.example/", "http://testserver@evil.example/",
     "\\\\evil.example", "/\\evil.example", "\t//evil.example", "javascript:alert(1)", "http:evil.example",
     "/a\r\nX: y"],
)  # fmt: skip
def test_a_redirect_to_another_origin_is_refused_unless_declared(location: str) -> None:
    class Root:
        def index(self) -> str:
            raise web.HTTPRedirect(location)

        def outside(self) -> str:
            raise web.HTTPRedirect(location, external=True)

    client = Client(web.App(Root()))
    assert client.get("/").status == 400
    assert "evil" not in client.get("/").headers.get("Location")
    reply = client.get("/outside")
    assert reply.status == 303
    assert "\r" not in reply.headers["Location"]


@pytest.mark.parametrize("location", ["/a", "b?c=d", "../up", "http://testserver/x", "?page=2", "/é ü"])
def test_a_redirect_within_the_origin_is_sent(location: str) -> None:
    class Root:
        def index(self) -> str:
            raise web.HTTPRedirect(location, 308)

    reply = Client(web.App(Root())).get("/")
    assert reply.status == 308
    assert reply.headers["Location"].isascii()


def test_an_internal_redirect_keeps_the_first_request_and_refuses_loops() -> None:
    class Root:
        @web.post
        def first(self) -> str:
            raise web.InternalRedirect("/second?x=1")

        def second(self, x: int, request: web.Request) -> str:
            assert request.previous is not None
            return f"{request.method} {x} {request.previous.path} {request.body()!r}"

        def loop(self) -> str:
            raise web.InternalRedirect("/loop")

        def far(self, n: int) -> str:
            raise web.InternalRedirect(f"/far/{n + 1}")

    client = Client(web.App(Root()))
    assert client.post("/first", body=b"unread").text == "GET 1 /first b''"
    reply = client.get("/loop")
    assert reply.status == 500
    assert "came back to /loop" in reply.errors
    assert client.get("/far/0").status == 500


def test_an_internal_redirect_before_the_body_leaves_it_unread() -> None:
    class Unreadable:
        def read(self, size: int = -1) -> bytes:
            raise AssertionError("the body was read")

    def redirect(request: web.Request) -> None:
        if request.path == "/first":
            raise web.InternalRedirect("/")

    app = web.App(Pages([]), {"/": {"hooks.on_start_resource": redirect}})
    environ = Client(app).environ("POST", "/first", web.Response().headers, b"x")
    environ["wsgi.input"] = Unreadable()
    started: list[str] = []
    assert b"".join(app(environ, lambda status, fields: started.append(status))) == b"page"
    assert started == ["200 OK"]


def test_a_stream_is_not_advanced_before_the_response_starts_and_is_closed() -> None:
    trace: list[str] = []

    class Root:
        def index(self) -> Iterator[str]:
            try:
                trace.append("first")
                yield "a"
                trace.append("second")
                yield "b"
            finally:
                trace.append("closed")

        @web.config({"response.stream": False})
        def whole(self) -> Iterator[str]:
            yield "a"
            yield "b"

    app = web.App(Root())
    client = Client(app)
    environ = client.environ("GET", "/", web.Response().headers, b"")
    body = app(environ, lambda status, fields: trace.append("START"))
    assert trace == ["START"]
    assert next(iter(body)) == b"a"
    assert trace == ["START", "first"]
    body.close()  # type: ignore[attr-defined]
    assert trace == ["START", "first", "closed"]
    reply = client.get("/whole")
    assert (reply.text, reply.headers["Content-Length"]) == ("ab", "2")
    assert "Content-Length" not in client.get("/").headers


@pytest.mark.parametrize(
    ("value", "content_type", "body"),
    [
        ("é", "text/html; charset=utf-8", "é".encode()),
        (b"x", "application/octet-stream", b"x"),
        ({"a": 1}, "application/json", b'{"a":1}'),
        ([1, None], "application/json", b"[1,null]"),
        (True, "application/json", b"true"),
        (1.5, "application/json", b"1.5"),
        ("", "text/html; charset=utf-8", b""),
    ],
)
def test_what_a_handler_returns_becomes_the_body(value: object, content_type: str, body: bytes) -> None:
    class Root:
        def index(self) -> object:
            return value

    reply = Client(web.App(Root())).get("/")
    assert (reply.status, reply.headers["Content-Type"], reply.body) == (200, content_type, body)
    assert reply.headers["Content-Length"] == str(len(body))


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("value", ["text", {"a": 1}, iter(["part"])])
def test_a_status_without_content_has_no_body_and_no_type(status: int, value: object) -> None:
    """The client validates: a 304 with a Content-Type breaks WSGI's rules."""

    class Root:
        def index(self, *, request: web.Request) -> object:
            request.response.status = status
            return value

    reply = Client(web.App(Root())).get("/")
    assert (reply.status, reply.body) == (status, b"")
    assert not {"Content-Type", "Content-Length"} & {name for name, _ in reply.headers}


def test_none_is_204_and_what_has_no_json_is_500() -> None:
    class Root:
        def nothing(self) -> None:
            return None

        def odd(self) -> object:
            return object()

        def nan(self) -> float:
            return float("nan")

    client = Client(web.App(Root()))
    reply = client.get("/nothing")
    assert (reply.status, reply.body) == (204, b"")
    assert "Content-Length" not in reply.headers
    assert "has no JSON form" in client.get("/odd").errors
    assert client.get("/nan").status == 500


def test_status_fields_and_cookies_of_the_request_reach_a_plain_result() -> None:
    class Root:
        def index(self, request: web.Request) -> str:
            request.response.status = 202
            request.response.headers["X-A"] = "1"
            request.response.set_cookie("a", "b", max_age=60)
            return "x"

        def own(self, request: web.Request) -> web.Response:
            request.response.set_cookie("a", "b")
            request.response.headers["X-A"] = "1"
            return web.Response("y", headers=[("X-A", "2")])

        def error(self, request: web.Request) -> str:
            request.response.delete_cookie("a")
            raise web.NotFound

    client = Client(web.App(Root()))
    reply = client.get("/")
    assert (reply.status, reply.headers["X-A"]) == (202, "1")
    assert reply.headers["Set-Cookie"] == "a=b; Max-Age=60; Path=/; Secure; HttpOnly; SameSite=Lax"
    assert client.cookies == {"a": "b"}
    reply = client.get("/own")
    assert (reply.headers["X-A"], reply.headers["X-Content-Type-Options"]) == ("2", "nosniff")
    assert client.get("/error").headers["Set-Cookie"].startswith("a=; Max-Age=0")


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "a\0b", "\u2028", "é\u0100"])
def test_a_field_that_would_split_the_response_is_refused(value: str) -> None:
    response = web.Response()
    with pytest.raises(ValueError):
        response.headers["X-A"] = value
    with pytest.raises(ValueError):
        response.headers.add(value, "x")
    with pytest.raises(ValueError):
        response.set_cookie("a", value)


def test_only_the_hosts_of_the_configuration_are_served() -> None:
    client = Client(web.App(Pages([]), {"hosts": ["shop.example", ".shop.test"]}))
    assert client.get("/", headers={"Host": "shop.example:8000"}).status == 200
    assert client.get("/", headers={"Host": "a.shop.test"}).status == 200
    assert client.get("/", headers={"Host": "SHOP.example"}).status == 200
    for host in ("evil.example", "shop.example.evil", "xshop.test", "[::1]"):
        assert client.get("/", headers={"Host": host}).status == 421


def test_a_path_that_is_not_utf8_is_400() -> None:
    assert Client(web.App(Pages([]))).get("/%FF").status == 400


def test_threads_never_see_each_others_request() -> None:
    barrier = threading.Barrier(8)

    class Root:
        def page(self, n: int) -> Iterator[str]:
            request = web.current()
            barrier.wait(30)
            assert web.current() is request

            def generate() -> Iterator[str]:
                yield f"{n} "
                barrier.wait(30)
                yield web.current().path

            return generate()

    app = web.App(Root())
    found: dict[int, str] = {}

    def ask(n: int) -> None:
        for round in range(20):
            found[n * 100 + round] = Client(app).get(f"/page/{n * 100 + round}").text

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    numbers = [n * 100 + round for n in range(8) for round in range(20)]
    assert found == {number: f"{number} /page/{number}" for number in numbers}
    with pytest.raises(LookupError):
        web.current()


def test_the_same_pages_are_served_over_a_real_server() -> None:
    class Root:
        def index(self, name: str = "world") -> str:
            return f"Hello {name}"

        @web.post
        def add(self, a: int, b: int) -> Any:
            return {"sum": a + b}

    app = web.App(Root())
    with Client(app, server=True) as client:
        assert client.get("/", query={"name": "é"}).text == "Hello é"
        assert client.post("/add", json={"a": 1, "b": 2}).json() == {"sum": 3}
        assert client.request("HEAD", "/").body == b""
        assert client.get("/nothing").status == 404
