"""An idle keep-alive connection takes at most 1 KiB of the server's memory, beyond that of the kernel, and an encrypted
one at most 6 KiB."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import TYPE_CHECKING

import pytest

from authority import Authority
from interpreter import HAS_LOCK
from proc import raise_descriptor_limit, rss, settled
from raw import build_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

CONNECTIONS = 10_000
WARM_UP = 200
# Without a lock the interpreter has another allocator for its objects, which keeps more of what is free.
BYTES_EACH = 1024 if HAS_LOCK else 2048

# Fewer, because the client's side of each takes ten times as much memory in this process.
ENCRYPTED_CONNECTIONS = 2000
ENCRYPTED_BYTES_EACH = 6 * 1024

APP = """
    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"Hello"]
"""

# The fields of a browser's request, some 900 bytes: what a connection may keep for the next one is as large.
BROWSER = build_request(
    "GET",
    "/some/page?of=interest",
    headers={
        "Host": "www.example.com",
        "Connection": "keep-alive",
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
    },
)


def open_and_ask(site: Running, count: int, times: int, context: ssl.SSLContext | None = None) -> list[socket.socket]:
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
    for _ in range(times):
        for sock in socks:
            sock.sendall(BROWSER)
        for sock in socks:
            received = b""
            while not received.endswith(b"\r\n\r\nHello"):
                data = sock.recv(4096)
                assert data, received
                received += data
            assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    return socks


@pytest.mark.slow
def test_ten_thousand_idle_connections(serve: Serve, write_app: Callable[[str], str]) -> None:
    if not raise_descriptor_limit(CONNECTIONS + WARM_UP + 200):
        pytest.skip(f"the hard limit on open files is below {CONNECTIONS + WARM_UP + 200} (ulimit -Hn)")
    app = write_app(APP)
    assert_least(lambda: serve(app, "--keep-alive=300s"), CONNECTIONS, BYTES_EACH)


@pytest.mark.slow
def test_thousands_of_idle_encrypted_connections(serve: Serve, write_app: Callable[[str], str], tmp_path: Path) -> None:
    if not raise_descriptor_limit(ENCRYPTED_CONNECTIONS + WARM_UP + 200):
        pytest.skip(f"the hard limit on open files is below {ENCRYPTED_CONNECTIONS + WARM_UP + 200} (ulimit -Hn)")
    authority = Authority(tmp_path)
    certificate, key = authority.issue("idle")
    app = write_app(APP)
    context = ssl.create_default_context(cafile=authority.certificate)
    options = ["--keep-alive=300s", "--certfile", certificate, "--keyfile", key]
    assert_least(lambda: serve(app, *options), ENCRYPTED_CONNECTIONS, ENCRYPTED_BYTES_EACH, context)


def assert_least(serve: Callable[[], Running], count: int, most: int, context: ssl.SSLContext | None = None) -> None:
    """Asserts that each of ``count`` idle connections takes at most ``most`` bytes.

    How the allocator's pages are filled varies by a tenth with the order in which requests arrive, which a busy machine
    changes. Of three servers the best one shows what a connection takes.
    """
    found: list[float] = []
    while len(found) < 3 and (not found or min(found) > most):
        site = serve()
        found.append(bytes_of_idle_connection(site, count, context))
        assert site.stop() == 0
    assert min(found) <= most, found


def bytes_of_idle_connection(site: Running, count: int, context: ssl.SSLContext | None = None) -> float:
    with contextlib.ExitStack() as stack:
        # The first requests allocate once, up to the most that a few connections at a time need.
        for sock in open_and_ask(site, WARM_UP, 20, context):
            sock.close()
        before = settled(lambda: rss(site.server_pid), tolerance=64 << 10)
        for sock in open_and_ask(site, count, 3, context):
            stack.callback(sock.close)
        # The server takes up to two seconds to see that a connection is idle, and then gives the memory back.
        after = settled(lambda: rss(site.server_pid), tolerance=64 << 10, rounds=80, timeout=20)
        each = (after - before) / count
        print(f"{count} idle connections: {each:.0f} bytes each ({before >> 10} KiB -> {after >> 10} KiB)")
        return each
