"""``kirsch profile``: where the time of a request goes; the tracer below it; and the stages of the server."""

from __future__ import annotations

import json
import os
import pstats
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import kirsch
from interpreter import needs_gevent
from kirsch import _native
from kirsch.profile import stats, tree
from kirsch.profile.tracer import BusyError, Node, Tracer
from proc import wait_until
from running import own_frame
from waiting import every_driver, flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RUN_SECONDS = 60.0
"""The seconds that a run of a second or two may take on a loaded machine."""

APP = """
    import os, sys, threading, time

    def inner(seconds):
        time.sleep(seconds)

    def quick():
        return 1

    def outer():
        for _ in range(3):
            inner(0.002)
        quick()

    def answer(start_response, body, status="200 OK", *headers):
        start_response(status, [("Content-Length", str(len(body))), *headers])
        return [body]

    def blocks():
        for number in range(3):
            time.sleep(0.002)
            yield b"block %d" % number

    def ticks():
        while True:
            time.sleep(0.005)
            yield b"tick"

    def staged(environ, start_response):
        stage = environ.get("kirsch.stage", lambda name: "")
        stage("find")
        time.sleep(0.001)
        before = stage("make")
        time.sleep(0.004)
        stage(before)
        return answer(start_response, before.encode())

    def app(environ, start_response):
        path = environ["PATH_INFO"]
        if path == "/staged":
            return staged(environ, start_response)
        if path == "/raise":
            raise ValueError("as the test wants it")
        if path == "/missing":
            return answer(start_response, b"not here", "404 Not Found")
        if path == "/moved":
            return answer(start_response, b"", "302 Found", ("Location", "/elsewhere"))
        if path == "/small":
            return answer(start_response, b"ok")
        if path == "/blocks":
            start_response("200 OK", [("Content-Length", "21")])
            return blocks()
        if path == "/ticks":
            start_response("200 OK", [])
            return ticks()
        if path == "/hang":
            print("it hangs", file=sys.stderr, flush=True)
            threading.Event().wait()
        if path == "/main":
            is_main = threading.current_thread() is threading.main_thread()
            return answer(start_response, b"", "200 OK" if is_main else "500 Elsewhere")
        if path == "/echo":
            body = environ["wsgi.input"].read()
            said = (environ["REQUEST_METHOD"], environ.get("HTTP_X_TEST"), environ["QUERY_STRING"], body)
            as_asked = said == ("PUT", "yes", "a=1", b"a body")
            return answer(start_response, b"", "200 OK" if as_asked else "400 Bad Request")
        outer()
        return answer(start_response, b"done")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the application, demo.py."""
    (tmp_path / "demo.py").write_text(textwrap.dedent(APP), encoding="utf-8")
    return tmp_path


def profile(
    folder: Path, *args: str, status: int = 0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "kirsch", "profile", "-q", *args],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == status, f"exit status {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def profiled(folder: Path, *args: str, status: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(profile(folder, *args, "--json", "-", status=status).stdout)
    return document


def found(calls: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The first call of this name in the tree."""
    waiting = list(calls)
    while waiting:
        call = waiting.pop(0)
        if call["name"] == name:
            return call
        waiting += call["calling"]
    raise AssertionError(f"no call of {name} in {json.dumps(calls, indent=1)}")


# ------------------------------------------------------------------------------------------------------- the command


ASGI = """
    import asyncio

    def compute():
        return sum(range(1000))

    async def inner():
        await asyncio.sleep(0.2)
        compute()

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            raise ValueError("none here")
        await receive()
        await inner()
        if scope["path"] == "/raise":
            raise LookupError("as the test wants it")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})
"""


def test_stages_and_calls_of_an_asgi_application(tmp_path: Path) -> None:
    (tmp_path / "demo.py").write_text(textwrap.dedent(ASGI), encoding="utf-8")
    document = profiled(tmp_path, "-n", "3", "--warmup", "1", "--threshold", "0", "demo:app", "/")
    # The wait of the task is the application's time, and part of none of its calls.
    assert document["stages"]["app"]["mean"] > 200_000
    assert found(document["calls"], "compute")["calls"] == 1
    assert found(document["calls"], "inner")["calls"] == 2
    assert sum(call["total"] for call in document["calls"]) < 150_000_000
    text = profile(tmp_path, "-n", "2", "--warmup", "1", "demo:app", "/").stdout
    assert "driver asyncio" in text
    assert "with all that the request's task waits for" in text
    assert "of the request's own task, without its waits" in text
    done = profile(tmp_path, "-n", "1", "--warmup", "1", "demo:app", "/raise", status=1)
    assert "The application raised LookupError." in done.stdout


@every_driver
def test_the_stages_add_up_to_the_whole(driver: str, folder: Path) -> None:
    document = profiled(folder, *flags(driver), "-n", "60", "--warmup", "5", "demo:app", "/")
    stages = document["stages"]
    assert list(stages) == ["read", "parse", "environ", "queue", "app", "write", "peer", "other", "total"]
    total = stages.pop("total")
    # Seed row S0.13.
    assert sum(each["mean"] for each in stages.values()) == pytest.approx(total["mean"], rel=0.05)
    assert sum(each["share"] for each in stages.values()) == pytest.approx(1.0)
    assert document["requests"] == 60
    assert document["statuses"] == {"200": 60}
    # Its three naps; they are no work.
    assert stages["app"]["p50"] > 6000
    assert document["processor"]["application"] < stages["app"]["mean"]
    assert all(each["mean"] > 0 for name, each in stages.items() if name not in ("peer", "queue"))
    assert stages["app"]["share"] > 0.5


@every_driver
def test_the_calls_of_a_request_are_shown_below_each_other(driver: str, folder: Path) -> None:
    shown = profile(folder, *flags(driver), "-n", "0", "--threshold", "1ms", "demo:app", "/").stdout
    lines = re.findall(r"^ *([\d.]+) +([\d.]+) +(\d+)  ( *)(\S+)$", shown, re.MULTILINE)
    calls = {name: (float(total), float(own), int(calls), len(indent)) for total, own, calls, indent, name in lines}
    app, outer, inner = (
        next(each for name, each in calls.items() if f"({word})" in name) for word in ("app", "outer", "inner")
    )
    assert app[3] < outer[3] < inner[3]
    assert (app[2], outer[2], inner[2]) == (1, 1, 3)
    assert app[0] >= outer[0] >= inner[0] >= 6
    assert outer[1] < 6
    assert "quick" not in shown
    for stage in ("read", "parse", "environ", "queue", "write"):
        assert f"kirsch: {stage}" in shown
    assert "demo.py:" in shown


def test_stages_of_the_application_add_up_to_its_time(folder: Path) -> None:
    document = profiled(folder, "demo:app", "/staged", "-n", "50")
    stages = document["application_stages"]
    assert list(stages) == ["find", "make", "rest"]
    assert stages["find"]["p50"] >= 1000  # microseconds
    assert stages["make"]["p50"] >= 4000
    whole = document["stages"]["app"]["mean"]
    assert sum(each["mean"] for each in stages.values()) == pytest.approx(whole, rel=0.05)
    assert stages["rest"]["mean"] < 0.2 * whole
    text = profile(folder, "demo:app", "/staged", "-n", "50").stdout
    assert re.search(r"^  app .*\n    find .*\n    make .*\n    rest ", text, re.MULTILINE), text


def test_an_application_without_stages_is_one_line(folder: Path) -> None:
    assert "application_stages" not in profiled(folder, "demo:app", "/", "-n", "20")


def test_the_server_s_share_is_told_for_a_rate(folder: Path) -> None:
    document = profiled(folder, "-n", "100", "--rate", "250", "demo:app", "/small")
    server = document["server"]
    assert server["rate"] == 250
    assert server["share_at_rate"] == pytest.approx(server["time"] * 250 / 1e6)
    assert 0 < server["share"] < 1
    shown = profile(folder, "-n", "50", "--rate", "2k", "demo:app", "/small").stdout
    assert re.search(r"At 2,000 requests a second for each worker the server is [\d.]+% .* of 500 us", shown)


def test_what_is_iterated_belongs_to_the_application(folder: Path) -> None:
    document = profiled(folder, "-n", "10", "demo:app", "/blocks")
    assert document["answer"]["bytes"] == 21
    assert document["stages"]["app"]["p50"] > 6000
    blocks = found(document["calls"], "blocks")
    assert blocks["total"] > 6_000_000
    assert blocks["calls"] == 4  # resumed for each block, and for the end


def test_an_application_that_raises(folder: Path) -> None:
    done = profile(folder, "-n", "20", "demo:app", "/raise", status=1)
    assert "500 Internal Server Error" in done.stdout
    assert "The application raised ValueError." in done.stdout
    assert done.stderr.count("ValueError: as the test wants it") == 1
    assert "were not repeated" in done.stdout
    assert own_frame(done.stderr) is None


def test_an_answer_that_is_no_success(folder: Path) -> None:
    done = profile(folder, "-n", "20", "demo:app", "/missing", status=1)
    assert "404 Not Found, 8 bytes" in done.stdout
    assert "Stages of 20 requests" in done.stdout


def test_a_redirect_is_told_and_not_followed(folder: Path) -> None:
    assert (
        "302 Found, 0 bytes, to /elsewhere, which was not followed"
        in profile(folder, "-n", "20", "demo:app", "/moved").stdout
    )


def test_an_answer_without_an_end_is_given_up(folder: Path) -> None:
    done = profile(folder, "--patience", "500ms", "demo:app", "/ticks", status=1)
    assert "had not been answered as a whole after 0.5 s" in done.stdout
    assert "(ticks)" in done.stdout, "what it did until then is shown"
    assert "Stages" not in done.stdout


@pytest.mark.slow
def test_a_call_that_never_returns_is_given_up(folder: Path) -> None:
    done = profile(folder, "--patience", "200ms", "demo:app", "/hang", status=1)
    assert "had not been answered as a whole" in done.stdout
    assert "No calls: the request whose calls were to be followed has not come to its end." in done.stdout


def test_the_request_is_the_one_that_was_asked_for(folder: Path) -> None:
    request = ("-X", "PUT", "-H", "X-Test: yes", "--body", "a body", "/echo?a=1")
    document = profiled(folder, "-n", "20", *request, "demo:app")
    assert document["statuses"] == {"200": 20}
    assert document["request"] == {"method": "PUT", "path": "/echo?a=1"}


def test_one_thread_is_the_main_thread_as_when_serving(folder: Path) -> None:
    profile(folder, "-n", "5", "--threads", "1", "demo:app", "/main")


def test_the_application_is_loaded_as_for_serving(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kirsch.toml").write_text('threads = 3\n[[mount]]\npath = "/there"\napp = "demo:app"\n')
    document = profiled(elsewhere, "-n", "5", "--chdir", "..", "/there/small")
    assert document["threads"] == 3
    assert document["answer"]["status"] == 200


@pytest.mark.slow
def test_nothing_is_written_to_the_access_log(folder: Path) -> None:
    profile(folder, "-n", "20", "--access-logfile", "access.log", "demo:app", "/small")
    assert not (folder / "access.log").exists()
    assert "GET /small HTTP" not in profile(folder, "-n", "20", "--access-logfile=-", "demo:app", "/small").stdout


def test_reports_are_files_that_others_read(folder: Path) -> None:
    profile(folder, "-n", "20", "--prof", "out.prof", "--json", "out.json", "--html", "out.html", "demo:app", "/")
    shown = pstats.Stats(str(folder / "out.prof"))
    names = {name: row[:2] for (_, _, name), row in shown.stats.items()}  # type: ignore[attr-defined]
    assert names["inner"] == (3, 3)
    assert names["app"] == (1, 1)
    assert shown.total_tt > 0.006  # type: ignore[attr-defined]
    document = json.loads((folder / "out.json").read_text())
    assert document["schema"] == "kirsch-profile-1"
    page = (folder / "out.html").read_text()
    assert "<h2>Stages of 20 requests</h2>" in page
    assert "(inner)" in page


@pytest.mark.parametrize(
    ("args", "status", "complaint"),
    [
        (["demo:app"], 2, "one path is wanted; name it"),
        (["demo:app", "err"], 2, "a path begins with a slash; did you mean `kirsch profile demo:app /err`?"),
        (["demo:app", "/", "/small"], 2, "one path is wanted, and there are 2: / /small"),
        (["/"], 2, "which application?"),
        (["demo:app", "/a b"], 2, "is not a path with a query"),
        (["demo:app", "/", "-n", "many"], 2, "'many' is not a whole number"),
        (["demo:app", "/", "--sort", "size"], 2, "'size' is not one of order, total, own, calls"),
        (["demo:app", "/", "--thread", "4"], 2, "there is no flag --thread"),
        (["demo:app", "/", "--json", "nowhere/out.json"], 2, "cannot write"),
        (["demo:app", "/", "--prof", "-"], 2, "a profile is no text"),
        (["demo:app", "/", "-d", "@nowhere"], 2, "cannot read nowhere"),
        (["demo:ap", "/"], 3, "did you mean demo:app?"),
        (["nowhere:app", "/"], 3, "there is no module 'nowhere'"),
    ],
)
def test_a_mistake_is_told_in_one_line(folder: Path, args: list[str], status: int, complaint: str) -> None:
    done = profile(folder, *args, status=status)
    assert complaint in done.stderr
    assert done.stderr.startswith("kirsch: ")
    assert done.stderr.count("\n") == 1
    assert not done.stdout


def test_a_value_of_an_option_is_not_taken_for_the_path(folder: Path) -> None:
    document = profiled(folder, "-n", "5", "--chdir", str(folder), "demo:app", "/small")
    assert document["request"]["path"] == "/small"


def test_help_names_every_flag(folder: Path) -> None:
    from kirsch_bench.profile import flags as own

    shown = profile(folder, "--help").stdout
    for names, _ in own._FLAGS:
        assert all(name in shown for name in names if name not in ("-h", "--help")), names


def test_ctrl_c_ends_it(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kirsch", "profile", "-q", "demo:app", "/hang"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        assert process.stderr.readline() == "it hangs\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(RUN_SECONDS) == 130
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


# -------------------------------------------------------------------------------------------------------- the tracer


def fibonacci(number: int) -> int:
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)


def is_even(number: int) -> bool:
    return number == 0 or is_odd(number - 1)


def is_odd(number: int) -> bool:
    return number != 0 and is_even(number - 1)


def followed(act: Callable[[], object]) -> Node:
    tracer = Tracer()
    tracer.start()
    try:
        act()
    finally:
        tracer.stop()
    return tracer.root


def names(node: Node) -> dict[str, int]:
    return {each.function().name: each.calls for each in node.callees()}


def only(node: Node) -> Node:
    [child] = node.callees()
    return child


def test_recursion_is_one_node_and_no_time_counts_twice() -> None:
    node = only(only(followed(lambda: fibonacci(10))))
    assert (node.function().name, node.calls) == ("fibonacci", 177)
    assert list(node.callees()) == []
    assert node.total == node.own > 0
    primitive, calls, own, total, callers = stats.of(_rooted(node))[node.function()[:3]]
    assert (primitive, calls) == (1, 177)
    assert own == total
    assert callers[node.function()[:3]][1] == 176


def _rooted(node: Node) -> Node:
    while node.parent is not None:
        node = node.parent
    return node


def test_functions_that_call_each_other_end_somewhere() -> None:
    even = only(only(followed(lambda: is_even(500))))
    odd = only(even)
    assert (even.calls, odd.calls) == (251, 250)
    assert list(odd.callees()) == []
    assert even.total >= odd.total > odd.own
    assert list(tree.lines(stats.plain(_rooted(even)), 0))


def test_what_is_left_by_an_exception_is_left() -> None:
    def fails() -> None:
        raise ValueError

    def catches() -> None:
        for _ in range(2):
            try:
                fails()
            except ValueError:
                pass
        len("")

    node = only(followed(catches))
    assert names(node) == {"fails": 2, "<built-in method builtins.len>": 1}


def test_generators_and_methods_of_c() -> None:
    def numbers() -> Iterator[int]:
        yield from range(3)

    def uses() -> None:
        sorted(numbers(), key=lambda number: -number)
        list[int]().append(1)

    node = only(followed(uses))
    shown = names(node)
    assert shown["<method 'append' of 'list' objects>"] == 1
    assert shown["<built-in method builtins.sorted>"] == 1
    [ordering] = [each for each in node.callees() if "sorted" in each.function().name]
    assert names(ordering) == {"numbers": 4, "<lambda>": 3}


def test_the_tracer_s_own_work_is_not_in_the_times() -> None:
    def many() -> None:
        for _ in range(20_000):
            len("")

    began = time.perf_counter_ns()
    root = followed(many)
    took = time.perf_counter_ns() - began
    assert only(root).total < 0.9 * took
    assert [each.function().name for each in root.callees()] == ["many"], "nothing of the tracer is among the calls"


def test_a_thread_is_followed_alone() -> None:
    stop = threading.Event()

    def elsewhere() -> None:
        while not stop.is_set():
            fibonacci(5)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    try:
        node = only(followed(lambda: time.sleep(0.02)))
    finally:
        stop.set()
        thread.join()
    assert names(node) == {"<built-in method time.sleep>": 1}


def test_another_profiler_is_left_alone() -> None:
    def other(*_: object) -> None:
        pass

    sys.setprofile(other)
    try:
        with pytest.raises(BusyError):
            Tracer().start()
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)


def test_greenlets_that_take_turns_are_followed_each_by_itself() -> None:
    needs_gevent()
    program = textwrap.dedent(
        """
        from gevent import monkey; monkey.patch_all()
        import sys, gevent, threading
        from kirsch.profile.tracer import Tracer
        turns = threading.Barrier(3)
        def one(): turns.wait(); only_one(); turns.wait()
        def two(): turns.wait(); only_two(); turns.wait()
        def only_one(): gevent.sleep(0); turns.wait()
        def only_two(): turns.wait()
        def follow(act):
            tracer = Tracer(); tracer.start(); act(); tracer.stop()
            return tracer
        def plain(): turns.wait(); turns.wait(); turns.wait()
        jobs = [gevent.spawn(follow, one), gevent.spawn(follow, two), gevent.spawn(plain)]
        gevent.joinall(jobs, raise_error=True)
        def names(node): return {node.function().name} | {name for each in node.callees() for name in names(each)}
        first, second = (names(job.value.root) for job in jobs[:2])
        assert {"one", "only_one"} <= first and {"two", "only_two"} <= second, (first, second)
        assert not {"two", "only_two", "plain"} & first and not {"one", "only_one", "plain"} & second, (first, second)
        assert sys.getprofile() is None
        """
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=RUN_SECONDS)


# -------------------------------------------------------------------------------------------------- the server's part


def small(_environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


@pytest.fixture
def timed() -> Iterator[Callable[..., kirsch.Server]]:
    """Start servers that take the times of stages, or do not."""
    running: list[tuple[kirsch.Server, threading.Thread]] = []

    def timed(app: Any, room: int, threads: int = 4) -> kirsch.Server:
        server = kirsch.Server(app, bind="127.0.0.1:0", threads=threads)
        server.config.time_stages = room
        server.listen()
        thread = threading.Thread(target=server.start)
        thread.start()
        running.append((server, thread))
        return server

    yield timed
    for server, thread in running:
        server.stop()
        thread.join()


def exchange(server: kirsch.Server, *parts: bytes) -> None:
    sent = 0
    address = server.addresses[0]
    assert isinstance(address, tuple)

    def is_received() -> bool:
        return server.statistics(exchanges=False).get("bytes_in", 0) >= sent

    with socket.create_connection(address, timeout=20) as connection:
        for part in parts:
            if sent:
                wait_until(is_received, "a part has come")
                time.sleep(0.02)  # the time that the client takes
            connection.sendall(part)
            sent += len(part)
        answer = b""
        while not answer.endswith(b"\r\n\r\nok"):
            data = connection.recv(65536)
            assert data, answer
            answer += data


def taken(server: kirsch.Server, count: int) -> list[tuple[list[int], int, int]]:
    times: list[tuple[list[int], int, int]] = []

    def is_enough() -> bool:
        times.extend(server.stage_times()[0])
        return len(times) >= count

    wait_until(is_enough, f"the times of {count} requests are there")
    return times


GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("threads", [1, 4])
def test_a_client_that_takes_its_time_is_no_time_of_the_server_s(
    timed: Callable[..., kirsch.Server], threads: int
) -> None:
    server = timed(small, 10, threads)
    exchange(server, GET[:10], GET[10:])
    [(spent, worked, stamps)] = taken(server, 1)
    stages = dict(zip(_native.STAGES, spent, strict=True))
    assert stages["peer"] > 15_000_000
    assert sum(spent) - stages["peer"] < stages["peer"]
    assert worked <= stages["app"] + 1_000_000
    assert stamps > 8


def test_every_thread_s_requests_are_timed(timed: Callable[..., kirsch.Server]) -> None:
    together = threading.Barrier(3)

    def waits(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        together.wait(20)
        return small(environ, start_response)

    server = timed(waits, 10)
    clients = [threading.Thread(target=exchange, args=(server, GET)) for _ in range(3)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert len(taken(server, 3)) == 3


def test_times_are_not_taken_unless_asked_for(timed: Callable[..., kirsch.Server]) -> None:
    server = timed(small, 0)
    exchange(server, GET)
    exchange(server, GET)
    assert server.stage_times() == ([], 0)
