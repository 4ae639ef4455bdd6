"""Deadlines: how long a request may be in the application (``--timeout``), and what happens then."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from family import is_alive
from proc import wait_until
from raw import Peer, Response, build_request
from waiting import (
    HERE,
    UnaffectedClients,
    ask,
    assert_answered,
    await_inside,
    connect,
    connect_without_room,
    every_concurrent_driver,
    every_driver,
    flags,
    get,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

SEED = 20_261_121
EXIT_STUCK = 75
TIMEOUT = "--timeout=300ms"

APP = """
import ctypes, os, re, threading, time
import kirsch
import waiting_app

TEXT = [("Content-Type", "text/plain")]
held = threading.Lock()
held.acquire()

def app(environ, start_response):
    page = environ["PATH_INFO"].rpartition("/")[2]
    if page not in globals():
        environ["PATH_INFO"] = "/" + page
        return waiting_app.app(environ, start_response)
    return globals()[page](environ, start_response)

def say(text):
    os.write(2, f"{text}\\n".encode())

# Pages that do not end by themselves; each is bounded, so that a missing deadline is seen as a wrong answer.

def ends(seconds=20):
    return time.monotonic() + seconds

def in_a_loop(environ, start_response):
    end, total = ends(), 0
    while time.monotonic() < end:
        total += sum(range(100))
    return respond(start_response)

def asleep_in_slices(environ, start_response):
    end = ends()
    while time.monotonic() < end:
        time.sleep(0.01)
    return respond(start_response)

def at_a_lock(environ, start_response):
    end = ends()
    while time.monotonic() < end and not held.acquire(timeout=0.01):
        pass
    return respond(start_response)

def catches_what_is_an_exception(environ, start_response):
    try:
        return asleep_in_slices(environ, start_response)
    except Exception:
        return respond(start_response)
    finally:
        say("finally was run")

def catches_the_timeout(environ, start_response):
    try:
        return asleep_in_slices(environ, start_response)
    except kirsch.RequestTimeout as error:
        say(f"caught {type(error).__mro__[1].__name__}")
    start_response("200 OK", TEXT)
    return [b"caught"]

def catches_it_in_a_read(environ, start_response):
    caught = []
    try:
        environ["wsgi.input"].read()
    except kirsch.RequestTimeout:
        caught.append("in read")
    try:
        asleep_in_slices(environ, start_response) if not caught else sum(1 for _ in range(10_000))
    except kirsch.RequestTimeout:
        caught.append("behind it")
    say(f"caught {' '.join(caught)}")
    start_response("200 OK", TEXT)
    return [b"too late"]

def asleep_after_a_block(environ, start_response):
    start_response("200 OK", TEXT)
    try:
        yield b"begun"
        asleep_in_slices(environ, start_response)
        yield b"never"
    finally:
        say("generator ended")

def stuck_in_c(environ, start_response):
    say("stuck in C")
    ctypes.CDLL(None).sleep(120)
    return respond(start_response)

# Pages that are blocked in C: QUERY_STRING is the number of milliseconds. In a thread, RequestTimeout is raised
# only when it has come back.

def milliseconds(environ):
    return int(environ["QUERY_STRING"] or 4000)

def sleeps_in_c(environ, start_response):
    return in_c(ctypes.CDLL(None).usleep, environ, start_response)

def keeps_the_gil(environ, start_response):
    return in_c(ctypes.PyDLL(None).usleep, environ, start_response)

def in_c(usleep, environ, start_response):
    say("blocked in C")
    try:
        usleep(milliseconds(environ) * 1000)
    finally:  # RequestTimeout may be raised here
        os.write(2, b"came back\\n")
    return respond(start_response)

def matches_for_seconds(environ, start_response):
    say("blocked in C")
    try:
        re.match("(a+)+$", "a" * 26 + "b")
    finally:
        os.write(2, b"came back\\n")
    return respond(start_response)

def writes_and_keeps_the_gil(environ, start_response):
    write = start_response("200 OK", TEXT)
    write(b"begun")
    return in_c(ctypes.PyDLL(None).usleep, environ, lambda status, headers: None)

def yields_and_keeps_the_gil(environ, start_response):
    start_response("200 OK", TEXT)
    yield b"begun"
    yield b" and on"
    yield from in_c(ctypes.PyDLL(None).usleep, environ, lambda status, headers: None)

class closes_late:
    def __init__(self, environ, start_response):
        start_response("200 OK", TEXT)
        self.parts = iter([b"all ", b"of it"])
        self.seconds = milliseconds(environ) / 1000

    def __iter__(self):
        return self.parts

    def close(self):
        try:
            time.sleep(self.seconds)
        finally:
            os.write(2, b"came back\\n")

def about_until_the_deadline(environ, start_response):
    time.sleep(int(environ["QUERY_STRING"]) / 1000)
    return respond(start_response)

def for_a_second(environ, start_response):
    end = ends(1)
    say("a second begins")
    while time.monotonic() < end:
        time.sleep(0.01)
    return respond(start_response)

def quick(environ, start_response):
    total = 0
    for _ in range(20_000):
        total += 1
    start_response("200 OK", TEXT)
    return [environ["QUERY_STRING"].encode()]

def thread(environ, start_response):
    start_response("200 OK", TEXT)
    return [str(threading.get_ident()).encode()]

def respond(start_response):
    start_response("200 OK", TEXT)
    return [b"to its end"]
"""


@pytest.fixture
def timed(serve: Serve, write_app: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Running]:
    """Serve the application above, whose pages are those of ``waiting_app`` too."""

    def timed(*args: str, before: str = "") -> Running:
        monkeypatch.setenv("PYTHONPATH", HERE, prepend=os.pathsep)
        return serve(write_app(before + APP), *args)

    return timed


def assert_timed_out(response: Response) -> None:
    assert (response.status, response.complete) == (504, True)
    assert b"RequestTimeout" not in response.body, "what happened inside is not the peer's business"


# At the deadline


@every_driver
@pytest.mark.parametrize("page", ["in_a_loop", "asleep_in_slices", "at_a_lock", "catches_what_is_an_exception"])
@pytest.mark.slow
def test_late_call_is_interrupted_and_client_gets_504(timed: Callable[..., Running], driver: str, page: str) -> None:
    site = timed(*flags(driver), TIMEOUT)
    assert_timed_out(get(site, f"/{page}"))
    if page.startswith("catches"):
        site.wait_for("^finally was run$")
    # And the next one, in the same thread where there is only one.
    assert_timed_out(get(site, f"/{page}"))
    assert get(site, "/quick?again").body == b"again"
    assert site.stop() == 0


@every_concurrent_driver
def test_the_log_shows_the_stack_of_that_request_alone(
    timed: Callable[..., Running], driver: str, tmp_path: Path
) -> None:
    site = timed(*flags(driver), TIMEOUT, "--timeout-path=/patient=0")
    gate = tmp_path / "gate"
    with ask(site, f"/patient/wait?{gate}") as patient:
        await_inside(site, gate)
        log = len(site.stderr)
        assert_timed_out(get(site, "/some/path/at_a_lock?q=1"))
        site.wait_for("in at_a_lock$", after=log)
        with ask(site, "/at_a_lock", "PUT", headers={"X-Request-ID": "abc-123"}) as named:
            assert_timed_out(named.read_response())
        gate.touch()
        assert_answered(patient, b"waited")
    assert site.stop() == 0
    said = site.stderr[log:]
    for title in (r"GET /some/path/at_a_lock \(id \d+\)", r"PUT /at_a_lock \(id abc-123\)"):
        line = re.search(rf"^.*\[ERROR\] {title} .*$", said, re.MULTILINE)
        assert line is not None, said
        assert "deadline of 0.3 s" in line[0]
        assert re.search(r"for 0\.[3-9]\d* s", line[0]), "so long it has run"
    assert "wait_for_gate" not in said, "the report has the stack of this request alone"
    assert "/patient" not in said


@every_driver
def test_client_gets_504_when_the_call_catches_the_exception_and_responds(
    timed: Callable[..., Running], driver: str
) -> None:
    site = timed(*flags(driver), TIMEOUT)
    for _ in range(2):
        log = len(site.stderr)
        with ask(site, "/catches_the_timeout") as peer:
            assert_timed_out(peer.read_response())
            assert peer.read_until_closed() == b""
        site.wait_for("^caught BaseException$", after=log)
    assert get(site, "/quick?again").body == b"again"


@every_driver
def test_request_timeout_is_raised_once(timed: Callable[..., Running], driver: str) -> None:
    site = timed(*flags(driver), TIMEOUT, "--request-buffering=off")
    for _ in range(3):
        with connect(site) as peer:
            log = len(site.stderr)
            peer.send(b"POST /catches_it_in_a_read HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
            assert_timed_out(peer.read_response())
            # The client may send on, and sees the end.
            peer.send(b" more")
            assert peer.read_until_closed() == b""
            site.wait_for("^caught in read$", after=log)
    assert site.stop() == 0


@every_driver
def test_response_that_has_begun_is_aborted(timed: Callable[..., Running], driver: str) -> None:
    site = timed(*flags(driver), TIMEOUT)
    with ask(site, "/asleep_after_a_block") as peer:
        response = peer.read_response()
        assert (response.status, response.body, response.complete) == (200, b"begun", False)
    site.wait_for("^generator ended$")
    site.wait_for("in asleep_after_a_block$")
    assert get(site, "/quick?again").body == b"again"


# A call that is blocked in C


def serve_blocked(timed: Callable[..., Running], driver: str, *args: str) -> Running:
    """Without a supervisor, so that the process is the same throughout."""
    return timed("--workers=0", *flags(driver), TIMEOUT, "--graceful-timeout=60s", *args)


def assert_blocked(site: Running, calls: int = 1) -> None:
    """Asserts that the call is still blocked, so all earlier observations were made while it was."""
    assert site.stderr.count("came back") == calls - 1, "the call has come back before it was looked at"


def was_reset(peer: Peer) -> bool:
    """Return whether the connection ends with a reset; what comes before it is discarded."""
    try:
        while peer.sock.recv(65536):
            pass
    except ConnectionResetError:
        return True
    return False


@every_driver
@pytest.mark.parametrize("page", ["sleeps_in_c", "keeps_the_gil", "matches_for_seconds"])
@pytest.mark.slow
def test_client_gets_504_while_the_call_is_blocked_in_c(timed: Callable[..., Running], driver: str, page: str) -> None:
    site = serve_blocked(timed, driver, "--access-logfile=-")
    with ask(site, f"/{page}?4000") as peer:
        response = peer.read_response()
        assert_blocked(site)
        assert_timed_out(response)
        assert response.header("Connection") == "close"
        assert peer.read_until_closed() == b""
        assert_blocked(site)
        # A match takes some seconds of processor time, of which a busy machine gives little.
        site.wait_for("^came back$", 100)
    # The response of the call was dropped, and its thread serves on.
    assert get(site, "/quick?again").body == b"again"
    site.wait_for_output("/quick")
    lines = [line for line in site.stdout.splitlines() if page in line]
    assert len(lines) == 1, "a request has one line in the access log"
    assert f'"GET /{page}?4000 HTTP/1.1" 504 {len(response.body)} ' in lines[0]
    assert site.stop() == 0


@every_driver
@pytest.mark.parametrize("page", ["writes_and_keeps_the_gil", "yields_and_keeps_the_gil"])
@pytest.mark.slow
def test_client_sees_a_cut_while_the_call_is_blocked_in_c_after_a_part(
    timed: Callable[..., Running], driver: str, page: str
) -> None:
    site = serve_blocked(timed, driver)
    with ask(site, f"/{page}") as peer:
        response = peer.read_response()
        assert_blocked(site)
        assert (response.status, response.complete) == (200, False)
        assert b"begun".startswith(response.body[:5])
    site.wait_for("^came back$", 60)
    # The end of an HTTP/1.0 response is the end of its connection, so only a reset tells that something is missing.
    with connect(site) as peer:
        peer.send(b"GET /" + page.encode() + b" HTTP/1.0\r\n\r\n")
        assert peer.read_head().status == 200
        assert was_reset(peer)
        assert_blocked(site, 2)
    assert_timed_out(get(site, "/asleep_in_slices"))


@every_driver
@pytest.mark.slow
def test_client_has_the_whole_response_when_only_its_close_is_late(timed: Callable[..., Running], driver: str) -> None:
    site = serve_blocked(timed, driver, "--access-logfile=-")
    with ask(site, "/closes_late?4000") as peer:
        response = peer.read_response()
        assert (response.status, response.body, response.complete) == (200, b"all of it", True)
        assert peer.read_until_closed() == b""
        if driver != "gevent":  # where sleeping is none of C's
            assert_blocked(site)
    assert get(site, "/quick?again").body == b"again"
    site.wait_for_output('closes_late.* HTTP/1.1" 200 9 ')


@every_driver
@pytest.mark.slow
def test_pipelined_requests_behind_a_late_one_are_not_run(timed: Callable[..., Running], driver: str) -> None:
    site = serve_blocked(timed, driver)
    pages = ("quick?1", "sleeps_in_c?2000", "catches_the_timeout")
    with connect(site) as peer:
        peer.send(b"".join(build_request("GET", f"/{page}") for page in pages))
        assert_answered(peer, b"1")
        assert_timed_out(peer.read_response())
        assert peer.read_until_closed() == b""
        assert_blocked(site)
    site.wait_for("^came back$", 60)
    assert get(site, "/quick?again").body == b"again"
    assert "caught" not in site.stderr


def test_statistics_count_the_504_once(timed: Callable[..., Running]) -> None:
    site = serve_blocked(timed, "threads", "--threads=2")
    assert_timed_out(get(site, "/sleeps_in_c?1500"))
    site.wait_for("^came back$", 60)
    assert get(site, "/quick?again").body == b"again"
    os.kill(site.pid, signal.SIGPWR)
    said = site.wait_for("^counters: .*$")[0]
    assert {"status_5xx 1", "status_2xx 1", "overdue 1", "cut 0"} <= set(said.replace("counters: ", "").split(", "))


# The replacement of a worker


@pytest.mark.parametrize(
    ("driver", "page"),
    [("threads", "keeps_the_gil"), ("one thread", "sleeps_in_c"), ("gevent", "sleeps_in_c")],
)
@pytest.mark.slow
def test_blocked_worker_is_replaced_and_waiting_clients_are_told_to_try_again(
    timed: Callable[..., Running], driver: str, page: str
) -> None:
    site = timed(*flags(driver), TIMEOUT, "--graceful-timeout=60s")
    with connect(site) as resting, connect(site) as uploading:
        for peer in (resting, uploading):
            peer.send(build_request("GET", "/quick?before"))
            assert_answered(peer, b"before")
        uploading.send(b"POST /quick HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
        with ask(site, f"/{page}?15000") as peer:
            site.wait_for("^blocked in C$")
            assert_timed_out(peer.read_response())
        # On connections of the worker in which nothing can run.
        resting.send(build_request("GET", "/quick?meanwhile"))
        for peer in (resting, uploading):
            response = peer.read_response()
            assert (response.status, response.complete, response.header("Connection")) == (503, True, "close")
            assert response.header("Retry-After") is not None
        # And on a new one, which its successor accepts.
        assert get(site, "/quick?newcomer").body == b"newcomer"
        assert_blocked(site)
    site.wait_for(r"replacing worker \d+: a request does not end after its deadline")
    # A call that comes back lets its worker end in order.
    site.wait_for("^came back$", 60)
    assert site.stop() == 0
    assert "is killed" not in site.stderr


@pytest.mark.slow
def test_stuck_worker_is_replaced_and_its_other_clients_lose_nothing(
    timed: Callable[..., Running], tmp_path: Path
) -> None:
    site = timed("--threads=4", TIMEOUT, "--graceful-timeout=2s", "--timeout-path=/patient=0")
    gate = tmp_path / "gate"
    with ask(site, f"/patient/wait?{gate}") as patient, UnaffectedClients(site) as unaffected:
        await_inside(site, gate)
        unaffected.may_end = True
        assert_timed_out(get(site, "/stuck_in_c"))
        old = int(site.wait_for(r"\[(\d+)\] \[ERROR\] GET /stuck_in_c")[1])
        site.wait_for(rf"replacing worker {old}: a request does not end after its deadline \(--timeout\)")
        unaffected.await_answers(20)
        gate.touch()
        assert_answered(patient, b"waited")
    # Only the stuck call is left, so the worker exits without being killed.
    wait_until(lambda: not is_alive(old), "the stuck worker has ended", 30)
    assert "is killed" not in site.stderr
    assert get(site, "/quick?again").body == b"again"
    assert site.stop() == 0


def test_thread_serves_other_requests_after_a_timeout(timed: Callable[..., Running]) -> None:
    site = timed("--threads=2", TIMEOUT)
    used = set()
    for turn in range(3):
        both = [ask(site, f"/meeting?2&{turn}") for _ in range(2)]
        used |= {peer.read_response().body for peer in both}
        for peer in both:
            peer.send(build_request("GET", "/asleep_in_slices"))
        for peer in both:
            assert_timed_out(peer.read_response())
            peer.close()
    assert len(used) <= 3, "two for calls and one for the engine, of which none was lost"


# Which deadline


@every_concurrent_driver
def test_the_longest_prefix_decides(timed: Callable[..., Running], driver: str, tmp_path: Path) -> None:
    site = timed(
        *flags(driver), TIMEOUT, "--timeout-path=/slow=0", "--timeout-path=/slow/but/fast=250ms",
        "--timeout-path=/quick/er=1ms",
    )  # fmt: skip
    gate = tmp_path / "gate"
    unlimited = [ask(site, f"{path}/wait?{gate}") for path in ("/slow", "/slow/but")]
    await_inside(site, gate, 2)
    # Each of these takes as long as those would have had; a prefix matches whole segments.
    for path in ("/slow/but/fast", "/slower", "/sl", ""):
        assert_timed_out(get(site, f"{path}/asleep_in_slices"))
    assert_timed_out(get(site, "/quick/er/asleep_in_slices"))
    gate.touch()
    for peer in unlimited:
        assert_answered(peer, b"waited")
        peer.close()


@every_driver
def test_requests_without_deadline_are_not_interrupted(timed: Callable[..., Running], driver: str) -> None:
    site = timed(*flags(driver), "--timeout-path=/only/here=200ms")
    assert get(site, "/about_until_the_deadline?500").body == b"to its end"
    assert_timed_out(get(site, "/only/here/asleep_in_slices"))


@every_driver
def test_time_of_slow_client_does_not_count(timed: Callable[..., Running], driver: str) -> None:
    site = timed(*flags(driver), TIMEOUT)
    with connect_without_room(site) as peer:
        peer.send(build_request("GET", "/large?200&slow"))
        assert peer.read_head().status == 200
        # The clock: two that take the whole time, one after another.
        for _ in range(2):
            assert_timed_out(get(site, "/asleep_in_slices"))
        size = 0
        while chunk := peer.read_chunk():
            size += len(chunk)
        assert size == 200 << 16


@every_driver
def test_deadline_of_queued_response_does_not_interrupt_the_running_call(
    timed: Callable[..., Running], driver: str
) -> None:
    """An iterable whose client reads along shares its thread with other calls."""
    site = timed(*flags(driver), TIMEOUT, "--timeout-path=/for_a_second=0")
    clients = 1 if driver == "one thread" else 4
    over = threading.Event()

    def read_along(peer: Peer) -> None:
        with contextlib.suppress(AssertionError, OSError):
            while not over.is_set() and peer.read_chunk():
                pass

    readers = [ask(site, "/endless?reader") for _ in range(clients)]
    for reader in readers:
        assert reader.read_head().status == 200
    reading = [threading.Thread(target=read_along, args=(reader,)) for reader in readers]
    for thread in reading:
        thread.start()
    calls = [ask(site, "/for_a_second") for _ in range(clients)]
    answers = [peer.read_response() for peer in calls]
    over.set()
    for thread in reading:
        thread.join()
    for peer in [*readers, *calls]:
        peer.close()
    assert [answer.status for answer in answers] == [200] * clients
    assert "in for_a_second\n" not in site.stderr


@every_driver
@pytest.mark.slow
def test_deadline_does_not_interrupt_the_next_request(timed: Callable[..., Running], driver: str) -> None:
    """Calls that end right at their deadline, and quick ones behind them in the same thread."""
    print("seed", SEED)
    site = timed(*flags(driver), "--timeout=20ms", "--timeout-path=/quick=0")
    lateness = random.Random(SEED)
    clients = 1 if driver == "one thread" else 4
    wrong: list[object] = []
    seen: set[int] = set()

    def talk(number: int, waits: list[int]) -> None:
        try:
            with connect(site) as peer:
                for turn, wait in enumerate(waits):
                    quick = b"".join(build_request("GET", f"/quick?{number}.{turn}.{n}") for n in range(3))
                    with ask(site, f"/about_until_the_deadline?{wait}") as late:
                        status = late.read_response().status
                    peer.send(quick)
                    assert status in (200, 504), status
                    seen.add(status)
                    for n in range(3):
                        assert_answered(peer, f"{number}.{turn}.{n}".encode())
        except (AssertionError, OSError) as error:
            wrong.append(error)

    # Around the deadline itself, and around the next check of deadlines.
    waits = [lateness.choice([10, 18, 19, 20, 21, 22, 25, 40, 150]) for _ in range(60)]
    talkers = [threading.Thread(target=talk, args=(number, waits)) for number in range(clients)]
    for talker in talkers:
        talker.start()
    for talker in talkers:
        talker.join()
    assert wrong == []
    assert seen == {200, 504}
    assert site.stop() == 0


SLOW_STARTS = """
import threading, time
start = threading.Thread.start

def start_slowly(thread):
    start(thread)
    if thread.name[:-1] == "kirsch-":
        until = time.monotonic() + 0.7
        while time.monotonic() < until:
            time.sleep(0.01)

threading.Thread.start = start_slowly
"""


@pytest.mark.slow
def test_deadline_does_not_interrupt_the_server_itself(timed: Callable[..., Running]) -> None:
    """The first call of a thread has begun when a further thread is started, which takes longer than it may."""
    site = timed("--threads=4", TIMEOUT, before=SLOW_STARTS)
    for _ in range(3):
        with contextlib.ExitStack() as stack:
            for peer in [stack.enter_context(ask(site, "/asleep_in_slices")) for _ in range(5)]:
                assert_timed_out(peer.read_response())
    assert get(site, "/quick?again").body == b"again"
    assert site.stop() == 0
    assert "thread can be started" not in site.stderr
    assert "panicked" not in site.stderr


# Calls that cannot be ended


@pytest.mark.slow
def test_call_stuck_in_c_ends_the_process_after_other_requests_finish(
    timed: Callable[..., Running], tmp_path: Path
) -> None:
    site = timed("--workers=0", "--threads=4", TIMEOUT, "--graceful-timeout=1s", "--timeout-path=/patient=0")
    gate = tmp_path / "gate"
    with ask(site, f"/patient/wait?{gate}") as patient, UnaffectedClients(site) as unaffected:
        await_inside(site, gate)
        with ask(site, "/stuck_in_c") as stuck:
            site.wait_for("^stuck in C$")
            unaffected.await_answers(10)
            unaffected.may_end = True
            site.wait_for(r"\[CRITICAL\] .*/stuck_in_c")
            gate.touch()
            assert_answered(patient, b"waited")
            stuck.read_until_closed()
        status = site.process.wait(10)
    assert status == EXIT_STUCK
    site.stop()
    assert "in stuck_in_c" in site.stderr


@pytest.mark.parametrize("driver", ["one thread", "gevent"])
@pytest.mark.slow
def test_greenlet_that_blocks_the_hub_ends_the_process(timed: Callable[..., Running], driver: str) -> None:
    site = timed("--workers=0", *flags(driver), TIMEOUT, "--graceful-timeout=400ms")
    with ask(site, "/stuck_in_c") as stuck:
        site.wait_for(r"\[CRITICAL\] .*/stuck_in_c")
        status = site.process.wait(10)
        assert b"to its end" not in stuck.read_until_closed()
    assert status == EXIT_STUCK
    site.stop()
    assert "in stuck_in_c" in site.stderr
