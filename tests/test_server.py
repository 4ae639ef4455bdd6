"""The server as an object, its end by stop() and by signal, and what it leaves behind: nothing."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

import kirsch
from kirsch.config.kinds import DURATION, SIZE
from kirsch.config.schema import SETTINGS
from kirsch.net import sockets
from kirsch.serving import serve_until_signal
from proc import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from running import Running, Serve

CHUNK = b"x" * (1 << 20)
CHUNKS = 64  # more than the kernel buffers between the two, so that the response waits for its reader

STREAM = f"""
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str({CHUNKS} << 20))])
    return (b"x" * (1 << 20) for _ in range({CHUNKS}))
"""


def hello(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "5")])
    return [b"hello"]


def streaming(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(CHUNKS << 20))])
    return (CHUNK for _ in range(CHUNKS))


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as response:
        body: bytes = response.read()
    return body


def tcp(server: kirsch.Server) -> tuple[str, int]:
    """Its first address."""
    address = server.addresses[0]
    assert isinstance(address, tuple)
    return address


@contextlib.contextmanager
def serving(server: kirsch.Server) -> Iterator[threading.Thread]:
    """The server in a thread; the thread is over afterwards, or the test fails."""
    server.listen()
    thread = threading.Thread(target=server.start)
    thread.start()
    try:
        yield thread
    finally:
        server.stop(0)
        thread.join(10)
        assert not thread.is_alive()


def connect_until_refused(address: tuple[str, int]) -> None:
    for _ in range(10_000):
        # Reset: it was in the backlog when that was closed.
        with contextlib.suppress(ConnectionResetError):
            socket.create_connection(address, timeout=10).close()


class InFlight:
    """A request whose response has begun, and waits for the client to read on."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=20)
        self.socket.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.received = self.socket.recv(1024)
        assert self.received.startswith(b"HTTP/1.1 200 ")

    def read_rest(self) -> int:
        """Bytes of the body, however the connection ends."""
        data = bytearray(self.received)
        with contextlib.suppress(ConnectionResetError):
            while piece := self.socket.recv(1 << 20):
                data += piece
                if len(data) >= CHUNKS << 20 and len(data) - data.index(b"\r\n\r\n") - 4 == CHUNKS << 20:
                    break
        return len(data) - data.index(b"\r\n\r\n") - 4

    def __enter__(self) -> InFlight:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


# start and stop


def test_it_serves_in_a_thread_and_stops_from_another() -> None:
    server = kirsch.Server(hello, bind="127.0.0.1:0")
    assert server.addresses == ()
    with serving(server) as thread:
        host, port = tcp(server)
        assert server.urls == (f"http://{host}:{port}",)
        assert get(server.urls[0]) == b"hello"
        assert server.stop(1) is True
        thread.join(10)
        assert not thread.is_alive()
    # The port is free at once, for a socket without SO_REUSEADDR's leniency towards listeners.
    with socket.create_server((host, port)):
        pass


def test_twenty_cycles_leak_nothing() -> None:
    def cycle(port: int) -> int:
        server = kirsch.Server(hello, bind=f"127.0.0.1:{port}")
        with server:
            thread = threading.Thread(target=server.start)
            thread.start()
            assert get(server.urls[0]) == b"hello"
            _, bound = tcp(server)
            began = time.monotonic()
        assert time.monotonic() - began < 5
        thread.join(10)
        return bound

    port = cycle(0)  # once, so that whatever is made once has been made
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    tasks = len(os.listdir("/proc/self/task"))
    for _ in range(20):
        assert cycle(port) == port
    # The system may still be busy with the end of the last thread, which has a reference to what holds descriptors; and
    # may have been with that of the first, or of a test before, so that there are fewer now.
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, "no descriptor is left")
    assert threading.active_count() == threads
    wait_until(lambda: len(os.listdir("/proc/self/task")) <= tasks, "no thread is left")


def test_a_context_that_never_started_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "k.sock"
    with kirsch.Server(hello, bind=f"unix:{path}") as server:
        assert server.addresses == (str(path),)
        assert path.is_socket()
    assert not path.exists()


def test_a_stop_that_comes_first_is_not_lost() -> None:
    server = kirsch.Server(hello, bind="127.0.0.1:0")
    assert server.stop() is True
    server.start()  # returns


def test_it_serves_once() -> None:
    server = kirsch.Server(hello, bind="127.0.0.1:0")
    with serving(server):
        get(server.urls[0])
        with pytest.raises(RuntimeError, match="is running already"):
            server.start()
    with pytest.raises(RuntimeError, match="has served already; make a new one"):
        server.start()


def test_a_start_that_failed_can_be_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        server = kirsch.Server(hello, bind=f"127.0.0.1:{holder.getsockname()[1]}")
        with pytest.raises(OSError, match="is taken"):
            server.start()
    with serving(server):
        assert get(server.urls[0]) == b"hello"


def test_stop_does_not_wait_for_an_idle_connection_and_answers_what_has_arrived() -> None:
    took = []
    for _ in range(5):
        server = kirsch.Server(hello, "127.0.0.1:0", threads=1)
        with serving(server), socket.create_connection(tcp(server), 10) as idle:
            idle.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert idle.recv(65536).endswith(b"hello")
            began = time.monotonic()
            assert server.stop() is True
            took.append(time.monotonic() - began)
            assert idle.recv(1) == b""
    print(f"stop() with an idle connection took {min(took) * 1000:.1f} ms at best, {max(took) * 1000:.1f} at worst")
    # The engine's grace for idle connections, which this must not be, is 500 ms.
    assert min(took) < 0.1


def test_stop_answers_a_request_that_has_arrived_on_an_idle_connection() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/waits":
            entered.set()
            go_on.wait(10)
        return hello(environ, start_response)

    server = kirsch.Server(app, "127.0.0.1:0", threads=1)
    with serving(server), socket.create_connection(tcp(server), 10) as idle:
        idle.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert idle.recv(65536).endswith(b"hello")
        with socket.create_connection(tcp(server), 10) as waiting:
            waiting.sendall(b"GET /waits HTTP/1.1\r\nHost: a\r\n\r\n")
            assert entered.wait(10)
            # The only thread is in a call, so this is unread when the server begins to stop.
            idle.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            server.begin_stop(10, 0.0)
            go_on.set()
            for client in (waiting, idle):
                assert client.recv(65536).endswith(b"hello")


def test_stop_lets_a_response_finish_and_refuses_newcomers() -> None:
    server = kirsch.Server(streaming, bind="127.0.0.1:0")
    with serving(server), InFlight(tcp(server)) as request:
        stopping = threading.Thread(target=server.stop, args=(30,))
        stopping.start()
        # The engine handles the stop in its next turn; from then on the kernel refuses.
        with pytest.raises(ConnectionRefusedError):
            connect_until_refused(tcp(server))
        assert stopping.is_alive()
        assert request.read_rest() == CHUNKS << 20
        stopping.join(10)
        assert not stopping.is_alive()


def test_stop_cuts_what_outlasts_the_time() -> None:
    server = kirsch.Server(streaming, bind="127.0.0.1:0")
    with serving(server), InFlight(tcp(server)) as request:
        began = time.monotonic()
        assert server.stop(0.3) is True
        assert 0.25 < time.monotonic() - began < 2.3
        assert request.read_rest() < CHUNKS << 20


def test_the_option_graceful_timeout_is_stops_default() -> None:
    server = kirsch.Server(streaming, bind="127.0.0.1:0", graceful_timeout=0.2)
    with serving(server), InFlight(tcp(server)):
        assert server.stop() is True


def test_an_application_may_stop_its_server() -> None:
    def last_words(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        assert server.stop() is False  # it still serves: us
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3")])
        return [b"bye"]

    server = kirsch.Server(last_words, bind="127.0.0.1:0")
    with serving(server) as thread:
        assert get(server.urls[0]) == b"bye"
        thread.join(10)
        assert not thread.is_alive()


def test_statistics_count_while_it_serves() -> None:
    server = kirsch.Server(hello, bind="127.0.0.1:0")
    assert server.statistics() == {}
    with serving(server):
        for _ in range(2):
            get(server.urls[0])
        # A response may arrive before its request is counted; the one before that is.
        assert server.statistics()["requests"] in (1, 2)
    assert server.statistics() == {}


def test_several_binds_and_ipv6(tmp_path: Path) -> None:
    path = tmp_path / "k.sock"
    binds = ["127.0.0.1:0", f"unix:{path}"]
    if _has_ipv6():
        binds.append("[::1]:0")
    server = kirsch.Server(hello, bind=binds)
    with serving(server):
        for url in server.urls:
            if url.startswith("http:"):
                assert get(url) == b"hello"
        assert server.urls[1] == f"unix:{path}"
        if _has_ipv6():
            assert server.urls[2].startswith("http://[::1]:")
    assert not path.exists()


def _has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


# Misuse


def test_mistaken_arguments_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match="the application must be callable"):
        kirsch.Server(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="there is no option 'keepalive'; did you mean 'keep_alive'"):
        kirsch.Server(hello, keepalive=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="keep_alive: 'soon' is not a duration"):
        kirsch.Server(hello, keep_alive="soon")
    with pytest.raises(TypeError, match="backlog must be int, and is True"):
        kirsch.Server(hello, backlog=True)
    with pytest.raises(ValueError, match="keep_alive must not be negative"):
        kirsch.Server(hello, keep_alive=-1)
    with pytest.raises(ValueError, match="did you mean :8000"):
        kirsch.Server(hello, bind="8000")
    with pytest.raises(ValueError, match="there is no address to listen on"):
        kirsch.Server(hello, bind=[]).listen()


def test_texts_are_read_as_on_the_command_line() -> None:
    """Every duration and size, so that one that is added is read so too."""
    for each in SETTINGS:
        name = each.name
        if each.in_programs and each.kind is DURATION:
            with pytest.raises(ValueError, match=f"^{name}: 'soon' is not a duration; write 90, 90s"):
                kirsch.Server(hello, **{name: "soon"})  # type: ignore[arg-type]
            assert kirsch.Server(hello, **{name: "1m30s"})._options[name] == 90.0  # type: ignore[arg-type]
        elif each.in_programs and each.kind is SIZE:
            with pytest.raises(ValueError, match=f"^{name}: 'much' is not a size; write 65536, 64k"):
                kirsch.Server(hello, **{name: "much"})  # type: ignore[arg-type]
            assert kirsch.Server(hello, **{name: "64k"})._options[name] == 65536  # type: ignore[arg-type]
    server = kirsch.Server(hello, timeout_paths={"/a": "5m", "/b": "1"}, graceful_timeout="2s")
    assert server._options["timeout_paths"] == (("/a", 300.0), ("/b", 1.0))
    assert server.graceful_timeout == 2.0
    with pytest.raises(ValueError, match=r"^timeout_paths: /a: 'soon' is not a duration"):
        kirsch.Server(hello, timeout_paths={"/a": "soon"})
    with pytest.raises(TypeError, match="threads must be int, and is '4'"):
        kirsch.Server(hello, threads="4")  # type: ignore[arg-type]


def test_a_deadline_that_is_given_as_text_is_kept() -> None:
    def slow(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        while True:
            time.sleep(0.01)

    server = kirsch.Server(slow, bind="127.0.0.1:0", timeout="200ms")
    with server:
        thread = threading.Thread(target=server.start)
        thread.start()
        with pytest.raises(urllib.error.HTTPError, match="504"):
            urllib.request.urlopen(server.urls[0], timeout=20)
        server.stop(0)
        thread.join(20)


def test_what_is_the_command_lines_is_told() -> None:
    with pytest.raises(
        TypeError, match="there is no option 'workers'; a Server is one process, and `kirsch --workers`"
    ):
        kirsch.Server(hello, workers=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"there is no option 'xyzzy'$"):
        kirsch.Server(hello, xyzzy=2)  # type: ignore[call-arg]


# Sockets


def test_listening_sockets_are_set_up() -> None:
    (listener,) = sockets.listen(["127.0.0.1:0"])
    try:
        assert listener.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert listener.socket.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        assert listener.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        assert not listener.socket.get_inheritable()
        with socket.create_connection(listener.socket.getsockname()):
            accepted, _ = listener.socket.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        sockets.discard([listener])


def test_an_empty_host_is_every_address_on_one_port() -> None:
    listeners = sockets.listen([":0"])
    try:
        assert len({listener.address[1] for listener in listeners}) == 1
        assert "0.0.0.0" in {listener.address[0] for listener in listeners}
        assert len(listeners) == (2 if _has_ipv6() else 1)
    finally:
        sockets.discard(listeners)


def test_one_address_that_fails_frees_the_others(tmp_path: Path) -> None:
    path = tmp_path / "k.sock"
    before = set(os.listdir("/proc/self/fd"))
    with socket.create_server(("127.0.0.1", 0)) as holder:
        with pytest.raises(OSError, match="is taken"):
            sockets.listen([f"unix:{path}", "127.0.0.1:0", f"127.0.0.1:{holder.getsockname()[1]}"])
        assert not path.exists()
    # Meanwhile the garbage collector may close descriptors of earlier tests.
    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_forked_child_does_not_remove_its_parents_socket(tmp_path: Path) -> None:
    path = tmp_path / "k.sock"
    program = f"""
    import os
    from kirsch.net import sockets

    listeners = sockets.listen(["unix:{path}"])
    if (child := os.fork()) == 0:
        sockets.discard(listeners)
        os._exit(0)
    os.waitpid(child, 0)
    print(os.path.exists({str(path)!r}))
    sockets.discard(listeners)
    print(os.path.exists({str(path)!r}))
    """
    assert _python(program) == "True\nFalse\n"


# Signals


def _python(program: str, **variables: str) -> str:
    """What ``program`` prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_serve_ends_by_signal_and_puts_handlers_back() -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous_fd = signal.set_wakeup_fd(writer)
    answers: list[bytes] = []
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            server = kirsch.Server(hello, bind="127.0.0.1:0")

            def use_and_end(server: kirsch.Server = server, number: int = number) -> None:
                answers.append(get(server.urls[0]))
                os.kill(os.getpid(), number)

            client = threading.Thread(target=use_and_end)
            serve_until_signal(server, ready=client.start)
            client.join(10)
            assert [signal.getsignal(number) for number in numbers] == before
    finally:
        restored_fd = signal.set_wakeup_fd(previous_fd)
        os.close(reader)
        os.close(writer)
    assert answers == [b"hello"] * 3
    assert restored_fd == writer


def test_serve_blocks_until_a_signal(tmp_path: Path) -> None:
    program = """
    import os, signal
    import kirsch

    def app(environ, start_response):
        # The signal's handler runs as soon as Python does; the response is finished all the same.
        os.kill(os.getpid(), signal.SIGTERM)
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3")])
        return [b"bye"]


    import socket, threading
    path = os.environ["SOCKET"]

    def client():
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            while True:
                try:
                    connection.connect(path)
                    break
                except OSError:
                    assert serving.is_alive()
            connection.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
            with connection.makefile("rb") as stream:
                print(stream.read()[-3:])

    serving = threading.main_thread()
    thread = threading.Thread(target=client)
    thread.start()
    kirsch.serve(app, bind=f"unix:{path}")
    thread.join(10)
    print(os.path.exists(path))
    """
    assert _python(program, SOCKET=str(tmp_path / "k.sock")) == "b'bye'\nFalse\n"


@pytest.mark.parametrize(("arguments", "multithread"), [("", False), (", threads=1", False), (", threads=2", True)])
def test_run_has_one_thread_unless_more_are_asked_for(arguments: str, multithread: bool) -> None:
    program = """
    import os, signal, threading, urllib.request
    import kirsch

    def simple_app(environ, start_response):
        start_response("200 OK", [("Content-type", "text/plain")])
        return [f"{environ['wsgi.multithread']} {threading.current_thread() is threading.main_thread()}".encode()]

    ((host, port),) = kirsch.listen("127.0.0.1", 0)

    def client():
        print(urllib.request.urlopen(f"http://{host}:{port}/", timeout=10).read().decode())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=client)
    thread.start()
    kirsch.run(simple_app@)
    thread.join(10)
    """
    assert _python(program.replace("@", arguments)) == f"{multithread} {not multithread}\n"


def test_listen_and_run_as_picows_has_them() -> None:
    program = """
    import os, signal, threading, urllib.request
    import kirsch

    def simple_app(environ, start_response):
        start_response("200 OK", [("Content-type", "text/plain")])
        return [b"Hello world!\\n"]

    ((host, first),) = kirsch.listen("127.0.0.1", 0)
    ((host, second),) = kirsch.listen("127.0.0.1", 0)

    def client():
        for port in (first, second):
            print(urllib.request.urlopen(f"http://{host}:{port}/", timeout=10).read())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=client)
    thread.start()
    kirsch.run(simple_app)
    thread.join(10)
    print("over")
    """
    assert _python(program) == "b'Hello world!\\n'\n" * 2 + "over\n"


def test_term_lets_a_response_finish_and_refuses_newcomers(serve: Serve, write_app: Callable[[str], str]) -> None:
    running = serve(write_app(STREAM))
    with InFlight((running.host, running.port)) as request:
        running.process.send_signal(signal.SIGTERM)
        running.wait_for(r"\[INFO\] SIGTERM: stopping, up to 30 s for the requests in flight$")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((running.host, running.port), timeout=10)
        assert running.process.poll() is None
        assert request.read_rest() == CHUNKS << 20
        assert running.process.wait(10) == 0


def test_term_cuts_after_the_graceful_timeout(serve: Serve, write_app: Callable[[str], str]) -> None:
    running = serve(write_app(STREAM), "--graceful-timeout", "400ms")
    with InFlight((running.host, running.port)) as request:
        assert running.stop() == 0
        assert request.read_rest() < CHUNKS << 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_int_and_quit_are_fast(number: int, serve: Serve, write_app: Callable[[str], str]) -> None:
    running = serve(write_app(STREAM), "--graceful-timeout", "1h")
    with InFlight((running.host, running.port)):
        assert running.stop(number) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.slow
def test_a_second_signal_ends_at_once(number: int, serve: Serve, write_app: Callable[[str], str]) -> None:
    running = serve(write_app(STREAM), "--graceful-timeout", "1h")
    with InFlight((running.host, running.port)):
        running.process.send_signal(signal.SIGTERM)
        running.wait_for(r"SIGTERM: stopping")
        assert running.process.poll() is None
        assert running.stop(number) == 0


def test_idle_connections_do_not_hold_up_the_end(serve: Serve, write_app: Callable[[str], str]) -> None:
    running = serve(write_app(STREAM), "--graceful-timeout", "1h")
    with socket.create_connection((running.host, running.port), timeout=10) as idle:
        # Answered after the idle one was accepted, so the engine knows of both.
        with InFlight((running.host, running.port)) as request:
            assert request.read_rest() == CHUNKS << 20
        assert running.stop() == 0
        assert idle.recv(1) == b""


def test_an_application_that_never_returns_is_ended(serve: Serve, write_app: Callable[[str], str]) -> None:
    stuck = """
        import sys, threading

        def app(environ, start_response):
            print("stuck", file=sys.stderr, flush=True)
            while True:
                threading.Event().wait()
        """
    running: Running = serve(write_app(stuck), "--graceful-timeout", "100ms")
    with socket.create_connection((running.host, running.port), timeout=10) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        running.wait_for(r"^stuck$")
        assert running.stop() == 1
    assert re.search(r"\[CRITICAL\] an application call does not return; ending the process", running.stderr)
