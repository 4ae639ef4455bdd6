"""A WSGI application that misbehaves: the path names the behaviour. `/hello` is what others ask for."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
import tempfile
import threading
import time
from typing import Any

import matrix.interpreter
import matrix.process
import matrix.resources  # noqa: F401
from matrix.process import KEPT
from matrix.table import DEEDS, Behaviour, Table

TABLE = Table()
TEXT = [("Content-Type", "text/plain")]
OK = "200 OK"

# For the healthy page: what an application has broken, the page does not use.
_HELLO = [("Content-Type", "text/plain"), ("Content-Length", "5")]
_write = os.write
_begins = {}


def app(environ: Any, start_response: Any) -> Any:
    path = environ["PATH_INFO"]
    if path == "/hello":
        start_response(OK, _HELLO)
        return [b"hello"]
    _write(2, _begins[path])
    return TABLE[path[1:]].act(environ, start_response)


def _deed(behaviour: Behaviour) -> Behaviour:
    def act(environ: Any, start_response: Any) -> Any:
        behaviour.act()
        start_response(OK, TEXT)
        return [b"done"]

    return Behaviour(**{**behaviour.__dict__, "act": act})


for _each in DEEDS.values():
    TABLE.add(_deed(_each))


# Exceptions of each kind, at each place

try:
    from greenlet import GreenletExit
except ImportError:
    GreenletExit = GeneratorExit  # type: ignore[assignment, misc]


class Own(BaseException):
    """A base exception of the application's."""


class Raises:
    """A response whose steps raise."""

    def __init__(self, error: type[BaseException], place: str) -> None:
        self.error = error
        self.place = place
        self.items = 0

    def __iter__(self) -> Raises:
        if self.place == "iter":
            raise self.error("matrix")
        return self

    def __next__(self) -> bytes:
        self.items += 1
        if (self.place == "first" and self.items == 1) or (self.place == "middle" and self.items == 3):
            raise self.error("matrix")
        if self.items > 4:
            raise StopIteration
        return b"item"

    def close(self) -> None:
        if self.place == "close":
            raise self.error("matrix")


def _raises(error: type[BaseException], place: str) -> None:
    def act(environ: Any, start_response: Any) -> Any:
        if place == "call":
            raise error("matrix")
        start_response(OK, TEXT)
        if place == "started":
            raise error("matrix")
        return Raises(error, place)

    name = f"exceptions-{error.__name__}_in_{place}"
    TABLE.add(Behaviour(name, "exceptions", act, cause=rf"{error.__name__}|CancelledError"))


for _error in (ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, Own, StopIteration):
    for _place in ("call", "started", "iter", "first", "middle", "close"):
        if (_error, _place) not in {(StopIteration, "first"), (StopIteration, "middle")}:
            _raises(_error, _place)
_raises(OSError, "middle")
_raises(BrokenPipeError, "middle")
_raises(ConnectionResetError, "call")
_raises(TimeoutError, "call")
_raises(StopAsyncIteration, "first")
if GreenletExit is not GeneratorExit:
    for _place in ("call", "middle", "close"):
        _raises(GreenletExit, _place)

# start_response

start = TABLE.group("start_response")
MISUSE = r"start_response|status|header|Error|Length|body"


@start(cause=MISUSE)
def never_called(environ: Any, start_response: Any) -> Any:
    return [b"x"]


@start(cause=MISUSE)
def called_twice(environ: Any, start_response: Any) -> Any:
    start_response(OK, TEXT)
    start_response(OK, TEXT)
    return [b"x"]


@start(cause=MISUSE)
def called_after_an_item(environ: Any, start_response: Any) -> Any:
    yield b"x"
    start_response(OK, TEXT)


@start
def kept_for_later(environ: Any, start_response: Any) -> Any:
    def later() -> None:
        time.sleep(0.2)
        with contextlib.suppress(Exception):
            start_response(OK, TEXT)(b"late")

    threading.Thread(target=later, daemon=True).start()
    start_response(OK, TEXT)
    return [b"x"]


@start
def from_another_thread(environ: Any, start_response: Any) -> Any:
    thread = threading.Thread(target=start_response, args=(OK, TEXT))
    thread.start()
    thread.join()
    return [b"x"]


@start(cause=MISUSE)
def exc_info_after_the_start(environ: Any, start_response: Any) -> Any:
    start_response(OK, TEXT)
    yield b"x"
    try:
        raise ValueError("matrix")
    except ValueError:
        start_response("500 Late", TEXT, sys.exc_info())


def _starts(
    name: str, status: Any, headers: Any, body: Any = (b"x",), *, exc_info: Any = None, fine: bool = False
) -> None:
    def act(environ: Any, start_response: Any) -> Any:
        value = headers() if callable(headers) else headers
        start_response(status, value, *([exc_info] if exc_info is not None else []))
        return list(body)

    TABLE.add(Behaviour(f"start_response-{name}", "start_response", act, cause=None if fine else MISUSE))


class Text(str):
    """Text that resists."""

    __slots__ = ()

    def __len__(self) -> int:
        raise ValueError("no length")

    def __str__(self) -> str:
        raise ValueError("no str")

    def __eq__(self, _: object) -> bool:
        raise ValueError("no comparison")

    def __hash__(self) -> int:
        raise ValueError("no hash")

    def encode(self, *_: object) -> bytes:
        raise ValueError("no encoding")


class OddList(list):  # type: ignore[type-arg]
    """A list that does not keep to itself."""

    def __len__(self) -> int:
        return 1_000_000

    def __iter__(self) -> Any:
        raise ValueError("no iteration")


for _name, _status in {
    "status_empty": "", "status_short": "20", "status_integer": 200, "status_none": None, "status_bytes": b"200 OK",
    "status_line_end": "200 OK\r\nX-Injected: 1", "status_text": "fine", "status_4_digits": "2000 OK",
    "status_99": "99 low", "status_nul": "200 O\0K", "status_snowman": "200 \u2603", "status_surrogate": "200 \udc80",
    "status_999": "999 odd", "status_negative": "-200 OK",
}.items():  # fmt: skip
    _starts(_name, _status, TEXT, fine=_name == "status_999")
_starts("status_100", "100 Continue", TEXT)
_starts("status_101", "101 Switching Protocols", TEXT)
_starts("status_204_with_a_body", "204 No Content", [], [b"x" * 1000], fine=True)
_starts("status_304_with_a_body", "304 Not Modified", [], [b"x" * 1000], fine=True)
_starts("status_subclass", Text("200 OK"), TEXT, fine=True)
_starts("header_subclass", OK, [(Text("X-A"), Text("b"))], fine=True)
for _name, _headers in {
    "headers_none": None, "headers_text": "X-A: b", "headers_dict": {"X-A": "b"}, "headers_pairs_of_lists": [["X-A", "b"]],
    "headers_flat": ["X-A", "b"], "header_triple": [("X-A", "b", "c")], "header_integer": [("X-A", 1)],
    "header_none": [("X-A", None)], "header_bytes": [(b"X-A", b"b")], "header_line_end": [("X-A", "b\r\nX-B: c")],
    "header_colon": [("X-A:", "b")], "header_space": [("X A", "b")], "header_empty_name": [("", "b")],
    "header_nul": [("X-A", "b\0")], "header_snowman": [("X-A", "\u2603")], "header_surrogate": [("X-A", "\udc80")],
    "length_text": [("Content-Length", "many")], "length_negative": [("Content-Length", "-1")],
    "length_huge": [("Content-Length", "9" * 30)], "length_twice": [("Content-Length", "1"), ("Content-Length", "2")],
    "length_too_long": [("Content-Length", "10")], "length_too_short": [("Content-Length", "0")],
    "transfer_encoding": [("Transfer-Encoding", "chunked")], "connection_upgrade": [("Connection", "upgrade")],
    "headers_subclass": OddList(TEXT),
}.items():  # fmt: skip
    _starts(_name, OK, _headers, fine=_name == "headers_subclass")
_starts("headers_generator", OK, lambda: (pair for pair in TEXT))
_starts("header_of_1_mb", OK, [("X-A", "b" * 1_000_000)], fine=True)
_starts("headers_10_000", OK, [(f"X-{number}", "b") for number in range(10_000)], fine=True)
_starts("exc_info_true", OK, TEXT, exc_info=True, fine=True)
_starts("exc_info_text", OK, TEXT, exc_info=("x",), fine=True)
_starts("exc_info_empty", OK, TEXT, exc_info=(None, None, None), fine=True)


@start(cause=MISUSE)
def write_text(environ: Any, start_response: Any) -> Any:
    start_response(OK, TEXT)("text")
    return []


@start(cause=MISUSE)
def write_none(environ: Any, start_response: Any) -> Any:
    start_response(OK, TEXT)(None)
    return []


@start
def write_kept(environ: Any, start_response: Any) -> Any:
    KEPT.append(start_response(OK, TEXT))
    for write in KEPT[:-1]:
        with contextlib.suppress(Exception):
            write(b"late")
    return [b"x"]


@start
def write_from_ten_threads(environ: Any, start_response: Any) -> Any:
    write = start_response(OK, TEXT)

    def use() -> None:
        with contextlib.suppress(Exception):
            for _ in range(100):
                write(b"x" * 1000)

    threads = [threading.Thread(target=use) for _ in range(10)]
    for thread in threads:
        thread.start()
    return [b"x"]


@start
def headers_changed_afterwards(environ: Any, start_response: Any) -> Any:
    headers: list[Any] = list(TEXT)
    start_response(OK, headers)
    headers[:] = [None] * 100
    return [b"x"]


# Iterables

iterables = TABLE.group("iterables")
WRONG = r"Error|bytes|iter|None"


def _returns(name: str, make: Any, cause: str | None = WRONG, **options: Any) -> None:
    def act(environ: Any, start_response: Any) -> Any:
        start_response(OK, TEXT)
        return make()

    TABLE.add(Behaviour(f"iterables-{name}", "iterables", act, cause, **options))


async def _coroutine() -> bytes:
    return b"x"


async def _async_generator() -> Any:
    yield b"x"


class Odd:
    """An iterable with methods of the caller's."""

    def __new__(cls, **methods: Any) -> Any:
        return type("Odd", (), {"__iter__": lambda self: iter([b"x"] * 3), **methods})()


def _fail(*_: object) -> Any:
    raise ValueError("matrix")


def _recurse(*_: object, depth: int = 0) -> Any:
    # greenlet 3.5 lets a greenlet recurse without the interpreter's limit.
    if depth > 50_000:
        raise RecursionError("the application's own limit")
    return _recurse(depth=depth + 1)


def _gen(before: int, error: Any = None, close_error: bool = False) -> Any:
    try:
        for _ in range(before):
            yield b"item"
        if error is not None:
            raise error("matrix")
    finally:
        if close_error:
            raise ValueError("in finally")


def _swallows() -> Any:
    while True:
        try:
            yield b"x" * 10_000
        except GeneratorExit:
            yield b"swallowed"


def _infinite() -> Any:
    while True:
        yield b"x" * 10_000


def _sleeps() -> Any:
    yield b"x"
    time.sleep(1.2)
    yield b"y"


def _itself() -> Any:
    generator: Any = None

    def run() -> Any:
        yield b"x"
        next(generator)
        yield b"y"

    generator = run()
    return generator


_SHARED = _gen(1)


def _pipe() -> Any:
    reader, writer = os.pipe()
    with open(writer, "wb") as file:  # os.close() of gevent waits for the hub
        file.write(b"in a pipe")
    return open(reader, "rb")


def _closed_file() -> Any:
    file = tempfile.TemporaryFile()
    file.close()
    return file


def _forks_midway() -> Any:
    yield b"x"
    os.fork()
    yield b"y"


_returns("none", lambda: None)
_returns("integer", lambda: 5)
_returns("text", lambda: "text")
_returns("bytes", lambda: b"bytes", None)
_returns("dict", lambda: {"a": b"b"})
_returns("list_of_text", lambda: ["text"])
_returns("list_of_none", lambda: [b"x", None, b"y"])
_returns("list_of_integers", lambda: [1, 2])
_returns("memoryviews", lambda: [memoryview(b"x")], None)
_returns("bytearrays", lambda: [bytearray(b"x")], None)
_returns("bytes_subclass", lambda: [type("B", (bytes,), {"__len__": _fail})(b"x")], None)
_returns("empty", list, None)
_returns("coroutine", _coroutine)
_returns("async_generator", _async_generator)
_returns("class", lambda: Odd)
_returns("iter_returns_none", lambda: Odd(__iter__=lambda self: None))
_returns("iter_recurses", lambda: Odd(__iter__=_recurse), "RecursionError")
_returns("len_lies", lambda: Odd(__len__=lambda self: 1), None)
_returns("len_raises", lambda: Odd(__len__=_fail), None)
_returns("len_negative", lambda: Odd(__len__=lambda self: -5), None)
_returns("getitem_only", lambda: type("Old", (), {"__getitem__": lambda self, n: [b"a", b"b"][n]})(), None)
_returns("close_not_callable", lambda: Odd(close=5))
_returns("close_with_argument", lambda: Odd(close=lambda self, what: None))
_returns("close_recurses", lambda: Odd(close=_recurse), "RecursionError")
_returns("close_sleeps", lambda: Odd(close=lambda self: time.sleep(1.2)), None, blocks=True)
_returns("close_property_raises", lambda: Odd(close=property(_fail)))
_returns("getattribute_raises", lambda: Odd(__getattribute__=_fail), None)
_returns("repr_raises", lambda: Odd(__repr__=_fail, __iter__=lambda self: None))
_returns("text_before_first", lambda: (item for item in ["text", b"x"]))
_returns("fails_before_first", lambda: _gen(0, ValueError), "ValueError")
_returns("fails_after_first", lambda: _gen(1, ValueError), "ValueError")
_returns("fails_after_hundred", lambda: _gen(100, ValueError), "ValueError")
_returns("fails_in_finally", lambda: _gen(2, None, True), "ValueError")
_returns("fails_twice", lambda: _gen(1, KeyError, True), "ValueError")
_returns("stop_iteration_inside", lambda: _gen(1, StopIteration), "RuntimeError|StopIteration")
_returns("recursion_inside", lambda: _gen(1, _recurse), "RecursionError")
_returns("exit_after_first", lambda: _gen(1, lambda _: os._exit(6)), r"status|code|exit", alone=True)
_returns("swallows_close", _swallows, r"RuntimeError|GeneratorExit", blocks=True)
_returns("infinite", _infinite, None)
_returns("sleeps", _sleeps, None, blocks=True)
_returns("already_running", _itself, "ValueError")
_returns("shared", lambda: _SHARED, None)
_returns("empty_items", lambda: (b"" for _ in range(50_000)), None)
_returns("tiny_items", lambda: (b"x" for _ in range(20_000)), None)
_returns("item_of_100_mb", lambda: [bytes(100 << 20)], None)
_returns("list_changed_meanwhile", lambda: Odd(__iter__=lambda self: iter(KEPT)), None)
_returns("forks_midway", _forks_midway, None, alone=True)
_returns("pipe", _pipe, None)
_returns("closed_file", _closed_file, "ValueError")


for _name, _make, _cause in (
    ("wrapped_pipe", _pipe, None),
    ("wrapped_closed_file", _closed_file, "ValueError|closed"),
    ("wrapped_text", lambda: io.StringIO("text"), "Error|bytes"),
    ("wrapped_none", lambda: None, "Error|read"),
    (
        "wrapped_directory",
        lambda: type("D", (), {"fileno": lambda self: os.open("/", os.O_RDONLY), "read": _fail})(),
        None,
    ),
    ("wrapped_wrong_fileno", lambda: type("D", (), {"fileno": lambda self: 999, "read": _fail})(), "matrix|Error"),
    ("wrapped_endless", lambda: open("/dev/zero", "rb"), None),
):

    def _act(environ: Any, start_response: Any, _make: Any = _make) -> Any:
        start_response(OK, TEXT)
        return environ.get("wsgi.file_wrapper", lambda file, *_: iter(lambda: file.read(8192), b""))(_make())

    TABLE.add(Behaviour(f"iterables-{_name}", "iterables", _act, _cause))

# The environ

environs = TABLE.group("environ")


def _answer(start_response: Any) -> list[bytes]:
    start_response(OK, TEXT)
    return [b"x"]


@environs
def cleared(environ: Any, start_response: Any) -> Any:
    environ.clear()
    return _answer(start_response)


@environs
def replaced_by_junk(environ: Any, start_response: Any) -> Any:
    for key in list(environ):
        environ[key] = object()
    return _answer(start_response)


@environs
def odd_keys(environ: Any, start_response: Any) -> Any:
    environ.update({1: 2, None: None, (1,): b"", environ["PATH_INFO"] * 1000: 0})
    environ["itself"] = environ
    return _answer(start_response)


@environs
def kept_and_used(environ: Any, start_response: Any) -> Any:
    KEPT.append(environ)
    for kept in KEPT:
        if isinstance(kept, dict):
            with contextlib.suppress(Exception):
                kept["wsgi.input"].read()
            with contextlib.suppress(Exception):
                kept["wsgi.errors"].write("late\n")
    return _answer(start_response)


@environs
def changed_in_the_iterator(environ: Any, start_response: Any) -> Any:
    start_response(OK, TEXT)
    yield b"x"
    environ.clear()
    environ["REQUEST_METHOD"] = 5
    yield b"y"


@environs
def values_that_fail_to_die(environ: Any, start_response: Any) -> Any:
    environ["broken"] = type("Broken", (), {"__del__": _fail})()
    return _answer(start_response)


@environs
def version_changed(environ: Any, start_response: Any) -> Any:
    environ["wsgi.version"] = "x"
    environ["wsgi.multithread"] = environ["wsgi.run_once"] = None
    environ["SERVER_PORT"] = environ["REQUEST_METHOD"] = 80
    return _answer(start_response)


def _uses(name: str, use: Any, cause: str | None = None, **options: Any) -> None:
    def act(environ: Any, start_response: Any) -> Any:
        use(environ)
        return _answer(start_response)

    TABLE.add(Behaviour(f"environ-{name}", "environ", act, cause, **options))


def _late(stream: str, method: str, *arguments: Any) -> Any:
    def use(environ: Any) -> None:
        def later() -> None:
            time.sleep(0.2)
            with contextlib.suppress(Exception):
                getattr(environ[stream], method)(*arguments)

        threading.Thread(target=later, daemon=True).start()

    return use


_uses("input_closed", lambda environ: getattr(environ["wsgi.input"], "close", int)())
_uses("input_read_negative", lambda environ: environ["wsgi.input"].read(-5))
_uses("input_read_huge", lambda environ: environ["wsgi.input"].read(1 << 40))
_uses("input_read_text", lambda environ: environ["wsgi.input"].read("x"), "Error")
_uses("input_after_the_end", _late("wsgi.input", "read"))
_uses("input_replaced", lambda environ: environ.update({"wsgi.input": None, "wsgi.errors": None}))
_uses("errors_closed", lambda environ: getattr(environ["wsgi.errors"], "close", int)())
_uses("errors_write_integer", lambda environ: environ["wsgi.errors"].write(5), "Error", calls=True)
_uses("errors_write_odd", lambda environ: environ["wsgi.errors"].write("\0\udc80\x1b[2J\r\n" * 10))
_uses("errors_after_the_end", _late("wsgi.errors", "write", "late\n"))
_uses("errors_flood", lambda environ: environ["wsgi.errors"].write("x" * 300_000 + "\n"))
_uses(
    "errors_writelines_raises",
    lambda environ: environ["wsgi.errors"].writelines(_gen(0, KeyError)),
    "KeyError",
    calls=True,
)

_begins.update({f"/{name}": f"matrix: {name} begins\n".encode() for name in TABLE})
