"""An application's leftovers do not delay the exit; and applications that learn of the stop end at once."""

from __future__ import annotations

import re
import socket
import sys
import threading
from typing import TYPE_CHECKING, cast

import pytest

from kirsch.serving import Signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch.server import Server
    from running import Running, Serve

LEAVES = """
    import asyncio, atexit, concurrent.futures, os, signal, threading, time
    import kirsch

    never = threading.Event()
    kept = []
    atexit.register(lambda: os.write(2, b"an exit function has run\\n"))

    def wait_in_thread():
        never.wait()

    def work_until_the_stop():
        while not kirsch.is_stopping():
            time.sleep(0.01)
        os.write(2, b"the thread has ended by itself\\n")

    def act(name):
        if name == "/thread":
            threading.Thread(target=wait_in_thread, name="left behind", daemon=False).start()
        elif name == "/timer":
            threading.Timer(3600, print).start()
        elif name == "/executor":
            kept.append(concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="left behind"))
            kept[0].submit(wait_in_thread)
        elif name == "/work":
            threading.Thread(target=work_until_the_stop, daemon=False).start()
        elif name == "/exit":
            atexit.register(wait_in_thread)
        return str(kirsch.is_stopping())

    def wsgi(environ, start_response):
        path = environ["PATH_INFO"]
        if path == "/stream":
            start_response("200 OK", [("Content-Type", "text/event-stream")])
            return stream()
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [act(path).encode()]

    def stream():
        yield b"begins"
        while not kirsch.is_stopping():
            time.sleep(0.01)
        yield b"ends"

    async def asgi(scope, receive, send):
        if scope["type"] != "http":
            return
        text = act(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": b"begins", "more_body": True})
            await kirsch.wait_for_stop()
            await kirsch.wait_for_stop()
            text = "ends"
        elif scope["path"] == "/sse":
            await send({"type": "http.response.body", "body": b"begins", "more_body": True})
            # As sse-starlette does.
            server = signal.getsignal(signal.SIGTERM).__self__
            while not server.should_exit:
                await asyncio.sleep(0.01)
            text = "ends"
        await send({"type": "http.response.body", "body": text.encode()})
"""

DRIVERS = {
    "threads": ("wsgi", "--threads", "4"),
    "one thread": ("wsgi", "--threads", "1"),
    "asyncio": ("asgi",),
    "without a supervisor": ("asgi", "--workers", "0"),
}
every_driver = pytest.mark.parametrize("driver", DRIVERS)


@pytest.fixture
def site(serve: Serve, write_app: Callable[[str], str]) -> Callable[..., Running]:
    name = write_app(LEAVES)

    def site(driver: str, *args: str) -> Running:
        interface, *own = DRIVERS[driver]
        if "0" in own and "--shutdown-timeout" in args:
            args = args[: args.index("--shutdown-timeout")]  # it is the supervisor's
        return serve(f"{name}:{interface}", *own, *args)

    return site


@every_driver
@pytest.mark.parametrize("left", ["thread", "executor"])
def test_thread_that_is_left_behind_is_named_and_does_not_delay_the_exit(
    site: Callable[..., Running], driver: str, left: str
) -> None:
    running = site(driver, "--graceful-timeout", "1", "--shutdown-timeout", "20")
    assert running.page(f"/{left}") == "False"
    assert running.stop(timeout=15) == 0
    assert re.search(
        r"threads of the application do not end: 'left behind(_0)?' \(.*app1\.py, line [0-9]+\)", running.stderr
    )
    assert "an exit function has run" in running.stderr
    assert "killed" not in running.stderr


@pytest.mark.parametrize("driver", ["one thread", "asyncio"])
def test_timer_that_is_left_behind_is_named(site: Callable[..., Running], driver: str) -> None:
    running = site(driver, "--graceful-timeout", "1")
    running.page("/timer")
    assert running.stop() == 0
    assert "threads of the application do not end: 'Thread-" in running.stderr


@every_driver
def test_thread_has_the_graceful_timeout_to_end(site: Callable[..., Running], driver: str) -> None:
    running = site(driver, "--graceful-timeout", "30")
    running.page("/work")
    assert running.stop() == 0
    assert "the thread has ended by itself" in running.stderr
    assert "do not end" not in running.stderr


@every_driver
def test_exit_function_that_does_not_end_is_named(site: Callable[..., Running], driver: str) -> None:
    running = site(driver, "--graceful-timeout", "1", "--shutdown-timeout", "3")
    running.page("/exit")
    assert running.stop() == 0
    assert re.search(r"exit functions of the application \(atexit\) do not end \(.*app1\.py, line", running.stderr)
    assert "killed" not in running.stderr


@pytest.mark.parametrize(
    ("driver", "path"),
    [("threads", "/stream"), ("asyncio", "/stream"), ("asyncio", "/sse"), ("without a supervisor", "/sse")],
)
def test_endless_response_ends_when_the_server_begins_to_stop(
    site: Callable[..., Running], driver: str, path: str
) -> None:
    running = site(driver, "--graceful-timeout", "600")
    with socket.create_connection((running.host, running.port), 20) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        received = b""
        while b"begins" not in received:
            data = client.recv(4096)
            assert data, received
            received += data
        assert running.stop() == 0
        while data := client.recv(4096):
            received += data
    assert b"ends" in received


def test_threads_of_an_end_run_before_the_process_may_be_over() -> None:
    """CPython's exit frees the state of a thread that has not begun, which then begins with it."""

    class Ending:
        def __init__(self) -> None:
            self.ended = threading.Event()
            self.running = 0

        def begin_stop(self, _timeout: float, _idle_timeout: float | None) -> None:
            self.running = len(sys._current_frames())
            self.ended.set()

        def wait(self, timeout: float) -> bool:
            return self.ended.wait(timeout)

    server, before = Ending(), len(sys._current_frames())
    Signals(cast("Server", server), None, owns_process=True).end("a test", 1.0)
    assert server.running == before + 1
