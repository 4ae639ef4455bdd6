"""Children that an application forks: nothing of the server is left in them, and none of them serves."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from interpreter import needs_gevent
from proc import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from running import Running, Serve

TIMES = 3
# A worker that is killed costs a second. `make test-matrix` has a hundred of each kind.
MANY_TIMES = 100 if os.environ.get("MATRIX_DRIVER") == "all" else 20

DRIVERS = {
    "threads": ("forks_app:wsgi", "--threads", "4"),
    "one thread": ("forks_app:wsgi", "--threads", "1"),
    "gevent": ("forks_app:wsgi", "--driver", "gevent"),
    "asyncio": ("forks_app:asgi",),
    "uvloop": ("forks_app:asgi", "--loop", "uvloop"),
}
# Pool hangs in a process that gevent has patched, also without Kirsch: its threads are greenlets and block each other.
drivers_with_pools = pytest.mark.parametrize("driver", [driver for driver in DRIVERS if driver != "gevent"])
every_driver = pytest.mark.parametrize("driver", DRIVERS)
repeated = pytest.mark.parametrize(
    "times", [TIMES, pytest.param(MANY_TIMES, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)


def site(serve: Serve, driver: str, *args: str) -> Running:
    """Serve the application that forks. Its children write no dumps, and nothing that a test does not read."""
    if driver == "gevent":
        needs_gevent()
    if driver == "uvloop":
        pytest.importorskip("uvloop")
    target, *own = DRIVERS[driver]
    return serve(target, *own, *args, cwd=os.path.dirname(__file__))


def is_running(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextlib.contextmanager
def ended(*pids: int) -> Iterator[None]:
    """Kill these processes in the end."""
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def accepts(running: Running) -> bool:
    try:
        socket.create_connection((running.host, running.port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


@every_driver
@repeated
def test_process_terminate_ends_the_child_and_not_the_worker(serve: Serve, driver: str, times: int) -> None:
    running = site(serve, driver)
    worker = running.page("/hello")
    for _ in range(times):
        assert running.page("/terminate") == str(-signal.SIGTERM)
    assert running.page("/hello") == worker
    assert running.stop() == 0


@drivers_with_pools
@repeated
def test_pool_in_a_request_ends(serve: Serve, driver: str, times: int) -> None:
    running = site(serve, driver)
    worker = running.page("/hello")
    for _ in range(times):
        assert running.page("/pool") == "[3, 2, 1]"
    assert running.page("/hello") == worker
    assert running.stop() == 0


@pytest.mark.slow
@drivers_with_pools
def test_pools_of_requests_at_the_same_time_end(serve: Serve, driver: str) -> None:
    running = site(serve, driver)
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(running.page("/pool"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["[3, 2, 1]"] * len(threads)


@every_driver
@repeated
def test_child_of_a_killed_worker_keeps_neither_port_nor_place(serve: Serve, driver: str, times: int) -> None:
    running = site(serve, driver, "--quarantine", "0")
    for _ in range(times):
        worker = running.wait_for_workers(1)[0]
        child = int(running.page("/leave_process"))
        with ended(child):
            os.kill(worker, signal.SIGKILL)
            running.wait_for_workers(1, without=[worker])
            wait_until(partial(answers_from_another, running, worker), "another worker answers")
            assert is_running(child)


def answers_from_another(running: Running, worker: int) -> bool:
    try:
        return running.page("/hello") != str(worker)
    except OSError:
        return False


@every_driver
def test_port_is_free_after_the_stop_while_a_child_runs_on(serve: Serve, driver: str) -> None:
    running = site(serve, driver)
    child = int(running.page("/stay"))
    with ended(child):
        assert accepts(running)
        running.send(signal.SIGTERM)
        assert running.process.wait(20) == 0
        assert is_running(child)
        assert not accepts(running)


@every_driver
def test_client_sees_the_end_of_its_connection_while_a_child_runs_on(serve: Serve, driver: str) -> None:
    running = site(serve, driver)
    with socket.create_connection((running.host, running.port), 20) as client, contextlib.ExitStack() as stack:
        client.sendall(b"GET /stay HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        received = b""
        while data := client.recv(4096):
            received += data
            if body := re.search(rb"\r\n\r\n(?:[0-9a-f]+\r\n)?([0-9]+)", received):
                stack.enter_context(ended(int(body[1])))
        assert received.startswith(b"HTTP/1.1 200 ")


@every_driver
def test_child_has_default_signals_and_no_socket_of_the_server(serve: Serve, driver: str) -> None:
    running = site(serve, driver)
    assert running.page("/signals") == "[] -1 []"
    assert running.page("/own_handler") == "status 0"
    # The loop of the parent has a pair of sockets that wakes it. The child uses a loop of its own.
    own = 2 if driver in ("asyncio", "uvloop") else 0
    assert len(running.page("/sockets").split()[1:]) <= own


CHILDREN = {
    "child_returns": "status 0",
    "child_raises": "status 1",
    "child_exits_with_7": "status 7",
    "grandchild_returns": "status 0",
    "forkpty_returns": "status 0",
    "pty_fork_execs": "status 0",
    "thread_forks": "status 0",
    "child_uses_asyncio": "status 9",
    "child_serves": "ok status 0",
    "child_uses_server": "status 0",
    "subprocess_runs": f"hello 0 {-signal.SIGTERM}",
    "forkserver": str(-signal.SIGTERM),
}


LOST_BY_TASK = "CPython 3.14 says that the loop does not run in the child, and not what the step of a Task has raised"


@every_driver
def test_child_that_comes_back_from_the_application_ends(serve: Serve, driver: str) -> None:
    running = site(serve, driver)
    worker = running.page("/hello")
    expected = {name: how for name, how in CHILDREN.items() if driver != "gevent" or name != "child_serves"}
    if driver == "gevent" and sys.version_info >= (3, 14):
        # Its sockets, which gevent has made not wait, are not asked again.
        del expected["forkserver"]
    came = {name: running.page(f"/{name}") for name in expected}
    if driver in ("asyncio", "uvloop"):
        # There the application does not return without a response, and the child cannot send one.
        for name in ("child_returns", "grandchild_returns", "forkpty_returns"):
            assert came[name] == "status 1"
            came[name] = "status 0"
        if sys.version_info >= (3, 14):
            assert came["child_exits_with_7"] == "status 1", LOST_BY_TASK
            came["child_exits_with_7"] = "status 7"
    assert came == expected
    assert running.page("/hello") == worker
    assert running.stop() == 0
    is_lost = sys.version_info >= (3, 14) and driver in ("asyncio", "uvloop")
    assert "raised in the child" in running.stderr or is_lost, LOST_BY_TASK
    assert "which the application has forked" in running.stderr


@pytest.mark.parametrize("driver", ["threads", "one thread", "gevent"])
def test_child_that_returns_to_the_iteration_of_a_response_ends(serve: Serve, driver: str) -> None:
    running = site(serve, driver)
    assert running.page("/midway") == "status 0"


@pytest.mark.parametrize("driver", ["asyncio", "uvloop"])
def test_child_that_returns_to_the_event_loop_ends(serve: Serve, driver: str) -> None:
    running = site(serve, driver)
    if sys.version_info >= (3, 14):
        assert running.page("/child_awaits") in ("status 0", "status 1"), LOST_BY_TASK
        assert running.page("/in_a_later_step?child_returns") in ("status 0", "status 1"), LOST_BY_TASK
        return
    assert running.page("/child_awaits") == "status 1"
    running.wait_for("a forked process cannot await in the event loop of its parent")
    assert running.page("/in_a_later_step?child_returns") == "status 1"
    for name in ("child_raises", "child_exits_with_7", "child_uses_asyncio", "pool"):
        assert running.page(f"/in_a_later_step?{name}") == {**CHILDREN, "pool": "[3, 2, 1]"}[name]
    assert running.page("/in_a_thread?child_returns") == "status 0"
    assert running.page("/in_a_thread?terminate") == str(-signal.SIGTERM)


APP_THAT_FORKS_AT_IMPORT = """
    import os

    child = os.fork()

    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"{os.getpid()} {os.waitpid(child, 0)[1]}".encode()]
"""


@pytest.mark.parametrize("preload", [False, True])
def test_child_that_returns_from_the_import_ends(serve: Serve, write_app: pytest.FixtureRequest, preload: bool) -> None:
    app = APP_THAT_FORKS_AT_IMPORT if not preload else APP_THAT_FORKS_AT_IMPORT.replace("os.waitpid(child, 0)[1]", "0")
    running = serve(f"{write_app(app)}:app", *(["--preload"] if preload else []))  # type: ignore[operator]
    running.wait_for("which the application has forked, has returned")
    assert running.page() == f"{running.server_pid} 0"


PROGRAM = """
    import multiprocessing, os, signal, sys, threading, time, urllib.request
    import kirsch

    def app(environ, start_response):
        start_response("200 OK", [("Content-Length", "5")])
        return [b"hello"]

    def in_child():
        assert server.stop() and server.statistics() == {}
        time.sleep(600)

    server = kirsch.Server(app, bind="127.0.0.1:0")
    handler = lambda *_: None
    signal.signal(signal.SIGTERM, handler)
    with server:
        thread = threading.Thread(target=server.start)
        thread.start()
        urllib.request.urlopen(server.urls[0]).read()
        pid = os.fork()
        if not pid:
            # The child is the program's: it goes on, and its handlers stay.
            assert server.stop(0) is True
            os._exit(3 if signal.getsignal(signal.SIGTERM) is handler else 4)
        status = os.waitpid(pid, 0)[1]
        assert urllib.request.urlopen(server.urls[0]).read() == b"hello"
    thread.join()
    print(os.waitstatus_to_exitcode(status))
"""


def test_program_that_forks_beside_its_server_goes_on_in_both_processes(write_app: pytest.FixtureRequest) -> None:
    import subprocess
    import sys

    name = write_app(PROGRAM)  # type: ignore[operator]
    done = subprocess.run([sys.executable, "-m", name], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr
