"""A server that is about to go: it drains, and at its end waits for idle connections to ask once more."""

from __future__ import annotations

import signal
import time

import pytest

from kirsch import _native
from kirsch.config.native import NativeConfig
from native_site import DRIVERS, every_driver, native_site
from proc import wait_until
from raw import Peer, build_request

PATIENCE = 20.0
HELLO = build_request("GET", "/hello")


@every_driver
def test_draining_server_serves_on_and_sends_connection_close(driver: str) -> None:
    with native_site(**DRIVERS[driver]) as site:
        idle, other = (Peer.connect(site.host, site.port, PATIENCE) for _ in range(2))
        for peer in (idle, other):
            peer.send(HELLO)
            assert peer.read_response().header("Connection") is None
        site.process.send_signal(signal.SIGUSR2)

        def is_told_to_go() -> bool:
            with Peer.connect(site.host, site.port, PATIENCE) as new:
                new.send(HELLO)
                response = new.read_response()
                assert response.body == b"Hello"
                return response.header("Connection") == "close" and new.read_until_closed() == b""

        wait_until(is_told_to_go, "it drains")
        # Idle connections stay until their next request.
        for peer in (idle, other):
            peer.send(HELLO)
            assert peer.read_response().header("Connection") == "close"
            assert peer.read_until_closed() == b""
            peer.close()
        assert site.process.poll() is None
        assert site.stop(signal.SIGTERM) == 0


@every_driver
def test_an_idle_connection_may_ask_once_more(driver: str) -> None:
    options = DRIVERS[driver] | {"stop": {"graceful_timeout": 15.0, "idle_timeout": 10.0}}
    with native_site(**options) as site:
        peers = [Peer.connect(site.host, site.port, PATIENCE) for _ in range(3)]
        for peer in peers:
            peer.send(HELLO)
            assert peer.read_response().status == 200
        site.process.send_signal(signal.SIGTERM)

        def refuses() -> bool:
            try:
                Peer.connect(site.host, site.port, PATIENCE).close()
            except OSError:
                return True
            return False

        wait_until(refuses, "the listener is closed")
        # Longer than the usual half second, within which all would have been closed.
        until = time.monotonic() + 0.8
        wait_until(lambda: time.monotonic() > until, "some time has passed")
        for peer in peers:
            peer.send(HELLO)
            response = peer.read_response()
            assert (response.body, response.header("Connection")) == (b"Hello", "close")
            peer.close()
        # With the last of them it ends, not with the time that it has.
        assert site.process.wait(8) == 0


def test_the_time_for_idle_connections_ends_with_the_time_for_all() -> None:
    options = DRIVERS["threads"] | {"stop": {"graceful_timeout": 0.3, "idle_timeout": 3600.0}}
    with native_site(**options) as site, Peer.connect(site.host, site.port, PATIENCE) as idle:
        idle.send(HELLO)
        assert idle.read_response().status == 200
        assert site.stop(signal.SIGTERM) == 0
        assert (idle.read_until_closed(), idle.reset) == (b"", False)


def test_times_that_are_none_are_refused() -> None:
    server = _native.NativeServer(lambda *_: [], [], NativeConfig())
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="graceful_timeout: "):
            server.stop(wrong)
        with pytest.raises(ValueError, match="idle_timeout: "):
            server.stop(1.0, wrong)
