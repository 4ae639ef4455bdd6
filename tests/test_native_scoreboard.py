"""The scoreboard: what another process sees of a server in memory that both share, and how the memory is judged."""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from kirsch import _native
from kirsch.config.native import NativeConfig
from native_site import DRIVERS, Board, Fifo, every_driver, native_site
from proc import wait_until
from raw import Peer, build_request, exchange

if TYPE_CHECKING:
    from pathlib import Path

    from running import Running

PATIENCE = 20.0
HISTOGRAMS = ("queue_wait", "service_time", "interpreter_wait")


def get(site: Running, target: str) -> int:
    return exchange(site.host, site.port, build_request("GET", target), timeout=PATIENCE).status


def ask(site: Running, target: str) -> Peer:
    peer = Peer.connect(site.host, site.port, PATIENCE)
    peer.send(build_request("GET", target))
    return peer


def await_words(board: Board, **wanted: int) -> None:
    wait_until(lambda: wanted.items() <= board.all().items(), f"{wanted}, of {board.all()}")


def test_the_names_are_those_of_the_words() -> None:
    fields, bounds = _native.SCOREBOARD_FIELDS, _native.SCOREBOARD_BOUNDS
    assert len(set(fields)) == len(fields)
    assert len(fields) * 8 == _native.SCOREBOARD_SIZE <= 3072
    assert list(bounds) == sorted(bounds)
    assert (bounds[0], bounds[3], bounds[-1]) == (0.0001, 0.001, 30.0)
    for name in HISTOGRAMS:
        buckets = [f"{name}_{index}" for index in range(len(bounds) + 1)]
        start = fields.index(f"{name}_sum")
        assert list(fields[start + 1 : start + 1 + len(buckets)]) == buckets


def test_statistics_are_the_counters_and_gauges_of_the_scoreboard() -> None:
    statistics = _native.NativeServer(lambda *_: [], [], NativeConfig()).statistics()
    plain = [name for name in _native.SCOREBOARD_FIELDS if not name.startswith((*HISTOGRAMS, "tls:"))]
    assert set(statistics) == set(plain) - {"published"}


@pytest.mark.parametrize(
    ("memory", "error", "words"),
    [
        (bytes(4096), ValueError, "scoreboard: its memory is not to be used: Object is not writable"),
        (bytearray(8), ValueError, f"scoreboard: 8 bytes are too few; SCOREBOARD_SIZE is {_native.SCOREBOARD_SIZE}"),
        (memoryview(bytearray(4096))[1:], ValueError, "scoreboard: its memory has to begin at a multiple of 8"),
        (memoryview(bytearray(8192))[::2], ValueError, "scoreboard: its memory is not to be used: "),
        (17, TypeError, "scoreboard: a buffer is wanted, such as an mmap, not int"),
    ],
)
def test_memory_that_cannot_be_used_is_refused(memory: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as refused:
        _native.NativeServer(lambda *_: [], [], NativeConfig({"scoreboard": memory}))
    assert str(refused.value).startswith(words)


def test_memory_is_kept_as_long_as_the_server_and_begins_at_zero() -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    memory.write(b"\xff" * mmap.PAGESIZE)
    server = _native.NativeServer(lambda *_: [], [], NativeConfig({"scoreboard": memory}))
    assert memory[: _native.SCOREBOARD_SIZE] == bytes(_native.SCOREBOARD_SIZE)
    assert memory[_native.SCOREBOARD_SIZE] == 0xFF
    with pytest.raises(BufferError):
        memory.close()
    del server
    memory.close()


@every_driver
def test_counters_and_gauges_are_seen_from_outside(driver: str, tmp_path: Path) -> None:
    board = Board(tmp_path)
    before = time.monotonic_ns()
    with native_site(scoreboard=board.path, **DRIVERS[driver]) as site:
        # Greenlets are no threads.
        most = 0 if driver == "gevent" else DRIVERS[driver].get("threads", 1)
        wait_until(lambda: board["published"] > 0, "the first words are published")
        await_words(board, requests=0, connections=0, threads_most=most)
        assert before - 100_000_000 < board["published"] <= time.monotonic_ns()
        for _ in range(5):
            assert get(site, "/hello") == 200
        assert exchange(site.host, site.port, b"WRONG\r\n\r\n", timeout=PATIENCE).status == 400
        await_words(board, requests=5, accepted=6, connections=0, refused=1, status_2xx=5, status_4xx=1, running=0)
        assert board["bytes_in"] > 5 * len("GET /hello HTTP/1.1")
        # A connection that is open and idle.
        with ask(site, "/hello") as peer:
            assert peer.read_response().status == 200
            await_words(board, requests=6, connections=1, queued=0, suspended=0, draining=0, stalled=0)
        await_words(board, connections=0)


@every_driver
def test_running_call_is_visible_while_its_thread_is_busy(driver: str, tmp_path: Path) -> None:
    """With one thread, and while the hub is blocked, no thread can poll the engine."""
    board = Board(tmp_path)
    with native_site(scoreboard=board.path, **DRIVERS[driver]) as site, Fifo(tmp_path) as fifo:
        await_words(board, running=0)
        for page in ("block", "hold"):
            told = len(site.stderr)
            peer = ask(site, f"/{page}?{fifo.path}")
            site.wait_for("in C at", after=told)
            await_words(board, running=1)
            published = board["published"]
            wait_until(lambda since=published: board["published"] > since, "it is published again")  # type: ignore[misc]
            fifo.let_go()
            assert peer.read_response().body == b"waited in C"
            peer.close()
            await_words(board, running=0, connections=0)


@every_driver
def test_how_long_things_take_is_counted(driver: str, tmp_path: Path) -> None:
    board = Board(tmp_path)
    with native_site(scoreboard=board.path, **DRIVERS[driver]) as site:
        for _ in range(3):
            assert get(site, "/hello") == 200
        assert get(site, "/rest?30") == 200
        assert get(site, "/nowhere") == 500
        await_words(board, requests=5, running=0, connections=0)
        for name in HISTOGRAMS[:2]:
            assert sum(board.buckets(name)) == 5, name
        slow = [bound for bound in _native.SCOREBOARD_BOUNDS if bound < 0.03]
        assert sum(board.buckets("service_time")[len(slow) :]) >= 1
        assert board["service_time_sum"] >= 30_000_000
        if driver != "gevent":
            # No request had to wait; in a loop that polls the engine a request waits for its turn.
            assert board["queue_wait_sum"] == 0
            # A thread that waits for the GIL now gets it.
            assert get(site, "/hello") == 200
            wait_until(lambda: sum(board.buckets("interpreter_wait")) > 0, "a thread has got the GIL")


def test_waiting_in_the_queue_is_counted(tmp_path: Path) -> None:
    board = Board(tmp_path)
    gate = tmp_path / "gate"
    with native_site(scoreboard=board.path, driver="threads", threads=2) as site:
        peers = [ask(site, f"/wait?{gate}") for _ in range(4)]
        await_words(board, running=2, queued=2, connections=4)
        until = time.monotonic() + 0.02
        wait_until(lambda: time.monotonic() > until, "some time has passed")
        gate.touch()
        for peer in peers:
            assert peer.read_response().status == 200
            peer.close()
        await_words(board, running=0, queued=0, connections=0)
        buckets = board.buckets("queue_wait")
        assert (sum(buckets), buckets[0]) == (4, 2)
        assert board["queue_wait_sum"] >= 2 * 20_000_000


def test_greenlets_that_wait_for_their_turn_are_counted(tmp_path: Path) -> None:
    """Some that arrive together while another holds up the hub: they begin one after the other then."""
    board = Board(tmp_path)
    with native_site(scoreboard=board.path, **DRIVERS["gevent"]) as site, Fifo(tmp_path) as fifo:
        first = ask(site, f"/block?{fifo.path}")
        site.wait_for("in C at")
        peers = [ask(site, f"/block?{fifo.path}") for _ in range(4)]
        told = len(site.stderr)
        fifo.let_go()
        assert first.read_response().status == 200
        site.wait_for("in C at", after=told)
        until = time.monotonic() + 0.02
        wait_until(lambda: time.monotonic() > until, "some time has passed")
        fifo.let_go(4)
        for peer in peers:
            assert peer.read_response().status == 200
        for peer in [first, *peers]:
            peer.close()
        await_words(board, running=0, connections=0)
        assert sum(board.buckets("queue_wait")) == 5
        assert board["queue_wait_sum"] >= 3 * 20_000_000


def test_a_response_whose_peer_is_slow_is_suspended(tmp_path: Path) -> None:
    board = Board(tmp_path)
    for driver in ("threads", "gevent"):
        with native_site(scoreboard=board.path, **DRIVERS[driver]) as site:
            peer = ask(site, "/endless?name")
            await_words(board, suspended=1, running=0)
            peer.abort()
            await_words(board, suspended=0, running=0, connections=0)
            wait_until(lambda: sum(board.buckets("service_time")) == 1, "its end is counted")


def test_one_byte_tells_that_a_limit_is_reached() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        with native_site(driver="threads", threads=2, request_limit=3, limit_fd=writer) as site:
            for _ in range(2):
                assert get(site, "/hello") == 200
            with pytest.raises(BlockingIOError):
                os.read(reader, 10)
            for _ in range(5):
                assert get(site, "/hello") == 200
            assert os.read(reader, 10) == b"\0"
    finally:
        os.close(reader)
        os.close(writer)


def test_request_limit_without_descriptor_is_refused() -> None:
    for descriptor in (None, -1):
        with pytest.raises(ValueError) as refused:
            _native.NativeServer(lambda *_: [], [], NativeConfig({"request_limit": 1, "limit_fd": descriptor}))
        assert str(refused.value) == "limit_fd: -1 is no descriptor"
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    with pytest.raises(OSError):
        _native.NativeServer(lambda *_: [], [], NativeConfig({"request_limit": 1, "limit_fd": writer}))


def test_full_limit_pipe_blocks_no_request() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, bytes(65536)):
            pass
    os.set_blocking(writer, True)
    try:
        with native_site(driver="threads", threads=1, request_limit=1, limit_fd=writer) as site:
            assert get(site, "/hello") == 200
    finally:
        os.close(reader)
        os.close(writer)
