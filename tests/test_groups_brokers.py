"""Groups of several hosts, which are servers of their own here, joined by a real Redis, PostgreSQL and NATS."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kirsch.config.group_settings import parse_broker, without_password
from ports import free_port
from proc import wait_until
from running import descendants
from test_groups import get, repeated
from test_websocket import connect, serve_app

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from websockets.sync.connection import Connection

    from running import Running, Serve

LIBRARIES = {"redis": "redis", "postgresql": "asyncpg", "nats": "nats"}
POSTGRESQL = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


class BrokerProcess:
    """A broker on a port of its own, which can be killed, paused and started again."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._port = free_port()
        self._user = "postgres" if kind == "postgresql" and os.geteuid() == 0 else None
        self.url = f"{kind}://127.0.0.1:{self._port}"
        if kind == "redis":
            self._command = ["redis-server", "--port", str(self._port), "--save", "", "--dir", str(folder)]
        elif kind == "nats":
            self._command = ["nats-server", "-a", "127.0.0.1", "-p", str(self._port)]
        else:
            self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
            self._command = self._postgresql(folder)
        self.start()

    def _postgresql(self, folder: Path) -> list[str]:
        data = folder / "data"
        data.mkdir()
        if self._user is not None:
            shutil.chown(folder, self._user)
            shutil.chown(data, self._user)
        initdb = [str(POSTGRESQL[-1] / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync"]
        subprocess.run(initdb, user=self._user, cwd="/", check=True, capture_output=True)
        settings = ["-c", "fsync=off", "-c", f"unix_socket_directories={data}", "-c", "listen_addresses=127.0.0.1"]
        return [str(POSTGRESQL[-1] / "postgres"), "-D", str(data), "-p", str(self._port), *settings]

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command, user=self._user, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

        def listens() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=5):
                return True
            return False

        wait_until(listens, f"{self.kind} listens")

    def stop(self) -> None:
        # PostgreSQL ends at once with its children by QUIT; the others have no such signal.
        self.process.send_signal(signal.SIGQUIT if self.kind == "postgresql" else signal.SIGKILL)
        self.process.wait(30)


@pytest.fixture(params=LIBRARIES)
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    yield from run_broker(request.param)


@pytest.fixture
def redis() -> Iterator[BrokerProcess]:
    yield from run_broker("redis")


def run_broker(kind: str) -> Iterator[BrokerProcess]:
    if importlib.util.find_spec(LIBRARIES[kind]) is None:
        pytest.skip(f"pip install 'kirsch[{kind}]'")
    if not (POSTGRESQL if kind == "postgresql" else shutil.which(f"{kind}-server")):
        pytest.skip(f"{kind} is not installed: make test-system")
    with tempfile.TemporaryDirectory(prefix="kirsch-") as folder:  # which the user of PostgreSQL may enter
        process = BrokerProcess(kind, Path(folder))
        try:
            yield process
        finally:
            process.stop()


def host(serve: Serve, url: str, *, app: str = "wsgi") -> Running:
    return serve_app(serve, "--workers", "2", "--groups", url, app=f"groups_app:{'app' if app == 'wsgi' else app}")


@contextlib.contextmanager
def two_hosts(serve: Serve, url: str) -> Iterator[tuple[Running, Running]]:
    """Two servers whose relays know each other."""
    one, two = host(serve, url), host(serve, url, app="asgi")
    with connect(one, "/room/first?one"), connect(two, "/room/first?two"):
        for site in (one, two):
            wait_until(lambda site=site: get(site, "/count/first") == "2", "the hosts know each other")  # type: ignore[misc]
        yield one, two


def test_message_reaches_all_hosts_once_and_in_order(serve: Serve, broker: BrokerProcess) -> None:
    with two_hosts(serve, broker.url) as (one, two), contextlib.ExitStack() as stack:
        clients = []
        for site in (one, two):
            joining = stack.enter_context(joined_on(site, "/room/seven"))
            clients.append(joining)
        with repeated(lambda: clients[0][0].send("begin")):
            for client in (*clients[0], *clients[1]):
                assert client.recv(timeout=20) == "begin"
        sent = [f"{number} " * 30_000 if number == 7 else f"number {number}" for number in range(50)]
        for message in sent:
            clients[0][0].send(message)
        for client in (*clients[0], *clients[1]):
            got = [client.recv(timeout=20) for _ in range(50)]
            while got[-1] != sent[-1]:  # behind further messages of the beginning
                got.append(client.recv(timeout=20))
            assert [each for each in got if each != "begin"] == sent


@contextlib.contextmanager
def joined_on(site: Running, path: str) -> Iterator[list[Connection]]:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(site, path)) for _ in range(4)]
        for client in clients:
            client.recv(timeout=20)
        yield clients


def test_members_of_all_hosts_are_known(serve: Serve, broker: BrokerProcess) -> None:
    with two_hosts(serve, broker.url) as (one, two):
        assert json.loads(get(one, "/members/first")) == ["one", "two"]
        with connect(two, "/room/first?three"):
            wait_until(lambda: get(one, "/count/first") == "3", "the member of the other host is counted")
        wait_until(lambda: get(one, "/count/first") == "2", "and has left")
        two.stop()
        wait_until(lambda: json.loads(get(one, "/members/first")) == ["one"], "the other host has gone")


def test_broker_that_is_killed_is_reported_and_used_again(serve: Serve, broker: BrokerProcess) -> None:
    with (
        two_hosts(serve, broker.url) as (one, two),
        joined_on(one, "/room/seven") as here,
        joined_on(two, "/room/seven") as there,
    ):
        broker.stop()
        for site in (one, two):
            site.wait_for(rf"groups: {broker.kind}://127.0.0.1:\d+ cannot be used, and is tried again: ")
        with repeated(lambda: here[0].send("alone")):
            for client in here:
                assert client.recv(timeout=20) == "alone", "a host goes on without the broker"
        broker.start()
        for site in (one, two):
            site.wait_for("is connected again")
        with repeated(lambda: here[0].send("together")):
            for client in there:
                while client.recv(timeout=20) != "together":
                    pass


@pytest.mark.slow
def test_broker_that_is_paused_loses_what_exceeds_the_bound_alone(serve: Serve, broker: BrokerProcess) -> None:
    with two_hosts(serve, broker.url) as (one, two), joined_on(one, "/room/seven") as here:
        # PostgreSQL has a process for each connection, which goes on when its parent alone is stopped.
        processes = [broker.process.pid, *descendants(broker.process.pid)]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            for number in range(300):
                here[0].send(bytes(100_000))
                for client in here:
                    assert client.recv(timeout=20) == bytes(100_000), number
            one.wait_for("does not take messages|cannot be used")
        finally:
            for pid in processes:
                os.kill(pid, signal.SIGCONT)
        with joined_on(two, "/room/seven") as there, repeated(lambda: here[0].send("together")):
            for client in there:
                while client.recv(timeout=30) != "together":
                    pass


def events(site: Running, last_id: str) -> Generator[tuple[str, str], None, None]:
    with socket.create_connection((site.host, site.port), timeout=20) as peer:
        peer.sendall(f"GET /events/seven HTTP/1.1\r\nHost: a\r\nLast-Event-ID: {last_id}\r\n\r\n".encode())
        mark = ""
        for line in peer.makefile():
            if line.startswith("id: "):
                mark = line[4:].strip()
            elif line.startswith("data: "):
                yield mark, line[6:].strip()


def test_reader_that_comes_back_gets_what_it_has_missed(serve: Serve, redis: BrokerProcess) -> None:
    with two_hosts(serve, f"{redis.url}?history=1000") as (one, two):
        with repeated(lambda: get(one, "/send/seven?begin")):
            stream = events(two, "")
            last, _ = next(stream)
            stream.close()
        for number in range(20):
            get(one if number % 2 else two, f"/send/seven?{number}")
        for site in (one, two):
            stream = events(site, last)
            with repeated(lambda: get(two, "/send/seven?end")):
                found = [next(stream)]
                while found[-1][1] != "end":
                    found.append(next(stream))
            stream.close()
            texts = [text for _, text in found if text.isdigit()]
            assert sorted(texts, key=int) == [str(number) for number in range(20)], "each once"
            assert len({mark for mark, _ in found}) == len(found), "each has an id of its own"


def test_hosts_get_what_they_missed_while_they_had_no_connection(serve: Serve, redis: BrokerProcess) -> None:
    import redis as library

    with two_hosts(serve, f"{redis.url}?history=1000") as (one, two), joined_on(one, "/room/seven") as clients:
        with repeated(lambda: get(two, "/send/seven?begin")):
            assert clients[0].recv(timeout=20) == "begin"
        with library.Redis.from_url(redis.url) as client:
            client.client_kill_filter(_type="pubsub")
        get(two, "/send/seven?missed")
        while clients[0].recv(timeout=20) != "missed":
            pass
        one.wait_for("is connected again")


URLS = {
    "mysql://host": "is not the URL of a broker",
    "redis": "is not the URL of a broker",
    "redis://host?history=many": "no number of messages",
    "nats://host?history=5": "needs Redis or Valkey",
}


@pytest.mark.parametrize("url", URLS)
def test_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=URLS[url]):
        parse_broker(url)


def test_password_of_a_broker_is_not_shown() -> None:
    assert without_password("redis://ann:secret@host:6379/1") == "redis://ann:***@host:6379/1"
    assert without_password("redis://host") == "redis://host"
