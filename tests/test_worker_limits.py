"""Limits that end a worker: requests, lifetime, memory, inactivity, a deadlock; and workers by the load."""

from __future__ import annotations

import os
import re
import signal
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING

import pytest

from interpreter import parametrize_drivers
from kirsch.supervisor.scaling_policy import Load, ScalingPolicy
from proc import rss, uss, wait_until
from running import children, title

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

    Write = Callable[[str], str]

APP = """
    import ctypes, gc, os, sys, threading, time

    hoard = []

    def app(environ, start_response):
        path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
        if path == "/wait":
            print("waits", file=sys.stderr, flush=True)
            time.sleep(float(query))
        if path == "/hoard":
            hoard.append(b"x" * (int(query) << 20))
        if path == "/deadlock":
            # PyDLL does not let go of the interpreter: no thread gets it until this is over. Where that has no lock, it
            # is so from when the garbage collector waits for all threads to stop.
            threading.Timer(0.2, gc.collect).start()
            print("deadlock", file=sys.stderr, flush=True)
            ctypes.PyDLL(None).sleep(int(query))
        if path == "/compute":
            end = time.monotonic() + float(query)
            while time.monotonic() < end:
                pass
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [str(os.getpid()).encode()]
"""

MODES = pytest.mark.parametrize("mode", [(), ("--preload",)], ids=["fork", "preload"])


def get(site: Running, path: str = "/") -> int:
    return int(site.page(path))


def in_background(site: Running, path: str) -> threading.Thread:
    def ask() -> None:
        try:
            get(site, path)
        except OSError:
            pass

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


# Requests, lifetime, memory: each has a successor first


@MODES
@parametrize_drivers("--threads=4", "--threads=1", "--driver=gevent")
def test_max_requests_replaces_worker(serve: Serve, write_app: Write, mode: tuple[str, ...], driver: str) -> None:
    site = serve(write_app(APP), "--max-requests=10", driver, *mode)
    (first,) = site.worker_pids()
    assert {get(site) for _ in range(9)} == {first}
    seen = len(site.stderr)
    assert get(site) == first
    site.wait_for(rf"replacing worker {first}: it has begun its maximum number of requests \(--max-requests\)")
    (second,) = site.wait_for_workers(1, without=[first])
    assert get(site) == second
    assert "[ERROR]" not in site.stderr[seen:]


def test_max_requests_jitter_varies_the_limit(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "-w8", "--max-requests=10", "--max-requests-jitter=1000000")
    for _ in range(300):
        get(site)
    assert len(re.findall("replacing worker", site.stderr)) <= 1, "ten of a million"


def test_worker_serves_on_until_its_successor_is_ready(serve: Serve, write_app: Write, tmp_path: Path) -> None:
    marker = tmp_path / "imported"
    source = f"import pathlib\nif pathlib.Path({str(marker)!r}).exists(): raise LookupError('broken by now')\n"
    name = write_app(source + textwrap.dedent(APP))
    site = serve(name, "--max-requests=5")
    marker.touch()
    (first,) = site.worker_pids()
    for _ in range(20):
        assert get(site) == first
    site.wait_for(r"no worker could be started, the next try is in [0-9.]+ s: .* it raised LookupError")
    assert get(site) == first
    marker.unlink()
    site.wait_for_workers(1, without=[first], timeout=20)


@MODES
def test_max_lifetime_replaces_workers(serve: Serve, write_app: Write, mode: tuple[str, ...]) -> None:
    site = serve(write_app(APP), "-w2", "--max-lifetime=400ms", "--max-lifetime-jitter=400ms", *mode)
    before = site.worker_pids()
    site.wait_for(rf"replacing worker {before[0]}: it has reached its maximum lifetime \(--max-lifetime\)")
    site.wait_for(rf"replacing worker {before[1]}: it has reached")
    wait_until(lambda: not set(before) & set(site.worker_pids()), "both are replaced")
    assert get(site) not in before


@MODES
def test_max_memory_replaces_worker(serve: Serve, write_app: Write, mode: tuple[str, ...]) -> None:
    site = serve(write_app(APP), "--max-memory=100MiB", *mode)
    (first,) = site.worker_pids()
    assert get(site, "/hoard?40") == first
    assert get(site, "/hoard?80") == first
    site.wait_for(rf"replacing worker {first}: it uses 1\d\d MiB of its own, and its limit is 100 MiB \(--max-memory\)")
    (second,) = site.wait_for_workers(1, without=[first])
    assert get(site) == second
    assert uss(second) < 60 << 20


# Inactivity

# What the supervisor needs to write its first log line stays with it; from CPython 3.14 on logging brings inspect.
FIRST_WORDS = (2 if sys.version_info < (3, 14) else 5) << 20


@MODES
@pytest.mark.slow
def test_inactivity_stops_workers_and_a_connection_starts_them(
    serve: Serve, write_app: Write, mode: tuple[str, ...]
) -> None:
    site = serve(write_app(APP), "-w2", "--inactivity-timeout=500ms", *mode)
    alone = rss(site.pid)
    get(site, "/hoard?50")
    for _ in range(3):
        site.wait_for_workers(0)
        wait_until(lambda: not children(site.pid), "all of it has ended")
        assert rss(site.pid) - alone < FIRST_WORDS
        assert get(site, "/hoard?50") in site.worker_pids()
    site.wait_for_workers(0)
    print(f"supervisor at the start {alone >> 10} KiB, after three times of sleep {rss(site.pid) >> 10} KiB")
    assert site.stop() == 0


def test_busy_worker_is_not_inactive(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--inactivity-timeout=300ms")
    before = site.worker_pids()
    assert get(site, "/wait?1.2") == before[0]
    assert get(site) == before[0], "and the time begins anew with the end of it"


def test_server_stops_while_asleep(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--inactivity-timeout=200ms")
    site.wait_for_workers(0)
    assert site.stop() == 0


def test_reload_while_asleep_serves_new_code(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--inactivity-timeout=200ms")
    site.wait_for_workers(0)
    site.send(signal.SIGHUP)
    site.wait_for("SIGHUP: done")
    site.wait_for_workers(0)
    assert get(site)


# Deadlocks, and ends that do not come


@pytest.mark.slow
def test_deadlock_timeout_kills_worker_whose_gil_is_held(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--deadlock-timeout=2500ms", "--threads=4")
    (first,) = site.worker_pids()
    in_background(site, "/deadlock?60")
    site.wait_for(rf"no thread of worker {first} has held the GIL for 2\.5 s; it is killed", timeout=15)
    site.wait_for(r'app1\.py", line \d+ in app')
    (second,) = site.wait_for_workers(1, without=[first])
    assert get(site) == second


@pytest.mark.slow
def test_computing_worker_is_not_killed_as_deadlocked(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--deadlock-timeout=2500ms", "--threads=4")
    (first,) = site.worker_pids()
    assert get(site, "/compute?4") == first


@pytest.mark.slow
def test_workers_are_not_killed_after_supervisor_was_stopped(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--deadlock-timeout=2500ms")
    (first,) = site.worker_pids()
    for pid in (first, site.pid):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(4)  # no event tells that time has passed, and that is what they must not be blamed for
    for pid in (site.pid, first):
        os.kill(pid, signal.SIGCONT)
    assert get(site) == first
    assert site.worker_pids() == [first]


@pytest.mark.slow
def test_worker_with_a_stuck_request_is_replaced(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--timeout=300ms", "--graceful-timeout=300ms", "-w1", "--threads=2")
    (first,) = site.worker_pids()
    in_background(site, "/wait?60")  # a sleep in C, which no exception reaches
    site.wait_for("is stuck: ")
    site.wait_for(rf"replacing worker {first}: a request does not end after its deadline \(--timeout\)")
    (second,) = site.wait_for_workers(1, without=[first])
    assert get(site) == second
    assert site.stop() == 0


# Scaling


def look(
    scaler: ScalingPolicy,
    now: float,
    current: int,
    *,
    busy: int = 0,
    queued: int = 0,
    cpu: float = 0.0,
    threads: int = 4,
) -> int:
    load = Load(workers=current, busy=busy, queued=queued, threads=threads, processors=cpu)
    return scaler.wanted(now, current, 1, 8, load)


@pytest.mark.parametrize(
    ("current", "load", "wanted"),
    [
        (1, {}, 1),
        (1, {"busy": 3}, 1),
        (1, {"busy": 4}, 2),
        (1, {"busy": 4, "queued": 1}, 2),
        (1, {"busy": 4, "queued": 100}, 2),
        (3, {"busy": 12, "queued": 9}, 6),
        (3, {"busy": 12, "queued": 5}, 5),
        (6, {"busy": 24, "queued": 100}, 8),
        (8, {"busy": 32, "queued": 100}, 8),
        (2, {"cpu": 1.2}, 2),
        (2, {"cpu": 1.7}, 3),
        (2, {"cpu": 1.7, "threads": 0}, 3),
        (2, {"busy": 500, "cpu": 0.2, "threads": 0}, 2),
        (1, {"busy": 1, "threads": 1}, 2),
    ],
)
def test_scaling_adds_workers_at_once(current: int, load: dict[str, int], wanted: int) -> None:
    assert look(ScalingPolicy(), 100.0, current, **load) == wanted


def test_scaling_removes_workers_slowly() -> None:
    scaler = ScalingPolicy()
    current, changes = 4, []
    for second in range(200):
        wanted = look(scaler, float(second), current)
        if wanted != current:
            changes.append(second)
            current = wanted
    assert changes == [30, 60, 90]
    assert current == 1


def test_scaling_keeps_workers_after_a_moment_of_work() -> None:
    scaler = ScalingPolicy()
    for second in range(120):
        busy = 12 if second % 20 == 0 else 0
        assert look(scaler, float(second), 4, busy=busy) == 4


def test_scaling_adds_none_while_workers_are_starting() -> None:
    load = Load(workers=1, busy=4, queued=9, threads=4, processors=0.0)
    assert ScalingPolicy().wanted(0.0, 2, 1, 8, load) == 2


def test_scaling_keeps_to_min_and_max_workers() -> None:
    idle = Load(workers=9, busy=0, queued=0, threads=4, processors=0.0)
    assert ScalingPolicy().wanted(0.0, 9, 1, 8, idle) == 8
    assert ScalingPolicy().wanted(0.0, 1, 2, 8, idle) == 2


@pytest.mark.slow
def test_load_starts_more_workers(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--min-workers=1", "--max-workers=3", "--threads=1")
    assert len(site.worker_pids()) == 1
    over = time.monotonic() + 15
    while len(site.worker_pids()) < 3:
        assert time.monotonic() < over, site.stderr
        for asked in [in_background(site, "/wait?0.4") for _ in range(4)]:
            asked.join()
    assert "changing the number of workers" in site.stderr
    assert title(site.pid).startswith("kirsch: supervisor")
