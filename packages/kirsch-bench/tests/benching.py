"""Helpers for tests of ``kirsch_bench``: the command as a real process, and servers with a chosen behaviour."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BENCH = [sys.executable, "-m", "kirsch_bench"]

RUN_SECONDS = 60.0
"""The seconds that a run of a second or two may take on a loaded machine."""


def bench(
    *args: str, env: dict[str, str] | None = None, cwd: Path | None = None, timeout: float = RUN_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*BENCH, *args],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
    )


def measured(*args: str, status: int = 0, cwd: Path | None = None) -> dict[str, Any]:
    """Run it with ``--json -`` and return the document. Raises AssertionError where it ends otherwise."""
    done = bench(*args, "--json", "-", cwd=cwd)
    assert done.returncode == status, f"exit status {done.returncode}:\n{done.stderr}"
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def watched(*args: str, rows: int = 0, columns: int = 0) -> tuple[str, bytes]:
    """Run the command with a terminal of this size (0: unknown) for its messages. Return its output, and what it wrote
    to the terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [*BENCH, *args],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={**environment, "PYTHONIOENCODING": "utf-8"},
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the other end was closed
        while True:
            shown += os.read(ours, 65536)
    os.close(ours)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    return out, shown


def assert_points(error: Exception, flag: str, problem: str, text: str, caret: int) -> None:
    """The message has the problem, the text of the flag, and a caret below the place of the mistake."""
    said, shown, pointer = str(error).split("\n")
    assert said.startswith(f"{flag}: {problem}")
    assert (shown, pointer) == (f"  {text}", f"  {' ' * caret}^")


@dataclass(frozen=True)
class Asked:
    """A request as a scripted server got it."""

    line: str
    fields: tuple[tuple[str, str], ...]
    body: bytes
    connection: int
    """Which connection of the server's, from 0."""
    number: int
    """Which request of the server's, from 0."""

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]


class Reset(Exception):
    """Raised by a ``respond``: break the connection, after ``data``."""

    def __init__(self, data: bytes = b"") -> None:
        super().__init__()
        self.data = data


class Close(Reset):
    """Raised by a ``respond``: close the connection, after ``data``."""


class Stall(Reset):
    """Raised by a ``respond``: send ``data`` and then nothing until the peer leaves."""


def ok(body: bytes = b"Hello", status: str = "200 OK", extra: str = "") -> bytes:
    """A response with a length."""
    return f"HTTP/1.1 {status}\r\nServer: scripted\r\n{extra}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Scripted:
    """A server on 127.0.0.1 or at a Unix socket that answers as ``respond`` says, each connection in a thread."""

    respond: Callable[[Asked], bytes]
    path: str = ""
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX if self.path else socket.AF_INET)
        self._socket.bind(self.path or ("127.0.0.1", 0))
        self._socket.listen(256)
        self.port = 0 if self.path else self._socket.getsockname()[1]
        self.url = f"unix:{self.path}" if self.path else f"http://127.0.0.1:{self.port}/"
        self.connections: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def die(self) -> None:
        """As a killed process does: nothing listens any more, and every connection is reset."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            for connection in self.connections:
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    # Wakes the thread that receives, which then closes.
                    connection.shutdown(socket.SHUT_RD)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with self._lock:
                number = len(self.connections)
                self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with connection, contextlib.suppress(OSError):
            for line, fields, body in _requests(connection):
                with self._lock:
                    asked = Asked(line, fields, body, number, len(self.asked))
                    self.asked.append(asked)
                try:
                    connection.sendall(_kept(self.respond(asked), line, fields))
                except Reset as how:
                    connection.sendall(how.data)
                    if isinstance(how, Stall):
                        connection.recv(65536)
                    elif not isinstance(how, Close):
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                if not _keeps(line, fields):
                    return


def _keeps(line: str, fields: tuple[tuple[str, str], ...]) -> bool:
    wish = next((value.lower() for name, value in fields if name.lower() == "connection"), "")
    return wish == "keep-alive" if line.endswith("HTTP/1.0") else wish != "close"


def _kept(response: bytes, line: str, fields: tuple[tuple[str, str], ...]) -> bytes:
    """A client of HTTP/1.0 has to be told (RFC 9112 section 9.3)."""
    if line.endswith("HTTP/1.0") and _keeps(line, fields):
        return response.replace(b"\r\n", b"\r\nConnection: keep-alive\r\n", 1)
    return response


def _requests(connection: socket.socket) -> Iterator[tuple[str, tuple[tuple[str, str], ...], bytes]]:
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            received = connection.recv(65536)
            if not received:
                return
            data += received
        head, _, data = data.partition(b"\r\n\r\n")
        line, *rest = head.decode("latin-1").split("\r\n")
        fields = tuple((name, value) for name, value in (each.split(": ", 1) for each in rest))
        length = next((int(value) for name, value in fields if name.lower() == "content-length"), 0)
        while len(data) < length:
            data += connection.recv(65536)
        body, data = data[:length], data[length:]
        yield line, fields, body


@contextlib.contextmanager
def scripted(respond: Callable[[Asked], bytes] = lambda _: ok(), path: str = "") -> Iterator[Scripted]:
    """A :class:`Scripted` server for a while."""
    server = Scripted(respond, path)
    try:
        yield server
    finally:
        server.die()
