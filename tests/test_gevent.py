"""The driver ``gevent``: the hub hosts the engine, each request has a greenlet of its own, and the application is
imported into a patched world."""

from __future__ import annotations

import json
import select
import signal
from typing import TYPE_CHECKING, Any

import pytest

from interpreter import needs_gevent
from proc import cpu_share, wait_until
from raw import Peer, build_request
from waiting import (
    FLAGS,
    UnaffectedClients,
    ask,
    assert_answered,
    assert_serves,
    await_inside,
    connect,
    connect_without_room,
    get,
    get_json,
    refuses,
    serve_waiting,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

needs_gevent()

GEVENT = FLAGS["gevent"]

APP = """
import os, socket, sys, threading, time
from time import sleep  # taken at import: the patch must have come before

import gevent, gevent.event, gevent.hub, gevent.local, gevent.monkey

TEXT = [("Content-Type", "text/plain")]
PATCHED_AT_IMPORT = [name for name in ("socket", "ssl", "select", "threading", "time", "subprocess", "queue", "os")
                     if gevent.monkey.is_module_patched(name)]
SLEEP_AT_IMPORT = sleep.__module__

here = []
all_here = gevent.event.Event()
own = gevent.local.local()
greenlets = {}

def app(environ, start_response):
    return globals()[environ["PATH_INFO"][1:]](environ, start_response)

def say(text):
    os.write(2, f"{text}\\n".encode())

def tell(start_response, what):
    import json
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(what).encode()]

def where(environ, start_response):
    return tell(start_response, {
        "greenlet": isinstance(gevent.getcurrent(), gevent.Greenlet),
        "parent is hub": gevent.getcurrent().parent is gevent.get_hub(),
        "id": id(gevent.getcurrent()),
        "task": os.path.basename(os.readlink("/proc/thread-self")),
        "patched": PATCHED_AT_IMPORT,
        "sleep": SLEEP_AT_IMPORT,
    })

# Ways to wait. A call leaves when as many are here as ``?number`` says, so that all of them must be here at once.

def overlap(environ, start_response):
    number, how = environ["QUERY_STRING"].split("&")
    here.append(how)
    deadline = time.monotonic() + 20
    while len(here) < int(number):
        assert time.monotonic() < deadline, f"{len(here)} are here"
        WAYS[how]()
    all_here.set()
    start_response("200 OK", TEXT)
    return [how.encode()]

def reset(environ, start_response):
    del here[:]
    all_here.clear()
    return tell(start_response, 0)

def by_socket():
    near, far = socket.socketpair()
    with near, far:
        gevent.spawn_later(0.001, far.send, b"x")
        near.recv(1)

def by_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=0.001)

WAYS = {
    "gevent.sleep": lambda: gevent.sleep(0.001),
    "time.sleep": lambda: time.sleep(0.001),
    "sleep": lambda: sleep(0.001),
    "Event": lambda: all_here.wait(20),
    "socket": by_socket,
    "lock": by_lock,
}

# A response that begins late, of an application that is a class

class late:
    def __init__(self, environ, start_response):
        self.environ, self.start_response = environ, start_response

    def __iter__(self):
        self.start_response("200 OK", [("X-paul", "yes"), *TEXT])
        yield b"Hello"
        if self.environ["QUERY_STRING"]:
            while not os.path.exists(self.environ["QUERY_STRING"]):
                sleep(0.002)
        else:
            sleep(0.1)
        yield b"World"

# Greenlets

def locals(environ, start_response):
    own.value = environ["QUERY_STRING"]
    start_response("200 OK", TEXT)
    def blocks():
        for _ in range(50):
            sleep(0)
            yield f"{own.value} ".encode()
    return blocks()

def hang(environ, start_response):
    greenlets[environ["QUERY_STRING"]] = gevent.getcurrent()
    say(f"hangs {environ['QUERY_STRING']}")
    try:
        gevent.event.Event().wait()
    except BaseException as error:
        say(f"hung until {type(error).__name__}")
        raise

def hang_midway(environ, start_response):
    greenlets[environ["QUERY_STRING"]] = gevent.getcurrent()
    start_response("200 OK", TEXT)
    yield b"begun"
    try:
        gevent.event.Event().wait()
    finally:
        say("generator ended")

def kill(environ, start_response):
    greenlets.pop(environ["QUERY_STRING"]).kill(block=False)
    return tell(start_response, "killed")

def spawns(environ, start_response):
    jobs = [gevent.spawn(lambda number=number: (sleep(0.001), number)[1]) for number in range(10)]
    gevent.joinall(jobs)
    return tell(start_response, [job.value for job in jobs])
"""


@pytest.fixture
def green(serve: Serve, write_app: Callable[[str], str]) -> Running:
    return serve(write_app(APP), *GEVENT)


def ask_many(site: Running, number: int, target: str) -> list[Peer]:
    return [ask(site, target) for _ in range(number)]


# The greenlets of requests


def test_each_request_has_a_greenlet_in_the_main_thread(green: Running) -> None:
    with connect(green) as peer:
        answers: list[dict[str, Any]] = []
        for _ in range(3):
            peer.send(build_request("GET", "/where") * 2)
            answers += [json.loads(peer.read_response().body) for _ in range(2)]
    for answer in answers:
        assert answer["greenlet"] is True
        assert answer["parent is hub"] is True
        assert answer["task"] == str(green.server_pid), "there is one thread"


def test_the_world_is_patched_before_the_application_is_imported(green: Running) -> None:
    answer = get_json(green, "/where")
    assert {"socket", "ssl", "select", "threading", "time", "subprocess"} <= set(answer["patched"])
    assert answer["sleep"].startswith("gevent")
    assert "patched this process" not in green.stderr, "there is nothing to warn of"


@pytest.mark.parametrize("how", ["gevent.sleep", "time.sleep", "sleep", "Event", "socket", "lock"])
def test_a_hundred_requests_overlap(green: Running, how: str) -> None:
    peers = ask_many(green, 100, f"/overlap?100&{how}")
    for peer in peers:
        assert_answered(peer, how.encode())
        peer.close()


def test_an_application_may_have_greenlets_of_its_own(green: Running) -> None:
    for _ in range(3):
        assert get_json(green, "/spawns") == list(range(10))


# The application that sleeps in its response: a class, whose iterator begins it


def test_a_class_that_starts_late_is_served_to_a_hundred_at_once(green: Running) -> None:
    peers = ask_many(green, 100, "/late")
    for peer in peers:
        response = peer.read_response()
        assert (response.status, response.body, response.complete) == (200, b"HelloWorld", True)
        assert (response.header("X-paul"), response.framing) == ("yes", "chunked")
        peer.close()


def test_its_first_part_leaves_before_its_second_is_made(green: Running, tmp_path: Path) -> None:
    gates = [tmp_path / "gate1.1", tmp_path / "gate1.0"]
    with ask(green, f"/late?{gates[0]}") as new, ask(green, f"/late?{gates[1]}", version="HTTP/1.0") as old:
        assert new.read_head().header("Transfer-Encoding") == "chunked"
        assert new.read_chunk() == b"Hello"
        assert old.read_head().header("Connection") == "close"
        assert old.read_until(b"Hello") == b"Hello"
        gates[1].touch()
        assert old.read_until_closed() == b"World"
        assert not old.reset
        gates[0].touch()
        assert new.read_chunk() == b"World"
        assert new.read_chunk() == b""


PATCHES = """
import gevent.monkey
gevent.monkey.patch_all()
import os, threading, time

def app(environ, start_response):
    if environ["QUERY_STRING"]:
        os.write(2, b"waiting for %s\\n" % environ["QUERY_STRING"].encode())
        while not os.path.exists(environ["QUERY_STRING"]):
            time.sleep(0.002)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"patched"]
"""


@pytest.mark.parametrize("threads", ["1", "4"])
def test_an_application_that_patches_under_threads_is_warned_and_served(
    serve: Serve, write_app: Callable[[str], str], threads: str, tmp_path: Path
) -> None:
    site = serve(write_app(PATCHES), "--threads", threads)
    warning = site.wait_for(r"^.*\[WARNING\].*--driver gevent.*$")[0]
    assert "gevent" in warning
    for _ in range(20):
        assert get(site, "/").body == b"patched"
    if threads != "1":
        gate = tmp_path / "gate"
        peers = ask_many(site, 3, f"/?{gate}")
        await_inside(site, gate, 3)
        assert get(site, "/").body == b"patched"
        gate.touch()
        for peer in peers:
            assert_answered(peer, b"patched")
            peer.close()
    assert site.stderr.count("[WARNING]") == 1
    assert site.stop() == 0


def test_an_application_that_patches_under_gevent_is_not_warned(
    serve: Serve, write_app: Callable[[str], str], tmp_path: Path
) -> None:
    site = serve(write_app(PATCHES), *GEVENT)
    gate = tmp_path / "gate"
    peers = ask_many(site, 30, f"/?{gate}")
    await_inside(site, gate, 30)
    assert get(site, "/").body == b"patched"
    gate.touch()
    for peer in peers:
        assert_answered(peer, b"patched")
        peer.close()
    assert site.stop() == 0
    assert "patched this process" not in site.stderr


def test_an_application_that_does_not_patch_is_not_warned(serve: Serve) -> None:
    site = serve_waiting(serve, *FLAGS["threads"])
    assert_serves(site)
    assert site.stop() == 0
    assert "[WARNING]" not in site.stderr


# Greenlets


def test_gevents_locals_belong_to_the_request(green: Running) -> None:
    peers = {f"value{number}": ask(green, f"/locals?value{number}") for number in range(10)}
    for value, peer in peers.items():
        assert_answered(peer, f"{value} ".encode() * 50)
        peer.close()


def test_a_request_that_is_killed_ends_alone(green: Running) -> None:
    with ask(green, "/hang?1") as hung, ask(green, "/hang_midway?2") as begun, ask(green, "/hang?3") as other:
        green.wait_for("^hangs 1$")
        green.wait_for("^hangs 3$")
        assert begun.read_head().status == 200
        assert begun.read_chunk() == b"begun"
        for name in ("1", "2"):
            assert get_json(green, f"/kill?{name}") == "killed"
        assert hung.read_response().status == 500
        green.wait_for("^hung until GreenletExit$")
        assert b"\r\n0\r\n\r\n" not in begun.read_until_closed(), "the cut has to show"
        green.wait_for("^generator ended$")
        assert get_json(green, "/spawns") == list(range(10))
        assert not select.select([other.sock], [], [], 0)[0], "no other request was killed"
        get_json(green, "/kill?3")
        assert other.read_response().status == 500


# Connections


def test_keep_alive_and_pipelining(green: Running) -> None:
    with connect(green) as peer:
        for _ in range(20):
            peer.send(build_request("GET", "/late?/") * 5 + build_request("GET", "/where"))
            for _ in range(5):
                assert_answered(peer, b"HelloWorld")
            assert json.loads(peer.read_response().body)["greenlet"] is True


def test_access_log_line_is_written_while_the_server_waits(serve: Serve, tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    site = serve_waiting(serve, *GEVENT, "--access-logfile", str(log))
    with connect(site) as peer:
        peer.send(build_request("GET", f"/wait?{gate}", headers={"Connection": "close"}))
        await_inside(site, gate)
        gate.touch()
        assert_answered(peer, b"waited")
        assert peer.read_until_closed() == b""
    # No connection is left, so nothing has the engine polled again.
    wait_until(lambda: f"GET /wait?{gate} " in log.read_text(), "the line is written")


def test_writes_to_slow_readers_let_others_go_on(serve: Serve) -> None:
    site = serve_waiting(serve, *GEVENT)
    readers = [connect_without_room(site) for _ in range(10)]
    for number, peer in enumerate(readers):
        page = "write_large" if number % 2 else "large"
        peer.send(build_request("GET", f"/{page}?100&{number}"))
        assert peer.read_head().status == 200
    with UnaffectedClients(site) as unaffected:
        unaffected.await_answers(20)
        for peer in readers:
            size = 0
            while chunk := peer.read_chunk():
                size += len(chunk)
            assert size == 100 << 16
            peer.close()


# The end


def test_term_lets_blocked_greenlets_finish(serve: Serve, tmp_path: Path) -> None:
    site = serve_waiting(serve, *GEVENT)
    gate = tmp_path / "gate"
    peers = ask_many(site, 50, f"/wait?{gate}")
    await_inside(site, gate, 50)
    site.process.send_signal(signal.SIGTERM)
    wait_until(lambda: refuses(site), "new connections are refused")
    gate.touch()
    for peer in peers:
        assert_answered(peer, b"waited")
        peer.close()
    assert site.process.wait(10) == 0
    site.stop()


def test_term_ends_greenlets_that_never_return(serve: Serve, write_app: Callable[[str], str]) -> None:
    site = serve(write_app(APP), *GEVENT, "--graceful-timeout=300ms")
    with ask(site, "/hang?1") as peer:
        site.wait_for("^hangs 1$")
        assert site.stop() == 0
        peer.read_until_closed()
    assert "hung until GreenletExit\n" in site.stderr, "what it holds is let go of"


def test_nothing_to_do_takes_no_processor_time(green: Running) -> None:
    """A hub that hosts an engine must not look again and again whether there is something to do."""
    with ask(green, "/hang?1"), connect(green):
        green.wait_for("^hangs 1$")
        wait_until(lambda: cpu_share(green.server_pid, 0.2) < 0.05, "the hub rests")
        get_json(green, "/kill?1")
