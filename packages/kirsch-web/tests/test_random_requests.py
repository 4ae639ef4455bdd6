"""Random hostile requests to a typed application: none is answered with 500, and none leaves a traceback.

WEB_REQUESTS=N sends N requests instead of the quick number, and WEB_SEED=N repeats a run.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import os
import random
import sys
import uuid
from typing import Annotated, Any, Literal, TypedDict
from urllib.parse import quote_from_bytes

import annotated_types as at
import pytest

import kirsch_web as web
from kirsch_web.testing import Client

SEED = int(os.environ.get("WEB_SEED") or random.SystemRandom().randrange(1 << 32))
REQUESTS = int(os.environ.get("WEB_REQUESTS") or 6_000)
SECRET = "a secret of enough characters"


class Colour(enum.Enum):
    RED = "red"
    TWO = 2


@dataclasses.dataclass
class Item:
    name: Annotated[str, at.MaxLen(50)]
    price: decimal.Decimal
    count: int = 1
    rate: float = 1.0
    colour: Colour = Colour.RED
    tags: set[str] = dataclasses.field(default_factory=set)
    parent: Item | None = None
    extra: Any = None
    either: int | list[int] | dict[str, float] | None = None
    when: datetime.datetime | datetime.date | None = None
    pair: tuple[int, str] = (1, "")

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("is below zero")


class Size(TypedDict, total=False):
    width: int
    height: Size


types_of: dict[str, Any] = {
    "int": int, "float": float, "bool": bool, "text": str, "bytes": bytes, "uuid": uuid.UUID, "date": datetime.date,
    "time": datetime.time, "moment": datetime.datetime, "decimal": decimal.Decimal, "colour": Colour,
    "literal": Literal["a", 1, True], "either": int | datetime.date, "maybe": int | None, "anything": Any,
    "small": Annotated[int, at.Interval(ge=-5, lt=5)], "half": Annotated[int, at.MultipleOf(0.5)],
    "later": Annotated[datetime.datetime, at.Gt(datetime.datetime(2020, 1, 1))],  # noqa: DTZ001
    "ints": list[int], "words": Annotated[set[str], at.MaxLen(5)], "many": tuple[float, ...],
    "item": Item, "size": Size, "items": list[Item], "table": dict[str, Any], "numbers": dict[int, Item],
    "upload": web.Upload, "uploads": list[web.Upload], "query_item": Item,
}  # fmt: skip
BODIES = {"items", "table", "numbers", "upload", "uploads", "item", "size"}
if sys.implementation.name == "cpython":
    import msgspec

    types_of["struct"] = msgspec.defstruct(
        "Struct",
        [("name", str), ("rate", float, 0.0), ("when", datetime.datetime | None, None), ("any", Any, None),
         ("of", list[int], []), ("by", dict[str, decimal.Decimal], {})],
    )  # fmt: skip
    BODIES.add("struct")


def shown(value: Any) -> Any:
    """The value as JSON, which whatever was accepted has."""
    if isinstance(value, web.Upload):
        return [value.filename, value.size, value.content_type]
    if isinstance(value, list):
        return [shown(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


def handler(kind: Any, decorate: Any, name: str) -> Any:
    def echo(self: Any, value: Any, *, request: web.Request, **others: str) -> Any:
        request.response.headers["X-Fields"] = str(len(request.query))
        return web.json([shown(value), sorted(others)])

    echo.__annotations__["value"] = kind
    echo.__name__ = echo.__qualname__ = name
    return decorate(echo)


def whole(kind: Any, name: str) -> Any:
    def echo(self: Any, value: Any) -> Any:
        return value if isinstance(value, (dict, str)) else web.json(shown(value))

    echo.__annotations__["value"] = kind
    echo.__name__ = echo.__qualname__ = name
    return web.post(echo)


def make_app() -> web.App:
    attributes: dict[str, Any] = {}
    for name, kind in types_of.items():
        if name not in BODIES:
            attributes[f"get_{name}"] = handler(kind, web.get, f"get_{name}")
        attributes[f"post_{name}"] = handler(kind, web.post, f"post_{name}")
        attributes[f"whole_{name}"] = whole(kind, f"whole_{name}")

    def raw(self: Any, *, request: web.Request) -> Any:
        found = request.json() if "json" in request.headers.get("Content-Type") else dict(request.form)
        return web.json([found, sorted(request.cookies), request.headers.get("X-Text")])

    def session(self: Any, *, session: web.Session, theme: Annotated[str, web.FromCookie("theme")] = "") -> Any:
        session["n"] = session.get("n", 0) + 1
        return web.json([dict(session), theme])

    def rest(self: Any, *path: str, **params: str) -> Any:
        return web.json([path, params])

    def go(self: Any, to: str) -> None:
        raise web.HTTPRedirect(to)

    def inside(self: Any, to: str) -> None:
        raise web.InternalRedirect(to)

    def save(self: Any, name: str) -> web.Response:
        return web.file(__file__, download=name)

    for function in (raw, session):
        attributes[function.__name__] = web.publish(methods=["GET", "POST", "PUT"])(function)
    attributes.update(default=rest, go=go, inside=inside, save=save, static=web.StaticFiles(os.path.dirname(__file__)))
    root = type("Root", (), attributes)()
    config = {
        f"tools.{name}.on": True
        for name in ("etags", "gzip", "proxy", "trailing_slash", "expires", "security_headers", "csrf")
    }
    return web.App(root, config, tools=[web.session(secret=SECRET)])


TEXTS = (
    "", "0", "-0", "1", "9" * 30, "9" * 5000, "-", "1e400", "1e5", "nan", "NaN", "inf", "-Infinity", "0x1", "1_000",
    " 1",
    "١", "true", "None", "null", "a", "red", "2", "é", "\U0001f600", "\0", "a\r\nb", "a\tb", "%", "%00", "../x", "..",
    "//evil.example", "https://evil.example/", "2020-02-30", "2020-01-01", "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.999999-23:59", "24:00", "10:00:60", "10:00Z", "00000000-0000-0000-0000-000000000000", "[]",
    "{}",
    "*", '"', "\\", ";", "a;b=c", "=", "&", "\x7f", "\x85", "\u2028", "x" * 3000, "self", "value", "NaN, 1", "W/\"1\"",
)  # fmt: skip
BYTES = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"%ED%A0%80", b"%FF", b"%", b"%zz", b"\xe2\x80\xa8")
JSONS = (
    b"NaN", b"Infinity", b"1e999", b"-0", b"1" * 4000, b"1" * 5000, b'"\\ud800"', b'"\\udc00x"', b"[" * 50 + b"]" * 50,
    b"[" * 101 + b"]" * 101, b"[" * 5000 + b"]" * 5000, b"[" * 50000, b'{"parent":' * 90 + b"null" + b"}" * 90,
    b'{"height":' * 90 + b"{}" + b"}" * 90, b'{"value":' * 99 + b"1" + b"}" * 99, b'{"a":1,"a":2}', b"\xef\xbb\xbf{}",
    b"", b" ", b"nul", b"{", b'{"value"}', b"'a'", b'"\x00"', b'"\\u0000"', b"\xff\xfe", b"[1,]", b"[[],[[]],{}]",
    b"1.5",
    b"9" * 400, b"-1", b"true", b"null", b'{"":{"":[]}}', b"1e5", b"0.1e-400",
)  # fmt: skip


class Hostile:
    """Makes requests."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def text(self) -> str:
        rng = self.rng
        if rng.random() < 0.8:
            return rng.choice(TEXTS)
        points = (rng.choice((rng.randrange(128), rng.randrange(0xD800), 0x10FFFF)) for _ in range(rng.randrange(9)))
        return "".join(map(chr, points))

    def quoted(self) -> str:
        data = self.rng.choice(BYTES) if self.rng.random() < 0.1 else self.text().encode()
        return quote_from_bytes(data, safe=self.rng.choice(("", "/", "%&=;+")))

    def value(self, depth: int = 0) -> Any:
        rng = self.rng
        kind = rng.randrange(9 if depth < 4 else 6)
        if kind == 0:
            return rng.choice((None, True, False, 0, -1, 2**63, 10**300, 1.5, -0.0, 1e308))
        if kind < 6:
            return self.text()
        if kind == 6:
            return [self.value(depth + 1) for _ in range(rng.randrange(4))]
        names = rng.sample([*Item.__dataclass_fields__, "width", "height", "value", "self", "", "0", "x"], 5)
        return {name: self.value(depth + 1) for name in names}

    def item(self) -> dict[str, Any]:
        """A record that is right, up to some of its fields."""
        rng = self.rng
        found: dict[str, Any] = {"name": "a", "price": "1.5", "width": 1}
        for name in rng.sample([*Item.__dataclass_fields__, "rate", "when", "any", "of", "by"], rng.randrange(5)):
            found[name] = self.value(2)
        return found

    def json(self) -> bytes:
        rng = self.rng
        if rng.random() < 0.4:
            inner = rng.choice(JSONS)
            return rng.choice((inner, b'{"value":' + inner + b"}", b'{"name":"a","price":"1","extra":' + inner + b"}"))
        value = self.value() if rng.random() < 0.4 else self.item()
        value = rng.choice((value, {"value": value}, [value], {"1": value}))
        return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")

    def multipart(self) -> tuple[bytes, str]:
        rng = self.rng
        parts = b""
        for _ in range(rng.randrange(4)):
            name = rng.choice((b"value", b"name", b"", b"a\xff", self.text().encode()[:20]))
            extra = rng.choice(
                (b"", b'; filename="a.txt"', b'; filename=""', b"; filename*=UTF-8''%ff", b'; filename="\xff"')
            )
            head = b'Content-Disposition: form-data; name="' + name + b'"' + extra
            head += rng.choice((b"", b"", b"\r\nContent-Type: text/plain; charset=x",
                                b"\r\nContent-Transfer-Encoding: base64",
                                b"\r\nContent-Type: multipart/mixed; boundary=b", b"\r\nX", b"\r\n: x"))  # fmt: skip
            body = rng.choice((b"", b"1", b"\r\n--B", b"x" * 300_000, rng.choice(BYTES), self.text().encode()))
            parts += b"--B\r\n" + head + b"\r\n\r\n" + body + b"\r\n"
        parts += rng.choice((b"--B--\r\n", b"--B--", b"--B", b""))
        parameter = rng.choice(("; boundary=B", '; boundary="B"', "", "; boundary=\xff", "; boundary=" + "B" * 100))
        return parts, "multipart/form-data" + parameter

    def body(self) -> tuple[bytes, str]:
        rng = self.rng
        kind = rng.random()
        if kind < 0.5:
            return self.json(), rng.choice(("application/json", "application/json", "application/json; charset=UTF-8",
                                            "application/x+json", "application/json; charset=latin-1"))  # fmt: skip
        if kind < 0.75:
            return self.fields().encode(), "application/x-www-form-urlencoded"
        if kind < 0.95:
            return self.multipart()
        types = ("", "text/plain", "application", ";;", "a/b; =", "application/json;", "\xff")
        return self.text().encode(), rng.choice(types)

    def fields(self) -> str:
        names = (
            "value", "value", "value", "name", "price", "count", "rate", "tags", "when", "of", "any", "to", "self",
            "csrf", self.quoted(),
        )  # fmt: skip
        right = self.rng.choice(("", "name=a&price=1&"))  # what a record needs
        return right + "&".join(
            self.rng.choice(names) + self.rng.choice(("=", "=", "")) + self.quoted()
            for _ in range(self.rng.randrange(5))
        )

    def headers(self) -> dict[str, str]:
        rng = self.rng
        names = (
            "Accept", "Accept-Encoding", "Cookie", "If-Match", "If-None-Match", "If-Modified-Since",
            "If-Unmodified-Since", "If-Range", "Range", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host",
            "Host", "Origin", "Sec-Fetch-Site", "Authorization", "X-Text", "Content-Encoding", "X-CSRF-Token",
        )  # fmt: skip
        values = (
            "*/*;q=x", "gzip;q=0, *", "session=; session", "session=0.0.0", "session=x.y.z; csrf=" + "a" * 43, '"', "*",
            'W/"x", "y"', "Thu, 01 Jan 1970 00:00:00 GMT", "Thu, 99 Jan 9999 99:99:99 GMT", "bytes=0-1",
            "bytes=-99999999",
            "bytes=5-2,9-", "bytes=" + "0-0," * 20, "https", "[::1", "a b", "..", ",,,", "null", "same-origin",
            "Basic x", "theme=\xff; =; a=b=c", "x" * 5000, "\xe9", "deflate", "127.0.0.1,,", "a.example:99999",
            "gzip, zstd",
        )  # fmt: skip
        found = {rng.choice(names): rng.choice(values) for _ in range(rng.randrange(4))}
        if rng.random() < 0.6:
            found["Sec-Fetch-Site"] = "same-origin"
        return found

    def request(self, paths: list[str]) -> tuple[str, str, bytes, dict[str, str]]:
        rng = self.rng
        name = rng.choice(paths)
        path = "/" + name
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            path += "/" + self.quoted().replace("?", "%3F").replace("#", "%23")
        if rng.random() < 0.05:
            path = "/" + self.quoted().replace("?", "%3F")
        query = self.fields() if rng.random() < 0.5 else ""
        headers = self.headers()
        method = "POST" if name.startswith(("post", "whole")) else "GET"
        if rng.random() < 0.15:
            method = rng.choice(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "QUERY", "FOO"))
        body = b""
        if method not in ("GET", "HEAD", "OPTIONS"):
            body, headers["Content-Type"] = self.body()
        return method, path + ("?" + query if query else ""), body, headers


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("asgi", [False, True], ids=["WSGI", "ASGI"])
def test_no_hostile_request_is_an_error_of_the_server(asgi: bool) -> None:
    print(f"WEB_SEED={SEED}")
    app: Any = make_app()
    paths = sorted({plan.path.strip("/").partition("/")[0] for plan in app.handlers()})
    assert len(paths) > 60
    hostile = Hostile(SEED)
    statuses: dict[int, int] = {}
    with Client(web.ASGI(app) if asgi else app) as client:
        for number in range(REQUESTS):
            method, path, body, headers = hostile.request(paths)
            about = f"request {number} of WEB_SEED={SEED}: {method} {path[:300]!r} {headers} {body[:300]!r}"
            try:
                reply = client.request(method, path, body=body, headers=headers)
            except Exception as error:
                raise AssertionError(about) from error
            assert reply.status < 500, f"{about}\n{reply.errors[-3000:]}"
            assert "Traceback" not in reply.errors, f"{about}\n{reply.errors[-3000:]}"
            assert "X-Frame-Options" in reply.headers, about
            assert len(reply.body) < 100_000 or reply.status < 300, about
            statuses[reply.status] = statuses.get(reply.status, 0) + 1
    # The search reaches handlers, and each kind of refusal.
    assert statuses.get(200, 0) > REQUESTS / 20, statuses
    assert {400, 404, 405, 415, 422} <= set(statuses), statuses
