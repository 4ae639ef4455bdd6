"""The differences of a free-threaded interpreter for users, and a server that several threads use at once."""

from __future__ import annotations

import json
import os
import random
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import kirsch
import two_engines
from interpreter import needs_gevent, needs_no_lock
from kirsch._native import follow_frames
from kirsch.drivers import threads as driver
from proc import descriptors, wait_until
from raw import Peer, PeerClosed, build_request
from running import COMMAND_VARIABLE
from waiting import PATIENCE, ask, assert_answered, connect, get_json, serve_waiting

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from running import Serve

WHO = """
    import sys, threading

    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [repr((sys._is_gil_enabled(), environ["wsgi.multithread"])).encode()]
"""


@needs_no_lock
@pytest.mark.parametrize("args", [(), ("--threads", "1"), ("--workers", "0"), ("--preload",)])
def test_serving_leaves_the_lock_off(serve: Serve, write_app: Callable[[str], str], args: tuple[str, ...]) -> None:
    site = serve(write_app(WHO) + ":app", *args)
    assert site.page() == repr((False, args != ("--threads", "1")))
    assert "lock" not in site.stderr.lower()


@needs_no_lock
@pytest.mark.parametrize("flag", ["warn", "refuse"])
def test_what_gevent_means_is_said_in_one_line(
    serve: Serve, write_app: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    needs_gevent()
    if flag == "refuse":
        monkeypatch.setenv("PYTHON_GIL", "0")
        with pytest.raises(AssertionError) as refused:
            serve(write_app(WHO) + ":app", "--driver", "gevent")
        said = str(refused.value)
        assert "kirsch: the driver gevent needs the GIL, which PYTHON_GIL=0" in said
        assert "Traceback" not in said
        return
    site = serve(write_app(WHO) + ":app", "--driver", "gevent")
    assert site.page() == repr((True, True))
    assert len(re.findall("WARNING.*gevent has turned on the GIL", site.stderr)) == 1
    assert "RuntimeWarning" not in site.stderr


@needs_no_lock
def test_each_processor_has_an_engine(serve: Serve) -> None:
    """As many as the process may use, which is what ``taskset`` and containers set."""
    both = os.sched_getaffinity(0)
    for processors in (1, 2):
        if len(both) < processors:
            pytest.skip("one processor")
        os.sched_setaffinity(0, set(sorted(both)[:processors]))
        try:
            site = serve_waiting(serve, "--threads", "8")
        finally:
            os.sched_setaffinity(0, both)
        get_json(site, "/who")
        # Each engine has a ticker, a thread of its own.
        polls = sum("eventpoll" in each for each in descriptors(site.server_pid).values())
        assert polls == 2 * processors, "an engine has a poller, and another descriptor of it to register with"


def test_newcomers_go_where_threads_are_left(serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of two engines the one whose threads all wait leaves those who come to the other."""
    monkeypatch.setenv(COMMAND_VARIABLE, two_engines.COMMAND)
    for turn in range(5):
        site = serve_waiting(serve, "--workers", "0", "--threads", "6")
        gate = tmp_path / f"gate {turn}".replace(" ", "")
        peers = []
        # Each is inside before the next one comes, wherever the kernel would have sent it.
        for number in range(1, 7):
            peers.append(ask(site, f"/wait?{gate}"))
            site.wait_for(rf"(?s)(waiting for {re.escape(str(gate))}\n.*){{{number}}}")
        gate.touch()
        for peer in peers:
            assert_answered(peer, b"waited")
            peer.close()
        assert site.stop() == 0


def test_clients_that_come_together_are_shared_out(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two engines each has a good part of them, so that no processor has nothing to do."""
    monkeypatch.setenv(COMMAND_VARIABLE, two_engines.COMMAND)
    site = serve_waiting(serve, "--workers", "0", "--threads", "4")

    def have_a_good_part_each() -> bool:
        peers = [connect(site) for _ in range(16)]
        names = []
        for peer in peers:
            peer.send(build_request("GET", "/who"))
            names.append(json.loads(peer.read_response().body)["name"])
        for peer in peers:
            peer.close()
        print("threads of the clients:", *names)
        first = sum(name in ("kirsch-0", "kirsch-1", "kirsch-2") for name in names)
        return 2 <= first <= 14

    # An engine that gets no processor in time is passed over for a second; the clients of afterwards are shared out.
    wait_until(have_a_good_part_each, "each engine had 2 of 16 clients at least")


@pytest.mark.parametrize("engines", [1, 2])
def test_stops_from_everywhere_lose_nothing(monkeypatch: pytest.MonkeyPatch, engines: int) -> None:
    """Several threads drain and stop one server, and look at it, while clients are served."""
    monkeypatch.setattr(driver, "engines", lambda _threads: engines)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(8):
        _serve_and_stop(chance.random() * 0.05, chance)


def _serve_and_stop(seconds: float, chance: random.Random) -> None:
    began: list[int] = []
    ended: list[int] = []

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        began.append(1)
        start_response("200 OK", [("Content-Type", "text/plain")])
        ended.append(1)
        return [b"whole"]

    server = kirsch.Server(app, "127.0.0.1:0", threads=4, report=lambda *_: None, graceful_timeout=PATIENCE)
    server.listen()
    address = server.addresses[0]
    assert not isinstance(address, str)
    ready = threading.Event()
    serving = threading.Thread(target=server.start, args=(ready.set,))
    serving.start()
    assert ready.wait(PATIENCE)
    over = threading.Event()
    wrong: list[BaseException] = []
    answered: list[int] = []

    def talk() -> None:
        try:
            while not over.is_set():
                try:
                    peer = Peer.connect(address[0], int(address[1]), PATIENCE)
                except OSError:
                    return  # the listener is closed
                with peer:
                    for _ in range(20):
                        try:
                            peer.send(build_request("GET", "/"))
                            response = peer.read_response()
                        except (PeerClosed, OSError):
                            break  # between two answers
                        assert (response.status, response.body, response.complete) == (200, b"whole", True)
                        answered.append(1)
                        if response.header("Connection") == "close":
                            break
        except BaseException as error:  # noqa: BLE001 - looked at below
            wrong.append(error)

    def meddle(act: Callable[[], object], after: float) -> None:
        try:
            over.wait(after)
            for _ in range(20):
                act()
        except BaseException as error:  # noqa: BLE001 - looked at below
            wrong.append(error)

    acts: list[Callable[[], object]] = [server.stop, server.stop, server.drain, server.statistics, server.dump]
    threads = [threading.Thread(target=talk) for _ in range(4)]
    threads += [threading.Thread(target=meddle, args=(act, seconds + chance.random() * 0.01)) for act in acts]
    for thread in threads:
        thread.start()
    serving.join(PATIENCE)
    assert not serving.is_alive(), "it does not end"
    over.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert not wrong, wrong
    assert len(began) == len(ended)
    assert len(answered) <= len(ended)


@pytest.mark.skipif(
    sys.implementation.name == "pypy", reason="three busy threads keep PyPy's lock too long for 1,000 looks at them"
)
def test_frames_of_others_can_be_followed_while_they_come_and_go() -> None:
    """``follow_frames`` of threads that call and return as fast as they can."""
    done = threading.Event()

    def deeper(depth: int) -> int:
        return deeper(depth - 1) + 1 if depth else 0

    def run() -> None:
        while not done.is_set():
            deeper(20)

    runners = [threading.Thread(target=run, name=f"runner {number}") for number in range(3)]
    for runner in runners:
        runner.start()
    deepest = 0
    try:
        for _ in range(1000):
            frames: dict[int, FrameType] = sys._current_frames()
            for runner in runners:
                frame = frames.get(runner.ident or 0)
                if frame is None:
                    continue
                found = follow_frames(frame)
                names = [code.co_name for code, _, _ in found]
                assert all(line > 0 for _, _, line in found)
                assert names.count("deeper") <= 21
                deepest = max(deepest, names.count("deeper"))
    finally:
        done.set()
        for runner in runners:
            runner.join(PATIENCE)
    assert deepest, "some were met in the middle"
    with pytest.raises(TypeError, match="takes a frame"):
        follow_frames(object())  # type: ignore[arg-type]
