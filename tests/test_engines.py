"""Several engines in one process, one for each processor as without a GIL: clients and statistics see them as one."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import sys
import threading
import time
import urllib.request
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import kirsch
import two_engines
from kirsch.drivers import threads as driver
from native_site import Board, native_site
from proc import wait_until
from raw import build_request, exchange
from running import COMMAND_VARIABLE
from waiting import (
    PATIENCE,
    UnaffectedClients,
    ask,
    assert_answered,
    assert_serves,
    connect,
    get,
    get_json,
    refuses,
    serve_waiting,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from raw import Peer
    from running import Running, Serve

THREADS = 4
# Each engine may have one thread more than may be in calls.
FIRST, SECOND = range(3), range(3, 6)


@pytest.fixture
def two(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """``serve``, with two engines in each process."""
    monkeypatch.setenv(COMMAND_VARIABLE, two_engines.COMMAND)
    return serve


def serve_alone(two: Serve, *args: str) -> Running:
    return serve_waiting(two, "--workers", "0", "--threads", str(THREADS), *args)


def occupy(site: Running, gate: Path, calls: int = THREADS) -> list[Peer]:
    """Clients whose requests wait for ``gate``, such that so many calls do: who has found both threads of an engine in
    calls waits for that engine, and another client is tried."""
    peers: list[Peer] = []
    deadline = time.monotonic() + PATIENCE

    def inside() -> int:
        return site.stderr.count(f"waiting for {gate}\n")

    while inside() < calls:
        assert time.monotonic() < deadline, f"{inside()} of {calls} calls wait for {gate}"
        before = inside()
        peers.append(ask(site, f"/wait?{gate}"))
        with contextlib.suppress(AssertionError):
            wait_until(lambda before=before: inside() > before, "another call waits", 0.2)  # type: ignore[misc]
    return peers


def thread_numbers(site: Running) -> set[int]:
    """The threads whose calls a dump tells of."""
    at = len(site.stderr)
    site.send(signal.SIGPWR)
    site.wait_for(r"^counters: ", after=at)
    site.wait_for(r"^(no request|GET|POST)[^\0]*\n", after=at)
    return {int(number) for number in re.findall(r", kirsch-(\d+)$", site.stderr[at:], re.MULTILINE)}


def test_both_serve_and_as_many_calls_run_as_threads(two: Serve, tmp_path: Path) -> None:
    site = serve_alone(two)
    gate = tmp_path / "gate"
    peers = occupy(site, gate)
    assert site.stderr.count(f"waiting for {gate}\n") == THREADS
    numbers = thread_numbers(site)
    assert len(numbers) == THREADS
    assert len(numbers.intersection(FIRST)) == len(numbers.intersection(SECOND)) == THREADS // 2
    gate.touch()
    for peer in peers:
        assert peer.read_response().status == 200
        peer.close()
    with UnaffectedClients(site, clients=6) as unaffected:
        unaffected.await_answers(100)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[kirsch.Server, str]]:
    """A server with two engines in this process, with the application below."""
    monkeypatch.setattr(driver, "engines", lambda _threads: 2)
    with serving(application) as (server, url):
        yield server, url


@contextlib.contextmanager
def serving(app: Any, **options: Any) -> Iterator[tuple[kirsch.Server, str]]:
    options.setdefault("graceful_timeout", PATIENCE)
    server = kirsch.Server(app, "127.0.0.1:0", threads=THREADS, report=lambda *_: None, **options)
    server.listen()
    url = server.urls[0]
    ready = threading.Event()
    serving = threading.Thread(target=server.start, args=(ready.set,))
    serving.start()
    assert ready.wait(PATIENCE)
    try:
        yield server, url
    finally:
        server.stop()
        serving.join(PATIENCE)
        assert not serving.is_alive()


leave = threading.Event()


def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/meet":
        leave.wait(PATIENCE)
    return [threading.current_thread().name.encode()]


def open_url(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as response:
        text: str = response.read().decode()
    return text


def names_of_both(url: str) -> int:
    """Ask until both have answered; how often."""
    numbers: set[int] = set()
    asked = 0
    deadline = time.monotonic() + PATIENCE
    while not (numbers.intersection(FIRST) and numbers.intersection(SECOND)):
        assert time.monotonic() < deadline, f"only these have answered: {numbers}"
        with contextlib.ExitStack() as together:
            responses = [together.enter_context(urllib.request.urlopen(url, timeout=PATIENCE)) for _ in range(8)]
            numbers |= {int(response.read().decode().removeprefix("kirsch-")) for response in responses}
        asked += 8
    return asked


def test_numbers_are_those_of_all_together(served: tuple[kirsch.Server, str]) -> None:
    server, url = served
    asked = names_of_both(url)
    wait_until(lambda: server.statistics()["status_2xx"] == asked, "all answers are counted", PATIENCE)
    statistics = server.statistics()
    assert statistics["requests"] == statistics["accepted"] == asked
    assert statistics["threads_most"] == THREADS
    assert (statistics["draining"], statistics["stalled"]) == (0, 0)
    server.drain()
    wait_until(lambda: server.statistics()["draining"] == 1, "it drains", PATIENCE)
    with urllib.request.urlopen(url, timeout=PATIENCE) as response:
        assert response.headers["Connection"] == "close"


def test_calls_have_numbers_of_their_own(served: tuple[kirsch.Server, str]) -> None:
    server, url = served
    leave.clear()
    clients = [threading.Thread(target=open_url, args=(f"{url}/meet",)) for _ in range(40)]
    for client in clients:
        client.start()
    try:
        wait_until(lambda: server.statistics()["running"] == THREADS, "as many run as may", PATIENCE)
        wait_until(
            lambda: all("leave.wait" in "".join(each["stack"]) for each in server.statistics()["exchanges"]),
            "all have come to where they wait",
            PATIENCE,
        )
        exchanges = server.statistics()["exchanges"]
        assert len({exchange["number"] for exchange in exchanges}) == THREADS
        numbers = {int(exchange["thread"].removeprefix("kirsch-")) for exchange in exchanges}
        assert len(numbers.intersection(FIRST)) == len(numbers.intersection(SECOND)) == THREADS // 2
    finally:
        leave.set()
        for client in clients:
            client.join(PATIENCE)
    assert server.statistics()["status_2xx"] == len(clients)


@pytest.mark.parametrize("engines", [1, 2])
def test_statistics_and_dumps_do_not_disturb_requests(monkeypatch: pytest.MonkeyPatch, engines: int) -> None:
    """Statistics, dumps and calls, from several threads that are switched as often as can be."""
    monkeypatch.setattr(driver, "engines", lambda _threads: engines)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    done = threading.Event()
    wrong: list[BaseException] = []

    def look(server: kirsch.Server) -> None:
        before = 0
        try:
            while not done.is_set():
                statistics = server.statistics()
                assert statistics["requests"] >= before, "a counter went back"
                before = statistics["requests"]
                assert statistics["running"] <= THREADS
                assert server.dump().startswith("kirsch, pid ")
                server.running(3)
        except BaseException as error:  # noqa: BLE001 - looked at below
            wrong.append(error)

    try:
        with serving(application) as (server, url):
            lookers = [threading.Thread(target=look, args=(server,)) for _ in range(3)]
            clients = [threading.Thread(target=lambda: [open_url(url) for _ in range(20)]) for _ in range(4)]
            for thread in [*lookers, *clients]:
                thread.start()
            for thread in clients:
                thread.join(PATIENCE * 2)
                assert not thread.is_alive()
            done.set()
            for thread in lookers:
                thread.join(PATIENCE)
                assert not thread.is_alive()
            assert server.statistics()["status_2xx"] == 4 * 20
    finally:
        done.set()
        sys.setswitchinterval(interval)
    assert not wrong, wrong


def test_nothing_is_left_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "engines", lambda _threads: 2)

    class Application:
        def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
            return application(environ, start_response)

    def once() -> weakref.ref[Application]:
        app = Application()
        with serving(app) as (_, url):
            names_of_both(url)
        return weakref.ref(app)

    once()  # what is imported and made once is not to be counted
    gc.collect()
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(5):
        app = once()
        gc.collect()
        assert app() is None, "the application is still held"
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    wait_until(lambda: threading.active_count() <= threads, "its threads have ended", PATIENCE)


def test_a_stop_lets_both_finish(two: Serve, tmp_path: Path) -> None:
    site = serve_alone(two)
    gate = tmp_path / "gate"
    peers = occupy(site, gate)
    site.send(signal.SIGTERM)
    wait_until(lambda: refuses(site), "the listener is closed", PATIENCE)
    gate.touch()
    for peer in peers:
        response = peer.read_response()
        assert (response.status, response.complete) == (200, True)
        peer.close()
    assert site.stop() == 0


def test_what_does_not_return_in_time_is_cut_in_both(two: Serve, tmp_path: Path) -> None:
    site = serve_alone(two, "--graceful-timeout", "0.3")
    peers = occupy(site, tmp_path / "never")
    assert site.stop() == 1
    for peer in peers:
        assert peer.read_until_closed() == b"", "an answer to a call that has not returned"
        peer.close()


def test_an_interrupt_that_the_application_raises_ends_both(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "engines", lambda _threads: 2)

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if environ["PATH_INFO"] == "/end":
            raise KeyboardInterrupt
        return application(environ, start_response)

    server = kirsch.Server(app, "127.0.0.1:0", threads=THREADS, report=lambda *_: None)
    server.listen()
    raised: list[BaseException] = []

    def start() -> None:
        try:
            server.start()
        except BaseException as error:  # noqa: BLE001 - looked at below
            raised.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    names_of_both(server.urls[0])
    address = server.addresses[0]
    assert not isinstance(address, str)
    with contextlib.suppress(AssertionError, OSError):
        exchange(address[0], address[1], build_request("GET", "/end"), timeout=PATIENCE)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [type(error) for error in raised] == [KeyboardInterrupt]


def test_a_deadline_meets_calls_of_both(two: Serve, tmp_path: Path) -> None:
    site = serve_alone(two, "--timeout", "300ms")
    gate = tmp_path / "gate"
    told = [
        re.compile(rf"kirsch-[{first}-{last}]; kirsch.RequestTimeout is raised in it at")
        for first, last in ("02", "35")
    ]
    # Which engine a newcomer meets is chance; one that waits behind others has its time from when it is begun.
    for _ in range(200):
        peer = ask(site, f"/wait?{gate}")
        assert peer.read_response().status == 504
        peer.close()
        if all(each.search(site.stderr) for each in told):
            break
    else:
        raise AssertionError(f"one engine has got them all:\n{site.stderr}")
    assert_serves(site)


def test_a_limit_on_requests_counts_all(two: Serve) -> None:
    site = serve_waiting(two, "--threads", str(THREADS), "--workers", "1", "--max-requests", "30")
    first = site.worker_pids()
    unaffected = UnaffectedClients(site, clients=4)
    unaffected.may_end = True
    with unaffected:
        unaffected.await_answers(60)
        site.wait_for_workers(1, without=first, timeout=PATIENCE)
    assert_serves(site)


def test_the_scoreboard_holds_the_sum(tmp_path: Path) -> None:
    board = Board(tmp_path)
    with native_site(driver="threads", threads=THREADS, two_engines=True, scoreboard=board.path) as site:
        with UnaffectedClients(site, clients=6) as unaffected:
            unaffected.await_answers(100)
        get(site, "/hello")

        def is_told() -> bool:
            return board["requests"] == board["status_2xx"] == sum(board.buckets("service_time")) >= 100

        wait_until(is_told, "all that was answered stands there", PATIENCE)
        assert board["threads_most"] == THREADS
        wait_until(lambda: board["connections"] == 0, "no connection is left", PATIENCE)
        assert board["running"] == board["queued"] == board["suspended"] == 0
        assert board["accepted"] >= 6


def test_a_health_check_is_answered_by_either(two: Serve, tmp_path: Path) -> None:
    site = serve_alone(two, "--health-path", "/healthz")
    gate = tmp_path / "gate"
    peers = occupy(site, gate)
    for _ in range(8):
        assert get_json(site, "/healthz")["status"] in {"alive", "saturated"}
    gate.touch()
    for peer in peers:
        peer.read_response()
        peer.close()


def test_each_writes_whole_lines_to_the_access_log(two: Serve, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    site = serve_alone(two, "--access-logfile", str(log))
    with UnaffectedClients(site, clients=6) as unaffected:
        unaffected.await_answers(200)
    log.rename(tmp_path / "access.log.1")
    site.send(signal.SIGUSR1)
    wait_until(log.exists, "the log is open again", PATIENCE)
    with UnaffectedClients(site, clients=6) as unaffected:
        unaffected.await_answers(200)
    assert site.stop() == 0
    old, new = (path.read_text().splitlines() for path in (tmp_path / "access.log.1", log))
    assert all(
        re.fullmatch(r'127\.0\.0\.1 - - \[.*\] "POST /echo HTTP/1\.1" 200 \S+ "-" "-"', line) for line in old + new
    )
    assert len(old) >= 200
    assert len(new) >= 200


def test_a_body_that_arrives_slowly_keeps_nobody_waiting(two: Serve) -> None:
    site = serve_alone(two, "--request-buffering", "off")
    with connect(site) as slow, UnaffectedClients(site, clients=4) as unaffected:
        slow.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
        unaffected.await_answers(20)
        slow.send(b"cd")
        assert_answered(slow, b"abcd")


@pytest.mark.parametrize(("threads", "expected"), [(1, 1), (2, 1), (4, 1), (7, 1), (8, 2), (16, 4), (64, 4)])
def test_without_a_lock_each_processor_has_one(monkeypatch: pytest.MonkeyPatch, threads: int, expected: int) -> None:
    monkeypatch.setattr("sys._is_gil_enabled", lambda: False, raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(4)))
    assert driver.engines(threads) == expected


def test_with_a_lock_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys._is_gil_enabled", lambda: True, raising=False)
    assert driver.engines(64) == 1
    monkeypatch.delattr("sys._is_gil_enabled")
    assert driver.engines(64) == 1
