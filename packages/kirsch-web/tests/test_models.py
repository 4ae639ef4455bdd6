"""Models of other libraries as parameters and results: Pydantic, attrs; and their constraints on parameters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Generic, Literal, TypeVar

import annotated_types
import attr
import attrs
import pytest

for library in ("msgspec", "pydantic"):
    pytest.importorskip(library, reason=f"{library} is installed for CPython alone")

import msgspec  # noqa: E402
import pydantic  # noqa: E402

import kirsch_web as web  # noqa: E402
from kirsch_web.openapi import document  # noqa: E402
from kirsch_web.testing import Client  # noqa: E402

T = TypeVar("T")


class Author(pydantic.BaseModel):
    name: Annotated[str, annotated_types.MinLen(2)]
    born: date | None = None


class Book(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    title: str
    price: Annotated[float, pydantic.Field(gt=0)]
    published: date
    tags: list[str] = []
    author: Author | None = None
    kind: str = pydantic.Field("novel", alias="bookKind")

    @pydantic.field_validator("title")
    @classmethod
    def _no_shouting(cls, title: str) -> str:
        if title.isupper():
            raise ValueError("do not shout")
        return title

    @pydantic.computed_field
    def label(self) -> str:
        return f"{self.title}, {self.price}"


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Tree(pydantic.BaseModel):
    name: str
    children: list[Tree] = []


@pydantic.dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Filter(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    page: Annotated[int, pydantic.Field(ge=1)] = 1
    word: list[str] = []
    least: int | None = None


@attrs.define
class Room:
    name: str
    seats: Annotated[int, annotated_types.Gt(0)] = attrs.field(default=1, validator=attrs.validators.lt(100))
    _code: str = "x"
    tags: list[str] = attrs.field(factory=list)
    computed: str = attrs.field(init=False, default="c")


@attrs.frozen
class Floor(Generic[T]):
    rooms: list[T]
    above: Floor[T] | None = None


def from_text(text: str) -> frozenset[str]:
    return frozenset(text.split(","))


@attr.s
class Old:
    words = attr.ib(converter=from_text)  # type: ignore[var-annotated]
    size = attr.ib(type=int, default=0)
    number = attr.ib(converter=int, default="7")


@dataclass
class Shelf:
    """A dataclass that contains the models of both libraries."""

    book: Book
    room: Room


class Struct(msgspec.Struct):
    rate: float | None = None


class Root:
    @web.post
    def struct(self, struct: Struct) -> Struct:
        return struct

    @web.post
    def book(self, book: Book) -> Book:
        return book

    @web.post
    def books(self, books: list[Author]) -> list[Author]:
        return books

    @web.post
    def page(self, page: Page[Author]) -> Page[Author]:
        return page

    @web.post
    def tree(self, tree: Tree) -> Tree:
        return tree

    @web.post
    def point(self, point: Point) -> Point:
        return point

    def filtered(self, filter: Filter) -> dict[str, Any]:
        return {"page": filter.page, "word": filter.word, "least": filter.least}

    @web.post
    def room(self, room: Room) -> Room:
        return room

    @web.post
    def floor(self, floor: Floor[Room]) -> Floor[Room]:
        return floor

    @web.post
    def old(self, old: Old) -> dict[str, Any]:
        return {"words": sorted(old.words), "size": old.size, "number": old.number}

    @web.post
    def shelf(self, shelf: Shelf) -> Shelf:
        return shelf


client = Client(web.App(Root()))
BOOK = {"title": "Emma", "price": 9.5, "published": "1815-12-23"}


def problems(reply: Any) -> list[tuple[str, str]]:
    assert reply.status in (400, 422), reply.text
    return [(each["name"], each["reason"]) for each in reply.json()["errors"]]


def test_a_strict_model_takes_a_date_of_json_and_gives_its_computed_fields_by_alias() -> None:
    reply = client.post("/book", json={**BOOK, "bookKind": "poem", "author": {"name": "Jane", "born": "1775-12-16"}})
    assert reply.json() == {
        **BOOK,
        "tags": [],
        "author": {"name": "Jane", "born": "1775-12-16"},
        "bookKind": "poem",
        "label": "Emma, 9.5",
    }


def test_every_mistake_in_a_model_is_named_with_its_place() -> None:
    reply = client.post("/book", json={"title": "EMMA", "price": 0, "author": {"name": "J"}, "tags": ["a", 1]})
    assert reply.status == 422
    found = dict(problems(reply))
    assert found["title"] == "is wrong: Value error, do not shout"
    assert found["published"] == "is missing"
    assert set(found) == {"title", "price", "published", "author.name", "tags.1"}


def test_a_strict_model_refuses_json_of_another_type() -> None:
    assert [name for name, _ in problems(client.post("/book", json={**BOOK, "price": "9.5"}))] == ["price"]
    assert problems(client.post("/book", json=[1]))[0][0] == "book"


def test_a_form_fills_a_strict_model_from_text() -> None:
    reply = client.post("/book", form=[("title", "Emma"), ("price", "9.5"), ("published", "1815-12-23"), ("tags", "a")])
    assert reply.json()["tags"] == ["a"]
    twice = client.post("/book", form=[("title", "a"), ("title", "b")])
    assert problems(twice) == [("title", "is given more than once")]


def test_lists_generic_and_recursive_models_and_dataclasses_of_pydantic() -> None:
    assert client.post("/books", json=[{"name": "Jo"}]).json() == [{"name": "Jo", "born": None}]
    assert problems(client.post("/books", json=[{"name": "Jo"}, {"name": "J"}]))[0][0] == "1.name"
    assert client.post("/page", json={"items": [{"name": "Jo"}]}).json()["items"][0]["name"] == "Jo"
    tree = {"name": "a", "children": [{"name": "b", "children": []}]}
    assert client.post("/tree", json=tree).json() == tree
    assert client.post("/point", json={"x": 1}).json() == {"x": 1, "y": 0}
    assert problems(client.post("/point", json={"x": "one"}))[0][0] == "x"


def test_text_that_json_could_not_say_again_is_refused_in_forms() -> None:
    for text in ("nan", "-inf", "1e999"):
        form = {**BOOK, "price": text}
        assert problems(client.post("/book", form=form)) == [("price", "is not a number")]
        assert problems(client.post("/struct", form={"rate": text})) == [("rate", "is not a number")]
    assert client.post("/struct", form={"rate": "1e3"}).json() == {"rate": 1000.0}


def test_a_query_fills_a_model() -> None:
    assert client.get("/filtered?page=2&word=a&word=b&least=").json() == {"page": 2, "word": ["a", "b"], "least": None}
    assert client.get("/filtered?page=0").status == 400
    assert problems(client.get("/filtered?nothing=1"))[0][0] == "nothing"


def test_an_attrs_class_is_built_from_json_and_from_a_form() -> None:
    room = {"name": "Hall", "seats": 5, "code": "H", "tags": ["big"]}
    assert client.post("/room", json=room).json() == room
    assert client.post("/room", form=[("name", "Hall"), ("tags", "a"), ("tags", "b")]).json() == {
        "name": "Hall",
        "seats": 1,
        "code": "x",
        "tags": ["a", "b"],
    }
    assert problems(client.post("/room", json={"seats": "many"})) == [
        ("name", "is missing"),
        ("seats", "is not a whole number"),
    ]


def test_constraints_and_validators_of_an_attrs_class_hold() -> None:
    assert problems(client.post("/room", json={"name": "a", "seats": 0})) == [("seats", "is not greater than 0")]
    [(name, reason)] = problems(client.post("/room", json={"name": "a", "seats": 100}))
    assert (name, reason[:22]) == ("room", "'seats' must be < 100:")


def test_a_converter_of_an_attrs_class_says_what_it_takes() -> None:
    assert client.post("/old", json={"words": "a,b", "number": "8"}).json() == {
        "words": ["a", "b"],
        "size": 0,
        "number": 8,
    }
    assert problems(client.post("/old", json={"words": ["a"]})) == [("words", "is not a string")]
    assert problems(client.post("/old", json={"words": "a", "number": "many"}))[0][0] == "old"


def test_generic_attrs_classes_and_models_in_a_dataclass() -> None:
    room = {"name": "Hall", "seats": 5, "code": "x", "tags": []}
    floor = {"rooms": [room], "above": {"rooms": [], "above": None}}
    assert client.post("/floor", json=floor).json() == floor
    assert problems(client.post("/floor", json={"rooms": [{"seats": 1}]}))[0] == ("rooms.0.name", "is missing")
    reply = client.post("/shelf", json={"book": BOOK, "room": room})
    assert reply.json()["book"]["label"] == "Emma, 9.5"
    assert problems(client.post("/shelf", json={"book": {}, "room": room}))[0] == ("book.title", "is missing")


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, each in schema.items():
            if key == "$ref":
                yield each
            yield from references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from references(each)


def test_the_openapi_document_has_the_schemas_of_the_models() -> None:
    found = document(web.App(Root()))
    components = found["components"]["schemas"]
    for reference in references(found):
        assert reference.removeprefix("#/components/schemas/") in components, reference
    operation = found["paths"]["/book"]["post"]
    taken = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    given = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert components[taken]["properties"]["price"]["exclusiveMinimum"] == 0
    assert "label" not in components[taken]["properties"]
    assert "label" in components[given]["properties"]
    filters = {each["name"]: each["schema"] for each in found["paths"]["/filtered"]["get"]["parameters"]}
    assert filters["page"]["minimum"] == 1
    assert components["Room"]["properties"]["seats"] == {"type": "integer", "exclusiveMinimum": 0}
    assert components["Room"]["required"] == ["name"]


def test_constraints_of_pydantic_hold_for_parameters() -> None:
    class Root:
        def number(self, number: Annotated[int, pydantic.Field(ge=1, description="a page")]) -> int:
            return number

        def word(self, word: Annotated[str, pydantic.StringConstraints(pattern="^[a-z]+$", max_length=3)]) -> str:
            return word

        def positive(self, number: pydantic.PositiveInt) -> int:
            return number

    client = Client(web.App(Root()))
    assert [client.get(f"/number/{number}").status for number in (0, 1)] == [404, 200]
    assert [client.get(f"/word/{word}").status for word in ("ABC", "abc", "abcd")] == [404, 200, 404]
    assert client.get("/positive/0").status == 404


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        (pydantic.Field(alias="other"), "aliases and defaults"),
        (pydantic.Field(default=3), "aliases and defaults"),
        (pydantic.StringConstraints(strip_whitespace=True, min_length=1), "not known here"),
        (pydantic.AfterValidator(str.strip), "not known here"),
    ],
)
def test_what_of_pydantic_a_parameter_cannot_have_is_refused_at_mount(mark: Any, words: str) -> None:
    def word(self: object, word: str) -> str:
        return word

    word.__annotations__ = {"word": Annotated[str, mark], "return": str}
    with pytest.raises(web.ConfigError, match=words):
        web.App(type("Root", (), {"word": word, "index": lambda self: ""})())


def test_a_model_with_an_unknown_annotation_is_refused_at_mount() -> None:
    class Broken(pydantic.BaseModel):
        part: Missing  # type: ignore[name-defined]  # noqa: F821

    def add(self: object, broken: Any) -> str:
        return ""

    add.__annotations__ = {"broken": Broken, "return": str}
    with pytest.raises(web.ConfigError, match="Missing"):
        web.App(type("Root", (), {"add": web.post(add)})())


def test_a_tagged_union_of_models_is_told_by_its_tag() -> None:
    class Cat(pydantic.BaseModel):
        kind: Literal["cat"]
        lives: int

    class Dog(pydantic.BaseModel):
        kind: Literal["dog"]

    class Pet(pydantic.RootModel[Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]]):
        pass

    def add(self: object, pet: Any) -> str:
        return type(pet.root).__name__

    add.__annotations__ = {"pet": Pet, "return": str}
    client = Client(web.App(type("Root", (), {"add": web.post(add)})()))
    assert client.post("/add", json={"kind": "dog"}).text == "Dog"
    assert problems(client.post("/add", json={"kind": "cat"})) == [("cat.lives", "is missing")]


def test_no_library_is_loaded_for_an_application_without_its_models() -> None:
    code = (
        "import sys, kirsch_web as web; from dataclasses import dataclass\n"
        "@dataclass\nclass A:\n    x: int\n"
        "class Root:\n    @web.post\n    def a(self, a: A) -> A: return a\n"
        "web.App(Root()); print(sorted({'pydantic', 'attr', 'msgspec', 'kirsch_web.models'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
