"""Conditions of requests that change something (RFC 9110, 13): a change whose condition fails does not happen."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web.testing import Client

ON = {"tools.etags.on": True}
OLD, NEW = "Thu, 01 Jan 2015 00:00:00 GMT", "Thu, 01 Jan 2037 00:00:00 GMT"


class Document:
    """A document whose GET has an ETag; it counts the changes."""

    text: str | None = "one"
    etag = ""
    modified = ""
    changes = 0

    def GET(self, *, request: web.Request) -> str:
        if self.text is None:
            raise web.NotFound("no document")
        if self.etag:
            request.response.headers["ETag"] = self.etag
        if self.modified:
            request.response.headers["Last-Modified"] = self.modified
        return self.text

    def PUT(self, text: str) -> web.Response:
        self.text = text
        self.changes += 1
        return web.Response(b"", 204, headers=[("ETag", '"of the new one"')])

    def DELETE(self) -> None:
        self.text = None
        self.changes += 1


class Later(Document):
    """The same with coroutines."""

    async def GET(self, *, request: web.Request) -> str:  # type: ignore[override]
        return super().GET(request=request)

    async def PUT(self, text: str) -> web.Response:  # type: ignore[override]
        return super().PUT(text)


def client_of(kind: str, **config: Any) -> tuple[Client, Document]:
    document = Document() if kind != "coroutines" else Later()
    app = web.App(document, {**ON, **config}, dispatch=web.Resources())
    return Client(app if kind == "WSGI" else web.ASGI(app)), document


@pytest.mark.parametrize("kind", ["WSGI", "ASGI", "coroutines"])
def test_a_change_whose_condition_fails_does_not_happen(kind: str) -> None:
    client, document = client_of(kind)
    with client:
        etag = client.get("/").headers["ETag"]
        for field in ('"x"', f"W/{etag}", '"x", "y"'):
            for method in ("PUT", "DELETE"):
                reply = client.request(method, "/", form={"text": "two"}, headers={"If-Match": field})
                assert (reply.status, document.text, document.changes) == (412, "one", 0), (method, field)
        assert client.request("PUT", "/", form={"text": "x"}, headers={"If-None-Match": "*"}).status == 412
        assert client.request("PUT", "/", form={"text": "x"}, headers={"If-None-Match": etag}).status == 412
        assert document.changes == 0
        reply = client.request("PUT", "/", form={"text": "two"}, headers={"If-Match": f'"x", {etag}'})
        assert (reply.status, document.text, reply.headers["ETag"]) == (204, "two", '"of the new one"')
        assert client.request("PUT", "/", form={"text": "three"}, headers={"If-Match": etag}).status == 412
        assert client.request("PUT", "/", form={"text": "three"}, headers={"If-Match": "*"}).status == 204
        assert client.request("PUT", "/", form={"text": "four"}).status == 204
        assert document.changes == 3


@pytest.mark.parametrize("kind", ["WSGI", "ASGI", "coroutines"])
def test_what_does_not_exist_is_created_once(kind: str) -> None:
    client, document = client_of(kind)
    document.text = None
    with client:
        for field in ("*", '"x"'):
            assert client.request("PUT", "/", form={"text": "x"}, headers={"If-Match": field}).status == 412
        assert document.changes == 0
        assert client.request("PUT", "/", form={"text": "first"}, headers={"If-None-Match": "*"}).status == 204
        assert client.request("PUT", "/", form={"text": "second"}, headers={"If-None-Match": "*"}).status == 412
        assert (document.text, document.changes) == ("first", 1)  # type: ignore[comparison-overlap]


def test_a_date_is_a_condition_where_the_page_has_one() -> None:
    client, document = client_of("WSGI")
    assert client.request("PUT", "/", form={"text": "x"}, headers={"If-Unmodified-Since": OLD}).status == 204
    document.modified = "Wed, 01 Jan 2020 00:00:00 GMT"
    assert client.request("PUT", "/", form={"text": "y"}, headers={"If-Unmodified-Since": OLD}).status == 412
    # If-Match counts more than the date, and what is no date is no condition.
    document.etag = '"7"'
    both = {"If-Match": '"7"', "If-Unmodified-Since": OLD}
    assert client.request("PUT", "/", form={"text": "z"}, headers=both).status == 204
    assert client.request("PUT", "/", form={"text": "z"}, headers={"If-Unmodified-Since": "yesterday"}).status == 204
    assert client.request("PUT", "/", form={"text": "z"}, headers={"If-Unmodified-Since": NEW}).status == 204
    assert document.changes == 4
    assert client.get("/", headers={"If-Unmodified-Since": OLD}).status == 412
    assert client.get("/", headers={"If-Modified-Since": NEW}).status == 304
    assert client.get("/", headers={"If-Modified-Since": OLD}).status == 200


def test_the_option_current_says_what_is_there() -> None:
    states: list[Any] = ['"1"', None, web.Validators('"2"', 0.0), web.Validators("", 2e9)]

    class Root:
        ran = 0

        @web.post(**{"tools.etags.on": True, "tools.etags.current": lambda request: states[0]})  # type: ignore[call-overload, untyped-decorator]
        def change(self) -> str:
            self.ran += 1
            return "changed"

    root = Root()
    client = Client(web.App(root))
    for field, value, statuses in (
        ("If-Match", '"1"', (200, 412, 412, 412)),
        ("If-Match", "*", (200, 412, 200, 200)),
        ("If-None-Match", "*", (412, 200, 412, 412)),
        ("If-None-Match", '"2"', (200, 200, 412, 200)),
        ("If-Unmodified-Since", OLD, (200, 200, 200, 412)),
    ):
        for _ in range(4):
            before = root.ran
            status = client.post("/change", headers={field: value}).status
            expected, statuses = statuses[0], (*statuses[1:], statuses[0])
            assert status == expected, (field, value, states[0])
            assert root.ran == before + (status == 200)
            states.append(states.pop(0))
    states[0] = "no quotes"
    reply = client.post("/change", headers={"If-Match": '"1"'})
    assert reply.status == 500
    assert "is not an ETag such as" in reply.errors


def test_without_a_known_state_no_condition_holds() -> None:
    class Root:
        ran = 0

        @web.post
        def change(self) -> str:
            self.ran += 1
            return "changed"

    root = Root()
    client = Client(web.App(root, ON))
    for field, value in (("If-Match", '"1"'), ("If-Match", "*"), ("If-None-Match", "*")):
        reply = client.post("/change", headers={field: value})
        assert (reply.status, root.ran) == (412, 0)
        assert "not known" in reply.json()["detail"]
    assert client.post("/change").status == 200


def test_a_handler_checks_in_its_own_transaction() -> None:
    class Root:
        ran = 0

        @web.post
        def change(self) -> str:
            web.check_conditions('"7"')
            self.ran += 1
            return "changed"

    root = Root()
    client = Client(web.App(root))
    assert client.post("/change", headers={"If-Match": '"6"'}).status == 412
    assert root.ran == 0
    assert client.post("/change", headers={"If-Match": '"7"'}).status == 200


def test_the_tool_refuses_a_current_that_is_no_callable() -> None:
    with pytest.raises(web.ConfigError) as caught:
        web.App(Document(), {**ON, "tools.etags.current": "tag"}, dispatch=web.Resources())
    assert "current is a callable" in str(caught.value)


def test_looking_at_the_current_page_ends_its_stream_and_its_hooks() -> None:
    ended: list[str] = []

    class Pages:
        def GET(self) -> Any:
            try:
                yield "a stream"
            finally:
                ended.append("stream")

        def PUT(self) -> str:
            return "changed"

    def end(request: web.Request) -> None:
        ended.append(f"end of {request.method}")

    app = web.App(Pages(), {**ON, "hooks.on_end_request": end}, dispatch=web.Resources())
    # A stream has no tag, so no list of tags has it.
    assert Client(app).request("PUT", "/", headers={"If-Match": '"1"'}).status == 412
    assert ended == ["end of GET", "end of PUT"]
    assert Client(app).request("PUT", "/", headers={"If-Match": "*"}).status == 200


def test_files_answer_if_unmodified_since(tmp_path: Path) -> None:
    class Root:
        static = web.StaticFiles(str(tmp_path))

        @web.post
        def save(self) -> web.Response:
            return web.file(str(tmp_path / "a.txt"))

    (tmp_path / "a.txt").write_text("hello")
    os.utime(tmp_path / "a.txt", (1.5e9, 1.5e9))
    client = Client(web.App(Root()))
    for method in ("GET", "HEAD"):
        assert client.request(method, "/static/a.txt", headers={"If-Unmodified-Since": OLD}).status == 412
        assert client.request(method, "/static/a.txt", headers={"If-Unmodified-Since": NEW}).status == 200
        assert client.request(method, "/static/a.txt", headers={"If-Unmodified-Since": "soon"}).status == 200
    tag = client.get("/static/a.txt").headers["ETag"]
    both = {"If-Unmodified-Since": OLD, "If-Match": tag}
    assert client.get("/static/a.txt", headers=both).status == 200
    # The conditions of a POST are about what it changes, and the file is its answer.
    assert client.post("/save", headers={"If-None-Match": "*"}).status == 200
