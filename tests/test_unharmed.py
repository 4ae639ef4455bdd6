"""A failing request harms no other: each of these runs among clients that are unaffected, all of
whose answers are looked at."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING

import pytest

from proc import wait_until
from raw import Peer, PeerClosed, build_request
from waiting import (
    HERE,
    UnaffectedClients,
    ask,
    assert_answered,
    assert_serves,
    await_inside,
    connect,
    connect_without_room,
    every_concurrent_driver,
    every_driver,
    flags,
    get_json,
    refuses,
    serve_waiting,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve


@every_concurrent_driver
def test_a_call_that_never_returns(serve: Serve, driver: str, tmp_path: Path) -> None:
    """It has no answer until its server ends, and holds its own thread only; the end waits for it as long as it may."""
    site = serve_waiting(serve, *flags(driver), "--graceful-timeout=300ms")
    never = tmp_path / "never"
    with ask(site, f"/wait?{never}") as stuck:
        await_inside(site, never)
        with UnaffectedClients(site) as unaffected:
            unaffected.await_answers(100)
            assert not select.select([stuck.sock], [], [], 0)[0]
        assert_serves(site)
        # Threads cannot be ended, so the process says that it has to end under one; greenlets can.
        assert site.stop() == (1 if driver == "threads" else 0)
        assert b"waited" not in stuck.read_until_closed()


@every_driver
def test_a_generator_that_raises_midway(serve: Serve, driver: str) -> None:
    """Its client sees a cut, its close() is called, its traceback is logged once."""
    site = serve_waiting(serve, *flags(driver))
    with UnaffectedClients(site) as unaffected:
        for number in range(20):
            with ask(site, f"/raises_midway?{number}") as peer:
                response = peer.read_response()
                assert (response.status, response.body, response.complete) == (200, b"one block", False)
        unaffected.await_answers(10)
    for number in range(20):
        site.wait_for(f"^closed {number}$")
    assert site.stop() == 0
    assert site.stderr.count("LookupError: after one block\n") == 20
    assert set(_closed_counts(site)) == {1}


def _closed_counts(site: Running) -> list[int]:
    lines = [line for line in site.stderr.splitlines() if line.startswith("closed ")]
    return [lines.count(line) for line in lines]


@every_driver
def test_an_application_that_responds_from_another_thread(serve: Serve, driver: str) -> None:
    """While its call lasts that is as good as from its own; afterwards it raises there, and reaches no client."""
    site = serve_waiting(serve, *flags(driver))
    with UnaffectedClients(site) as unaffected, connect(site) as peer:
        for _ in range(20):
            peer.send(build_request("GET", "/thread_responds"))
            assert_answered(peer, b"written, returned")
            peer.send(build_request("GET", "/thread_keeps") + build_request("GET", "/thread_is_late"))
            assert_answered(peer, b"kept")
            assert_answered(peer, b'["RuntimeError", "RuntimeError"]')
        unaffected.await_answers(10)


@every_concurrent_driver
@pytest.mark.parametrize("released", [True, False])
@pytest.mark.slow
def test_term_with_half_of_the_requests_blocked(serve: Serve, driver: str, released: bool, tmp_path: Path) -> None:
    """The others are answered in any case; these are if they come to their end in time, and are cut if not."""
    site = serve_waiting(serve, *flags(driver), "--graceful-timeout", "20s" if released else "1s")
    gate = tmp_path / "gate"
    blocked = [ask(site, f"/wait?{gate}") for _ in range(2)]
    await_inside(site, gate, 2)
    arriving = [connect(site) for _ in range(2)]
    for peer in arriving:
        # A first one, so that their connections are known to be accepted.
        peer.send(build_request("GET", "/hello"))
        assert_answered(peer, b"Hello")
        peer.send(build_request("POST", "/echo", headers={"Content-Length": "8"}) + b"half")
    with UnaffectedClients(site) as unaffected:
        unaffected.may_end = True
        site.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refuses(site), "new connections are refused")
        for peer in arriving:
            peer.send(b"half")
            assert_answered(peer, b"halfhalf")
            assert peer.read_until_closed() == b""
            peer.close()
        if released:
            gate.touch()
            for peer in blocked:
                assert_answered(peer, b"waited")
        status = site.process.wait(15)
    if released:
        assert status == 0
    else:
        assert status == (1 if driver == "threads" else 0)
        for peer in blocked:
            with pytest.raises(PeerClosed):
                peer.read_response()
    for peer in blocked:
        peer.close()
    site.stop()


REPORTS_SLOWLY = """
import logging, os
from waiting_app import app as waiting, say, wait_for_gate

class Slow(logging.Handler):
    def emit(self, record):
        if record.levelno < logging.ERROR:
            return
        say("reporting")
        wait_for_gate(os.environ["GATE"])
        say("reported")

logging.getLogger("kirsch").addHandler(Slow())

def app(environ, start_response):
    if environ["PATH_INFO"] == "/raises":
        raise LookupError("reported slowly")
    return waiting(environ, start_response)
"""


@every_driver
@pytest.mark.slow
def test_term_while_a_failure_is_being_reported(
    serve: Serve, write_app: Callable[[str], str], driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is over, and what is left to do for it is done: it is no call that does not return."""
    monkeypatch.setenv("PYTHONPATH", HERE, prepend=os.pathsep)
    gate = tmp_path / "gate"
    site = serve(write_app(REPORTS_SLOWLY), *flags(driver), env={"GATE": str(gate)})
    with ask(site, "/raises") as peer:
        site.wait_for("^reporting$")
        site.process.send_signal(signal.SIGTERM)
        # In the only thread the signal is seen when the report is through.
        if driver != "one thread":
            wait_until(lambda: refuses(site), "new connections are refused")
        gate.touch()
        assert peer.read_response().status == 500
        assert site.process.wait(10) == 0
    site.stop()
    assert site.stderr.count("reported\n") == 1


@every_driver
@pytest.mark.parametrize("page", ["large?200", "write_large?200"])
def test_a_client_that_reads_one_byte_now_and_then(serve: Serve, driver: str, page: str) -> None:
    """It delays no other client, and is aborted at its deadline."""
    site = serve_waiting(serve, *flags(driver), "--write-timeout=700ms")
    with connect_without_room(site) as slow:
        slow.send(build_request("GET", f"/{page}&slow"))
        assert slow.sock.recv(1) == b"H"
        with UnaffectedClients(site) as unaffected:
            deadline = time.monotonic() + 10
            while not _is_reset(slow):
                assert time.monotonic() < deadline, "the server puts up with it"
                assert len(slow.sock.recv(1)) == 1
                unaffected.await_answers(1)
    site.wait_for("^closed slow$" if page.startswith("large") else "^write is over slow$")
    assert_serves(site)


def _is_reset(peer: Peer) -> bool:
    """Return whether the server has cut it; what the kernel had received before is still there to be read."""
    poll = select.poll()
    poll.register(peer.sock, select.POLLIN)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


@every_driver
@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("farewell", ["stands still", "close", "abort"])
@pytest.mark.slow
def test_a_body_that_stops_halfway(serve: Serve, driver: str, buffering: str, farewell: str) -> None:
    """Buffered, it never reaches the application; else read() raises. A client that still reads gets 408."""
    site = serve_waiting(serve, *flags(driver), "--body-timeout=300ms", f"--request-buffering={buffering}")
    if driver == "one thread" and buffering == "off":
        # There, reading a body that does not arrive blocks all requests, so no other client is watched.
        _stop_halfway(site, buffering, farewell)
    else:
        with UnaffectedClients(site) as unaffected:
            for _ in range(3):
                _stop_halfway(site, buffering, farewell)
            unaffected.await_answers(10)
    assert_serves(site)
    journal = get_json(site, "/records")["journal"]
    assert ("/sip?4" in journal) is (buffering == "off")
    assert site.stop() == 0


def _stop_halfway(site: Running, buffering: str, farewell: str) -> None:
    log = len(site.stderr)
    with connect(site) as peer:
        peer.send(build_request("POST", "/sip?4", headers={"Content-Length": "1000"}) + b"half")
        if buffering == "off":
            site.wait_for("^sipped half$", after=log)
        if farewell == "stands still":
            response = peer.read_response()
            assert (response.status, response.header("Connection")) == (408, "close")
            assert peer.read_until_closed() == b""
        else:
            getattr(peer, farewell)()
