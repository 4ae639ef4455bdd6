"""The application of the tests about drivers: each path waits for something, or tells what has been waited for.

A gate is a path in the query string: a call that waits for it continues when the file exists. What the test has to know
at once is said on standard error, a line in one piece, so that calls at the same time do not mix their words.
"""

from __future__ import annotations

import collections
import contextvars
import ctypes
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], Any]]
Page = Callable[[Environ, StartResponse], Any]

TEXT = [("Content-Type", "text/plain")]
BLOCK = bytes(range(256)) * 256
"""64 KiB."""
GATE_SECONDS = 30.0
MEETING_SECONDS = 20.0

pages: dict[str, Page] = {}
journal: list[str] = []
"""The target of each call, in the order of the calls."""
inside: collections.Counter[str] = collections.Counter()
"""Calls that wait at a gate now, and ``most``: so many at most at once."""
idents: dict[str, list[int]] = collections.defaultdict(list)
"""The threads in which an iterable was used, by query string."""
closed: collections.Counter[str] = collections.Counter()
kept: dict[str, Any] = {}
meetings: dict[str, threading.Barrier] = {}
lock = threading.Lock()
local = threading.local()
context: contextvars.ContextVar[str] = contextvars.ContextVar("context")


def app(environ: Environ, start_response: StartResponse) -> Any:
    journal.append(environ["RAW_URI"])
    return pages[environ["PATH_INFO"]](environ, start_response)


def page(function: Page) -> Page:
    pages["/" + function.__name__] = function
    return function


def say(text: str) -> None:
    os.write(2, f"{text}\n".encode())


def say_json(start_response: StartResponse, what: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(what).encode()]


def wait_for_gate(path: str) -> None:
    deadline = time.monotonic() + GATE_SECONDS
    while not os.path.exists(path):
        assert time.monotonic() < deadline, f"{path} was never opened"
        time.sleep(0.002)


def meet(name: str, parties: int) -> None:
    """Wait until ``parties`` calls are here."""
    with lock:
        meeting = meetings.setdefault(name, threading.Barrier(parties))
    meeting.wait(MEETING_SECONDS)


class Body:
    """An iterable that keeps the threads in which it was used."""

    def __init__(self, name: str, blocks: Iterable[bytes]) -> None:
        self.name, self.blocks = name, iter(blocks)

    def __iter__(self) -> Iterator[bytes]:
        idents[self.name].append(threading.get_ident())
        return self

    def __next__(self) -> bytes:
        idents[self.name].append(threading.get_ident())
        return next(self.blocks)

    def close(self) -> None:
        idents[self.name].append(threading.get_ident())
        closed[self.name] += 1
        say(f"closed {self.name}")


# The client and its request


@page
def hello(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    return [b"Hello"]


@page
def echo(environ: Environ, start_response: StartResponse) -> Any:
    body = environ["wsgi.input"].read()
    start_response("200 OK", TEXT)
    return [body]


@page
def who(environ: Environ, start_response: StartResponse) -> Any:
    """The thread of this call, and the threads that there are."""
    answer = {
        "thread": threading.get_ident(),
        "name": threading.current_thread().name,
        "daemon": threading.current_thread().daemon,
        "names": [thread.name for thread in threading.enumerate()],
        "task": os.path.basename(os.readlink("/proc/thread-self")),
        **{key: environ[key] for key in ("wsgi.multithread", "wsgi.multiprocess", "wsgi.run_once")},
    }
    return say_json(start_response, answer)


@page
def records(environ: Environ, start_response: StartResponse) -> Any:
    return say_json(start_response, {"journal": journal, "inside": inside, "idents": idents, "closed": closed})


# Calls that wait


@page
def wait(environ: Environ, start_response: StartResponse) -> Any:
    gate = environ["QUERY_STRING"]
    with lock:
        inside["now"] += 1
        inside["most"] = max(inside["most"], inside["now"])
    say(f"waiting for {gate}")
    try:
        wait_for_gate(gate)
    finally:
        with lock:
            inside["now"] -= 1
    start_response("200 OK", TEXT)
    return [b"waited"]


@page
def block(environ: Environ, start_response: StartResponse) -> Any:
    """Wait in C until the test writes to the FIFO of the query: under gevent the hub waits too."""
    return read_in_c(ctypes.CDLL(None), environ, start_response)


@page
def hold(environ: Environ, start_response: StartResponse) -> Any:
    """The same without letting go of the interpreter, so that no Python code runs in this process meanwhile."""
    return read_in_c(ctypes.PyDLL(None), environ, start_response)


def read_in_c(library: ctypes.CDLL, environ: Environ, start_response: StartResponse) -> Any:
    descriptor = os.open(environ["QUERY_STRING"], os.O_RDWR)
    try:
        say(f"in C at {environ['QUERY_STRING']}")
        library.read(descriptor, ctypes.create_string_buffer(1), ctypes.c_size_t(1))
    finally:
        os.close(descriptor)
    start_response("200 OK", TEXT)
    return [b"waited in C"]


@page
def rest(environ: Environ, start_response: StartResponse) -> Any:
    """Wait for as many milliseconds as the query says, as for a database."""
    time.sleep(int(environ["QUERY_STRING"].partition("&")[0]) / 1000)
    start_response("200 OK", TEXT)
    return [environ["QUERY_STRING"].encode()]


@page
def meeting(environ: Environ, start_response: StartResponse) -> Any:
    """``?parties&name``: answered when so many calls are at it."""
    parties, _, name = environ["QUERY_STRING"].partition("&")
    meet(name, int(parties))
    return say_json(start_response, threading.get_ident())


@page
def variables(environ: Environ, start_response: StartResponse) -> Any:
    """``?parties&value``: what a call keeps in its thread and its context is there although others ran meanwhile."""
    parties, _, value = environ["QUERY_STRING"].partition("&")
    local.value = value
    context.set(value)

    def seen() -> bytes:
        return f"{local.value} {context.get()}\n".encode()

    def blocks() -> Iterator[bytes]:
        for turn in range(3):
            meet(f"variables {turn}", int(parties))
            yield seen()

    meet("variables", int(parties))
    first = seen()
    write = start_response("200 OK", TEXT)
    write(first)
    return blocks()


# Responses that wait


@page
def encryption(environ: Environ, start_response: StartResponse) -> Any:
    names = ("wsgi.url_scheme", "HTTPS", "SERVER_PORT")
    return say_json(
        start_response, {name: value for name, value in environ.items() if name in names or name.startswith("SSL_")}
    )


@page
def large(environ: Environ, start_response: StartResponse) -> Any:
    """``?blocks&name``: so many blocks of 64 KiB. Another request can ask whether the client is there."""
    count, _, name = environ["QUERY_STRING"].partition("&")
    idents[name].append(threading.get_ident())
    kept[name] = environ["kirsch.disconnected"]
    start_response("200 OK", TEXT)
    return Body(name, (BLOCK for _ in range(int(count))))


@page
def endless(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    return Body(environ["QUERY_STRING"], iter(lambda: BLOCK, b""))


@page
def events(environ: Environ, start_response: StartResponse) -> Any:
    """Server-sent events without end, as fast as the client takes them."""
    start_response("200 OK", [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")])
    event = b"data: " + b"x" * 1000 + b"\n\n"
    return Body(environ["QUERY_STRING"], iter(lambda: event, b""))


@page
def ticks(environ: Environ, start_response: StartResponse) -> Any:
    """A response that is never over and never large: only its client's leaving ends it."""
    start_response("200 OK", TEXT)

    def blocks() -> Iterator[bytes]:
        while True:
            yield b"tick\n"
            time.sleep(0.002)

    return Body(environ["QUERY_STRING"], blocks())


@page
def steps(environ: Environ, start_response: StartResponse) -> Any:
    """Three blocks; before the second and the third a gate, ``<query>.2`` and ``<query>.3``."""
    start_response("200 OK", TEXT)

    def blocks() -> Iterator[bytes]:
        yield b"one"
        for number, block in ((2, b"two"), (3, b"three")):
            wait_for_gate(f"{environ['QUERY_STRING']}.{number}")
            yield block

    return Body(environ["QUERY_STRING"], blocks())


@page
def raises_midway(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)

    def blocks() -> Iterator[bytes]:
        yield b"one block"
        raise LookupError("after one block")

    return Body(environ["QUERY_STRING"], blocks())


@page
def write_large(environ: Environ, start_response: StartResponse) -> Any:
    """``?blocks&name``: so many blocks of 64 KiB, by write()."""
    count, _, name = environ["QUERY_STRING"].partition("&")
    write = start_response("200 OK", TEXT)
    try:
        for _ in range(int(count)):
            write(BLOCK)
        say(f"written {name}")
    finally:
        say(f"write is over {name}")
    return []


# Bodies


@page
def sip(environ: Environ, start_response: StartResponse) -> Any:
    """``?size``: say the first bytes of the body as soon as they are here; the answer is the hash of all."""
    body = environ["wsgi.input"]
    first = body.read(int(environ["QUERY_STRING"]))
    say(f"sipped {first.decode()}")
    digest = hashlib.sha256(first)
    while block := body.read(65536):
        digest.update(block)
    start_response("200 OK", TEXT)
    return [digest.hexdigest().encode()]


@page
def read_late(environ: Environ, start_response: StartResponse) -> Any:
    """Read nothing before the gate is open; the answer is the hash of all."""
    say(f"waiting for {environ['QUERY_STRING']}")
    wait_for_gate(environ["QUERY_STRING"])
    digest = hashlib.sha256()
    while block := environ["wsgi.input"].read(65536):
        digest.update(block)
    start_response("200 OK", TEXT)
    return [digest.hexdigest().encode()]


@page
def read_what_comes(environ: Environ, start_response: StartResponse) -> Any:
    """``?method``: read with it, and say what is there, until the end."""
    body, method = environ["wsgi.input"], environ["QUERY_STRING"]
    buffer = bytearray(8)  # of the size of a piece, because whether readinto() waits for more is left open
    readings: dict[str, Callable[[], bytes]] = {
        "read1": lambda: bytes(body.read1(1000)),
        "readinto": lambda: bytes(buffer[: body.readinto(buffer)]),
        "readline": lambda: bytes(body.readline()),
        "iteration": lambda: next(iter(body), b""),
    }
    while piece := readings[method]():
        say(f"{method} {piece.decode().rstrip()}")
    start_response("200 OK", TEXT)
    return [method.encode()]


@page
def unread(environ: Environ, start_response: StartResponse) -> Any:
    start_response("200 OK", TEXT)
    return [b"not read"]


@page
def read_carefully(environ: Environ, start_response: StartResponse) -> Any:
    """Say what read() raises, and answer all the same."""
    say("reading")
    try:
        length = len(environ["wsgi.input"].read())
    except Exception as error:  # noqa: BLE001 - which one it is, is the question
        say(f"read raised {type(error).__name__}, OSError: {isinstance(error, OSError)}")
        start_response("400 Half", TEXT)
        return [b"half a body"]
    start_response("200 OK", TEXT)
    return [str(length).encode()]


# Other threads


def in_a_thread(work: Callable[[], Any]) -> str:
    """Run ``work`` in a thread of its own and wait for it: the name of what it raised, or nothing."""
    raised: list[str] = []

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the caller looks at it
            raised.append(type(error).__name__)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return "".join(raised)


@page
def thread_responds(environ: Environ, start_response: StartResponse) -> Any:
    """Another thread begins the response, and writes the first part, while the call waits for it."""
    raised = in_a_thread(lambda: start_response("200 OK", TEXT)(b"written, "))
    return [f"returned{raised}".encode()]


@page
def thread_keeps(environ: Environ, start_response: StartResponse) -> Any:
    kept["callables"] = start_response, start_response("200 OK", TEXT)
    return [b"kept"]


@page
def thread_is_late(environ: Environ, start_response: StartResponse) -> Any:
    """Another thread uses the callables of a response that is over."""
    late_start_response, late_write = kept.pop("callables")
    raised = [
        in_a_thread(lambda: late_start_response("200 OK", [("X-Stray", "1")])),
        in_a_thread(lambda: late_write(b"stray")),
    ]
    return say_json(start_response, raised)


@page
def thread_strays(environ: Environ, start_response: StartResponse) -> Any:
    """A thread of the application continues to write until it gets an error because the response is over."""
    write = start_response("200 OK", TEXT)
    begun = threading.Event()

    def stray() -> None:
        try:
            for _ in range(100_000):
                write(b"x")
                begun.set()
                time.sleep(0)  # a greenlet has to let others go on
            ended = "nothing"
        except Exception as error:  # noqa: BLE001 - the test looks at it
            ended = type(error).__name__
        say(f"strayed until {ended}")

    threading.Thread(target=stray).start()
    begun.wait(MEETING_SECONDS)
    return [b"end"]


# Clients that leave


@page
def watch(environ: Environ, start_response: StartResponse) -> Any:
    """Say when the client has left; ``?thread`` has another thread look."""
    disconnected = kept["disconnected"] = environ["kirsch.disconnected"]
    say(f"left: {disconnected()}")

    def look() -> None:
        deadline = time.monotonic() + GATE_SECONDS
        while not disconnected():
            assert time.monotonic() < deadline, "the client has not left"
            time.sleep(0.002)
        say(f"left: {disconnected()}")

    if environ["QUERY_STRING"] == "thread":
        raised = in_a_thread(look)
        assert raised == "", raised
    else:
        look()
    start_response("200 OK", TEXT)
    return [b"to no client"]


@page
def keep_watch(environ: Environ, start_response: StartResponse) -> Any:
    kept["disconnected"] = environ["kirsch.disconnected"]
    return say_json(start_response, kept["disconnected"]())


@page
def has_left(environ: Environ, start_response: StartResponse) -> Any:
    """``?name``: whether the client of that ``large`` response has left."""
    return say_json(start_response, kept[environ["QUERY_STRING"]]())


@page
def look_again(environ: Environ, start_response: StartResponse) -> Any:
    """Use the callable of the request before, and let go of it."""
    answers = [kept["disconnected"]() for _ in range(3)]
    del kept["disconnected"]
    return say_json(start_response, [isinstance(answer, bool) for answer in answers])
