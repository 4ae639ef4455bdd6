"""``--preload``: workers that a zygote forks, and a zygote that is killed or stopped."""

from __future__ import annotations

import os
import signal
import textwrap
from typing import TYPE_CHECKING

from family import is_alive
from proc import wait_until
from running import children
from supervised import APP, in_background

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Serve

    Write = Callable[[str], str]


def test_preloaded_workers_are_children_of_the_supervisor(serve: Serve, write_app: Write) -> None:
    site = serve(
        write_app(
            "import os\nIMPORTED_BY = os.getpid()\n"
            + textwrap.dedent(APP)
            + textwrap.dedent("""
        def app(environ, start_response):
            start_response("200 OK", [])
            return [f"{IMPORTED_BY} {os.getppid()}".encode()]
    """)
        ),
        "-w2",
        "--preload",
    )
    importer, parent = map(int, site.page().split())
    assert parent == site.pid
    assert importer in children(site.pid)
    assert importer not in site.worker_pids()


def test_preload_warns_about_threads_of_the_import(serve: Serve, write_app: Write) -> None:
    source = "import threading as t\nt.Thread(target=t.Event().wait, name='collector', daemon=True).start()\n"
    site = serve(write_app(source + textwrap.dedent(APP)), "--preload")
    site.wait_for(
        "--preload: importing the application started threads, and the workers will not have them: collector;"
    )


def test_preload_works_under_gevent(serve: Serve, write_app: Write) -> None:
    site = serve(
        write_app("""
        import os, time

        def app(environ, start_response):
            time.sleep(0.05)
            start_response("200 OK", [])
            return [f"{time.sleep.__module__} {os.getpid()}".encode()]
    """),
        "-w2",
        "--preload",
        "--driver=gevent",
    )
    answers = [in_background(site, "/") for _ in range(4)]
    for answer in answers:
        module, pid = answer().split()
        assert module.startswith("gevent")
        assert int(pid) in site.worker_pids()
    assert site.stop() == 0


def test_killed_zygote_is_replaced_when_a_worker_is_needed(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--preload")
    (worker,) = site.worker_pids()
    zygote = site.zygote_pid()
    os.kill(zygote, signal.SIGKILL)
    site.wait_for(rf"the zygote \(pid {zygote}\) was killed by SIGKILL")
    assert site.page() == str(worker)
    os.kill(worker, signal.SIGKILL)
    site.wait_for_workers(1, without=[worker])
    assert site.page().isdigit()


def test_stopped_zygote_is_replaced(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "-w2", "--preload", "--startup-timeout=1s")
    workers = site.worker_pids()
    zygote = site.zygote_pid()
    os.kill(zygote, signal.SIGSTOP)
    os.kill(workers[0], signal.SIGKILL)
    site.wait_for(r"a worker was not ready within 1 s; it is killed$")
    site.wait_for(
        rf"the zygote \(pid {zygote}\) was killed by SIGKILL; starting another when the next worker is needed$"
    )
    assert site.page() == str(workers[1]), "the other one serves on"
    site.wait_for_workers(2, without=workers[:1])
    assert site.stop() == 0


def test_worker_exit_before_its_hello_is_handled(serve: Serve, write_app: Write) -> None:
    """Its zygote has forked it, and it ends before the supervisor has heard its pid."""
    site = serve(write_app(APP), "--preload")
    (worker,) = site.worker_pids()
    zygote = site.zygote_pid()
    os.kill(zygote, signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    site.wait_for(rf"worker {worker} was killed by SIGKILL; another is started$")
    wait_until(lambda: "starting" in site.said_at(signal.SIGPWR, "^kirsch supervisor, .*$"), "one is asked for")
    os.kill(site.pid, signal.SIGSTOP)
    os.kill(zygote, signal.SIGCONT)
    wait_until(lambda: bool({*site.worker_pids()} & {*children(site.pid)}), "there is another")
    (unheard,) = site.worker_pids()
    os.kill(unheard, signal.SIGKILL)
    wait_until(lambda: not is_alive(unheard), "it has ended")
    os.kill(site.pid, signal.SIGCONT)
    (after,) = site.wait_for_workers(1, without=[worker, unheard])
    assert site.page() == str(after)
    assert site.stop() == 0


def test_reload_succeeds_while_zygote_is_stopped(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--preload")
    (worker,) = site.worker_pids()
    zygote = site.zygote_pid()
    os.kill(zygote, signal.SIGSTOP)
    site.said_at(signal.SIGHUP, "SIGHUP: done")
    wait_until(lambda: zygote not in children(site.pid), "the old one has gone, though it was stopped")
    (after,) = site.wait_for_workers(1, without=[worker])
    assert site.page() == str(after)
    zygote = site.zygote_pid()
    os.kill(zygote, signal.SIGSTOP)
    assert site.stop() == 0
    assert not is_alive(zygote)
