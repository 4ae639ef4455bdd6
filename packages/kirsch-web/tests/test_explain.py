"""Descriptions of an application: routes, explain, OpenAPI."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web import explain
from kirsch_web.openapi import document
from kirsch_web.testing import Client


class Kind(enum.Enum):
    NEW = "new"
    USED = "used"


@dataclasses.dataclass
class Book:
    title: str
    price: float
    kind: Kind = Kind.NEW
    parts: list[Book] = dataclasses.field(default_factory=list)


class Books:
    """All books."""

    def index(self, page: int = 1, *, tag: list[str] | None = None) -> list[Book]:
        """List the books.

        Twenty on a page.
        """
        return []

    def show(self, id: int, format: str = "html") -> Book:
        return Book("x", 1.0)

    @web.post(status=201)
    @web.config({"tools.mark.text": "added"})
    def add(self, book: Book) -> Book:
        return book

    @web.post
    def upload(self, title: str, file: web.Upload) -> None:
        return None


@web.tool("before_finalize", priority=30)
def mark(request: web.Request, text: str = "") -> None:
    request.response.headers["X-Mark"] = text


class Root:
    books = Books()
    openapi = web.OpenAPI("Shop", "1.2")

    def index(self) -> str:
        return "Hello"

    def default(self, *path: str) -> str:
        return "/".join(path)


def app() -> web.App:
    return web.App(Root(), {"/books": {"tools.mark.text": "books", "body.limit": "2MiB"}}, tools=[mark])


def test_routes_lists_each_method_and_path_with_its_handler() -> None:
    assert [line.split() for line in explain.routes(app()).splitlines()] == [
        ["GET", "/", f"{__name__}.Root.index"],
        ["GET", "/books", f"{__name__}.Books.index"],
        ["POST", "/books/add", f"{__name__}.Books.add"],
        ["GET", "/books/show/{id}/[format]", f"{__name__}.Books.show"],
        ["POST", "/books/upload/{title}", f"{__name__}.Books.upload"],
        ["GET", "/openapi", "kirsch_web.openapi.OpenAPI.index"],
        ["GET", "/openapi/page", "kirsch_web.openapi.OpenAPI.page"],
        ["GET", "/openapi/script", "kirsch_web.openapi.OpenAPI.script"],
        ["GET", "/openapi/style", "kirsch_web.openapi.OpenAPI.style"],
        ["GET", "/{path...}", f"{__name__}.Root.default"],
    ]


def test_routes_names_objects_that_are_not_published_by_their_class() -> None:
    class Users:
        def show(self, id: int) -> str:
            return ""

    @web.hide
    class Helper:
        def work(self) -> str:
            return ""

    class Shop:
        users = Users()
        helper = Helper()
        names = ("a", "b")

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def index(self) -> str:
            return ""

    text = explain.routes(web.App(Shop()))
    assert text.splitlines()[1:] == [
        "Not published, because the class has no index, default or decorated method, nor @web.publish:",
        "  Shop.users (Users)",
    ]
    assert "Not published" not in explain.routes(app())


def test_explain_shows_handler_parameters_hooks_and_origins() -> None:
    text = explain.explain(app(), "POST", "/books/add")
    line = Books.add.__code__.co_firstlineno
    for expected in (
        f"at         {__file__}:{line}",
        f"{__name__}.Books.add",
        "book: Book    the body, JSON or a form, required",
        "before_finalize         30  mark",
        "tools.mark.text = 'added'    from Books.add's decorator",
        "tools.mark.on = True    from App(tools=...)",
        "body.limit = '2MiB'    from App(config=...) [/books]",
        "response.headers.X-Content-Type-Options = 'nosniff'    from kirsch_web's default",
    ):
        assert expected in text, text
    text = explain.explain(app(), "GET", "/books/show/7?x=1")
    assert "id: int    path or query, required" in text
    assert "format: str    path or query, default 'html'" in text
    assert "405 Method Not Allowed; there is POST, OPTIONS" in explain.explain(app(), "GET", "/books/add")
    assert "answered with Allow: POST, OPTIONS" in explain.explain(app(), "OPTIONS", "/books/add")
    assert "404 Not Found" in explain.explain(web.App(Books(), tools=[mark]), "GET", "/nothing")


class Unmarked:
    def show(self, id: int) -> str:
        return str(id)


class Wrong:
    unmarked = Unmarked()
    a_class = Books
    number = 7

    def index(self) -> str:
        return "index"

    def one(self, id: int) -> str:
        return str(id)

    @web.hide
    def hidden(self) -> str:
        return "hidden"

    @web.get(name="named")
    def other(self) -> str:
        return "named"

    def _private(self) -> str:
        return "private"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/unmarked/show/1", "Wrong.unmarked is a Unmarked, whose class has no index, default or decorated method"),
        ("/a_class", "Wrong.a_class is a class; what is published is an instance of one"),
        ("/number", "Wrong.number is a int, whose class has no index"),
        ("/hidden", "Wrong.hidden is hidden by @web.hide"),
        ("/other", "Wrong.other is published by another name"),
        ("/_private", "Wrong._private begins with an underscore, so it is private"),
        ("/onee", "Wrong has no attribute onee; did you mean one?"),
        ("/one/x", "parameter id is 'x', which is not a whole number"),
        ("/one/1/2", "the handler takes no further segment, and the path has '2'"),
        ("/one", "parameter id is missing"),
        ("/caf%C3%A9", "Wrong has no attribute caf\u00e9"),
    ],
)
def test_explain_says_why_a_path_is_not_found(path: str, reason: str) -> None:
    application = web.App(Wrong())
    assert Client(application).get(path).status == 404
    text = explain.explain(application, "GET", path)
    assert f"404 Not Found: {reason}" in text, text


def test_explain_says_nothing_of_404_where_the_path_is_found() -> None:
    for path in ("/", "/one/7", "/named"):
        assert "404" not in explain.explain(web.App(Wrong()), "GET", path)


def test_the_commands_load_an_application_and_say_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop_to_explain.py").write_text(
        "import kirsch_web as web\n"
        "class Root:\n    def index(self) -> str:\n        return ''\n"
        "app = web.App(Root())\nother = 1\ndef make():\n    return app\n"
        "def wrong():\n    return web.App(Root(), {'/': {'body.limt': 1}})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert explain.main(["routes", "shop_to_explain:app"]) == 0
    assert capsys.readouterr().out == "GET     /  shop_to_explain.Root.index\n"
    assert explain.main(["explain", "shop_to_explain:make()", "GET /"]) == 0
    assert explain.main(["explain", "shop_to_explain", "/"]) == 0
    assert explain.main(["shop_to_explain"], "routes") == 0
    assert explain.main(["shop_to_explain", "GET", "/"], "explain") == 0
    assert json.loads(_output(capsys, ["openapi", "shop_to_explain"]))["openapi"] == "3.1.0"
    for arguments, status, message in [
        (["routes", "shop_to_explain:other"], 1, "is a int, and not a kirsch_web.App"),
        (["routes", "shop_to_explain:nothing"], 1, "has no nothing"),
        (["routes", "no_such_module"], 1, "no module no_such_module"),
        (["routes", "shop_to_explain:wrong()"], 1, "did you mean body.limit?"),
        (["explain", "shop_to_explain", "nonsense"], 1, "takes a method and a path"),
        (["nonsense"], 2, "usage:"),
        ([], 2, ""),
    ]:
        assert explain.main(arguments) == status, arguments
        assert message in capsys.readouterr().err
    sys.modules.pop("shop_to_explain")


def _output(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    capsys.readouterr()
    assert explain.main(arguments) == 0
    return capsys.readouterr().out


def test_the_openapi_document_says_what_the_handlers_declare() -> None:
    found = document(app(), "Shop", "1.2")
    assert found["info"] == {"title": "Shop", "version": "1.2"}
    assert set(found["paths"]) == {
        "/", "/books", "/books/add", "/books/show/{id}", "/books/show/{id}/{format}", "/books/upload",
        "/books/upload/{title}",
    }  # fmt: skip
    listing = found["paths"]["/books"]["get"]
    assert (listing["summary"], listing["description"]) == ("List the books.", "Twenty on a page.")
    assert listing["parameters"] == [
        {"name": "page", "in": "query", "required": False, "schema": {"type": "integer", "default": 1}},
        {
            "name": "tag",
            "in": "query",
            "required": False,
            "schema": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        },
    ]
    add = found["paths"]["/books/add"]["post"]
    reference = {"$ref": "#/components/schemas/Book"}
    assert add["requestBody"]["content"]["application/json"] == {"schema": reference}
    assert add["responses"]["201"]["content"]["application/json"]["schema"] == reference
    assert found["components"]["schemas"]["Book"] == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "price": {"type": "number"},
            "kind": {"enum": ["new", "used"]},
            "parts": {"type": "array", "items": reference},
        },
        "required": ["title", "price"],
    }
    show = found["paths"]["/books/show/{id}"]["get"]
    assert show["parameters"][0] == {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
    ids = [operation["operationId"] for path in found["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))


def test_the_application_serves_its_document() -> None:
    reply = Client(app()).get("/openapi")
    assert reply.json() == json.loads(json.dumps(document(app(), "Shop", "1.2")))


def test_every_reference_of_the_document_leads_somewhere() -> None:
    found = document(app())

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if "$ref" in value else []
            return own + [each for item in value.values() for each in references(item)]
        return [each for item in value for each in references(item)] if isinstance(value, list) else []

    names = {each.removeprefix("#/components/schemas/") for each in references(found)}
    assert names <= set(found["components"]["schemas"])
