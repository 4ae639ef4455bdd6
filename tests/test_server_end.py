"""The end of the server: what SIGTERM, SIGINT and SIGQUIT let finish, and what they cut."""

from __future__ import annotations

import re
import select
import signal
import socket
import time
from typing import TYPE_CHECKING

import pytest

from limits_site import APP, assert_serves, connect, connect_without_room
from proc import (
    wait_until,
)
from raw import build_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve


def assert_ends(site: Running, within: float = 10.0) -> None:
    """It ends by itself, that is by the one signal that it got before, and well."""
    assert site.process.wait(within) == 0, site.stderr
    site.stop()


def refuses(site: Running) -> bool:
    try:
        socket.create_connection((site.host, site.port), timeout=5).close()
    except OSError:
        return True
    return False


@pytest.mark.parametrize("part", ["head", "body"])
def test_term_lets_a_request_arrive_and_be_answered(serve: Serve, write_app: Callable[[str], str], part: str) -> None:
    site = serve(write_app(APP))
    request = build_request("POST", "/", body=b"x" * 100)
    cut = 20 if part == "head" else len(request) - 50
    with connect(site) as peer:
        # A first request, so that the connection is known to be accepted.
        peer.send(build_request("GET", "/"))
        peer.read_response()
        peer.send(request[:cut])
        assert_serves(site)
        site.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refuses(site), "new connections are refused")
        peer.send(request[cut:])
        response = peer.read_response()
        assert (response.status, response.body) == (200, b"100 bytes")
        assert response.header("Connection") == "close", "no further request may be sent on it"
        assert peer.read_until_closed() == b""
        assert not peer.reset
    assert_ends(site)


def test_term_lets_a_call_return(serve: Serve, write_app: Callable[[str], str], tmp_path: Path) -> None:
    site = serve(write_app(APP))
    gate = tmp_path / "gate"
    with connect(site) as peer:
        peer.send(build_request("GET", f"/wait?{gate}"))
        site.wait_for(f"^waiting for {re.escape(str(gate))}$")
        site.process.send_signal(signal.SIGTERM)
        # Longer than the server gives idle connections: it must tell this one from them.
        assert not select.select([peer.sock], [], [], 1.0)[0]
        gate.touch()
        response = peer.read_response()
        assert (response.status, response.body) == (200, b"0 bytes")
        assert response.header("Connection") == "close", "no further request may be sent on it"
        assert peer.read_until_closed() == b""
        assert not peer.reset
    assert_ends(site)


def test_term_lets_a_response_finish(serve: Serve, write_app: Callable[[str], str], tmp_path: Path) -> None:
    site = serve(write_app(APP))
    gate = tmp_path / "gate"
    with connect(site) as peer, connect_without_room(site) as slow:
        peer.send(build_request("GET", f"/stream?{gate}"))
        assert peer.read_head().status == 200
        assert peer.read_chunk() == b"begun "
        slow.send(build_request("GET", f"/stream?{gate}"))
        slow.read_head()
        site.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refuses(site), "new connections are refused")
        gate.touch()
        assert peer.read_chunk() == b"ended"
        assert peer.read_chunk() == b""
        assert peer.read_until_closed() == b""
        assert slow.read_until_closed().endswith(b"ended\r\n0\r\n\r\n")
    assert_ends(site)


def test_term_closes_idle_connections(serve: Serve, write_app: Callable[[str], str]) -> None:
    site = serve(write_app(APP))
    idle, fresh = connect(site), connect(site)
    idle.send(build_request("GET", "/"))
    idle.read_response()
    assert_serves(site)
    began = time.monotonic()
    site.process.send_signal(signal.SIGTERM)
    for peer in (idle, fresh):
        assert peer.read_until_closed() == b""
        assert not peer.reset
        peer.close()
    assert_ends(site)
    assert time.monotonic() - began < 5, "far sooner than the graceful timeout"


def test_term_answers_who_was_just_about_to_ask(serve: Serve, write_app: Callable[[str], str]) -> None:
    """A request on its way to an idle connection, and one of a client that the kernel had already let in."""
    site = serve(write_app(APP))
    with connect(site) as idle:
        idle.send(build_request("GET", "/"))
        idle.read_response()
        site.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refuses(site), "new connections are refused")
        idle.send(build_request("GET", "/"))
        response = idle.read_response()
        assert (response.status, response.header("Connection")) == (200, "close")
    assert_ends(site)


def test_half_sent_head_does_not_hold_up_a_stop(serve: Serve, write_app: Callable[[str], str]) -> None:
    """It is not a request in flight: it has as long as an idle connection, and gets a response that says it was not
    processed."""
    site = serve(write_app(APP), "--graceful-timeout=120s", "--header-timeout=120s")
    with connect(site) as fresh, connect(site) as kept:
        kept.send(build_request("GET", "/"))
        kept.read_response()
        for peer in (fresh, kept):
            peer.send(b"GET / HTTP/1.1\r\nHost: a\r\nX-Half: ")
        assert_serves(site)
        began = time.monotonic()
        site.process.send_signal(signal.SIGTERM)
        for peer in (fresh, kept):
            response = peer.read_response()
            assert (response.status, response.header("Connection")) == (408, "close")
            assert peer.read_until_closed() == b""
            assert not peer.reset
            peer.close()
        assert_ends(site)
        assert time.monotonic() - began < 30, "far sooner than both time limits"


@pytest.mark.parametrize("kind", ["upload", "download", "head"])
def test_term_cuts_what_outlasts_the_graceful_timeout(serve: Serve, write_app: Callable[[str], str], kind: str) -> None:
    site = serve(write_app(APP), "--graceful-timeout=300ms")
    with connect_without_room(site) as peer:
        if kind == "upload":
            peer.send(build_request("POST", "/", headers={"Content-Length": "100"}) + b"half")
        elif kind == "head":
            peer.send(b"GET / HTTP/1.1\r\n")
        else:
            peer.send(build_request("GET", "/endless"))
            peer.read_head()
        assert_serves(site)
        began = time.monotonic()
        assert site.stop() == 0
        assert 0.25 < time.monotonic() - began < 5
        if kind == "download":
            rest = peer.read_until_closed()
            assert not rest.endswith(b"\r\n0\r\n\r\n"), "a last chunk would say that this was all"
            site.wait_for("^closed$")
        else:
            peer.read_until_closed()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_int_is_fast(serve: Serve, write_app: Callable[[str], str], number: signal.Signals) -> None:
    site = serve(write_app(APP), "--graceful-timeout=60s")
    with connect_without_room(site) as peer:
        peer.send(build_request("GET", "/endless"))
        peer.read_head()
        began = time.monotonic()
        assert site.stop(number) == 0
        assert time.monotonic() - began < 5
    assert site.stderr.count("closed") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_without_number_end_it_as_well_as_one(
    serve: Serve, write_app: Callable[[str], str], number: signal.Signals
) -> None:
    """Also those that come when serving is over and the process is about to end."""
    site = serve(write_app(APP))
    assert_serves(site)
    deadline = time.monotonic() + 10
    while site.process.poll() is None:
        assert time.monotonic() < deadline
        site.process.send_signal(number)
        time.sleep(0.001)
    assert site.process.returncode == 0
    site.stop()
    assert "Traceback" not in site.stderr
