"""Rate limits, counted in each store: a SQLite file, a real Redis, and a real PostgreSQL through SQLAlchemy."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web import rates
from kirsch_web.testing import Client

POSTGRESQL = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


class Root:
    def index(self) -> str:
        return "index"

    @web.post(tools__rate_limit__rate="2/h")
    def login(self) -> str:
        return "login"

    @web.config({"tools.rate_limit.on": False})
    def free(self) -> str:
        return "free"


def run_server(command: list[str], is_ready: Callable[[], bool], user: str | None = None) -> Iterator[None]:
    """Run a server until the test ends."""
    server = subprocess.Popen(command, user=user, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            if is_ready():
                break
            assert server.poll() is None, "the server has ended"
            time.sleep(0.05)
        else:
            pytest.fail("the server is not ready after 30 seconds")
        yield
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:  # a short name: that of a socket has at most 107 bytes
        yield Path(path)


@pytest.fixture(scope="module")
def redis_url(folder: Path) -> Iterator[str]:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("there is no redis-server: apt-get install redis-server")
    socket = folder / "redis"
    command = [program, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]
    for _ in run_server(command, socket.exists):
        yield f"unix://{socket}"


@pytest.fixture(scope="module")
def postgresql_url(folder: Path) -> Iterator[str]:
    pytest.importorskip("psycopg", reason="the library psycopg is not installed")
    if not POSTGRESQL:
        pytest.skip("there is no PostgreSQL: apt-get install postgresql")
    user = "postgres" if os.geteuid() == 0 else None  # which runs for no root
    data = folder / "data"
    data.mkdir()
    if user is not None:
        folder.chmod(0o755)
        shutil.chown(data, user)
    initdb = [str(POSTGRESQL[-1] / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync"]
    subprocess.run(initdb, user=user, cwd="/", check=True, capture_output=True)
    settings = ["-c", "fsync=off", "-c", "listen_addresses=", "-c", f"unix_socket_directories={data}"]
    command = [str(POSTGRESQL[-1] / "postgres"), "-D", str(data), *settings]
    pid_file = data / "postmaster.pid"

    def is_ready() -> bool:
        # The socket is there before the server accepts clients. The last line of this file tells when it does.
        return pid_file.exists() and pid_file.read_text().rstrip().endswith("\nready")

    for _ in run_server(command, is_ready, user):
        yield f"postgresql+psycopg://postgres@/postgres?host={data}"


@pytest.fixture(params=["sqlite", "redis", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "sqlite":
        made: Any = web.SQLiteStore(str(tmp_path / "rates.db"))
    elif request.param == "redis":
        pytest.importorskip("redis", reason="the library redis is not installed")
        made = web.RedisStore(request.getfixturevalue("redis_url"), f"{tmp_path.name}:")
    else:
        pytest.importorskip("sqlalchemy", reason="the library SQLAlchemy is not installed")
        table = f"rates_{abs(hash(tmp_path.name))}"
        made = web.SQLAlchemyStore(request.getfixturevalue("postgresql_url"), table)
    yield made
    made.close()


def client_of(store: Any, rate: str = "3/h", address: str = "192.0.2.1", **options: Any) -> Client:
    app: Any = web.App(Root(), tools=[web.rate_limit(rate, store=store, **options)])
    return Client(lambda environ, start: app({**environ, "REMOTE_ADDR": address}, start))


def statuses(client: Client, count: int, path: str = "/", method: str = "GET") -> list[int]:
    return [client.request(method, path).status for _ in range(count)]


def test_client_that_sends_too_much_is_refused(store: Any) -> None:
    client = client_of(store)
    assert statuses(client, 3) == [200, 200, 200]
    refused = client.get("/")
    assert refused.status == 429
    assert 0 < int(refused.headers.get("Retry-After")) <= 1200
    assert statuses(client, 2, "/free") == [200, 200]
    assert statuses(client, 3, "/login", "POST") == [200, 200, 429], "another limit"
    assert statuses(client_of(store, address="192.0.2.2"), 1) == [200]
    assert statuses(client_of(store), 1) == [429], "another process counts in the same store"


def test_bucket_fills_again(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    client = client_of(store, "60/m", burst=2)
    assert statuses(client, 3) == [200, 200, 429]
    now += 1
    assert statuses(client, 2) == [200, 429]
    now += 3600  # the store has forgotten the client, or has not swept it away yet
    assert statuses(client, 3) == [200, 200, 429]


def test_requests_at_the_same_time_get_no_more_tokens_than_there_are(store: Any) -> None:
    client = client_of(store, "20/h")
    found: list[int] = []

    def ask() -> None:
        found.extend(statuses(client, 10))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) <= {200, 429}
    assert found.count(200) <= 20


def test_application_says_who_is_counted(tmp_path: Path) -> None:
    store = web.SQLiteStore(str(tmp_path / "rates.db"))
    client = client_of(store, "1/h", by=lambda request: request.headers.get("X-User"))
    ann, ben = ({"X-User": name} for name in ("ann", "ben"))
    assert [client.get("/", headers=user).status for user in (ann, ann, ben)] == [200, 429, 200]
    store.close()


def test_addresses_of_one_subscriber_count_together(tmp_path: Path) -> None:
    store = web.SQLiteStore(str(tmp_path / "rates.db"))

    def status(address: str) -> int:
        return client_of(store, "1/h", address).get("/").status

    assert [status("2001:db8::1"), status("2001:db8::2"), status("2001:db8:0:1::1")] == [200, 429, 200]
    assert [status("192.0.2.1"), status("::ffff:192.0.2.1"), status("")] == [200, 429, 200]
    store.close()


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"rate": "20"}, "is not a rate; write 20/s"),
    ({"rate": "20/s", "store": None}, "it needs a store"),
    ({"rate": "20/s", "burst": 0}, "burst is a number of requests"),
    ({"rate": "20/s", "by": "address"}, "by is a callable"),
]


class Nothing:
    """Stands in for a store that is not used."""

    def get(self, key: str) -> None: ...

    def put(self, key: str, data: str, version: int, max_age: int) -> bool:
        return True


@pytest.mark.parametrize(("options", "said"), MISTAKES)
def test_limit_that_cannot_be_meant_stops_the_application(options: dict[str, Any], said: str) -> None:
    given = {"store": Nothing(), **options}
    with pytest.raises(web.ConfigError, match=said):
        web.App(Root(), {"tools.rate_limit.on": True}, tools=[web.rate_limit(**given)])


@pytest.mark.parametrize(("text", "found"), [("20/s", (20, 1)), ("30/10s", (30, 10)), ("1/d", (1, 86_400))])
def test_rates_are_read(text: str, found: tuple[int, float]) -> None:
    assert rates.parse_rate(text) == found
