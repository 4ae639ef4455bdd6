"""A reload that fails changes nothing: not the workers, their number or their settings, nor what is seen of them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from proc import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

MODES = pytest.mark.parametrize("mode", [(), ("--preload",)], ids=["fork", "preload"])

FAILED = "SIGHUP: reload failed, keeping the current workers: "

GOOD = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"good"]
"""


class Site:
    """A server whose settings file and application the test writes."""

    def __init__(self, serve: Serve, folder: Path, settings: str, *args: str) -> None:
        self.folder = folder
        self.settings(settings)
        self.code(GOOD)
        environment = {"PYTHONDONTWRITEBYTECODE": "1"}
        self.running: Running = serve("site_app:app", *args, cwd=folder, env=environment)

    def settings(self, text: str) -> None:
        (self.folder / "kirsch.toml").write_text(text)

    def code(self, source: str) -> None:
        (self.folder / "site_app.py").write_text(source)

    def reload(self, outcome: str = "SIGHUP: done") -> str:
        return self.running.said_at(signal.SIGHUP, outcome)


@pytest.fixture
def start(serve: Serve, tmp_path: Path) -> Callable[..., Site]:
    return lambda settings, *args: Site(serve, tmp_path, settings, *args)


@MODES
@pytest.mark.parametrize(
    ("broken", "more", "told"),
    [
        (
            "import this_does_not_exist\n",
            "",
            r"site_app\.py: ModuleNotFoundError: No module named 'this_does_not_exist'$",
        ),
        ("def app(:\n", "", r"site_app\.py: SyntaxError: "),
        (GOOD, 'access-logfile = "no/such/directory/log"\n', "no/such/directory/log"),
    ],
    ids=["import", "syntax", "access-log"],
)
@pytest.mark.slow
def test_reload_keeps_the_number_of_workers_when_it_fails(
    start: Callable[..., Site], mode: tuple[str, ...], broken: str, more: str, told: str
) -> None:
    site = start("workers = 3\n", *mode)
    before = site.running.wait_for_workers(3)
    site.settings("workers = 1\n" + more)
    site.code(broken)
    site.reload(FAILED + ".*" + told)
    assert site.running.worker_pids() == before
    # A replacement shows that three are still wanted; so does the reload after it.
    site.code(GOOD)
    os.kill(before[0], signal.SIGKILL)
    after = site.running.wait_for_workers(3, without=before[:1])
    assert set(before[1:]) < set(after)
    site.settings("workers = 3\n")
    site.reload("SIGHUP: done, 3 workers")
    site.running.wait_for_workers(3, without=after)
    site.settings("workers = 1\n")
    site.reload("SIGHUP: done, a new worker")
    site.running.wait_for_workers(1)


@MODES
def test_reload_keeps_what_ttin_and_ttou_have_changed_when_it_fails(
    start: Callable[..., Site], mode: tuple[str, ...]
) -> None:
    site = start("workers = 2\n", *mode)
    running = site.running
    running.said_at(signal.SIGTTIN, "3 workers from now on")
    before = running.wait_for_workers(3)
    site.settings("workers = 5\n")
    site.code("raise LookupError\n")
    site.reload(FAILED + r"site_app\.py: LookupError$")
    assert running.worker_pids() == before
    running.said_at(signal.SIGTTOU, "2 workers from now on")
    kept = running.wait_for_workers(2)
    assert set(kept) < set(before)
    site.reload(FAILED)
    assert running.worker_pids() == kept
    site.code(GOOD)
    site.settings("workers = 2\n")
    site.reload("SIGHUP: done, 2 workers")
    running.wait_for_workers(2, without=before)


def test_ttin_during_a_reload_counts_when_the_reload_fails(start: Callable[..., Site]) -> None:
    site = start("workers = 1\n")
    gate = site.folder / "gate"
    os.mkfifo(gate)
    before = site.running.wait_for_workers(1)
    site.settings("workers = 4\n")
    site.code(f"open({str(gate)!r}).close()\nraise LookupError\n")
    site.running.send(signal.SIGHUP)
    with open(gate, "w"):  # waits until the new worker reads it: the reload is in the middle
        site.code(GOOD)
        site.running.said_at(signal.SIGTTIN, "2 workers from now on")
    site.running.wait_for(FAILED)
    assert before[0] in site.running.wait_for_workers(2)


def test_reload_keeps_the_directory_when_it_fails(start: Callable[..., Site]) -> None:
    """The supervisor's as well: the next worker starts there."""
    site = start("workers = 1\n")
    (site.folder / "other").mkdir()
    (site.folder / "other" / "site_app.py").write_text("raise LookupError\n")
    before = os.readlink(f"/proc/{site.running.pid}/cwd")
    site.settings('chdir = "other"\n')
    site.reload(FAILED + r"site_app\.py: LookupError$")
    assert os.readlink(f"/proc/{site.running.pid}/cwd") == before
    old = site.running.worker_pids()
    os.kill(old[0], signal.SIGKILL)
    site.running.wait_for_workers(1, without=old)
    assert site.running.page() == "good"


def test_replaced_worker_starts_in_directory_of_its_generation(serve: Serve, tmp_path: Path) -> None:
    """A link that leads elsewhere by now is followed at the next reload, not by a crash."""
    for release in ("one", "two"):
        (tmp_path / release).mkdir()
        (tmp_path / release / "site_app.py").write_text(GOOD.replace("good", release))
    current = tmp_path / "current"
    current.symlink_to("one")
    site = serve("site_app:app", f"--chdir={current}")
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(current)
    old = site.worker_pids()
    os.kill(old[0], signal.SIGKILL)
    site.wait_for_workers(1, without=old)
    assert site.page() == "one"
    site.said_at(signal.SIGHUP, "SIGHUP: done")
    wait_until(lambda: site.page() == "two", "the new worker serves")


def test_reload_refuses_more_workers_than_the_scoreboard_has_room_for(start: Callable[..., Site]) -> None:
    site = start("workers = 1\n")
    before = site.running.worker_pids()
    site.settings("workers = 250\n")
    site.reload(FAILED + r"kirsch\.toml:1: workers: there is room for \d+ workers")
    assert site.running.worker_pids() == before


def test_reload_while_asleep_tries_the_application_and_changes_nothing_when_it_fails(
    start: Callable[..., Site],
) -> None:
    site = start('inactivity-timeout = "300ms"\n')
    site.running.wait_for_workers(0)
    site.code("raise LookupError\n")
    site.reload(FAILED + r"site_app\.py: LookupError$")
    site.code(GOOD.replace("good", "mended"))
    site.reload("SIGHUP: done, workers will come")
    site.running.wait_for_workers(0)
    assert site.running.page() == "mended"


def test_reload_after_sigwinch_starts_no_worker_when_it_fails(start: Callable[..., Site]) -> None:
    site = start("workers = 2\n")
    site.running.said_at(signal.SIGWINCH, "stopping the workers")
    site.running.wait_for_workers(0)
    site.code("raise LookupError\n")
    site.reload(FAILED)
    site.running.wait_for_workers(0)
    site.code(GOOD)
    site.reload("SIGHUP: done, 2 workers")
    site.running.wait_for_workers(2)


def test_reload_continues_when_a_later_worker_cannot_be_started_at_once(start: Callable[..., Site]) -> None:
    """Its first worker has shown that it works; no request is aborted, and the other workers follow."""
    site = start("workers = 2\n")
    before = site.running.wait_for_workers(2)
    once, mended = site.folder / "once", site.folder / "mended"
    site.code(
        f"import os\nif os.path.exists({str(once)!r}) and not os.path.exists({str(mended)!r}): raise LookupError\n"
        f"open({str(once)!r}, 'a').close()\n" + GOOD
    )
    site.reload(r"no worker could be started, the next try is in 0\.5 s: site_app could not be imported")
    assert len(site.running.worker_pids()) >= 2
    mended.touch()
    site.running.wait_for("SIGHUP: done, 2 workers")
    site.running.wait_for_workers(2, without=before)
