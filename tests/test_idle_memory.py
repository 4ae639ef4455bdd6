"""An idle keep-alive connection takes at most 1 KiB of the server's memory, beyond that of the kernel, one of HTTP/2 at
most 5 KiB. TLS adds at most 5 KiB to either."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import TYPE_CHECKING

import hpack
import pytest

from authority import Authority
from http2_frames import PREFACE
from http2_peer import DATA, HEADERS, SETTINGS, WINDOW_UPDATE, frame
from interpreter import HAS_LOCK
from proc import raise_descriptor_limit, rss, settled
from raw import build_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

CONNECTIONS = 10_000
WARM_UP = 200

# Fewer, because the client's side of each takes ten times as much memory in this process.
ENCRYPTED_CONNECTIONS = 2000
TLS_BYTES_EACH = 5 * 1024

APP = """
    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"Hello"]
"""

# The fields of a browser's request, some 900 bytes: what a connection may keep for the next one is as large.
FIELDS = {
    "sec-ch-ua": '"Chromium";v="142", "Google Chrome";v="142", "Not_A Brand";v="99"',
    "sec-ch-ua-mobile": "?0",
    "sec-ch-ua-platform": '"Linux"',
    "Upgrade-Insecure-Requests": "1",
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/142.0.0.0 Safari/537.36",
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    "Sec-Fetch-Site": "same-origin",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-User": "?1",
    "Sec-Fetch-Dest": "document",
    "Referer": "https://www.example.com/another/page",
    "Accept-Encoding": "gzip, deflate, br, zstd",
    "Accept-Language": "en-GB,en;q=0.9,de;q=0.8",
    "Cookie": "session=0123456789abcdef0123456789abcdef; theme=dark; consent=1",
}
HOST, PATH = "www.example.com", "/some/page?of=interest"


class Http1:
    """The requests of one connection, and the ends of their responses."""

    alpn: str | None = None
    # Without a lock the interpreter has another allocator for its objects, which keeps more of what is free.
    bytes_each = 1024 if HAS_LOCK else 2048

    def request(self, _: int) -> bytes:
        return build_request("GET", PATH, headers={"Host": HOST, "Connection": "keep-alive", **FIELDS})

    def end(self, _: int) -> bytes:
        return b"\r\n\r\nHello"


class Http2:
    """The same over HTTP/2. All connections send the same bytes, because each has a table of its own."""

    alpn = "h2"
    bytes_each = Http1.bytes_each + 4096

    def __init__(self, scheme: str) -> None:
        head = [(":method", "GET"), (":authority", HOST), (":scheme", scheme), (":path", PATH)]
        cookie = FIELDS["Cookie"].split("; ")
        others = [(name.lower(), value) for name, value in FIELDS.items() if name != "Cookie"]
        self.fields = [*head, *others, *(("cookie", part) for part in cookie)]
        self.encoder = hpack.Encoder()
        self.blocks: list[bytes] = []

    def request(self, index: int) -> bytes:
        if index == len(self.blocks):
            self.blocks.append(self.encoder.encode(self.fields))
        head = frame(HEADERS, 5, 2 * index + 1, self.blocks[index])
        # The first request follows the settings of a browser: a table of 64 KiB, no push, large windows.
        settings = bytes.fromhex("000100010000 000200000000 000400600000 000600040000")
        grant = frame(WINDOW_UPDATE, 0, 0, (15 << 20).to_bytes(4, "big"))
        return head if index else PREFACE + frame(SETTINGS, 0, 0, settings) + grant + frame(SETTINGS, 1) + head

    def end(self, index: int) -> bytes:
        return frame(DATA, 1, 2 * index + 1, b"Hello")


def open_and_ask(
    site: Running, count: int, times: int, protocol: Http1 | Http2, context: ssl.SSLContext | None = None
) -> list[socket.socket]:
    """``count`` connections, each of which has made ``times`` requests and read the answers."""
    socks: list[socket.socket] = []
    for index in range(count):
        sock = socket.socket()
        sock.settimeout(20)
        # Several addresses, because one has fewer than 30,000 free ports.
        sock.bind((f"127.0.0.{2 + index % 5}", 0))
        sock.connect((site.host, site.port))
        # Only so many handshakes may be under way at a time.
        socks.append(context.wrap_socket(sock, server_hostname="localhost") if context else sock)
    for index in range(times):
        for sock in socks:
            sock.sendall(protocol.request(index))
        for sock in socks:
            received = b""
            while not received.endswith(protocol.end(index)):
                data = sock.recv(4096)
                assert data, received
                received += data
    return socks


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [Http1(), Http2("http")], ids=["http1", "http2"])
def test_ten_thousand_idle_connections(serve: Serve, write_app: Callable[[str], str], protocol: Http1 | Http2) -> None:
    if not raise_descriptor_limit(CONNECTIONS + WARM_UP + 200):
        pytest.skip(f"the hard limit on open files is below {CONNECTIONS + WARM_UP + 200} (ulimit -Hn)")
    app = write_app(APP)
    options = ["--keep-alive=300s", "--header-timeout=300s"]
    assert_least(lambda: serve(app, *options), CONNECTIONS, protocol.bytes_each, protocol)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [Http1(), Http2("https")], ids=["http1", "http2"])
def test_thousands_of_idle_encrypted_connections(
    serve: Serve, write_app: Callable[[str], str], tmp_path: Path, protocol: Http1 | Http2
) -> None:
    if not raise_descriptor_limit(ENCRYPTED_CONNECTIONS + WARM_UP + 200):
        pytest.skip(f"the hard limit on open files is below {ENCRYPTED_CONNECTIONS + WARM_UP + 200} (ulimit -Hn)")
    authority = Authority(tmp_path)
    certificate, key = authority.issue("idle")
    app = write_app(APP)
    context = ssl.create_default_context(cafile=authority.certificate)
    if protocol.alpn:
        context.set_alpn_protocols([protocol.alpn])
    options = ["--keep-alive=300s", "--header-timeout=300s", "--certfile", certificate, "--keyfile", key]
    most = protocol.bytes_each + TLS_BYTES_EACH
    assert_least(lambda: serve(app, *options), ENCRYPTED_CONNECTIONS, most, protocol, context)


def assert_least(
    serve: Callable[[], Running],
    count: int,
    most: int,
    protocol: Http1 | Http2,
    context: ssl.SSLContext | None = None,
) -> None:
    """Asserts that each of ``count`` idle connections takes at most ``most`` bytes.

    How the allocator's pages are filled varies by a tenth with the order in which requests arrive, which a busy machine
    changes. Of three servers the best one shows what a connection takes.
    """
    found: list[float] = []
    while len(found) < 3 and (not found or min(found) > most):
        site = serve()
        found.append(bytes_of_idle_connection(site, count, protocol, context))
        assert site.stop() == 0
    assert min(found) <= most, found


def bytes_of_idle_connection(
    site: Running, count: int, protocol: Http1 | Http2, context: ssl.SSLContext | None = None
) -> float:
    with contextlib.ExitStack() as stack:
        # The first requests allocate once, up to the most that a few connections at a time need.
        for sock in open_and_ask(site, WARM_UP, 20, protocol, context):
            sock.close()
        before = settled(lambda: rss(site.server_pid), tolerance=64 << 10)
        for sock in open_and_ask(site, count, 3, protocol, context):
            stack.callback(sock.close)
        # The server takes up to two seconds to see that a connection is idle, and then gives the memory back.
        after = settled(lambda: rss(site.server_pid), tolerance=64 << 10, rounds=80, timeout=20)
        each = (after - before) / count
        print(f"{count} idle connections: {each:.0f} bytes each ({before >> 10} KiB -> {after >> 10} KiB)")
        return each
