"""Sessions and cookies of a request that goes on at another path inside the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web.testing import Client

SECRET = "a secret of enough characters"


class Bare:
    def index(self) -> str:
        return "no session here"


class Root:
    bare = Bare()

    def show(self, *, session: web.Session) -> Any:
        return dict(session)

    def count(self, *, session: web.Session) -> Any:
        session["count"] = session.get("count", 0) + 1
        return dict(session)

    def fails(self) -> None:
        raise ValueError("a mistake")

    @web.post
    def login(self, to: str, *, session: web.Session) -> None:
        session["user"] = "ann"
        session["count"] = session.get("count", 0) + 1
        session.rotate()
        self.leave(to)

    @web.post
    def logout(self, to: str, *, session: web.Session) -> None:
        session.clear()
        self.leave(to)

    @web.post
    def large(self, to: str, *, session: web.Session) -> None:
        session["text"] = "x" * 5000
        self.leave(to)

    @web.post
    def cookies(self, to: str, *, request: web.Request) -> None:
        request.response.set_cookie("theme", "dark", secure=False)
        request.response.set_cookie("below", "1", secure=False, path="/elsewhere")
        self.leave(to)

    def theme(self, *, request: web.Request) -> Any:
        if request.cookies.get("theme") == "dark":
            request.response.set_cookie("theme", "light", secure=False)
        return dict(request.cookies)

    def leave(self, to: str) -> None:
        raise web.InternalRedirect(to)


class By307(Root):
    def leave(self, to: str) -> None:
        raise web.HTTPRedirect(to, 307)


@pytest.fixture(params=["cookie", "store"])
def store(request: Any, tmp_path: Path) -> Iterator[web.SQLiteStore | None]:
    found = web.SQLiteStore(str(tmp_path / "sessions")) if request.param == "store" else None
    yield found
    if found is not None:
        found.close()


@pytest.fixture(params=["InternalRedirect", "InternalRedirect by ASGI", "redirector"])
def client(request: Any, store: web.SQLiteStore | None) -> Iterator[Client]:
    root = By307() if request.param == "redirector" else Root()
    tool = web.session(secret=SECRET, secure=False, store=store)
    app: Any = web.App(root, {"/bare": {"tools.session.on": False}}, tools=[tool])
    if request.param == "redirector":
        app = web.redirector(app)
    with Client(web.ASGI(app) if request.param.endswith("ASGI") else app) as found:
        yield found


def test_the_changes_of_a_session_are_kept_and_seen(client: Client) -> None:
    assert client.post("/login", form={"to": "/show"}).json() == {"user": "ann", "count": 1}
    assert client.get("/show").json() == {"user": "ann", "count": 1}
    reply = client.post("/login", form={"to": "/count"})
    assert reply.json() == {"user": "ann", "count": 3}
    assert len([each for each in reply.headers.get_all("Set-Cookie") if each.startswith("session=")]) == 1
    assert client.get("/show").json() == {"user": "ann", "count": 3}
    assert client.post("/logout", form={"to": "/show"}).json() == {}
    assert client.get("/show").json() == {}


@pytest.mark.parametrize(("to", "status"), [("/bare", 200), ("/nothing", 404), ("/fails", 500)])
def test_they_are_kept_whatever_the_second_path_answers(client: Client, to: str, status: int) -> None:
    assert client.post("/login", form={"to": to}).status == status
    assert client.get("/show").json() == {"user": "ann", "count": 1}


def test_other_cookies_come_along(client: Client) -> None:
    client.cookies = {"mine": "1"}
    reply = client.post("/cookies", form={"to": "/theme"})
    assert reply.json() == {"mine": "1", "theme": "dark"}
    names = [each.partition("=")[0] for each in reply.headers.get_all("Set-Cookie")]
    assert sorted(names) == ["below", "theme"]
    assert client.cookies["theme"] == "light"


def test_a_session_that_cannot_be_saved_is_an_error(client: Client, store: web.SQLiteStore | None) -> None:
    reply = client.post("/large", form={"to": "/show"})
    assert reply.status == (500 if store is None else 200)
    assert ("SessionTooLarge" in reply.errors) == (store is None)
