"""While workers come and go under load, no request fails: none is refused, reset, cut short or answered wrongly.

Two clients ask, one on a connection that it keeps, one on a new connection each time; GET and POST take turns, bodies
are verified. A response that says ``Connection: close`` ends a connection; everything else that ends one is a failure.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import re
import shutil
import signal
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kirsch
from proc import wait_until
from running import children

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from running import Running, Serve

    Write = Callable[[str], str]

APP = """
    import hashlib, os

    def app(environ, start_response):
        body = environ["wsgi.input"].read()
        answer = f"{environ['REQUEST_METHOD']} {environ['REQUEST_URI']} {hashlib.sha256(body).hexdigest()}".encode()
        start_response("200 OK", [("Content-Length", str(len(answer))), ("X-Pid", str(os.getpid()))])
        return [answer]
"""

RATE = 150.0
"""Requests per second of each client."""


class Client(threading.Thread):
    """Sends requests until it is stopped; ``failures`` are requests that did not get their whole and right answer."""

    def __init__(self, site: Running, keep_alive: bool, seed: int) -> None:
        super().__init__(daemon=True)
        self._site = site
        self._keep_alive = keep_alive
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        self.requests = 0
        self.connections = 0
        self.failures: list[str] = []
        self.pids: set[int] = set()
        self.slowest = 0.0

    def run(self) -> None:
        due = time.monotonic()
        while not self._over.is_set():
            due = max(due + 1 / RATE, time.monotonic() - 1.0)
            self._over.wait(max(due - time.monotonic(), 0.0))
            began = time.monotonic()
            try:
                self._ask()
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.failures.append(f"request {self.requests} ({'kept' if self._keep_alive else 'new'}): {error!r}")
                self._close()
            self.requests += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
        self._close()

    def _ask(self) -> None:
        number = self._random.randrange(10**6)
        if self.requests % 2:
            body = self._random.randbytes(self._random.choice((0, 10, 1000, 100_000)))
            method = "POST"
        else:
            body, method = b"", "GET"
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._site.host, self._site.port, timeout=20)
            self.connections += 1
        headers = {} if self._keep_alive else {"Connection": "close"}
        self._connection.request(method, f"/{number}", body if method == "POST" else None, headers)
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status == 200, f"{response.status} {answer!r}"
        assert answer.decode() == f"{method} /{number} {hashlib.sha256(body).hexdigest()}"
        self.pids.add(int(response.headers["X-Pid"]))
        if response.headers.get("Connection") == "close" or not self._keep_alive:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def stop(self) -> None:
        self._over.set()
        self.join(30)
        assert not self.is_alive(), "a request hangs"


@pytest.fixture
def under_load(serve: Serve, write_app: Write) -> Iterator[Callable[..., tuple[Running, list[Client]]]]:
    """Start a server and the clients; in the end see to it that not one request has failed, and print how many."""
    clients: list[Client] = []

    def under_load(*args: str) -> tuple[Running, list[Client]]:
        site = serve(write_app(APP), *args)
        clients.extend([Client(site, True, 1), Client(site, False, 2)])
        for client in clients:
            client.start()
        return site, clients

    yield under_load
    for client in clients:
        client.stop()
    total = sum(client.requests for client in clients)
    pids = set().union(*(client.pids for client in clients))
    failures = [failure for client in clients for failure in client.failures]
    slowest = max(client.slowest for client in clients)
    print(
        f"{total} requests on {sum(client.connections for client in clients)} connections to {len(pids)} workers, "
        f"the slowest {slowest * 1000:.0f} ms: {len(failures)} failed"
    )
    assert failures == []
    assert total > 100, "there was some load"


MODES = pytest.mark.parametrize("mode", [(), ("--preload",)], ids=["fork", "preload"])
DRIVERS = pytest.mark.parametrize("driver", ["--threads=4", "--threads=1", "--driver=gevent"])


@MODES
@DRIVERS
@pytest.mark.slow
def test_twenty_reloads(
    under_load: Callable[..., tuple[Running, list[Client]]], mode: tuple[str, ...], driver: str
) -> None:
    site, _clients = under_load("-w2", driver, *mode)
    for _ in range(20):
        seen = len(site.stderr)
        site.send(signal.SIGHUP)
        site.wait_for("SIGHUP: done", after=seen, timeout=20)


@pytest.mark.slow
def test_reloads_with_sockets_for_each_worker(under_load: Callable[..., tuple[Running, list[Client]]]) -> None:
    """Connections in the queue of a worker's own socket wait there for its successor."""
    site, _clients = under_load("-w3", "--reuse-port")
    for number in [signal.SIGHUP, signal.SIGUSR2] * 4:
        seen = len(site.stderr)
        site.send(number)
        site.wait_for(f"{number.name}: done", after=seen, timeout=20)


@pytest.mark.slow
def test_twenty_reloads_at_once(under_load: Callable[..., tuple[Running, list[Client]]]) -> None:
    site, clients = under_load("-w2")
    for _ in range(20):
        site.send(signal.SIGHUP)
        time.sleep(random.random() * 0.1)
    wait_until(lambda: site.stderr.count("SIGHUP: done") > 0, "one of them comes to its end")
    before = clients[1].requests
    wait_until(lambda: clients[1].requests > before + 50, "it goes on")


@MODES
@pytest.mark.slow
def test_twenty_upgrades(under_load: Callable[..., tuple[Running, list[Client]]], mode: tuple[str, ...]) -> None:
    site, _clients = under_load("-w2", *mode)
    for _ in range(20):
        seen = len(site.stderr)
        site.send(signal.SIGUSR2)
        site.wait_for("SIGUSR2: done", after=seen, timeout=20)


@pytest.mark.slow
def test_upgrades_to_another_layout_of_the_scoreboard(
    under_load: Callable[..., tuple[Running, list[Client]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To an installation whose slots are larger, and back: counters begin anew each time, and that is all."""
    package = Path(kirsch.__file__).parent
    for name in ("old", "new"):
        shutil.copytree(package, tmp_path / name / "kirsch", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "new" / "kirsch" / "monitor" / "scoreboard.py"
    source, found = re.subn(r"^(_SLOT_SIZE = )(.*)$", r"\g<1>2 * (\2)", path.read_text(), flags=re.MULTILINE)
    assert found == 1
    path.write_text(source)
    current = tmp_path / "current"
    current.symlink_to("old")
    monkeypatch.setenv("PYTHONPATH", str(current), prepend=os.pathsep)
    site, clients = under_load("-w2", "--metrics-bind=127.0.0.1:0")
    metrics = site.wait_for(r"^metrics on (\S+)$")[1]

    def counted() -> int:
        """-1: not known at the moment."""
        try:
            with urllib.request.urlopen(f"{metrics}/metrics", timeout=20) as response:
                found = re.search(r"^kirsch_requests_total ([0-9]+)$", response.read().decode(), re.MULTILINE)
        except OSError:
            return -1
        assert found is not None
        return int(found[1])

    for release in ("new", "old"):
        wait_until(lambda: counted() > 150, "many are counted", timeout=30)
        (tmp_path / "link").symlink_to(release)
        (tmp_path / "link").rename(current)
        seen = len(site.stderr)
        site.send(signal.SIGUSR2)
        counts = [counted()]

        def is_less(counts: list[int] = counts) -> bool:
            counts.append(counted())
            return 0 <= counts[-1] < max(counts)

        # Looked at from the beginning: soon the new workers have counted as many as the old ones had.
        wait_until(is_less, "counters have begun anew")
        site.wait_for("SIGUSR2: done, 2 workers", after=seen, timeout=20)
        assert "ERROR" not in site.stderr[seen:]
        asked = clients[1].requests
        wait_until(lambda asked=asked: clients[1].requests > asked + 20, "it goes on")  # type: ignore[misc]


@pytest.mark.slow
def test_storms_of_more_and_less(under_load: Callable[..., tuple[Running, list[Client]]]) -> None:
    site, _clients = under_load("-w2")
    for _ in range(12):
        for number in (signal.SIGTTIN, signal.SIGTTIN, signal.SIGTTOU, signal.SIGTTOU, signal.SIGTTOU):
            site.send(number)
            time.sleep(0.03)
        site.send(signal.SIGTTIN)
        time.sleep(0.2)


@DRIVERS
@pytest.mark.slow
def test_fifty_requests_for_each_worker(under_load: Callable[..., tuple[Running, list[Client]]], driver: str) -> None:
    _site, clients = under_load("-w4", "--max-requests=50", "--max-requests-jitter=10", driver)
    wait_until(lambda: sum(client.requests for client in clients) > 2000, "there were many", timeout=40)
    wait_until(lambda: len(set().union(*(each.pids for each in clients))) > 10, "workers were replaced", timeout=40)


@MODES
@pytest.mark.slow
def test_waking_up(serve: Serve, write_app: Write, mode: tuple[str, ...]) -> None:
    site = serve(write_app(APP), "-w2", "--inactivity-timeout=300ms", *mode)
    requests = 0
    for number in range(8):
        site.wait_for_workers(0)
        clients = [Client(site, True, number), Client(site, False, number)]
        for client in clients:
            client.start()
        wait_until(lambda: all(client.requests > 20 for client in clients), "they are served")  # noqa: B023
        for client in clients:
            client.stop()
            assert client.failures == []
            requests += client.requests
    print(f"{requests} requests, 8 times of sleep: 0 failed")


def test_a_killed_worker_loses_only_what_it_held(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "-w2")
    clients = [Client(site, True, 1), Client(site, False, 2)]
    for client in clients:
        client.start()
    kills = 5
    for _ in range(kills):
        before = [client.requests for client in clients]
        pid = site.wait_for_workers(2)[0]
        os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: all(client.requests > count + 20 for client, count in zip(clients, before, strict=True)),  # noqa: B023
            "it goes on",
        )
    for client in clients:
        client.stop()
        # One connection each, on which one request at a time is under way.
        assert len(client.failures) <= kills, client.failures


def test_a_drain(serve: Serve, write_app: Write) -> None:
    """Clients that come again after ``Connection: close`` are served until the sockets are closed."""
    site = serve(write_app(APP), "-w2", "--drain-delay=1s")
    clients = [Client(site, True, 1), Client(site, False, 2)]
    for client in clients:
        client.start()
    wait_until(lambda: all(client.requests > 20 for client in clients), "they are served")
    began = time.monotonic()
    site.send(signal.SIGTERM)
    site.wait_for("SIGTERM: draining for 1 s, for load balancers to send requests elsewhere")
    wait_until(lambda: all(client.requests > 60 for client in clients), "they still are")
    for client in clients:
        client.stop()
        assert client.failures == []
    assert site.process.wait(10) == 0
    assert time.monotonic() - began > 0.9
    assert not children(site.pid)
