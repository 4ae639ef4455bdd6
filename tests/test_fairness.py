"""No client delays another one by sending without pause, however cheap what it sends is to send.

The tests count work, because a busy machine stretches time: how many bytes of the others the server receives between
a request and its response.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import urllib.request
import zlib
from typing import TYPE_CHECKING

import pytest
from websockets.sync.client import connect as connect_websocket

from interpreter import needs_gevent
from proc import rss, wait_until
from raw import Peer, build_request
from test_websocket import connect, frame, read_frame, serve_app, upgraded

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Running, Serve

MIB = 1 << 20
# Bytes in a buffer of the kernel, on each side of a connection.
BUFFER = 64 << 10
WSGI = "websocket_wsgi_app:app"
ASGI = "websocket_app:app"
DRIVERS = {
    "threads": (WSGI, "--threads", "4"),
    "one thread": (WSGI, "--threads", "1"),
    "gevent": (WSGI, "--driver", "gevent"),
    "asyncio": (ASGI,),
}
drivers = pytest.mark.parametrize("driver", DRIVERS)


def serve_with(serve: Serve, driver: str) -> Running:
    if driver == "gevent":
        needs_gevent()
    app, *args = DRIVERS[driver]
    return serve_app(serve, *args, app=app)


class Crowd:
    """Connections that send the same bytes again and again, and ignore what they receive."""

    def __init__(self, connections: list[socket.socket], bytes_to_repeat: bytes) -> None:
        self._data = memoryview(bytes_to_repeat * (BUFFER // len(bytes_to_repeat) + 1))
        self._period = len(bytes_to_repeat)
        self._offsets = dict.fromkeys(connections, 0)
        self._selector = selectors.DefaultSelector()
        self.sent = 0
        for connection in connections:
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
            self._selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def send(self, timeout: float = 1) -> None:
        """Send what the kernel accepts at once."""
        for key, events in self._selector.select(timeout):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            with contextlib.suppress(BlockingIOError):
                if events & selectors.EVENT_READ:
                    assert connection.recv(MIB), "the server closed the connection"
                if events & selectors.EVENT_WRITE:
                    sent = connection.send(self._data[self._offsets[connection] :])
                    self.sent += sent
                    self._offsets[connection] = (self._offsets[connection] + sent) % self._period

    def close(self) -> None:
        for connection in self._offsets:
            connection.close()
        self._selector.close()


def most_received_during_a_request(site: Running, crowd: Crowd, path: str = "/") -> int:
    """The most bytes of the crowd that the server received while a request on a kept connection waited."""
    most = 0
    with contextlib.closing(crowd), Peer.connect(site.host, site.port, timeout=60) as polite:
        polite.send(build_request("GET", path))
        assert polite.read_response("GET").status == 200
        for _ in range(3):
            begin = crowd.sent
            # The kernel accepts more than the server receives, until its buffers are full.
            while crowd.sent < begin + 8 * MIB:
                crowd.send()
            begin = crowd.sent
            polite.send(build_request("GET", path))
            reader = selectors.DefaultSelector()
            reader.register(polite.sock, selectors.EVENT_READ)
            while not reader.select(0):
                crowd.send(0.01)
                assert crowd.sent < begin + 1024 * MIB, "no response"
            reader.close()
            assert polite.read_response("GET").status == 200
            most = max(most, crowd.sent - begin)
    return most


def sockets(peers: list[Peer]) -> list[socket.socket]:
    return [peer.sock for peer in peers]


UPLOAD = build_request("POST", "/", headers={"Content-Length": "20000"}) + bytes(20_000)

# Frames that clients send on a WebSocket, and the bytes that the server may receive during one request. A round of the
# engine receives up to 12 MiB of what costs no more than its bytes, and a request waits for two rounds at most; the
# kernel's buffers and a busy machine add as much. Of frames with little in them a round receives a thirtieth.
FLOODS = {
    "empty pongs": (frame(10), 4 * MIB),
    "pongs": (frame(10, bytes(125)), 64 * MIB),
    "empty pings": (frame(9), 4 * MIB),
    "empty fragments": (frame(0, first=0), 4 * MIB),
    "fragments of a byte": (frame(0, b"x", first=0), 4 * MIB),
}


@pytest.mark.parametrize("driver", ["threads", "one thread", "gevent"])
def test_get_is_answered_while_others_upload_again_and_again(serve: Serve, driver: str) -> None:
    site = serve_with(serve, driver)
    uploads = [Peer.connect(site.host, site.port, timeout=20) for _ in range(8)]
    received = most_received_during_a_request(site, Crowd(sockets(uploads), UPLOAD))
    assert received < 64 * MIB


@drivers
@pytest.mark.parametrize("flood", FLOODS)
def test_get_is_answered_while_others_send_frames(serve: Serve, driver: str, flood: str) -> None:
    site = serve_with(serve, driver)
    path = "/echoes" if driver == "asyncio" else "/handles"
    clients = [upgraded(site, path, frame(1, first=0) if "fragments" in flood else b"") for _ in range(16)]
    data, limit = FLOODS[flood]
    received = most_received_during_a_request(site, Crowd(sockets(clients), data))
    assert received < limit


def fragment_that_inflates_to(length: int) -> bytes:
    """The first frame of a message that does not end, compressed about 1000:1."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return frame(2, compressor.compress(bytes(length)) + compressor.flush(zlib.Z_SYNC_FLUSH), first=0x40)


COUNTS_ROUNDS = """
import asyncio

async def app(scope, receive, send):
    rounds = messages = 0

    async def count():
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async def receive_all():
        nonlocal messages
        while (await receive()).get("more_body"):
            messages += 1

    if scope["type"] == "lifespan":
        raise ValueError
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        if scope["path"] == "/receive":
            await asyncio.sleep(0.1)  # meanwhile messages arrive; how many is counted
    else:
        await send({"type": "http.response.start", "status": 200, "headers": []})
    counting = asyncio.create_task(count())
    if scope["path"] == "/send":
        kind = "websocket.send" if scope["type"] == "websocket" else "http.response.body"
        for messages in range(1, 1001):
            await send({"type": kind, **({"bytes": b"x"} if "socket" in kind else {"body": b"x", "more_body": True})})
    elif scope["type"] == "websocket":
        while (await receive()).get("text") != "end":
            messages += 1
    else:
        await receive_all()
    counting.cancel()
    told = f"{messages} {rounds}"
    if scope["type"] == "websocket":
        await send({"type": "websocket.send", "text": told})
        await send({"type": "websocket.close"})
    else:
        await send({"type": "http.response.body", "body": b"\\n" + told.encode()})
"""


@pytest.mark.parametrize("what", ["http send", "http receive", "websocket send", "websocket receive"])
def test_other_tasks_run_while_an_application_never_has_to_wait(
    serve: Serve, write_app: Callable[[str], str], what: str
) -> None:
    """One that sends in a loop, to a client that is as fast, gives the loop to others now and then."""
    site = serve(f"{write_app(COUNTS_ROUNDS)}:app")
    scheme, action = what.split()
    if scheme == "websocket":
        with connect_websocket(f"ws://{site.host}:{site.port}/{action}", open_timeout=20, proxy=None) as client:
            if action == "receive":
                for _ in range(1000):
                    client.send(b"x")
                client.send("end")
            while not isinstance(told := client.recv(timeout=20), str):
                pass
    else:
        body = b"x" * (8 * MIB) if action == "receive" else None
        request = urllib.request.Request(f"{site.url}/{action}", body)
        with urllib.request.urlopen(request, timeout=20) as response:
            told = response.read().decode().rpartition("\n")[2]
    messages, rounds = map(int, told.split())
    assert messages >= 100
    assert rounds >= messages // 32


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["threads", "asyncio"])
def test_unfinished_messages_of_all_clients_share_a_bound_of_memory(serve: Serve, driver: str) -> None:
    site = serve_with(serve, driver)
    path = "/echoes" if driver == "asyncio" else "/handles"
    (worker,) = site.wait_for_workers(1)
    before = rss(worker)
    # Each may become 1 MiB and 100 times its own length, and all together have 64 MiB.
    bomb = fragment_that_inflates_to(16 * MIB)
    clients = [upgraded(site, path, Sec_WebSocket_Extensions="permessage-deflate") for _ in range(100)]
    for client in clients:
        client.send(bomb)
    codes = [int.from_bytes(read_frame(client)[1][:2], "big") for client in clients]
    assert set(codes) <= {1009, 1013}, codes
    for client in clients:
        client.close()

    small = fragment_that_inflates_to(MIB)
    clients = [upgraded(site, path, Sec_WebSocket_Extensions="permessage-deflate") for _ in range(100)]
    for client in clients:
        client.send(small)
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.sock, selectors.EVENT_READ)
        # Fewer than 64 fit, beside what their decompressors take.
        wait_until(lambda: len(selector.select(0)) > 36, "those for which there is no memory are closed")
        grown = rss(worker) - before
        refused = [client for client in clients if client.sock in {key.fileobj for key, _ in selector.select(0)}]
    assert {int.from_bytes(read_frame(client)[1][:2], "big") for client in refused} == {1013}
    site.wait_for(r"a WebSocket was closed with code 1013.*--body-memory-total")
    # Messages that are short are still answered, compressed or not.
    with connect(site, path) as polite:
        polite.send("hello")
        assert polite.recv(timeout=20) == "hello"
    for client in clients:
        client.close()
    wait_until(lambda: rss(worker) - before < 32 * MIB, "the memory goes back to the system")
    assert 32 * MIB < grown < 128 * MIB
