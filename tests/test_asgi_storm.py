"""Requests that are cancelled at random moments: by clients that vanish, by deadlines, by the application.

They leave no task, no coroutine, no call and no connection behind, and no memory. KIRSCH_STORM_REQUESTS says how many
there are, KIRSCH_STORM_SEED with which seed.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import threading
from typing import TYPE_CHECKING

import pytest

from proc import wait_until
from raw import Peer, build_request, exchange

if TYPE_CHECKING:
    from running import Running, Serve

HERE = os.path.dirname(__file__)
REQUESTS = int(os.environ.get("KIRSCH_STORM_REQUESTS", "3000"))
SEED = os.environ.get("KIRSCH_STORM_SEED", "1")
CLIENTS = 4


def left(site: Running) -> list[int]:
    found: list[int] = json.loads(exchange(site.host, site.port, build_request("GET", "/left"), timeout=60).body)
    return found


def client(site: Running, number: int, count: int) -> None:
    """Sends requests, and reads some of each response: all, a part, nothing. Leaves in one of several ways."""
    dice = random.Random(f"{SEED}-{number}")
    for _ in range(count):
        with Peer.connect(site.host, site.port, timeout=60) as peer:
            body = dice.choice((None, b"x" * 10, b"x" * 100_000))
            request = build_request("POST" if body else "GET", f"/storm/{dice.randrange(6)}", body=body)
            request = request[: len(request) if dice.random() < 0.8 else dice.randrange(30, len(request))]
            if not peer.offer(request):
                continue
            want = dice.choice((0, 1, 200, 5000, 1 << 30))
            peer.sock.settimeout(dice.choice((0.001, 0.003, 0.01)))
            try:
                while want > 0 and (received := peer.sock.recv(min(want, 1 << 16))):
                    want -= len(received)
            except OSError:
                pass
            if dice.random() < 0.5:
                peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def load(site: Running, count: int) -> None:
    threads = [threading.Thread(target=client, args=(site, number, count // CLIENTS)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.slow
@pytest.mark.timeout(120 + REQUESTS // 20)
def test_requests_cancelled_at_random_moments_leave_nothing_behind(serve: Serve) -> None:
    print(f"seed {SEED}")
    # Some are cut by the deadline, too.
    site = serve(
        "asgi_reports_app:app",
        "--timeout",
        "20ms",
        "--timeout-path",
        "/left=30s",
        "--log-level",
        "critical",  # each request that the deadline cancels has its traceback in the log
        cwd=HERE,
        env={"SEED": SEED},
    )
    load(site, 200)  # until memory has its size

    def is_quiet() -> bool:
        _, tasks, all_tasks, coroutines, _ = found = left(site)
        quiet.append(found)
        # One task may be parked for the next request, with its coroutine.
        return all(now <= before + 2 for now, before in zip((tasks, all_tasks, coroutines), calm[1:4], strict=True))

    wait_until(lambda: left(site)[1] <= 3, "the first requests to end", timeout=15)
    calm = left(site)
    quiet: list[list[int]] = []
    load(site, REQUESTS)
    wait_until(is_quiet, f"the tasks and coroutines of before, {calm}", timeout=12)
    after = quiet[-1]
    print(f"{after[0] - calm[0]} requests: before {calm}, after {after} (tasks, all tasks, coroutines, KiB)")
    # A request that leaks leaves a kilobyte at least; 20 MiB are the allocator's.
    assert after[4] - calm[4] < 20_000 + 0.1 * REQUESTS, (calm, after)
    for text in ("never awaited", "never retrieved", "was destroyed but it is pending", "panicked"):
        assert text not in site.stderr
    assert exchange(site.host, site.port, build_request("GET", "/")).body == b"hello"
    # No call is left that the end would wait for.
    assert site.stop() == 0
    assert "had not ended" not in site.stderr
