"""kirsch_cherrypy: sessions, and what there is once in a process: the bus, the server, the logs."""

# mypy: disable-error-code="untyped-decorator, no-any-return, unused-ignore"

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
from typing import Any
from urllib.request import urlopen

import pytest

import kirsch_cherrypy as cherrypy
from cherrypy_calls import Answer, Echo, ask, fresh  # noqa: F401 - fresh is a fixture of each test
from kirsch_cherrypy.lib import sessions
from kirsch_cherrypy.process import plugins, wspbus

# Sessions


class Counter:
    def __init__(self) -> None:
        self.inside = threading.Barrier(2, timeout=60)

    @cherrypy.expose
    def index(self) -> str:
        cherrypy.session["n"] = number = cherrypy.session.get("n", 0) + 1
        return str(number)

    @cherrypy.expose
    def login(self) -> str:
        cherrypy.session.regenerate()
        return str(cherrypy.session.get("n"))


def cookie_of(answer: Answer) -> str:
    match = re.search(r"session_id=([0-9a-f]+)", answer.headers["Set-Cookie"])
    assert match is not None
    return match[1]


@pytest.fixture(params=["ram", "file"])
def session_config(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Any:
    options = {"tools.sessions.on": True, "tools.sessions.storage_type": request.param}
    if request.param == "file":
        options["tools.sessions.storage_path"] = str(tmp_path)
    yield options
    for kind in (sessions.RamSession, sessions.FileSession):
        if kind.clean_thread is not None:
            kind.clean_thread.unsubscribe()
            kind.clean_thread.stop()
            kind.clean_thread = None
    sessions.RamSession.cache.clear()
    sessions.RamSession.locks.clear()


def test_session_counts_and_its_id_changes_at_a_login(session_config: dict[str, Any]) -> None:
    cherrypy.tree.mount(Counter(), config={"/": session_config})
    first = ask()
    id = cookie_of(first)
    assert [ask(HTTP_COOKIE=f"session_id={id}").text for _ in range(2)] == ["2", "3"]
    login = ask("/login", HTTP_COOKIE=f"session_id={id}")
    assert login.text == "3"
    assert cookie_of(login) != id
    assert ask(HTTP_COOKIE=f"session_id={id}").text == "1"
    assert ask(HTTP_COOKIE=f"session_id={cookie_of(login)}").text == "4"


def test_session_id_that_the_server_has_not_made_is_replaced(session_config: dict[str, Any]) -> None:
    cherrypy.tree.mount(Counter(), config={"/": session_config})
    for forged in ("a" * 40, "../../etc/passwd", "x", "%00"):
        answer = ask(HTTP_COOKIE=f"session_id={forged}")
        assert answer.text == "1"
        assert cookie_of(answer) != forged


def test_session_changes_of_many_threads_are_all_kept(session_config: dict[str, Any]) -> None:
    cherrypy.tree.mount(Counter(), config={"/": session_config})
    id = cookie_of(ask())

    def client() -> None:
        for _ in range(20):
            ask(HTTP_COOKIE=f"session_id={id}")

    threads = [threading.Thread(target=client) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert ask(HTTP_COOKIE=f"session_id={id}").text == "122"


def test_session_files_belong_to_their_user_alone(tmp_path: pathlib.Path) -> None:
    config = {
        "tools.sessions.on": True,
        "tools.sessions.storage_type": "file",
        "tools.sessions.storage_path": str(tmp_path),
    }
    cherrypy.tree.mount(Counter(), config={"/": config})
    ask()
    files = list(tmp_path.iterdir())
    assert len(files) == 1  # no lock is left
    assert files[0].stat().st_mode & 0o077 == 0


def test_session_cookie_can_be_same_site() -> None:
    config = {"tools.sessions.on": True, "tools.sessions.samesite": "Lax", "tools.sessions.httponly": True}
    cherrypy.tree.mount(Counter(), config={"/": config})
    told = ask().headers["Set-Cookie"]
    assert "SameSite=Lax" in told
    assert "HttpOnly" in told


# The process


def test_start_and_stop_callbacks_run_in_the_order_of_their_priorities() -> None:
    bus = cherrypy.process.wspbus.Bus()
    called: list[str] = []
    bus.subscribe("start", lambda: called.append("late"), 80)
    bus.subscribe("start", lambda: called.append("early"), 10)

    @bus.subscribe("stop")  # type: ignore[untyped-decorator, unused-ignore]
    def stop() -> None:
        called.append("stop")

    bus.start()
    bus.stop()
    assert called == ["early", "late", "stop"]


def run(tmp_path: pathlib.Path, text: str, **options: Any) -> subprocess.Popen[str]:
    path = tmp_path / "program.py"
    path.write_text(text)
    return subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )


PROGRAM = """
from kirsch_cherrypy import install_as_cherrypy
install_as_cherrypy()
import cherrypy
from cherrypy.lib import sessions, httputil
import cherrypy._cptools, kirsch_cherrypy as layer
assert cherrypy is layer and sessions is layer.lib.sessions and httputil.__name__.startswith("kirsch_cherrypy.")

class Root:
    @cherrypy.expose
    def index(self):
        return "served"

cherrypy.engine.subscribe("start", lambda: print("port", cherrypy.server.bound_addr[1], flush=True), 90)
cherrypy.engine.subscribe("exit", lambda: print("exit", flush=True))
cherrypy.quickstart(Root(), config={"global": {"server.socket_port": 0, "log.screen": False}})
"""


def test_quickstart_serves_and_ends_at_sigterm(tmp_path: pathlib.Path) -> None:
    program = run(tmp_path, PROGRAM)
    try:
        assert program.stdout is not None
        line = program.stdout.readline()
        assert line.startswith("port "), line + program.stdout.read()
        with urlopen(f"http://127.0.0.1:{line.split()[1]}/", timeout=60) as response:
            assert response.read() == b"served"
        program.send_signal(signal.SIGTERM)
        assert program.stdout.read().splitlines()[-1] == "exit"
        assert program.wait(60) == 0
    finally:
        program.kill()
        program.communicate()


def test_port_that_is_taken_ends_the_program_with_an_error(tmp_path: pathlib.Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        text = PROGRAM.replace('"server.socket_port": 0', f'"server.socket_port": {taken.getsockname()[1]}')
        program = run(tmp_path, text.replace('"log.screen": False', '"log.screen": True'))
        output, _ = program.communicate(timeout=60)
    assert program.returncode not in (0, None)
    assert "Address already in use" in output


def test_name_is_refused_when_cherrypy_itself_is_imported(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cherrypy.py").write_text("")
    text = "import cherrypy\nfrom kirsch_cherrypy import install_as_cherrypy\ninstall_as_cherrypy()\n"
    program = run(tmp_path, text)
    output, _ = program.communicate(timeout=60)
    assert program.returncode == 1
    assert "CherryPy itself is imported already" in output


def test_access_log_escapes_what_a_client_sends(tmp_path: pathlib.Path) -> None:
    app = cherrypy.tree.mount(Echo())
    app.log.access_file = str(tmp_path / "access.log")
    try:
        ask("/", HTTP_USER_AGENT='a" 200 1\tx', HTTP_REFERER="é")
    finally:
        app.log.access_file = ""
    line = (tmp_path / "access.log").read_text()
    assert line.count("\n") == 1
    assert r'"a\" 200 1\tx"' in line
    assert os.linesep in line


def test_blocks_of_the_guide_run_as_one_program(tmp_path: pathlib.Path) -> None:
    page = pathlib.Path(__file__).resolve().parent.parent / "README.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    # The second way of importing comes first in a program.
    blocks.insert(0, blocks.pop(1))
    program = run(
        tmp_path,
        "\n".join(blocks)
        + """
import io
from wsgiref.util import setup_testing_defaults
for path in ("/?name=you", "/api/show/7"):
    environ = {"PATH_INFO": path.partition("?")[0], "QUERY_STRING": path.partition("?")[2]}
    setup_testing_defaults(environ)
    print(b"".join(application(environ, lambda *_: None)).decode())
cherrypy.engine.exit()
""",
    )
    output, _ = program.communicate(timeout=60)
    lines = output.splitlines()
    assert "Hello, you" in lines
    assert '{"id":7}' in [line.replace(" ", "") for line in lines]
    assert program.returncode == 0


def test_a_session_class_of_a_program_needs_no_lock_and_is_incomplete_without_its_store() -> None:
    class Kept(sessions.Session):
        kept: dict[str, Any] = {}

        def _exists(self) -> bool:
            return self.id in self.kept

        def _load(self) -> Any:
            return self.kept.get(self.id)

        def _save(self, expiration_time: Any) -> None:
            self.kept[self.id] = self._data, expiration_time

        def _delete(self) -> None:
            self.kept.pop(self.id, None)

    class Root:
        @cherrypy.expose
        def index(self) -> str:
            cherrypy.session["n"] = cherrypy.session.get("n", 0) + 1
            assert cherrypy.session.locked
            return str(cherrypy.session["n"])

    cherrypy.tree.mount(Root(), config={"/": {"tools.sessions.on": True, "tools.sessions.storage_class": Kept}})
    first = ask("/")
    cookie = str(first.headers["Set-Cookie"]).partition(";")[0]
    assert (first.text, ask("/", HTTP_COOKIE=cookie).text) == ("1", "2")
    with pytest.raises(TypeError, match="abstract"):
        sessions.Session()  # type: ignore[abstract]


def test_a_program_may_replace_the_tree() -> None:
    before = cherrypy.tree
    try:
        cherrypy.tree = cherrypy._cptree.Tree()

        class Root:
            @cherrypy.expose
            def index(self) -> str:
                return cherrypy.url("/x")

        cherrypy.tree.mount(Root())
        assert ask("/").text.endswith("/x")
        assert cherrypy._globals.tree is cherrypy.tree
    finally:
        cherrypy.tree = before


RESTARTS = """
import os, sys
import kirsch_cherrypy as cherrypy

runs = len(open("runs").read()) if os.path.exists("runs") else 0
with open("runs", "a") as file:
    file.write("x")
os.environ["RUN"] = str(runs)
cherrypy.config.update({"server.socket_port": 0, "log.screen": False})
cherrypy.tree.mount(object())
cherrypy.engine.start()
os.chdir("/")
print("run", runs, sys.argv[1:])
if runs < 2:
    cherrypy.engine.exit()
    cherrypy.engine._do_execv()
    print("it came back")
cherrypy.engine.exit()
"""


def test_a_program_restarts_itself_as_sabnzbd_does(tmp_path: pathlib.Path) -> None:
    """From the directory that it was started in, with its own arguments, and without losing output."""
    (tmp_path / "again.py").write_text(RESTARTS)
    program = subprocess.run(
        [sys.executable, "again.py", "--port", "8080"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert program.returncode == 0, program.stderr
    assert program.stdout.splitlines() == [f"run {number} ['--port', '8080']" for number in range(3)]


def test_privileges_are_dropped_once_and_the_user_last(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    for name in ("umask", "setgroups", "setgid", "setuid"):
        monkeypatch.setattr(os, name, lambda value, name=name: calls.append((name, value)))
    bus = wspbus.Bus()
    drop = plugins.DropPrivileges(bus, umask=0o77, uid="root", gid=0)
    drop.subscribe()
    bus.publish("start")
    bus.publish("start")
    assert calls == [("umask", 0o77), ("setgroups", []), ("setgid", 0), ("setuid", 0), ("umask", 0o77)]


def test_a_user_that_does_not_exist_drops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "setgid", lambda _gid: pytest.fail("the group was changed"))
    with pytest.raises(KeyError):
        plugins.DropPrivileges(wspbus.Bus(), uid="no such user", gid=0).start()
