"""The application of the tests of gateways: what it is asked for it answers in the body, for every protocol alike."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

gate = threading.Event()
closed = threading.Event()
kept: list[Any] = []
_lock = threading.Lock()
served = 0


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    global served
    name = environ["PATH_INFO"].rpartition("/")[2]
    query = environ["QUERY_STRING"]
    with _lock:
        served += 1
    match name:
        case "echo":
            body = environ["wsgi.input"].read()
            content = {
                "length": environ.get("CONTENT_LENGTH"),
                "sha": hashlib.sha256(body).hexdigest(),
                "size": len(body),
            }
            return _json(start_response, content)
        case "unread":
            return _json(start_response, {})
        case "large":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [b"x" * int(query)]
        case "stream":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return (b"%07d\n" % number for number in range(int(query)))
        case "status":
            start_response(f"{query} Said", [("X-Said", query)])
            return [] if query in ("204", "304") else [b"said\n"]
        case "cookies":
            fields = [("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=2; Path=/"), ("Content-Type", "text/plain")]
            start_response("200 OK", fields)
            return [environ.get("HTTP_COOKIE", "").encode()]
        case "error":
            raise RuntimeError("on purpose")
        case "broken":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return _broken()
        case "cut":
            start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "200000")])
            return _broken()
        case "short":
            start_response("200 OK", [("Content-Length", "10")])
            return [b"short"]
        case "errors":
            environ["wsgi.errors"].write(f"to the log: {query}\n")
            environ["wsgi.errors"].flush()
            return _json(start_response, {})
        case "part":
            environ["wsgi.errors"].write("a line without an end")
            return _json(start_response, {})
        case "much":
            for number in range(int(query)):
                print(f"line {number} {'x' * 100}", file=environ["wsgi.errors"])
            return _json(start_response, {})
        case "surrogate":
            environ["wsgi.errors"].writelines(["\udcff", "é\n"])
            return _json(start_response, {})
        case "early":
            print("before the wait", file=environ["wsgi.errors"])
            gate.wait(60)
            return _json(start_response, {})
        case "between":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return _reporting(environ["wsgi.errors"], int(query))
        case "kept":
            kept.append(environ["wsgi.errors"])
            return _json(start_response, {})
        case "late":
            for errors in kept:
                print("late", file=errors)
            return _json(start_response, {})
        case "endless":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return Endless()
        case "wait":
            gate.wait(60)
            return _json(start_response, {})
        case "open":
            gate.set()
            return _json(start_response, {})
        case "closed":
            return _json(start_response, {"closed": closed.wait(30), "served": served})
    content = {name: value for name, value in environ.items() if isinstance(value, str)}
    return _json(start_response, content | {"has_input": hasattr(environ["wsgi.input"], "read")})


def _json(start_response: Callable[..., Any], content: dict[str, Any]) -> list[bytes]:
    out = json.dumps(content).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(out)))])
    return [out]


def _reporting(errors: Any, count: int) -> Iterator[bytes]:
    for number in range(count):
        print(f"before part {number}", file=errors)
        yield b"%07d\n" % number


def _broken() -> Iterator[bytes]:
    yield b"x" * 100_000
    raise RuntimeError("in the middle")


class Endless:
    """A body without an end; that its client is gone shows in :data:`closed`."""

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield b"x" * 10_000

    def close(self) -> None:
        closed.set()
