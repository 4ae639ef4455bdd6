"""The state of a running server: ``statistics()``, and the dump at a signal."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kirsch
from proc import wait_until
from raw import Peer, build_request
from running import own_frame
from waiting import (
    PATIENCE,
    UnaffectedClients,
    ask,
    assert_answered,
    assert_serves,
    await_inside,
    await_turns,
    connect_without_room,
    every_concurrent_driver,
    every_driver,
    flags,
    serve_waiting,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from running import Running, Serve

# Linux has one number for both.
DUMP = getattr(signal, "SIGINFO", None) or signal.SIGPWR


# statistics()


class Gated:
    """An application whose calls wait until they are let go."""

    def __init__(self) -> None:
        self.inside = threading.Semaphore(0)
        self.gate = threading.Event()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        if environ["PATH_INFO"] == "/wait":
            self.inside.release()
            assert self.gate.wait(PATIENCE)
        if environ["PATH_INFO"] == "/endless":
            return iter(lambda: b"x" * 65536, b"")
        return [b"Hello"]


@contextlib.contextmanager
def serving(server: kirsch.Server) -> Iterator[tuple[str, int]]:
    server.listen()
    thread = threading.Thread(target=server.start)
    thread.start()
    try:
        address = server.addresses[0]
        assert isinstance(address, tuple)
        yield address
    finally:
        server.stop(0)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def asked(address: tuple[str, int], target: str) -> Peer:
    peer = Peer.connect(*address, PATIENCE)
    peer.send(build_request("GET", target))
    return peer


def await_statistics(server: kirsch.Server, **wanted: int) -> None:
    """They are as of the turn before, so that they may have to be asked again."""
    with_names = wanted.items()
    wait_until(lambda: with_names <= server.statistics().items(), f"{wanted}, of {server.statistics()}")


def test_statistics_tell_where_requests_are() -> None:
    app = Gated()
    server = kirsch.Server(app, bind="127.0.0.1:0", threads=2)
    with serving(server) as address:
        await_statistics(server, requests=0, running=0, suspended=0, queued=0, connections=0)
        running = [asked(address, "/wait") for _ in range(2)]
        for _ in running:
            assert app.inside.acquire(timeout=PATIENCE)
        await_statistics(server, running=2, queued=0)
        queued = [asked(address, "/wait") for _ in range(3)]
        await_statistics(server, running=2, queued=3, connections=5)
        exchanges = server.statistics()["exchanges"]
        assert [(each["method"], each["path"], each["state"]) for each in exchanges] == [
            ("GET", "/wait", "running")
        ] * 2
        assert {re.fullmatch("kirsch-[0-9]+", each["thread"]) is not None for each in exchanges} == {True}
        for each in exchanges:
            assert 0 <= each["age"] < PATIENCE
            assert each["limit"] is None
            assert any("in __call__" in line for line in each["stack"])
            assert own_frame("\n".join(each["stack"])) is None, "the application's stack, and not ours"
        assert "exchanges" not in server.statistics(exchanges=False)
        app.gate.set()
        for peer in running + queued:
            assert_answered(peer, b"Hello")
            peer.close()
        await_statistics(server, requests=5, running=0, queued=0, connections=0, suspended=0)
        with asked(address, "/endless") as slow:
            assert slow.read_head().status == 200
            await_statistics(server, suspended=1)
        await_statistics(server, suspended=0, connections=0)
        names = {"threads", "threads_idle", "handovers", "overdue", "queue_timeouts", "left"}
        counted = server.statistics(exchanges=False)
        assert names <= counted.keys()
        assert counted["threads"] >= 2
        assert counted["handovers"] >= 1, "calls that waited have passed the engine on"
        assert all(isinstance(value, int) and value >= 0 for value in counted.values()), counted


def test_statistics_count_what_went_wrong(tmp_path: Path) -> None:
    app = Gated()
    reports: list[str] = []

    def report(level: int, message: str, error: BaseException | None) -> None:
        reports.append(message)

    server = kirsch.Server(
        app, bind="127.0.0.1:0", threads=2, queue_timeout=0.2, timeout=0.5, graceful_timeout=20.0, report=report
    )
    with serving(server) as address:
        running = [asked(address, "/wait") for _ in range(2)]
        for _ in running:
            assert app.inside.acquire(timeout=PATIENCE)
        late = asked(address, "/late")
        assert late.read_response().status == 503
        late.close()
        await_statistics(server, queue_timeouts=1, overdue=2)
        app.gate.set()
        for peer in running:
            assert peer.read_response().status == 504, "the wait is over, and so was its time"
            peer.close()
        with urllib.request.urlopen(f"{server.urls[0]}/after", timeout=PATIENCE) as response:
            assert response.read() == b"Hello"
    assert len([message for message in reports if "GET /wait" in message and "deadline of 0.5 s" in message]) == 2


# The dump


def dump(site: Running, *expected: str) -> str:
    """Returns the dump of the server at the signal, as soon as each of ``expected`` matches it."""
    log = len(site.stderr)
    site.process.send_signal(DUMP)
    for pattern in expected:
        site.wait_for(re.compile(pattern, re.MULTILINE | re.DOTALL), after=log)
    return site.stderr[log:]


def waiter(number: int = 1) -> str:
    """``number`` requests that wait for a gate, each with its age and its stack."""
    return r"GET /wait \(id \d+\): running for \d+\.\d+ s, [^\n]+\n.*\bin wait_for_gate\n.*" * number


@every_concurrent_driver
def test_a_signal_shows_what_runs(serve: Serve, driver: str, tmp_path: Path) -> None:
    site = serve_waiting(serve, *flags(driver))
    gates = [tmp_path / f"gate{number}" for number in range(2)]
    peers = [ask(site, f"/wait?{gate}") for gate in gates]
    for gate in gates:
        await_inside(site, gate)
    with connect_without_room(site) as reader:
        reader.send(build_request("GET", "/endless?reader"))
        assert reader.read_head().status == 200
        assert_serves(site)
        endless = r"GET /endless \(id \d+\): "
        wait_until(lambda: "1 suspended" in dump(site, waiter(2), endless), "the slow reader's response is suspended")
        for _ in range(2):
            said = dump(site, waiter(2), endless + r"suspended for \d")
            assert f"driver {'gevent' if driver == 'gevent' else 'threads'}: 2 running, 1 suspended, 0 queued" in said
            assert re.search(r"^counters: .*\brequests 4\b", said, re.MULTILINE)
            assert said.count("in wait_for_gate\n") == 2
    with UnaffectedClients(site) as unaffected:
        for _ in range(5):
            dump(site, waiter(2))
        unaffected.await_answers(10)
    for gate, peer in zip(gates, peers, strict=True):
        gate.touch()
        assert_answered(peer, b"waited")
        peer.close()
    assert site.stop() == 0


def test_a_signal_shows_what_waits_while_all_threads_are_stuck(serve: Serve, tmp_path: Path) -> None:
    site = serve_waiting(serve, "--threads=2")
    gate = tmp_path / "gate"
    stuck = [ask(site, f"/wait?{gate}") for _ in range(2)]
    await_inside(site, gate, 2)
    queued = [ask(site, "/hello") for _ in range(3)]
    await_turns(site)
    assert "2 running, 0 suspended, 3 queued" in dump(site, waiter(2))
    gate.touch()
    for peer in stuck:
        assert_answered(peer, b"waited")
        peer.close()
    for peer in queued:
        assert_answered(peer, b"Hello")
        peer.close()


def test_the_only_thread_shows_its_own_call(serve: Serve, tmp_path: Path) -> None:
    site = serve_waiting(serve, "--threads=1")
    gate = tmp_path / "gate"
    with ask(site, f"/wait?{gate}") as peer:
        await_inside(site, gate)
        dump(site, waiter())
        gate.touch()
        assert_answered(peer, b"waited")


@every_driver
def test_a_signal_that_finds_nothing_says_so_and_harms_nothing(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver))
    assert_serves(site)
    for _ in range(3):
        dump(site, "^no request is in the application$")
    assert_serves(site)
    assert site.stop() == 0


@every_driver
def test_signals_that_mean_something_to_gunicorn_mean_nothing_else_here(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver), "--workers=0")
    assert_serves(site)
    status = Path(f"/proc/{site.server_pid}/status").read_text(encoding="ascii")
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    assert found is not None
    caught = int(found[1], 16)
    names = [name for name in ("HUP", "USR2", "TTIN", "TTOU", "WINCH") if caught >> (_number(name) - 1) & 1]
    assert names == [], "each is left as it was, until it means what it means there"
    names = [name for name in ("TERM", "INT", "QUIT", "USR1", "PWR") if not caught >> (_number(name) - 1) & 1]
    assert names == []
    # Ignored by default, as it is by everything that is no terminal's.
    os.kill(site.server_pid, signal.SIGWINCH)
    assert_serves(site)


def _number(name: str) -> int:
    return int(getattr(signal, f"SIG{name}"))


@pytest.mark.parametrize("level", ["critical", "error"])
def test_a_dump_is_asked_for_and_so_no_level_hides_it(serve: Serve, level: str) -> None:
    site = serve_waiting(serve, "--threads=2", "--log-level", level)
    dump(site, "^no request is in the application$")
