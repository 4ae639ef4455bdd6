"""A client of HTTP/2 on a raw socket. python-h2 judges what the server sends; the test decides when it is read.

:class:`Http2Peer` opens streams and waits for responses. A frame that python-h2 would not send is written with
:meth:`Http2Peer.send_raw` (:func:`frame` builds it). A response that breaks RFC 9113 raises python-h2's ProtocolError.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

    from running import Running

DEFAULT_TIMEOUT = 20.0
"""Seconds that one wait may take."""

Fields = list[tuple[str, str]]

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """The bytes of a frame (RFC 9113 section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


@dataclass
class Answer:
    """The response on a stream, as far as it has arrived. ``reset`` is the error code of RST_STREAM, if one came."""

    interim: list[Fields] = field(default_factory=list)
    headers: Fields = field(default_factory=list)
    received: bytearray = field(default_factory=bytearray)
    trailers: Fields = field(default_factory=list)
    is_complete: bool = False
    reset: int | None = None

    @property
    def body(self) -> bytes:
        return bytes(self.received)

    @property
    def status(self) -> int:
        return int(self.header(":status") or 0)

    def header(self, name: str) -> str | None:
        """The value of a field; None where it was not sent."""
        values = [value for other, value in self.headers if other == name]
        assert len(values) <= 1, f"{name} sent {len(values)} times: {values}"
        return values[0] if values else None

    @property
    def has_ended(self) -> bool:
        return self.is_complete or self.reset is not None


class Http2Peer:
    """The client's end of one connection; use it as a context manager.

    ``window`` is the initial window of each stream. With ``gives_credit`` false, the client takes no more of responses
    than the windows that it began with, until :meth:`credit`. ``goaways`` are the GOAWAY frames received: last stream
    and error code.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        scheme: str = "http",
        window: int | None = None,
        gives_credit: bool = True,
        settings: dict[h2.settings.SettingCodes, int] | None = None,
    ) -> None:
        self.sock = sock
        self.scheme = scheme
        self.gives_credit = gives_credit
        self.answers: dict[int, Answer] = {}
        self.goaways: list[tuple[int, int]] = []
        self.pings = 0
        self.has_ended = False
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="latin-1"))
        codes = h2.settings.SettingCodes
        initial = {codes.ENABLE_PUSH: 0, codes.MAX_CONCURRENT_STREAMS: 100, **(settings or {})}
        if window is not None:
            initial[codes.INITIAL_WINDOW_SIZE] = window
        # Not by update(): the server obeys at once, and python-h2 would expect that it does so when it acknowledges.
        self.h2.local_settings = h2.settings.Settings(client=True, initial_values=initial)
        self.h2.initiate_connection()
        self.flush()

    @classmethod
    def connect(cls, site: Running, **options: object) -> Http2Peer:
        """Connect in clear, by prior knowledge."""
        return cls(socket.create_connection((site.host, site.port), DEFAULT_TIMEOUT), **options)  # type: ignore[arg-type]

    @classmethod
    def connect_tls(cls, site: Running, context: ssl.SSLContext, **options: object) -> Http2Peer:
        """Connect with TLS, by ALPN."""
        context.set_alpn_protocols(["h2", "http/1.1"])
        raw = socket.create_connection((site.host, site.port), DEFAULT_TIMEOUT)
        encrypted = context.wrap_socket(raw, server_hostname="localhost")
        assert encrypted.selected_alpn_protocol() == "h2"
        return cls(encrypted, scheme="https", **options)  # type: ignore[arg-type]

    def __enter__(self) -> Http2Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    # Requests

    def ask(
        self,
        path: str = "/",
        *,
        method: str = "GET",
        headers: Iterable[tuple[str, str]] = (),
        body: bytes | None = None,
        authority: str = "localhost",
        scheme: str | None = None,
        ends: bool = True,
    ) -> int:
        """Send a request, with ``body`` if it fits the windows; return its stream. Not ``ends``: more of it follows."""
        stream = int(self.h2.get_next_available_stream_id())
        fields = [(":method", method), (":scheme", scheme or self.scheme), (":path", path), (":authority", authority)]
        self.answers[stream] = Answer()
        self.h2.send_headers(stream, [*fields, *headers], end_stream=ends and body is None)
        self.flush()
        if body is not None:
            self.send_body(stream, body, ends=ends)
        return stream

    def send_body(self, stream: int, body: bytes, *, ends: bool = True) -> None:
        """Send a part of a body as the windows allow."""
        rest = memoryview(body)
        while rest:
            size = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(rest))
            if size == 0:
                self.wait(lambda: self.h2.local_flow_control_window(stream) > 0, "the server gives credit")
                continue
            self.h2.send_data(stream, bytes(rest[:size]))
            rest = rest[size:]
            self.flush()
        if ends:
            self.h2.end_stream(stream)
            self.flush()

    def end(self, stream: int) -> None:
        self.h2.end_stream(stream)
        self.flush()

    def reset(self, stream: int, code: int = h2.errors.ErrorCodes.CANCEL) -> None:
        self.h2.reset_stream(stream, code)
        self.flush()

    def credit(self, stream: int, count: int) -> None:
        """Let the server send ``count`` more bytes on a stream, and on the connection."""
        self.h2.increment_flow_control_window(count, stream)
        self.h2.increment_flow_control_window(count)
        self.flush()

    def send_raw(self, data: bytes) -> None:
        """Send bytes that python-h2 does not know of."""
        self.flush()
        self.sock.sendall(data)

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self.sock.sendall(data)

    # Responses

    def answer(self, stream: int, timeout: float = DEFAULT_TIMEOUT) -> Answer:
        """The whole response on a stream, or as much as there was when it was reset."""
        found = self.answers[stream]
        self.wait(lambda: found.has_ended, f"stream {stream} ends", timeout)
        return found

    def get(self, path: str = "/", **options: object) -> Answer:
        """The response to a request."""
        return self.answer(self.ask(path, **options))  # type: ignore[arg-type]

    def wait(self, is_done: Callable[[], bool], event: str, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Receive until ``is_done``. Raises AssertionError where the server ends the connection or time runs out."""
        deadline = time.monotonic() + timeout
        while not is_done():
            left = deadline - time.monotonic()
            assert left > 0, f"{timeout} s passed before: {event}; {self.answers}"
            assert not self.has_ended, f"the connection ended before: {event}; {self.goaways}, {self.answers}"
            self._receive(left)

    def wait_for_end(self, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Receive until the server ends the connection."""
        deadline = time.monotonic() + timeout
        while not self.has_ended:
            left = deadline - time.monotonic()
            assert left > 0, f"the server has not ended the connection within {timeout} s"
            self._receive(left)

    def _receive(self, timeout: float) -> None:
        self.sock.settimeout(timeout)
        try:
            data = self.sock.recv(65536)
        except TimeoutError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self.has_ended = True
            return
        for event in self.h2.receive_data(data):
            self._take(event)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.flush()

    def _take(self, event: h2.events.Event) -> None:
        answer = self.answers.get(getattr(event, "stream_id", None) or 0)
        if isinstance(event, h2.events.ConnectionTerminated):
            self.goaways.append((event.last_stream_id or 0, int(event.error_code or 0)))
        elif isinstance(event, h2.events.PingAckReceived):
            self.pings += 1
        elif answer is None:
            return
        elif isinstance(event, h2.events.InformationalResponseReceived):
            answer.interim.append(_text(event.headers))
        elif isinstance(event, h2.events.ResponseReceived):
            answer.headers = _text(event.headers)
        elif isinstance(event, h2.events.TrailersReceived):
            answer.trailers = _text(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            answer.received += event.data or b""
            if self.gives_credit and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            answer.is_complete = True
        elif isinstance(event, h2.events.StreamReset):
            answer.reset = int(event.error_code or 0)


def _text(fields: Iterable[tuple[bytes | str, bytes | str]] | None) -> Fields:
    def text(part: bytes | str) -> str:
        return part if isinstance(part, str) else part.decode("latin-1")

    return [(text(name), text(value)) for name, value in fields or ()]


def environ(peer: Http2Peer, path: str = "/environ", **options: Any) -> dict[str, Any]:
    """The values of the environ that ``wsgi_app`` answers with."""
    answer = peer.get(path, **options)
    assert answer.status == 200, answer
    found: dict[str, Any] = json.loads(answer.body)["values"]
    return found
