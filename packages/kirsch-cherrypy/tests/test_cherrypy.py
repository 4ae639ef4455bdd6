"""kirsch_cherrypy: what CherryPy's own tests, which `make test-web-cherrypy` runs, do not show."""

# mypy: disable-error-code="untyped-decorator, no-any-return, unused-ignore"

from __future__ import annotations

import pathlib
import sys
import threading
from contextvars import copy_context
from typing import Any

import pytest

import kirsch_cherrypy as cherrypy
from cherrypy_calls import FORM, Answer, Echo, ask, environ_of, fresh  # noqa: F401 - fresh is a fixture of each test
from kirsch_cherrypy.lib import reprconf, static

# The order of a request


class Traced:
    """Writes down each hook point that a request passes."""

    def __init__(self) -> None:
        self.trace: list[str] = []

    def config(self) -> dict[str, Any]:
        def hook(point: str) -> Any:
            return lambda: self.trace.append(point)

        return {f"hooks.{point}": hook(point) for point in cherrypy._cprequest.hookpoints}

    @cherrypy.expose
    def index(self) -> str:
        self.trace.append("handler")
        return "fine"

    @cherrypy.expose
    def redirect(self) -> str:
        raise cherrypy.HTTPRedirect("/")

    @cherrypy.expose
    def fails(self) -> str:
        raise LookupError("no such thing")

    @cherrypy.expose
    @cherrypy.config(**{"response.stream": True})
    def stream(self) -> Any:
        self.trace.append("first")
        yield "one"
        self.trace.append("second")
        yield "two"


BEGIN = ["on_start_resource", "before_request_body", "before_handler"]


@pytest.mark.parametrize(
    ("path", "status", "order"),
    [
        ("/", 200, [*BEGIN, "handler", "before_finalize", "on_end_resource", "on_end_request"]),
        ("/redirect", 303, [*BEGIN, "before_finalize", "on_end_resource", "on_end_request"]),
        ("/missing", 404, [*BEGIN, "before_finalize", "on_end_resource", "on_end_request"]),
        ("/fails", 500, [*BEGIN, "on_end_resource", "before_error_response", "after_error_response", "on_end_request"]),
        ("/stream", 200, [*BEGIN, "before_finalize", "on_end_resource", "first", "second", "on_end_request"]),
    ],
)
def test_hooks_run_in_cherrypys_order(path: str, status: int, order: list[str]) -> None:
    root = Traced()
    cherrypy.tree.mount(root, config={"/": root.config()})
    assert ask(path).status == status
    assert root.trace == order


def test_stream_is_not_advanced_before_the_response_has_started() -> None:
    root = Traced()
    cherrypy.tree.mount(root)
    started: list[str] = []
    response = cherrypy.tree(environ_of("/stream"), lambda status, headers, exc_info=None: started.append(status))
    assert (started, root.trace) == (["200 OK"], [])
    assert next(iter(response)) == b"one"
    assert root.trace == ["first"]
    response.close()


def test_internal_redirect_to_the_same_url_is_an_error_and_not_a_loop() -> None:
    class Root:
        @cherrypy.expose
        def a(self) -> str:
            raise cherrypy.InternalRedirect("/b")

        @cherrypy.expose
        def b(self) -> str:
            raise cherrypy.InternalRedirect("/a")

    cherrypy.tree.mount(Root())
    answer = ask("/a")
    assert answer.status == 500
    assert "an InternalRedirect leads to &#x27;/a&#x27; again" in answer.text.replace("'", "&#x27;")


def test_internal_redirect_does_not_send_the_range_and_body_of_the_first_request() -> None:
    class Root:
        @cherrypy.expose
        def first(self, **params: str) -> str:
            raise cherrypy.InternalRedirect("/second?b=2")

        @cherrypy.expose
        def second(self, **params: str) -> str:
            request = cherrypy.request
            return f"{request.method} {params} {request.headers.get('Range')} {request.prev.method}"

    cherrypy.tree.mount(Root())
    assert ask("/first", "POST", b"a=1", HTTP_RANGE="bytes=0-1", **FORM).text == "GET {'b': '2'} None POST"


# Requests at the same time


class Waiting:
    """A handler waits until all others are inside."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=60)

    @cherrypy.expose
    def index(self, number: str) -> str:
        cherrypy.request.mine = number
        cherrypy.response.headers["X-Number"] = number
        self.barrier.wait()
        return f"{cherrypy.request.mine} {cherrypy.request.params['number']}"


def test_threads_never_see_the_request_of_another() -> None:
    cherrypy.tree.mount(Waiting(8))
    answers: dict[int, list[Answer]] = {}

    def client(number: int) -> None:
        answers[number] = [ask(f"/?number={number}") for _ in range(20)]

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for number in range(8):
        assert [answer.text for answer in answers[number]] == [f"{number} {number}"] * 20
        assert {answer.headers["X-Number"] for answer in answers[number]} == {str(number)}


def test_two_contexts_of_one_thread_keep_their_requests_apart() -> None:
    """Greenlets and tasks each have a context; here two streams take turns in one thread."""

    class Root:
        @cherrypy.expose
        @cherrypy.config(**{"response.stream": True})
        def index(self, number: str) -> Any:
            for _ in range(3):
                yield f"{cherrypy.request.params['number']} "

    cherrypy.tree.mount(Root())
    environs = [environ_of(f"/?number={number}") for number in "ab"]
    contexts = [copy_context() for _ in environs]
    streams = [
        context.run(cherrypy.tree, environ, lambda *_: None)
        for context, environ in zip(contexts, environs, strict=True)
    ]
    seen = [context.run(next, stream) for _ in range(3) for context, stream in zip(contexts, streams, strict=True)]
    assert seen == [b"a ", b"b "] * 3
    for context, stream in zip(contexts, streams, strict=True):
        context.run(stream.close)
    assert cherrypy.request.app is None


# Configuration


def test_configuration_and_tools_may_change_between_requests() -> None:
    class Root:
        @cherrypy.expose
        def index(self) -> str:
            return str(cherrypy.request.config.get("colour"))

    app = cherrypy.tree.mount(Root(), config={"/": {"colour": "red"}})
    assert ask().text == "red"
    app.config["/"]["colour"] = "blue"
    assert ask().text == "blue"
    app.config["/"]["tools.response_headers.on"] = True
    app.config["/"]["tools.response_headers.headers"] = [("X-One", "1")]
    assert ask().headers["X-One"] == "1"
    cherrypy.config.update({"tools.marker.on": True})
    assert ask().status == 500  # there is no such tool yet
    cherrypy.tools.marker = cherrypy.Tool(
        "before_finalize", lambda: cherrypy.response.headers.update({"X-Marker": "set"})
    )
    try:
        assert ask().headers["X-Marker"] == "set"
        cherrypy.tools.marker.callable = lambda: cherrypy.response.headers.update({"X-Marker": "other"})
        assert ask().headers["X-Marker"] == "other"
    finally:
        del cherrypy.tools.marker


def test_precedence_of_configuration_is_that_of_the_rules() -> None:
    """The nearest wins, and at one place the section of a file wins over the class."""

    class Leaf:
        _cp_config = {"k": "leaf"}

        @cherrypy.expose
        @cherrypy.config(k="method")
        def m(self) -> str:
            return str(cherrypy.request.config["k"])

        @cherrypy.expose
        def n(self) -> str:
            return str(cherrypy.request.config["k"])

        @cherrypy.expose
        @cherrypy.config(k="default")
        def default(self, *path: str) -> str:
            return str(cherrypy.request.config["k"])

    class Root:
        _cp_config = {"k": "root"}
        leaf = Leaf()

        @cherrypy.expose
        def index(self) -> str:
            return str(cherrypy.request.config["k"])

    def answers(sections: dict[str, Any]) -> list[str]:
        cherrypy.tree.mount(Root(), config=sections)
        return [ask(path).text for path in ("/", "/leaf/n", "/leaf/m", "/leaf/zzz")]

    assert answers({"/": {}}) == ["root", "leaf", "method", "default"]
    assert answers({"/": {"k": "app/"}}) == ["app/", "leaf", "method", "default"]
    everywhere = {"/": {"k": "app/"}, "/leaf": {"k": "app/leaf"}}
    assert answers(everywhere) == ["app/", "app/leaf", "method", "default"]
    nearest = {"/leaf/m": {"k": "app/m"}, "/leaf/zzz": {"k": "app/zzz"}}
    assert answers(nearest) == ["root", "leaf", "app/m", "app/zzz"]


def test_configuration_file_has_python_values_and_names_a_bad_one(tmp_path: pathlib.Path) -> None:
    good = tmp_path / "good.conf"
    good.write_text("[/]\nsize: 2 * 1024\nnames: ['a', 'b']\ntools.sessions.timeout = 60.5\nKeepsCase: None\n")
    app = cherrypy.Application(None, config=str(good))
    assert app.config["/"] == {"size": 2048, "names": ["a", "b"], "tools.sessions.timeout": 60.5, "KeepsCase": None}
    bad = tmp_path / "bad.conf"
    bad.write_text("[/x]\nsize: 2 *\n")
    with pytest.raises(ValueError) as caught:
        cherrypy.Application(None, config=str(bad))
    assert "section: '/x', option: 'size', value: '2 *'" in str(caught.value)


def test_unknown_tool_is_named_with_the_near_spelling() -> None:
    class Root:
        @cherrypy.expose
        @cherrypy.config(**{"tools.sesions.on": True})
        def index(self) -> str:
            return "never"

    cherrypy.tree.mount(Root())
    answer = ask()
    assert answer.status == 500
    assert "there is no tool tools.sesions; did you mean tools.sessions?" in answer.text


def test_unknown_environment_is_refused() -> None:
    with pytest.raises(ValueError) as caught:
        cherrypy.config.update({"environment": "prodution"})
    assert "there is no 'prodution'" in str(caught.value)


def test_expression_of_a_configuration_may_not_define_or_assign() -> None:
    for text in ("lambda: 1", "[x for x in (1, 2)]", "(y := 2)"):
        with pytest.raises(TypeError):
            reprconf.unrepr(text)


# Handlers


def test_type_error_inside_a_handler_is_a_500_and_a_wrong_call_a_404() -> None:
    class Root:
        @cherrypy.expose
        def index(self, a: str) -> str:
            return a + 1  # type: ignore[operator]

        @cherrypy.expose
        def keyword(self, *, only: str) -> str:
            return only

    cherrypy.tree.mount(Root())
    assert ask("/?a=1").status == 500
    assert ask("/").status == 404
    assert ask("/?a=1&b=2").status == 404
    assert ask("/", "POST", b"a=1&b=2", **FORM).status == 400
    assert ask("/keyword?only=x").text == "x"
    assert "Missing parameters: only" in ask("/keyword").text


def test_params_tool_reads_annotations_that_are_texts() -> None:
    class Root:
        @cherrypy.expose
        @cherrypy.tools.params()
        def index(self, limit: int) -> str:  # a text, by the import at the top of this file
            return repr(limit)

    cherrypy.tree.mount(Root())
    assert ask("/?limit=7").text == "7"
    assert ask("/?limit=x").status == 400


def test_path_beyond_ascii_reaches_mount_and_handler() -> None:
    class Root:
        @cherrypy.expose
        def default(self, *path: str) -> str:
            return "|".join(path)

    cherrypy.tree.mount(Root(), "/straße")
    assert ask("/straße/é%2Fx".encode().decode("latin-1")).text == "é/x"
    assert ask("/stra/é".encode().decode("latin-1")).status == 404


def test_routes_are_told_to_be_missing_when_the_package_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "routes", None)
    with pytest.raises(ImportError) as caught:
        cherrypy.dispatch.RoutesDispatcher()
    assert "pip install routes" in str(caught.value)


def test_own_dispatcher_sets_the_handler_or_leaves_it_to_a_tool() -> None:
    def dispatch(path: str) -> None:
        cherrypy.request.config = {**cherrypy.config, "tools.body.on": path == "/tool"}
        cherrypy.request.handler = {
            "/gone": cherrypy.HTTPError(410),
            "/page": lambda: "page",
        }.get(path)

    def body() -> None:
        cherrypy.response.body = b"from the tool"

    cherrypy.tools.body = cherrypy.Tool("before_handler", body)
    try:
        cherrypy.tree.mount(None, config={"/": {"request.dispatch": dispatch}})
        assert ask("/gone").status == 410
        assert ask("/page").text == "page"
        assert ask("/tool").text == "from the tool"
    finally:
        del cherrypy.tools.body


# Bodies


def multipart(*parts: str) -> bytes:
    return ("".join(f"--X\r\n{part}\r\n" for part in parts) + "--X--\r\n").encode()


MULTIPART = {"CONTENT_TYPE": "multipart/form-data; boundary=X"}


def test_multipart_lines_and_line_ends_of_a_file_stay() -> None:
    cherrypy.tree.mount(Echo())
    for content in ("", "\r\n", "\r\n\r\n", "a\r\n--Y\r\n\rb\n\n", "x" * 200_000 + "\r", "--", "--Xx"):
        body = multipart(
            f'Content-Disposition: form-data; name="f"; filename="n.bin"\r\n\r\n{content}',
            'Content-Disposition: form-data; name="t"\r\n\r\n7',
        )
        assert ask("/", "POST", body, **MULTIPART).text == f"f=n.bin:{len(content)} t=7", repr(content[:20])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'--X\r\nContent-Disposition: form-data; name="a"\r\n\r\nno end', 400),
        (b"--X\r\nContent-Disposition: form-data", 400),
        (b"--X\r\nno field\r\n\r\nx\r\n--X--\r\n", 400),
        (b"--X\r\n" + b"A: " + b"x" * 9000 + b"\r\n\r\nx\r\n--X--\r\n", 413),
        (multipart(*['Content-Disposition: form-data; name="a"\r\n\r\n1'] * 1001), 413),
        (b"", 200),
    ],
)
def test_multipart_that_breaks_a_rule_or_a_limit_is_refused(body: bytes, status: int) -> None:
    cherrypy.tree.mount(Echo())
    assert ask("/", "POST", body, **MULTIPART).status == status


def test_multipart_inside_multipart_has_a_limit() -> None:
    cherrypy.tree.mount(Echo())
    inner = "Content-Type: text/plain\r\n\r\nx"
    for level in range(6):
        inner = f"Content-Type: multipart/mixed; boundary=B{level}\r\n\r\n--B{level}\r\n{inner}\r\n--B{level}--"
    assert ask("/", "POST", multipart(inner), **MULTIPART).status == 413


def test_body_shorter_than_its_length_and_bad_lengths_are_400() -> None:
    cherrypy.tree.mount(Echo())
    assert ask("/", "POST", b"a=1", CONTENT_LENGTH="9", **FORM).status == 400
    assert ask("/", "POST", b"a=1", CONTENT_LENGTH="+3", **FORM).status == 400


def test_json_that_is_nested_too_deeply_is_400() -> None:
    class Root:
        @cherrypy.expose
        @cherrypy.tools.json_in()
        def index(self) -> str:
            return "read"

    cherrypy.tree.mount(Root())
    assert ask("/", "POST", b"[" * 200_000, CONTENT_TYPE="application/json").status == 400
    assert ask("/", "POST", b"\xff", CONTENT_TYPE="application/json").status == 400


# Accidents


def test_static_directory_does_not_serve_its_sibling(tmp_path: pathlib.Path) -> None:
    for name in ("pub", "pub2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "s.txt").write_text(name)
    config = {"/s": {"tools.staticdir.on": True, "tools.staticdir.dir": str(tmp_path / "pub")}}
    cherrypy.tree.mount(None, config=config)
    assert ask("/s/s.txt").text == "pub"
    for path in ("/s/../pub2/s.txt", "/s/..%2fpub2/s.txt", "/s/%2e%2e/pub2/s.txt"):
        assert ask(path).status == 403, path


def test_many_ranges_are_answered_with_the_whole_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(b"0123456789")

    class Root:
        @cherrypy.expose
        def index(self) -> Any:
            return static.serve_file(str(path))

    cherrypy.tree.mount(Root())
    assert ask(HTTP_RANGE="bytes=2-4").body == b"234"
    many = "bytes=" + ",".join(["0-"] * 500)
    answer = ask(HTTP_RANGE=many)
    assert (answer.status, answer.body) == (200, b"0123456789")
    assert ask(HTTP_RANGE="bytes=20-").status == 416


def test_control_characters_cannot_end_a_response_field() -> None:
    class Root:
        @cherrypy.expose
        def index(self, to: str) -> str:
            cherrypy.response.headers["X-To"] = to
            raise cherrypy.HTTPRedirect(to)

    cherrypy.tree.mount(Root())
    answer = ask("/?to=/a%0d%0aSet-Cookie:%20x=1")
    assert "Set-Cookie" not in answer.headers
    assert "\n" not in answer.headers["Location"]


def test_error_page_escapes_what_the_client_sent() -> None:
    cherrypy.tree.mount(Echo())
    answer = ask("/<script>alert(1)</script>")
    assert answer.status == 404
    assert "<script>" not in answer.text


def test_tracebacks_are_not_shown_in_production() -> None:
    class Root:
        @cherrypy.expose
        def index(self) -> str:
            raise ValueError("secret")

        @cherrypy.expose
        @cherrypy.config(**{"request.throw_errors": True})
        def throws(self) -> str:
            raise ValueError("secret")

    cherrypy.config.reset()
    cherrypy.config.update({"environment": "production"})
    cherrypy.tree.mount(Root())
    for path in ("/", "/throws"):
        answer = ask(path)
        assert answer.status == 500
        assert "secret" not in answer.text


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "*;q=0, gzip"])
def test_a_part_of_a_file_is_not_compressed_and_not_kept_for_others(tmp_path: pathlib.Path, coding: str) -> None:
    (tmp_path / "a.txt").write_text("0123456789" * 200)
    config = {"tools.gzip.on": True, "tools.caching.on": True, "tools.staticfile.on": True}
    config["tools.staticfile.filename"] = str(tmp_path / "a.txt")  # type: ignore[assignment]
    cherrypy.tree.mount(object(), "/", {"/a.txt": config})
    for value, parts in (("bytes=3-5", b"345"), ("bytes=0-0, 9-9", None)):
        reply = ask("/a.txt", HTTP_RANGE=value, HTTP_ACCEPT_ENCODING=coding)
        assert (reply.status, "Content-Encoding" in reply.headers) == (206, False)
        if parts is not None:
            assert (reply.body, reply.headers["Content-Length"]) == (parts, "3")
    # The next response is not a part that the cache has kept.
    reply = ask("/a.txt")
    assert (reply.status, len(reply.body)) == (200, 2000)
