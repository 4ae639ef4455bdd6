"""WebSockets over HTTP/2 (RFC 8441): an extended CONNECT opens one on a stream, for ASGI and WSGI applications."""

from __future__ import annotations

import json
import os
import signal
import struct
from typing import TYPE_CHECKING

import h2.settings
import pytest
from websockets.frames import Frame, Opcode

from http2_peer import Answer, Http2Peer

if TYPE_CHECKING:
    from running import Running, Serve

HERE = os.path.dirname(__file__)
CONNECT_PROTOCOL = h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL


class Tunnel:
    """A WebSocket on a stream of a connection."""

    def __init__(self, peer: Http2Peer, path: str, *headers: tuple[str, str], protocol: str = "websocket") -> None:
        peer.h2.config.validate_outbound_headers = False
        peer.wait(lambda: peer.h2.remote_settings.get(CONNECT_PROTOCOL) == 1, "the server offers WebSockets")
        self.peer = peer
        self.stream = int(peer.h2.get_next_available_stream_id())
        self.answer = peer.answers[self.stream] = Answer()
        self._at = 0
        head = [
            (":method", "CONNECT"), (":protocol", protocol), (":scheme", "http"), (":path", path),
            (":authority", "localhost"), ("sec-websocket-version", "13"), *headers,
        ]  # fmt: skip
        peer.h2.send_headers(self.stream, head)
        peer.flush()
        peer.wait(lambda: bool(self.answer.headers), "the server answers")

    def send(self, opcode: Opcode, data: bytes) -> None:
        self.peer.send_body(self.stream, Frame(opcode, data).serialize(mask=True), ends=False)

    def receive(self) -> tuple[Opcode, bytes]:
        """The next frame of the server; its close code and reason are the data of a Close frame."""
        self.peer.wait(lambda: self._whole() is not None or self.answer.has_ended, "a frame")
        end = self._whole()
        assert end is not None, self.answer
        frame = self.answer.body[self._at : end]
        self._at = end
        return Opcode(frame[0] & 15), frame[_head(frame) :]

    def _whole(self) -> int | None:
        rest = self.answer.body[self._at :]
        if len(rest) < 2 or len(rest) < _head(rest):
            return None
        length = rest[1] if rest[1] < 126 else int.from_bytes(rest[2 : _head(rest)], "big")
        end = _head(rest) + length
        return self._at + end if len(rest) >= end else None

    def close(self, code: int = 1000, reason: bytes = b"") -> None:
        self.send(Opcode.CLOSE, struct.pack("!H", code) + reason)


def _head(frame: bytes) -> int:
    return {126: 4, 127: 10}.get(frame[1], 2)


def serve_asgi(serve: Serve) -> Running:
    return serve("websocket_app:app", "--lifespan", "off", cwd=HERE)


@pytest.mark.parametrize("app", ["websocket_app:app", "websocket_wsgi_app:app"])
def test_messages_go_both_ways_beside_requests(serve: Serve, app: str) -> None:
    site = serve(app, "--access-logfile", "-", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        first, second = Tunnel(peer, "/echoes"), Tunnel(peer, "/echoes")
        assert (first.answer.status, second.answer.status) == (200, 200)
        assert first.answer.header("sec-websocket-accept") is None
        for data in (b"hello", b"x" * 200, b"y" * 70_000):
            first.send(Opcode.TEXT, data)
            second.send(Opcode.BINARY, data[::-1])
            assert peer.get("/").body == b"hello"
            assert first.receive() == (Opcode.TEXT, data)
            assert second.receive() == (Opcode.BINARY, data[::-1])
        first.close(1000, b"bye")
        assert first.receive()[0] == Opcode.CLOSE
        assert peer.answer(first.stream).is_complete
        second.send(Opcode.PING, b"are you there")
        assert second.receive() == (Opcode.PONG, b"are you there")
        peer.reset(second.stream)
        assert peer.get("/").status == 200
    site.wait_for("1000 'bye'")
    site.wait_for("1006")
    site.wait_for_output(r'"GET /echoes HTTP/2\.0" ')


def test_asgi_scope_is_that_of_a_websocket_of_version_2(serve: Serve) -> None:
    site = serve_asgi(serve)
    with Http2Peer.connect(site) as peer:
        tunnel = Tunnel(peer, "/scope?a=b", ("sec-websocket-protocol", "one, two"))
        scope = json.loads(tunnel.receive()[1])
    text = json.dumps(scope)
    assert '"websocket"' in text
    assert scope.get("http_version", "2") == "2", scope


def test_denial_is_an_ordinary_response(serve: Serve) -> None:
    site = serve_asgi(serve)
    with Http2Peer.connect(site) as peer:
        denied = Tunnel(peer, "/denies")
        assert peer.answer(denied.stream).status == 403
        assert peer.get("/").status == 200


def test_wsgi_application_that_knows_nothing_of_websockets_accepts_none(serve: Serve) -> None:
    site = serve("websocket_wsgi_app:app", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        refused = Tunnel(peer, "/hello")
        assert peer.answer(refused.stream).status == 501
        assert peer.get("/").status == 200


@pytest.mark.parametrize(("protocol", "status"), [("connect-udp", 501), ("websocket", 426)])
def test_request_that_is_no_handshake_is_refused(serve: Serve, protocol: str, status: int) -> None:
    site = serve_asgi(serve)
    with Http2Peer.connect(site) as peer:
        version = [("sec-websocket-version", "8")] if protocol == "websocket" else []
        refused = Tunnel(peer, "/echoes", *version, protocol=protocol)
        assert peer.answer(refused.stream).status in (status, 400)


def test_wsgi_handler_gets_messages_and_holds_no_thread(serve: Serve) -> None:
    site = serve("websocket_wsgi_app:app", "--threads", "2", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        tunnels = [Tunnel(peer, f"/handles?{number}") for number in range(30)]
        for tunnel in tunnels:
            tunnel.send(Opcode.TEXT, b"hello")
        for tunnel in tunnels:
            assert tunnel.receive() == (Opcode.TEXT, b"hello")
        assert peer.get("/").body == b"hello"
        tunnels[0].send(Opcode.TEXT, b"close")
        opcode, data = tunnels[0].receive()
        assert (opcode, data) == (Opcode.CLOSE, struct.pack("!H", 4001) + b"as you wish")
        tunnels[0].send(Opcode.CLOSE, data)
        assert peer.answer(tunnels[0].stream).is_complete
        peer.reset(tunnels[1].stream)
        site.wait_for("close 1 1006")
    site.wait_for("close 29 1006")


def test_stop_closes_websockets(serve: Serve) -> None:
    site = serve_asgi(serve)
    with Http2Peer.connect(site) as peer:
        tunnel = Tunnel(peer, "/echoes")
        tunnel.send(Opcode.TEXT, b"hello")
        assert tunnel.receive() == (Opcode.TEXT, b"hello")
        site.send(signal.SIGTERM)
        # python-h2 takes GOAWAY for the end, so the frames behind it are read from the socket.
        received = b""
        while struct.pack("!H", 1012) not in received and struct.pack("!H", 1001) not in received:
            data = peer.sock.recv(65536)
            assert data, received
            received += data
    assert site.process.wait(40) == 0
