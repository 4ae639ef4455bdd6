"""Tests of a system without a process to give: fork(2) fails with EAGAIN, at the start, for a crash, for a reload.

The limit itself (RLIMIT_NPROC) means nothing to root, whom tests may run as, and is shared with all else that a user
runs. So forks fail where a file says so, in a process whose title it holds.
"""

from __future__ import annotations

import os
import signal
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from proc import wait_until
from running import children
from supervised import APP

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

EAGAIN = "Resource temporarily unavailable"

# Python imports this at its start, also in the supervisor. ``left``: so many forks fail in each process from the start.
_CUSTOM = """
import errno, os

fork, left = os.fork, int(os.environ.get("FORKS_THAT_FAIL", "0"))

def limited():
    global left
    title = open("/proc/self/cmdline").read()
    try:
        wanted = open({limit!r}).read()
    except FileNotFoundError:
        wanted = None
    if left or (wanted and wanted in title):
        left = max(left - 1, 0)
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()

os.fork = limited
"""


class Limit:
    """Forks fail from :meth:`reach` on, until :meth:`lift`, in processes whose title holds that word."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def reach(self, title: str = "kirsch: supervisor") -> None:
        new = self._path.with_suffix(".new")
        new.write_text(title)
        new.rename(self._path)

    def lift(self) -> None:
        self._path.unlink()


@pytest.fixture
def limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Limit:
    custom = tmp_path / "custom"
    custom.mkdir()
    path = tmp_path / "limit"
    (custom / "sitecustomize.py").write_text(_CUSTOM.format(limit=str(path)))
    monkeypatch.setenv("PYTHONPATH", str(custom), prepend=os.pathsep)
    return Limit(path)


@pytest.fixture
def start(serve: Serve, tmp_path: Path, limit: Limit) -> Callable[..., Running]:
    """A server that can be limited."""
    (tmp_path / "site_app.py").write_text(textwrap.dedent(APP))

    def start(*args: str, failing: int = 0) -> Running:
        return serve("site_app:app", *args, cwd=tmp_path, env={"FORKS_THAT_FAIL": str(failing)})

    return start


def test_start_retries_when_no_worker_can_be_forked(start: Callable[..., Running]) -> None:
    site = start("-w2", failing=2)
    told = rf"no worker can be started, the next try is in 1 s: {EAGAIN}\n"
    site.wait_for(rf"{told}(.|\n)*{told}(.|\n)*^serving site_app:app, 2 workers$")
    assert int(site.page()) in site.wait_for_workers(2)


@pytest.mark.slow
def test_crashed_worker_is_replaced_later_with_backoff(start: Callable[..., Running], limit: Limit) -> None:
    site = start("-w2")
    before = site.wait_for_workers(2)
    limit.reach()
    os.kill(before[0], signal.SIGKILL)
    told = "".join(
        rf"no worker can be started, the next try is in {wait} s: {EAGAIN}\n(.*\n)*?.*" for wait in (1, 2, 4)
    )
    site.wait_for(told)
    assert site.page() == str(before[1]), "the other one serves on"
    limit.lift()
    site.wait_for_workers(2, without=before[:1])
    assert site.stop() == 0


def test_reload_keeps_workers_when_no_worker_can_be_forked(start: Callable[..., Running], limit: Limit) -> None:
    site = start("-w2")
    before = site.wait_for_workers(2)
    limit.reach()
    told = f"SIGHUP: reload failed, keeping the current workers: no worker can be started: {EAGAIN}"
    site.said_at(signal.SIGHUP, told)
    assert site.worker_pids() == before
    limit.lift()
    site.said_at(signal.SIGHUP, "SIGHUP: done, 2 workers")
    site.wait_for_workers(2, without=before)


def test_reload_keeps_workers_when_no_zygote_can_be_forked(start: Callable[..., Running], limit: Limit) -> None:
    site = start("--preload")
    before = site.worker_pids()
    limit.reach()
    site.said_at(signal.SIGHUP, f"reload failed, keeping the current workers: no zygote could be forked: {EAGAIN}")
    assert site.worker_pids() == before
    limit.lift()
    site.said_at(signal.SIGHUP, "SIGHUP: done, a new worker")
    site.wait_for_workers(1, without=before)


def test_zygote_that_cannot_fork_retries_later(start: Callable[..., Running], limit: Limit) -> None:
    site = start("-w2", "--preload")
    before = site.wait_for_workers(2)
    zygote = site.zygote_pid()
    limit.reach("kirsch: zygote")
    os.kill(before[0], signal.SIGKILL)
    site.wait_for(r"no worker could be started, the next try is in 0\.5 s: ")
    site.wait_for(r"no worker could be started, the next try is in 1 s: ")
    assert site.page() == str(before[1])
    limit.lift()
    site.wait_for_workers(2, without=before[:1])
    assert zygote in children(site.pid)
    assert site.stop() == 0


def test_metrics_process_that_cannot_be_forked_starts_with_the_next_reload(
    start: Callable[..., Running], limit: Limit
) -> None:
    site = start("--metrics-bind=127.0.0.1:0")
    site.wait_for("^metrics on ")
    wait_until(lambda: len(children(site.pid)) == 2, "metrics are served")
    (metrics,) = set(children(site.pid)) - set(site.worker_pids())
    old = time.monotonic() + 1.1
    wait_until(lambda: time.monotonic() > old, "it has lived for long enough to be started again at once")
    limit.reach()
    os.kill(metrics, signal.SIGKILL)
    site.wait_for(rf"the metrics process was killed by SIGKILL\n.*cannot start the metrics process: {EAGAIN}$")
    limit.lift()
    site.said_at(signal.SIGHUP, "SIGHUP: done")
    wait_until(lambda: len(children(site.pid)) == 2, "metrics are served again")
