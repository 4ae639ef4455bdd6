"""Requests of strangers: names too long, links in circles, pipes, doubled slashes, sessions of other cookies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web.explain import explain
from kirsch_web.testing import Client

SECRET = "a secret of enough characters"


def test_names_that_no_file_can_have_are_not_found(tmp_path: Path) -> None:
    class Root:
        static = web.StaticFiles(str(tmp_path))

    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "file").write_text("content")
    client = Client(web.App(Root()))
    assert client.get("/static/file").text == "content"
    for name in ("a" * 300, "circle", "circle/x", "file/x", "%00", "..%2Ffile", "%FE"):
        assert client.get(f"/static/{name}").status in (404, 400), name


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_named_pipe_is_not_found_and_holds_up_nobody(tmp_path: Path) -> None:
    class Root:
        static = web.StaticFiles(str(tmp_path))

    os.mkfifo(tmp_path / "pipe")
    assert Client(web.App(Root())).get("/static/pipe").status == 404


def test_doubled_slashes_lead_to_no_other_host() -> None:
    class Root:
        def default(self, *path: str) -> str:
            return "page"

    client = Client(web.App(Root(), {"tools.trailing_slash.on": True}))
    reply = client.get("//evil.example/")
    assert (reply.status, reply.headers["Location"]) == (308, "/evil.example")


class Counter:
    @web.post
    def index(self, *, session: web.Session) -> Any:
        session["count"] = session.get("count", 0) + 1
        return session["count"]

    def show(self, *, session: web.Session) -> Any:
        return dict(session)

    @web.post
    def login(self, *, session: web.Session) -> Any:
        session["user"] = "ann"
        session.rotate()
        return None

    @web.post
    def login_while_another_request_adds(self, *, session: web.Session) -> Any:
        session["user"] = "ann"
        session.rotate()
        running: Any = web.current().app
        other = Client(running)
        other.cookies = dict(web.current().cookies)
        other.post("/")
        return None


@pytest.fixture
def store(tmp_path: Path) -> Iterator[web.SQLiteStore]:
    found = web.SQLiteStore(str(tmp_path / "sessions"))
    yield found
    found.close()


def app(store: web.SQLiteStore | None = None, cookie: str = "session") -> web.App:
    return web.App(Counter(), tools=[web.session(secret=SECRET, secure=False, cookie=cookie, store=store)])


def test_a_session_of_another_cookie_or_kind_counts_as_none(store: web.SQLiteStore) -> None:
    content, stored = Client(app()), Client(app(store))
    content.post("/")
    stored.post("/")
    for source, target in ((content, app(cookie="admin")), (content, app(store)), (stored, app())):
        client = Client(target)
        client.cookies = dict.fromkeys(("session", "admin"), source.cookies["session"])
        reply = client.get("/show")
        assert (reply.status, reply.json()) == (200, {})


def test_a_login_keeps_what_another_request_has_added_meanwhile(store: web.SQLiteStore) -> None:
    client = Client(app(store))
    client.post("/")
    old = client.cookies["session"]
    assert client.post("/login_while_another_request_adds").status == 204
    assert client.get("/show").json() == {"count": 2, "user": "ann"}
    client.cookies["session"] = old
    assert client.get("/show").json() == {}


def test_an_internal_redirect_leaves_conditions_and_ranges_behind() -> None:
    seen: list[str] = []

    class Root:
        def index(self) -> str:
            raise web.InternalRedirect("/other")

        def other(self) -> str:
            seen.extend(name for name, _ in web.current().headers)
            return "other"

    client = Client(web.App(Root(), {"tools.etags.on": True}))
    fields = {"If-None-Match": "*", "Range": "bytes=0-0", "If-Modified-Since": "Thu, 01 Jan 2037 00:00:00 GMT"}
    reply = client.get("/", headers={**fields, "X-Kept": "1"})
    assert (reply.status, reply.text) == (200, "other")
    assert "X-Kept" in seen
    assert not {*fields} & set(seen)


def test_websocket_handshakes_of_other_sites_are_refused_where_csrf_is_on() -> None:
    class Root:
        def index(self) -> str:
            return "page"

    client = Client(web.App(Root(), tools=[web.csrf()]))

    def status(**fields: str) -> int:
        return client.get("/", headers={name.replace("_", "-"): value for name, value in fields.items()}).status

    assert status(Origin="https://evil.example") == 200
    client.headers.add("Upgrade", "websocket")
    assert status() == 200
    assert status(Cookie="a=1") == 200
    assert status(Origin="http://testserver") == 200
    assert status(Origin="https://evil.example") == 403
    assert status(Sec_Fetch_Site="cross-site") == 403


@pytest.mark.parametrize("path", ["/", "/page", "/raised"])
def test_head_has_no_body_whatever_finds_the_handler(path: str) -> None:
    def dispatch(path: str) -> None:
        def answer() -> str:
            if path == "/raised":
                raise web.HTTPError(410, "gone")
            return path

        web.current().handler = answer

    client = Client(web.App(None, dispatch=dispatch))
    head, full = client.request("HEAD", path), client.get(path)
    assert (head.status, head.body) == (full.status, b"")
    assert head.headers["Content-Length"] == str(len(full.body))


def test_explain_tells_what_a_lookup_raises() -> None:
    class Root:
        def index(self) -> str:
            return "page"

        def __getattr__(self, name: str) -> object:
            raise RuntimeError("no connection") if name == "books" else AttributeError(name)

    found = web.App(Root())
    assert explain(found, "GET", "/books") == (
        "GET /books\n  500 Internal Server Error: finding the handler raises RuntimeError('no connection')\n"
    )
    assert explain(found, "GET", "/%FF") == "GET /%FF\n  400 Bad Request: the URL is not UTF-8\n"


def test_a_session_refuses_names_that_it_could_not_read_again(store: web.SQLiteStore) -> None:
    """JSON has no names but texts: a number as one made a session that no later request could read."""

    class Root:
        def basket(self, book: int, *, session: web.Session) -> Any:
            session[book] = 1  # type: ignore[index]
            return "kept"

        def show(self, *, session: web.Session) -> Any:
            return dict(session)

    for kept in ({}, {"store": store}):
        client = Client(
            web.App(Root(), {"/": {"errors.debug": True}}, tools=[web.session(SECRET, secure=False, **kept)])
        )
        reply = client.get("/basket/7")
        assert reply.status == 500
        assert "a name in a session is text, not 7" in reply.errors
        assert client.get("/show").json() == {}
