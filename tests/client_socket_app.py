"""A WSGI application that speaks to its clients by itself, over ``werkzeug.socket``: the path says what it does."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Environ = dict[str, Any]

HEAD = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
kept: list[Any] = []


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def app(environ: Environ, start_response: Callable[..., Any]) -> Any:
    name = environ["PATH_INFO"].strip("/").replace("-", "_") or "hello"
    return globals()[name](environ, start_response)


def hello(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """An application that looks at the socket and does not use it."""
    sock = environ.get("werkzeug.socket")
    kept[:] = [sock]
    body = repr(sock).encode() + (b" " if hasattr(sock, "__len__") else b"")
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def pid(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]


def opened(environ: Environ) -> Any:
    sock = environ["werkzeug.socket"]
    sock.sendall(HEAD)
    return sock


def echo(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    sock = opened(environ)
    while data := sock.recv(65_536):
        sock.sendall(data)
    sock.close()
    say("the client has ended")
    raise ConnectionError  # as flask-sock does on Werkzeug's server


def echo_by_select(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    with opened(environ) as sock:
        while True:
            ready, _, _ = select.select([sock], [], [], 20)
            if not ready or not (data := sock.recv(65_536)):
                return []
            sock.sendall(data)


def answers(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    opened(environ).sendall(b"mine")
    write = start_response("200 OK", [("Content-Type", "text/plain")])
    with contextlib.suppress(RuntimeError):
        write(b"written")
    return [b"returned"]


def yields(environ: Environ, start_response: Callable[..., Any]) -> Any:
    opened(environ).sendall(b"mine")
    start_response("200 OK", [("Content-Type", "text/plain")])
    yield b"one"
    yield b"two"


def raises(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    kept.append(opened(environ))
    raise ValueError("raised after taking over")


def fails(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """As a framework does that catches what a view raises."""
    kept.append(opened(environ))
    start_response("500 Internal Server Error", [("Content-Type", "text/plain")])
    return [b"an error page"]


def begins_before(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    write = start_response("200 OK", [("Content-Length", "8")])
    write(b"begu")
    try:
        environ["werkzeug.socket"].sendall(HEAD)
    except RuntimeError as error:
        say(f"refused: {error}")
    return [b"n..."]


def accepts_before(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    environ["wsgi.websocket"].accept()
    try:
        environ["werkzeug.socket"].fileno()
    except RuntimeError as error:
        say(f"refused: {error}")
    return []


def accepts_after(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    sock = opened(environ)
    try:
        environ["wsgi.websocket"].send("x")
    except RuntimeError as error:
        say(f"refused: {error}")
    sock.sendall(str(environ["kirsch.disconnected"]()).encode())
    return []


def early(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    body = b"taken over"
    try:
        opened(environ)
    except RuntimeError as error:
        body = str(error).encode()
    start_response("400 Bad Request", [("Content-Length", str(len(body)))])
    return [body]


def late(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """Uses what another request has left."""
    body = b"taken over"
    try:
        kept[0].recv(1)
    except RuntimeError as error:
        body = str(error).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def outlives(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """A thread goes on with the socket when the call is over."""
    sock = opened(environ)

    def go_on() -> None:
        while (data := sock.recv(100)) not in (b"end", b""):
            sock.sendall(data)
        sock.sendall(b"the end")
        sock.close()

    threading.Thread(target=go_on).start()
    return []


def drops(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """Returns without closing, and keeps nothing."""
    opened(environ).sendall(b"bye")
    return []


def closes(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """Closes while another thread reads, and returns when that has ended."""
    sock = opened(environ)
    ended = threading.Event()

    def read() -> None:
        with contextlib.suppress(OSError):
            while sock.recv(100):
                pass
        ended.set()

    threading.Thread(target=read).start()
    sock.makefile("rb").close()
    sock.sendall(b"bye")
    sock.close()
    say(f"ended: {ended.wait(20)}")
    return []


def floods(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """Several threads send blocks that the client does not read at once."""
    sock = opened(environ)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
    sent: list[int] = []

    def send(letter: bytes) -> None:
        sent.extend(sock.send(letter * 300_000) for _ in range(5))

    threads = [threading.Thread(target=send, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(f"sent {sum(sent)}")
    sock.close()
    return []


def waits(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
    """Misses the deadline of its call."""
    event = threading.Event()
    for _ in range(3000):  # an exception is raised between two waits
        event.wait(0.01)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return []
