"""The middleware that follows 307 inside the server: one test for each known defect of its published ancestor."""

from __future__ import annotations

import gc
import io
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.validate import validator

import pytest

from kirsch_web.internal_redirect import MOST, redirector

Handler = Callable[[dict[str, Any], Any], Iterable[bytes]]


def environ(path: str = "/", method: str = "GET", body: bytes = b"", **others: Any) -> dict[str, Any]:
    path, _, query = path.partition("?")
    return {
        "REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": query,
        "SERVER_NAME": "shop.example", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "shop.example",
        "CONTENT_LENGTH": str(len(body)), "wsgi.version": (1, 0), "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body), "wsgi.errors": io.StringIO(), "wsgi.multithread": False,
        "wsgi.multiprocess": False, "wsgi.run_once": False, **others,
    }  # fmt: skip


class Site:
    """An application of handlers by path, which remembers the environs that it was called with."""

    def __init__(self, **handlers: Handler) -> None:
        self.handlers = handlers
        self.seen: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.seen.append(environ)
        name = environ["PATH_INFO"].strip("/").split("/")[0] or "index"
        return self.handlers[name](environ, start_response)


def to(location: str, body: bytes = b"see there", status: str = "307 Temporary Redirect") -> Handler:
    def handler(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response(status, [("Content-Type", "text/plain"), ("Location", location)])
        return [body]

    return handler


def page(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"page ", environ["PATH_INFO"].encode("latin-1"), b"?", environ["QUERY_STRING"].encode()]


def ask(app: Any, request: dict[str, Any], recursive: bool = False) -> tuple[str, dict[str, str], bytes]:
    started: list[Any] = []

    def start_response(status: str, headers: Any, exc_info: Any = None) -> Any:
        started[:] = [status, dict(headers)]
        return lambda data: written.append(data)

    written: list[bytes] = []
    body = redirector(app, recursive)(request, start_response)
    try:
        data = b"".join(body)
    finally:
        getattr(body, "close", lambda: None)()
    return started[0], started[1], b"".join(written) + data


def test_a_307_is_followed_and_the_client_sees_no_location() -> None:
    site = Site(index=to("http://shop.example/page?a=1"), page=page)
    status, headers, body = ask(site, environ("/", "POST", b"form"))
    assert (status, body) == ("200 OK", b"page /page?a=1")
    assert "Location" not in headers
    second = site.seen[1]
    assert (second["REQUEST_METHOD"], second["CONTENT_LENGTH"], second["wsgi.input"].read()) == ("GET", "0", b"")
    assert second["redirector.history"] == ["/"]
    assert (second["HTTP_HOST"], second["SERVER_NAME"], second["SERVER_PORT"]) == ("shop.example",) * 2 + ("80",)


def test_what_is_no_307_passes_as_it_is() -> None:
    for status in ("200 OK", "302 Found", "308 Permanent Redirect", "303 See Other"):
        site = Site(index=to("/page", b"body", status))
        assert ask(site, environ()) == (status, {"Content-Type": "text/plain", "Location": "/page"}, b"body")
    without = Site(index=lambda environ, start: (start("307 Temporary Redirect", []), [b"x"])[1])
    assert ask(without, environ())[0] == "307 Temporary Redirect"


def test_both_sides_keep_to_wsgi() -> None:
    site = Site(index=to("/page"), page=page)
    app = validator(redirector(validator(site)))
    started: list[str] = []

    def start_response(status: str, headers: Any, exc_info: Any = None) -> Any:
        started.append(status)
        return lambda data: None

    body = app(environ(), start_response)
    assert b"".join(body) == b"page /page?"
    body.close()  # type: ignore[attr-defined]
    assert started == ["200 OK"]


def test_recursive_decides_about_visiting_twice_and_is_bounded() -> None:
    site = Site(index=to("/a"), a=to("/b"), b=to("/a"))
    with pytest.raises(RuntimeError, match="same URL twice: /a"):
        ask(site, environ())
    with pytest.raises(RuntimeError, match=f"followed {MOST} redirects"):
        ask(site, environ(), recursive=True)
    calls = iter([to("/a"), page])
    assert ask(Site(a=lambda *args: next(calls)(*args)), environ("/a"), recursive=True)[0] == "200 OK"


def test_a_loop_is_found_whether_quoted_or_not() -> None:
    with pytest.raises(RuntimeError, match="same URL twice"):
        ask(lambda *args: to("/%61%20b")(*args), environ("/a b"))


def test_start_response_takes_no_exc_info() -> None:
    assert ask(page, environ("/x"))[0] == "200 OK"


def test_a_stream_is_passed_on_part_by_part() -> None:
    made: list[str] = []

    def stream(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        for part in ("one", "two", "three"):
            made.append(part)
            yield part.encode()

    body = iter(redirector(stream)(environ(), lambda *args: None))
    assert next(body) == b"one"
    assert made == ["one"]
    assert next(body) == b"two"
    assert made == ["one", "two"]


def test_bodies_are_closed_of_redirect_and_page_alike() -> None:
    closed: list[str] = []

    class Body:
        def __init__(self, name: str) -> None:
            self.name = name

        def __iter__(self) -> Iterator[bytes]:
            return iter([self.name.encode()])

        def close(self) -> None:
            closed.append(self.name)

    def handler(name: str, inner: Handler) -> Handler:
        def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            inner(environ, start_response)
            return Body(name)

        return call

    site = Site(index=handler("first", to("/page")), page=handler("second", page))
    assert ask(site, environ())[2] == b"second"
    assert closed == ["first", "second"]

    class Broken(Body):
        def __iter__(self) -> Iterator[bytes]:
            raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        ask(lambda environ, start: (start("200 OK", []), Broken("third"))[1], environ())
    assert closed == ["first", "second", "third"]


def test_the_port_of_a_location_must_be_this_servers() -> None:
    site = Site(index=to("http://shop.example:8080/page"), page=page)
    status, headers, _ = ask(site, environ())
    assert (status, headers["Location"]) == ("307 Temporary Redirect", "http://shop.example:8080/page")
    assert ask(Site(index=to("http://SHOP.example:80/page"), page=page), environ())[0] == "200 OK"
    request = environ(HTTP_HOST="shop.example:8080", SERVER_PORT="8080")
    assert ask(Site(index=to("http://shop.example:8080/page"), page=page), request)[0] == "200 OK"


def test_a_mount_ends_at_a_slash() -> None:
    status, headers, _ = ask(Site(index=to("/application/page"), page=page), environ("/", SCRIPT_NAME="/app"))
    assert (status, headers["Location"]) == ("307 Temporary Redirect", "/application/page")
    site = Site(index=to("/App/page"), page=page)
    assert ask(site, environ("/", SCRIPT_NAME="/app"))[2] == b"page /page?"
    assert (site.seen[1]["SCRIPT_NAME"], site.seen[1]["PATH_INFO"]) == ("/app", "/page")


def test_what_was_written_before_a_redirect_does_not_leak() -> None:
    def writes(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        write = start_response("307 Temporary Redirect", [("Location", "/page")])
        write(b"leaked")
        return [b"leaked"]

    assert ask(Site(index=writes, page=page), environ())[2] == b"page /page?"

    def writes_page(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])(b"written ")
        return [b"returned"]

    assert ask(writes_page, environ())[2] == b"written returned"


def test_a_quoted_path_is_unquoted() -> None:
    assert ask(Site(index=to("/page/%C3%A9%20x;p=1?q=%20"), page=page), environ())[2] == (
        "page /page/é x;p=1?q=%20".encode()
    )
    assert ask(Site(index=to("/%FF"), page=page), environ())[0] == "307 Temporary Redirect"


@pytest.mark.parametrize(
    ("location", "expected"),
    [("page", b"page /page?"), ("/page/../page/x", b"page /page/x?"), ("../../page", b"page /page?"),
     ("/page#part", b"page /page?"), ("//shop.example/page", b"page /page?"), ("./page/.", b"page /page/?")],
)  # fmt: skip
def test_a_relative_location_keeps_scheme_and_host_and_a_fragment_is_dropped(location: str, expected: bytes) -> None:
    site = Site(index=to(location), page=page)
    assert ask(site, environ())[2] == expected
    assert (site.seen[1]["wsgi.url_scheme"], site.seen[1]["SERVER_NAME"]) == ("http", "shop.example")


@pytest.mark.parametrize(
    "location",
    ["http://other.example/page", "//other.example/page", "https://shop.example/page", "mailto:a@b", "http:/x"],
)
def test_a_location_elsewhere_reaches_the_client(location: str) -> None:
    status, headers, body = ask(Site(index=to(location), page=page), environ())
    assert (status, headers["Location"], body) == ("307 Temporary Redirect", location, b"see there")


def test_fields_of_the_first_resource_and_its_body_are_dropped() -> None:
    fields = {
        "HTTP_IF_NONE_MATCH": '"a"', "HTTP_IF_MODIFIED_SINCE": "x", "HTTP_RANGE": "bytes=0-1", "HTTP_IF_RANGE": '"a"',
        "CONTENT_TYPE": "text/plain", "HTTP_TRANSFER_ENCODING": "chunked", "HTTP_EXPECT": "100-continue",
        "HTTP_CONTENT_ENCODING": "gzip", "wsgi.input_terminated": True, "HTTP_COOKIE": "a=b",
    }  # fmt: skip
    site = Site(index=to("/page"), page=page)
    ask(site, environ("/", "POST", b"x", **fields))
    assert [name for name in fields if name in site.seen[1]] == ["HTTP_COOKIE"]
    assert site.seen[0]["HTTP_RANGE"] == "bytes=0-1"


def test_a_generator_that_starts_late_may_redirect_too() -> None:
    def late(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        yield b""
        start_response("307 Temporary Redirect", [("Location", "/page")])
        yield b"x"

    assert ask(Site(index=late, page=page), environ())[2] == b"page /page?"


def test_an_error_after_a_redirect_replaces_it() -> None:
    def changes(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("307 Temporary Redirect", [("Location", "/page")])
        try:
            raise ValueError("changed")
        except ValueError:
            start_response("500 Internal Server Error", [], sys.exc_info())
        return [b"error"]

    assert ask(changes, environ())[0] == "500 Internal Server Error"


def test_an_application_that_never_starts_is_told_so() -> None:
    with pytest.raises(AssertionError, match="without calling start_response"):
        ask(lambda environ, start: [b"x"], environ())


def test_exc_info_is_let_go() -> None:
    class Big:
        pass

    kept: list[weakref.ref[Big]] = []

    def fails(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        big = Big()
        kept.append(weakref.ref(big))
        try:
            raise ValueError("x")
        except ValueError:
            start_response("500 Internal Server Error", [], sys.exc_info())
        return [b"error"]

    body = redirector(fails)(environ(), lambda status, headers, exc_info=None: None)
    gc.collect()
    assert kept[0]() is None
    assert b"".join(body) == b"error"


def test_head_stays_head() -> None:
    site = Site(index=to("/page"), page=page)
    ask(site, environ("/", "HEAD"))
    assert site.seen[1]["REQUEST_METHOD"] == "HEAD"
