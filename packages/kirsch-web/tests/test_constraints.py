"""Constraints in Annotated are applied, or refused when the application is mounted."""

from __future__ import annotations

import dataclasses
import datetime
import sys
from decimal import Decimal
from typing import Annotated, Any, NewType, TypedDict

import pytest

import kirsch_web as web
from kirsch_web.openapi import document
from kirsch_web.testing import Client

if sys.implementation.name == "cpython":
    import msgspec
    from msgspec import Meta
else:  # PyPy has no msgspec
    msgspec = Meta = None  # type: ignore[assignment, misc]

import annotated_types as at

needs_msgspec = pytest.mark.skipif(msgspec is None, reason="msgspec is for CPython")

Positive = Annotated[int, at.Gt(0)]
Short = Annotated[str, at.Len(1, 3)]
Identity = NewType("Identity", Positive)


def client_of(annotation: Any, *, default: Any = ...) -> Client:
    """An application that takes a value of a type from the path, the query, a form and JSON."""

    class Root:
        def path(self, value: annotation) -> Any:
            return web.json(repr(value))

        @web.post
        def body(self, value: annotation) -> Any:
            return web.json(repr(value))

        def header(self, *, value: Annotated[annotation, web.FromHeader("X-Value")]) -> Any:
            return web.json(repr(value))

        def rest(self, *values: annotation) -> Any:
            return web.json(repr(values))

        @web.post
        def others(self, **values: annotation) -> Any:
            return web.json(repr(values))

    for function in (Root.path, Root.body, Root.header, Root.rest, Root.others):
        for name, each in function.__annotations__.items():
            if each == "annotation":
                function.__annotations__[name] = annotation
            elif "FromHeader" in str(each):
                function.__annotations__[name] = Annotated[annotation, web.FromHeader("X-Value")]
    return Client(web.App(Root()))


SCALARS: list[tuple[Any, list[str], list[str]]] = [
    (Positive, ["1", "99"], ["0", "-1"]),
    (Identity, ["1"], ["0"]),
    (Annotated[int, at.Ge(1)], ["1"], ["0"]),
    (Annotated[int, at.Lt(10)], ["9"], ["10", "1" + "0" * 80]),
    (Annotated[float, at.Le(1.5)], ["1.5"], ["1.6"]),
    (Annotated[int, at.Interval(gt=1, le=3)], ["2", "3"], ["1", "4"]),
    (Annotated[int, at.MultipleOf(5)], ["10"], ["11"]),
    (Annotated[int, at.MultipleOf(0.5)], ["10"], ["9" * 100 + "1" * 1]),
    (Short, ["a", "abc"], ["abcd"]),
    (Annotated[str, at.MinLen(2), at.MaxLen(3)], ["ab"], ["a", "abcd"]),
    (at.LowerCase[str], ["ab"], ["Ab"]),
    (Annotated[str, at.Predicate(lambda text: int(text) > 3)], ["4"], ["3", "x"]),
    (Annotated[float, at.Predicate(at.Not(lambda value: value > 3))], ["2"], ["4"]),
    (Annotated[Decimal, at.Gt(Decimal(1))], ["1.01"], ["1.0"]),
    (Annotated[datetime.date, at.Gt(datetime.date(2020, 1, 1))], ["2020-01-02"], ["2020-01-01"]),
    (Annotated[datetime.datetime, at.Timezone(...)], ["2020-01-02T00:00:00Z"], ["2020-01-02T00:00:00"]),
    (Annotated[datetime.datetime, at.Timezone(None)], ["2020-01-02T00:00:00"], ["2020-01-02T00:00:00Z"]),
    # A comparison that Python refuses is a value that does not fit, and no 500.
    (
        Annotated[datetime.datetime, at.Gt(datetime.datetime(2020, 1, 1))],  # noqa: DTZ001 - it has none
        ["2020-01-02T00:00:00"],
        ["2020-01-02T00:00:00Z"],
    ),
    (Annotated[int, at.Gt(0)] | Annotated[str, at.MinLen(3)], ["1", "abc"], ["0", "ab"]),
    (Annotated[str, at.Unit("m"), "words", at.doc("a length")], ["x"], []),
]
if msgspec is not None:
    SCALARS += [
        (Annotated[int, Meta(gt=0, multiple_of=2)], ["2"], ["0", "1"]),
        (Annotated[str, Meta(pattern="^a+$", max_length=3)], ["aa"], ["ab", "aaaa"]),
        (Annotated[datetime.time, Meta(tz=True)], ["10:00:00Z"], ["10:00:00"]),
        (Annotated[str, Meta(title="words")], ["x"], []),
    ]


@pytest.mark.parametrize(("annotation", "good", "bad"), SCALARS, ids=lambda value: str(value)[:60])
def test_a_constraint_holds_wherever_the_value_comes_from(annotation: Any, good: list[str], bad: list[str]) -> None:
    client = client_of(annotation)
    for values, accepted in ((good, True), (bad, False)):
        for text in values:
            for reply, refusal in (
                (client.get(f"/path/{text}"), 404),
                (client.get("/path", query={"value": text}), 400),
                (client.post("/body", form={"value": text}), 422),
                (client.get("/header", headers={"X-Value": text}), 400),
                (client.get(f"/rest/{text}"), 404),
                (client.post("/others", form={"value": text}), 422),
            ):
                assert reply.status == (200 if accepted else refusal), (text, reply)
                assert not reply.errors


def test_a_refusal_names_the_constraint() -> None:
    client = client_of(Annotated[int, at.Interval(ge=1, le=5)])
    assert client.get("/path/0").json()["errors"][0]["reason"] == "is '0', which is not at least 1"
    assert client.post("/body", json={"value": 6}).json()["errors"] == [
        {"name": "value", "in": "body", "reason": "is not at most 5"}
    ]


@dataclasses.dataclass
class Item:
    name: Short
    count: Positive = 1
    tags: Annotated[list[Short], at.MaxLen(2)] = dataclasses.field(default_factory=list)
    note: Annotated[str | None, at.MinLen(2)] = None


class Size(TypedDict):
    width: Positive


@dataclasses.dataclass
class Order:
    items: Annotated[list[Item], at.MinLen(1)]
    sizes: dict[Short, Size]


def test_fields_of_records_and_items_of_lists_have_constraints() -> None:
    class Root:
        @web.post
        def item(self, item: Item) -> Any:
            return item

        @web.post
        def order(self, order: Order) -> Any:
            return order

        @web.post
        def checked(self, item: Annotated[Item, at.Predicate(lambda item: item.name != "no")]) -> Any:
            return item

        def tags(self, *, tag: Annotated[list[Positive], at.MaxLen(2)] = []) -> Any:  # noqa: B006
            return tag

    client = Client(web.App(Root()))
    assert client.get("/tags?tag=1&tag=2").json() == [1, 2]
    for query in ("tag=0", "tag=1&tag=2&tag=3"):
        assert client.get(f"/tags?{query}").status == 400
    for form, names in (
        ({"name": "ann"}, []),
        ({"name": "annie"}, ["name"]),
        ({"name": "a", "count": "0"}, ["count"]),
        ({"name": "a", "tags": ["a", "b"]}, []),
        ({"name": "a", "tags": ["a", "abcd"]}, ["tags"]),
        ({"name": "a", "tags": ["a", "b", "c"]}, ["tags"]),
        ({"name": "a", "note": "n"}, ["note"]),
        ({"name": "a", "note": "no"}, []),
    ):
        reply = client.post("/item", form=form)
        assert (reply.status, [each["name"] for each in reply.json().get("errors", [])]) == (
            422 if names else 200, names), form  # fmt: skip
    assert client.post("/checked", form={"name": "yes"}).status == 200
    assert client.post("/checked", form={"name": "no"}).status == 422
    assert client.post("/checked", json={"name": "no"}).status == 422
    item = {"name": "a"}
    for order, names in (
        ({"items": [item], "sizes": {"s": {"width": 1}}}, []),
        ({"items": [], "sizes": {}}, ["items"]),
        ({"items": [{"name": ""}], "sizes": {}}, ["items.0.name"]),
        ({"items": [{"name": "a", "note": None}], "sizes": {}}, []),
        ({"items": [item], "sizes": {"s": {"width": 0}}}, ["sizes.s.width"]),
        ({"items": [item], "sizes": {"long": {"width": 1}}}, ["sizes.long"]),
    ):
        reply = client.post("/order", json=order)
        errors = reply.json().get("errors", []) if reply.status != 200 else []
        assert [each["name"].removeprefix("order.") for each in errors] == names, (order, reply)


class Odd(at.BaseMetadata):
    """A constraint that nobody knows."""


@dataclasses.dataclass
class WithOdd:
    value: Annotated[int, Odd()]


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Annotated[int, Odd()], "is not known here"),
        (list[Annotated[int, Odd()]], "is not known here"),
        (WithOdd, "is not known here"),
        (Annotated[int, at.MinLen(3)], "no value of this type is of a length of at least 3"),
        (Annotated[str, at.Gt(3)], "no value of this type is greater than 3"),
        (Annotated[list[str], at.Gt(3)], "no value of this type is greater than 3"),
        (Annotated[int, at.MultipleOf(0)], "a number above 0"),
        (Annotated[datetime.datetime, at.Timezone("Europe/London")], "is not checked"),
        (Annotated[web.Upload, at.MaxLen(3)], "a type of which no constraint is checked"),
        (Annotated[web.Request, at.MaxLen(3)], "a type of which no constraint is checked"),
    ],
    ids=str,
)
def test_a_constraint_that_cannot_be_applied_is_refused(annotation: Any, words: str) -> None:
    class Root:
        @web.post
        def index(self, value: Any) -> Any:
            return value

    Root.index.__annotations__["value"] = annotation
    with pytest.raises(web.ConfigError) as caught:
        web.App(Root())
    assert words in str(caught.value)


@needs_msgspec
def test_structs_take_the_constraints_of_msgspec_alone() -> None:
    inner = msgspec.defstruct("inner", [("count", Annotated[int, Meta(gt=0)])])
    outer = msgspec.defstruct("outer", [("inner", list[inner]), ("item", list[Item])])  # type: ignore[valid-type]

    def app(cls: Any) -> web.App:
        class Root:
            @web.post
            def index(self, value: Any) -> Any:
                return value

        Root.index.__annotations__["value"] = cls
        return web.App(Root())

    client = Client(app(inner))
    assert client.post("/", json={"count": 1}).status == 200
    assert client.post("/", json={"count": 0}).status == 422
    assert client.post("/", form={"count": "0"}).status == 422
    with pytest.raises(web.ConfigError) as caught:
        app(outer)
    assert "which msgspec ignores; use msgspec.Meta" in str(caught.value)


def test_the_options_of_a_tool_have_constraints() -> None:
    @web.tool("before_handler")
    def slow(request: web.Request, *, seconds: Annotated[int, at.Gt(0)] = 1) -> None:
        pass

    class Root:
        def index(self) -> str:
            return ""

    web.App(Root(), {"tools.slow.seconds": 2}, tools=[slow])
    with pytest.raises(web.ConfigError) as caught:
        web.App(Root(), {"tools.slow.seconds": 0}, tools=[slow])
    assert "tools.slow.seconds: 0 is not" in str(caught.value)


def test_openapi_has_the_constraints() -> None:
    class Root:
        def tags(
            self, id: Annotated[int, at.Interval(gt=0, le=9)], *, tag: Annotated[list[Short], at.MaxLen(2)]
        ) -> Any:
            return tag

    found = document(web.App(Root()))["paths"]["/tags/{id}"]["get"]["parameters"]
    assert found[0]["schema"] == {"type": "integer", "exclusiveMinimum": 0, "maximum": 9}
    assert found[1]["schema"] == {
        "type": "array", "maxItems": 2, "items": {"type": "string", "minLength": 1, "maxLength": 3}
    }  # fmt: skip
