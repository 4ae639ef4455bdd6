"""The application of the tests of limits and of the server's end, and clients of it."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from raw import Peer, build_request, exchange

if TYPE_CHECKING:
    from running import Running

MIB = 1 << 20
SEED = 20_261_120


APP = """
    import os, sys, time

    def app(environ, start_response):
        path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
        if path == "/endless":
            return Endless(environ, start_response)
        if path == "/write":
            write = start_response("200 OK", [])
            try:
                for _ in range(1000):
                    write(b"x" * 65536)
            except Exception as error:
                print("write raised", type(error).__name__, file=environ["wsgi.errors"], flush=True)
                raise
            return []
        if path == "/wait":
            # Inside the call, so that the server can do nothing else, until a file is there.
            print("waiting for", query, file=environ["wsgi.errors"], flush=True)
            while not os.path.exists(query):
                time.sleep(0.005)
        if path == "/stream":
            return stream(query, start_response)
        body = environ["wsgi.input"].read()
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"{len(body)} bytes".encode()]

    def stream(query, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield b"begun "
        while not os.path.exists(query):
            time.sleep(0.002)
            yield b""
        yield b"ended"

    class Endless:
        def __init__(self, environ, start_response):
            self.errors = environ["wsgi.errors"]
            start_response("200 OK", [("Content-Type", "text/plain")])
        def __iter__(self):
            return self
        def __next__(self):
            return b"x" * 65536
        def close(self):
            print("closed", file=self.errors, flush=True)
"""


def connect(site: Running, timeout: float = 20.0) -> Peer:
    return Peer.connect(site.host, site.port, timeout)


def connect_without_room(site: Running) -> Peer:
    """A client whose kernel holds little that it has not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    sock.connect((site.host, site.port))
    return Peer(sock, timeout=20)


def assert_serves(site: Running, within: float = 5.0) -> None:
    began = time.monotonic()
    assert exchange(site.host, site.port, build_request("POST", "/", body=b"alive")).body == b"5 bytes"
    assert time.monotonic() - began < within
