"""An edit is served without a restart: ``--reload`` while developing, ``--touch-reload`` in operations."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from select import select
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from family import is_alive
from kirsch.supervisor import watching
from kirsch.supervisor.inotify import InotifyWatcher
from kirsch.supervisor.watching import Selection, Touches, WatchError, WatchfilesWatcher
from proc import descriptors
from running import children

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from running import Running, Serve

SAYS = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"{}"]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with ``site_app.py``, first on the path of every process started in this test."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "site_app.py").write_text(SAYS.format("first"))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    return folder


@pytest.fixture(params=["inotify", "watchfiles"])
def watch_for(
    project: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., WatchfilesWatcher | InotifyWatcher]]:
    """A watch of ``project`` alone, once it is at work."""
    if request.param == "watchfiles":
        pytest.importorskip("watchfiles")
    made: list[WatchfilesWatcher | InotifyWatcher] = []

    def watch_for(*extra: str) -> WatchfilesWatcher | InotifyWatcher:
        if request.param == "inotify":
            watch: WatchfilesWatcher | InotifyWatcher = InotifyWatcher(Selection([str(project)], extra))
        else:
            watch = WatchfilesWatcher(extra, [str(project)])
        made.append(watch)
        (project / "canary.py").touch()
        assert next_changes(watch) == ["canary.py"]
        while changes(watch, 0.7):  # longer than changes are collected
            pass
        return watch

    yield watch_for
    for watch in made:
        watch.close()


def changes(watch: WatchfilesWatcher | InotifyWatcher, timeout: float) -> list[str]:
    deadline = time.monotonic() + timeout
    while (now := time.monotonic()) < deadline:
        ready, _, _ = select([watch], [], [], max(min(watch.due(), deadline) - now, 0.0))
        found = watch.read() if ready else []
        if found := found or watch.take(time.monotonic()):
            return [os.path.basename(path) for path in found]
    return []


def next_changes(watch: WatchfilesWatcher | InotifyWatcher) -> list[str]:
    found = changes(watch, 20)
    assert found, "no change was told in 20 s"
    return found


# --- What is watched -------------------------------------------------------------------------------------------------


def test_sources_are_what_is_not_installed(tmp_path: Path) -> None:
    for name in ("project/deeper", "library", "venv/lib/python3.13/site-packages", "projected"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "archive.zip").touch()
    installed = "venv/lib/python3.13/site-packages"
    names = ("project/deeper", "project", "library", installed, "missing", "archive.zip", "projected")
    path = [str(tmp_path / name) for name in names]
    path += [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), f"{sysconfig.get_path('stdlib')}/lib-dynload"]
    path += [sysconfig.get_path("scripts")]
    assert watching.source_directories(path) == [str(tmp_path / name) for name in ("library", "project", "projected")]
    assert watching.source_directories([""]) == [os.getcwd()]


def test_changed_sources_are_reported(
    project: Path, watch_for: Callable[..., WatchfilesWatcher | InotifyWatcher]
) -> None:
    (project / "package").mkdir()
    watch = watch_for()
    for name in ("notes.txt", ".hidden.py", "node_modules/x.py", ".venv/lib/y.py", "__pycache__/z.py"):
        (project / name).parent.mkdir(exist_ok=True, parents=True)
        (project / name).write_text("")
    (project / "package" / "module.py").write_text("x = 1\n")
    assert next_changes(watch) == ["module.py"]
    # As editors save: another file, moved over the old one.
    (project / "site_app.py.new").write_text(SAYS.format("second"))
    (project / "site_app.py.new").rename(project / "site_app.py")
    assert next_changes(watch) == ["site_app.py"]
    (project / "package" / "module.py").unlink()
    assert next_changes(watch) == ["module.py"]


def test_many_changes_are_reported_once(
    project: Path, watch_for: Callable[..., WatchfilesWatcher | InotifyWatcher]
) -> None:
    watch = watch_for()
    for number in range(100):
        (project / f"module_{number}.py").write_text("")
    assert 0 < len(next_changes(watch)) <= 10


def test_extra_files_patterns_and_folders(
    project: Path, tmp_path: Path, watch_for: Callable[..., WatchfilesWatcher | InotifyWatcher]
) -> None:
    outside = tmp_path / "outside"
    (outside / "templates" / "deeper").mkdir(parents=True)
    (outside / "static").mkdir()
    watch = watch_for(str(project / "settings.ini"), str(outside / "templates" / "*.html"), str(outside / "static"))
    (project / "other.ini").write_text("")
    (project / "settings.ini").write_text("")
    assert next_changes(watch) == ["settings.ini"]
    (outside / "templates" / "page.txt").write_text("")
    (outside / "templates" / "deeper" / "page.html").write_text("")
    assert next_changes(watch) == ["page.html"]
    (outside / "static" / "site.css").write_text("")
    assert next_changes(watch) == ["site.css"]


def test_an_edit_in_the_same_second_is_not_hidden_by_compiled_code(
    project: Path, watch_for: Callable[..., WatchfilesWatcher | InotifyWatcher]
) -> None:
    source = project / "constant.py"
    compiled = project / "__pycache__" / f"constant.{sys.implementation.cache_tag}.pyc"

    def value() -> str:
        program = "import constant; print(constant.VALUE)"
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True, env=environment
        ).stdout

    watch = watch_for()
    source.write_text("VALUE = 1\n")
    next_changes(watch)
    assert value() == "1\n"
    assert compiled.exists()
    moment = source.stat().st_mtime_ns
    source.write_text("VALUE = 2\n")
    os.utime(source, ns=(moment, moment))
    next_changes(watch)
    assert value() == "2\n"


# --- The process that watches ----------------------------------------------------------------------------------------


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 20
    while is_alive(pid):
        assert time.monotonic() < deadline, f"{pid} lives on"
        time.sleep(0.01)


def test_watchfiles_process_exits_with_its_parent(project: Path) -> None:
    program = (
        "import os\nfrom kirsch.supervisor.watching import WatchfilesWatcher\n"
        "watch = WatchfilesWatcher()\nprint(watch.pid, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=30, cwd=project)
    wait_for_end(int(done.stdout))


def test_watchfiles_process_inherits_no_descriptor_and_can_be_closed(project: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        watch = WatchfilesWatcher((), [str(project)])
        (project / "canary.py").touch()
        assert next_changes(watch) == ["canary.py"]
        assert f"socket:[{os.fstat(listener.fileno()).st_ino}]" not in descriptors(watch.pid).values()
    assert (
        Path(f"/proc/{watch.pid}/cmdline").read_bytes().startswith(f"kirsch: watcher [of pid {os.getpid()}]".encode())
    )
    pid = watch.pid
    watch.close()
    watch.close()
    assert not is_alive(pid)


def test_exit_of_watchfiles_process_is_reported(project: Path) -> None:
    watch = WatchfilesWatcher((), [str(project)])
    os.kill(watch.pid, signal.SIGKILL)
    select([watch], [], [], 20)
    with pytest.raises(WatchError) as raised:
        watch.read()
    assert str(raised.value) == "--reload: the process that watches files has exited; restart to watch again"
    watch.close()


def test_missing_watchfiles_is_reported_with_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(WatchError) as raised:
        WatchfilesWatcher()
    assert (
        str(raised.value) == "--reload needs the package watchfiles on this system; run `pip install 'kirsch[reload]'`"
    )


# --- inotify ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(project: Path) -> Iterator[Callable[..., InotifyWatcher]]:
    made: list[InotifyWatcher] = []

    def tree(*extra: str, ignored: tuple[str, ...] = ()) -> InotifyWatcher:
        made.append(InotifyWatcher(Selection([str(project)], extra, ignored)))
        return made[-1]

    yield tree
    for each in made:
        each.close()


def test_new_directory_is_watched_with_its_content(
    project: Path, tmp_path: Path, tree: Callable[..., InotifyWatcher]
) -> None:
    watch = tree()
    (project / "new" / "deeper").mkdir(parents=True)
    assert changes(watch, 0.5) == [], "there is no file in it"
    (project / "new" / "deeper" / "module.py").write_text("")
    assert next_changes(watch) == ["module.py"]
    # A whole package, moved there at once.
    (tmp_path / "package" / "inner").mkdir(parents=True)
    (tmp_path / "package" / "inner" / "other.py").write_text("")
    (tmp_path / "package").rename(project / "package")
    assert next_changes(watch) == ["other.py"]
    (project / "package" / "inner" / "other.py").write_text("x = 1\n")
    assert next_changes(watch) == ["other.py"]


def test_recreated_directory_is_watched(project: Path, tree: Callable[..., InotifyWatcher]) -> None:
    package = project / "package"
    package.mkdir()
    (package / "module.py").write_text("")
    watch = tree()
    for _ in range(3):
        shutil.rmtree(package)
        assert next_changes(watch) == ["module.py"]
        package.mkdir()
        (package / "module.py").write_text("")
        assert next_changes(watch) == ["module.py"]


def test_moved_directory_is_a_change_and_is_no_longer_watched(
    project: Path, tmp_path: Path, tree: Callable[..., InotifyWatcher]
) -> None:
    (project / "package").mkdir()
    (project / "package" / "module.py").write_text("")
    watch = tree()
    (project / "package").rename(tmp_path / "away")
    assert next_changes(watch) == ["package"]
    (tmp_path / "away" / "module.py").write_text("x = 1\n")
    assert changes(watch, 0.5) == []
    assert watch.directories == 1


def test_recreated_project_is_watched(project: Path, tree: Callable[..., InotifyWatcher]) -> None:
    watch = tree()
    shutil.rmtree(project)
    assert next_changes(watch) == ["site_app.py"]
    project.mkdir()
    (project / "site_app.py").write_text("")
    assert next_changes(watch) == ["site_app.py"]
    while changes(watch, 0.7):
        pass
    (project / "more.py").write_text("")
    assert next_changes(watch) == ["more.py"]


def test_changed_symlink_to_project_is_a_change(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").write_text("")
    current = tmp_path / "current"
    current.symlink_to("one")
    watch = InotifyWatcher(Selection([str(current)], ()))
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(current)
    assert next_changes(watch) == ["two.py"]
    (tmp_path / "two" / "more.py").write_text("")
    assert next_changes(watch) == ["more.py"]
    watch.close()


def test_new_links_to_files_are_reported_at_once(
    project: Path, tmp_path: Path, tree: Callable[..., InotifyWatcher]
) -> None:
    (tmp_path / "outside.py").write_text("")
    watch = tree()
    (project / "symbolic.py").symlink_to(tmp_path / "outside.py")
    (project / "hard.py").hardlink_to(tmp_path / "outside.py")
    assert next_changes(watch) == ["hard.py", "symbolic.py"]


def test_file_is_reported_when_writing_has_ended(project: Path, tree: Callable[..., InotifyWatcher]) -> None:
    watch = tree()
    with (project / "slow.py").open("w") as file:
        file.write("x = ")
        file.flush()
        assert changes(watch, 0.7) == []
        file.write("1\n")
    assert next_changes(watch) == ["slow.py"]


def test_lost_events_count_as_a_change_and_everything_stays_watched(
    project: Path, tree: Callable[..., InotifyWatcher]
) -> None:
    """The kernel keeps so many events at most, and forgets the rest."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 200_000:
        pytest.skip(f"fs.inotify.max_queued_events is {most}: more than a test should make")
    watch = tree()
    one, other = project / "one.txt", project / "other.txt"
    for _ in range(most // 2 + 100):  # in turns: the same event twice in succession is kept as one
        one.touch()
        other.touch()
    (project / "lost").mkdir()
    assert next_changes(watch) == [project.name]
    while changes(watch, 0.7):
        pass
    (project / "lost" / "module.py").write_text("")
    assert next_changes(watch) == ["module.py"]


def test_files_that_the_server_writes_are_no_change(project: Path, tree: Callable[..., InotifyWatcher]) -> None:
    log = project / "access.log"
    watch = tree(str(project), ignored=(str(log),))
    log.write_text("a line\n")
    (project / "__pycache__").mkdir()
    (project / "__pycache__" / "site_app.pyc").write_text("")
    (project / ".git").mkdir()
    (project / ".git" / "index").write_text("")
    assert changes(watch, 0.7) == []
    (project / "page.html").write_text("")
    assert next_changes(watch) == ["page.html"]


def test_thousands_of_files_are_watched(project: Path, tree: Callable[..., InotifyWatcher]) -> None:
    for number in range(100):
        (project / f"package_{number}").mkdir()
        for module in range(50):
            (project / f"package_{number}" / f"module_{module}.py").touch()
    watch = tree()
    assert (watch.files, watch.directories) == (5001, 101)
    (project / "package_99" / "module_49.py").write_text("x = 1\n")
    assert next_changes(watch) == ["module_49.py"]


def test_limit_of_the_system_is_reported_by_name(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Limited:
        def add(self, _path: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            pass

    monkeypatch.setattr("kirsch._native.Inotify", Limited)
    with pytest.raises(
        WatchError, match=r"the user's limit is reached; raise it with `sysctl fs\.inotify\.max_user_watches"
    ):
        InotifyWatcher(Selection([str(project)], ()))


# --- --touch-reload --------------------------------------------------------------------------------------------------


def test_touched_replaced_and_recreated_files_are_reported(tmp_path: Path) -> None:
    path, other = tmp_path / "reload", tmp_path / "other"
    path.touch()
    touches = Touches([str(path), str(other)])
    assert touches.changed() == []
    os.utime(path, ns=(0, 1))
    assert touches.changed() == [str(path)]
    assert touches.changed() == []
    (tmp_path / "new").touch()
    os.utime(tmp_path / "new", ns=(0, 1))
    (tmp_path / "new").rename(path)
    assert touches.changed() == [str(path)]
    path.unlink()
    assert touches.changed() == []
    other.touch()
    path.touch()
    assert touches.changed() == [str(path), str(other)]


# --- A server --------------------------------------------------------------------------------------------------------


def answer(server: Running) -> str:
    with urlopen(server.url, timeout=10) as response:
        text: bytes = response.read()
    return text.decode()


def wait_for_answer(server: Running, wanted: str) -> None:
    deadline = time.monotonic() + 20
    while (found := answer(server)) != wanted:
        assert time.monotonic() < deadline, f"it still answers {found!r}:\n{server.stderr}"


def test_reload_serves_edited_code_and_survives_a_syntax_error(serve: Serve, project: Path) -> None:
    source = project / "site_app.py"
    server = serve("site_app:app", "--reload", cwd=project)
    assert answer(server) == "first"
    source.write_text(SAYS.format("other"))
    server.wait_for(r"site_app\.py has changed")
    wait_for_answer(server, "other")
    before = len(server.stderr)
    source.write_text("def app(:\n")
    server.wait_for(r"SyntaxError", after=before)
    assert answer(server) == "other"
    source.write_text(SAYS.format("third"))
    wait_for_answer(server, "third")
    os.kill(server.pid, signal.SIGINT)  # as Ctrl-C
    server.process.wait(20)
    assert server.process.returncode == 0


def test_reload_outlives_the_directory_it_began_in(serve: Serve, tmp_path: Path) -> None:
    """Another checkout, or a build, removes the directory and makes it again; the server goes on as it was."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "site_app.py").write_text(SAYS.format("first"))
    server = serve("site_app:app", "--reload", cwd=folder, env={"PYTHONDONTWRITEBYTECODE": "1"})
    server.wait_for(r"watching \d+ file")
    shutil.rmtree(folder)
    server.wait_for(r"site_app.py has changed: reload failed, keeping the current workers: .+", timeout=20)
    assert answer(server) == "first"
    assert server.stop() == 0


def test_reload_watches_extra_files_too(serve: Serve, project: Path) -> None:
    (project / "site_app.py").write_text(
        "text = open('page.html', 'rb').read()\n"
        "def app(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        "    return [text]\n"
    )
    page = project / "page.html"
    page.write_text("old")
    server = serve("site_app:app", "--reload", "--reload-extra-file", "*.html", cwd=project)
    assert answer(server) == "old"
    page.write_text("new")
    server.wait_for(r"page\.html has changed")
    wait_for_answer(server, "new")


def test_change_before_watching_begins_is_reported(
    serve: Serve, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library takes a while to be imported; here until a gate is open."""
    gate, slow = tmp_path / "gate", tmp_path / "slow"
    slow.mkdir()
    (slow / "watchfiles.py").write_text(
        "import os, sys, time\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        f"sys.path.remove({str(slow)!r})\n"
        "del sys.modules['watchfiles']\n"
        "sys.path_importer_cache.clear()\n"
        "import watchfiles\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(slow), prepend=os.pathsep)
    monkeypatch.setenv("WATCHFILES_FORCE_POLLING", "1")  # which has the library watch
    source, moved = project / "site_app.py", tmp_path / "old.py"
    moved.write_text(SAYS.format("moved"))
    os.utime(moved, (0, 0))
    server = serve("site_app:app", "--reload", cwd=project)
    assert answer(server) == "first"
    moved.rename(project / "helper.py")
    source.write_text(SAYS.format("other"))  # of the same size, and perhaps in the same second
    assert "has changed" not in server.stderr
    gate.touch()
    server.wait_for(r"helper\.py has changed: reloading$")
    wait_for_answer(server, "other")
    before = len(server.stderr)
    # Polling, the library compares whole seconds.
    (later := tmp_path / "third.py").write_text(SAYS.format("third"))
    written = source.stat().st_mtime + 2
    os.utime(later, (written, written))
    later.replace(source)
    server.wait_for(r"site_app\.py has changed", after=before)
    wait_for_answer(server, "third")


@pytest.mark.parametrize("mode", [(), ("--preload",)], ids=["fork", "preload"])
def test_change_right_after_the_start_is_not_missed(
    serve: Serve, project: Path, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    """The file changes while the first worker imports it; nothing has been said yet."""
    started, gate = tmp_path / "started", tmp_path / "gate"
    os.mkfifo(gate)
    source = project / "site_app.py"

    def change() -> None:
        with gate.open("w"):  # waits until the worker is here
            started.touch()
            source.write_text(SAYS.format("other"))

    source.write_text(f"open({str(gate)!r}).read()\n" + SAYS.format("first"))
    changing = threading.Thread(target=change)
    changing.start()
    server = serve("site_app:app", "--reload", *mode, cwd=project)
    changing.join()
    wait_for_answer(server, "other")


@pytest.mark.slow
def test_reload_prints_what_it_watches_and_needs_no_package(serve: Serve, project: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "watchfiles.py").write_text("raise ImportError('it is not installed')\n")
    server = serve("site_app:app", "--reload", cwd=project, env={"PYTHONPATH": str(hidden)})
    server.wait_for(r"^reloading when a file changes: watching \d+ files in \d+ directories at .*/hidden, \.")
    assert len(children(server.pid)) == 1, "the worker, and no process that watches"
    (project / "site_app.py").write_text(SAYS.format("other"))
    wait_for_answer(server, "other")


def test_reload_does_not_reload_for_its_own_log(serve: Serve, project: Path) -> None:
    server = serve(
        "site_app:app",
        "--reload",
        "--reload-extra-file=.",
        "--access-logfile=access.log",
        "--pid-file=pid",
        cwd=project,
    )
    for _ in range(3):
        assert answer(server) == "first"
    (project / "page.html").touch()
    server.wait_for(r"page\.html has changed: reloading$")
    server.wait_for(r": done")
    assert server.stderr.count("has changed: reloading") == 1


def test_unchanged_files_are_not_reported(serve: Serve, project: Path) -> None:
    server = serve("site_app:app", "--reload", cwd=project)
    (project / "new.py").touch()
    server.wait_for(r"new\.py has changed: reloading$")
    server.wait_for(": done")
    assert "site_app.py has changed" not in server.stderr


def test_touch_reload_reloads_in_order(serve: Serve, project: Path, tmp_path: Path) -> None:
    trigger = tmp_path / "reload"
    server = serve("site_app:app", "--touch-reload", str(trigger), "-w", "2")
    (project / "site_app.py").write_text(SAYS.format("another") + "# another size\n")
    trigger.touch()
    server.wait_for(r"done")
    wait_for_answer(server, "another")
    before = len(server.stderr)
    trigger.unlink()
    (project / "site_app.py").write_text("import nothing_of_this_name\n")
    trigger.touch()
    server.wait_for(r"nothing_of_this_name", after=before)
    assert answer(server) == "another"
