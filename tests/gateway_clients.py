"""Speaks as a web server in front: one request over FastCGI, uwsgi, SCGI or HTTP, and its response."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECONDS = 30.0

BEGIN, ABORT, END, PARAMS, STDIN, STDOUT, STDERR, GET_VALUES, VALUES_RESULT, UNKNOWN = 1, 2, 3, 4, 5, 6, 7, 9, 10, 11
RESPONDER, AUTHORIZER = 1, 2
KEEP = 1
COMPLETE, CANNOT_MULTIPLEX, OVERLOADED, UNKNOWN_ROLE = 0, 1, 2, 3


class Response(NamedTuple):
    status: int
    fields: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def one(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) <= 1, values
        return values[0] if values else None


class Broken(Exception):
    """The connection ended before the response did."""


class Record(NamedTuple):
    kind: int
    id: int
    content: bytes


def record(kind: int, request: int, content: bytes = b"", padding: int = 0) -> bytes:
    return struct.pack("!BBHHBx", 1, kind, request, len(content), padding) + content + b"\0" * padding


def begin(request: int, *, role: int = RESPONDER, keep: bool = True) -> bytes:
    return record(BEGIN, request, struct.pack("!HB5x", role, KEEP if keep else 0))


def pairs(variables: Sequence[tuple[str, str | bytes]]) -> bytes:
    out = b""
    for name, value in variables:
        raw = (name.encode("latin-1"), value if isinstance(value, bytes) else value.encode("latin-1"))
        out += b"".join(
            bytes([len(text)]) if len(text) < 128 else struct.pack("!I", len(text) | 1 << 31) for text in raw
        )
        out += b"".join(raw)
    return out


def stream(kind: int, request: int, content: bytes, piece: int = 65535) -> bytes:
    parts = [record(kind, request, content[at : at + piece]) for at in range(0, len(content), piece)]
    return b"".join(parts) + record(kind, request)


def variables(
    method: str = "GET",
    target: str = "/",
    fields: Sequence[tuple[str, str]] = (),
    body: bytes | None = None,
    **others: str,
) -> list[tuple[str, str | bytes]]:
    """As nginx's ``fastcgi_params``, but with the path as ``PATH_INFO``. ``others`` replace and add."""
    path, _, query = target.partition("?")
    given: dict[str, str | bytes] = {
        "QUERY_STRING": query,
        "REQUEST_METHOD": method,
        "CONTENT_TYPE": next((value for name, value in fields if name.lower() == "content-type"), ""),
        "CONTENT_LENGTH": "" if body is None else str(len(body)),
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path),
        "REQUEST_URI": target,
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REQUEST_SCHEME": "http",
        "GATEWAY_INTERFACE": "CGI/1.1",
        "SERVER_SOFTWARE": "front/1",
        "REMOTE_ADDR": "192.0.2.7",
        "REMOTE_PORT": "4711",
        "SERVER_ADDR": "198.51.100.1",
        "SERVER_PORT": "80",
        "SERVER_NAME": "front.example",
        "REDIRECT_STATUS": "200",
        **others,
    }
    listed = list(given.items())
    for name, value in fields:
        if name.lower() not in ("content-type", "content-length"):
            listed.append(("HTTP_" + name.upper().replace("-", "_"), value))
    return listed


def request(
    number: int, listed: Sequence[tuple[str, str | bytes]], body: bytes = b"", *, keep: bool = True, piece: int = 65535
) -> bytes:
    """All records of a FastCGI request."""
    return begin(number, keep=keep) + stream(PARAMS, number, pairs(listed), piece) + stream(STDIN, number, body, piece)


def parse(output: bytes) -> Response:
    """The response of a CGI application: a head with ``Status``, or with a status line, and the body."""
    head, blank, body = output.partition(b"\r\n\r\n")
    assert blank, output[:200]
    lines = head.decode("latin-1").split("\r\n")
    status = 200
    if lines[0].startswith("HTTP/1.1 "):
        status = int(lines.pop(0).split()[1])
    fields = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    for name, value in fields:
        if name == "Status":
            status = int(value.split()[0])
    return Response(status, [field for field in fields if field[0] != "Status"], body)


def connect(address: tuple[str, int] | str) -> socket.socket:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    sock = socket.socket(family)
    sock.settimeout(SECONDS)
    sock.connect(address)
    return sock


class FastCgi:
    """A connection to a FastCGI application."""

    def __init__(self, address: tuple[str, int] | str) -> None:
        self.socket = connect(address)
        self._have = b""

    def __enter__(self) -> FastCgi:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _read(self, count: int) -> bytes:
        while len(self._have) < count:
            try:
                more = self.socket.recv(1 << 16)
            except ConnectionError as error:
                raise Broken(str(error)) from error
            if not more:
                raise Broken(f"the connection ended with {self._have!r}")
            self._have += more
        taken, self._have = self._have[:count], self._have[count:]
        return taken

    @property
    def has_more(self) -> bool:
        """Return whether bytes have come together with the response before, behind its end."""
        return bool(self._have)

    def receive(self) -> Record:
        version, kind, number, length, padding = struct.unpack("!BBHHBx", self._read(8))
        assert version == 1
        content = self._read(length)
        try:
            self._read(padding)
        except Broken:
            # The end of a connection that Apache keeps comes in place of the last record's padding.
            if kind != END:
                raise
        return Record(kind, number, content)

    def records(self, until: int = END) -> Iterator[Record]:
        """All records, up to and with the one that ends a request."""
        while True:
            received = self.receive()
            yield received
            if received.kind == until:
                return

    def response(self, number: int = 1) -> tuple[Response, bytes, int]:
        """The response of the only request that is under way, what it wrote to STDERR, and its protocol status."""
        out = {STDOUT: b"", STDERR: b""}
        has_ended = False
        for received in self.records():
            assert received.id == number, received
            if received.kind == END:
                status = received.content[4]
                assert status or has_ended, "STDOUT has no end"
                return parse(out[STDOUT]) if out[STDOUT] else Response(0, [], b""), out[STDERR], status
            has_ended = received.kind == STDOUT and not received.content
            out[received.kind] += received.content
        raise AssertionError

    def ask(self, method: str = "GET", target: str = "/", body: bytes = b"", **others: Any) -> Response:
        """One request, and its response, which must be whole."""
        listed = variables(method, target, body=body or None, **others)
        self.send(request(1, listed, body))
        response, _, status = self.response()
        assert status == COMPLETE
        return response

    def is_closed(self) -> bool:
        """Return whether the application closes the connection, with nothing before."""
        try:
            return not self._have and self.socket.recv(1) == b""
        except ConnectionError:
            return True


def uwsgi(listed: Sequence[tuple[str, str | bytes]], body: bytes = b"", modifiers: tuple[int, int] = (0, 0)) -> bytes:
    block = b""
    for name, value in listed:
        for text in (name.encode("latin-1"), value if isinstance(value, bytes) else value.encode("latin-1")):
            block += struct.pack("<H", len(text)) + text
    return struct.pack("<BHB", modifiers[0], len(block), modifiers[1]) + block + body


def scgi(listed: Sequence[tuple[str, str | bytes]], body: bytes = b"") -> bytes:
    rest = [(name, value) for name, value in listed if name != "CONTENT_LENGTH"]
    block = b""
    for name, value in [("CONTENT_LENGTH", str(len(body))), ("SCGI", "1"), *rest]:
        for text in (name.encode("latin-1"), value if isinstance(value, bytes) else value.encode("latin-1")):
            block += text + b"\0"
    return b"%d:%s," % (len(block), block) + body


def ask(protocol: str, address: tuple[str, int] | str, target: str = "/", **more: Any) -> Response:
    """The response to a GET over ``protocol``, on a connection of its own. ``more`` are variables."""
    if protocol == "fastcgi":
        with FastCgi(address) as front:
            return front.ask(target=target, **more)
    listed = variables(target=target, **more)
    return parse(exchange(address, uwsgi(listed) if protocol == "uwsgi" else scgi(listed)))


def exchange(address: tuple[str, int] | str, data: bytes) -> bytes:
    """Send ``data``, and return all that comes until the end of the connection."""
    with connect(address) as sock:
        sock.sendall(data)
        out = b""
        while more := sock.recv(1 << 16):
            out += more
        return out
