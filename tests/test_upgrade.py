"""SIGUSR2: the supervisor becomes the new installation, with the same pid, on the same sockets."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from family import is_alive
from proc import wait_until
from running import children

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

APP = """
import os, sys, time

def app(environ, start_response):
    if environ["PATH_INFO"] == "/wait":
        print("waits", file=sys.stderr, flush=True)
        time.sleep(float(environ["QUERY_STRING"]))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"{}"]
"""

WAITS_AT_GATE = """
import os
if os.path.exists("gate"):
    open("gate").read()
"""


@pytest.fixture
def start(serve: Serve, tmp_path: Path) -> Callable[..., Running]:
    def start(*args: str) -> Running:
        (tmp_path / "site_app.py").write_text(APP.format("one"))
        return serve("site_app:app", *args, cwd=tmp_path, env={"PYTHONDONTWRITEBYTECODE": "1"})

    return start


def upgrade(site: Running, outcome: str = "SIGUSR2: done") -> str:
    return site.said_at(signal.SIGUSR2, outcome)


@pytest.mark.parametrize("mode", [(), ("--preload",)])
def test_upgrade_without_workers_reports_its_end(start: Callable[..., Running], mode: tuple[str, ...]) -> None:
    site = start("-w2", *mode)
    site.send(signal.SIGWINCH)
    site.wait_for_workers(0)
    upgrade(site, "SIGUSR2: done, 2 workers for site_app:app$")
    assert site.page() == "one"
    assert site.stop() == 0


@pytest.mark.parametrize("mode", [(), ("--preload",), ("--reuse-port",)])
def test_upgrade_keeps_pid_and_replaces_workers(
    start: Callable[..., Running], tmp_path: Path, mode: tuple[str, ...]
) -> None:
    pid_file = tmp_path / "pid"
    site = start("-w2", f"--pid-file={pid_file}", *mode)
    before = site.worker_pids()
    for version in ("two", "three"):
        (tmp_path / "site_app.py").write_text(APP.format(version))
        said = upgrade(site)
        assert f"pid {site.pid})" in said, "the new image says who it is"
        before = site.wait_for_workers(2, without=before)
        assert {site.page() for _ in range(4)} == {version}
        assert pid_file.read_text().strip() == str(site.pid)
    assert site.stop() == 0
    assert not pid_file.exists()


def test_upgrade_reads_settings_that_a_reload_cannot_change(start: Callable[..., Running], tmp_path: Path) -> None:
    site = start("--no-preload")
    unix = tmp_path / "more.sock"
    (tmp_path / "kirsch.toml").write_text(f'workers = 2\nbind = ["127.0.0.1:0", "unix:{unix}"]\n')
    upgrade(site)
    site.wait_for_workers(2)
    assert site.page() == "one"


@pytest.mark.slow
def test_upgrade_lets_old_workers_finish_their_requests(start: Callable[..., Running], tmp_path: Path) -> None:
    site = start()
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(site.page("/wait?2.5")))
    thread.start()
    site.wait_for("waits")
    (tmp_path / "site_app.py").write_text(APP.format("two"))
    upgrade(site)
    wait_until(lambda: site.page() == "two", "the new worker serves")
    assert not answers
    thread.join()
    assert answers == ["one"]
    site.wait_for_workers(1)
    assert site.stop() == 0


def test_upgrade_changes_nothing_when_new_installation_does_not_start(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    site = start("-w2")
    before = site.worker_pids()
    (tmp_path / "site_app.py").write_text("import this_does_not_exist\n")
    said = upgrade(site, "this_does_not_exist'\n(.|\n)*could not be imported")
    assert "SIGUSR2: the new installation does not start, keeping this one:" in said
    assert site.page() == "one"
    assert site.worker_pids() == before
    (tmp_path / "site_app.py").write_text(APP.format("mended"))
    upgrade(site)
    wait_until(lambda: site.page() == "mended", "the new workers serve")


def test_upgrade_changes_nothing_when_settings_are_wrong(start: Callable[..., Running], tmp_path: Path) -> None:
    site = start()
    (tmp_path / "kirsch.toml").write_text("wrokers = 2\n")
    upgrade(site, "does not start, keeping this one:\n(.|\n)*did you mean")
    assert site.page() == "one"


@pytest.mark.parametrize("mode", [(), ("--preload",)])
def test_upgrade_keeps_old_workers_when_new_ones_fail(
    start: Callable[..., Running], tmp_path: Path, mode: tuple[str, ...]
) -> None:
    site = start("-w2", *mode)
    before = site.worker_pids()
    # The check imports it once; every later import fails.
    marker = tmp_path / "imported"
    (tmp_path / "site_app.py").write_text(
        f"import os\nif os.path.exists({str(marker)!r}): raise LookupError('once is enough')\n"
        f"open({str(marker)!r}, 'w').close()\n" + APP.format("two")
    )
    said = upgrade(site, "LookupError: once is enough")
    assert "SIGUSR2: upgrade failed, keeping the current workers" in said
    assert {site.page() for _ in range(4)} == {"one"}
    assert site.wait_for_workers(2) == before
    (tmp_path / "site_app.py").write_text(APP.format("three"))
    site.send(signal.SIGHUP)
    site.wait_for("SIGHUP: done")
    site.wait_for_workers(2, without=before)
    assert site.page() == "three"
    assert site.stop() == 0


@pytest.mark.parametrize("mode", [(), ("--preload",)])
def test_an_upgrade_keeps_the_number_of_workers_when_it_fails(
    start: Callable[..., Running], tmp_path: Path, mode: tuple[str, ...]
) -> None:
    settings = tmp_path / "kirsch.toml"
    settings.write_text("workers = 3\n")
    site = start(*mode)
    before = site.wait_for_workers(3)
    settings.write_text("workers = 1\n")
    marker = tmp_path / "imported"
    (tmp_path / "site_app.py").write_text(
        f"import os\nif os.path.exists({str(marker)!r}): raise LookupError\nopen({str(marker)!r}, 'w').close()\n"
        + APP.format("two")
    )
    upgrade(site, "SIGUSR2: upgrade failed, keeping the current workers")
    assert site.worker_pids() == before
    (tmp_path / "site_app.py").write_text(APP.format("three"))
    site.said_at(signal.SIGHUP, "SIGHUP: done, a new worker")
    site.wait_for_workers(1, without=before)
    assert site.page() == "three"


def test_upgrade_changes_nothing_when_check_exceeds_startup_timeout(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    site = start("--startup-timeout=1s")
    (tmp_path / "site_app.py").write_text("import time\ntime.sleep(60)\n")
    upgrade(site, "it took longer than --startup-timeout")
    assert site.page() == "one"
    assert len(children(site.pid)) == 1


def test_signals_during_an_upgrade_are_not_lost(start: Callable[..., Running]) -> None:
    site = start()
    site.send(signal.SIGUSR2)
    site.wait_for("checking the new installation")
    site.send(signal.SIGTTIN)
    site.wait_for("SIGUSR2: done", timeout=20)
    site.wait_for_workers(2)
    seen = len(site.stderr)
    site.send(signal.SIGUSR2)
    site.wait_for("checking", after=seen)
    assert site.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_just_before_the_exec_is_not_lost(
    start: Callable[..., Running], tmp_path: Path, number: signal.Signals
) -> None:
    """It is delivered together with the one that says that the new installation has been checked."""
    site = start()
    before = children(site.pid)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "site_app.py").write_text(WAITS_AT_GATE + APP.format("two"))
    site.send(signal.SIGUSR2)
    with gate.open("wb"):  # opens when the check does: it goes on once the supervisor has been stopped
        site.send(signal.SIGSTOP)
        (check,) = set(children(site.pid)) - set(before)
        gate.unlink()
    wait_until(lambda: not is_alive(check), "the check is over")
    site.send(number)
    site.send(signal.SIGCONT)
    if number == signal.SIGTERM:
        assert site.process.wait(10) == 0
    else:
        site.wait_for("SIGHUP: reloading")
        site.wait_for("SIGHUP: done")
        site.wait_for_workers(1, without=before)


def test_upgrade_while_asleep_starts_no_lasting_worker(start: Callable[..., Running]) -> None:
    site = start()
    for _ in range(3):
        upgrade(site)
    wait_until(lambda: len(children(site.pid)) == 1, "no other process is left")
    assert site.page() == "one"


def test_upgrade_after_the_old_release_was_removed(serve: Serve, tmp_path: Path) -> None:
    """A deployment lets a link lead to the new release, and removes the one in whose directory the server began."""
    current = tmp_path / "current"
    for release in ("one", "two"):
        (tmp_path / release).mkdir()
        (tmp_path / release / "site_app.py").write_text(APP.format(release))
    current.symlink_to("one")
    site = serve("site_app:app", "-w2", cwd=current, env={"PWD": str(current), "PYTHONDONTWRITEBYTECODE": "1"})
    assert site.page() == "one"
    current.unlink()
    current.symlink_to("two")
    shutil.rmtree(tmp_path / "one")
    upgrade(site)
    assert site.page() == "two"
    assert site.stop() == 0
