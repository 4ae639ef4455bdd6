"""A WSGI application of WebSockets for the tests: the path says what it does."""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from kirsch.websocket import Closed, Group, QueueFull, accept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Environ = dict[str, Any]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def app(environ: Environ, start_response: Callable[..., Any]) -> Any:
    name = environ["PATH_INFO"].strip("/").replace("-", "_") or "hello"
    return globals()[name](environ, start_response)


def hello(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """An application that knows nothing of WebSockets."""
    body = b"hello" if "wsgi.websocket" not in environ else b"hello, you who ask"
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def threads(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """How many threads the process has."""
    with open("/proc/self/status", encoding="ascii") as status:
        count = next(line.split()[1] for line in status if line.startswith("Threads:"))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [count.encode()]


# ------------------------------------------------------------------------------------- the call takes the messages


def echoes(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    ws = environ["wsgi.websocket"]
    for message in ws:
        ws.send(message)
    say(f"closed {ws.close_code} {ws.close_reason!r}")
    return []


def accepts(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    ws = environ["wsgi.websocket"]
    chosen = ws.subprotocols[-1]
    ws.accept(chosen, [("X-One", "1"), ("x-one", "2")])
    ws.send(json.dumps([ws.subprotocols, ws.subprotocol, ws.closed, ws.close_code]))
    ws.close(3000, "that is all")
    say(f"then {ws.closed} {ws.close_code} {ws.close_reason!r}")
    ws.send("this raises kirsch.websocket.Closed, which need not be caught")
    return []


def yields(environ: Environ, start_response: Callable[..., Any]) -> Iterator[bytes]:
    """A generator uses the WebSocket only when its response is iterated over."""
    yield b""
    ws = environ["wsgi.websocket"]
    ws.send(ws.receive())
    yield b"ignored"
    ws.send("behind what it has yielded")


def yields_a_response(environ: Environ, start_response: Callable[..., Any]) -> Iterator[bytes]:
    start_response("200 OK", [])
    yield b""
    yield b"one "
    yield b"two"


def answers_after(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    environ["wsgi.websocket"].send("accepted")
    start_response("200 OK", [])
    return [b"nobody reads this"]


def fails_after(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """As a framework that answers an exception with a page."""
    environ["wsgi.websocket"].send("accepted")
    start_response("500 Internal Server Error", [])
    return [b"<h1>Server Error</h1>"]


def accepts_while_read(environ: Environ, start_response: Callable[..., Any]) -> Any:
    """The response is a file, which accepts when it is read."""

    class Raw(io.FileIO):
        def readinto(self, buffer: Any) -> int | None:
            if not environ["wsgi.websocket"].subprotocol:
                environ["wsgi.websocket"].accept("one")
            return super().readinto(buffer)

    return environ["wsgi.file_wrapper"](io.BufferedReader(Raw(__file__)))


def raises(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    environ["wsgi.websocket"].accept()
    raise ValueError("raised after accepting")


def raises_early(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    raise ValueError("raised before accepting")


def times_out(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    ws = environ["wsgi.websocket"]
    for timeout in (0, 0.05):
        try:
            ws.receive(timeout)
        except TimeoutError as error:
            ws.send(str(error))
    ws.send(ws.receive(60))
    return []


def floods(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """Sends until the client has too much to read, says so, and goes on when it has read."""
    ws = environ["wsgi.websocket"]
    count = 0
    try:
        while True:
            ws.send("x" * 10_000, timeout=0)
            count += 1
    except QueueFull as error:
        say(f"queue full: {error}")
    try:
        # The kernel may take more for a while.
        while True:
            ws.send("x" * 10_000, timeout=0.05)
    except QueueFull:
        say("still full")
    ws.send("last", timeout=60)
    say(f"sent {count}")
    return []


class Wrong:
    """Not a handler."""


MISUSES: dict[str, Callable[[Any], object]] = {
    "send int": lambda ws: ws.send(1),
    "send None": lambda ws: ws.send(None),
    "send surrogate": lambda ws: ws.send("\ud800"),
    "timeout": lambda ws: ws.receive(float("nan")),
    "code 1006": lambda ws: ws.close(1006),
    "code text": lambda ws: ws.close("1000"),
    "reason bytes": lambda ws: ws.close(1000, b"bye"),
    "reason long": lambda ws: ws.close(1000, "x" * 124),
    "accept again": lambda ws: ws.accept(),
    "no handler": lambda ws: ws.handle(Wrong()),
    "class as handler": lambda ws: ws.handle(Logging),
}
EARLY_MISUSES: dict[str, Callable[[Any], object]] = {
    "not offered": lambda ws: ws.accept("three"),
    "subprotocol bytes": lambda ws: ws.accept(b"one"),
    "header bytes": lambda ws: ws.accept(headers=[(b"a", b"b")]),
    "header dict": lambda ws: ws.accept(headers={"a": "b"}),
    "header CR": lambda ws: ws.accept(headers=[("a", "b\rc")]),
    "header reserved": lambda ws: ws.accept(headers=[("Upgrade", "h2c")]),
    "group of ints": lambda ws: Group("", [1]),
}


def misuses(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    ws = environ["wsgi.websocket"]
    found = {}

    def attempt(misuses: dict[str, Callable[[Any], object]]) -> None:
        for name, misuse in misuses.items():
            try:
                misuse(ws)
                found[name] = ["nothing", ""]
            except Exception as error:  # noqa: BLE001 - each is shown
                found[name] = [type(error).__name__, str(error)]

    attempt(EARLY_MISUSES)
    ws.accept()
    attempt(MISUSES)
    ws.send(json.dumps(found))
    for message in ws:
        ws.send(message)
    return []


def from_threads(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """Another thread receives, and a third one sends."""
    ws = environ["wsgi.websocket"]
    ws.accept()

    def receive() -> None:
        for message in ws:
            ws.send(f"heard {message}")

    receiver = threading.Thread(target=receive)
    receiver.start()
    sender = threading.Thread(target=ws.send, args=("from a thread",))
    sender.start()
    sender.join()
    receiver.join()
    return []


# --------------------------------------------------------------------------------- a handler is given the messages


class Logging:
    """Does what the message says."""

    def __init__(self) -> None:
        self.busy: set[Any] = set()

    def open(self, ws: Any) -> None:
        say(f"open {ws.data}")

    def message(self, ws: Any, data: Any) -> None:
        assert ws not in self.busy, "two messages of one connection at once"
        self.busy.add(ws)
        try:
            self.act(ws, data)
        finally:
            self.busy.remove(ws)

    def act(self, ws: Any, data: Any) -> None:
        if data == "raise":
            raise ValueError("raised in message")
        if data == "close":
            ws.close(4001, "as you wish")
        elif data == "sleep":
            # RequestTimeout is raised between two of them.
            for _ in range(600):
                time.sleep(0.1)
        elif data == "receive":
            try:
                ws.receive()
            except RuntimeError as error:
                ws.send(str(error))
        elif data == "from a thread":
            threading.Thread(target=ws.send, args=("sent by a thread",)).start()
        elif data == "closed by a thread":
            threading.Thread(target=ws.close, args=(4002,)).start()
        else:
            ws.send(data)

    def close(self, ws: Any, code: int) -> None:
        say(f"close {ws.data} {code} {ws.close_code} {ws.close_reason!r}")


logging = Logging()


def handles(environ: Environ, start_response: Callable[..., Any]) -> Any:
    response = accept(environ, logging, headers=[("X-Handler", "yes")])
    if "wsgi.websocket" in environ:
        environ["wsgi.websocket"].data = environ["QUERY_STRING"]
    return response(environ, start_response)


def handles_inside(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """As in a framework that passes on its own responses alone."""
    environ["wsgi.websocket"].handle(logging)
    environ["wsgi.websocket"].send("first")
    start_response("200 OK", [("Content-Type", "text/html")])
    return [b""]


class Nothing:
    def close(self, ws: Any, code: int) -> None:
        say(f"nothing was closed with {code}")


def handles_nothing(environ: Environ, start_response: Callable[..., Any]) -> Any:
    return accept(environ, Nothing())(environ, start_response)


class Opens:
    def open(self, ws: Any) -> None:
        raise ValueError("raised in open")

    def close(self, ws: Any, code: int) -> None:
        say(f"opened and closed with {code}")
        raise ValueError("raised in close")


def handles_badly(environ: Environ, start_response: Callable[..., Any]) -> Any:
    return accept(environ, Opens())(environ, start_response)


def count(ws: Any) -> Any:
    """A generator of its own for each WebSocket."""
    total = 0
    data = yield "ready"
    try:
        while data != "enough":
            total += len(data)
            data = yield None if data == "quiet" else str(total)
        ws.send("good-bye")
    except Closed as error:
        say(f"generator closed: {error} ({error.code})")
        raise


def counts(environ: Environ, start_response: Callable[..., Any]) -> Any:
    return accept(environ, count)(environ, start_response)


group = Group()


class Room:
    def open(self, ws: Any) -> None:
        group.add(ws)
        ws.send(f"welcome {len(group)}")

    def message(self, ws: Any, data: str) -> None:
        full = group.send_all(data)
        if full:
            say(f"{len(full)} of {len(group)} are full")


def joins(environ: Environ, start_response: Callable[..., Any]) -> Any:
    return accept(environ, Room())(environ, start_response)


def members(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    start_response("200 OK", [])
    return [str(len(group)).encode()]
