"""A strict HTTP/1.1 peer on a raw socket: sends the bytes it is given, reads what comes back, and judges it.

Ordinary clients repair what a server gets wrong; this one must not. A response that breaks RFC 9112 raises
:class:`MalformedResponse` with the offending bytes; one that ends before its framing says so comes back with
``complete=False``, which is how a server shows that it had to cut a response short.

Calling order: :meth:`Peer.send` any bytes, then :meth:`Peer.read_response` once per response expected, or
:meth:`Peer.read_head` and :meth:`Peer.read_chunk` to watch a response arrive, or :meth:`Peer.read_until_closed`.
Bytes beyond what a call asked for stay in the peer's buffer for the next call, so pipelined responses come out one
by one. Every wait is bounded by the whole call's ``timeout`` in seconds, not by that of one ``recv``.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

DEFAULT_TIMEOUT = 10.0
"""Seconds that one call may wait: far beyond any answer on loopback, short enough to end a hanging test."""

RECV_BYTES = 65536

Framing = Literal["none", "length", "chunked", "close"]
"""How the end of a body is marked (RFC 9112 section 6.3): there is none, by Content-Length, by the last chunk, or by
the end of the connection."""

_STATUS_LINE = re.compile(rb"(HTTP/1\.[01]) ([1-9][0-9][0-9]) ([\t \x21-\x7e\x80-\xff]*)")
_FIELD_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t \x21-\x7e\x80-\xff]*?)[ \t]*")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]+)(?:[ \t]*;[^\r\n]*)?")


class MalformedResponse(AssertionError):
    """The server sent bytes that are not an HTTP/1.x response as RFC 9112 has it."""


class PeerClosed(AssertionError):
    """The server ended the connection where a response was due, without a byte of it."""


class _Cut(Exception):
    """The connection ended inside a body. Never leaves this module."""


@dataclass(frozen=True)
class Head:
    """A status line and its fields, in the order sent; text is latin-1, as the wire has it."""

    version: str
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """Every value of the field ``name`` (any case), in order."""
        return [value for field, value in self.headers if field.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """The value of the field ``name``, or None. Raises MalformedResponse where it was sent more than once."""
        values = self.all(name)
        if len(values) > 1:
            raise MalformedResponse(f"{name} sent {len(values)} times: {values}")
        return values[0] if values else None


@dataclass(frozen=True)
class Response(Head):
    """One response, body and all. ``chunks`` are the pieces of a chunked body as the server framed them."""

    body: bytes
    framing: Framing
    complete: bool
    chunks: tuple[bytes, ...] = ()
    trailers: tuple[tuple[str, str], ...] = ()


def build_request(
    method: str,
    target: str = "/",
    *,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    body: bytes | None = None,
    host: str = "127.0.0.1",
    version: str = "HTTP/1.1",
) -> bytes:
    """The bytes of an ordinary request. ``body`` adds its Content-Length unless ``headers`` tell the framing."""
    fields = list(headers.items() if isinstance(headers, Mapping) else headers)
    names = {name.lower() for name, _ in fields}
    if "host" not in names and version == "HTTP/1.1":
        fields.insert(0, ("Host", host))
    if body is not None and not names & {"content-length", "transfer-encoding"}:
        fields.append(("Content-Length", str(len(body))))
    head = "".join([f"{method} {target} {version}\r\n", *(f"{name}: {value}\r\n" for name, value in fields), "\r\n"])
    return head.encode("latin-1") + (body or b"")


class Peer:
    """The client's end of one connection. Use as a context manager, or call :meth:`close`.

    ``ended`` is True once the server's end of stream was read; ``reset`` where it came as a reset (RST), in which
    case bytes that the server had sent before may be lost.
    """

    def __init__(self, sock: socket.socket, timeout: float = DEFAULT_TIMEOUT) -> None:
        self.sock = sock
        self.timeout = timeout
        self.ended = False
        self.reset = False
        self._buffer = bytearray()

    @classmethod
    def connect(cls, host: str, port: int, timeout: float = DEFAULT_TIMEOUT) -> Peer:
        """Connect over TCP, without Nagle's delay so that each send is a segment of its own where it fits."""
        sock = socket.create_connection((host, port), timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock, timeout)

    @classmethod
    def connect_unix(cls, path: str | Path, timeout: float = DEFAULT_TIMEOUT) -> Peer:
        """Connect to the Unix socket at ``path``."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        try:
            sock.connect(str(path))
        except OSError:
            sock.close()
            raise
        return cls(sock, timeout)

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Sending

    def send(self, data: bytes, timeout: float | None = None) -> None:
        """Send all of ``data``. Raises OSError where the server has closed, TimeoutError where it does not read."""
        self.sock.settimeout(self.timeout if timeout is None else timeout)
        self.sock.sendall(data)

    def offer(self, data: bytes, timeout: float | None = None) -> bool:
        """Send ``data`` as far as the server takes it; False where it closed before the end, as it may after an error.

        Raises TimeoutError where it neither reads nor closes.
        """
        try:
            self.send(data, timeout)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def end_sending(self) -> None:
        """Send end of stream and go on reading: half-close."""
        self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close both directions."""
        self.sock.close()

    def abort(self) -> None:
        """Close with a reset (RST), as a crashed or impatient client does."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    # Reading

    def read_response(
        self, method: str = "GET", *, timeout: float | None = None, skip_interim: bool = False
    ) -> Response:
        """Read exactly one response to a request of ``method`` (a HEAD has no body whatever its fields say).

        An interim response (1xx) counts as one, unless ``skip_interim``. Raises PeerClosed, MalformedResponse, and
        TimeoutError with what had arrived until then.
        """
        deadline = self._deadline(timeout)
        head = self._read_head(deadline)
        while skip_interim and head.status < 200:
            head = self._read_head(deadline)
        return self._read_body(head, method, deadline)

    def read_head(self, timeout: float | None = None) -> Head:
        """Read up to the empty line after the fields, and no byte of the body."""
        return self._read_head(self._deadline(timeout))

    def read_chunk(self, timeout: float | None = None) -> bytes:
        """Read the next chunk of a chunked body; b"" is the last one (its trailers are read too).

        Raises PeerClosed where the connection ends first.
        """
        try:
            chunk, _ = self._read_chunk(self._deadline(timeout))
        except _Cut:
            raise PeerClosed(f"cut inside a chunk, at {bytes(self._buffer)!r}") from None
        return chunk

    def read_until(self, marker: bytes, timeout: float | None = None) -> bytes:
        """Read raw bytes up to and including ``marker``. Raises PeerClosed where the connection ends first."""
        deadline = self._deadline(timeout)
        searched = 0
        while (found := self._buffer.find(marker, max(0, searched - len(marker)))) < 0:
            searched = len(self._buffer)
            if not self._fill(deadline):
                raise PeerClosed(f"ended before {marker!r}, after {bytes(self._buffer)!r}")
        return self._take(found + len(marker))

    def read_exactly(self, size: int, timeout: float | None = None) -> bytes:
        """Read ``size`` raw bytes. Raises PeerClosed where the connection ends first."""
        try:
            return self._read_exactly(size, self._deadline(timeout))
        except _Cut:
            raise PeerClosed(f"ended before {size} bytes, after {bytes(self._buffer)!r}") from None

    def read_until_closed(self, timeout: float | None = None) -> bytes:
        """Read raw bytes until the server ends the connection. Raises TimeoutError where it stays open."""
        deadline = self._deadline(timeout)
        while self._fill(deadline):
            pass
        return self._take(len(self._buffer))

    def _deadline(self, timeout: float | None) -> float:
        return time.monotonic() + (self.timeout if timeout is None else timeout)

    def _fill(self, deadline: float) -> bool:
        """Wait for more bytes; False at the end of the stream."""
        if self.ended:
            return False
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError(f"nothing more came after {bytes(self._buffer[-400:])!r}")
        self.sock.settimeout(remaining)
        try:
            received = self.sock.recv(RECV_BYTES)
        except TimeoutError:
            raise TimeoutError(f"nothing more came after {bytes(self._buffer[-400:])!r}") from None
        except ConnectionResetError:
            received = b""
            self.reset = True
        self._buffer += received
        self.ended = not received
        return bool(received)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _read_line(self, deadline: float) -> bytes:
        """One line of chunked framing, without its CRLF. Raises _Cut."""
        while (end := self._buffer.find(b"\r\n")) < 0:
            if not self._fill(deadline):
                raise _Cut
        return self._take(end + 2)[:-2]

    def _read_exactly(self, size: int, deadline: float) -> bytes:
        while len(self._buffer) < size:
            if not self._fill(deadline):
                raise _Cut
        return self._take(size)

    def _read_head(self, deadline: float) -> Head:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if not self._fill(deadline):
                if not self._buffer:
                    raise PeerClosed("connection reset" if self.reset else "connection closed")
                raise MalformedResponse(f"the connection ended inside a head: {bytes(self._buffer)!r}")
        raw = self._take(end + 4)
        lines = raw[:-4].split(b"\r\n")
        status_line = _STATUS_LINE.fullmatch(lines[0])
        if status_line is None:
            raise MalformedResponse(f"status line {lines[0]!r}")
        version, status, reason = status_line.groups()
        return Head(version.decode("ascii"), int(status), reason.decode("latin-1"), _parse_fields(lines[1:]))

    def _read_body(self, head: Head, method: str, deadline: float) -> Response:
        framing, length = _framing(head, method)
        body = bytearray()
        chunks: list[bytes] = []
        trailers: tuple[tuple[str, str], ...] = ()
        complete = True
        try:
            if framing == "length":
                while len(self._buffer) < length and self._fill(deadline):
                    pass
                body += self._take(length)
                complete = len(body) == length
            elif framing == "chunked":
                while True:
                    chunk, trailers = self._read_chunk(deadline)
                    if not chunk:
                        break
                    chunks.append(chunk)
                body += b"".join(chunks)
            elif framing == "close":
                while self._fill(deadline):
                    pass
                body += self._take(len(self._buffer))
                complete = not self.reset
        except _Cut:
            complete = False
            body += b"".join(chunks)
        return Response(
            head.version,
            head.status,
            head.reason,
            head.headers,
            bytes(body),
            framing,
            complete,
            tuple(chunks),
            trailers,
        )

    def _read_chunk(self, deadline: float) -> tuple[bytes, tuple[tuple[str, str], ...]]:
        line = self._read_line(deadline)
        size_line = _CHUNK_LINE.fullmatch(line)
        if size_line is None:
            raise MalformedResponse(f"chunk size line {line!r}")
        size = int(size_line.group(1), 16)
        if size == 0:
            trailers = []
            while trailer := self._read_line(deadline):
                trailers.append(trailer)
            return b"", _parse_fields(trailers)
        chunk = self._read_exactly(size, deadline)
        if (end := self._read_exactly(2, deadline)) != b"\r\n":
            raise MalformedResponse(f"chunk of {size} bytes is followed by {end!r}")
        return chunk, ()


def _parse_fields(lines: Iterable[bytes]) -> tuple[tuple[str, str], ...]:
    fields = []
    for line in lines:
        field = _FIELD_LINE.fullmatch(line)
        if field is None:
            raise MalformedResponse(f"field line {line!r}")
        fields.append((field.group(1).decode("ascii"), field.group(2).decode("latin-1")))
    return tuple(fields)


def _framing(head: Head, method: str) -> tuple[Framing, int]:
    """RFC 9112 section 6.3, for a client; the length counts where the framing is ``length``."""
    codings, length = head.header("Transfer-Encoding"), head.header("Content-Length")
    if codings is not None and length is not None:
        raise MalformedResponse(f"both Transfer-Encoding {codings!r} and Content-Length {length!r}")
    if head.status < 200 or head.status == 204:
        if codings is not None or length is not None:
            raise MalformedResponse(f"a {head.status} that tells a body's framing: {head.headers}")
        return "none", 0
    if length is not None and re.fullmatch("[0-9]+", length) is None:
        raise MalformedResponse(f"Content-Length {length!r}")
    if method == "HEAD" or head.status == 304:
        return "none", 0
    if codings is not None:
        if head.version != "HTTP/1.1" or codings.lower() != "chunked":
            raise MalformedResponse(f"Transfer-Encoding {codings!r} in {head.version}")
        return "chunked", 0
    if length is not None:
        return "length", int(length)
    return "close", 0


def exchange(host: str, port: int, request: bytes, *, timeout: float = DEFAULT_TIMEOUT) -> Response:
    """Send ``request`` on a connection of its own and return the final response to it."""
    method = request.split(b" ", 1)[0].decode("latin-1")
    with Peer.connect(host, port, timeout) as peer:
        peer.send(request)
        return peer.read_response(method, skip_interim=True)
