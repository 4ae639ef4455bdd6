"""Reports in the error log of requests that the server refuses by itself."""

from __future__ import annotations

import re
import ssl
import time
from typing import TYPE_CHECKING

import pytest

from interpreter import ENGINES
from raw import Peer, exchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Running, Serve

APP = """
    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "0")])
        return []
"""

CLIENT = r"client 127\.0\.0\.1:\d+"


@pytest.fixture
def site(serve: Serve, write_app: Callable[[str], str]) -> Running:
    return serve(write_app(APP))


@pytest.mark.parametrize(
    ("request_", "status", "message"),
    [
        (
            b"GET /path?query HTTP/1.1\r\n\r\n",
            400,
            rf"{CLIENT}, GET /path\?query: Host is missing\. \(RFC 9112 section 3\.2\)",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
            400,
            rf"{CLIENT}, GET /: There is space .* \(RFC 9112 section 5\.1\)",
        ),
        (
            b"POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n!\r\n",
            400,
            rf"{CLIENT}, POST /up: A chunk size is not a hexadecimal number\.",
        ),
        (b"GET /\x1b[31m HTTP/1.1\r\nHost: a\r\n\r\n", 400, rf"{CLIENT}, GET /: The request target has a character"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400, rf"{CLIENT}: TLS was spoken on a port without TLS; use http://"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", 400, rf"{CLIENT}, PROXY TCP4: A PROXY protocol header was sent"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", 400, rf"{CLIENT}: A PROXY protocol header was sent"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", 400, rf"{CLIENT}: SSH was spoken on an HTTP port\."),
    ],
)
def test_refused_request_is_reported_with_its_client_and_the_rule(
    site: Running, request_: bytes, status: int, message: str
) -> None:
    with Peer.connect(site.host, site.port) as peer:
        peer.send(request_)
        assert peer.read_response().status == status
    site.wait_for(rf"\[INFO\] refused with {status}: {message}")
    assert "\x1b" not in site.stderr


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_tls_client_gets_a_plain_400_however_its_bytes_arrive(site: Running, cut: int) -> None:
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    with Peer.connect(site.host, site.port) as peer:
        peer.send(hello[:cut])
        peer.send(hello[cut:])
        response = peer.read_response()
    assert response.status == 400
    assert b"TLS was spoken on a port without TLS" in response.body
    site.wait_for(r"\[INFO\] refused with 400: .* TLS was spoken")


@pytest.mark.parametrize("workers", ["0", "1"])
def test_many_refusals_are_one_line_and_a_count(serve: Serve, write_app: Callable[[str], str], workers: str) -> None:
    site = serve(write_app(APP), "-w", workers)
    began = time.monotonic()
    for number in range(300):
        exchange(site.host, site.port, f"GET /{number} HTTP/1.1\r\n\r\n".encode())
    exchange(site.host, site.port, b"nonsense\r\n\r\n")
    site.wait_for("The request line is malformed")
    intervals = 1 + (time.monotonic() - began) // 10
    assert site.stop() == 0
    lines = [line for line in site.stderr.splitlines() if "Host is missing" in line]
    assert len(lines) <= 2 * intervals * ENGINES
    counts = [
        re.search(r"\[INFO\] and (\d+) more requests were refused with 400 within \d+ s: Host is", line)
        for line in lines
    ]
    full = [line for line in lines if "refused with 400: client" in line]
    assert any("GET /0: Host is missing" in line for line in full)
    assert len(full) + sum(int(count[1]) for count in counts if count) == 300


def test_level_warning_hides_refusals(serve: Serve, write_app: Callable[[str], str]) -> None:
    site = serve(write_app(APP), "--log-level", "warning")
    exchange(site.host, site.port, b"GET / HTTP/1.1\r\n\r\n")
    assert site.stop() == 0
    assert "refused" not in site.stderr
