"""Behaviour beside pages that programs and libraries for CherryPy rely on, found by running them on the layer."""

# mypy: disable-error-code="untyped-decorator, no-any-return, unused-ignore"

from __future__ import annotations

import datetime
import pathlib
from typing import Any

import pytest

import kirsch_cherrypy as cherrypy
from cherrypy_calls import ask, fresh  # noqa: F401 - a fixture
from kirsch_cherrypy.lib import locking, sessions
from kirsch_web.testing import Client


class Root:
    @cherrypy.expose
    def index(self) -> str:
        return "page"


def test_a_hook_that_is_attached_outside_of_a_request_is_one_of_all_requests() -> None:
    seen: list[str] = []

    def note() -> None:
        seen.append(cherrypy.request.path_info)

    cherrypy.tree.mount(Root())
    cherrypy.request.hooks.attach("on_end_request", note)
    try:
        assert ask("/").text == "page"
        assert ask("/nothing").status == 404
    finally:
        hooks = cherrypy.request.hooks["on_end_request"]
        hooks[:] = [hook for hook in hooks if hook.callback is not note]
    assert ask("/").text == "page"
    assert seen == ["/", "/nothing"]


class Stored(sessions.Session):
    """A store as others write one: it connects once, has a clock of its own, and locks by itself."""

    made: list[dict[str, Any]] = []
    kept: dict[str, Any] = {}
    locking = ""

    @classmethod
    def setup(cls, **options: Any) -> None:
        cls.made.append(options)

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.timezone.utc)

    def _exists(self) -> bool:
        return self.id in self.kept

    def _load(self) -> Any:
        return self.kept.get(self.id)

    def _save(self, expiration_time: Any) -> None:
        assert expiration_time > self.now()
        self.kept[self.id] = dict(self._data), expiration_time

    def _delete(self) -> None:
        self.kept.pop(self.id, None)


class Counter:
    @cherrypy.expose
    def index(self) -> str:
        session = cherrypy.serving.session
        assert session.locking == "explicit"
        session["count"] = session.get("count", 0) + 1
        return str(session["count"])

    @cherrypy.expose
    def keep(self) -> str:
        """Keep the session now, and tell the tool, as programs that lock for a moment only do."""
        cherrypy.session["count"] = 7
        cherrypy.session.save()
        cherrypy.serving.request._sessionsaved = True
        cherrypy.session["count"] = 8
        return ""


def test_a_store_of_another_library_is_set_up_once_and_has_its_own_clock() -> None:
    config = {
        "tools.sessions.on": True, "tools.sessions.storage_class": Stored, "tools.sessions.locking": "explicit",
        "tools.sessions.address": "db.example",
    }  # fmt: skip
    cherrypy.tree.mount(Counter(), "/", {"/": config})
    client = Client(cherrypy.tree)
    assert [client.get("/").text for _ in range(3)] == ["1", "2", "3"]
    client.get("/keep")
    assert client.get("/").text == "8", "what comes behind the program's own save is not kept"
    assert [each["address"] for each in Stored.made] == ["db.example"]


class Lock:
    """A lock as zc.lockfile has it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.closed = False
        pathlib.Path(path).touch()

    def close(self) -> None:
        self.closed = True


def test_a_file_session_with_a_lock_of_its_own_releases_that(tmp_path: pathlib.Path) -> None:
    class Locked(sessions.FileSession):
        def acquire_lock(self, path: Any = None) -> None:
            checker = locking.LockChecker(self.id, self.lock_timeout)
            while not checker.expired():
                self.lock = Lock(self._get_file_path() + self.LOCK_SUFFIX)
                break
            self.locked = True

    session = Locked(storage_path=str(tmp_path))
    session.acquire_lock()
    lock = session.lock
    session["a"] = 1
    session.save()
    assert (session.locked, lock.closed) == (False, True)
    assert [each.name for each in tmp_path.iterdir()] == [f"session-{session.id}"]


def test_waiting_for_a_lock_has_an_end(tmp_path: pathlib.Path) -> None:
    first = sessions.FileSession(storage_path=str(tmp_path))
    first.acquire_lock()
    second = sessions.FileSession(storage_path=str(tmp_path), lock_timeout=datetime.timedelta(seconds=0.01))
    second._id = first.id
    with pytest.raises(locking.LockTimeout, match=str(first.id)):
        second.acquire_lock()
    first.release_lock()
    second.acquire_lock()
    second.release_lock()
    with pytest.raises(locking.LockTimeout):
        locking.LockChecker(1, -1).expired()
    assert locking.LockChecker(1, None).expired() is False


def test_a_library_adds_a_toolbox_to_all_applications() -> None:
    box = cherrypy._cptools.Toolbox("extra")
    box.note = cherrypy.Tool("before_finalize", lambda: cherrypy.response.headers.update({"X-Extra": "1"}))
    before = cherrypy.tree.mount(Root(), "/", {"/": {"extra.note.on": True}})
    cherrypy._cptree.Application.toolboxes.update(extra=box)
    try:
        assert ask("/").headers["X-Extra"] == "1"
        assert set(before.toolboxes) == {"tools", "extra"}
    finally:
        del cherrypy._cptree.Application.toolboxes["extra"]


def test_programs_may_switch_the_checker_off() -> None:
    cherrypy.config.update({"checker.on": False})
    cherrypy.checker.on = False
    cherrypy.checker.check_static_paths = False


def test_a_client_forgets_the_cookie_of_a_session_that_a_program_expires() -> None:
    class Visits:
        @cherrypy.expose
        def index(self) -> str:
            cherrypy.session["n"] = cherrypy.session.get("n", 0) + 1
            return str(cherrypy.session["n"])

        @cherrypy.expose
        def leave(self) -> str:
            sessions.expire()
            return "bye"

    cherrypy.tree.mount(Visits(), "/", {"/": {"tools.sessions.on": True, "tools.sessions.clean_freq": 0}})
    client = Client(cherrypy.tree)
    assert [client.get("/").text for _ in range(2)] == ["1", "2"]
    client.get("/leave")
    assert client.cookies == {}
    assert client.get("/").text == "1"
