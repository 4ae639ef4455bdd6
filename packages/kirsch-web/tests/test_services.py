"""CSRF, security headers, files, validators, compression, authentication, proxies, events."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web.testing import Client

SECRET = "a secret of enough characters"


# CSRF


class Account:
    @web.post
    def pay(self) -> str:
        return "paid"

    def form(self, request: web.Request) -> str:
        return web.csrf_token(request)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://partner.example"}, 200),
        ({"Origin": "http://testserver"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://testserver.evil.example"}, 403),
        ({"Cookie": "session=x"}, 403),
        ({"Cookie": "csrf=t", "X-CSRF-Token": "u"}, 403),
        ({"Cookie": "csrf=t", "X-CSRF-Token": "t"}, 200),
        ({"Cookie": "csrf=", "X-CSRF-Token": ""}, 403),
    ],
)
def test_csrf_is_decided_by_what_the_browser_says_and_then_by_token(fields: dict[str, str], status: int) -> None:
    client = Client(web.App(Account(), tools=[web.csrf(trusted=["https://partner.example"])]))
    assert client.post("/pay", headers=fields).status == status


def test_the_csrf_token_of_a_page_is_accepted_in_a_form() -> None:
    client = Client(web.App(Account(), tools=[web.csrf()]))
    token = client.get("/form").text
    assert client.post("/pay", form={"csrf": token}).status == 200
    assert client.post("/pay", form={"csrf": token + "x"}).status == 403
    assert client.get("/form").text == token


def test_a_page_that_read_the_session_or_has_a_token_is_not_for_other_clients() -> None:
    """Without Vary a cache that clients share may give one's page to another."""

    class Root:
        def plain(self) -> str:
            return "for all"

        def text(self, *, session: web.Session) -> str:
            return str(len(session))

        def data(self, *, session: web.Session) -> Any:
            return {"user": session.get("user")}

        def own(self, *, session: web.Session) -> web.Response:
            return web.Response(str(len(session)), headers=[("Vary", "Accept")])

        def refused(self, *, session: web.Session) -> str:
            raise web.HTTPError(403, str(len(session)))

        def untouched(self, *, session: web.Session) -> str:
            return "for all"

        def form(self, *, request: web.Request) -> str:
            return web.csrf_token(request)

        def stream(self, *, session: web.Session) -> Iterator[str]:
            return iter([str(len(session))])

    app = web.App(Root(), {"tools.gzip.on": True, "tools.gzip.least": 0}, tools=[web.session(SECRET, secure=False)])
    client = Client(app)
    names = ("plain", "text", "data", "own", "refused", "untouched", "form", "stream")
    assert {name: client.get(f"/{name}").headers.get("Vary") for name in names} == {
        "plain": "Accept-Encoding", "text": "Cookie, Accept-Encoding", "data": "Cookie, Accept-Encoding",
        "own": "Accept, Cookie, Accept-Encoding", "refused": "Accept, Cookie, Accept-Encoding",
        "untouched": "Accept-Encoding", "form": "Cookie, Accept-Encoding", "stream": "Cookie, Accept-Encoding",
    }  # fmt: skip
    bare = Client(web.App(Root(), tools=[web.session(SECRET, secure=False)]))
    assert [bare.get(f"/{name}").headers.get("Vary") for name in ("text", "data", "plain")] == ["Cookie", "Cookie", ""]


# Other tools


class Pages:
    def index(self) -> str:
        return "page " * 200

    def data(self) -> Any:
        return {"a": "x" * 1000}

    def stream(self) -> Iterator[str]:
        yield "one "
        yield "two"

    def own(self) -> web.Response:
        return web.Response(
            "x", headers=[("ETag", '"own"'), ("X-Frame-Options", "DENY"), ("Referrer-Policy", "no-referrer")]
        )

    def user(self, request: web.Request) -> str:
        return f"{request.user} {request.origin} {request.remote}"


def pages(*names: str, **options: Any) -> Client:
    return Client(web.App(Pages(), {**{f"tools.{name}.on": True for name in names}, **options}))


def test_security_headers_are_set_unless_the_response_has_them() -> None:
    client = Client(web.App(Pages(), tools=[web.security_headers(hsts=100, csp="default-src 'none'")]))
    headers = client.get("/").headers
    assert headers["Content-Security-Policy"] == "default-src 'none'"
    assert headers["X-Frame-Options"] == "SAMEORIGIN"
    assert "Strict-Transport-Security" not in headers
    assert client.get("/own").headers["X-Frame-Options"] == "DENY"
    assert client.get("/nothing").headers["X-Content-Type-Options"] == "nosniff"
    secure = Client(client.app, headers={"X-Forwarded-Proto": "https"})
    assert isinstance(secure.app, web.App)
    both = Client(web.App(Pages(), {"tools.proxy.on": True}, tools=[web.security_headers(hsts=100)]))
    reply = both.get("/", headers={"X-Forwarded-Proto": "https"})
    assert reply.headers["Strict-Transport-Security"] == "max-age=100"


def test_etags_answer_conditions() -> None:
    client = pages("etags")
    etag = client.get("/").headers["ETag"]
    for known, status in ((etag, 304), (f'"x", W/{etag}', 304), ("*", 304), ('"x"', 200), (etag[:-2] + '"', 200)):
        reply = client.get("/", headers={"If-None-Match": known})
        assert reply.status == status, known
        assert reply.headers["ETag"] == etag
    assert client.get("/", headers={"If-None-Match": etag}).body == b""
    assert client.get("/", headers={"If-Match": etag}).status == 200
    assert client.get("/", headers={"If-Match": '"x"'}).status == 412
    assert client.get("/", headers={"If-Match": "W/" + etag}).status == 412
    assert client.get("/own", headers={"If-None-Match": '"own"'}).status == 304
    assert "ETag" not in client.get("/stream").headers


def test_gzip_compresses_text_that_the_client_takes_compressed() -> None:
    client = pages("gzip", "etags")
    for path in ("/", "/data"):
        plain = client.get(path)
        reply = client.get(path, headers={"Accept-Encoding": "br;q=1, gzip;q=0.5"})
        assert reply.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(reply.body) == plain.body
        assert reply.headers["Content-Length"] == str(len(reply.body))
        assert plain.headers["Vary"] == reply.headers["Vary"] == "Accept-Encoding"
        assert reply.headers["ETag"] == "W/" + plain.headers["ETag"]
        assert client.get(path, headers={"If-None-Match": reply.headers["ETag"]}).status == 304
    for refused in ("", "identity", "gzip;q=0", "*;q=0", "gzip;q=2"):
        assert "Content-Encoding" not in client.get("/", headers={"Accept-Encoding": refused}).headers
    assert "Content-Encoding" not in client.get("/own", headers={"Accept-Encoding": "gzip"}).headers
    stream = client.get("/stream", headers={"Accept-Encoding": "gzip"})
    assert gzip.decompress(stream.body) == b"one two"


def test_a_304_and_a_part_have_the_fields_of_the_compressed_response(tmp_path: Path) -> None:
    """RFC 9110, 15.4.5: a cache takes a 304 for the response that it has by the same Vary and ETag."""
    (tmp_path / "a.txt").write_text("text " * 500)

    class Site(Pages):
        static = web.StaticFiles(str(tmp_path))

    client = Client(
        web.App(Site(), {"tools.gzip.on": True, "tools.etags.on": True}), headers={"Accept-Encoding": "gzip"}
    )
    for path in ("/", "/static/a.txt"):
        reply = client.get(path)
        again = client.get(path, headers={"If-None-Match": reply.headers["ETag"]})
        assert (again.status, again.headers["Vary"]) == (304, "Accept-Encoding")
        assert again.headers["ETag"] == reply.headers["ETag"]
        assert reply.headers["ETag"].startswith("W/")
        plain = client.get(path, headers={"Accept-Encoding": "identity"}).headers["ETag"]
        assert client.get(path, headers={"If-None-Match": plain}).headers["ETag"] == plain
    part = client.get("/static/a.txt", headers={"Range": "bytes=0-3"})
    assert (part.status, part.body, part.headers["Vary"]) == (206, b"text", "Accept-Encoding")
    assert "Content-Encoding" not in part.headers


def test_zstd_is_sent_where_client_and_python_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from kirsch_web import compress

    client = pages("gzip", "etags")
    if compress.zstd() is not None:
        plain = client.get("/")
        for accepted in ("gzip, deflate, br, zstd", "zstd;q=0.5, gzip;q=0.5", "zstd"):
            reply = client.get("/", headers={"Accept-Encoding": accepted})
            assert reply.headers["Content-Encoding"] == "zstd", accepted
            assert compress.zstd().decompress(reply.body) == plain.body
            assert reply.headers["Content-Length"] == str(len(reply.body))
        stream = client.get("/stream", headers={"Accept-Encoding": "zstd"})
        assert compress.zstd().decompress(stream.body) == b"one two"
    for refused in ("gzip, zstd;q=0", "gzip, zstd;q=0.5", "*"):
        assert client.get("/", headers={"Accept-Encoding": refused}).headers["Content-Encoding"] == "gzip", refused
    monkeypatch.setattr(compress, "_zstd", [None])
    assert client.get("/", headers={"Accept-Encoding": "gzip, zstd"}).headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in client.get("/", headers={"Accept-Encoding": "zstd"}).headers


def test_basic_auth_asks_for_name_and_password() -> None:
    client = Client(web.App(Pages(), tools=[_auth()]))
    reply = client.get("/user")
    assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, 'Basic realm="shop", charset="UTF-8"')
    good = base64.b64encode("ann:pass:wörd".encode()).decode()
    assert client.get("/user", headers={"Authorization": f"Basic {good}"}).text.startswith("ann ")
    for wrong in ("Basic", "Basic !", f"Bearer {good}", "Basic " + base64.b64encode(b"ann").decode(),
                  f"Basic {good[:-4]}", "Basic " + base64.b64encode(b"\xff:x").decode()):  # fmt: skip
        assert client.get("/user", headers={"Authorization": wrong}).status == 401, wrong


def _auth() -> web.Tool:
    return web.basic_auth(lambda name, password: (name, password) == ("ann", "pass:wörd"), realm="shop")


def test_a_proxy_is_believed_as_far_as_there_are_proxies() -> None:
    fields = {
        "X-Forwarded-Proto": "http, https",
        "X-Forwarded-Host": "evil.example, shop.example",
        "X-Forwarded-For": "6.6.6.6, 10.0.0.1",
    }
    assert pages("proxy").get("/user", headers=fields).text == " https://shop.example 10.0.0.1"
    assert pages().get("/user", headers=fields).text == " http://testserver 127.0.0.1"
    two = pages("proxy", **{"tools.proxy.hops": 2})
    assert two.get("/user", headers=fields).text == " http://evil.example 6.6.6.6"
    assert two.get("/user", headers={"X-Forwarded-Proto": "https"}).text == " http://testserver 127.0.0.1"
    odd = {"X-Forwarded-Host": "a/b", "X-Forwarded-Proto": "javascript"}
    assert pages("proxy").get("/user", headers=odd).text == " http://testserver 127.0.0.1"


def test_trailing_slash_makes_one_url_of_two() -> None:
    class Books:
        def index(self) -> str:
            return "books"

    class Root:
        books = Books()

        def page(self, n: int) -> str:
            return str(n)

    app = web.App(Root(), {"tools.trailing_slash.on": True})
    client = Client(app, mount="/shop")
    reply = client.get("/books?a=1")
    assert (reply.status, reply.headers["Location"]) == (308, "/shop/books/?a=1")
    assert client.get("/books/").status == 200
    assert client.get("/page/7/").headers["Location"] == "/shop/page/7"
    assert client.get("/page/7").status == 200


def test_expires_sets_cache_control() -> None:
    assert pages("expires").get("/").headers["Cache-Control"] == "no-cache"
    found = pages("expires", **{"tools.expires.seconds": 60, "tools.expires.public": True})
    assert found.get("/").headers["Cache-Control"] == "public, max-age=60"
    assert found.get("/nothing").headers["Cache-Control"] == "no-store"


# Files


@pytest.fixture
def site(tmp_path: Path) -> Client:
    public = tmp_path / "pub"
    (public / "deep").mkdir(parents=True)
    (public / "a.txt").write_bytes(b"0123456789")
    (public / "deep" / "é.css").write_text("x")
    (public / "index.html").write_text("<p>index")
    (public / ".secret").write_text("secret")
    (tmp_path / "pub2").mkdir()
    (tmp_path / "pub2" / "s.txt").write_text("secret")
    (tmp_path / "s.txt").write_text("secret")
    (public / "out").symlink_to(tmp_path / "s.txt")
    (public / "in").symlink_to(public / "a.txt")

    class Root:
        static = web.StaticFiles(str(public), index="index.html")

        def download(self) -> web.Response:
            return web.file(str(public / "a.txt"), download='Rechnung "ü".txt')

        def gone(self) -> web.Response:
            return web.file(str(tmp_path / "nothing"))

    return Client(web.App(Root()))


def test_files_of_a_directory_are_served(site: Client) -> None:
    reply = site.get("/static/a.txt")
    assert (reply.body, reply.headers["Content-Type"]) == (b"0123456789", "text/plain; charset=utf-8")
    assert (reply.headers["Content-Length"], reply.headers["Accept-Ranges"]) == ("10", "bytes")
    assert site.get("/static/deep/%C3%A9.css").headers["Content-Type"] == "text/css; charset=utf-8"
    assert site.get("/static/in").body == b"0123456789"
    assert site.get("/static/").text == "<p>index"
    head = site.request("HEAD", "/static/a.txt")
    assert (head.body, head.headers["Content-Length"]) == (b"", "10")
    assert site.post("/static/a.txt").status == 405


@pytest.mark.parametrize(
    "path",
    ["../s.txt", "../pub2/s.txt", "%2e%2e/s.txt", "..%2fs.txt", "deep/../../s.txt", "out", ".secret", "/etc/passwd",
     "deep",
     "a.txt/x", "..%5cs.txt", "a.txt%00", "nothing", "deep//%C3%A9.css", "./a.txt"],
)  # fmt: skip
def test_nothing_outside_of_the_directory_is_served(site: Client, path: str) -> None:
    reply = site.get("/static/" + path)
    assert reply.status == 404
    assert "secret" not in reply.text


def test_a_download_has_a_name_in_both_forms(site: Client) -> None:
    value = site.get("/download").headers["Content-Disposition"]
    assert value == "attachment; filename=\"Rechnung ___.txt\"; filename*=UTF-8''Rechnung%20%22%C3%BC%22.txt"
    assert site.get("/gone").status == 404


@pytest.mark.parametrize(
    ("value", "status", "body"),
    [
        ("bytes=0-3", 206, b"0123"), ("bytes=8-", 206, b"89"), ("bytes=-3", 206, b"789"),
        ("bytes=-99", 206, b"0123456789"), ("bytes=5-99", 206, b"56789"), ("bytes=10-", 416, None),
        ("bytes=-0", 416, None), ("bytes=5-4", 200, b"0123456789"),
        ("bytes=0-1,3-4", 200, b"0123456789"), ("bytes=" + "0-1," * 10_000, 200, b"0123456789"),
        ("bytes=\u0663-", 200, b"0123456789"), ("items=0-1", 200, b"0123456789"), ("bytes=-", 200, b"0123456789"),
    ],
)  # fmt: skip
def test_a_single_range_is_answered(site: Client, value: str, status: int, body: bytes | None) -> None:
    reply = site.get("/static/a.txt", headers={"Range": value.encode().decode("latin-1")})
    assert reply.status == status
    if status == 416:
        assert reply.headers["Content-Range"] == "bytes */10"
    else:
        assert reply.body == body


def test_conditions_of_files(site: Client) -> None:
    first = site.get("/static/a.txt")
    etag, date = first.headers["ETag"], first.headers["Last-Modified"]
    assert site.get("/static/a.txt", headers={"If-None-Match": etag}).status == 304
    assert site.get("/static/a.txt", headers={"If-Modified-Since": date}).status == 304
    assert site.get("/static/a.txt", headers={"If-Modified-Since": date, "If-None-Match": '"x"'}).status == 200
    assert site.get("/static/a.txt", headers={"If-Modified-Since": "yesterday"}).status == 200
    assert site.get("/static/a.txt", headers={"If-Match": '"x"'}).status == 412
    assert site.get("/static/a.txt", headers={"Range": "bytes=0-1", "If-Range": etag}).status == 206
    assert site.get("/static/a.txt", headers={"Range": "bytes=0-1", "If-Range": '"x"'}).status == 200


# Events


def test_events_are_sent_one_by_one_until_the_client_leaves() -> None:
    closed: list[bool] = []

    class Root:
        def index(self) -> web.Response:
            def generate() -> Iterator[Any]:
                try:
                    yield "one\ntwo"
                    yield web.Event({"n": 2}, event="count", id="7", retry=500)
                    yield None
                    while True:
                        yield "more"
                finally:
                    closed.append(True)

            return web.events(generate())

    app = web.App(Root())
    client = Client(app)
    left: list[bool] = []
    environ = client.environ("GET", "/", web.Response().headers, b"")
    environ["kirsch.disconnected"] = lambda: bool(left)
    started: list[Any] = []
    body = iter(app(environ, lambda status, fields: started.append((status, dict(fields)))))
    assert started[0][1]["Content-Type"] == "text/event-stream"
    assert started[0][1]["Cache-Control"] == "no-store"
    assert [next(body) for _ in range(4)] == [
        b": stream\n\n",
        b"data: one\ndata: two\n\n",
        b'event: count\nid: 7\nretry: 500\ndata: {"n":2}\n\n',
        b":\n\n",
    ]
    assert next(body) == b"data: more\n\n"
    left.append(True)
    assert list(body) == []
    assert closed == [True]
    with pytest.raises(ValueError):
        web.Event("x", id="a\nb")


def test_a_stream_of_events_is_closed_with_the_response() -> None:
    closed: list[bool] = []

    def generate() -> Iterator[str]:
        try:
            yield "x"
        finally:
            closed.append(True)

    class Root:
        def index(self) -> web.Response:
            return web.events(generate())

    environ = Client(web.App(Root())).environ("GET", "/", web.Response().headers, b"")
    body: Any = web.App(Root())(environ, lambda *args: None)
    iterator = iter(body)
    next(iterator)
    next(iterator)
    body.close()
    assert closed == [True]


def test_json_tools_read_json_before_the_handler_and_write_what_it_returns() -> None:
    class Root:
        @web.post
        def echo(self, *, request: web.Request) -> object:
            return request.json()

        @web.post(status=201)
        def made(self) -> str:
            return "text"

        @web.delete
        def gone(self) -> None:
            return None

        def own(self) -> web.Response:
            return web.text("plain")

    client = Client(web.App(Root(), {"tools.json_in.on": True, "tools.json_out.on": True}))
    reply = client.post("/echo", json="a text")
    assert (reply.status, reply.headers["Content-Type"], reply.json()) == (200, "application/json", "a text")
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    made = client.post("/made", json=None, body=b"{}", headers={"Content-Type": "application/json"})
    assert (made.status, made.json()) == (201, "text")
    assert client.post("/made", form={"a": "1"}).status == 415
    assert client.post("/made").status == 415
    broken = client.post("/made", body=b"{", headers={"Content-Type": "application/json"})
    assert broken.status == 400
    assert client.request("DELETE", "/gone").json() is None
    assert client.get("/own").text == "plain"


def test_json_out_has_a_type_and_refuses_one_that_is_no_json() -> None:
    found = pages("json_out", **{"tools.json_out.type": "application/vnd.shop+json"}).get("/")
    assert found.headers["Content-Type"] == "application/vnd.shop+json"
    with pytest.raises(web.ConfigError, match="no media type of JSON"):
        pages("json_out", **{"tools.json_out.type": "text/html"})


def test_form_in_refuses_what_is_no_form_before_the_handler() -> None:
    class Root:
        @web.post
        def add(self, *, request: web.Request) -> str:
            return request.form.get("title")

    client = Client(web.App(Root(), {"tools.form_in.on": True}))
    assert client.post("/add", form={"title": "Emma"}).text == "Emma"
    assert client.post("/add", form={"title": "Emma"}, files={"cover": ("a.png", b"x")}).text == "Emma"
    assert client.post("/add", json={"title": "Emma"}).status == 415
    assert (
        client.post("/add", body=b"%ff=1", headers={"Content-Type": "application/x-www-form-urlencoded"}).status == 400
    )
