"""The raw peer judges servers, so it is judged itself: against bytes whose meaning RFC 9112 settles."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from raw import MalformedResponse, Peer, PeerClosed, build_request

if TYPE_CHECKING:
    from collections.abc import Iterator


class Wire:
    """Both ends of a connection in memory: what ``server`` sends, ``peer`` reads."""

    def __init__(self) -> None:
        self.server, end = socket.socketpair()
        self.peer = Peer(end, timeout=5.0)

    def receives(self, data: bytes) -> Peer:
        """The peer of a server that sends ``data`` and closes."""
        self.server.sendall(data)
        self.server.close()
        return self.peer


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.server.close()
    wire.peer.close()


def test_length_framed_responses_come_out_one_by_one(wire: Wire) -> None:
    peer = wire.receives(
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\noneHTTP/1.1 404 Not Found\r\ncontent-length:0\r\n\r\n"
    )
    first, second = peer.read_response(), peer.read_response()
    assert (first.status, first.reason, first.body, first.framing) == (200, "OK", b"one", "length")
    assert first.complete
    assert (second.status, second.body, second.headers) == (404, b"", (("content-length", "0"),))
    with pytest.raises(PeerClosed):
        peer.read_response()


def test_chunks_extensions_and_trailers(wire: Wire) -> None:
    peer = wire.receives(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nab\r\nA;x=y\r\n0123456789\r\n0\r\nSum: 7\r\n\r\nrest"
    )
    response = peer.read_response()
    assert response.chunks == (b"ab", b"0123456789")
    assert response.body == b"ab0123456789"
    assert response.trailers == (("Sum", "7"),)
    assert response.complete
    assert peer.read_until_closed() == b"rest"


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n9\r\nxx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
    ],
)
def test_a_cut_body_is_told_from_a_complete_one(wire: Wire, data: bytes) -> None:
    response = wire.receives(data).read_response()
    assert not response.complete
    assert response.body.startswith(b"abc")


def test_a_body_ended_by_the_connection(wire: Wire) -> None:
    response = wire.receives(b"HTTP/1.0 200 OK\r\n\r\nall of it").read_response()
    assert (response.framing, response.body, response.complete) == ("close", b"all of it", True)


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_responses_without_a_body(wire: Wire, method: str, data: bytes) -> None:
    peer = wire.receives(data + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert peer.read_response(method).framing == "none"
    assert peer.read_response().framing == "length"


def test_interim_responses_are_skipped_where_asked(wire: Wire) -> None:
    peer = wire.receives(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
    )
    assert peer.read_response("POST", skip_interim=True).status == 201


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200\r\n\r\n",
        b"HTTP/1.1 99 Low\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX : 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: cut",
    ],
)
def test_what_breaks_the_rules_is_called_malformed(wire: Wire, data: bytes) -> None:
    peer = wire.receives(data)
    with pytest.raises(MalformedResponse):
        peer.read_response()


def test_watching_a_response_arrive(wire: Wire) -> None:
    wire.server.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
    assert wire.peer.read_head().header("transfer-encoding") == "chunked"
    assert wire.peer.read_chunk() == b"ab"
    with pytest.raises(TimeoutError):
        wire.peer.read_chunk(timeout=0.01)
    wire.server.sendall(b"0\r\n\r\n")
    assert wire.peer.read_chunk() == b""


def test_build_request() -> None:
    assert build_request("GET", "/a") == b"GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    assert build_request("GET", version="HTTP/1.0") == b"GET / HTTP/1.0\r\n\r\n"
    assert build_request("PUT", body=b"ab", headers={"host": "x"}) == (
        b"PUT / HTTP/1.1\r\nhost: x\r\nContent-Length: 2\r\n\r\nab"
    )
    assert build_request("PUT", body=b"0\r\n\r\n", headers={"Transfer-Encoding": "chunked"}).count(b"Content") == 0
