"""The driver ``threads``: how many calls run at a time, in which threads, and what else goes on meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from proc import wait_until
from raw import Peer, build_request
from waiting import (
    FLAGS,
    PATIENCE,
    UnaffectedClients,
    ask,
    assert_answered,
    assert_serves,
    await_inside,
    await_turns,
    connect,
    connect_without_room,
    every_concurrent_driver,
    every_driver,
    flags,
    get,
    get_json,
    serve_waiting,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from running import Running, Serve


@pytest.fixture
def threads(serve: Serve) -> Running:
    return serve_waiting(serve, *FLAGS["threads"])


def close_all(peers: list[Peer]) -> None:
    for peer in peers:
        peer.close()


# Calls at a time


@pytest.mark.parametrize("number", [1, 2, 3, 16])
def test_as_many_calls_at_a_time_as_threads_and_no_more(serve: Serve, number: int, tmp_path: Path) -> None:
    site = serve_waiting(serve, "--threads", str(number))
    gate = tmp_path / "gate"
    peers = [ask(site, f"/wait?{gate}") for _ in range(3 * number)]
    await_inside(site, gate, number)
    if number > 1:
        # With one thread, no thread is left to poll the engine.
        await_turns(site)
    gate.touch()
    for peer in peers:
        assert_answered(peer, b"waited")
    close_all(peers)
    assert get_json(site, "/records")["inside"]["most"] == number


def test_the_default_is_several_threads(serve: Serve) -> None:
    site = serve_waiting(serve)
    peers = [ask(site, "/meeting?5&five") for _ in range(5)]
    idents = {json.loads(peer.read_response().body) for peer in peers}
    close_all(peers)
    assert len(idents) == 5


@every_driver
def test_wsgi_multithread_says_whether_calls_overlap(serve: Serve, driver: str) -> None:
    answer = get_json(serve_waiting(serve, *flags(driver)), "/who")
    assert answer["wsgi.multithread"] is (driver != "one thread")
    assert (answer["wsgi.multiprocess"], answer["wsgi.run_once"]) == (False, False)


def test_one_thread_is_the_main_thread(serve: Serve) -> None:
    site = serve_waiting(serve, *FLAGS["one thread"])
    answer = get_json(site, "/who")
    assert (answer["name"], answer["task"]) == ("MainThread", str(site.server_pid))
    assert answer["names"] == ["MainThread"]


def test_threads_are_pythons_own_with_names(threads: Running) -> None:
    answer = get_json(threads, "/who")
    assert re.fullmatch("kirsch-[0-9]+", answer["name"])
    assert answer["daemon"] is True, "a call that never returns must not hold up the end of the process"
    assert answer["task"] != str(threads.server_pid), "signal handlers run in the main thread, whatever a call does"


def test_fast_calls_stay_on_one_thread(serve: Serve) -> None:
    site = serve_waiting(serve, "--threads", "16")
    fewest = 200
    answers: list[dict[str, Any]] = []
    with connect(site) as peer:
        # On a busy machine some fast calls are slow ones, hence another try. A pool would change each time.
        for _ in range(10):
            answers = []
            for _ in range(200):
                peer.send(build_request("GET", "/who"))
                answers.append(json.loads(peer.read_response().body))
            changes = [before["thread"] != after["thread"] for before, after in itertools.pairwise(answers)]
            fewest = min(fewest, sum(changes))
            if fewest <= 2:
                break
        made = [name for name in answers[-1]["names"] if name.startswith("kirsch-")]
    assert fewest <= 2
    assert len(made) < 8, "threads are made when calls need them"


# A call that waits


@pytest.mark.usefixtures("one_engine")
def test_a_call_that_waits_does_not_stop_the_others(threads: Running, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    # Three of four.
    waiting = [ask(threads, f"/wait?{gate}") for _ in range(3)]
    await_inside(threads, gate, 3)
    with UnaffectedClients(threads) as unaffected:
        unaffected.await_answers(50)
    gate.touch()
    for peer in waiting:
        assert_answered(peer, b"waited")
    close_all(waiting)


def test_the_engine_goes_on_while_all_threads_wait(threads: Running, tmp_path: Path) -> None:
    """It accepts, receives and refuses; what needs the application waits its turn."""
    gate = tmp_path / "gate"
    waiting = [ask(threads, f"/wait?{gate}") for _ in range(4)]
    await_inside(threads, gate, 4)
    queued = [ask(threads, "/echo", "POST", body=b"x" * 500_000) for _ in range(10)]
    await_turns(threads)
    gate.touch()
    for peer in waiting:
        assert_answered(peer, b"waited")
    for peer in queued:
        assert_answered(peer, b"x" * 500_000)
    close_all(waiting + queued)


@every_concurrent_driver
def test_pipelined_requests_are_answered_in_order_though_the_first_is_slow(
    serve: Serve, driver: str, tmp_path: Path
) -> None:
    site = serve_waiting(serve, *flags(driver))
    gate = tmp_path / "gate"
    with connect(site) as peer:
        batch = [build_request("GET", f"/wait?{gate}"), build_request("POST", "/echo", body=b"second")]
        peer.send(b"".join([*batch, build_request("GET", "/hello")]))
        await_inside(site, gate)
        assert_serves(site)
        # Of one connection, one after the other.
        journal = get_json(site, "/records")["journal"]
        assert "/hello" not in journal
        gate.touch()
        for body in (b"waited", b"second", b"Hello"):
            assert_answered(peer, body)
    journal = get_json(site, "/records")["journal"]
    assert journal == [f"/wait?{gate}", "/echo", "/records", "/echo", "/hello", "/records"]


# Iterables


def idents(site: Running, name: str) -> list[int]:
    found: list[int] = get_json(site, "/records")["idents"][name]
    return found


def test_an_iterable_stays_on_the_thread_of_its_call(threads: Running) -> None:
    """The call, each block and close(), although clients read slowly and all threads are busy meanwhile."""
    names = [f"slow{number}" for number in range(6)]
    peers = [connect_without_room(threads) for _ in names]
    for peer, name in zip(peers, names, strict=True):
        peer.send(build_request("GET", f"/large?100&{name}"))
        assert peer.read_head().status == 200
    with UnaffectedClients(threads, clients=4):
        unread = dict(zip(names, peers, strict=True))
        while unread:
            for name, peer in list(unread.items()):
                if not peer.read_chunk():
                    del unread[name]
    for name in names:
        threads.wait_for(f"^closed {name}$")
        used = idents(threads, name)
        assert len(used) == 1 + 1 + 101 + 1, "the call, __iter__, the blocks and their end, close"
        assert set(used) == {used[0]}, name
    close_all(peers)


@pytest.mark.usefixtures("one_engine")
def test_an_iterable_does_not_wait_for_calls_that_came_after_it(threads: Running, tmp_path: Path) -> None:
    """It is bound to its thread; so, while others are free, that thread must not be lent to a call that waits."""
    gate = tmp_path / "gate"
    with connect_without_room(threads) as reader:
        reader.send(build_request("GET", "/large?200&reader"))
        assert reader.read_head().status == 200
        waiting = [ask(threads, f"/wait?{gate}") for _ in range(3)]
        await_inside(threads, gate, 3)
        size = 0
        while chunk := reader.read_chunk():
            size += len(chunk)
        assert size == 200 << 16
        gate.touch()
        for peer in waiting:
            assert_answered(peer, b"waited")
            peer.close()


def test_iterables_of_one_client_may_use_any_thread(threads: Running) -> None:
    for number in range(20):
        assert len(get(threads, f"/large?3&{number}").body) == 3 << 16
        threads.wait_for(f"^closed {number}$")
        assert len(set(idents(threads, str(number)))) == 1


@pytest.mark.parametrize("page", ["events", "endless"])
def test_a_slow_reader_holds_no_thread(serve: Serve, page: str) -> None:
    site = serve_waiting(serve, "--threads", "2", "--write-timeout", "0")
    readers = [connect_without_room(site) for _ in range(10)]
    for number, peer in enumerate(readers):
        peer.send(build_request("GET", f"/{page}?{number}"))
    for peer in readers:
        assert peer.read_head().status == 200
    assert_serves(site)
    # Both threads at the same time.
    both = [ask(site, "/meeting?2&both") for _ in range(2)]
    assert len({peer.read_response().body for peer in both}) == 2
    for peer in readers:
        assert len(peer.read_chunk()) > 500, "and the readers get what they read"
        peer.abort()
    for number in range(10):
        site.wait_for(f"^closed {number}$")
    close_all(both)


# State of a thread


@every_concurrent_driver
def test_locals_and_context_variables_are_those_of_the_call(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver))
    values = [f"value{number}" for number in range(4)]
    peers = [ask(site, f"/variables?4&{value}") for value in values]
    for peer, value in zip(peers, values, strict=True):
        assert_answered(peer, f"{value} {value}\n".encode() * 4)
    close_all(peers)


@every_driver
def test_another_thread_may_respond_while_the_call_lasts(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver))
    with connect(site) as peer:
        for _ in range(3):
            peer.send(build_request("GET", "/thread_responds") + build_request("GET", "/hello"))
            assert_answered(peer, b"written, returned")
            assert_answered(peer, b"Hello")


@every_driver
def test_another_thread_cannot_respond_when_it_is_over(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver))
    with connect(site) as peer:
        peer.send(build_request("GET", "/thread_keeps") + build_request("GET", "/thread_is_late"))
        assert_answered(peer, b"kept")
        response = peer.read_response()
        assert json.loads(response.body) == ["RuntimeError", "RuntimeError"]
        assert response.header("X-Stray") is None


@every_concurrent_driver
def test_a_thread_that_writes_on_and_on_reaches_its_own_response_only(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver))
    with UnaffectedClients(site), connect(site) as peer:
        for number in range(20):
            log = len(site.stderr)
            peer.send(build_request("GET", "/thread_strays"))
            response = peer.read_response()
            assert (response.status, response.complete) == (200, True), number
            assert response.body.replace(b"x", b"") == b"end"
            site.wait_for("^strayed until RuntimeError$", after=log)
            peer.send(build_request("GET", "/hello"))
            assert_answered(peer, b"Hello")


# More clients than threads


@contextlib.contextmanager
def clients(site: Running, number: int) -> Iterator[list[Peer]]:
    peers = [connect(site) for _ in range(number)]
    yield peers
    close_all(peers)


@pytest.mark.parametrize("milliseconds", [0, 5])
@pytest.mark.parametrize("number", [10, 50, 200])
def test_five_threads_serve_every_client(serve: Serve, number: int, milliseconds: int) -> None:
    """A server that throws away what it cannot handle at once would lose two of five here."""
    site = serve_waiting(serve, "--threads", "5")
    rounds = 3
    with clients(site, number) as peers:
        for turn in range(rounds):
            for client, peer in enumerate(peers):
                peer.send(build_request("GET", f"/rest?{milliseconds}&{turn}.{client}"))
            for client, peer in enumerate(peers):
                assert_answered(peer, f"{milliseconds}&{turn}.{client}".encode())
    # The same without connections that are kept.
    sent = []
    for client in range(number):
        sock = socket.create_connection((site.host, site.port), PATIENCE)
        sock.sendall(build_request("GET", f"/rest?{milliseconds}&{client}", headers={"Connection": "close"}))
        sent.append(Peer(sock, PATIENCE))
    for client, peer in enumerate(sent):
        assert_answered(peer, f"{milliseconds}&{client}".encode())
        assert peer.read_until_closed() == b""
        assert not peer.reset
    close_all(sent)
    answered = [target for target in get_json(site, "/records")["journal"] if target.startswith("/rest")]
    assert len(answered) == len(set(answered)) == (rounds + 1) * number, "each was called once"


# Settings of the interpreter

INTERVAL = """
import sys

{first}

def app(environ, start_response):
    start_response("200 OK", [])
    return [repr(sys.getswitchinterval()).encode()]
"""


@pytest.mark.parametrize(
    ("first", "threads", "expected"),
    [
        ("", "16", "0.001"),
        ("", "1", "0.005"),
        ("sys.setswitchinterval(0.02)", "16", "0.02"),
    ],
    ids=["several threads", "one thread", "the application's own"],
)
def test_threads_get_the_gil_soon(serve: Serve, tmp_path: Path, first: str, threads: str, expected: str) -> None:
    (tmp_path / "interval.py").write_text(INTERVAL.format(first=first))
    site = serve("interval:app", "--chdir", str(tmp_path), "--threads", threads)
    assert get(site, "/").body.decode() == expected


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
def test_system_shows_a_name_for_each_thread(serve: Serve) -> None:
    site = serve_waiting(serve, "--threads=4", "--timeout=60s", "--slow-request=60s")
    get(site, "/echo")
    (worker,) = site.worker_pids()

    def names() -> set[str]:
        return {(task / "comm").read_text().strip() for task in Path(f"/proc/{worker}/task").iterdir()}

    wanted = {"kirsch-0", "kirsch-1", "kirsch-ticker", "kirsch-control", "kirsch-deadline", "kirsch-slow"}
    wait_until(lambda: wanted <= names(), f"threads are named {wanted}; they are {names()}")
