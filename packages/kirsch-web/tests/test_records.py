"""Records as parameters and results: generic ones, TypedDicts with optional fields, Structs with other names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar

import pytest

import kirsch_web as web
from kirsch_web.openapi import document
from kirsch_web.testing import Client

T = TypeVar("T")
N = TypeVar("N", bound=int)
BookId = NewType("BookId", int)


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Item:
    name: str
    id: BookId = BookId(0)


@dataclass
class Page(Generic[T]):
    items: list[T]
    next: T | None = None


@dataclass
class Numbered(Page[T], Generic[T, N]):
    number: N | None = None


@dataclass
class ItemPage(Page[Item]):
    pass


@dataclass
class Wide:
    size: Size
    kind: Literal["a", "b"] = "a"
    tags: Annotated[list[str], "some"] = field(default_factory=list)
    either: int | str = 0
    nested: Wide | None = None
    pairs: dict[str, Page[int]] = field(default_factory=dict)


class Books:
    @web.post
    def page(self, body: Page[Item]) -> Any:
        return {"items": body.items, "type": type(body.items[0]).__name__, "next": body.next}

    @web.post
    def numbered(self, body: Numbered[Item, int]) -> Any:
        return {"type": type(body.items[0]).__name__, "number": body.number}

    @web.post
    def derived(self, body: ItemPage) -> Any:
        return type(body.items[0]).__name__

    @web.post
    def many(self, body: list[Page[int]]) -> Any:
        return [each.items for each in body]

    @web.post
    def wide(self, body: Wide) -> Wide:
        return body

    def filtered(self, body: Page[int]) -> Page[int]:
        return body


@pytest.fixture
def client() -> Client:
    return Client(web.App(Books()))


def test_generic_dataclasses_convert_what_their_arguments_say(client: Client) -> None:
    items = [{"name": "Emma", "id": 1}]
    assert client.post("/page", json={"items": items}).json() == {"items": items, "type": "Item", "next": None}
    refused = client.post("/page", json={"items": [{"name": 7}]})
    assert (refused.status, refused.json()["errors"][0]["name"]) == (422, "items.0.name")
    assert client.post("/numbered", json={"items": items, "number": 2}).json() == {"type": "Item", "number": 2}
    assert client.post("/numbered", json={"items": items, "number": "2"}).status == 422
    assert client.post("/derived", json={"items": items}).text == "Item"
    assert client.post("/many", json=[{"items": [1]}, {"items": []}]).json() == [[1], []]
    assert client.get("/filtered?items=1&items=2").json() == {"items": [1, 2], "next": None}
    assert client.get("/filtered?items=x").status == 400


def test_wide_records_are_read_and_written(client: Client) -> None:
    sent = {"size": "l", "tags": ["x"], "either": "y", "nested": {"size": "s"}, "pairs": {"p": {"items": [1]}}}
    found = client.post("/wide", json=sent).json()
    assert (found["size"], found["either"], found["nested"]["size"]) == ("l", "y", "s")
    assert found["pairs"]["p"]["items"] == [1]
    assert client.post("/wide", json={"size": "m"}).status == 422
    assert client.post("/wide", json={"size": "s", "kind": "c"}).status == 422
    form = client.post("/wide", form={"size": "s", "tags": ["a", "b"], "either": "7"})
    assert (form.json()["tags"], form.json()["either"]) == (["a", "b"], 7)


def test_generic_records_are_components_of_the_document(client: Client) -> None:
    app: Any = client.app
    schemas = document(app)["components"]["schemas"]
    assert schemas["Page_Item"]["properties"]["items"] == {
        "type": "array",
        "items": {"$ref": "#/components/schemas/Item"},
    }
    assert schemas["Page_int"]["properties"]["items"]["items"] == {"type": "integer"}


def test_an_initvar_without_a_default_is_reported_at_mount() -> None:
    @dataclass
    class Seeded:
        name: str
        seed: InitVar[int]

    class Root:
        pass

    def index(self: Any, body: Any) -> str:
        return ""

    index.__annotations__ = {"body": Seeded, "return": str}
    Root.index = web.post(index)  # type: ignore[attr-defined]
    # Python 3.10 cannot read the annotation.
    with pytest.raises(web.ConfigError, match=r"seed is an InitVar|Got dataclasses\.InitVar"):
        web.App(Root())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="NotRequired is in typing since Python 3.11")
def test_typed_dicts_require_what_they_say_although_annotations_are_text() -> None:
    names: dict[str, Any] = {}
    exec(TYPED_DICTS, names)
    client = Client(web.App(names["Root"]()))
    assert client.post("/draft", json={"title": "Emma"}).json() == {"title": "Emma"}
    assert client.post("/draft", json={"title": "Emma", "price": "x"}).status == 422
    assert client.post("/draft", json={"price": 1}).status == 422
    assert client.post("/change", json={"id": 1}).json() == {"id": 1}
    assert client.post("/change", json={"title": "Emma"}).status == 422


# A text, because NotRequired is not in typing on the oldest Python.
TYPED_DICTS = """
from __future__ import annotations
from typing import NotRequired, Required, TypedDict
import sys, types
import kirsch_web as web

__name__ = "typed_dicts_of_a_test"
sys.modules[__name__] = types.ModuleType(__name__)

class Draft(TypedDict):
    title: str
    price: NotRequired[float]

class Change(TypedDict, total=False):
    id: Required[int]
    title: str

sys.modules[__name__].__dict__.update(globals())

class Root:
    @web.post
    def draft(self, body: Draft):
        return body

    @web.post
    def change(self, body: Change):
        return body
"""


def structs() -> Any:
    msgspec: Any = pytest.importorskip("msgspec")

    class Money(msgspec.Struct, rename="camel", omit_defaults=True):  # type: ignore[misc, call-arg]
        total_pence: int
        paid_by: str = ""

    class Pages(msgspec.Struct, Generic[T]):  # type: ignore[misc]
        items: Sequence[T]

    return Money, Pages


def test_structs_are_read_and_written_by_their_encoded_names() -> None:
    Money, Pages = structs()

    class Root:
        pass

    def pay(self: Any, body: Any) -> Any:
        return body

    def several(self: Any, body: Any) -> Any:
        return {"first": body.items[0], "type": type(body.items[0]).__name__}

    pay.__annotations__ = {"body": Money, "return": Money}
    several.__annotations__ = {"body": Pages[Money]}
    Root.pay, Root.several = web.post(web.get(pay)), web.post(several)  # type: ignore[attr-defined]
    app = web.App(Root())
    client = Client(app)
    assert client.post("/pay", json={"totalPence": 5}).json() == {"totalPence": 5}
    assert client.post("/pay", form={"totalPence": "5", "paidBy": "Ann"}).json() == {"totalPence": 5, "paidBy": "Ann"}
    assert client.get("/pay?totalPence=5").json() == {"totalPence": 5}
    assert client.post("/pay", json={"total_pence": 5}).status == 422
    assert client.post("/several", json={"items": [{"totalPence": 5}]}).json() == {
        "first": {"totalPence": 5}, "type": "Money",
    }  # fmt: skip
    schema = document(app)["components"]["schemas"]["Money"]
    assert (list(schema["properties"]), schema["required"]) == (["totalPence", "paidBy"], ["totalPence"])


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "[1e400]"])
def test_numbers_that_json_cannot_say_are_refused(number: str) -> None:
    class Root:
        @web.post
        def index(self, x: Any = None) -> Any:
            return web.current().json()

    reply = Client(web.App(Root())).post(
        "/", body=f'{{"x": {number}}}'.encode(), headers={"Content-Type": "application/json"}
    )
    assert reply.status == 400


def test_a_list_of_records_in_a_get_is_reported_at_mount() -> None:
    class Broken:
        def index(self, items: Any) -> str:
            return ""

    Broken.index.__annotations__["items"] = dict[str, int]
    with pytest.raises(web.ConfigError, match="needs a body, and GET has none"):
        web.App(Broken())
