"""A new connection goes to the worker that has the fewest connections, whichever worker the kernel wakes for it.

Clients open connections, and each response says which worker has answered. What the scoreboard says is only used to
wait until the connections of before are gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interpreter import needs_lock
from kirsch import _native
from kirsch.commands import top
from kirsch.config.native import NativeConfig
from kirsch.monitor.scoreboard import Scoreboard
from proc import descriptors, wait_until
from raw import Peer, build_request
from running import COMMAND_VARIABLE
from two_engines import COMMAND as TWO_ENGINES
from waiting import PATIENCE, every_driver, flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from running import Running, Serve

    Write = Callable[[str], str]

APP = """
    import ctypes, os, time

    def app(environ, start_response):
        what, _, argument = environ["PATH_INFO"][1:].partition("/")
        if what == "sleep":
            time.sleep(float(argument))
        elif what == "wait":
            gate = environ["QUERY_STRING"]
            while not os.path.exists(gate):
                time.sleep(0.01)
        elif what == "hold":
            # Another thread goes to wait for the poller meanwhile. Then no thread gets the GIL.
            time.sleep(0.3)
            ctypes.PyDLL(None).system(b"echo holds >&2; exec sleep 6")
        body = str(os.getpid()).encode()
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]
"""

ROUNDS = 20


class Clients(contextlib.ExitStack):
    """Connections that are kept open, and the worker that has answered on each."""

    def __init__(self, site: Running) -> None:
        super().__init__()
        self._site = site
        self.peers: list[Peer] = []
        self.workers: list[int] = []

    def open(self, count: int, path: str = "/") -> Counter[int]:
        """Open so many more at once; then send a request on each. Returns how many each worker has of these."""
        sockets = []
        for _ in range(count):
            sock = socket.socket()
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.connect((self._site.host, self._site.port))
            sockets.append(sock)
        peers = [self.enter_context(Peer(sock, PATIENCE)) for sock in sockets]
        return self.ask(peers, path)

    def open_one_by_one(self, count: int, path: str = "/") -> Counter[int]:
        """The same, where each has its answer before the next one comes."""
        workers: Counter[int] = Counter()
        for _ in range(count):
            workers += self.open(1, path)
        return workers

    def ask(self, peers: list[Peer], path: str) -> Counter[int]:
        for peer in peers:
            peer.send(build_request("GET", path))
        workers = [int(peer.read_response().body) for peer in peers]
        self.peers += peers
        self.workers += workers
        return Counter(workers)

    def counts(self) -> list[int]:
        """How many connections each worker has that has any."""
        return list(Counter(self.workers).values())

    def open_until_even(self, count: int) -> None:
        """Open ``count`` more, and then a few at a time until two workers have equally many."""
        self.open(count)
        wait_until(lambda: is_even(self.counts(), 2) or not self.open(4), "two workers have equally many", PATIENCE)

    def open_on_both(self, count: int) -> tuple[int, int]:
        """Open ``count`` or more, until two workers have equally many. Return the workers.

        A worker that gets no processor for 100 ms is passed over for a second, so the first ``count`` may all go to the
        other one.
        """
        self.open_until_even(count)
        first, second = sorted(set(self.workers))
        return first, second

    def close_those_of(self, worker: int, *, but: Peer | None = None) -> None:
        for peer, other in zip(self.peers.copy(), self.workers.copy(), strict=True):
            if other == worker and peer is not but:
                self._drop(peer)

    def close_every_second(self) -> None:
        for peer in self.peers[::2]:
            self._drop(peer)

    def keep_one(self, worker: int) -> Peer:
        """Close all connections to ``worker`` but one, which is returned."""
        kept = self.peers[self.workers.index(worker)]
        self.close_those_of(worker, but=kept)
        return kept

    def _drop(self, peer: Peer) -> None:
        peer.close()
        index = self.peers.index(peer)
        del self.peers[index], self.workers[index]


def board_of(site: Running) -> Scoreboard:
    # Before CPython 3.13 and on PyPy the mapping has a descriptor of its own.
    return top._look_at(next(top._scoreboards(site.pid)))


def wait_for_connections(site: Running, count: int) -> None:
    """Until the workers have as many as that, because they have seen that the others are gone."""
    board = board_of(site)
    wait_until(lambda: board.read().gauge("connections") == count, f"there are {count} connections", PATIENCE)


@pytest.fixture
def serve_balanced(serve: Serve, write_app: Write) -> Callable[..., Running]:
    """Serve ``APP`` with so many workers, that all are ready."""

    def serve_balanced(workers: int, *args: str) -> Running:
        site = serve(write_app(APP) + ":app", "--workers", str(workers), *args)
        site.wait_for_workers(workers)
        board = board_of(site)
        wait_until(
            lambda: [each.state for each in board.read().workers] == ["serving"] * workers, "all serve", PATIENCE
        )
        return site

    return serve_balanced


def counts_of_a_round(site: Running, count: int, path: str = "/") -> list[int]:
    """How many of ``count`` connections that open at once each worker gets. All are closed afterwards."""
    with Clients(site) as clients:
        clients.open(count, path)
        counts = clients.counts()
    wait_for_connections(site, 0)
    return counts


def is_even(counts: list[int], workers: int, slack: int = 2) -> bool:
    return max(counts) <= sum(counts) / workers + slack


def assert_soon_even(connect: Callable[[], list[int]], workers: int, rounds: int = ROUNDS, slack: int = 2) -> None:
    """Connect until half of the last ``rounds`` rounds were even, at most ten times as often.

    A worker that gets no processor for some milliseconds counts as busy, so single rounds are uneven on a machine that
    has other work, and many in a row while it is very busy. Without balancing, nearly no round is even.
    """
    counts: list[list[int]] = []
    while sum(is_even(each, workers, slack) for each in counts[-rounds:]) < rounds // 2:
        assert len(counts) < 10 * rounds, counts
        counts.append(connect())


@pytest.mark.parametrize("path", ["/", "/sleep/0.002"])
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.slow
def test_connections_opened_at_once_are_shared_evenly(
    serve_balanced: Callable[..., Running], workers: int, path: str
) -> None:
    site = serve_balanced(workers)
    for count in (4, 16, 64):
        assert_soon_even(lambda count=count: counts_of_a_round(site, count, path), workers)  # type: ignore[misc]


@every_driver
def test_connections_are_shared_evenly_under_each_driver(serve_balanced: Callable[..., Running], driver: str) -> None:
    site = serve_balanced(2, *flags(driver))
    for path in ("/", "/sleep/0.002"):
        assert_soon_even(lambda path=path: counts_of_a_round(site, 32, path), 2, ROUNDS // 2)  # type: ignore[misc]


def test_connections_are_shared_evenly_among_workers_with_two_engines(
    serve_balanced: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMMAND_VARIABLE, TWO_ENGINES)
    site = serve_balanced(2, "--threads", "8")
    # Each of the four engines has at most two more than the one that has the fewest.
    assert_soon_even(lambda: counts_of_a_round(site, 32), 2, ROUNDS // 2, slack=4)


def test_connections_opened_one_by_one_are_shared_evenly(serve_balanced: Callable[..., Running]) -> None:
    site = serve_balanced(2)

    def counts_after_a_refill() -> list[int]:
        with Clients(site) as clients:
            clients.open_one_by_one(16)
            clients.close_every_second()
            wait_for_connections(site, 8)
            clients.open_one_by_one(8)
            counts = clients.counts()
        wait_for_connections(site, 0)
        return counts

    assert_soon_even(counts_after_a_refill, 2)


def test_worker_that_has_lost_its_connections_gets_the_next_ones(serve_balanced: Callable[..., Running]) -> None:
    site = serve_balanced(2)
    with Clients(site) as clients:
        clients.open(20)
        loser = clients.workers[0]
        clients.close_those_of(loser)
        left = len(clients.peers)
        wait_for_connections(site, left)
        # Each arrives alone, so the kernel may wake the other worker. That worker takes some of them only if the loser
        # gets no processor for too long.
        assert clients.open_one_by_one(left - 2)[loser] > (left - 2) * 3 // 4


def test_stopped_worker_keeps_no_connection_waiting(serve_balanced: Callable[..., Running]) -> None:
    site = serve_balanced(2)
    with Clients(site) as clients:
        stopped, other = clients.open_on_both(16)
        clients.close_those_of(stopped)
        wait_for_connections(site, len(clients.peers))
        os.kill(stopped, signal.SIGSTOP)
        try:
            status = Path(f"/proc/{stopped}/stat")
            wait_until(lambda: status.read_text().rsplit(")", 1)[1].split()[0] == "T", "it has stopped", PATIENCE)
            for _ in range(5):
                assert set(clients.open(4)) == {other}, "though it has more connections"
        finally:
            os.kill(stopped, signal.SIGCONT)
        # The one that was stopped has the fewest now, and comes to know of it.
        wait_until(lambda: stopped in clients.open(1), "the worker that was stopped accepts again", PATIENCE)
        clients.open_until_even(2 * len(clients.peers))


def test_killed_worker_is_not_waited_for(serve_balanced: Callable[..., Running]) -> None:
    site = serve_balanced(2)
    with Clients(site) as clients:
        killed, other = clients.open_on_both(16)
        before = Counter(clients.workers)[other]
        clients.close_those_of(killed)
        os.kill(killed, signal.SIGKILL)
        assert set(clients.open(4)) <= {other, *site.worker_pids()}
        (successor,) = set(site.wait_for_workers(2, without=[killed], timeout=PATIENCE)) - {other}
        wait_until(lambda: successor in clients.open(1), "the successor accepts", PATIENCE)
        # The supervisor clears the record of the killed worker: its successor is the one that has the fewest.
        clients.open_until_even(4 * before)


@needs_lock
@pytest.mark.parametrize("driver", ["threads", "gevent"])
@pytest.mark.slow
def test_worker_whose_gil_is_held_keeps_no_connection_waiting(
    serve_balanced: Callable[..., Running], driver: str
) -> None:
    site = serve_balanced(2, *flags(driver))
    with Clients(site) as clients:
        held, other = clients.open_on_both(16)
        one = clients.keep_one(held)
        wait_for_connections(site, len(clients.peers))
        one.send(build_request("GET", "/hold"))
        site.wait_for("^holds$")
        begun = time.monotonic()
        for _ in range(3):
            assert set(clients.open(4)) == {other}
        assert time.monotonic() - begun < 5, "the GIL was held all the time"
        assert one.read_response(timeout=PATIENCE).status == 200


def test_worker_whose_only_thread_is_in_a_call_keeps_no_connection_waiting(
    serve_balanced: Callable[..., Running], tmp_path: Path
) -> None:
    site = serve_balanced(2, "--threads", "1")
    gate = tmp_path / "gate"
    with Clients(site) as clients:
        busy, other = clients.open_on_both(16)
        one = clients.keep_one(busy)
        wait_for_connections(site, len(clients.peers))
        one.send(build_request("GET", f"/wait?{gate}"))
        for _ in range(5):
            # The first of these may have been accepted before the call began.
            assert set(clients.open(4)) == {other}
        gate.touch()
        assert one.read_response(timeout=PATIENCE).status == 200
        wait_until(lambda: busy in clients.open(1), "the worker accepts again", PATIENCE)


def test_connections_are_served_during_a_reload_and_shared_evenly_after_it(
    serve_balanced: Callable[..., Running],
) -> None:
    site = serve_balanced(2)
    before = site.worker_pids()
    with Clients(site) as clients:
        clients.open(8)
    seen = len(site.stderr)
    site.send(signal.SIGHUP)
    while "SIGHUP: done" not in site.stderr[seen:]:
        with Clients(site) as clients:
            clients.open(8)
    site.wait_for_workers(2, without=before, timeout=PATIENCE)
    wait_for_connections(site, 0)
    assert_soon_even(lambda: counts_of_a_round(site, 32), 2, ROUNDS // 2)


def test_connections_are_shared_evenly_after_an_upgrade(serve_balanced: Callable[..., Running]) -> None:
    site = serve_balanced(2)
    before = site.worker_pids()
    site.send(signal.SIGUSR2)
    site.wait_for_workers(2, without=before, timeout=4 * PATIENCE)
    wait_for_connections(site, 0)
    assert_soon_even(lambda: counts_of_a_round(site, 32), 2, ROUNDS // 2)


def test_workers_with_sockets_of_their_own_leave_the_choice_to_the_kernel(
    serve_balanced: Callable[..., Running],
) -> None:
    site = serve_balanced(2, "--reuse-port")
    for _ in range(5):
        with Clients(site) as clients:
            assert clients.open(32).total() == 32


def test_connections_that_come_and_go_are_served_by_both(serve_balanced: Callable[..., Running]) -> None:
    """One connection for each request, while one worker has more idle connections than the other."""
    site = serve_balanced(2)
    with Clients(site) as clients:
        clients.open(20)
        clients.close_those_of(clients.workers[0])
        for _ in range(50):
            with Clients(site) as others:
                others.open(3)


def eventfds(pid: int) -> set[str]:
    return {number for number, name in descriptors(pid).items() if "eventfd" in name}


def test_descriptors_are_no_more_after_a_reload(serve_balanced: Callable[..., Running]) -> None:
    site = serve_balanced(2)
    before = site.worker_pids()
    held = len(eventfds(site.pid))
    assert 0 < held <= 16, "a few for two workers"
    site.send(signal.SIGHUP)
    after = site.wait_for_workers(2, without=before, timeout=PATIENCE)
    assert {len(eventfds(pid)) for pid in [site.pid, *after]} == {held}


@pytest.fixture
def eventfd() -> Iterator[int]:
    fd = _native.eventfd()
    yield fd
    with contextlib.suppress(OSError):  # the server takes it over
        os.close(fd)


@pytest.mark.parametrize(
    ("size", "stride", "index", "message"),
    [
        (_native.GROUP_RECORD_SIZE - 1, _native.GROUP_RECORD_SIZE, 0, "do not hold record 0 of 1"),
        (_native.GROUP_RECORD_SIZE, 128, 0, "do not hold record 0 of 1"),
        (_native.GROUP_RECORD_SIZE, _native.GROUP_RECORD_SIZE, 1, "do not hold record 1 of 1"),
        (_native.GROUP_RECORD_SIZE, 2**63, 2**63, "do not hold record"),
        (2 * _native.GROUP_RECORD_SIZE, _native.GROUP_RECORD_SIZE + 8, 0, "multiples of 128"),
    ],
)
def test_records_that_do_not_fit_are_refused(eventfd: int, size: int, stride: int, index: int, message: str) -> None:
    board = Scoreboard.create(1)
    try:
        memory, _ = board.group_records(1)
        whole = memory if size > len(memory) else memory[:size]
        with pytest.raises(ValueError, match=message):
            _native.NativeServer(lambda *_: [], [], NativeConfig({"group": (whole, stride, index, [eventfd])}))
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(eventfd)
    finally:
        board.close_fd()


def test_slots_have_room_for_the_records() -> None:
    board = Scoreboard.create(3)
    memory, stride = board.group_records(3)
    assert len(memory) == 2 * stride + _native.GROUP_RECORD_SIZE
    assert stride % 128 == 0
    board.close_fd()
