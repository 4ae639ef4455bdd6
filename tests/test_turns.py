"""Workers that share a listener: a new connection wakes one worker that can take it, and no other.

The kernel wakes only that one. So these tests also check which workers are not chosen: one whose GIL is held, and one
that has reached its limit of connections.
"""

from __future__ import annotations

import http.client
import re
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interpreter import needs_lock
from proc import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Running, Serve

    Write = Callable[[str], str]

APP = """
    import ctypes, os, time

    def app(environ, start_response):
        if environ["PATH_INFO"] == "/hold":
            # While it waits another thread of the pool goes to wait for the poller. Then no thread gets the GIL,
            # and that is when it prints the line.
            time.sleep(0.3)
            ctypes.PyDLL(None).system(b"echo holds >&2; exec sleep 3")
        body = str(os.getpid()).encode()
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]
"""

WORKERS = 4


def poller_waits(pid: int) -> dict[str, int]:
    """For each thread of a process that waits for a poller, how often it has let go of the processor to wait."""
    waits = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        if "epoll" in (task / "wchan").read_text():
            found = re.search(r"^voluntary_ctxt_switches:\s+([0-9]+)$", (task / "status").read_text(), re.MULTILINE)
            assert found is not None
            waits[task.name] = int(found[1])
    return waits


def all_wait(site: Running) -> dict[int, dict[str, int]]:
    """The same of all workers, when a thread of each waits."""
    pids = site.wait_for_workers(WORKERS)
    wait_until(lambda: all(map(poller_waits, pids)), "a thread of each worker waits for its poller")
    return {pid: poller_waits(pid) for pid in pids}


@pytest.mark.parametrize("threads", [1, 16])
def test_new_connection_wakes_one_worker_and_workers_alternate(serve: Serve, write_app: Write, threads: int) -> None:
    site = serve(write_app(APP) + ":app", "--workers", str(WORKERS), "--threads", str(threads))
    pids = site.wait_for_workers(WORKERS)
    if all(each.read_text() == "0" for pid in pids for each in Path(f"/proc/{pid}/task").glob("*/wchan")):
        pytest.skip("this kernel does not tell what a thread waits in")
    rounds = 6
    answered: Counter[int] = Counter()
    needless = 0
    for _ in range(rounds * WORKERS):
        before = all_wait(site)
        pid = int(site.page())
        answered[pid] += 1
        after = all_wait(site)
        needless += sum(after[other] != before[other] for other in before if other != pid)
    assert set(answered) == set(site.worker_pids()), answered
    # With several threads a call that was held up for a tick makes its worker be woken beside others, once. All of them
    # each time would be three times as many.
    assert needless <= (0 if threads == 1 else rounds * WORKERS), f"{needless} workers were woken for nothing"


@needs_lock
@pytest.mark.slow
def test_connection_does_not_go_to_worker_whose_gil_is_held(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP) + ":app", "--workers", "2")
    site.wait_for_workers(2)
    answers: list[str] = []
    held = threading.Thread(target=lambda: answers.append(site.page("/hold")))
    held.start()
    site.wait_for("^holds$")
    others = {site.page() for _ in range(5)}
    assert not answers, "each was answered while the other worker was held"
    held.join()
    assert len(others) == 1
    assert others.isdisjoint(answers)


def test_connection_does_not_go_to_worker_at_its_limit(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP) + ":app", "--workers", "2", "--worker-connections", "1", "--threads", "1")
    first, second = site.wait_for_workers(2)
    for _ in range(3):
        kept = http.client.HTTPConnection(site.host, site.port, timeout=10)
        kept.request("GET", "/")
        full = int(kept.getresponse().read())
        # Each of these closes its connection, so that there is room for the next one.
        assert {int(site.page()) for _ in range(5)} == {first, second} - {full}
        other = http.client.HTTPConnection(site.host, site.port, timeout=10)
        other.request("GET", "/")
        assert int(other.getresponse().read()) != full
        # Now no worker has room, until a client disconnects.
        late = http.client.HTTPConnection(site.host, site.port, timeout=10)
        late.request("GET", "/")
        kept.close()
        assert int(late.getresponse().read()) == full
        late.close()
        other.close()
        # The ends have been seen when there is room for two again.
        wait_until(lambda: len({site.page() for _ in range(4)}) == 2, "both workers have room again")
