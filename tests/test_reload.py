"""A reload: new workers take over one by one when they are ready; those that never are leave the old ones serving."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import threading
import urllib.request
from typing import TYPE_CHECKING

import pytest

from kirsch.supervisor.worker_plan import READY, STARTING, STOPPING, Worker, plan
from proc import wait_until
from running import children, title

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

MODES = pytest.mark.parametrize("mode", [(), ("--preload",)], ids=["fork", "preload"])

VERSION = """
import os, sys, time

def app(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/wait":
        print("waits", file=sys.stderr, flush=True)
        time.sleep(float(environ["QUERY_STRING"]))
    start_response({status!r}, [("Content-Type", "text/plain")])
    return [b"{version}"]
"""


@pytest.fixture
def code(tmp_path: Path) -> Callable[..., Path]:
    """Write the application ``site_app``: what it answers, with what status, or something else altogether."""

    def code(version: str = "", status: str = "200 OK", source: str = "") -> Path:
        # A new file each time: a change within a second and of the same size would be taken from the bytecode cache.
        new = tmp_path / "new"
        new.write_text(source or VERSION.format(version=version, status=status))
        number = code.number = getattr(code, "number", 0) + 1  # type: ignore[attr-defined]
        os.utime(new, (number * 100, number * 100))
        return new.rename(tmp_path / "site_app.py")

    return code


@pytest.fixture
def start(serve: Serve, tmp_path: Path, code: Callable[..., Path]) -> Callable[..., Running]:
    def start(*args: str) -> Running:
        code("one")
        return serve("site_app:app", *args, cwd=tmp_path)

    return start


def reload(site: Running, outcome: str = "SIGHUP: done") -> str:
    """Send HUP, wait for the outcome, and return what was said meanwhile."""
    return site.said_at(signal.SIGHUP, outcome)


@MODES
def test_reload_serves_new_code(
    start: Callable[..., Running], code: Callable[..., Path], mode: tuple[str, ...]
) -> None:
    site = start("-w2", *mode)
    before = site.worker_pids()
    for version in ("two", "three"):
        code(version)
        reload(site)
        before = site.wait_for_workers(2, without=before)
        assert {site.page() for _ in range(4)} == {version}
    assert site.stop() == 0


@MODES
@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import this_does_not_exist\n", "ModuleNotFoundError: No module named 'this_does_not_exist'"),
        ("import os\nos._exit(4)\n", "ended with status 4 before it"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "was killed by SIGKILL before it"),
        ("def other(): pass\n", "site_app has no 'app'"),
    ],
    ids=["raises", "exits", "crashes", "lacks-app"],
)
def test_reload_keeps_workers_when_import_fails(
    start: Callable[..., Running], code: Callable[..., Path], mode: tuple[str, ...], source: str, told: str
) -> None:
    site = start("-w2", *mode)
    before = site.worker_pids()
    code(source=source)
    said = reload(site, re.escape(told))
    assert "SIGHUP: reload failed, keeping the current workers: " in said
    assert {site.page() for _ in range(4)} == {"one"}
    assert site.wait_for_workers(2) == before
    code("mended")
    reload(site)
    site.wait_for_workers(2, without=before)
    assert site.page() == "mended"


def test_crash_after_failed_reload_is_retried_with_backoff(
    start: Callable[..., Running], code: Callable[..., Path]
) -> None:
    site = start("-w2")
    before = site.worker_pids()
    code(source="import this_does_not_exist\n")
    reload(site, "SIGHUP: reload failed")
    seen = len(site.stderr)
    os.kill(before[0], signal.SIGKILL)
    site.wait_for(r"no worker could be started, the next try is in 0\.5 s: site_app could not be imported", after=seen)
    assert site.page() == "one", "the other one serves"
    code("mended")
    site.wait_for_workers(2)
    wait_until(lambda: "mended" in {site.page() for _ in range(8)}, "the next try has succeeded")


def test_preload_replaces_crashed_worker_after_failed_reload(
    start: Callable[..., Running], code: Callable[..., Path]
) -> None:
    site = start("--preload")
    before = site.worker_pids()
    code(source="import this_does_not_exist\n")
    reload(site, "SIGHUP: reload failed")
    os.kill(before[0], signal.SIGKILL)
    site.wait_for_workers(1, without=before)
    assert site.page() == "one", "the old zygote is still there"


@MODES
def test_reload_keeps_workers_when_import_hangs(
    start: Callable[..., Running], code: Callable[..., Path], mode: tuple[str, ...]
) -> None:
    site = start("--startup-timeout=1s", *mode)
    code(source="import time\ntime.sleep(60)\n")
    said = reload(site, "SIGHUP: reload failed, keeping the current workers: the application was not ")
    assert 'site_app.py", line 2 in <module>' in said
    assert site.page() == "one"


@MODES
def test_reload_keeps_workers_when_ready_path_fails(
    start: Callable[..., Running], code: Callable[..., Path], mode: tuple[str, ...]
) -> None:
    site = start("--ready-path=/", *mode)
    code("two", status="503 Service Unavailable")
    said = reload(site, "SIGHUP: reload failed")
    assert "it answered --ready-path / with 503 Service Unavailable, and must answer 2xx" in said
    assert site.page() == "one"
    code("two")
    reload(site)
    wait_until(lambda: site.page() == "two", "the new worker serves")


@MODES
def test_reload_lets_old_worker_finish_its_requests(
    start: Callable[..., Running], code: Callable[..., Path], mode: tuple[str, ...]
) -> None:
    site = start(*mode)
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(site.page("/wait?1.5")))
    thread.start()
    site.wait_for("waits")
    code("two")
    reload(site)
    wait_until(lambda: site.page() == "two", "the new worker serves")
    assert not answers, "while the old one is still busy"
    thread.join()
    assert answers == ["one"]
    site.wait_for_workers(1)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["", "fastcgi:", "scgi:", "uwsgi:"])
def test_connection_that_never_sent_a_byte_does_not_keep_an_old_worker(
    start: Callable[..., Running], protocol: str
) -> None:
    """A browser opens such connections in advance, and may never use them."""
    site = start("--header-timeout=0", "-b", f"{protocol}127.0.0.1:0")
    before = site.worker_pids()
    port = int(re.findall(r"127\.0\.0\.1:(\d+)", site.stderr)[-1])
    with socket.create_connection(("127.0.0.1", port)) as silent:
        assert site.page() == "one"  # the worker accepts in order
        reload(site)
        site.wait_for_workers(1, without=before, timeout=20.0)  # --graceful-timeout is 30 s
        assert silent.recv(1) == b""
        assert site.page() == "one"


def test_many_sighups_end_with_the_latest_code(start: Callable[..., Running], code: Callable[..., Path]) -> None:
    site = start("-w2")
    before = site.worker_pids()
    for number in range(10):
        code(f"version {number}")
        site.send(signal.SIGHUP)
    wait_until(lambda: {site.page() for _ in range(4)} == {"version 9"}, "the last code serves")
    site.wait_for_workers(2, without=before)


SLOW_IMPORT = """
import os
with open({log!r}, "a") as log:
    log.write("import {version}\\n")
with open({gate!r}, "rb", 0) as gate:
    gate.read(1)
"""


class SlowImports:
    """A site whose imports wait at a gate from the first reload on."""

    def __init__(self, start: Callable[..., Running], code: Callable[..., Path], folder: Path, *args: str) -> None:
        self._code = code
        self._gate, self._log = folder / "gate", folder / "imports"
        os.mkfifo(self._gate)
        # Open for both, which waits for nobody, and keeps what no import has read yet.
        self._opener = os.open(self._gate, os.O_RDWR)
        self.site = start(*args)

    def write(self, version: str) -> None:
        source = SLOW_IMPORT.format(log=str(self._log), gate=str(self._gate), version=version)
        self._code(source=source + VERSION.format(version=version, status="200 OK"))

    @property
    def imports(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    def wait_for_imports(self, *imports: str) -> None:
        wait_until(lambda: self.imports == [f"import {each}" for each in imports], "the imports have begun")

    def open_gate(self) -> None:
        os.write(self._opener, b"+")


@MODES
def test_reload_requested_several_times_during_another_follows_once(
    start: Callable[..., Running], code: Callable[..., Path], tmp_path: Path, mode: tuple[str, ...]
) -> None:
    slow = SlowImports(start, code, tmp_path, *mode)
    slow.write("two")
    slow.site.send(signal.SIGHUP)
    slow.wait_for_imports("two")
    slow.write("three")
    for _ in range(5):
        slow.site.send(signal.SIGHUP)
        slow.site.said_at(signal.SIGPWR, "kirsch supervisor, pid")  # it has handled the signal before, too
    slow.open_gate()
    slow.site.wait_for("SIGHUP: done")
    slow.wait_for_imports("two", "three")
    slow.open_gate()
    wait_until(lambda: slow.site.page() == "three", "the latest code serves")
    wait_until(lambda: slow.site.stderr.count("SIGHUP: done") == 2, "both reloads have ended")
    lines = re.findall(r"SIGHUP: (.*)", slow.site.stderr)
    follows = "a reload is in progress; another reload follows"
    assert [re.sub(",.*", "", line) for line in lines] == ["reloading", follows, "done", "reloading", "done"]
    assert len(slow.imports) == 2


@MODES
def test_reload_succeeds_when_each_import_requests_another(
    start: Callable[..., Running], code: Callable[..., Path], tmp_path: Path, mode: tuple[str, ...]
) -> None:
    site = start("-w2", *mode)
    enough = tmp_path / "enough"
    request = f"import os, signal\nif not os.path.exists({str(enough)!r}): os.kill(os.getppid(), signal.SIGHUP)\n"
    code(source=request + VERSION.format(version="two", status="200 OK"))
    site.send(signal.SIGHUP)
    wait_until(lambda: site.stderr.count("SIGHUP: done") >= 2, "two reloads have ended")
    enough.touch()
    wait_until(lambda: {site.page() for _ in range(4)} == {"two"}, "all workers are new")


def test_upgrade_during_a_reload_follows_it(
    start: Callable[..., Running], code: Callable[..., Path], tmp_path: Path
) -> None:
    slow = SlowImports(start, code, tmp_path)
    slow.write("two")
    slow.site.send(signal.SIGHUP)
    slow.wait_for_imports("two")
    code("three")  # the check imports nothing
    said = slow.site.said_at(signal.SIGUSR2, "SIGUSR2: a reload is in progress; the upgrade follows")
    assert "SIGHUP: done" not in said
    slow.site.said_at(signal.SIGUSR2, "SIGUSR2: an upgrade is in progress already")
    slow.open_gate()
    slow.site.wait_for("SIGHUP: done(.|\n)*SIGUSR2: done")
    assert slow.site.page() == "three"


@pytest.mark.slow
@MODES
def test_reload_whose_import_hangs_is_given_up_for_the_next(
    start: Callable[..., Running], code: Callable[..., Path], tmp_path: Path, mode: tuple[str, ...]
) -> None:
    slow = SlowImports(start, code, tmp_path, "--startup-timeout=0", *mode)
    slow.write("two")
    slow.site.send(signal.SIGHUP)
    slow.wait_for_imports("two")
    code("three")
    said = reload(slow.site)
    assert re.search(r"SIGHUP: the new worker is not ready after \d+ s, and is given up: SIGHUP follows", said)
    wait_until(lambda: slow.site.page() == "three", "the new code serves")


def test_reload_reads_settings_again(start: Callable[..., Running], tmp_path: Path) -> None:
    settings = tmp_path / "kirsch.toml"
    settings.write_text("workers = 1\n")
    site = start()
    before = site.worker_pids()
    settings.write_text('workers = 2\nserver-header = "changed"\n')
    reload(site)
    site.wait_for_workers(2, without=before)
    with urllib.request.urlopen(site.url) as response:
        assert response.headers["Server"] == "changed"


def test_reload_changes_nothing_when_settings_are_wrong(start: Callable[..., Running], tmp_path: Path) -> None:
    settings = tmp_path / "kirsch.toml"
    settings.write_text("workers = 1\n")
    site = start()
    before = site.worker_pids()
    settings.write_text("wrokers = 2\n")
    said = reload(site, "SIGHUP: reload failed")
    assert "did you mean" in said
    assert site.page() == "one"
    assert site.worker_pids() == before


def test_reload_reports_settings_that_need_a_restart(start: Callable[..., Running], tmp_path: Path) -> None:
    settings = tmp_path / "kirsch.toml"
    settings.write_text("workers = 1\n")
    site = start()
    settings.write_text("workers = 1\nbacklog = 100\n")
    said = reload(site)
    assert "SIGHUP: --backlog stays as it is; only a restart or SIGUSR2 changes that" in said
    assert site.page() == "one"


def test_reload_changes_nothing_when_directory_is_missing(start: Callable[..., Running], tmp_path: Path) -> None:
    settings = tmp_path / "kirsch.toml"
    settings.write_text("workers = 1\n")
    site = start()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "site_app.py").write_text("import this_does_not_exist\n")
    settings.write_text('chdir = "other"\n')
    reload(site, "SIGHUP: reload failed")
    (worker,) = site.worker_pids()
    os.kill(worker, signal.SIGKILL)
    assert site.page() == "one", "all is as it was"


def test_reload_turns_preload_on_and_off(start: Callable[..., Running], tmp_path: Path) -> None:
    settings = tmp_path / "kirsch.toml"
    settings.write_text("preload = false\n")
    site = start()

    def zygotes() -> int:
        return sum(title(pid).startswith("kirsch: zygote") for pid in children(site.pid))

    assert zygotes() == 0
    settings.write_text("preload = true\n")
    reload(site)
    assert zygotes() == 1
    assert site.page() == "one"
    settings.write_text("preload = false\n")
    reload(site)
    wait_until(lambda: zygotes() == 0, "the zygote has gone")
    assert site.page() == "one"


def test_reload_follows_symlink_to_new_release(serve: Serve, tmp_path: Path) -> None:
    for release in ("one", "two"):
        (tmp_path / release).mkdir()
        (tmp_path / release / "site_app.py").write_text(VERSION.format(version=release, status="200 OK"))
    current = tmp_path / "current"
    current.symlink_to("one")
    site = serve("site_app:app", f"--chdir={current}")
    assert site.page() == "one"
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(current)
    reload(site)
    wait_until(lambda: site.page() == "two", "the new worker serves")


def test_touch_reload_reloads_when_file_is_touched(
    start: Callable[..., Running], code: Callable[..., Path], tmp_path: Path
) -> None:
    touch = tmp_path / "reload"
    touch.touch()
    site = start(f"--touch-reload={touch}")
    code("two")
    os.utime(touch)
    site.wait_for("was touched: done")
    wait_until(lambda: site.page() == "two", "the new worker serves")


def test_reload_flag_reloads_changed_code(start: Callable[..., Running], code: Callable[..., Path]) -> None:
    site = start("--reload")
    versions = itertools.count()

    def changed() -> bool:
        code(f"version {next(versions)}")
        return "site_app.py has changed: done" in site.stderr

    wait_until(changed, "a change is noticed once the watcher runs")
    last = next(versions) - 1
    wait_until(lambda: site.page() == f"version {last}", "the last one serves")
    code(source="syntax error\n")
    site.wait_for(r"site_app\.py has changed: reload failed")
    assert site.page().startswith("version")


# The next step, as a function


def workers_of(*members: str) -> list[Worker]:
    """Workers from ``index state stale`` each."""
    found = []
    for pid, member in enumerate(members, 1):
        index, state, *stale = member.split()
        worker = Worker(int(index), None, None, 1, 0.0, 0.0)  # type: ignore[arg-type]
        worker.pid = pid
        worker.state = {each: each for each in (STARTING, READY, STOPPING)}[state]
        if stale:
            worker.stale, worker.stale_since = stale[0], float(pid)
        found.append(worker)
    return found


@pytest.mark.parametrize(
    ("members", "count", "start", "replace", "stop"),
    [
        ((), 2, [0, 1], None, []),
        (("0 ready", "1 ready"), 2, [], None, []),
        (("0 ready",), 2, [1], None, []),
        (("0 ready", "1 starting"), 2, [], None, []),
        (("0 ready", "1 ready"), 1, [], None, [2]),
        (("0 ready", "1 starting"), 0, [], None, [1, 2]),
        (("0 stopping",), 1, [0], None, []),
        (("0 ready old", "1 ready old"), 2, [], 0, []),
        (("0 ready old", "1 ready old", "0 starting"), 2, [], None, []),
        (("0 ready old", "1 ready old", "0 ready"), 2, [], 1, [1]),
        (("0 stopping old", "1 ready old", "0 ready"), 2, [], 1, []),
        (("0 stopping old", "0 ready", "1 ready old", "1 ready"), 2, [], None, [3]),
        (("0 ready old", "0 starting old"), 1, [], 0, [2]),
        (("0 starting old",), 1, [0], None, [1]),
        (("0 ready old", "1 starting"), 2, [], 0, []),
        (("0 stopping",) * 4 + ("0 ready old",), 1, [], None, []),
        (("0 stopping",) * 3 + ("0 ready old",), 1, [], 0, []),
    ],
)
def test_plan_starts_replaces_and_stops_workers(
    members: tuple[str, ...], count: int, start: list[int], replace: int | None, stop: list[int]
) -> None:
    steps = plan(workers_of(*members), count)
    assert (steps.start, steps.replace, [worker.pid for worker in steps.stop]) == (start, replace, stop)
