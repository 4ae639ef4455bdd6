"""flask-sock and simple-websocket, unmodified, with the client library ``websockets``."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from proc import wait_until
from test_websocket import read_frame, upgraded

if TYPE_CHECKING:
    from websockets.sync.connection import Connection

    from running import Running, Serve

HERE = Path(__file__).parent
DRIVERS = [("--threads", "8"), ("--driver", "gevent")]

pytestmark = pytest.mark.parametrize("driver", DRIVERS, ids=" ".join)


def opened(site: Running, path: str = "/echo", **more: Any) -> Connection:
    settings = {"ping_interval": None, "open_timeout": 20, "close_timeout": 20, "proxy": None, "max_size": None, **more}
    return connect(f"ws://{site.host}:{site.port}{path}", **settings)


def closed(client: Connection) -> int:
    with pytest.raises(ConnectionClosed) as ended:
        client.recv(timeout=20)
    return ended.value.rcvd.code if ended.value.rcvd else 1006


def test_messages_come_back_and_both_sides_close(serve: Serve, driver: tuple[str, str]) -> None:
    site = serve("flask_sock_app:app", *driver, "--access-logfile", "-", cwd=HERE)
    with contextlib.ExitStack() as open_ones:
        clients = [open_ones.enter_context(opened(site, f"/echo?name={number}")) for number in range(5)]
        for number, client in enumerate(clients):
            assert client.recv(timeout=20) == f"hello, {number}"
        for message in ("", "zwölf", "x" * 125, "y" * 3_000_000, b"\x00\xff", bytes(200_000)):
            for client in clients:
                client.send(message)
            assert all(client.recv(timeout=20) == message for client in clients)
        assert site.page() == "a page"
        clients[0].close(4001)
        site.wait_for("closed with 4001")
    site.wait_for_output(r'"GET /echo\?name=0 HTTP/1.1" 101 ')
    for path, code in (("/returns", 1000), ("/closes", 4242)):
        with opened(site, path) as client:
            if path == "/returns":
                assert client.recv(timeout=20) == "that is all"
            assert closed(client) == code
        site.wait_for_output(rf'"GET {path} HTTP/1.1" 101 ')
    assert "Traceback" not in site.stderr
    with opened(site, "/fails") as client:
        assert client.recv(timeout=20) == "now"
        assert closed(client) == 1006
    site.wait_for("ValueError: raised in a view")
    assert site.page() == "a page"


def test_plain_simple_websocket_with_subprotocols_and_pings(serve: Serve, driver: tuple[str, str]) -> None:
    site = serve("flask_sock_app:plain", *driver, cwd=HERE)
    with opened(site, "/", subprotocols=[Subprotocol("one"), Subprotocol("two")]) as client:
        assert client.subprotocol == "two"
        client.send("hello")
        assert client.recv(timeout=20) == "hello"
    site.wait_for("closed")
    # simple-websocket 1.1.0 does not always wake its handler when pings are not answered.
    site = serve("flask_sock_app:pinging", *driver, "--graceful-timeout", "1", cwd=HERE)
    with opened(site, "/") as client:
        # The server's pings are answered, or it would close.
        for text in ("one", "two", "three"):
            client.send(text)
            assert client.recv(timeout=20) == text
            client.ping().wait(20)
        client.close(4001)
    site.wait_for("closed with 4001")
    # A client that is there and does not answer pings.
    with upgraded(site, "/") as silent:
        assert read_frame(silent) == (0x89, b"")
        start, payload = read_frame(silent)
        assert (start, payload[:2]) == (0x88, b"\x03\xf0")
        assert silent.read_until_closed() == b""
    assert "Traceback" not in site.stderr


def test_clients_that_vanish_and_reloads(serve: Serve, driver: tuple[str, str]) -> None:
    site = serve("flask_sock_app:app", *driver, cwd=HERE)
    for _ in range(10):
        with upgraded(site, "/echo") as peer:
            assert read_frame(peer) == (0x81, b"hello, ?")
            peer.abort()
    wait_until(lambda: site.stderr.count("closed with ") == 10, "all end", 20)
    (before,) = site.worker_pids()
    with opened(site) as client:
        client.recv(timeout=20)
        site.send(signal.SIGHUP)
        site.wait_for_workers(2, timeout=20)
        wait_until(lambda: site.page() == "a page", "it serves", 20)
        client.send("still there?")
        assert client.recv(timeout=20) == "still there?"
    site.wait_for_workers(1, without=[before], timeout=20)
    with opened(site) as client:
        client.recv(timeout=20)
        site.send(signal.SIGTERM)
        client.send("still there?")
        assert client.recv(timeout=20) == "still there?"
    assert site.process.wait(20) == 0
    assert "Traceback" not in site.stderr
