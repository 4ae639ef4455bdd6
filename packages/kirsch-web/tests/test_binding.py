"""Signatures are the contract: where values come from, how they are converted, and what is refused how."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import inspect
import random
import uuid
from typing import Annotated, Any, Literal, TypedDict

import pytest

import kirsch_web as web
from kirsch_web.testing import Client

msgspec = pytest.importorskip("msgspec") if __import__("sys").implementation.name == "cpython" else None


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Author:
    name: str
    born: datetime.date | None = None


@dataclasses.dataclass
class Book:
    title: str
    price: decimal.Decimal
    tags: list[str] = dataclasses.field(default_factory=list)
    author: Author | None = None

    def __post_init__(self) -> None:
        if not self.title:
            raise ValueError("a book needs a title")


class Point(TypedDict):
    x: int
    y: int


class Node(TypedDict):
    name: str
    children: list[Node]


class Token:
    def __init__(self, value: str) -> None:
        self.value = value

    @classmethod
    def __from_request__(cls, request: web.Request) -> Token:
        if "X-Token" not in request.headers:
            raise web.HTTPError(401, "a token is needed")
        return cls(request.headers["X-Token"])


class Root:
    def number(self, n: int) -> Any:
        return n

    def real(self, x: float) -> Any:
        return x

    def flag(self, on: bool) -> Any:
        return on

    def ident(self, u: uuid.UUID) -> Any:
        return u

    def day(self, d: datetime.date) -> Any:
        return d

    def moment(self, t: datetime.datetime) -> Any:
        return t

    def money(self, m: decimal.Decimal) -> Any:
        return m

    def color(self, c: Color) -> Any:
        return c

    def level(self, c: Level) -> Any:
        return c

    def word(self, w: Literal["a", "b"]) -> Any:
        return w

    def either(self, v: int | uuid.UUID) -> Any:
        return type(v).__name__

    def search(
        self,
        q: str,
        *,
        page: int = 1,
        tags: list[str] | None = None,
        ids: frozenset[int] = frozenset(),
        exact: bool = False,
    ) -> Any:
        return {"q": q, "page": page, "tags": tags, "ids": sorted(ids), "exact": exact}

    def anything(self, **params: str) -> Any:
        return params

    def point(self, p: Point) -> Any:
        return p

    def token(self, token: Token, agent: Annotated[str, web.FromHeader("User-Agent")] = "none") -> Any:
        return [token.value, agent]

    def theme(self, theme: Annotated[Literal["light", "dark"], web.FromCookie("theme")] = "light") -> Any:
        return theme

    @web.post
    def add(self, book: Book) -> Any:
        return book

    @web.post
    def add_all(self, books: list[Book]) -> Any:
        return len(books)

    @web.post
    def fields(self, title: str, price: float, tags: list[str] = [], *, notify: bool = False) -> Any:  # noqa: B006
        return [title, price, tags, notify]

    @web.post
    def tree(self, node: Node) -> Any:
        return node["children"][0]["name"]

    @web.post
    def picture(self, title: str, file: web.Upload, more: list[web.Upload] = []) -> Any:  # noqa: B006
        return [title, file.filename, file.content_type, file.read().decode(), len(more)]

    @web.post
    def raw(self, request: web.Request) -> bytes:
        return request.body()[::-1]


@pytest.fixture
def client() -> Client:
    return Client(web.App(Root()))


U = "12345678-1234-5678-1234-567812345678"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/number/7", 7),
        ("/number/-7", -7),
        ("/number/" + "9" * 100, int("9" * 100)),
        ("/real/1.5e3", 1500.0),
        ("/flag/on", True),
        ("/flag/false", False),
        ("/ident/" + U, U),
        ("/day/2026-11-22", "2026-11-22"),
        ("/moment/2026-11-22T10:20:30.5Z", "2026-11-22T10:20:30.500000+00:00"),
        ("/moment/2026-11-22%2010:20", "2026-11-22T10:20:00"),
        ("/money/1.10", "1.10"),
        ("/color/red", "red"),
        ("/level/2", 2),
        ("/word/b", "b"),
        ("/either/5", "int"),
        ("/either/" + U, "UUID"),
    ],
)
def test_a_segment_is_converted_to_the_annotated_type(client: Client, path: str, expected: object) -> None:
    reply = client.get(path)
    assert reply.status == 200
    assert (reply.json() if reply.headers["Content-Type"] == "application/json" else reply.text) == expected


@pytest.mark.parametrize(
    "path",
    ["/number/x", "/number/", "/number/+7", "/number/7_0", "/number/%207", "/number/%D9%A3", "/number/1.0",
     "/number/--1",
     "/number/" + "9" * 101, "/real/nan", "/real/inf", "/real/1e999", "/real/0x10", "/real/.5", "/flag/maybe",
     "/flag/True",
     "/ident/1234", "/ident/{" + U + "}", "/day/2026-02-30", "/day/20261122", "/moment/2026-11-22", "/money/1e5",
     "/color/RED",
     "/color/green", "/level/3", "/word/c", "/either/x", "/number/7/8", "/number"],
)  # fmt: skip
def test_a_segment_that_is_not_of_the_type_is_404(client: Client, path: str) -> None:
    reply = client.get(path)
    assert reply.status == 404, reply
    assert reply.headers["Content-Type"] == "application/problem+json"


def test_a_refusal_names_parameter_place_and_reason(client: Client) -> None:
    reply = client.get("/number/x")
    assert reply.json() == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "parameter n is 'x', which is not a whole number",
        "errors": [{"name": "n", "in": "path", "reason": "is 'x', which is not a whole number"}],
    }
    reply = client.get("/search/a", query={"page": "x", "ids": ["1", "b"]})
    assert reply.status == 400
    assert [(each["name"], each["in"]) for each in reply.json()["errors"]] == [("page", "query"), ("ids", "query")]


def test_query_fields_fill_parameters_lists_and_defaults(client: Client) -> None:
    reply = client.get("/search?q=x%20y+z&tags=a&tags=b&ids=3&ids=3&ids=1&exact=on&utm_source=mail")
    assert reply.json() == {"q": "x y z", "page": 1, "tags": ["a", "b"], "ids": [1, 3], "exact": True}
    assert client.get("/search/x").json() == {"q": "x", "page": 1, "tags": None, "ids": [], "exact": False}
    assert client.get("/search/x?page=1&page=2").status == 400
    assert client.get("/search").status == 404
    assert client.get("/search/x?page=%FF").status == 400


def test_unknown_fields_are_refused_where_the_configuration_says_so() -> None:
    client = Client(web.App(Root(), {"params.unknown": "refuse"}))
    assert client.get("/search/x?page=2").status == 200
    reply = client.get("/search/x?pages=2")
    assert reply.status == 400
    assert reply.json()["errors"][0]["name"] == "pages"


def test_keywords_receive_all_other_fields(client: Client) -> None:
    assert client.get("/anything?a=1&b=2&b=3").json() == {"a": "1", "b": ["2", "3"]}


def test_a_record_is_built_from_the_query(client: Client) -> None:
    assert client.get("/point?x=1&y=-2&z=3").json() == {"x": 1, "y": -2}
    reply = client.get("/point?x=one")
    assert reply.status == 400
    assert {each["name"] for each in reply.json()["errors"]} == {"x", "y"}


def test_a_class_with_from_request_is_an_extractor(client: Client) -> None:
    assert client.get("/token").status == 401
    assert client.get("/token", headers={"X-Token": "t", "User-Agent": "test"}).json() == ["t", "test"]


def test_cookies_and_headers_are_parameters(client: Client) -> None:
    assert client.get("/theme").text == "light"
    assert client.get("/theme", headers={"Cookie": 'a=b; theme="dark"'}).text == "dark"
    assert client.get("/theme", headers={"Cookie": "theme=pink"}).status == 400


def test_json_becomes_a_dataclass_with_nested_records(client: Client) -> None:
    book = {"title": "Emma", "price": "9.90", "tags": ["x"], "author": {"name": "Austen", "born": "1775-12-16"}}
    assert client.post("/add", json=book).json() == book
    assert client.post("/add_all", json=[book, book]).text == "2"


def test_a_form_becomes_a_dataclass(client: Client) -> None:
    reply = client.post("/add", form={"title": "Emma", "price": "9.90", "tags": ["x", "y"]})
    assert reply.json()["tags"] == ["x", "y"]


def test_wrong_json_is_422_with_the_path_of_each_mistake(client: Client) -> None:
    reply = client.post("/add", json={"price": 1, "tags": [1], "author": {"born": "x"}})
    assert reply.status == 422
    assert [(each["name"], each["reason"]) for each in reply.json()["errors"]] == [
        ("title", "is missing"),
        ("price", "is not a string"),
        ("tags.0", "is not a string"),
        ("author.name", "is missing"),
        ("author.born", "is not a date, YYYY-MM-DD and is not null"),
    ] or reply.json()["errors"][-1]["name"].startswith("author")
    assert client.post("/add", json={"title": "", "price": "1"}).status == 422
    assert client.post("/add", json=[]).status == 422
    assert client.post("/add_all", json=[{"title": "x"}]).json()["errors"][0]["name"] == "0.price"


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b'{"title": NaN}', "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"title": "x", "price": "1"}', "text/plain", 415),
        (b'{"title": "x", "price": "1"}', "application/vnd.shop+json", 200),
        (b'{"title": "x", "price": "1"}', "application/json; charset=latin-1", 415),
        (b"", "application/json", 422),
        (b"title=%FF&price=1", "application/x-www-form-urlencoded", 400),
        (b" " * (1 << 20) + b"{}", "application/json", 413),
        (b"x", "multipart/form-data", 400),
    ],
)
def test_a_body_that_cannot_be_read_has_its_status(client: Client, body: bytes, content_type: str, status: int) -> None:
    assert client.post("/add", body=body, headers={"Content-Type": content_type}).status == status


def test_scalar_parameters_come_from_a_form_or_from_json(client: Client) -> None:
    expected = ["Emma", 9.9, ["a"], True]
    assert (
        client.post("/fields", form={"title": "Emma", "price": "9.9", "tags": "a", "notify": "on"}).json() == expected
    )
    assert (
        client.post("/fields", json={"title": "Emma", "price": 9.9, "tags": ["a"], "notify": True}).json() == expected
    )
    assert client.post("/fields?notify=on&tags=a", form={"title": "Emma", "price": "9.9"}).json() == expected
    reply = client.post("/fields", json={"title": 1, "price": "9.9", "notify": 1})
    assert reply.status == 422
    assert [each["name"] for each in reply.json()["errors"]] == ["title", "price", "notify"]
    assert client.post("/fields", form={"title": "x", "price": "nan"}).status == 422


def test_records_may_contain_themselves(client: Client) -> None:
    assert client.post("/tree", json={"name": "a", "children": [{"name": "b", "children": []}]}).text == "b"
    assert client.post("/tree", json={"name": "a", "children": [{"name": "b"}]}).status == 422


def test_files_of_a_form_are_uploads(client: Client) -> None:
    reply = client.post("/picture", form={"title": "x"}, files={"file": ('a "b".txt', b"content", "text/plain")})
    assert reply.json() == ["x", 'a "b".txt', "text/plain", "content", 0]
    assert client.post("/picture", form={"title": "x"}, files={"other": ("a", b"")}).status == 422


def test_a_handler_may_read_the_body_itself(client: Client) -> None:
    assert client.post("/raw", body=b"abc", headers={"Content-Type": "text/plain"}).body == b"cba"


@pytest.mark.skipif(msgspec is None, reason="msgspec is for CPython")
def test_structs_are_records() -> None:
    class Item(msgspec.Struct):  # type: ignore[name-defined, misc]
        name: str
        count: int = 1

    class Shop:
        @web.post
        def add(self, item) -> Any:  # type: ignore[no-untyped-def]
            return item

    Shop.add.__annotations__["item"] = Item
    client = Client(web.App(Shop()))
    assert client.post("/add", json={"name": "x", "count": 3}).json() == {"name": "x", "count": 3}
    assert client.post("/add", form={"name": "x", "count": "3"}).json() == {"name": "x", "count": 3}
    reply = client.post("/add", json={"name": "x", "count": "3"})
    assert reply.status == 422
    assert reply.json()["errors"][0]["name"] == "count"


def test_annotations_that_cannot_be_converted_fail_at_mount() -> None:
    class Wrong:
        def one(self, c: complex) -> str:
            return ""

        def two(self, x: Missing) -> str:  # type: ignore[name-defined]  # noqa: F821
            return ""

    with pytest.raises(web.ConfigError) as caught:
        web.App(Wrong())
    assert "parameter c is annotated <class 'complex'>" in str(caught.value)
    assert "names 'Missing'" in str(caught.value)


def test_binding_equals_calling_with_the_signature_for_random_signatures() -> None:
    seed = random.SystemRandom().randrange(10**9)
    rng = random.Random(seed)
    for _ in range(300):
        names = ["a", "b", "c", "d"][: rng.randrange(5)]
        optional = rng.randrange(len(names) + 1)
        parts = [f"{name}: str" + (f" = '{name}0'" if number >= optional else "") for number, name in enumerate(names)]
        if rng.random() < 0.3:
            parts.append("*rest: str")
        elif rng.random() < 0.3:
            parts.append("*")
            parts.append("k: str" + (" = 'k0'" if rng.random() < 0.5 else ""))
        names_of: dict[str, Any] = {}
        body = "return sorted([each for each in locals().items() if each[0] != 'self'])"
        exec(f"def page(self, {', '.join(parts)}):\n    {body}", names_of)
        cls = type("Root", (), {"page": names_of["page"]})
        root = web.publish(cls)()
        client = Client(web.App(root))
        for _ in range(6):
            segments = [rng.choice(["x", "y"]) for _ in range(rng.randrange(6))]
            query = {name: "q" for name in ("a", "b", "c", "d", "k") if rng.random() < 0.25}
            signature = inspect.signature(root.page)
            given = dict(list(zip(names, segments, strict=False)))
            usable = {name: each for name, each in query.items() if name in signature.parameters and name not in given}
            reply = client.get("/page/" + "/".join(segments), query=query)
            try:
                expected = root.page(*segments, **usable)
            except TypeError:
                assert reply.status in (400, 404), f"seed {seed}: {parts} {segments} {query}"
            else:
                assert reply.status == 200, f"seed {seed}: {parts} {segments} {query} {reply}"
                assert reply.json() == [
                    [name, list(each) if isinstance(each, tuple) else each] for name, each in expected
                ]


def test_annotated_keywords_are_converted_and_refused_as_other_parameters_are() -> None:
    @web.popargs("year")
    class Years:
        def index(self, **numbers: int) -> Any:
            return numbers

    class Root:
        years = Years()

        def lists(self, **numbers: list[int]) -> Any:
            return numbers

        @web.post
        def total(self, **numbers: int) -> Any:
            return sum(numbers.values())

    client = Client(web.App(Root()))
    assert client.get("/years/2026?page=2").json() == {"year": 2026, "page": 2}
    assert client.get("/years/x").status == 404
    reply = client.get("/years/2026?page=2&size=large")
    assert (reply.status, [each["name"] for each in reply.json()["errors"]]) == (400, ["size"])
    assert client.get("/years/2026?page=2&page=3").status == 400
    assert client.get("/lists?a=1&a=2&b=3").json() == {"a": [1, 2], "b": [3]}
    assert client.post("/total", json={"a": 1, "b": 2}).json() == 3
    assert client.post("/total", form={"a": 1, "b": 2}).json() == 3
    assert client.post("/total", json={"a": "1"}).status == 422

    class Wrong:
        def index(self, **uploads: web.Upload) -> None: ...

    with pytest.raises(web.ConfigError, match=r"\*\*uploads are fields"):
        web.App(Wrong())


def test_keywords_receive_files_and_refuse_the_name_of_the_object() -> None:
    """A field named self was a second value for the method's first parameter: a TypeError, and a 500."""

    class Root:
        def index(self, **fields: Any) -> Any:
            return fields

        @staticmethod
        def plain(**fields: Any) -> Any:
            return fields

        def apart(self, /, **fields: Any) -> Any:
            return fields

        @web.post
        def send(self, **fields: Any) -> Any:
            return {name: getattr(each, "filename", each) for name, each in fields.items()}

    client = Client(web.App(Root()))
    assert client.get("/?self=1").status == 400
    assert client.get("/plain?self=1").json() == {"self": "1"}
    assert client.get("/apart?self=1").json() == {"self": "1"}
    assert client.post("/send", form={"a": "1"}, files={"f": ("n.txt", b"x")}).json() == {"a": "1", "f": "n.txt"}
    strict = Client(web.App(Root(), {"params.unknown": "refuse"}))
    assert strict.post("/send", json={"self": 1}).status == 422


@dataclasses.dataclass
class Search:
    after: datetime.date | None = None
    word: str | None = None
    limit: int = 10


def test_an_input_that_was_left_empty_is_none_where_none_is_allowed() -> None:
    class Root:
        def index(self, page: int | None = 1, word: str | None = None) -> Any:
            return [page, word]

        def need(self, page: int = 1) -> Any:
            return page

        @web.post
        def search(self, search: Search) -> Any:
            return search

    client = Client(web.App(Root()))
    assert client.get("/?page=&word=").json() == [None, ""]
    assert client.get("/?page=x").status == 400
    assert client.get("/need?page=").status == 400
    found = client.post("/search", form={"after": "", "word": "", "limit": "5"}).json()
    assert found == {"after": None, "word": "", "limit": 5}
    assert client.post("/search", json={"after": ""}).status == 422
