"""Time limits and minimum rates of clients, and what happens at each: 408, a cut response, a closed connection."""

from __future__ import annotations

import select
import threading
import time
from typing import TYPE_CHECKING

import pytest

from limits_site import APP, assert_serves, connect, connect_without_room
from proc import (
    files_without_name,
    wait_until,
)
from raw import Peer, build_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Running, Serve


HASTY = ("--header-timeout=300ms", "--body-timeout=300ms", "--keep-alive=300ms", "--write-timeout=300ms")


@pytest.fixture
def hasty(serve: Serve, write_app: Callable[[str], str]) -> Running:
    return serve(write_app(APP), *HASTY)


def test_a_client_that_says_nothing_is_let_go(hasty: Running) -> None:
    began = time.monotonic()
    with connect(hasty) as peer:
        assert peer.read_until_closed() == b""
        assert not peer.reset
    assert time.monotonic() - began > 0.25
    assert_serves(hasty)


@pytest.mark.parametrize("part", [b"G", b"GET / HTTP/1.1\r\nHost: a\r\nX-Half: "])
def test_a_head_that_stands_still_is_answered_408(hasty: Running, part: bytes) -> None:
    with connect(hasty) as peer:
        peer.send(part)
        assert_serves(hasty)
        response = peer.read_response()
        assert (response.status, response.header("Connection")) == (408, "close")
        assert peer.read_until_closed() == b""


def trickle(peer: Peer, piece: bytes, every: float, at_most: float = 15.0) -> float:
    """Send ``piece`` at intervals until the server answers or closes; the seconds that it took."""
    began = time.monotonic()
    while not select.select([peer.sock], [], [], every)[0]:
        assert time.monotonic() - began < at_most, "the server puts up with it"
        peer.offer(piece)
    return time.monotonic() - began


def test_a_head_that_trickles_is_answered_408(hasty: Running) -> None:
    with connect(hasty) as peer:
        peer.send(b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        assert trickle(peer, b"x", every=0.02) > 0.25
        assert peer.read_response().status == 408
    assert_serves(hasty)


def test_a_second_head_has_its_own_time(hasty: Running) -> None:
    with connect(hasty) as peer:
        peer.send(build_request("GET", "/") + b"GET / HT")
        assert peer.read_response().status == 200
        assert peer.read_response().status == 408


@pytest.mark.parametrize("framing", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_a_body_that_stands_still_is_answered_408(hasty: Running, framing: str) -> None:
    with connect(hasty) as peer:
        peer.send(f"POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n".encode())
        assert_serves(hasty)
        response = peer.read_response()
        assert (response.status, response.header("Connection")) == (408, "close")
        assert peer.read_until_closed() == b""


def test_a_body_that_moves_may_take_its_time(hasty: Running) -> None:
    with connect(hasty) as peer:
        peer.send(build_request("POST", "/", headers={"Content-Length": "20000"}))
        for _ in range(20):
            # Twenty times 50 ms: three times the limit on standing still.
            assert not select.select([peer.sock], [], [], 0.05)[0]
            peer.send(b"x" * 1000)
        assert peer.read_response().body == b"20000 bytes"


def test_an_idle_connection_is_closed_without_a_word(hasty: Running) -> None:
    with connect(hasty) as peer:
        for _ in range(2):
            peer.send(build_request("GET", "/"))
            assert peer.read_response().status == 200
        began = time.monotonic()
        assert_serves(hasty)
        assert peer.read_until_closed() == b""
        assert not peer.reset
        assert time.monotonic() - began > 0.25


def test_a_client_that_does_not_read_is_cut(hasty: Running) -> None:
    with connect_without_room(hasty) as peer:
        peer.send(build_request("GET", "/endless"))
        assert_serves(hasty)
        hasty.wait_for("^closed$")
        response = peer.read_response()
        assert not response.complete
        assert peer.reset
    assert_serves(hasty)
    assert hasty.stderr.count("closed") == 1


def test_write_to_a_client_that_does_not_read_is_cut(serve: Serve, write_app: Callable[[str], str]) -> None:
    """With one thread, the call returns; what it wrote waits in a file for as long as the write timeout."""
    site = serve(write_app(APP), *HASTY, "--threads=1")
    with connect_without_room(site) as peer:
        peer.send(build_request("GET", "/write"))
        wait_until(lambda: files_without_name(site.server_pid) > 0, "what was not read is in a file")
        assert_serves(site)
        wait_until(lambda: files_without_name(site.server_pid) == 0, "the file of what was not read is gone")
        assert not peer.read_response().complete


def test_write_to_a_slow_client_does_not_keep_the_others_waiting(serve: Serve, write_app: Callable[[str], str]) -> None:
    """It always reads a little, so that no timeout ends it: 64 MB at 1 MB a second."""
    site = serve(write_app(APP), "--write-timeout=10s")
    answered = threading.Event()

    def ask() -> None:
        assert_serves(site, within=20)
        answered.set()

    with connect_without_room(site) as peer:
        peer.send(build_request("GET", "/write"))
        peer.read_head()
        asking = threading.Thread(target=ask)
        asking.start()
        deadline = time.monotonic() + 5
        while not answered.wait(0.016) and time.monotonic() < deadline:
            peer.sock.recv(16384)
        was_answered = answered.is_set()
    asking.join()
    assert was_answered, "another client had to wait until this one had gone"


def test_write_to_a_client_that_has_gone_ends(hasty: Running) -> None:
    peer = connect_without_room(hasty)
    peer.send(build_request("GET", "/write"))
    peer.read_head()
    peer.abort()
    assert_serves(hasty)


def test_a_body_below_the_minimum_rate_is_answered_408(serve: Serve, write_app: Callable[[str], str]) -> None:
    """It never stands still, so that only its average ends it."""
    site = serve(write_app(APP), "--body-timeout=300ms", "--min-rate=10000")
    with connect(site) as peer:
        peer.send(build_request("POST", "/", headers={"Content-Length": "100000"}))
        assert 0.25 < trickle(peer, b"x", every=0.02) < 5
        assert peer.read_response().status == 408
    # The time without a byte is the rate's grace too: a body that is fast on average is let through.
    with connect(site) as peer:
        peer.send(build_request("POST", "/", headers={"Content-Length": "100000"}))
        for _ in range(10):
            assert not select.select([peer.sock], [], [], 0.05)[0]
            peer.send(b"x" * 10_000)
        assert peer.read_response().body == b"100000 bytes"


def test_a_response_below_the_minimum_rate_is_cut(serve: Serve, write_app: Callable[[str], str]) -> None:
    site = serve(write_app(APP), "--write-timeout=300ms", "--min-rate=1000000000")
    with connect_without_room(site) as peer:
        peer.send(build_request("GET", "/endless"))
        deadline = time.monotonic() + 15
        try:
            while data := peer.sock.recv(16384):
                assert data
                assert time.monotonic() < deadline, "the server puts up with it"
                time.sleep(0.005)  # the pace of the reader, some 3 MB a second
        except ConnectionResetError:
            pass
    site.wait_for("^closed$")
    assert_serves(site)


def test_without_a_rate_a_trickle_is_put_up_with(serve: Serve, write_app: Callable[[str], str]) -> None:
    site = serve(write_app(APP), "--body-timeout=300ms", "--min-rate=0")
    with connect(site) as peer:
        peer.send(build_request("POST", "/", headers={"Content-Length": "40"}))
        for _ in range(40):
            assert not select.select([peer.sock], [], [], 0.02)[0]
            peer.send(b"x")
        assert peer.read_response().body == b"40 bytes"
