"""Worker hooks: functions of the application's that are called when a worker begins and ends."""

from __future__ import annotations

import json
import os
import signal
import textwrap
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from proc import wait_until
from running import title
from test_check import check

if TYPE_CHECKING:
    from pathlib import Path

    from running import Running, Serve

HOOKS = """
    import json, os

    def note(hook, worker):
        record = {"hook": hook, "index": worker.index, "number": worker.number, "pid": worker.pid,
                  "threads": worker.settings.threads, "in": os.getpid(), "app": "site_app" in __import__("sys").modules}
        with open(os.environ["NOTES"], "a") as notes:
            notes.write(json.dumps(record) + "\\n")

    def start(worker): note("start", worker)
    def stop(worker): note("stop", worker)
    def before(worker): note("before", worker)
    def after(worker): note("after", worker)
    def broken(worker): raise OSError("no such database")
"""

APP = """
    import os, sys, time

    def app(environ, start_response):
        if environ["PATH_INFO"] == "/wait":
            print("waits", file=sys.stderr, flush=True)
            time.sleep(float(environ["QUERY_STRING"]))
            with open(os.environ["NOTES"], "a") as notes:
                notes.write('{"hook": "answered", "index": 0}\\n')
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [str(os.getpid()).encode()]
"""


class Site:
    def __init__(self, serve: Serve, folder: Path) -> None:
        self.folder = folder
        self._serve = serve
        (folder / "site_app.py").write_text(textwrap.dedent(APP))
        (folder / "site_hooks.py").write_text(textwrap.dedent(HOOKS))

    def start(self, *args: str) -> Running:
        return self._serve("site_app:app", *args, cwd=self.folder, env={"NOTES": str(self.folder / "notes")})

    def notes(self) -> list[dict[str, Any]]:
        try:
            text = (self.folder / "notes").read_text()
        except FileNotFoundError:
            return []
        # The last line may still be on its way.
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def of(self, hook: str) -> list[dict[str, Any]]:
        return [note for note in self.notes() if note["hook"] == hook]


@pytest.fixture
def site(serve: Serve, tmp_path: Path) -> Site:
    return Site(serve, tmp_path)


BOTH = ("--worker-start=site_hooks:start", "--worker-stop=site_hooks:stop")


@pytest.mark.parametrize("mode", [(), ("--preload",), ("--driver=gevent",)], ids=["fork", "preload", "gevent"])
def test_worker_start_and_stop_are_called_in_each_worker(site: Site, mode: tuple[str, ...]) -> None:
    if "--driver=gevent" in mode:
        pytest.importorskip("gevent")
    server = site.start("-w2", "--threads=3", *BOTH, *mode)
    pids = server.wait_for_workers(2)
    started = site.of("start")
    assert sorted(note["pid"] for note in started) == sorted(pids)
    assert sorted(note["index"] for note in started) == [0, 1]
    assert all(note["in"] == note["pid"] and note["app"] and note["threads"] == 3 for note in started)
    for note in started:
        assert title(note["pid"]).startswith(f"kirsch: worker {note['number']} [")
    assert not site.of("stop")
    assert server.stop() == 0
    assert sorted(note["in"] for note in site.of("stop")) == sorted(pids)


def test_hooks_and_the_status_page_call_a_worker_alike(site: Site) -> None:
    server = site.start("-w2", "--metrics-bind=127.0.0.1:0", *BOTH)
    metrics = server.wait_for(r"^metrics on (\S+)$")[1]
    before = server.wait_for_workers(2)
    server.said_at(signal.SIGHUP, "SIGHUP: done")
    for pid in server.wait_for_workers(2, without=before):
        (number,) = [note["number"] for note in site.of("start") if note["pid"] == pid]
        with urllib.request.urlopen(f"{metrics}/status.json", timeout=20) as response:
            assert [each["worker"] for each in json.load(response)["workers"] if each["pid"] == pid] == [number]


def test_hooks_of_a_single_process(site: Site) -> None:
    server = site.start("-w0", *BOTH)
    assert [note["pid"] for note in site.of("start")] == [server.pid]
    server.page()
    assert server.stop() == 0
    assert [note["pid"] for note in site.of("stop")] == [server.pid]


def test_fork_hooks_with_preload_run_in_their_processes_and_in_order(site: Site) -> None:
    hooks = ("--before-fork=site_hooks:before", "--after-fork=site_hooks:after")
    server = site.start("--preload", *hooks, *BOTH)
    (worker,) = server.wait_for_workers(1)
    zygote = server.zygote_pid()
    server.stop()
    told = [(note["hook"], note["in"]) for note in site.notes()]
    assert told == [("before", zygote), ("after", worker), ("start", worker), ("stop", worker)]


def test_worker_stop_at_max_requests_waits_for_the_requests_of_others(site: Site) -> None:
    server = site.start("--max-requests=2", *BOTH)
    (old,) = server.wait_for_workers(1)
    waiting = threading.Thread(target=lambda: server.page("/wait?1.5"))
    waiting.start()
    server.wait_for("waits")
    server.page()
    waiting.join()
    server.wait_for_workers(1, without=[old])
    wait_until(lambda: bool(site.of("stop")), "the old worker has stopped")
    told = [note["hook"] for note in site.notes() if note.get("in", old) == old]
    assert told == ["start", "answered", "stop"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_worker_stop_is_called_at_a_signal_to_the_worker(site: Site, number: signal.Signals) -> None:
    server = site.start(*BOTH)
    (old,) = server.worker_pids()
    os.kill(old, number)
    server.wait_for_workers(1, without=[old])
    wait_until(lambda: [note["in"] for note in site.of("stop")] == [old], "it was called")


def test_worker_stop_that_raises_is_reported_and_the_worker_ends(site: Site) -> None:
    server = site.start("--worker-stop=site_hooks:broken")
    assert server.stop() == 0
    assert "--worker-stop: site_hooks:broken raised OSError" in server.stderr
    assert "OSError: no such database" in server.stderr


@pytest.mark.parametrize(
    ("mode", "hook"),
    [
        ((), "worker-start"),
        (("--preload",), "worker-start"),
        (("--preload",), "before-fork"),
        (("--preload",), "after-fork"),
        (("-w0",), "worker-start"),
    ],
)
def test_a_hook_that_raises_ends_the_start(site: Site, mode: tuple[str, ...], hook: str) -> None:
    with pytest.raises(AssertionError, match=r"exit status 3(.|\n)*no such database") as failure:
        site.start(f"--{hook}=site_hooks:broken", *mode)
    assert f"kirsch: --{hook}: site_hooks:broken raised OSError" in str(failure.value)


@pytest.mark.parametrize("preload", [False, True])
def test_reload_keeps_the_workers_when_worker_start_raises(site: Site, preload: bool) -> None:
    settings = site.folder / "kirsch.toml"
    text = f"workers = 2\npreload = {str(preload).lower()}\n"
    settings.write_text(text + 'worker-start = "site_hooks:start"\n')
    server = site.start()
    before = server.wait_for_workers(2)
    settings.write_text(text.replace("2", "1") + 'worker-start = "site_hooks:broken"\n')
    told = r"SIGHUP: reload failed, keeping the current workers: site_hooks\.py: OSError: no such database\n"
    server.said_at(signal.SIGHUP, told + r"kirsch\.toml:3: worker-start: site_hooks:broken raised OSError")
    assert server.worker_pids() == before
    settings.write_text(text + 'worker-start = "site_hooks:start"\n')
    server.said_at(signal.SIGHUP, "SIGHUP: done, 2 workers")
    server.wait_for_workers(2, without=before)


def test_a_hook_that_is_not_there_ends_the_start_and_the_check(site: Site) -> None:
    with pytest.raises(AssertionError, match=r"kirsch: --worker-start: site_hooks has no 'sart'; did you mean"):
        site.start("--worker-start=site_hooks:sart")
    done = check("site_app", "--worker-start=site_hooks:sart", cwd=site.folder)
    assert done.returncode == 3
    assert "kirsch: --worker-start: site_hooks has no 'sart'" in done.stderr
    done = check("site_app", "--worker-start=site_hooks:start", cwd=site.folder)
    assert done.returncode == 0, done.stderr
    assert not site.notes(), "a check calls nothing"


def test_a_hook_that_is_no_name_is_refused(site: Site) -> None:
    done = check("site_app", "--worker-start=site_hooks", cwd=site.folder)
    assert done.returncode == 2
    assert "write module:function" in done.stderr


def test_fork_hooks_without_preload_are_refused(site: Site) -> None:
    done = check("site_app", "--before-fork=site_hooks:before", cwd=site.folder)
    assert done.returncode == 2
    assert "--before-fork: it goes with --preload" in done.stderr


@pytest.mark.parametrize(
    ("key", "told"), [("post_fork", "worker-start"), ("worker_exit", "worker-stop"), ("pre_fork", "before-fork")]
)
def test_a_hook_of_gunicorns_in_the_settings_file_is_told_with_ours(site: Site, key: str, told: str) -> None:
    (site.folder / "kirsch.toml").write_text(f'{key} = "site_hooks:start"\n')
    done = check("site_app", cwd=site.folder)
    assert done.returncode == 2
    assert f"kirsch.toml:1: there is no setting {key}; use {told}" in done.stderr
