"""OpenAPI documents of odd applications are valid."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web.openapi import document
from kirsch_web.testing import Client


class Inner:
    @web.get
    def b(self) -> str:
        return ""


class Odd:
    a = Inner()

    def a_b(self) -> str:
        return ""

    @web.get
    def item(self, id: int) -> str:
        return ""

    @web.post(name="item")
    def item_of_name(self, name: str) -> str:
        return ""

    def default(self, first: int, second: str = "") -> str:
        return ""


@web.popargs("shop")
class Shops:
    def index(self, shop: str) -> str:
        return shop

    def any(self, **params: Any) -> str:
        return ""


def test_operations_have_ids_of_their_own_and_paths_one_spelling() -> None:
    class Root(Odd):
        shops = Shops()

    found = document(web.App(Root()))
    operations = [each for path in found["paths"].values() for each in path.values()]
    ids = [each["operationId"] for each in operations]
    assert len(ids) == len(set(ids))
    assert set(found["paths"]["/item/{id}"]) == {"get", "post"}, "not /item/{id} and /item/{name}"
    assert [each["name"] for each in found["paths"]["/item/{id}"]["post"]["parameters"]] == ["id"]
    assert_parameters_are_in_paths(found)


def test_routes_are_written_in_braces_alone() -> None:
    class Books:
        def show(self, id: int) -> str:
            return ""

        def file(self, path: str, kind: str) -> str:
            return ""

        def old(self, id: int) -> str:
            return ""

    routes, books = web.Routes(), Books()
    routes.connect("show", "/books/{id:[0-9]{1,3}}", books, "show")
    routes.connect("file", "/files/{kind}-x/*path", books, "file")
    routes.connect("old", "old/:id", books, "old")
    app = web.App(dispatch=routes)
    found = document(app)
    assert sorted(found["paths"]) == ["/books/{id}", "/files/{kind}-x/{path}", "/old/{id}"]
    assert_parameters_are_in_paths(found)
    # The way back from a handler to its path knows the same patterns.
    assert app.url(books.show, id=7) == "/books/7"
    assert app.url(books.file, kind="a", path="b/c") == "/files/a-x/b/c"
    assert app.url(books.old, id=3, page=2) == "/old/3?page=2"


def assert_parameters_are_in_paths(found: dict[str, Any]) -> None:
    import re

    for path, operations in found["paths"].items():
        for operation in operations.values():
            names = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
            assert names == set(re.findall(r"\{(.*?)\}", path)), (path, operation)


def test_a_name_that_a_parameter_and_a_record_have_is_written_once() -> None:
    @dataclass
    class Filter:
        page: int = 1
        tag: str = ""

    class Root:
        def index(self, filter: Any, page: int = 2) -> str:
            return ""

    Root.index.__annotations__["filter"] = Filter
    parameters = document(web.App(Root()))["paths"]["/"]["get"]["parameters"]
    assert [each["name"] for each in parameters] == ["page", "tag"]


def test_parameters_that_a_body_can_give_need_no_segment() -> None:
    class Root:
        @web.post
        def add(self, title: str, price: float, note: str = "") -> str:
            return title

        @web.delete
        def remove(self, id: int) -> None: ...

    client = Client(web.App(Root()))
    assert client.post("/add", form={"title": "Emma", "price": "9.5"}).text == "Emma"
    found = document(web.App(Root()))
    add = found["paths"]["/add"]["post"]
    schema = add["requestBody"]["content"]["application/json"]["schema"]
    assert (sorted(schema["properties"]), schema["required"]) == (["note", "price", "title"], ["title", "price"])
    assert add["requestBody"]["required"] is True
    assert "parameters" not in add
    partly = found["paths"]["/add/{title}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert (sorted(partly["properties"]), partly["required"]) == (["note", "price"], ["price"])
    assert sorted(found["paths"]) == [
        "/add", "/add/{title}", "/add/{title}/{price}", "/add/{title}/{price}/{note}", "/remove/{id}",
    ]  # fmt: skip
    assert_parameters_are_in_paths(found)


class Page(HTMLParser):
    """The addresses and the forms of a page, and the text that a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.forms: list[dict[str, str | None]] = []
        self.inputs: list[dict[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.links += [each for name in ("href", "src") if (each := values.get(name))]
        self.ids += [each for each in [values.get("id")] if each]
        assert not {name for name in values if name.startswith("on") or name == "style"}
        if tag == "form":
            self.forms.append(values)
        elif tag == "input":
            self.inputs.append(values)

    def handle_data(self, data: str) -> None:
        self.text += data


@dataclass
class Thing:
    name: str
    size: int = 1


class Things:
    openapi = web.OpenAPI("Things & <more>")

    @web.post
    def add(self, thing: Thing) -> Thing:
        """Add a <thing>.

        It is kept.
        """
        return thing

    def show(self, id: int, *, colour: str = "red") -> dict[str, str]:
        return {"id": str(id), "colour": colour}


@pytest.mark.parametrize("mount", ["", "/shop"])
def test_the_page_reads_without_another_site_and_its_links_lead_somewhere(mount: str) -> None:
    client = Client(web.App(Things()), mount=mount)
    reply = client.get("/openapi/page")
    page = Page(reply.text)
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids
        else:
            assert link.startswith(f"{mount}/openapi")
            assert client.get(link.removeprefix(mount)).status == 200
    assert "Things & <more>" in page.text
    assert "Add a <thing>." in page.text
    assert {each["data-path"] for each in page.forms} == {"/add", "/show/{id}"}
    assert {each["data-base"] for each in page.forms} == {mount}
    assert {(each["name"], each["data-in"], "required" in each) for each in page.inputs} == {
        ("id", "path", True), ("colour", "query", False),
    }  # fmt: skip


def test_the_types_of_the_page_files_are_those_that_browsers_take() -> None:
    client = Client(web.App(Things()))
    assert client.get("/openapi/style").headers["Content-Type"] == "text/css; charset=utf-8"
    assert client.get("/openapi/script").headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert client.get("/openapi").json()["info"]["title"] == "Things & <more>"


def test_an_application_can_have_the_document_without_the_page() -> None:
    class Root(Things):
        openapi = web.OpenAPI(has_page=False)

    client = Client(web.App(Root()))
    assert [client.get(f"/openapi{path}").status for path in ("", "/page", "/style", "/script")] == [200, 404, 404, 404]
