"""The supervisor: workers that come, go and crash, signals, exit statuses; without and with ``--preload``."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kirsch
from kirsch.supervisor.backoff import Backoff
from proc import wait_until
from running import children, own_frame, title
from supervised import APP, in_background

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Running, Serve

    Write = Callable[[str], str]


def run(*args: str, cwd: Path | None = None, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    """A server that is expected not to start."""
    return subprocess.run(
        [sys.executable, "-m", "kirsch", "-b", "127.0.0.1:0", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
        check=False,
    )


def test_one_worker_under_a_supervisor_is_the_default(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP))
    pids = site.worker_pids()
    assert len(pids) == 1
    assert site.page() == str(pids[0])
    assert site.pid not in pids
    assert site.stop() == 0
    assert not children(site.pid)


def test_start_prints_what_is_served(serve: Serve, write_app: Write) -> None:
    name = write_app(APP)
    site = serve(name, "-w", "3")
    lines = site.stderr.splitlines()
    assert re.fullmatch(rf"kirsch \S+ \(CPython \S+, pid {site.pid}\)", lines[0])
    assert lines[1:] == [f"serving {name}:app, 3 workers", f"on {site.url}"]
    assert len(site.worker_pids()) == 3
    assert site.stop() == 0
    assert site.stderr.splitlines() == lines, "an ordinary end has nothing to say"


@pytest.mark.parametrize(
    ("args", "env", "count"), [((), {"WEB_CONCURRENCY": "2"}, 2), (("-w", "1"), {"WEB_CONCURRENCY": "2"}, 1)]
)
def test_workers_setting_sets_number_of_workers(
    serve: Serve, write_app: Write, args: tuple[str, ...], env: dict[str, str], count: int
) -> None:
    site = serve(write_app(APP), *args, env=env)
    assert len(site.worker_pids()) == count


def test_workers_0_serves_without_supervisor(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--workers=0")
    assert site.page() == str(site.pid)
    assert not children(site.pid)


@pytest.mark.parametrize("args", [(), ("--preload",)])
def test_supervisor_does_not_import_application(
    serve: Serve, write_app: Write, tmp_path: Path, args: tuple[str, ...]
) -> None:
    log = tmp_path / "imported"
    source = f"import os\nopen({str(log)!r}, 'a').write(f'{{os.getpid()}} ')\n"
    site = serve(write_app(source + textwrap.dedent(APP)), "-w2", *args)
    importers = {int(pid) for pid in log.read_text().split()}
    assert site.pid not in importers
    if args:
        (zygote,) = importers
        assert title(zygote).startswith("kirsch: zygote")
    else:
        assert importers == set(site.worker_pids())


# Workers that die


@pytest.mark.parametrize("args", [(), ("--preload",)])
def test_killed_worker_is_replaced(serve: Serve, write_app: Write, args: tuple[str, ...]) -> None:
    site = serve(write_app(APP), "-w2", *args)
    before = site.wait_for_workers(2)
    os.kill(before[0], signal.SIGKILL)
    site.wait_for(rf"\[ERROR\] worker {before[0]} was killed by SIGKILL; another is started$")
    after = site.wait_for_workers(2, without=before[:1])
    assert before[1] in after, "the other one is left alone"
    assert site.page()
    assert site.stop() == 0


def test_worker_that_exits_is_replaced(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP))
    before = site.worker_pids()
    with pytest.raises((OSError, http.client.HTTPException)):
        site.page("/die")
    assert site.page() != str(before[0]), "the next one waits for the next worker"
    site.wait_for(rf"worker {before[0]} ended with status 9; another is started$")


def test_worker_that_crashes_soon_is_replaced_after_a_second_at_most(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP))
    for wait in ("", r" in 0\.5 s", " in 1 s", " in 1 s"):
        seen = len(site.stderr)
        (pid,) = site.wait_for_workers(1)
        site_answers(site)
        os.kill(pid, signal.SIGKILL)
        said = site.wait_for(rf"worker {pid} .*; another is started( in .*)?$", after=seen)
        # On a machine that is busy the worker may have lived for longer than a second.
        assert re.fullmatch(rf".*; another is started({wait})?", said.group())
    assert site.page(), "it comes back nevertheless, and who asks meanwhile waits"


@pytest.mark.slow
def test_site_is_up_while_one_url_crashes_each_second(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "-w3", "--quarantine=0")
    ended = threading.Event()
    slowest = 0.0

    def ask_for_death() -> None:
        for _ in range(20):
            with contextlib.suppress(OSError, http.client.HTTPException):
                site.page("/die")
            if ended.wait(1.0):
                return
        ended.set()

    thread = threading.Thread(target=ask_for_death)
    thread.start()
    try:
        while not ended.is_set():
            began = time.monotonic()
            # Another client's request may have been in the worker that crashed: that one is not what is asked here.
            with contextlib.suppress(OSError, http.client.HTTPException):
                site_answers(site)
            slowest = max(slowest, time.monotonic() - began)
    finally:
        ended.set()
        thread.join()
    waits = [float(wait) for wait in re.findall(r"another is started in ([0-9.]+) s$", site.stderr, re.MULTILINE)]
    assert max(waits, default=0.0) <= 1.0
    assert site.stderr.count("ended with status 9") >= 12, "each worker crashed several times"
    assert slowest < 10.0, "a second and the start of a worker; the rest is for a loaded machine"


def site_answers(site: Running) -> None:
    assert site.page().isdigit()


def test_backoff_doubles_up_to_its_limit_and_stays_there() -> None:
    backoff = Backoff()
    assert [backoff.failed(now) for now in range(10)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert backoff.not_before == 9 + 30
    assert [Backoff().failed(7.0, at_least=0.5), Backoff().failed(7.0)] == [0.5, 0.0]


def test_backoff_of_failed_imports_grows_while_a_stale_worker_serves() -> None:
    """Its successors fail: that it has served for long proves nothing."""
    backoff, now, waits = Backoff(), 1000.0, []
    for _ in range(8):
        waits.append(backoff.failed(now, at_least=0.5, ready_at=[10.0]))
        now += waits[-1] + 0.1
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_backoff_resets_after_worker_has_served_for_a_while() -> None:
    backoff = Backoff()
    assert [backoff.failed(now, at_least=0.5) for now in (0.0, 1.0, 3.0)] == [0.5, 1, 2]
    ready = 6.0
    assert backoff.failed(ready + 4.9, at_least=0.5, ready_at=[ready]) == 4, "it was young"
    ready = 20.0
    assert backoff.failed(ready + 5.1, at_least=0.5, ready_at=[ready]) == 0.5


def test_backoff_is_short_after_a_worker_that_was_ready() -> None:
    backoff = Backoff()
    assert [backoff.ended(now + 0.1, now) for now in range(10)] == [0, 0.5, *(8 * [1])]
    assert backoff.ended(12.0, 10.9) == 0.0, "it lived for longer than a second"
    assert [backoff.failed(now) for now in range(20, 27)] == [0, 0.5, 1, 2, 4, 8, 16]
    assert backoff.ended(30.1, 30.0) == 1.0, "it is ready again, so its start does not fail any more"


@pytest.mark.slow
def test_backoff_after_failed_imports_grows_in_a_server(serve: Serve, write_app: Write, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    module = write_app(f"import os\nif os.path.exists({str(broken)!r}): raise LookupError\n" + textwrap.dedent(APP))
    site = serve(module, "-w2")
    killed, other = site.worker_pids()
    broken.touch()
    os.kill(killed, signal.SIGKILL)
    for wait in (r"0\.5", "1", "2", "4"):
        site.wait_for(rf"the next try is in {wait} s: ")
    waits = re.findall(r"the next try is in ([0-9.]+) s: ", site.stderr)
    assert waits == ["0.5", "1", "2", "4"]
    broken.unlink()
    site.wait_for_workers(2, without=(killed,))
    assert other in site.worker_pids()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_signal_to_worker_ends_only_that_worker(serve: Serve, write_app: Write, number: signal.Signals) -> None:
    site = serve(write_app(APP))
    (pid,) = site.worker_pids()
    waiting = in_background(site, "/wait?0.3")
    site.wait_for("waits")
    os.kill(pid, number)
    site.wait_for(rf"\[INFO\] worker {pid} ends: {number.name}; another is started$")
    assert waiting() == str(pid), "it finishes what it has"
    site.wait_for_workers(1, without=[pid])
    assert site.page() != str(pid)


def test_workers_ignore_signals_for_the_supervisor(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "-w2")
    before = site.worker_pids()
    for pid in before:
        for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGTTIN, signal.SIGTTOU, signal.SIGWINCH):
            os.kill(pid, number)
    for _ in range(4):
        assert int(site.page()) in before
    assert site.worker_pids() == before


# An application that cannot be had


@pytest.mark.parametrize("args", [(), ("--preload",), ("--workers=0",), ("-w4",)])
def test_start_fails_when_application_raises(tmp_path: Path, args: tuple[str, ...]) -> None:
    (tmp_path / "broken.py").write_text("import this_does_not_exist\n")
    done = run("broken", *args, cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.count("Traceback (most recent call last)") == 1, done.stderr
    assert "ModuleNotFoundError: No module named 'this_does_not_exist'" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("kirsch: broken could not be imported")
    assert own_frame(done.stderr) is None


@pytest.mark.parametrize("args", [(), ("--preload",)])
def test_start_fails_when_application_exits_the_process(tmp_path: Path, args: tuple[str, ...]) -> None:
    (tmp_path / "broken.py").write_text("import os\nos._exit(5)\n")
    done = run("broken", *args, cwd=tmp_path)
    assert done.returncode == 3
    assert "ended with status 5 before it" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("args", [(), ("--preload",)])
def test_start_fails_when_import_exceeds_startup_timeout(tmp_path: Path, args: tuple[str, ...]) -> None:
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(60)\n")
    done = run("hangs", "--startup-timeout=300ms", *args, cwd=tmp_path)
    assert done.returncode == 3
    assert 'hangs.py", line 2 in <module>' in done.stderr, "the stack of the import is written"
    assert "within 0.3 s" in done.stderr
    assert "must not start a server when it is imported" in done.stderr.splitlines()[-1]


def test_sigterm_during_start_ends_server(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text("import os, time\nos.write(1, b'hangs\\n')\ntime.sleep(60)\n")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        process = subprocess.Popen(
            [sys.executable, "-m", "kirsch", "-b", "127.0.0.1:0", "-w2", "hangs"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert [process.stdout.readline(), process.stdout.readline()] == ["hangs\n", "hangs\n"]
        process.send_signal(number)
        _out, err = process.communicate(timeout=10)
        assert process.returncode == 0, err
        assert len(err.splitlines()) == 1, err


# The end


@pytest.mark.parametrize("args", [(), ("-w3",), ("--preload",)])
def test_sigterm_lets_requests_finish(serve: Serve, write_app: Write, args: tuple[str, ...]) -> None:
    site = serve(write_app(APP), *args)
    waiting = in_background(site, "/wait?0.5")
    site.wait_for("waits")
    assert site.stop(signal.SIGTERM) == 0
    assert waiting().isdigit()
    with pytest.raises(OSError):
        site.page()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
@pytest.mark.slow
def test_sigint_and_sigquit_stop_within_a_second(serve: Serve, write_app: Write, number: signal.Signals) -> None:
    site = serve(write_app(APP), "-w2")
    waiting = in_background(site, "/wait?2.2")
    site.wait_for("waits")
    site.stop(number)
    assert not waiting().isdigit(), "after a second it is cut"


def test_second_sigint_stops_at_once(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--graceful-timeout=60s")
    in_background(site, "/wait?30")
    site.wait_for("waits")
    site.send(signal.SIGINT)
    site.send(signal.SIGINT)
    assert site.stop(timeout=5) == 1, "a worker had to be killed, or to end under its request"


def test_ctrl_c_is_reported_once_for_all_processes(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "-w3")
    before = site.stderr
    os.killpg(site.pid, signal.SIGINT)
    assert site.process.wait(10) == 0
    assert site.stop() == 0
    assert site.stderr == before


@pytest.mark.parametrize("args", [(), ("--preload",), ("--metrics-bind=127.0.0.1:0",)])
def test_development_mode_has_nothing_to_warn_of(serve: Serve, write_app: Write, args: tuple[str, ...]) -> None:
    site = serve(write_app(APP), "-w2", *args, env={"PYTHONDEVMODE": "1"})
    assert site.page().isdigit()
    assert site.stop() == 0
    assert "Warning" not in site.stderr


def test_no_descriptor_left_is_told_with_what_to_do(write_app: Write) -> None:
    program = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10)); "
    program += f"from kirsch.commands.cli import main; sys.exit(main(['-b', '127.0.0.1:0', '{write_app(APP)}']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "kirsch: Too many open files: raise the limit, which `ulimit -n` shows"
    )
    assert "Traceback" not in done.stderr


def test_a_limit_on_the_size_of_files_is_told_with_what_to_do(write_app: Write) -> None:
    program = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)); "
    program += f"from kirsch.commands.cli import main; sys.exit(main(['-b', '127.0.0.1:0', '{write_app(APP)}']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    what, _, why = done.stderr.splitlines()[-1].partition(" bytes of shared memory: ")
    assert what.startswith("kirsch: the workers' scoreboard, ")
    assert why.startswith("File too large: raise the limit, which `ulimit -f` shows")
    assert "Traceback" not in done.stderr


def test_start_in_a_directory_that_was_removed(serve: Serve, write_app: Write, tmp_path: Path) -> None:
    """The application is elsewhere; a worker that is replaced later finds the same."""
    name = write_app(APP)
    folder = tmp_path / "release"
    folder.mkdir()
    site = serve(name, cwd=folder, env={"PYTHONDONTWRITEBYTECODE": "1"})
    before = site.worker_pids()
    folder.rmdir()
    os.kill(before[0], signal.SIGKILL)
    (after,) = site.wait_for_workers(1, without=before)
    assert site.page() == str(after)
    assert "Traceback" not in site.stderr


def test_start_in_a_directory_that_was_removed_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "release"
    folder.mkdir()
    program = (
        f"import os, sys; os.rmdir({str(folder)!r}); from kirsch.commands.cli import main; sys.exit(main(['missing']))"
    )
    command = [sys.executable, "-I", "-c", program]
    environment = {**os.environ, "KIRSCH_BIND": "127.0.0.1:0"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 3
    assert "in the current directory, which has been removed, or elsewhere on the Python path" in done.stderr
    assert "Traceback" not in done.stderr


def test_signal_to_the_whole_group_cuts_no_request(serve: Serve, write_app: Write) -> None:
    """Heroku and service managers send SIGTERM to every process. Here the supervisor's message is first."""
    site = serve(write_app(APP), "-w1")
    (worker,) = site.worker_pids()
    waiting = in_background(site, "/wait?2")
    site.wait_for("waits")
    site.send(signal.SIGTERM)
    wait_until(lambda: not accepts(site), "the worker has been told to stop")
    os.kill(worker, signal.SIGTERM)
    assert waiting() == str(worker)
    assert site.stop() == 0
    assert "CRITICAL" not in site.stderr


def accepts(site: Running) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(site.url.rpartition(":")[2].rstrip("/"))), timeout=5).close()
    except OSError:
        return False
    return True


def test_worker_is_killed_when_call_does_not_return(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--graceful-timeout=100ms", "--shutdown-timeout=200ms")
    in_background(site, "/wait?30")
    site.wait_for("waits")
    assert site.stop() == 1
    assert "it is killed" in site.stderr


def test_exit_functions_of_application_run(serve: Serve, write_app: Write) -> None:
    site = serve(
        write_app(
            "import atexit, sys\natexit.register(lambda: print('bye', file=sys.stderr))\n" + textwrap.dedent(APP)
        ),
        "-w2",
    )
    assert site.stop() == 0
    assert site.stderr.count("bye") == 2


def test_worker_is_killed_when_exit_functions_hang(serve: Serve, write_app: Write) -> None:
    site = serve(
        write_app("import atexit, time\natexit.register(time.sleep, 60)\n" + textwrap.dedent(APP)),
        "--graceful-timeout=100ms",
        "--shutdown-timeout=200ms",
    )
    assert site.stop() == 1
    assert re.search(r"worker \d+ has not ended in time; it is killed", site.stderr)


def test_worker_finishes_requests_and_exits_when_supervisor_is_killed(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "-w2")
    waiting = in_background(site, "/wait?0.5")
    site.wait_for("waits")
    site.process.kill()
    assert waiting().isdigit(), "what it has it finishes"
    assert site.stop() == -signal.SIGKILL
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((site.host, site.port))
        sock.listen()


def test_zygote_exits_when_supervisor_is_killed(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "--preload")
    zygotes = [pid for pid in children(site.pid) if title(pid).startswith("kirsch: zygote")]
    assert len(zygotes) == 1
    site.process.kill()
    assert site.stop() == -signal.SIGKILL, "all that held its output have ended"


# Signals to the supervisor


def test_sigttin_adds_and_sigttou_removes_a_worker(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP))
    first = site.worker_pids()
    site.send(signal.SIGTTIN)
    site.wait_for("SIGTTIN: 2 workers from now on")
    assert set(site.wait_for_workers(2)) > set(first)
    site.send(signal.SIGTTOU)
    site.wait_for("SIGTTOU: 1 worker from now on")
    assert site.wait_for_workers(1) == first
    site.send(signal.SIGTTOU)
    site.wait_for("SIGTTOU: one worker is the minimum")
    assert site.page() == str(first[0])


def test_sigwinch_stops_workers_and_sighup_starts_them_again(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "-w2")
    before = site.worker_pids()
    site.send(signal.SIGWINCH)
    site.wait_for("SIGWINCH: stopping the workers; SIGHUP starts them again")
    site.wait_for_workers(0)
    waiting = in_background(site, "/")
    site.send(signal.SIGHUP)
    assert waiting().isdigit(), "who came meanwhile is served"
    site.wait_for_workers(2, without=before)


def test_sigusr1_reopens_logs(serve: Serve, write_app: Write, tmp_path: Path) -> None:
    access, errors = tmp_path / "access", tmp_path / "errors"
    site = serve(write_app(APP), "-w2", f"--access-logfile={access}", f"--error-logfile={errors}")
    access.rename(tmp_path / "access.1")
    errors.rename(tmp_path / "errors.1")
    site.send(signal.SIGUSR1)
    wait_until(lambda: errors.exists() and access.exists(), "they are there again")
    os.kill(site.worker_pids()[0], signal.SIGKILL)
    wait_until(lambda: "was killed by SIGKILL" in errors.read_text(), "the supervisor writes there")
    site.page()
    wait_until(lambda: "GET / HTTP/1.1" in access.read_text(), "the workers write there")


def test_sigpwr_dumps_all_processes(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(APP), "-w2")
    waiting = in_background(site, "/wait?1")
    site.wait_for("waits")
    site.send(getattr(signal, "SIGINFO", signal.SIGPWR))
    site.wait_for(rf"kirsch supervisor, pid {site.pid}, generation 1: worker \d+ ready, worker \d+ ready")
    for pid in site.worker_pids():
        site.wait_for(rf"kirsch, pid {pid}, driver threads")
    site.wait_for(r"GET /wait \(id .*\): running for")
    waiting()


# Time


def test_scoreboard_is_the_only_reader_of_the_wall_clock() -> None:
    """Nothing else here looks at the wall clock: CLOCK_MONOTONIC cannot be set."""
    folder = Path(kirsch.__file__).parent / "supervisor"
    for path in folder.glob("*.py"):
        # The first shows when something was; the others compare the dates of certificates, and times that another host
        # has written.
        if path.name not in ("metrics_process.py", "certificates.py") and not path.name.startswith("acme_"):
            assert not re.search(r"time\.(time|localtime|gmtime)\b|datetime", path.read_text()), path.name


# Being ready


READY = """
    import os
    from pathlib import Path

    def app(environ, start_response):
        if environ["PATH_INFO"] == "/ready":
            if os.environ["STATUS"] == "raises":
                raise LookupError("no database")
            start_response(os.environ["STATUS"], [])
            return [b""]
        start_response("200 OK", [])
        return [b"Hello"]
"""


def test_ready_path_accepts_ready_application(serve: Serve, write_app: Write) -> None:
    site = serve(write_app(READY), "--ready-path=/ready", env={"STATUS": "204 No Content"})
    assert site.page() == "Hello"


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (
            "503 Service Unavailable",
            "it answered --ready-path /ready with 503 Service Unavailable, and must answer 2xx",
        ),
        ("raises", "it raised LookupError at --ready-path /ready"),
    ],
)
def test_ready_path_refuses_application_that_is_not_ready(
    write_app: Write, status: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATUS", status)
    done = run(write_app(READY), "--ready-path=/ready")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].endswith(line)
    assert ("LookupError: no database" in done.stderr) == (status == "raises")
