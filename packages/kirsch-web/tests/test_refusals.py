"""Refusals: mistakes of an application when it is mounted, and requests that no handler can take."""

from __future__ import annotations

import dataclasses
import threading
from typing import Annotated, Any

import pytest

import kirsch_web as web
from kirsch_web.testing import Client

SECRET = "a secret of enough characters"


# Requests


@dataclasses.dataclass
class Tree:
    value: Any
    children: list[Tree] | dict[str, Tree] | None = None


@pytest.mark.parametrize("asgi", [False, True])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 100 + b"]" * 100, 200),
        (b'{"a":' * 100 + b"1" + b"}" * 100, 200),
        (b"[" * 101 + b"]" * 101, 400),
        (b'{"a":[' * 60 + b"]}" * 60, 400),
        (b"[" * 9_000 + b"]" * 9_000, 400),
        (b"[" * 400_000 + b"]" * 400_000, 400),
        (b"[" * 400_000, 400),
        (b"[" + b"[]," * 200 + b"0]", 200),
        (b'"\\ud800"', 400),
        (b'{"\\udfff":1}', 400),
        (b'["\\ud83d\\ude00"]', 200),
    ],
    ids=lambda value: str(value)[:20],
)
def test_json_that_nobody_can_write_again_is_refused(body: bytes, status: int, asgi: bool) -> None:
    class Root:
        @web.post
        def index(self, *, request: web.Request) -> Any:
            return web.json(request.json())

        @web.post
        def typed(self, value: Tree) -> Any:
            return web.json(value)

    app: Any = web.App(Root())
    with Client(web.ASGI(app) if asgi else app) as client:
        reply = client.post("/", body=body, headers={"Content-Type": "application/json"})
        assert (reply.status, reply.errors) == (status, "")
        wrapped = b'{"value":' + body + b"}"
        assert client.post("/typed", body=wrapped, headers={"Content-Type": "application/json"}).status in (200, 400)
        assert len(reply.body) < 2_000 or status == 200


@dataclasses.dataclass
class Left:
    child: Left | Right | None = None
    left: int = 0


@dataclasses.dataclass
class Right:
    right: int
    child: Left | Right | None = None


def test_records_of_two_kinds_inside_of_each_other_take_linear_time() -> None:
    """Each member of a union was tried on all that is inside: 2 ** 90 times at the innermost value."""

    class Root:
        @web.post
        def index(self, node: Left) -> Any:
            depth = 0
            while node.child is not None:
                node, depth = node.child, depth + 1  # type: ignore[assignment]
            return depth

    client = Client(web.App(Root()))
    for value, status in ((b"null", 200), (b"7", 422), (b'{"left":"x"}', 422), (b'{"right":1}', 200)):
        body = b'{"child":' * 90 + value + b"}" * 90
        reply = client.post("/", body=body, headers={"Content-Type": "application/json"})
        assert reply.status == status
        assert len(reply.body) < 20_000


@pytest.mark.parametrize("asgi", [False, True])
def test_a_redirect_to_a_foreign_url_of_the_client_is_400(asgi: bool) -> None:
    class Root:
        def go(self, to: str) -> None:
            raise web.HTTPRedirect(to)

        def away(self, to: str) -> None:
            raise web.HTTPRedirect(to, external=True)

    app: Any = web.App(Root(), tools=[web.security_headers()])
    with Client(web.ASGI(app) if asgi else app) as client:
        for to in ("https://evil.example", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "/a\nb"):
            reply = client.get("/go", query={"to": to})
            assert (reply.status, reply.headers.get("Location")) == (400, ""), to
            assert "external=True" in reply.errors
            assert "Traceback" not in reply.errors
            assert reply.headers["X-Frame-Options"] == "SAMEORIGIN"
        assert client.get("/go", query={"to": "/next"}).headers["Location"] == "/next"
        assert client.get("/away", query={"to": "https://other.example"}).status == 303


@dataclasses.dataclass
class Options:
    tags: list[str] = dataclasses.field(default_factory=list)


def test_a_mutable_default_is_not_shared_between_requests() -> None:
    class Root:
        def lists(self, tags: list[str] = []) -> list[str]:  # noqa: B006 - it is tested
            tags.append("x")
            return tags

        def named(self, *, tags: list[str] = [], seen: set[int] = set(), **others: str) -> Any:  # noqa: B006
            tags.append("x")
            seen.add(len(seen))
            return [tags, seen]

        def record(self, *, options: Options = Options()) -> Any:  # noqa: B008 - it is tested
            options.tags.append("x")
            return options

        @web.post
        def body(self, options: dict[str, Any] = {}, files: list[web.Upload] = []) -> Any:  # noqa: B006
            options["n"] = options.get("n", 0) + 1
            files.append(None)  # type: ignore[arg-type]
            return [options["n"], len(files)]

        def header(self, *, theme: "Annotated[list[str], web.FromCookie('theme')]" = []) -> Any:  # noqa: B006, UP037
            theme.append("x")
            return theme

        def lock(self, *, lock: Any = threading.Lock()) -> Any:  # noqa: B008 - it cannot be copied
            return str(type(lock).__name__)

    client = Client(web.App(Root()))
    for _ in range(3):
        assert client.get("/lists").json() == ["x"]
        assert client.get("/named").json() == [["x"], [0]]
        assert client.get("/record").json() == {"tags": ["x"]}
        assert client.post("/body", form={}).json() == [1, 1]
        assert client.get("/header").json() == ["x"]
        assert client.get("/lock").text == "lock"


def test_a_form_can_be_listed() -> None:
    class Root:
        @web.post
        def index(self, *, request: web.Request) -> Any:
            form = request.form
            return [list(form), len(form), dict(form), bool(form), dict(form.items())]

    client = Client(web.App(Root()))
    reply = client.post("/", form={"a": ["1", "2"], "b": "3"})
    assert reply.json() == [["a", "b"], 2, {"a": "1", "b": "3"}, True, {"a": "1", "b": "3"}]
    assert client.post("/", files={"f": ("a.txt", b"x")}).json() == [[], 0, {}, True, {}]
    assert client.post("/", form={}).json() == [[], 0, {}, False, {}]


# Security headers


NAMES = (
    "Content-Security-Policy", "Referrer-Policy", "X-Frame-Options", "Cross-Origin-Opener-Policy",
    "X-Content-Type-Options", "Strict-Transport-Security",
)  # fmt: skip


class Pages:
    def index(self) -> str:
        return "page"

    def fails(self) -> None:
        raise ValueError("a mistake")

    def stream(self) -> Any:
        yield "part"

    def redirect(self) -> None:
        raise web.HTTPRedirect("/")

    def inside(self) -> None:
        raise web.InternalRedirect("/fails")

    def circle(self) -> None:
        raise web.InternalRedirect("/circle")

    def own(self) -> web.Response:
        return web.text("own")

    def unfit(self) -> Any:
        return object()

    def empty(self) -> None:
        return None

    @web.post
    def form(self, number: int) -> str:
        return str(number)


@pytest.mark.parametrize("asgi", [False, True])
def test_security_headers_are_on_every_response(asgi: bool, tmp_path: Any) -> None:
    class Root(Pages):
        static = web.StaticFiles(str(tmp_path))

    (tmp_path / "a.txt").write_text("hello")

    def fails(request: web.Request) -> None:
        raise OSError("a hook")

    def stops(request: web.Request) -> None:
        raise web.HTTPError(409, "a hook")

    def page_fails(request: web.Request, stop: web.HTTPError) -> str:
        raise OSError("a page")

    tools = [web.security_headers(hsts=60)]
    for config in (
        {},
        {"hooks.on_start_resource": fails},
        {"hooks.before_finalize": fails},
        {"hooks.before_finalize": stops},
        {"hooks.on_end_resource": fails},
        {"hooks.on_end_resource": stops},
        {"hooks.before_error_response": fails, "hooks.on_start_resource": fails},
        {"hooks.after_error_response": fails},
        {"error_page.default": page_fails},
        {"errors.debug": True},
        {"hosts": ["other.example"]},
        {"body.limit": 1},
    ):
        app: Any = web.App(Root(), config, tools=tools)
        with Client(web.ASGI(app) if asgi else app) as client:
            client.base = "https://testserver"
            for method, path in (
                ("GET", "/"), ("GET", "/fails"), ("GET", "/stream"), ("GET", "/redirect"), ("GET", "/own"),
                ("GET", "/unfit"), ("GET", "/empty"), ("GET", "/nothing"), ("GET", "/%FF"), ("GET", "/inside"),
                ("GET", "/circle"), ("HEAD", "/"), ("HEAD", "/fails"), ("OPTIONS", "/"), ("DELETE", "/"),
                ("POST", "/form"), ("GET", "/static/a.txt"), ("GET", "/static/b.txt"), ("TRACE", "/"),
            ):  # fmt: skip
                reply = client.request(method, path, body=b"number=x" if method == "POST" else b"")
                missing = [name for name in NAMES if name not in reply.headers]
                assert not missing, (config, method, path, reply.status)


def test_an_error_page_keeps_its_own_stricter_policy() -> None:
    client = Client(web.App(Pages(), tools=[web.security_headers()]), headers={"Accept": "text/html"})
    for path in ("/fails", "/nothing"):
        assert client.get(path).headers["Content-Security-Policy"].startswith("default-src 'none'")


# Mistakes of the application


def mistakes_of(make: Any) -> str:
    with pytest.raises(web.ConfigError) as caught:
        make()
    return str(caught.value)


def test_tools_that_are_none_are_refused_with_words() -> None:
    def plain(request: web.Request) -> None:
        pass

    for tools, words in (
        ([web.session], "web.session(...)"),
        ([web.csrf], "web.csrf(...)"),
        ([web.security_headers], "web.security_headers(...)"),
        (["gzip"], "tools.gzip.on"),
        ([plain], "@web.tool(...)"),
        ([web.Tool], "Tool is a function or a class"),
        ([7], "7 is not a tool"),
        (web.csrf(), "takes a list of tools"),
    ):
        message = mistakes_of(lambda tools=tools: web.App(Pages(), tools=tools))
        assert words in message, message
        assert "\n" not in message


@pytest.mark.parametrize("kind", ["tree", "resources", "routes"])
def test_a_session_without_its_tool_is_refused(kind: str) -> None:
    class Root:
        def index(self, *, session: web.Session) -> Any:
            return dict(session)

        GET = index

    routes = web.Routes()
    routes.connect("index", "/", Root())
    dispatch = {"tree": None, "resources": web.Resources(), "routes": routes}[kind]
    message = mistakes_of(lambda: web.App(Root(), dispatch=dispatch))
    assert "parameter session needs the tool session" in message
    assert "App(tools=[web.session(...)])" in message
    off = {"/": {"tools.session.on": False}}
    assert "needs the tool" in mistakes_of(
        lambda: web.App(Root(), off, [web.session(secret=SECRET)], dispatch=dispatch)
    )
    # A session tool with a mistake is one mistake.
    assert "needs the tool" not in mistakes_of(
        lambda: web.App(Root(), {"tools.session.on": True, "tools.session.secret": "short"}, dispatch=dispatch)
    )
    assert Client(web.App(Root(), tools=[web.session(secret=SECRET)], dispatch=dispatch)).get("/").json() == {}


def test_unknown_fields_are_refused_with_every_dispatcher() -> None:
    class Root:
        def index(self, a: int = 0) -> Any:
            return a

        GET = index

    def own(path: str) -> None:
        web.current().handler = web.page(root.index)

    root = Root()
    routes = web.Routes()
    routes.connect("index", "/", root)
    for dispatch in (None, web.Resources(), routes, own):
        client = Client(web.App(root, {"params.unknown": "refuse"}, dispatch=dispatch))
        assert client.get("/?a=1").status == 200
        assert client.get("/?b=1").status == 400, dispatch


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (web.security_headers(hsts="long"), "App(tools=...): tools.security_headers.hsts: 'long' is not of type int"),
        (web.security_headers(cps="x"), "the tool security_headers has no option cps"),
        (web.Tool("before_handler", lambda request, *, least=1: None, "limits", most=2), "has no option most"),
    ],
)
def test_options_that_a_tool_was_made_with_are_checked_like_those_of_the_configuration(tool: Any, words: str) -> None:
    with pytest.raises(web.ConfigError) as raised:
        web.App(Pages(), tools=[tool])
    assert words in str(raised.value)
