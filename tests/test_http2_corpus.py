"""The corpus of HTTP/1 over HTTP/2: :func:`translate` turns a request of a case into a block of fields and a body.

A valid request reaches the application as it does over HTTP/1. An invalid one gets the status that the case names; in
place of 400 its stream may be reset with PROTOCOL_ERROR, as RFC 9113 section 8.1.1 has it for malformed requests.
Cases of what HTTP/2 does not have (chunks, ends of lines, versions, connection options) have no translation.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import hpack
import pytest

from http2_frames import PREFACE
from http2_peer import CONTINUATION, DATA, GOAWAY, HEADERS, RST_STREAM, SETTINGS, frame
from raw import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from running import Running, Serve

CORPUS = Path(__file__).parent / "corpus" / "http1"
PROTOCOL_ERROR = 1
FRAME = 16384

Fields = list[tuple[bytes, bytes]]

# Sees everything that the server has made of a request.
APP = """
    import json

    def app(environ, start_response):
        seen = {name: value for name, value in environ.items() if isinstance(value, str)}
        seen["body"] = environ["wsgi.input"].read().decode("latin-1")
        body = json.dumps(seen).encode()
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]
"""

# Fields of one connection, which HTTP/2 expresses in another way or not at all (RFC 9113 section 8.2.2).
OF_THE_CONNECTION = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te"}
# Variables that may differ: those of such fields, of the version, and of the socket.
MAY_DIFFER = {
    "SERVER_PROTOCOL", "REMOTE_PORT", "CONTENT_LENGTH", "HTTP_CONNECTION", "HTTP_KEEP_ALIVE", "HTTP_PROXY_CONNECTION",
    "HTTP_TRANSFER_ENCODING", "HTTP_UPGRADE", "HTTP_TE", "HTTP_EXPECT", "HTTP_TRAILER", "RAW_URI", "REQUEST_URI",
}  # fmt: skip

# Faults that HTTP/2 can have, too: those of one field, of the method, of the target, of the host and of sizes.
TRANSLATED_FAULTS = {
    "AsteriskWithoutOptions", "BodyTooLarge", "ContentLengthInvalid", "ContentLengthRepeated", "ExpectationUnknown",
    "FieldLineTooLong", "FieldNameEmpty", "FieldNameInvalid", "FieldValueInvalid", "FieldsTooMany", "HeadTooLarge",
    "HostInvalid", "HostMissing", "HostRepeated", "MethodInvalid", "MethodTooLong", "RequestLineTooLong",
    "TargetInvalid", "TrailerForbidden",
}  # fmt: skip


@dataclass(frozen=True)
class Translated:
    """One request as HTTP/2 has it."""

    fields: Fields
    body: bytes
    trailers: Fields


def translate(method: bytes, target: bytes, fields: Fields, body: bytes, trailers: Fields) -> Translated | None:
    """A request of HTTP/1 as fields and a body of HTTP/2; None where it means something else there."""
    hosts = [value for name, value in fields if name.lower() == b"host"]
    dropped = [value for name, value in fields if name.lower() in OF_THE_CONNECTION]
    if method == b"CONNECT" or not all(value.decode("latin-1").isprintable() for value in dropped):
        return None
    if hosts == [b""]:
        # RFC 9113 section 8.3.1 does not allow this, RFC 9112 does.
        return None
    path = target
    if not target.startswith((b"/", b"*")):
        parts = urlsplit(target.decode("latin-1"))
        if not parts.scheme or not parts.netloc or not hosts:
            return None
        # A URL is what a proxy gets. It replaces the host.
        hosts = [parts.netloc.encode("latin-1")]
        path = parts._replace(scheme="", netloc="", path=parts.path or "/").geturl().encode("latin-1")
    pseudo: Fields = [(b":method", method), (b":scheme", b"http"), (b":path", path)]
    if len(hosts) == 1:
        pseudo.append((b":authority", hosts.pop()))
    rest = [(b"host", value) for value in hosts]
    rest += [(name.lower(), value) for name, value in fields if name.lower() not in OF_THE_CONNECTION | {b"host"}]
    return Translated(pseudo + rest, body, [(name.lower(), value) for name, value in trailers])


class Exchange:
    """One connection of HTTP/2, whose frames the test writes itself."""

    def __init__(self, site: Running) -> None:
        self.peer = Peer(socket.create_connection((site.host, site.port), 20))
        self.peer.send(PREFACE + frame(SETTINGS) + frame(SETTINGS, 1))
        self.decoder = hpack.Decoder()
        self.stream = -1

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.close()

    def ask(self, request: Translated) -> tuple[str, int, bytes]:
        """Send a request. Returns how it ends (``status``, ``reset``, ``goaway``), the number of that, and the body."""
        self.stream += 2
        frames = self.block(request.fields, ends=not request.body and not request.trailers)
        for at in range(0, len(request.body), FRAME):
            is_last = at + FRAME >= len(request.body) and not request.trailers
            frames += frame(DATA, is_last, self.stream, request.body[at : at + FRAME])
        if request.trailers:
            frames += self.block(request.trailers, ends=True)
        self.peer.offer(frames)
        return self.answer()

    def block(self, fields: Fields, *, ends: bool) -> bytes:
        """The frames of a head or of trailers."""
        encoder = hpack.Encoder()
        encoder.header_table_size = 0
        block = encoder.encode([hpack.NeverIndexedHeaderTuple(*pair) for pair in fields], huffman=False)
        pieces = [block[at : at + FRAME] for at in range(0, len(block), FRAME)]
        frames = b""
        for index, piece in enumerate(pieces, 1):
            kind, flags = (HEADERS, ends) if index == 1 else (CONTINUATION, 0)
            frames += frame(kind, flags | (4 if index == len(pieces) else 0), self.stream, piece)
        return frames

    def answer(self) -> tuple[str, int, bytes]:
        status, body, block = 0, b"", b""
        while True:
            head = self.peer.read_exactly(9)
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            payload = self.peer.read_exactly(int.from_bytes(head[:3], "big"))
            if kind == GOAWAY:
                return "goaway", int.from_bytes(payload[4:8], "big"), body
            if stream != self.stream:
                continue
            if kind == RST_STREAM:
                # A response that is whole comes first where the rest of the body is not wanted.
                return ("status", status, body) if status else ("reset", int.from_bytes(payload, "big"), body)
            if kind in {HEADERS, CONTINUATION}:
                block += payload
            if flags & 4 and kind in {HEADERS, CONTINUATION}:
                found = {name: value for name, value, *_ in self.decoder.decode(block, raw=True)}
                block = b""
                if not found[b":status"].startswith(b"1"):
                    status = int(found[b":status"])
            if kind == DATA:
                body += payload
            if flags & 1 and kind in {HEADERS, DATA}:
                return "status", status, body


def cases(kind: str) -> Iterator[tuple[str, dict[str, Any], bytes]]:
    for path in sorted((CORPUS / kind).glob("*.json")):
        description = json.loads(path.read_text())
        if not description.get("limits"):
            yield path.stem, description, path.with_suffix(".http").read_bytes()


def text(value: str) -> bytes:
    return value.encode("latin-1")


@pytest.fixture
def site(serve: Serve, write_app: Callable[[str], str]) -> Running:
    return serve(write_app(APP), "--threads", "4")


def over_http1(site: Running, sent: bytes, methods: list[str]) -> list[dict[str, str] | None]:
    """The environ of each request over HTTP/1; None for the response to a HEAD, which shows nothing."""
    with Peer.connect(site.host, site.port) as peer:
        peer.offer(sent)
        answers = [peer.read_response(method=method) for method in methods]
    assert [answer.status for answer in answers] == [200] * len(methods)
    return [json.loads(answer.body) if answer.body else None for answer in answers]


def differences(over_1: dict[str, str], over_2: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    names = (set(over_1) | set(over_2)) - MAY_DIFFER
    return {name: (over_1.get(name), over_2.get(name)) for name in names if over_1.get(name) != over_2.get(name)}


def parse(sent: bytes) -> tuple[bytes, bytes, Fields, bytes, Fields] | None:
    """Method, target, fields, body and trailers of a request of HTTP/1; None where they cannot be told apart."""
    head, blank, body = sent.partition(b"\r\n\r\n")
    line, *lines = head.split(b"\r\n")
    words = line.split(b" ")
    fields = parse_lines(lines)
    if not blank or len(words) != 3 or not all(words) or fields is None:
        return None
    if not any(name.lower() == b"transfer-encoding" for name, _ in fields):
        return words[0], words[1], fields, body, []
    chunks = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        if not size or not set(size) <= set(b"0123456789abcdefABCDEF"):
            return None
        length = int(size, 16)
        if length == 0:
            trailers = parse_lines(body.partition(b"\r\n\r\n")[0].split(b"\r\n")) if body != b"\r\n" else []
            return None if trailers is None else (words[0], words[1], fields, chunks, trailers)
        if body[length : length + 2] != b"\r\n":
            return None
        chunks, body = chunks + body[:length], body[length + 2 :]


def parse_lines(lines: list[bytes]) -> Fields | None:
    if any(each[:1] in {b" ", b"\t", b""} or b":" not in each for each in lines):
        return None
    pairs = [each.partition(b":") for each in lines]
    # White space around a value belongs to HTTP/1.
    return [(name, value.strip(b" \t")) for name, _, value in pairs]


def test_valid_requests_reach_the_application_as_over_http1(site: Running) -> None:
    asked, wrong = 0, list[object]()
    for name, description, sent in cases("valid"):
        requests = description["requests"]
        if any(request["version"] != "1.1" for request in requests):
            continue
        translated = []
        for request in requests:
            fields, trailers = [(text(field), text(value)) for field, value in request["fields"]], []
            if request.get("trailers") and len(requests) == 1 and (parts := parse(sent)) is not None:
                trailers = parts[4]
            words = text(request["method"]), text(request["target"])
            translated.append(translate(*words, fields, text(request["body"]), trailers))
        seen = over_http1(site, sent, [request["method"] for request in requests])
        with Exchange(site) as connection:
            for request, expected in zip(translated, seen, strict=True):
                if request is None:
                    continue
                asked += 1
                how, number, body = connection.ask(request)
                if (how, number) != ("status", 200):
                    wrong.append((name, how, number, request.fields[:6]))
                    break
                if expected is not None and (found := differences(expected, json.loads(body))):
                    wrong.append((name, found))
    assert not wrong, "\n".join(map(str, wrong))
    assert asked > 250


def is_about_host_of_url(fault: str, target: bytes) -> bool:
    """Whether a case is about a Host field that the URL replaces."""
    return fault.startswith("Host") and not target.startswith((b"/", b"*"))


def test_invalid_requests_are_refused_as_over_http1(site: Running) -> None:
    asked, wrong = 0, []
    for name, description, sent in cases("invalid"):
        parts = parse(sent)
        if description["fault"] not in TRANSLATED_FAULTS or description["before"] or parts is None:
            continue
        request = translate(*parts)
        if request is None or description.get("eof"):
            continue
        if is_about_host_of_url(description["fault"], parts[1]) or "white-space" in name:
            continue
        asked += 1
        with Exchange(site) as connection:
            found = connection.ask(request)
        allowed = {("status", description["status"])}
        if description["status"] == 400:
            allowed.add(("reset", PROTOCOL_ERROR))
        if found[:2] not in allowed:
            wrong.append((name, description["fault"], found[:2]))
    assert not wrong, "\n".join(map(str, wrong))
    assert asked > 150
