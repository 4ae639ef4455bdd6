"""OpenAPI documents of odd applications are valid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
