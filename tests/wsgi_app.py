"""The application of ``test_wsgi.py``: each path does one thing that PEP 3333 allows or forbids.

The tests import the tables below (``READINGS``, ``REFUSED``, ``ITERABLES``) to know what there is to ask for.
The file is long because the tests name each of its paths, in one application.
"""

from __future__ import annotations

import collections
import gzip
import hashlib
import io
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], Any]]
Page = Callable[[Environ, StartResponse], Any]

TEXT = [("Content-Type", "text/plain")]

pages: dict[str, Page] = {}
closed: collections.Counter[str] = collections.Counter()
"""Calls of close(), by the query string of the request."""
produced: collections.Counter[str] = collections.Counter()
"""Blocks asked for, by the query string of the request."""
kept: dict[str, Any] = {}


def app(environ: Environ, start_response: StartResponse) -> Any:
    path = environ["PATH_INFO"]
    # Tests of how a path is decoded use paths below these two, and a target without a path.
    name = "/vandal" if path.startswith("/vandal") else "/environ" if path.startswith("/environ") or not path else path
    return pages[name](environ, start_response)


def page(function: Page) -> Page:
    pages["/" + function.__name__] = function
    return function


def say_json(start_response: StartResponse, what: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(what).encode()]


class Body:
    """An iterable that counts its blocks and the calls of its close()."""

    def __init__(self, environ: Environ, blocks: Iterable[Any]) -> None:
        self.name = environ["QUERY_STRING"]
        self.blocks = iter(blocks)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        block = next(self.blocks)
        produced[self.name] += 1
        return block

    def close(self) -> None:
        closed[self.name] += 1


@page
def hello(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    return [b"Hello"]


@page
def counts(environ: Environ, start_response: StartResponse) -> Any:
    return say_json(start_response, {"closed": closed, "produced": produced})


# wsgi.input

READINGS: dict[str, Callable[[Any], list[bytes]]] = {
    "read": lambda body: [body.read()],
    "read_minus_one": lambda body: [body.read(-1)],
    "read_none": lambda body: [body.read(None)],
    "read_sizes": lambda body: [body.read(0), body.read(1), *iter(lambda: body.read(1000), b"")],
    "read_past_the_end": lambda body: [body.read(1 << 24), body.read(10), body.read(), body.readline(), *body],
    "readline": lambda body: list(iter(body.readline, b"")),
    "readline_sizes": lambda body: list(iter(lambda: body.readline(7), b"")),
    "readline_four_times": lambda body: [body.readline() for _ in range(4)],
    "iterate": list,
    "readlines": lambda body: body.readlines(),
    "readlines_hint": lambda body: [*body.readlines(100), b"--", *body.readlines()],
    "mixed": lambda body: [body.readline(), body.read(3), next(iter(body), b""), body.readline(2), body.read()],
    "readinto": lambda body: _readinto(body),
    "buffered": lambda body: io.BufferedReader(body).readlines(),
    "text": lambda body: [line.encode("latin-1") for line in io.TextIOWrapper(body, "latin-1", newline="")],
}


def _readinto(body: Any) -> list[bytes]:
    buffer = bytearray(5000)
    return [bytes(buffer[:size]) for size in iter(lambda: body.readinto(buffer), 0)]


def digest(pieces: list[bytes]) -> Any:
    """Returns the pieces that were read, or if they are long their number, lengths and hash."""
    if sum(map(len, pieces)) < 1000:
        return [piece.decode("latin-1") for piece in pieces]
    lengths = hashlib.sha256(repr([len(piece) for piece in pieces]).encode()).hexdigest()
    return [len(pieces), lengths, hashlib.sha256(b"".join(pieces)).hexdigest()]


@page
def read(environ: Environ, start_response: StartResponse) -> Any:
    return say_json(start_response, digest(READINGS[environ["QUERY_STRING"]](environ["wsgi.input"])))


@page
def echo(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    return [environ["wsgi.input"].read()]


# environ


@page
def environ(environ: Environ, start_response: StartResponse) -> Any:
    answer = {
        "class": f"{type(environ).__module__}.{type(environ).__qualname__}",
        "types": {key: type(value).__name__ for key, value in environ.items()},
        "values": {key: value for key, value in environ.items() if isinstance(value, (str, bool, tuple))},
    }
    return say_json(start_response, answer)


@page
def vandal(environ: Environ, start_response: StartResponse) -> Any:
    """Answer with the environ as it came, then spoil it in every way that there is."""
    answer = {key: value for key, value in environ.items() if isinstance(value, (str, bool, tuple))}
    times = kept["vandal"] = kept.get("vandal", 0) + 1
    kept.setdefault("environs", []).append(environ)
    environ["HTTP_HOST"] = environ["PATH_INFO"] = environ["SCRIPT_NAME"] = environ["wsgi.url_scheme"] = "spoiled"
    environ["vandal.was_here"] = "spoiled"
    del environ["REQUEST_METHOD"], environ["SERVER_NAME"], environ["wsgi.input"]
    if times % 2:
        environ.clear()
    return say_json(start_response, answer)


@page
def errors(environ: Environ, start_response: StartResponse) -> Any:
    stream = environ["wsgi.errors"]
    stream.write("one for the log: snow \N{SNOWMAN}\n")
    stream.writelines(["two for the log\n", "three for the log\n"])
    stream.flush()
    return pages["/hello"](environ, start_response)


# start_response and write


@page
def write_then_iterable(environ: Environ, start_response: StartResponse) -> Any:
    write = start_response("200 OK", TEXT)
    write(b"one ")
    write(b"")
    write(b"two ")
    return Body(environ, [b"three ", b"", b"four"])


@page
def write_then_one_item(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)(b"one ")
    return [b"two"]


@page
def write_only(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", [*TEXT, ("Content-Length", "6")])(b"only 1")
    return []


@page
def write_in_iterable(environ: Environ, start_response: StartResponse) -> Any:
    write = start_response("200 OK", TEXT)

    def blocks() -> Iterator[bytes]:
        yield b"one "
        write(b"two ")
        yield b"three "
        write(b"four")

    return blocks()


@page
def write_large(environ: Environ, start_response: StartResponse) -> Any:
    write = start_response("200 OK", TEXT)
    for number in range(64):
        write(bytes([number]) * 65536)
        produced[environ["QUERY_STRING"]] += 1
    return []


@page
def write_str(environ: Environ, start_response: StartResponse) -> Any:
    write: Callable[[Any], Any] = start_response("200 OK", TEXT)
    write("text")
    return []


@page
def write_too_much(environ: Environ, start_response: StartResponse) -> Any:
    write = start_response("200 OK", [*TEXT, ("Content-Length", "3")])
    write(b"abc")
    try:
        write(b"too much")
    except ValueError as error:
        environ["wsgi.errors"].write(f"write raised {type(error).__name__}\n")
    return []


@page
def keep_callables(environ: Environ, start_response: StartResponse) -> Any:
    kept["callables"] = start_response, start_response("200 OK", TEXT)
    return [b"kept"]


@page
def use_kept_callables(environ: Environ, start_response: StartResponse) -> Any:
    outcomes = []
    old_start_response, old_write = kept.pop("callables")
    attempts: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = (
        (old_start_response, ("200 OK", [("X-Stray", "1")])),
        (old_write, (b"stray",)),
    )
    for call, arguments in attempts:
        try:
            call(*arguments)
            outcomes.append("nothing")
        except (AssertionError, RuntimeError) as error:
            outcomes.append(type(error).__name__)
    return say_json(start_response, outcomes)


@page
def keywords(environ: Environ, start_response: StartResponse) -> Any:
    start_response(status="201 Made", response_headers=TEXT, exc_info=None)
    return [b"made"]


@page
def error_page(environ: Environ, start_response: StartResponse) -> Any:
    """The PEP's own pattern: the status is replaced before the first byte."""
    start_response("200 OK", [("X-First", "1"), ("Content-Length", "1000")])
    try:
        raise LookupError("before the first byte")
    except LookupError:
        start_response("503 Come Back", [("X-Second", "2")], sys.exc_info())
    return [b"sorry"]


@page
def error_page_too_late(environ: Environ, start_response: StartResponse) -> Any:
    def blocks() -> Iterator[bytes]:
        start_response("200 OK", TEXT)
        yield b"one block"
        try:
            raise LookupError("after the first byte")
        except LookupError as error:
            try:
                start_response("503 Come Back", [], sys.exc_info())
            except LookupError as raised:
                environ["wsgi.errors"].write(f"raised again: {raised is error}\n")
                raise
        yield b"never"

    return Body(environ, blocks())


@page
def started_twice(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    start_response("201 Again", TEXT)
    return [b"never"]


@page
def started_twice_caught(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    try:
        start_response("201 Again", TEXT)
    except AssertionError:
        return [b"the first one counts"]
    return [b"never"]


@page
def never_started(environ: Environ, start_response: StartResponse) -> Any:
    return [b"never"]


@page
def never_started_generator(environ: Environ, start_response: StartResponse) -> Any:
    return Body(environ, [b"never"])


@page
def never_started_empty(environ: Environ, start_response: StartResponse) -> Any:
    return Body(environ, [])


class Late:
    """An application that is a class: called for each request, it calls start_response when it is iterated."""

    def __init__(self, environ: Environ, start_response: StartResponse) -> None:
        self.environ = environ
        self.start_response = start_response

    def __iter__(self) -> Iterator[bytes]:
        self.start_response("200 OK", [*TEXT, ("X-Late", "yes")])
        yield b"Hello "
        # A client that reads "Hello " before it opens the gate knows that it was sent before the next block was made.
        while self.environ["QUERY_STRING"] not in kept.get("open_gates", ()):
            yield b""
        yield b"World"


@page
def open_gate(environ: Environ, start_response: StartResponse) -> Any:
    kept.setdefault("open_gates", set()).add(environ["QUERY_STRING"])
    return pages["/hello"](environ, start_response)


pages["/late"] = Late

Headers = Any
REFUSED: dict[str, tuple[Any, Headers, str]] = {
    # name: (status, headers, what the log must say)
    "status int": (200, [], "status must be a str"),
    "status bytes": (b"200 OK", [], "status must be a str"),
    "status None": (None, [], "status must be a str"),
    "status without reason": ("200", [], "like '200 OK'"),
    "status without space": ("200OK", [], "like '200 OK'"),
    "status too short": ("20 OK", [], "like '200 OK'"),
    "status empty": ("", [], "like '200 OK'"),
    "status with a space before": (" 200 OK", [], "like '200 OK'"),
    "status of letters": ("2OO OK", [], "like '200 OK'"),
    "status 9999": ("9999 Nope", [], "like '200 OK'"),
    "status 099": ("099 Nope", [], "like '200 OK'"),
    "status 100": ("100 Continue", [], "1xx"),
    "status 101": ("101 Switching Protocols", [], "1xx"),
    "status CRLF": ("200 OK\r\nX-Injected: yes", [], "reason phrase"),
    "status LF": ("200 OK\nX-Injected: yes", [], "reason phrase"),
    "status NUL": ("200 O\0K", [], "reason phrase"),
    "status beyond latin-1": ("200 \N{SNOWMAN}", [], "latin-1"),
    "headers tuple": ("200 OK", (("X-A", "b"),), "list of (name, value) tuples"),
    "headers generator": ("200 OK", (("X-A", "b") for _ in range(1)), "list of (name, value) tuples"),
    "headers dict": ("200 OK", {"X-A": "b"}, "list of (name, value) tuples"),
    "headers None": ("200 OK", None, "list of (name, value) tuples"),
    "header triple": ("200 OK", [("X-A", "b", "c")], "(name, value) tuple"),
    "header single": ("200 OK", [("X-A",)], "(name, value) tuple"),
    "header list": ("200 OK", [["X-A", "b"]], "(name, value) tuple"),
    "header str": ("200 OK", ["X-A: b"], "(name, value) tuple"),
    "name bytes": ("200 OK", [(b"X-A", "b")], "header name must be a str"),
    "name None": ("200 OK", [(None, "b")], "header name must be a str"),
    "name empty": ("200 OK", [("", "b")], "must be a token"),
    "name with space": ("200 OK", [("X A", "b")], "must be a token"),
    "name with colon": ("200 OK", [("X-A:", "b")], "must be a token"),
    "name with CRLF": ("200 OK", [("X-A: b\r\nX-Injected", "yes")], "must be a token"),
    "name with NUL": ("200 OK", [("X-\0A", "b")], "must be a token"),
    "name beyond ASCII": ("200 OK", [("X-\xe9", "b")], "must be a token"),
    "name beyond latin-1": ("200 OK", [("X-\N{SNOWMAN}", "b")], "latin-1"),
    "value bytes": ("200 OK", [("X-A", b"b")], "header value must be a str"),
    "value int": ("200 OK", [("Content-Length", 5)], "header value must be a str"),
    "value None": ("200 OK", [("X-A", None)], "header value must be a str"),
    "value with CRLF": ("200 OK", [("X-A", "b\r\nX-Injected: yes")], "control characters"),
    "value with CR": ("200 OK", [("X-A", "b\rX-Injected: yes")], "control characters"),
    "value with LF": ("200 OK", [("X-A", "b\nX-Injected: yes")], "control characters"),
    "value with NUL": ("200 OK", [("X-A", "b\0")], "control characters"),
    "value with DEL": ("200 OK", [("X-A", "b\x7f")], "control characters"),
    "value beyond latin-1": ("200 OK", [("X-A", "\N{SNOWMAN}")], "latin-1"),
    "value lone surrogate": ("200 OK", [("X-A", "\udc80")], "latin-1"),
    "length of letters": ("200 OK", [("Content-Length", "five")], "decimal number"),
    "length negative": ("200 OK", [("Content-Length", "-5")], "decimal number"),
    "length signed": ("200 OK", [("Content-Length", "+5")], "decimal number"),
    "length empty": ("200 OK", [("Content-Length", "")], "decimal number"),
    "length huge": ("200 OK", [("Content-Length", "9" * 30)], "decimal number"),
    "length twice": ("200 OK", [("Content-Length", "5"), ("content-length", "5")], "twice"),
    "hop Transfer-Encoding": ("200 OK", [("Transfer-Encoding", "chunked")], "belongs to the connection"),
    "hop Upgrade": ("200 OK", [("upgrade", "websocket")], "belongs to the connection"),
    "hop Keep-Alive": ("200 OK", [("Keep-Alive", "timeout=5")], "belongs to the connection"),
    "hop TE": ("200 OK", [("te", "trailers")], "belongs to the connection"),
    "hop Trailer": ("200 OK", [("Trailer", "X-A")], "belongs to the connection"),
    "hop Trailers": ("200 OK", [("Trailers", "X-A")], "belongs to the connection"),
    "hop Proxy-Authenticate": ("200 OK", [("Proxy-Authenticate", "Basic")], "belongs to the connection"),
    "hop Proxy-Authorization": ("200 OK", [("Proxy-Authorization", "Basic")], "belongs to the connection"),
    "hop Connection": ("200 OK", [("Connection", "upgrade")], "belongs to the connection"),
}
"""Whatever of this an application says, none of it reaches the wire. ``REFUSED_ARGUMENTS`` are no pair at all."""

REFUSED_ARGUMENTS: dict[str, Callable[[StartResponse], Any]] = {
    "nothing": lambda start_response: start_response(),
    "status only": lambda start_response: start_response("200 OK"),
    "four": lambda start_response: start_response("200 OK", [], None, None),
    "unknown keyword": lambda start_response: start_response("200 OK", [], reason="x"),
}


@page
def refused(environ: Environ, start_response: StartResponse) -> Any:
    status, headers, _ = REFUSED[environ["QUERY_STRING"].replace("+", " ")]
    start_response(status, headers)
    return [b"never"]


@page
def refused_then_mended(environ: Environ, start_response: StartResponse) -> Any:
    """A draft that was refused leaves nothing behind."""
    try:
        start_response("200 OK", [("X-Left", "over"), ("Content-Length", "77"), ("Bad Name", "x")])
    except ValueError:
        start_response("202 Mended", TEXT)
    return [b"mended"]


@page
def refused_arguments(environ: Environ, start_response: StartResponse) -> Any:
    REFUSED_ARGUMENTS[environ["QUERY_STRING"].replace("+", " ")](start_response)
    return [b"never"]


@page
def headers(environ: Environ, start_response: StartResponse) -> Any:
    """The status and headers that the request's body asks for, as JSON."""
    status, fields = json.loads(environ["wsgi.input"].read())
    start_response(status, [(name, value) for name, value in fields])
    return [b"body"]


# Iterables


class ByIndex:
    """The old protocol of iteration."""

    def __getitem__(self, index: int) -> bytes:
        return [b"one ", b"two"][index]


class ByIterator:
    def __iter__(self) -> Iterator[bytes]:
        return iter([b"one ", b"two"])


class SubList(list[bytes]):
    """A list that iterates over something else than it holds."""

    def __iter__(self) -> Iterator[bytes]:
        return iter([b"one ", b"two"])


class SubBytes(bytes):
    pass


ITERABLES: dict[str, tuple[Callable[[], Any], str]] = {
    # name: (what the application returns, how its body must be framed); each is "one two"
    "list of one": (lambda: [b"one two"], "length"),
    "list of two": (lambda: [b"one ", b"two"], "chunked"),
    "list with empty blocks": (lambda: [b"", b"one ", b"", b"two", b""], "chunked"),
    "tuple of one": (lambda: (b"one two",), "length"),
    "tuple of two": (lambda: (b"one ", b"two"), "chunked"),
    "generator": (lambda: (block for block in (b"one ", b"two")), "chunked"),
    "iterator": (lambda: iter([b"one ", b"two"]), "chunked"),
    "deque": (lambda: collections.deque([b"one ", b"two"]), "chunked"),
    "dict": (lambda: {b"one ": 1, b"two": 2}, "chunked"),
    "map": (lambda: map(str.encode, ["one ", "two"]), "chunked"),
    "chain": (lambda: itertools.chain([b"one "], [b"two"]), "chunked"),
    "__getitem__": (ByIndex, "chunked"),
    "__iter__": (ByIterator, "chunked"),
    "subclass of list": (lambda: SubList([b"something else"]), "chunked"),
    "subclass of bytes": (lambda: [SubBytes(b"one two")], "length"),
    "BytesIO": (lambda: io.BytesIO(b"one two"), "chunked"),
}


@page
def iterable(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    return ITERABLES[environ["QUERY_STRING"].replace("+", " ")][0]()


@page
def empty_list(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    return []


@page
def one_empty_block(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    return [b""]


NOT_ITERABLE: dict[str, tuple[Any, str]] = {
    "None": (None, "not iterable"),
    "int": (5, "not iterable"),
    "str": ("text", "bytes"),
    "bytes": (b"text", "bytes"),
    "list of str": (["text"], "bytes"),
    "list of two str": (["text", "more"], "bytes"),
    "list of int": ([1, 2], "bytes"),
    "list of None": ([None], "bytes"),
    "list of bytearray": ([bytearray(b"text")], "bytes"),
    "list of memoryview": ([memoryview(b"text"), b"more"], "bytes"),
}


@page
def not_iterable(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    return NOT_ITERABLE[environ["QUERY_STRING"].replace("+", " ")][0]


@page
def wrong_block_later(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    return Body(environ, [b"right", "wrong", b"never"])


@page
def blocks(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    return Body(environ, [b"one ", b"two ", b"three"])


@page
def no_content(environ: Environ, start_response: StartResponse) -> Any:
    start_response("204 No Content", [])
    return Body(environ, [b"not ", b"for ", b"the wire"])


@page
def not_modified(environ: Environ, start_response: StartResponse) -> Any:
    start_response("304 Not Modified", [("ETag", '"1"')])
    return Body(environ, [b"not ", b"for ", b"the wire"])


@page
def endless(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    return Body(environ, itertools.repeat(b"x" * 65536))


@page
def thousand_blocks(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    return Body(environ, (bytes([number % 251]) * 65536 for number in range(1000)))


@page
def until_the_client_goes(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)

    def some() -> Iterator[bytes]:
        while True:
            yield b"tick\n"
            time.sleep(0.001)

    return Body(environ, some())


@page
def close_raises(environ: Environ, start_response: StartResponse) -> Any:
    class Raises(Body):
        def close(self) -> None:
            super().close()
            raise LookupError("in close()")

    start_response("200 OK", TEXT)
    return Raises(environ, [b"one ", b"two"])


@page
def iter_raises(environ: Environ, start_response: StartResponse) -> Any:
    class Raises(Body):
        def __iter__(self) -> Iterator[Any]:
            raise LookupError("in __iter__()")

    start_response("200 OK", TEXT)
    return Raises(environ, [])


# Lengths


@page
def too_long(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", [*TEXT, ("Content-Length", "5")])
    return [b"12345678"]


@page
def too_long_in_blocks(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", [*TEXT, ("Content-Length", "5")])
    return Body(environ, [b"123", b"45678", b"9"])


@page
def too_long_behind_its_end(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", [*TEXT, ("Content-Length", "5")])
    return Body(environ, [b"12345", b"6"])


@page
def too_short(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", [*TEXT, ("Content-Length", "50")])
    return [b"12345"]


@page
def too_short_in_blocks(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", [*TEXT, ("Content-Length", "50")])
    return Body(environ, [b"123", b"45"])


@page
def too_short_empty(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", [*TEXT, ("Content-Length", "50")])
    return Body(environ, [])


@page
def declared(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", [*TEXT, ("Content-Length", "7")])
    return Body(environ, [b"one ", b"two"])


# Exceptions


@page
def raises(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    raise LookupError("the app <b>failed</b> at once")


@page
def exits(environ: Environ, start_response: StartResponse) -> Any:
    raise SystemExit("the app wants to leave")


@page
def raises_in_first_block(environ: Environ, start_response: StartResponse) -> Any:
    def blocks() -> Iterator[bytes]:
        start_response("200 OK", TEXT)
        yield b"".join([kept["nothing of this name, in the first block"]])

    return Body(environ, blocks())


@page
def raises_midway(environ: Environ, start_response: StartResponse) -> Any:
    def blocks() -> Iterator[bytes]:
        yield b"one block"
        raise LookupError("after one block")

    start_response("200 OK", TEXT)
    return Body(environ, blocks())


@page
def raises_midway_with_length(environ: Environ, start_response: StartResponse) -> Any:
    def blocks() -> Iterator[bytes]:
        yield b"one block"
        raise LookupError("after one block")

    start_response("200 OK", [*TEXT, ("Content-Length", "100")])
    return Body(environ, blocks())


# Files


class Reader:
    """A file-like object that has nothing but what PEP 3333 asks for."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.stream = name, io.BytesIO(data)

    def read(self, size: int) -> bytes:
        return self.stream.read(size)

    def close(self) -> None:
        closed[self.name] += 1


class CountedFile(io.FileIO):
    def close(self) -> None:
        if not self.closed:
            closed[str(self.name)] += 1
        super().close()


def file_of(kind: str, path: Path) -> Any:
    if kind == "buffered":
        return path.open("rb")
    if kind == "raw":
        return path.open("rb", buffering=0)
    if kind == "from an offset":
        file = path.open("rb")
        assert file.read(10)  # the descriptor itself is then further on than the 10 bytes
        return file
    if kind == "text":
        return path.open(encoding="latin-1")
    if kind == "gzip":
        return gzip.GzipFile(path, "rb")
    if kind == "subclass":
        return CountedFile(path)
    if kind == "reader":
        return Reader(str(path), path.read_bytes())
    if kind == "no close":
        reader = Reader(str(path), path.read_bytes())
        return type("Plain", (), {"read": reader.read})()
    if kind == "temporary":
        temporary = tempfile.TemporaryFile()  # noqa: SIM115 - the server closes it
        temporary.write(path.read_bytes())
        temporary.seek(0)
        return temporary
    assert kind == "bytes"
    return io.BytesIO(path.read_bytes())


@page
def file(environ: Environ, start_response: StartResponse) -> Any:
    kind, path, length = json.loads(environ["wsgi.input"].read())
    fields = list(TEXT)
    if length is not None:
        fields.append(("Content-Length", str(length)))
    file = kept["file"] = file_of(kind, Path(path))
    start_response("200 OK", fields)
    return environ["wsgi.file_wrapper"](file, 16384)


@page
def file_after_write(environ: Environ, start_response: StartResponse) -> Any:
    path = environ["wsgi.input"].read().decode()
    start_response("200 OK", TEXT)(b"written first, ")
    return environ["wsgi.file_wrapper"](Path(path).open("rb"))


@page
def file_by_hand(environ: Environ, start_response: StartResponse) -> Any:
    """The wrapper is an iterator for every caller, including middleware."""
    path = environ["wsgi.input"].read().decode()
    wrapper = environ["wsgi.file_wrapper"](Path(path).open("rb"), 1000)  # noqa: SIM115 - close() below does it
    start_response("200 OK", TEXT)
    blocks = [block.upper() for block in wrapper]
    wrapper.close()
    assert all(len(block) <= 1000 for block in blocks)
    return blocks


@page
def file_closed(environ: Environ, start_response: StartResponse) -> Any:
    return say_json(start_response, getattr(kept.pop("file"), "closed", None))
