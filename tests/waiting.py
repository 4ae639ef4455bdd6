"""Servers of each driver with ``waiting_app``, and clients that meet it: waiting for an answer, slow, unaffected."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from interpreter import needs_gevent, parametrize_drivers
from proc import wait_until
from raw import MalformedResponse, Peer, PeerClosed, Response, build_request, exchange

if TYPE_CHECKING:
    from types import TracebackType

    from running import Running, Serve

HERE = os.path.dirname(os.path.abspath(__file__))

PATIENCE = 20.0
"""Seconds that a client waits here: far more than anything takes, less than a hanging test has."""

FLAGS = {
    "threads": ("--threads", "4"),
    "one thread": ("--threads", "1"),
    "gevent": ("--driver", "gevent"),
}

every_driver = parametrize_drivers(*FLAGS)
every_concurrent_driver = parametrize_drivers("threads", "gevent")
"""The drivers in which a waiting call lets others go on."""


def flags(driver: str) -> tuple[str, ...]:
    """The command line's flags for ``driver``; skips the test where what it needs is not installed."""
    if driver == "gevent":
        needs_gevent()
    return FLAGS[driver]


def serve_waiting(serve: Serve, *args: str) -> Running:
    """Serve ``waiting_app`` with further command-line ``args``."""
    path = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH", "")]))
    return serve("waiting_app:app", *args, env={"PYTHONPATH": path})


def connect(site: Running) -> Peer:
    return Peer.connect(site.host, site.port, PATIENCE)


def connect_without_room(site: Running) -> Peer:
    """A client whose kernel holds little that it has not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    sock.connect((site.host, site.port))
    return Peer(sock, PATIENCE)


def ask(site: Running, target: str, method: str = "GET", **options: Any) -> Peer:
    """A client that has sent a request and not read the answer."""
    peer = connect(site)
    peer.send(build_request(method, target, **options))
    return peer


def get(site: Running, target: str) -> Response:
    return exchange(site.host, site.port, build_request("GET", target), timeout=PATIENCE)


def get_json(site: Running, target: str) -> Any:
    response = get(site, target)
    assert response.status == 200, response
    return json.loads(response.body)


def assert_serves(site: Running) -> None:
    assert (
        exchange(site.host, site.port, build_request("POST", "/echo", body=b"alive"), timeout=PATIENCE).body == b"alive"
    )


def assert_answered(peer: Peer, body: bytes, status: int = 200) -> None:
    """The next response on ``peer`` is whole, and this."""
    response = peer.read_response()
    assert (response.status, response.body, response.complete) == (status, body, True)


def await_inside(site: Running, gate: object, count: int = 1) -> None:
    """Wait until ``count`` calls have come to wait for ``gate``."""
    wait_until(lambda: site.stderr.count(f"waiting for {gate}\n") >= count, f"{count} calls wait for {gate}", PATIENCE)


def await_turns(site: Running) -> None:
    """Wait until the engine has looked at everything that was sent before this call, without the application's help.

    A request that it refuses is answered by itself; two of them one after another, because the first may be answered
    in the same turn in which the rest is found.
    """
    for _ in range(2):
        with connect(site) as peer:
            peer.send(b"REFUSED\r\n\r\n")
            assert peer.read_response().status == 400


def refuses(site: Running) -> bool:
    """Return whether the listener is closed."""
    try:
        connect(site).close()
    except OSError:
        return True
    return False


class UnaffectedClients:
    """Clients with whom nothing is wrong, for the time of a ``with`` block: each talks on and checks each answer.

    At the end of the block the first that is wrong is raised. With :attr:`may_end` the server may close connections
    between two answers, and refuse new ones; no answer that was begun may be cut even then.
    """

    def __init__(self, site: Running, clients: int = 2, seed: int = 20_261_121) -> None:
        print("seed", seed)
        self.may_end = False
        self._site = site
        self._stop = False
        self._answers = 0
        self._wrong: BaseException | None = None
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._talk, args=(random.Random(seed + n),)) for n in range(clients)]

    def __enter__(self) -> UnaffectedClients:
        for thread in self._threads:
            thread.start()
        self.await_answers(len(self._threads))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop = True
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "an unaffected client waits for an answer"
        print(f"unaffected clients were answered {self._answers} times")
        if kind is None and self._wrong is not None:
            raise self._wrong

    def await_answers(self, count: int) -> None:
        """Wait for so many right answers more. Raises what was wrong with one."""
        with self._changed:
            wanted = self._answers + count
            deadline = time.monotonic() + PATIENCE
            while self._wrong is None and self._answers < wanted:
                assert self._changed.wait(deadline - time.monotonic()), "unaffected clients are not answered"
            if self._wrong is not None:
                raise self._wrong

    def _talk(self, chance: random.Random) -> None:
        try:
            while not self._stop and self._talk_on_one_connection(chance):
                pass
        except BaseException as error:
            with self._changed:
                self._wrong = self._wrong or error
                self._changed.notify_all()
            if not isinstance(error, (AssertionError, OSError)):
                raise

    def _talk_on_one_connection(self, chance: random.Random) -> bool:
        """Ten requests at most; False where the server is at its end, as it may be."""
        try:
            peer = connect(self._site)
        except OSError:
            if self.may_end:
                return False
            raise
        with peer:
            for _ in range(10):
                if self._stop:
                    break
                body = chance.randbytes(chance.choice([0, 1, 50, 5000, 100_000]))
                try:
                    peer.send(build_request("POST", "/echo", body=body))
                    response = peer.read_response()
                except MalformedResponse:
                    raise
                except (PeerClosed, OSError):
                    if self.may_end:
                        return False
                    raise
                assert (response.status, response.complete) == (200, True), response
                assert response.body == body, "an answer is not that to its request"
                with self._changed:
                    self._answers += 1
                    self._changed.notify_all()
                if response.header("Connection") == "close":
                    assert self.may_end, "a connection is closed for no reason"
                    break
        return True
