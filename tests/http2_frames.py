"""A client that knows the frames of HTTP/2 and no more: python-h2 takes GOAWAY for the end of a connection, and sends
nothing that is wrong."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import hpack

from http2_peer import DATA, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame
from raw import Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Running

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def block(path: str = "/hello") -> bytes:
    """A head that refers to the static table alone, so that each block stands for itself."""
    fields = [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "a")]
    encoded: bytes = hpack.Encoder().encode(fields, huffman=False)
    return encoded


class Frames:
    """One connection. A client that ``is_hostile`` expects errors, and sends nothing by itself."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.encoder = hpack.Encoder()
        self.next = 1
        self.ended: set[int] = set()
        self.last = 2**31 - 1
        self.is_leaving = False
        self.has_closed = False
        self.is_hostile = False
        self.codes: list[int] = []
        self.buffer = b""
        peer.send(PREFACE + frame(SETTINGS))

    @classmethod
    def connect(cls, site: Running) -> Frames:
        return cls(Peer.connect(site.host, site.port))

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.close()

    def ask(self, path: bytes) -> int:
        fields = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", path), (b":authority", b"a")]
        stream, self.next = self.next, self.next + 2
        self.peer.send(frame(HEADERS, 5, stream, self.encoder.encode(fields)))
        return stream

    def receive_until(self, is_done: Callable[[], bool]) -> None:
        self.peer.sock.settimeout(20)
        while not is_done():
            assert not self.has_closed, "the server has closed the connection"
            data = self.peer.sock.recv(65536)
            self.has_closed = not data
            self.buffer += data
            self._take_frames()

    def _take_frames(self) -> None:
        while len(self.buffer) >= 9:
            length, kind, flags = int.from_bytes(self.buffer[:3], "big"), self.buffer[3], self.buffer[4]
            stream = int.from_bytes(self.buffer[5:9], "big")
            if len(self.buffer) < 9 + length:
                return
            payload, self.buffer = self.buffer[9 : 9 + length], self.buffer[9 + length :]
            if kind == DATA and payload:
                self._answer(frame(WINDOW_UPDATE, 0, 0, length.to_bytes(4, "big")))
            if kind in (DATA, HEADERS) and flags & 1:
                self.ended.add(stream)
            elif kind == RST_STREAM:
                code = int.from_bytes(payload, "big")
                # Not processed: a client may send it again (REFUSED_STREAM).
                assert self.is_hostile or (code, self.is_leaving) == (7, True), f"stream {stream} was reset with {code}"
                self.ended.add(stream)
            elif kind == PING and not flags:
                self._answer(frame(PING, 1, 0, payload))
            elif kind == SETTINGS and not flags:
                self._answer(frame(SETTINGS, 1))
            elif kind == GOAWAY:
                self.is_leaving = True
                self.last = int.from_bytes(payload[:4], "big")
                self.codes.append(int.from_bytes(payload[4:8], "big"))
                assert self.is_hostile or self.codes[-1] == 0

    def _answer(self, data: bytes) -> None:
        """Send a frame that a received one asks for, unless the server has closed the connection behind that."""
        if not self.is_hostile:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.peer.send(data)


class Watcher:
    """A client that asks for pages on connections of HTTP/2, and opens another one whenever the server ends one."""

    def __init__(self, site: Running) -> None:
        self.site = site
        self.answered = 0
        self.connections = 0
        self.errors: list[str] = []
        self.goaways = 0
        self.is_over = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.is_over:
            try:
                self._use_connection()
            except (AssertionError, OSError) as error:
                self.errors.append(repr(error)[:500])
                return

    def _use_connection(self) -> None:
        self.connections += 1
        with Frames.connect(self.site) as client:
            while not self.is_over and not client.is_leaving:
                streams = [client.ask(b"/hello") for _ in range(10)]
                client.receive_until(lambda streams=streams: set(streams) <= client.ended)  # type: ignore[misc]
                self.answered += len(streams)
            self.goaways += client.is_leaving
            if client.is_leaving:
                client.receive_until(lambda: client.has_closed)

    def stop(self) -> None:
        self.is_over = True
        self.thread.join(30)
        assert not self.errors, self.errors
