"""Sessions in cookies and in stores."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web import sessions
from kirsch_web.testing import Client

SECRET = "a secret of enough characters"


class Shop:
    def index(self, *, session: web.Session) -> Any:
        return dict(session)

    @web.post
    def add(self, book: int, *, session: web.Session) -> Any:
        session["basket"] = [*session.get("basket", []), book]
        return session["basket"]

    @web.post
    def nested(self, *, session: web.Session) -> Any:
        session.setdefault("deep", {"list": []})["list"].append(1)
        return None

    @web.post
    def login(self, name: str, *, session: web.Session) -> Any:
        session["user"] = name
        session.rotate()
        return None

    @web.post
    def logout(self, *, session: web.Session) -> Any:
        session.clear()
        return None

    @web.post
    def much(self, *, session: web.Session) -> Any:
        session["much"] = "x" * 4000
        return None

    def untouched(self) -> str:
        return "x"

    def ignores(self, *, session: web.Session) -> str:
        return "x"

    def late(self, *, session: web.Session) -> Iterator[str]:
        yield "a"
        session["late"] = 1
        yield "b"


def cookie_client(**options: Any) -> Client:
    return Client(web.App(Shop(), tools=[web.session(secret=SECRET, **options)]))


stores: list[Any] = []


def sqlite(directory: Path) -> web.SQLiteStore:
    """A store that is closed behind the test."""
    stores.append(web.SQLiteStore(str(directory / "sessions.db")))
    return stores[-1]  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real server; the tests that need it skip without one."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("there is no redis-server: apt-get install redis-server")
    path = tempfile.mkdtemp()  # a short name: that of a socket has at most 107 bytes
    command = [program, "--port", "0", "--unixsocket", f"{path}/s", "--save", "", "--dir", path]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            if Path(path, "s").exists():
                break
            time.sleep(0.05)
        yield f"unix://{path}/s"
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(path)


def store_of(kind: str, request: pytest.FixtureRequest, directory: Path) -> Any:
    if kind == "sqlite":
        return sqlite(directory)
    pytest.importorskip(kind, reason=f"the library {kind} is not installed")
    if kind == "redis":
        stores.append(web.RedisStore(request.getfixturevalue("redis_url"), f"{directory.name}:"))
    else:
        stores.append(web.SQLAlchemyStore(f"sqlite:///{directory}/alchemy.db"))
    return stores[-1]


KINDS = ["sqlite", "redis", "sqlalchemy"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return store_of(request.param, request, tmp_path)


@pytest.fixture(autouse=True)
def closed_stores() -> Iterator[None]:
    yield
    while stores:
        stores.pop().close()


@pytest.fixture(params=["cookie", *KINDS])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    if request.param == "cookie":
        yield cookie_client()
    else:
        yield cookie_client(store=store_of(request.param, request, tmp_path))


def test_a_session_lasts_from_request_to_request(client: Client) -> None:
    assert client.post("/add", form={"book": "3"}).json() == [3]
    assert client.post("/add", form={"book": "4"}).json() == [3, 4]
    assert client.get("/").json() == {"basket": [3, 4]}
    assert Client(client.app).get("/").json() == {}


def test_a_change_inside_of_a_value_is_kept(client: Client) -> None:
    for _ in range(3):
        client.post("/nested")
    assert client.get("/").json() == {"deep": {"list": [1, 1, 1]}}


def test_nothing_is_sent_where_nothing_has_changed(client: Client) -> None:
    assert "Set-Cookie" not in client.get("/").headers
    assert "Set-Cookie" not in client.get("/untouched").headers
    client.post("/add", form={"book": "3"})
    assert "Set-Cookie" not in client.get("/").headers


def test_the_cookie_is_safe_by_default(client: Client) -> None:
    field = client.post("/add", form={"book": "3"}).headers["Set-Cookie"]
    for attribute in ("Secure", "HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=1209600"):
        assert attribute in field


def test_a_forged_or_foreign_cookie_is_an_empty_session(client: Client) -> None:
    client.post("/add", form={"book": "3"})
    good = client.cookies["session"]
    stamp, payload, signature = good.split(".")
    other = base64.urlsafe_b64encode(b'{"user":"admin"}').rstrip(b"=").decode()
    for forged in (
        "", "x", "..", good[:-1], good + "x", f"{stamp}.{other}.{signature}",
        f"{int(stamp, 16) + 1:x}.{payload}.{signature}",
        f"{stamp}.{payload}", f"zz.{payload}.{signature}",
    ):  # fmt: skip
        assert client.get("/", headers={"Cookie": f"session={forged}"}).json() == {}, forged


def test_a_session_ends_with_its_age(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.post("/add", form={"book": "3"})
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 15 * 86_400)
    assert client.get("/").json() == {}


def test_a_process_remembers_few_verified_cookies_and_none_that_is_forged() -> None:
    client = cookie_client()
    client.post("/add", form={"book": "3"})
    good = client.cookies["session"]
    keeper = sessions.Keeper(SECRET, "session", 60, None, {})

    def load(field: str) -> str:
        return keeper.load(sessions.Session(keeper, {"HTTP_COOKIE": field}))

    for number in range(2 * sessions.KEPT_FIELDS):
        assert load(f"number={number}; session={good}") == '{"basket":[3]}'
        assert load(f"number={number}; session={good}x") == "{}"
        assert len(keeper._verified) <= sessions.KEPT_FIELDS
    assert not any(field.endswith("x") for field in keeper._verified)
    long = f"session={good}; long={'x' * sessions.MAX_KEPT_FIELD}"
    assert load(long) == '{"basket":[3]}'
    assert long not in keeper._verified


def test_an_older_secret_is_accepted_and_the_first_signs() -> None:
    old = cookie_client()
    old.post("/add", form={"book": "3"})
    new = Client(web.App(Shop(), tools=[web.session(secret=["another secret, also long", SECRET])]))
    new.cookies.update(old.cookies)
    assert new.get("/").json() == {"basket": [3]}
    new.post("/add", form={"book": "4"})
    assert old.get("/", headers={"Cookie": f"session={new.cookies['session']}"}).json() == {}


def test_login_changes_the_id_and_the_old_one_is_worth_nothing(store: Any) -> None:
    client = cookie_client(store=store)
    client.post("/add", form={"book": "3"})
    before = client.cookies["session"]
    client.post("/login", form={"name": "ann"})
    assert client.cookies["session"] != before
    assert client.get("/").json() == {"basket": [3], "user": "ann"}
    assert client.get("/", headers={"Cookie": f"session={before}"}).json() == {}


def test_logout_removes_session_and_cookie(client: Client) -> None:
    client.post("/login", form={"name": "ann"})
    kept = dict(client.cookies)
    client.post("/logout")
    assert "session" not in client.cookies
    if isinstance(client.app, web.App) and client.app.tools["session"].defaults.get("store"):
        assert client.get("/", headers={"Cookie": f"session={kept['session']}"}).json() == {}


def test_an_id_that_the_client_has_chosen_is_never_used(store: Any) -> None:
    client = cookie_client(store=store)
    client.post("/add", form={"book": "1"}, headers={"Cookie": "session=chosen"})
    assert store.get("chosen") is None
    assert "chosen" not in client.cookies["session"]


def test_a_session_that_does_not_fit_its_cookie_is_told() -> None:
    reply = cookie_client().post("/much")
    assert reply.status == 500
    assert "give the tool a store" in reply.errors


@pytest.mark.in_process
def test_a_session_is_not_read_where_its_handler_does_not_look_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sqlite(tmp_path)
    client = cookie_client(store=store)
    client.post("/add", form={"book": "1"})
    monkeypatch.setattr(store, "get", lambda _key: pytest.fail("the store was asked"))
    assert client.get("/ignores").text == "x"


@pytest.mark.in_process
def test_a_change_after_the_response_began_is_refused(client: Client) -> None:
    with pytest.raises(RuntimeError, match="was written already"):
        client.get("/late")


class Racing:
    """A store in which another request changes the session between the read and the write of this one."""

    def __init__(self, inner: sessions.Store, change: dict[str, Any] | None) -> None:
        self.inner = inner
        self.change = change
        self.armed = False

    def get(self, key: str) -> tuple[int, str] | None:
        return self.inner.get(key)

    def put(self, key: str, data: str, version: int, max_age: int) -> bool:
        if self.armed:
            self.armed = False
            found = self.inner.get(key)
            assert found is not None
            if self.change is None:
                self.inner.delete(key)
            else:
                values = {**sessions._loaded(found[1]), **self.change}
                assert self.inner.put(key, sessions._dump(values), found[0], max_age)
        return self.inner.put(key, data, version, max_age)

    def delete(self, key: str) -> None:
        self.inner.delete(key)


@pytest.mark.parametrize(
    ("change", "status", "expected"),
    [
        ({"theme": "dark"}, 200, {"basket": [1, 2], "theme": "dark"}),
        ({"basket": [1, 9]}, 409, {"basket": [1, 9]}),
        (None, 409, {}),
    ],
)
def test_a_lost_race_is_merged_or_told(store: Any, change: Any, status: int, expected: Any) -> None:
    racing = Racing(store, change)
    client = cookie_client(store=racing)
    client.post("/add", form={"book": "1"})
    racing.armed = True
    reply = client.post("/add", form={"book": "2"})
    assert reply.status == status
    assert client.get("/").json() == expected


def test_no_lock_is_held_while_a_handler_runs(tmp_path: Path) -> None:
    barrier = threading.Barrier(2)

    class Slow(Shop):
        @web.post
        def slow(self, key: str, *, session: web.Session) -> None:
            session["x"] = session.get("x", 0)
            session[key] = 1
            barrier.wait(30)  # both handlers are here at the same time

    app = web.App(web.publish(Slow)(), tools=[web.session(secret=SECRET, store=sqlite(tmp_path))])
    client = Client(app)
    client.post("/add", form={"book": "1"})
    statuses: list[int] = []

    def ask(key: str) -> None:
        each = Client(app)
        each.cookies.update(client.cookies)
        statuses.append(each.post("/slow", form={"key": key}).status)

    threads = [threading.Thread(target=ask, args=(key,)) for key in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert statuses == [204, 204]
    assert client.get("/").json() == {"basket": [1], "x": 0, "a": 1, "b": 1}


def test_one_of_many_writes_of_a_version_wins(store: Any) -> None:
    assert store.put("a", '{"n":0}', 0, 60)
    assert not store.put("a", "{}", 0, 60)  # it is no new session
    for version in range(1, 6):
        won: list[bool] = []
        barrier = threading.Barrier(8)

        def write(number: int, version: int = version, won: list[bool] = won, barrier: Any = barrier) -> None:
            barrier.wait(30)
            won.append(store.put("a", f'{{"n":{number}}}', version, 60))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(won) == [False] * 7 + [True]
        assert store.get("a")[0] == version + 1
    store.delete("a")
    store.delete("a")
    assert store.get("a") is None
    assert not store.put("a", "{}", 6, 60)


def test_an_expired_session_is_gone(store: Any) -> None:
    assert store.put("a", "{}", 0, 1)
    assert store.put("b", "{}", 0, 60)
    limit = time.monotonic() + 20
    while store.get("a") is not None:
        assert time.monotonic() < limit, "it has not expired"
        time.sleep(0.01)
    assert store.get("b") == (1, "{}")


def test_redis_has_no_id_and_forgets_by_itself(redis_url: str) -> None:
    pytest.importorskip("redis", reason="the library redis is not installed")
    store = web.RedisStore(redis_url, "t:")
    stores.append(store)
    client = cookie_client(store=store, max_age=100)
    client.post("/add", form={"book": "1"})
    key = client.cookies["session"].split(".")[1]
    [stored] = store._client.keys("t:*")
    assert key.encode() not in stored
    assert 0 < store._client.ttl(stored) <= 100


def test_two_processes_share_the_table_of_sqlalchemy(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="the library sqlalchemy is not installed")
    url = f"sqlite:///{tmp_path}/a.db"
    first, second = web.SQLAlchemyStore(url), web.SQLAlchemyStore(url)
    stores.extend((first, second))
    assert first.put("a", '{"n":1}', 0, 60)
    code = (
        "import sys, kirsch_web as web; store = web.SQLAlchemyStore(sys.argv[1])\n"
        "print(store.get('a'), store.put('a', '{}', 1, 60)); store.close()"
    )
    done = subprocess.run([sys.executable, "-c", code, url], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == """(1, '{"n":1}') True"""
    assert second.get("a") == (2, "{}")


@pytest.mark.parametrize(
    ("make", "library"),
    [
        (lambda: web.RedisStore("redis://localhost"), "redis"),
        (lambda: web.RedisStore("valkey://localhost"), "valkey"),
        (lambda: web.SQLAlchemyStore("sqlite://"), "sqlalchemy"),
    ],
)
def test_a_missing_library_of_a_store_is_named(make: Any, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(web.ConfigError, match=rf"pip install 'kirsch-web\[{library}\]'"):
        make()


def test_stored_ids_cannot_be_read_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    client = cookie_client(store=sqlite(tmp_path))
    client.post("/add", form={"book": "1"})
    key = client.cookies["session"].split(".")[1]
    assert all(key.encode() not in file.read_bytes() for file in tmp_path.iterdir())
    assert path.stat().st_mode & 0o077 == 0


def test_expired_sessions_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sqlite(tmp_path)
    assert store.put("a", "{}", 0, 10)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 11)
    assert store.get("a") is None
    store.sweep()
    assert store._execute("SELECT count(*) FROM session") == ([(0,)], -1)


@pytest.mark.parametrize(
    "options", [{"secret": ""}, {"secret": "short"}, {"secret": [1]}, {"secret": SECRET, "max_age": 0}]
)
def test_wrong_session_options_fail_at_mount(options: dict[str, Any]) -> None:
    with pytest.raises(web.ConfigError, match=r"tools\.session"):
        web.App(Shop(), tools=[web.session(**options)])


def test_a_handler_that_asks_its_request_learns_that_the_tool_is_off() -> None:
    class Root:
        def index(self, *, request: web.Request) -> str:
            return str(request.session)

    reply = Client(web.App(Root())).get("/")
    assert reply.status == 500
    assert "the tool `session` is not on" in reply.errors


def test_sessions_and_basic_auth_work_together() -> None:
    auth = web.basic_auth(lambda name, password: (name, password) == ("ann", "pass"))
    app = web.App(Shop(), tools=[web.session(secret=SECRET), auth])
    fields = {"Authorization": "Basic " + base64.b64encode(b"ann:pass").decode()}
    assert Client(app).get("/").status == 401
    assert Client(app, headers=fields).post("/add", form={"book": "1"}).json() == [1]
