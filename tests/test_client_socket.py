"""WSGI applications that take a connection over and speak to the client by themselves: ``werkzeug.socket``."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from typing import TYPE_CHECKING

import pytest

from proc import wait_until
from raw import Peer, build_request
from test_websocket import HANDSHAKE, frame

if TYPE_CHECKING:
    from running import Running, Serve

HERE = os.path.dirname(__file__)
DRIVERS = [("--threads", "4"), ("--threads", "1"), ("--driver", "gevent")]
CONCURRENT = [driver for driver in DRIVERS if driver[1] != "1"]
METRICS = ("--metrics-bind", "127.0.0.1:0")


def serve_app(serve: Serve, *args: str) -> Running:
    return serve("client_socket_app:app", *args, cwd=HERE)


def ask(site: Running, path: str, behind: bytes = b"") -> Peer:
    peer = Peer.connect(site.host, site.port, timeout=20)
    peer.send(build_request("GET", path, headers=HANDSHAKE) + behind)
    return peer


def opened(site: Running, path: str) -> Peer:
    peer = ask(site, path)
    assert peer.read_head().status == 101
    return peer


@pytest.mark.parametrize("driver", DRIVERS, ids=" ".join)
@pytest.mark.parametrize("path", ["/echo", "/echo-by-select"])
def test_application_speaks_to_its_client_by_itself(serve: Serve, driver: tuple[str, str], path: str) -> None:
    site = serve_app(serve, *driver, "--access-logfile", "-")
    request = build_request("GET", "/hello")
    with opened(site, path) as peer:
        # Bytes that look like a request are not read as one.
        for data in (b"one", request, b"\x00" * 200_000):
            peer.send(data)
            assert peer.read_exactly(len(data)) == data
        if driver[1] != "1":
            assert site.page() == "None"
        peer.end_sending()
        assert peer.read_until_closed() == b""
    site.wait_for_output(rf'"GET {path} HTTP/1.1" 101 -')
    assert site.page() == "None"
    assert "Traceback" not in site.stderr


def test_request_whose_socket_is_not_used_is_an_ordinary_one(serve: Serve) -> None:
    site = serve_app(serve)
    with Peer.connect(site.host, site.port, timeout=20) as peer:
        for _ in range(2):
            peer.send(build_request("GET", "/", headers=HANDSHAKE))
            response = peer.read_response("GET")
            assert response.body == b"<ClientSocket of a connection that is not taken over>"
        peer.send(build_request("GET", "/late"))
        assert peer.read_response("GET").body.startswith(b"the connection cannot be taken over: ")
        for headers in ({}, {"Connection": "Upgrade", "Upgrade": "other"}):
            peer.send(build_request("GET", "/", headers=headers))
            assert peer.read_response("GET").body == b"None"
        # The same connection can still be taken over.
        peer.send(build_request("GET", "/echo", headers=HANDSHAKE))
        assert peer.read_head().status == 101
        peer.send(b"hello")
        assert peer.read_exactly(5) == b"hello"


def test_connection_ends_with_a_handshake_of_an_old_version(serve: Serve) -> None:
    site = serve_app(serve)
    with Peer.connect(site.host, site.port, timeout=20) as peer:
        peer.send(build_request("GET", "/", headers=HANDSHAKE | {"Sec-WebSocket-Version": "8"}))
        assert peer.read_response("GET").body == b"None"
        assert peer.read_until_closed() == b""


@pytest.mark.parametrize("driver", DRIVERS, ids=" ".join)
def test_response_is_not_sent_after_the_connection_was_taken_over(serve: Serve, driver: tuple[str, str]) -> None:
    site = serve_app(serve, *driver)
    for path in ("/answers", "/yields"):
        with opened(site, path) as peer:
            assert peer.read_until_closed() == b"mine"
        site.wait_for(rf"the response of the application on GET {path} is ignored, because it has taken the connection")
    with opened(site, "/raises") as peer:
        assert peer.read_until_closed() == b""
    site.wait_for("ValueError: raised after taking over")
    with opened(site, "/fails") as peer:
        assert peer.read_until_closed() == b""
    site.wait_for("the application answered 500 on GET /fails after it had taken the connection over, which is closed")
    with opened(site, "/drops") as peer:
        assert peer.read_until_closed() == b"bye"
    assert site.page() == "None"


def test_connection_is_not_taken_over_twice_nor_in_the_middle(serve: Serve) -> None:
    site = serve_app(serve)
    with ask(site, "/begins-before") as peer:
        assert peer.read_response("GET").body == b"begun..."
    site.wait_for("refused: the connection cannot be taken over")
    with ask(site, "/accepts-before") as peer:
        assert peer.read_head().status == 101
        assert peer.read_exactly(4) == b"\x88\x02\x03\xe8"
    site.wait_for("(?s)refused: the connection.*refused: the connection")
    with opened(site, "/accepts-after") as peer:
        assert peer.read_until_closed() == b"False"
    site.wait_for("refused: the request is answered already")
    # Two readers could read bytes sent before the answer to the handshake: the request is an ordinary one.
    with ask(site, "/early", frame(1, b"early")) as peer:
        response = peer.read_response("GET")
    assert response.body.startswith(
        b"the connection cannot be taken over: the client has sent more before its handshake"
    )


@pytest.mark.parametrize("driver", CONCURRENT, ids=" ".join)
def test_socket_may_outlive_the_call_and_ends_the_connection(serve: Serve, driver: tuple[str, str]) -> None:
    site = serve_app(serve, *driver, *METRICS, "--access-logfile", "-")
    address = site.wait_for(r"metrics on http://(\S+)", timeout=20).group(1)

    def websockets() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
            found = re.search(r"^kirsch_websockets (\S+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None
        return found.group(1)

    with opened(site, "/outlives") as peer:
        site.wait_for_output(r'"GET /outlives HTTP/1.1" 101 -')  # the call is over
        wait_until(lambda: websockets() == "1", "it is counted", 20)
        peer.send(b"still there?")
        assert peer.read_exactly(12) == b"still there?"
        peer.send(b"end")
        assert peer.read_until_closed() == b"the end"
    wait_until(lambda: websockets() == "0", "it is counted no more", 20)
    with opened(site, "/closes") as peer:
        assert peer.read_until_closed() == b"bye"
    site.wait_for("ended: True")


@pytest.mark.parametrize("driver", CONCURRENT, ids=" ".join)
def test_blocks_of_several_threads_are_sent_whole(serve: Serve, driver: tuple[str, str]) -> None:
    site = serve_app(serve, *driver)
    with opened(site, "/floods") as peer:
        got = peer.read_until_closed()
    blocks = [got[at : at + 300_000] for at in range(0, len(got), 300_000)]
    assert sorted(block[:1] for block in blocks) == [b"a"] * 5 + [b"b"] * 5 + [b"c"] * 5
    assert all(len(set(block)) == 1 for block in blocks)
    site.wait_for("sent 4500000")


@pytest.mark.parametrize("driver", CONCURRENT, ids=" ".join)
def test_reload_and_stop_wait_for_connections_that_were_taken_over(serve: Serve, driver: tuple[str, str]) -> None:
    site = serve_app(serve, *driver)
    (before,) = site.worker_pids()
    with opened(site, "/echo") as peer:
        site.send(signal.SIGHUP)
        wait_until(lambda: site.page("/pid") != str(before), "another worker serves", 20)
        peer.send(b"still there?")
        assert peer.read_exactly(12) == b"still there?"
    site.wait_for("the client has ended")
    site.wait_for_workers(1, without=[before], timeout=20)
    with opened(site, "/echo") as peer:
        site.send(signal.SIGTERM)
        peer.send(b"still there?")
        assert peer.read_exactly(12) == b"still there?"
        peer.end_sending()
        assert peer.read_until_closed() == b""
    assert site.process.wait(20) == 0


@pytest.mark.parametrize("driver", CONCURRENT, ids=" ".join)
def test_stop_cuts_connections_that_were_taken_over_when_its_time_is_up(serve: Serve, driver: tuple[str, str]) -> None:
    site = serve_app(serve, *driver, "--graceful-timeout", "0.5")
    with opened(site, "/echo") as peer:
        site.send(signal.SIGTERM)
        assert peer.read_until_closed() == b""
        if "gevent" not in driver:
            # The application reads the end, and returns. A greenlet is ended by its driver.
            site.wait_for("the client has ended", timeout=20)
        assert site.process.wait(20) == 0
    assert "Traceback" not in site.stderr


def test_no_deadline_applies_to_a_connection_that_was_taken_over(serve: Serve) -> None:
    site = serve_app(serve, "--timeout", "0.5")
    with opened(site, "/echo") as peer, ask(site, "/waits") as late:
        assert late.read_response("GET").status == 504
        peer.send(b"still there?")
        assert peer.read_exactly(12) == b"still there?"


def test_clients_that_vanish_leave_nothing(serve: Serve) -> None:
    site = serve_app(serve, *METRICS)
    address = site.wait_for(r"metrics on http://(\S+)", timeout=20).group(1)

    def gauge(name: str) -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
            found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None, name
        return found.group(1)

    descriptors = len(os.listdir(f"/proc/{site.worker_pids()[0]}/fd"))
    for _ in range(30):
        peer = opened(site, "/echo")
        peer.send(b"x")
        peer.abort()
    wait_until(lambda: gauge("kirsch_websockets") == "0", "all are gone", 20)
    wait_until(lambda: len(os.listdir(f"/proc/{site.worker_pids()[0]}/fd")) <= descriptors + 2, "all is closed", 20)
    # recv raises ConnectionResetError, or the send BrokenPipeError: the client has left, which is no fault.
    assert "Traceback" not in site.stderr
