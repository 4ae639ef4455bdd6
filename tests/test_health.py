"""The health path: answered by the engine while threads are busy or stuck, or a call holds the GIL."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from interpreter import needs_lock
from kirsch import _native
from kirsch.config.native import NativeConfig
from native_site import DRIVERS, Board, Fifo, every_driver, native_site
from proc import wait_until
from raw import Peer, Response, build_request, exchange
from waiting import UnaffectedClients

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

PATIENCE = 20.0


def check(site: Running, target: str = "/healthz", method: str = "GET") -> Response:
    with Peer.connect(site.host, site.port, PATIENCE) as peer:
        peer.send(build_request(method, target))
        response = peer.read_response(method)
        assert peer.read_until_closed() == b""
    assert response.header("Content-Type") == "application/json"
    assert response.header("Cache-Control") == "no-store"
    assert response.header("Connection") == "close"
    assert (response.header("Retry-After") is not None) == (response.status == 503)
    return response


def status(site: Running) -> tuple[int, str]:
    response = check(site)
    return response.status, json.loads(response.body)["status"]


def ask(site: Running, target: str) -> Peer:
    peer = Peer.connect(site.host, site.port, PATIENCE)
    peer.send(build_request("GET", target))
    return peer


@every_driver
def test_the_engine_answers_and_counts_by_itself(driver: str, tmp_path: Path) -> None:
    board = Board(tmp_path)
    log = tmp_path / "access.log"
    options: dict[str, Any] = DRIVERS[driver] | {"scoreboard": board.path, "access_logfile": str(log)}
    with native_site(health_path="/healthz", **options) as site:
        response = check(site)
        assert response.status == 200
        assert json.loads(response.body) == {"status": "alive", "running": 0, "queued": 0, "connections": 1}
        assert json.loads(check(site, "/healthz?full").body)["status"] == "alive"
        head = check(site, method="HEAD")
        assert (head.body, head.header("Content-Length")) == (b"", str(len(response.body)))
        for method, target in (("POST", "/healthz"), ("GET", "/healthz/"), ("GET", "/health")):
            # The application knows no such page.
            asked = exchange(site.host, site.port, build_request(method, target), timeout=PATIENCE)
            assert asked.status == 500
        wanted = {"health_checks": 3, "requests": 3, "accepted": 6, "status_2xx": 0, "status_5xx": 3, "connections": 0}
        wait_until(lambda: wanted.items() <= board.all().items(), f"{wanted}, of {board.all()}")
        site.stop(signal.SIGTERM)
    assert "healthz HTTP" in log.read_text()
    assert '"GET /healthz HTTP' not in log.read_text()


def test_it_answers_while_all_threads_wait_and_the_queue_is_full(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with native_site(health_path="/healthz", driver="threads", threads=2, queue=1) as site:
        peers = [ask(site, f"/wait?{gate}") for _ in range(8)]
        for _ in range(2):
            site.wait_for(f"waiting for {gate}")
        wait_until(lambda: json.loads(check(site).body)["queued"] == 1, "the queue is full")
        for _ in range(3):
            report = json.loads(check(site).body)
            assert (report["status"], report["running"], report["queued"]) == ("saturated", 2, 1)
        gate.touch()
        for peer in peers:
            assert peer.read_response().body == b"waited"
            peer.close()
        wait_until(lambda: status(site) == (200, "alive"), "no request waits any more")


# ``block``: the only thread, or the hub, is in a call in C. ``hold``: that call keeps the interpreter too.
# Under ``threads`` that keeps others only where the interpreter has a lock; gevent turns it on.
STUCK = [
    ("one thread", "block"),
    ("gevent", "block"),
    pytest.param("threads", "hold", marks=needs_lock),
    ("one thread", "hold"),
    ("gevent", "hold"),
]


@pytest.mark.parametrize(("driver", "page"), STUCK)
@pytest.mark.slow
def test_health_is_answered_while_no_thread_polls_the_engine(driver: str, page: str, tmp_path: Path) -> None:
    board = Board(tmp_path)
    options: dict[str, Any] = DRIVERS[driver] | {"scoreboard": board.path, "stall_timeout": 1.0}
    with native_site(health_path="/healthz", **options) as site, Fifo(tmp_path) as fifo:
        # One whose connection is there already, too.
        known = Peer.connect(site.host, site.port, PATIENCE)
        known.send(build_request("GET", "/hello"))
        assert known.read_response().status == 200
        # A client that was accepted and has sent no request yet.
        early = Peer.connect(site.host, site.port, PATIENCE)
        wait_until(lambda: board["connections"] == 2, "it is accepted")
        stuck = ask(site, f"/{page}?{fifo.path}")
        site.wait_for("in C at")
        wait_until(lambda: status(site) != (200, "alive"), "the call has gone on to what it has announced")
        early.send(build_request("GET", "/healthz"))
        assert early.read_response().status in (200, 503)
        assert early.read_until_closed() == b""
        others = [ask(site, f"/rest?0&{number}") for number in range(5)]
        known.send(build_request("GET", "/hello"))
        wait_until(lambda: status(site) == (503, "stalled"), "it has been stuck for a second")
        wait_until(lambda: board["stalled"] == 1, "the scoreboard says so")
        assert (board["requests"], board["health_checks"] >= 2) == (2, True)
        fifo.let_go()
        assert stuck.read_response().body == b"waited in C"
        # Requests that arrived meanwhile are served, each once and in its connection.
        assert known.read_response().body == b"Hello"
        for number, peer in enumerate(others):
            assert peer.read_response().body == f"0&{number}".encode()
        for peer in [known, early, stuck, *others]:
            peer.close()
        wait_until(lambda: status(site) == (200, "alive"), "it goes on")
        wait_until(lambda: (board["stalled"], board["requests"], board["connections"]) == (0, 8, 0), "all is over")


@pytest.mark.parametrize("driver", [pytest.param("threads", marks=needs_lock), "one thread", "gevent"])
@pytest.mark.slow
def test_clients_are_served_while_the_gil_is_held(driver: str, tmp_path: Path) -> None:
    with (
        native_site(health_path="/healthz", **DRIVERS[driver]) as site,
        Fifo(tmp_path) as fifo,
        UnaffectedClients(site, clients=3) as unaffected,
    ):
        for _ in range(3):
            told = len(site.stderr)
            with ask(site, f"/hold?{fifo.path}") as stuck:
                site.wait_for("in C at", after=told)
                wait_until(lambda: status(site) == (200, "saturated"), "it has gone on to what it has announced")
                # Some of the clients come on new connections meanwhile, and are accepted.
                assert status(site) == (200, "saturated")
                fifo.let_go()
                assert stuck.read_response().status == 200
            unaffected.await_answers(20)


@every_driver
def test_health_fails_while_draining_or_stopping(driver: str) -> None:
    options: dict[str, Any] = DRIVERS[driver] | {"stop": {"graceful_timeout": 10.0, "idle_timeout": 10.0}}
    with native_site(health_path="/healthz", **options) as site:
        late = Peer.connect(site.host, site.port, PATIENCE)
        assert status(site) == (200, "alive")
        site.process.send_signal(signal.SIGUSR2)
        wait_until(lambda: status(site) == (503, "draining"), "it drains")
        site.process.send_signal(signal.SIGTERM)
        late.send(build_request("GET", "/healthz"))
        assert late.read_response().status == 503
        late.close()
        assert site.process.wait(PATIENCE) == 0


@needs_lock
@pytest.mark.slow
def test_it_can_be_told_while_the_interpreter_is_held(tmp_path: Path) -> None:
    """A check that comes bit by bit, and others that say nothing, or leave."""
    with native_site(health_path="/healthz", **DRIVERS["threads"]) as site, Fifo(tmp_path) as fifo:
        stuck = ask(site, f"/hold?{fifo.path}")
        site.wait_for("in C at")
        wait_until(lambda: status(site) != (200, "alive"), "the call has gone on to what it has announced")
        mute = [Peer.connect(site.host, site.port, PATIENCE) for _ in range(20)]
        gone = [ask(site, "/hello") for _ in range(20)]
        with Peer.connect(site.host, site.port, PATIENCE) as slow:
            for piece in (b"GE", b"T /heal", b"thz HTTP/1.1\r\nHo", b"st: a\r\n\r", b"\n"):
                slow.send(piece)
                until = time.monotonic() + 0.12
                wait_until(lambda until=until: time.monotonic() > until, "the watchdog may have checked")  # type: ignore[misc]
            assert slow.read_response().status == 200
        for peer in gone:
            peer.abort()
        fifo.let_go()
        assert stuck.read_response().status == 200
        for peer in mute:
            peer.send(build_request("GET", "/hello"))
            assert peer.read_response().body == b"Hello"
            peer.close()
        stuck.close()
        wait_until(lambda: json.loads(check(site).body)["connections"] == 1, "no other connection is left")


@pytest.mark.slow
def test_when_it_counts_as_stalled_is_a_setting(serve: Serve, write_app: Callable[[str], str]) -> None:
    app = write_app("""
        import time

        def app(environ, start_response):
            print("waits", file=environ["wsgi.errors"], flush=True)
            time.sleep(30)
    """)
    site = serve(
        app, "--health-path=/healthz", "--stall-timeout=500ms", "--threads=1", "--graceful-timeout=0", "--workers=0"
    )
    assert status(site) == (200, "alive")
    stuck = ask(site, "/")
    site.wait_for("waits")
    wait_until(lambda: status(site) == (503, "stalled"), "it is known as stalled")
    stuck.close()
    site.send(signal.SIGTERM)
    site.process.wait(PATIENCE)


@pytest.mark.parametrize("path", ["healthz", "/a b", "/a?b", "/a#b", "/gr\u00f6\u00dfe", "*", "/\n"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"health_path: .* is no path of a request"):
        _native.NativeServer(lambda *_: [], [], NativeConfig({"health_path": path}))


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="stall_timeout"):
        _native.NativeServer(lambda *_: [], [], NativeConfig({"stall_timeout": -1.0}))
