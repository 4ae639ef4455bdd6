"""HTTP/2: the ends of calls, connections and workers, and clients that attack."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from http2_frames import Frames, Watcher, block
from http2_peer import HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, Http2Peer, frame
from native_site import DRIVERS, native_site
from proc import rss, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve


HERE = os.path.dirname(__file__)


# The life of a worker


def test_late_call_is_answered_504_on_its_stream(serve: Serve, write_app: Callable[[str], str]) -> None:
    site = serve(
        write_app("""
            import time

            def app(environ, start_response):
                end = time.monotonic() + (30 if environ["PATH_INFO"] == "/late" else 0)
                while time.monotonic() < end:
                    pass
                start_response("200 OK", [])
                return [b"in time"]
        """),
        "--timeout", "500ms", "--threads", "4",
    )  # fmt: skip
    with Http2Peer.connect(site) as peer:
        late, others = peer.ask("/late"), [peer.ask("/") for _ in range(5)]
        assert all(peer.answer(stream).body == b"in time" for stream in others)
        assert peer.answer(late).status == 504
        assert peer.get("/").body == b"in time"


@pytest.mark.parametrize("app", ["wsgi_app:app", "asgi_app:app"])
@pytest.mark.parametrize(
    "cause", ["reload", *(pytest.param(each, marks=pytest.mark.slow) for each in ("upgrade", "max requests"))]
)
def test_no_request_is_lost_when_workers_are_replaced(serve: Serve, app: str, cause: str) -> None:
    args = ["--max-requests", "300"] if cause == "max requests" else []
    site = serve(app, "--workers", "2", *args, cwd=HERE)
    watchers = [Watcher(site) for _ in range(3)]
    try:
        for _ in range(2 if cause == "reload" else 0):
            site.said_at(signal.SIGHUP, "SIGHUP: done")
        if cause == "upgrade":
            site.send(signal.SIGUSR2)
            site.wait_for("SIGUSR2: done", 60)

        def have_seen_it() -> bool:
            return all(each.errors or (each.goaways and each.answered >= 500) for each in watchers)

        wait_until(have_seen_it, "each learns of an end, and is answered", 60)
    finally:
        for each in watchers:
            each.stop()


def test_stop_tells_clients_in_two_steps_and_answers_what_was_asked(serve: Serve, tmp_path: Path) -> None:
    site = serve("waiting_app:app", cwd=HERE)
    gate = tmp_path / "gate"
    with Frames.connect(site) as client:
        waiting = client.ask(f"/wait?{gate}".encode())
        site.wait_for("waiting for")
        site.send(signal.SIGTERM)
        client.receive_until(lambda: client.is_leaving and client.last < 2**31 - 1)
        assert client.last == waiting
        gate.touch()
        client.receive_until(lambda: waiting in client.ended)
        client.receive_until(lambda: client.has_closed)
    assert site.process.wait(20) == 0


# Attacks (the others are a table of frames: crates/wire/tests/http2/table.rs)


def attack(site: Running, frames: list[bytes]) -> Frames:
    """Send frames as fast as the server takes them, until it says that it ends the connection."""
    client = Frames.connect(site)
    client.is_hostile = True
    sock = client.peer.sock

    def send() -> None:
        with contextlib.suppress(OSError):
            sock.sendall(b"".join(frames))

    sock.settimeout(20)
    sender = threading.Thread(target=send)
    sender.start()
    with contextlib.suppress(ConnectionError):
        client.receive_until(lambda: bool(client.codes) or client.has_closed)
    # The server reads nothing more, so that the rest would wait.
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sender.join(20)
    return client


def test_rapid_resets_end_the_connection_and_run_few_calls(tmp_path: Path) -> None:
    with native_site(driver="threads", threads=4) as site:
        gate = tmp_path / "gate"
        wait = block(f"/wait?{gate}")
        frames = []
        for number in range(10_000):
            stream = 2 * number + 1
            frames += [frame(HEADERS, 5, stream, wait), frame(RST_STREAM, 0, stream, b"\0\0\0\x08")]
        with attack(site, frames).peer:
            pass
        gate.touch()
        records = json.loads(site.page("/records"))
        # A call that runs counts as a stream, whoever reset it.
        assert records["inside"].get("most", 0) <= 3
        assert len(records["journal"]) < 300


def test_provoked_resets_end_the_connection(tmp_path: Path) -> None:
    with native_site(driver="threads", threads=4) as site:
        gate = tmp_path / "gate"
        frames = []
        for number in range(1000):
            stream = 2 * number + 1
            frames += [frame(HEADERS, 5, stream, block(f"/wait?{gate}")), frame(WINDOW_UPDATE, 0, stream, bytes(4))]
        client = attack(site, frames)
        with client.peer:
            assert client.codes == [11]  # ENHANCE_YOUR_CALM
        gate.touch()
        assert site.page("/hello") == "Hello"


def test_bomb_of_indexed_fields_takes_little_memory(serve: Serve) -> None:
    site = serve("wsgi_app:app", cwd=HERE)
    site.page("/hello")
    before = rss(site.server_pid)
    # A field of 4 KB enters the table, and then each byte is one more of it; the windows stay shut.
    insert = b"\x40\x01x" + b"\x7f\xa1\x1e" + b"v" * 4000
    clients = []
    for _ in range(10):
        client = Frames.connect(site)
        client.is_hostile = True
        client.peer.send(frame(SETTINGS, 0, 0, b"\0\x04\0\0\0\0") + frame(HEADERS, 5, 1, block() + insert))
        with contextlib.suppress(OSError):
            for number in range(1, 20):
                client.peer.send(frame(HEADERS, 5, 2 * number + 1, block() + b"\xbe" * 16_000))
        clients.append(client)
    assert site.page("/hello") == "Hello"
    grown = rss(site.server_pid) - before
    for client in clients:
        client.peer.close()
    assert grown < 20 << 20, f"{grown >> 20} MiB"


def test_block_without_an_end_is_under_the_deadline_of_heads() -> None:
    with native_site(header_timeout=1.0, **DRIVERS["threads"]) as site, Frames.connect(site) as client:
        client.is_hostile = True
        client.peer.send(frame(HEADERS, 0, 1, block()))
        began = time.monotonic()
        with contextlib.suppress(OSError):
            client.receive_until(lambda: client.has_closed)
        assert 0.5 < time.monotonic() - began < 10
