"""Responses whose heads consist of the same objects, and of objects that look like them. The path chooses.

``HEADS`` has each head as a function, which is called for each response; the test calls it too, to compare.
"""

from __future__ import annotations

import os
from typing import Any


class Pair(tuple[Any, ...]):
    """A header that is no tuple of the interpreter's own."""


class Headers(list[Any]):
    """A list that is no list of the interpreter's own."""


Head = tuple[str, list[tuple[str, str]]]

PLAIN = ("Content-Type", "text/plain")
FIRST = ("X-First", "1")
SECOND = ("X-Second", "2")
GROWING: list[tuple[str, str]] = [PLAIN]
NUMBERS: list[int] = []


def growing(count: int) -> Head:
    """A list of the application's own, which it changes after each response."""
    del GROWING[1 + count % 3 :]
    GROWING.append((f"X-{count % 5}", "grown"))
    return "200 OK", GROWING


HEADS: dict[str, Any] = {
    "constant": lambda _: ("200 OK", [PLAIN, FIRST]),
    "order": lambda _: ("200 OK", [FIRST, PLAIN]),
    "status": lambda _: ("404 Not Found", [PLAIN, FIRST]),
    "more": lambda _: ("200 OK", [PLAIN, FIRST, SECOND]),
    "fewer": lambda _: ("200 OK", [PLAIN]),
    "none": lambda _: ("200 OK", []),
    "new": lambda count: ("200 OK", [PLAIN, ("X-Number", str(count))]),
    "equal": lambda count: ("200 OK", [PLAIN, ("X-First", str(count * 0 + 1))]),
    "pair": lambda count: ("200 OK", [PLAIN, Pair(["X-Number", str(count)])]),
    "list": lambda _: ("200 OK", Headers([PLAIN, FIRST])),
    "close": lambda _: ("200 OK", [PLAIN, ("X-Close", "soon")]),
    "many": lambda _: ("200 OK", [PLAIN, *[FIRST] * 40]),
    "long": lambda _: ("200 OK", [PLAIN, ("X-Long", "l" * 3000)]),
    "growing": growing,
}


def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    _, kind, number = environ["PATH_INFO"].split("/")
    if kind == "bad":
        start_response("200 OK", [PLAIN, ("X-Bad", "a\nb")])
    elif kind == "again":
        start_response("200 OK", [PLAIN, FIRST])
        start_response("200 OK", [PLAIN, FIRST])
    elif kind == "replaced":
        start_response("200 OK", [PLAIN, FIRST])
        try:
            raise ValueError
        except ValueError as error:
            start_response("500 Oh", [PLAIN, SECOND], (ValueError, error, None))
    else:
        start_response(*HEADS[kind](int(number)))
    return [b"body"]


def encoded(header: Any) -> Any:
    """Returns the header as ASGI has it: the same object for each of the constants."""
    if header not in (PLAIN, FIRST, SECOND) or type(header) is not tuple:
        return type(header)([part.lower().encode() for part in header])
    return ENCODED.setdefault(header, tuple(part.lower().encode() for part in header))


ENCODED: dict[tuple[str, str], Any] = {}


async def asgi(scope: dict[str, Any], _: Any, send: Any) -> None:
    assert scope["type"] == "http"
    _, kind, number = scope["path"].split("/")
    start: dict[str, Any] = {"type": "http.response.start"}
    if kind == "bad":
        await send(start | {"status": 200, "headers": [(b"x-bad", b"a\nb")]})
    elif kind == "again":
        start |= {"status": 200, "headers": [encoded(PLAIN), encoded(FIRST)]}
        await send(start)
        await send(start)
    elif kind == "replaced":
        # A message that could be taken for one of the same head.
        start |= {"status": 200, "headers": [encoded(PLAIN), encoded(FIRST)], "trailers": True}
        await send(start)
        await send({"type": "http.response.body", "body": b"body", "more_body": False})
        await send({"type": "http.response.trailers", "headers": [(b"x-trailer", b"t")]})
        return
    else:
        status, headers = HEADS[kind](int(number))
        listed = type(headers)(encoded(header) for header in headers)
        await send(start | {"status": int(status[:3]), "headers": listed})
    await send({"type": "http.response.body", "body": b"body"})


if os.environ.get("RESPONSE_HEADS") == "asgi":
    app: Any = asgi
else:
    app = wsgi
