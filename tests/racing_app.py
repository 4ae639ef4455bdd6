"""An application that hands what it was given to threads of its own, which use it while and after the response ends.

Each request names itself in its query string, and its response consists of that name: a byte of another's shows a race.
Threads are switched as often as the interpreter can.
"""

from __future__ import annotations

import collections
import gc
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], Any]]

STRANGERS = 4
"""Threads that use what belongs to requests."""
STEPS = 200

sys.setswitchinterval(1e-6)
# Objects of a request refer to each other; here the garbage collector finds them while they are used.
gc.set_threshold(100)

work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()


def _serve_strangers() -> None:
    while True:
        step = work.get()
        try:
            for _ in range(STEPS):
                step()
        except (RuntimeError, AssertionError, ValueError, OSError):
            pass  # the response is over, or another thread was first


def _start_strangers() -> None:
    for _ in range(STRANGERS):
        threading.Thread(target=_serve_strangers, daemon=True).start()


_started = threading.Lock()


def app(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    if _started.acquire(blocking=False):
        _start_strangers()
    token = environ["QUERY_STRING"].encode()
    headers = [("Content-Type", "text/plain"), ("X-Token", token.decode())]
    return pages[environ["PATH_INFO"]](environ, start_response, headers, token)


Headers = list[tuple[str, str]]


def write(environ: Environ, start_response: StartResponse, headers: Headers, token: bytes) -> Iterable[bytes]:
    """Strangers write into the response, beyond its end."""
    writes = start_response("200 OK", headers)
    for _ in range(2):
        work.put(lambda: writes(token))
    return [token]


def stream(environ: Environ, start_response: StartResponse, headers: Headers, token: bytes) -> Iterator[bytes]:
    """The same, into a response that is produced part by part."""
    writes = start_response("200 OK", headers)
    work.put(lambda: writes(token))
    for _ in range(20):
        yield token


def ask(environ: Environ, start_response: StartResponse, headers: Headers, token: bytes) -> Iterable[bytes]:
    """Strangers ask whether the peer has left."""
    disconnected = environ["kirsch.disconnected"]
    for _ in range(2):
        work.put(disconnected)
    start_response("200 OK", headers)
    return [token]


def start(environ: Environ, start_response: StartResponse, headers: Headers, token: bytes) -> Iterable[bytes]:
    """Strangers begin the response anew, with headers that they change meanwhile."""
    shared = list(headers)

    def again() -> None:
        try:
            raise LookupError(token)
        except LookupError:
            start_response("200 OK", shared, sys.exc_info())

    def change() -> None:
        shared.append(("X-Token", token.decode()))
        del shared[len(headers) :]

    start_response("200 OK", headers)
    work.put(again)
    work.put(change)
    return [token]


def first(environ: Environ, start_response: StartResponse, headers: Headers, token: bytes) -> Iterable[bytes]:
    """Strangers and the application race for who begins it."""
    work.put(lambda: start_response("200 OK", headers)(token))
    try:
        start_response("200 OK", headers)
    except AssertionError:
        pass
    return [token]


def read(environ: Environ, start_response: StartResponse, headers: Headers, token: bytes) -> Iterable[bytes]:
    """Threads of the application read the body, and continue after the request has ended."""
    body: Any = environ["wsgi.input"]
    raw: Any = getattr(body, "raw", body)
    for _ in range(2):
        work.put(lambda: raw.readinto(bytearray(7)))
    start_response("200 OK", headers)
    body.read(5)
    return [token]


def change(environ: Environ, start_response: StartResponse, headers: Headers, token: bytes) -> Iterable[bytes]:
    """Strangers change the environ, and the list that is returned."""
    blocks = [token]

    def shuffle() -> None:
        environ["kirsch.disconnected"] = environ.pop("kirsch.disconnected", None)
        environ.update(dict.fromkeys((f"x.{number}" for number in range(5)), token))
        blocks.append(token)
        blocks.pop()

    work.put(shuffle)
    work.put(shuffle)
    start_response("200 OK", headers)
    return blocks


def file(environ: Environ, start_response: StartResponse, headers: Headers, token: bytes) -> Iterable[bytes]:
    """Strangers close the file that is sent, and open others in its place."""
    path = os.path.join(os.environ["RACING_FILES"], token.decode())
    with open(path, "wb") as made:
        made.write(token * 1000)
    sent = open(path, "rb")  # noqa: SIM115 - it is the response's
    os.unlink(path)
    work.put(sent.close)
    start_response("200 OK", headers)
    wrapped: Iterable[bytes] = environ["wsgi.file_wrapper"](sent)
    return wrapped


kept: collections.deque[Any] = collections.deque(maxlen=30)


def keep(environ: Environ, start_response: StartResponse, headers: Headers, token: bytes) -> Iterable[bytes]:
    """Everything is kept beyond the response, used by strangers, and let go of in whichever thread comes last."""
    writes = start_response("200 OK", headers)
    environ["kept"] = environ  # only the collector lets go of it
    kept.append((environ, start_response, writes, environ["wsgi.input"], environ["kirsch.disconnected"], token))

    def use() -> None:
        older, begin, write, body, disconnected, name = kept.popleft()
        disconnected()
        body.read()
        older.clear()
        uses: tuple[Callable[[], Any], ...] = (lambda: write(name), lambda: begin("200 OK", []))
        for late in uses:
            try:
                late()
            except (RuntimeError, AssertionError):
                continue

    def use_what_is_there() -> None:
        try:
            use()
        except IndexError:
            raise RuntimeError("nothing is kept") from None

    work.put(use_what_is_there)
    return [token]


PAGES = (write, stream, ask, start, first, read, change, file, keep)
pages = {f"/{page.__name__}": page for page in PAGES}
