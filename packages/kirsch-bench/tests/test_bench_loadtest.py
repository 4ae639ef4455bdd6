"""A load test in Python: one class as a functional test, as a benchmark, and in cycles with FunkLoad's figures."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benching import BENCH, Asked, Close, Reset, Stall, bench, ok, scripted
from kirsch_bench import cycles, target
from kirsch_bench.http_client import Http, RequestFailure, Sample
from running import own_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Write = Callable[[str], Path]

RESPONSES = json.loads((Path(__file__).parents[3] / "tests" / "corpus" / "responses.json").read_text("ascii"))

SIMPLE = """
    from kirsch_bench import LoadTest

    class Simple(LoadTest):
        def test_simple(self, http):
            page = http.get("/", name="front page")
            self.assertEqual(page.text, "Hello")
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a test module, as it stands in the test, and return its path."""

    def write(source: str) -> Path:
        path = tmp_path / "simple.py"
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        return path

    return write


@pytest.fixture
def http() -> Iterator[Http]:
    """A visitor of a server that says Hello."""
    with scripted() as server:
        visitor = Http(target.parse(server.url), timeout=5.0)
        yield visitor
        visitor.close()


def environment(url: str) -> dict[str, str]:
    return {**os.environ, "KIRSCH_BENCH_URL": url}


# ------------------------------------------------------------------------------------------- as a functional test


@pytest.mark.parametrize(
    "runner", [["unittest", "simple.Simple.test_simple"], ["unittest", "simple"], ["pytest", "-q", "simple.py"]]
)
@pytest.mark.slow
def test_unittest_and_pytest_run_it(runner: list[str], write: Write) -> None:
    folder = write(SIMPLE).parent
    with scripted() as server:
        done = subprocess.run(
            [sys.executable, "-m", *runner], cwd=folder, env=environment(server.url), capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(server.asked) == 1
    assert dict(server.asked[0].fields)["User-Agent"].startswith("Mozilla/5.0")


def test_a_failure_is_an_ordinary_one(write: Write) -> None:
    folder = write(SIMPLE).parent
    with scripted(lambda _: ok(status="503 Service Unavailable", body=b"busy\nnow")) as server:
        done = subprocess.run(
            [sys.executable, "-m", "unittest", "simple"], cwd=folder, env=environment(server.url), capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "FAILED (failures=1)" in done.stderr
    assert "was answered with 503: busy now" in done.stderr


# ----------------------------------------------------------------------------------------------------- as a bench


@pytest.mark.slow
def test_cycles_have_funkloads_figures(write: Write, tmp_path: Path) -> None:
    with scripted() as server:
        done = bench(
            f"{write(SIMPLE)}:Simple.test_simple", "--url", server.url, "--cycles", "1:3", "-z", "1.5s",
            "--warmup", "0.2s", "--json", str(tmp_path / "out.json"), "--html", str(tmp_path / "out.html"),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for column in ("CUs", "STPS", "SPPS", "maxSPPS", "RPS", "maxRPS", "TOTAL", "SUCCESS", "ERROR", "MIN", "AVG", "MAX",
                   "P10", "MED", "P90", "P95", "Apdex", "Rating", "excellent"):  # fmt: skip
        assert column in done.stdout, column
    found = json.loads((tmp_path / "out.json").read_text())["cycles"]
    assert [cycle["users"] for cycle in found] == [1, 3]
    for cycle in found:
        assert cycle["tests_error"] == 0
        assert cycle["tests_success"] > 5
        assert cycle["stps"] == pytest.approx(cycle["tests_success"] / cycle["seconds"])
        # One page each, and one request each.
        assert abs(cycle["pages"]["total"] - cycle["tests"]) <= cycle["users"]
        assert list(cycle["by_page"]) == ["front page"]
    # Requests before and after the window are sent, and not counted.
    assert len(server.asked) > sum(cycle["requests"]["total"] for cycle in found)
    assert "<svg" in (tmp_path / "out.html").read_text()


def test_users_are_shared_by_processes(write: Write, tmp_path: Path) -> None:
    source = """
        import os
        from kirsch_bench import LoadTest

        class Simple(LoadTest):
            def test_simple(self, http):
                http.get(f"/{os.getpid()}")
    """
    with scripted() as server:
        done = bench(
            f"{write(source)}", "--url", server.url, "-c", "3", "-p", "2", "-z", "0.5s", "--warmup", "0.1s",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len({asked.path for asked in server.asked}) == 2


@pytest.mark.slow
def test_each_run_is_a_new_visitor_unless_the_class_says_otherwise(write: Write) -> None:
    def respond(asked: Asked) -> bytes:
        return ok(extra="Set-Cookie: seen=yes; Path=/\r\n")

    source = """
        from kirsch_bench import LoadTest

        class Simple(LoadTest):
            returning = {returning}

            def test_simple(self, http):
                http.get("/first")
                http.get("/second")
    """
    for returning in (False, True):
        with scripted(respond) as server:
            path = write(source.replace("{returning}", str(returning)))
            done = bench(str(path), "--url", server.url, "-z", "0.3s", "--warmup", "0s", timeout=30)
        assert done.returncode == 0, done.stderr
        cookies = {asked.path: dict(asked.fields).get("Cookie", "") for asked in server.asked[2:]}
        assert cookies["/second"] == "seen=yes"
        assert cookies["/first"] == ("seen=yes" if returning else "")
        connections = len({asked.connection for asked in server.asked})
        assert connections == 1 if returning else connections >= len(server.asked) // 2


def test_fixtures_run_around_tests_and_cycles(write: Write, tmp_path: Path) -> None:
    source = f"""
        from kirsch_bench import LoadTest

        class Simple(LoadTest):
            @classmethod
            def setUpCycle(cls, users):
                open({str(tmp_path / "log")!r}, "a").write(f"cycle {{users}}\\n")

            @classmethod
            def tearDownCycle(cls, users):
                open({str(tmp_path / "log")!r}, "a").write(f"end {{users}}\\n")

            def setUp(self):
                self.ready = True

            def test_simple(self, http):
                assert self.ready
                self.ready = False
                http.get("/")
    """
    with scripted() as server:
        done = bench(str(write(source)), "--url", server.url, "--cycles", "2:1", "-z", "0.2s", "--warmup", "0s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "log").read_text().split("\n") == ["cycle 2", "end 2", "cycle 1", "end 1", ""]


def test_failures_are_told_with_their_place(write: Write) -> None:
    with scripted(lambda asked: ok(b"Hello" if asked.number % 2 else b"Bye")) as server:
        done = bench(f"{write(SIMPLE)}:Simple", "--url", server.url, "-z", "0.4s", "--warmup", "0.1s")
    assert done.returncode == 1
    assert "AssertionError at simple.py:7" in done.stdout
    assert "'Bye' != 'Hello'" in done.stdout


def test_a_pause_after_each_page_is_not_counted_as_its_time(write: Write, tmp_path: Path) -> None:
    with scripted() as server:
        done = bench(
            str(write(SIMPLE)), "--url", server.url, "-z", "0.6s", "--warmup", "0s", "--sleep", "0.1:0.1",
            "--json", str(tmp_path / "out.json"),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = json.loads((tmp_path / "out.json").read_text())["cycles"][0]["pages"]
    assert 1 <= pages["total"] <= 7
    assert pages["med"] < 0.09


@pytest.mark.slow
def test_a_server_that_stalls_is_reported_and_nothing_hangs(write: Write) -> None:
    def respond(asked: Asked) -> bytes:
        if asked.number > 20:
            raise Stall(b"HTTP/1.1 200 OK\r\nContent-Le")
        return ok()

    source = SIMPLE.replace("        def test", "        timeout = 0.4\n\n        def test")
    with scripted(respond) as server:
        began = time.monotonic()
        done = bench(str(write(source)), "--url", server.url, "-c", "4", "-z", "1s", "--warmup", "0s")
    assert done.returncode == 1
    assert "× timeout" in done.stdout
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_a_test_that_never_ends_is_told(write: Write) -> None:
    source = """
        import time
        from kirsch_bench import LoadTest

        class Simple(LoadTest):
            timeout = 0.1

            def test_simple(self, http):
                http.get("/")
                time.sleep(3600)
    """
    with scripted() as server:
        done = bench(str(write(source)), "--url", server.url, "-c", "2", "-z", "0.2s", "--warmup", "0s")
    assert done.returncode == 1
    assert "2 users did not end in time" in done.stdout


def test_ctrl_c_reports_what_was_measured(write: Write, tmp_path: Path) -> None:
    with scripted() as server:
        process = subprocess.Popen(
            [*BENCH, str(write(SIMPLE)), "--url", server.url, "--cycles", "2:4", "-z", "1h", "--warmup", "0s",
             "--json", str(tmp_path / "out.json")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        while len(server.asked) < 20:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    found = json.loads((tmp_path / "out.json").read_text())["cycles"]
    assert [cycle["users"] for cycle in found] == [2]
    assert found[0]["tests_success"] > 0
    assert "STPS" in out


@pytest.mark.parametrize(
    ("source", "spec", "words"),
    [
        ("import no_such_module", "", "No module named 'no_such_module'"),
        ("1 / 0", "", "ZeroDivisionError"),
        ("x = 1", "", "has no subclass of kirsch_bench.LoadTest"),
        (SIMPLE, ":Other", "there is Simple"),
        (SIMPLE, ":Simple.test_other", "There is test_simple"),
    ],
)
def test_what_cannot_be_loaded_is_told(source: str, spec: str, words: str, write: Write) -> None:
    done = bench(f"{write(source)}{spec}")
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert own_frame(done.stderr) is None


def test_a_public_target_is_refused_here_too(write: Write) -> None:
    done = bench(str(write(SIMPLE)), "--url", "http://8.8.8.8/")
    assert done.returncode == 2
    assert "--i-own-this-host" in done.stderr


def test_a_server_that_is_not_there_is_told(write: Write) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        done = bench(str(write(SIMPLE)), "--url", f"http://127.0.0.1:{free.getsockname()[1]}")
    assert done.returncode == 3
    assert "Connection refused" in done.stderr


def test_flags_of_the_other_generator_are_refused(write: Write) -> None:
    done = bench(str(write(SIMPLE)), "--rate", "100")
    assert done.returncode == 2
    assert "--rate means nothing with a load test in Python" in done.stderr


# -------------------------------------------------------------------------------------------------------- figures


def sample(name: str, start: float, seconds: float, error: str = "") -> list[object]:
    return ["page", name, start, seconds, error]


def test_figures_are_what_funkload_says_they_are() -> None:
    """One second with ten quick pages, one with two slow ones and a failure, then nothing for two."""
    samples = [sample("a", 5.0 + number / 20, 0.1) for number in range(10)]
    samples += [sample("b", 5.5, 1.0), sample("b", 5.9, 1.0), sample("b", 6.0, 0.5, "status")]
    outcomes = [[5.0, 0.5, "success"]] * 3 + [[6.0, 0.5, "failure"], [6.0, 0.5, "skipped"]]
    result = {"window": [5.0, 4.0], "samples": samples, "tests": outcomes, "examples": [], "unfinished": 0,
              "interrupted": False, "processor": 1.0, "wall": 8.0}  # fmt: skip
    cycle = cycles.figure(10, [result], apdex=0.2)
    assert (cycle.tests, cycle.tests_success, cycle.tests_error, cycle.stps) == (4, 3, 1, 0.75)
    pages = cycle.pages
    assert (pages.total, pages.success, pages.error) == (13, 12, 1)
    assert pages.per_second == 12 / 4
    assert pages.per_second_max == 10.0
    # Ten satisfied; the two of 1 s are beyond 4 × 0.2 s, and so is the failure whatever its time.
    assert pages.apdex == pytest.approx(10 / 13)
    assert pages.rating == "fair"
    assert (pages.min, pages.max, pages.med, pages.p90) == (0.1, 1.0, 0.1, 1.0)
    assert cycle.by_page["a"].apdex == 1.0
    assert cycles.figure(10, [result], apdex=0.25).by_page["b"].apdex == pytest.approx(2 * 0.5 / 3)


@pytest.mark.parametrize(
    ("score", "word"),
    [(1.0, "excellent"), (0.94, "excellent"), (0.93, "good"), (0.85, "good"), (0.7, "fair"), (0.5, "poor"),
     (0.49, "unacceptable"), (0.0, "unacceptable"), (None, "no sample")],
)  # fmt: skip
def test_apdex_is_rated(score: float | None, word: str) -> None:
    assert cycles.rate_apdex(score) == word


def test_percentiles_are_of_the_nearest_rank() -> None:
    values = list(range(1, 101))
    random.Random(1).shuffle(values)
    ordered = sorted(float(value) for value in values)
    assert [cycles.percentile(ordered, percent) for percent in (0, 10, 50, 95, 100)] == [1.0, 10.0, 50.0, 95.0, 100.0]
    assert cycles.percentile([7.0], 95) == 7.0


def test_an_empty_cycle_has_no_figures_and_does_not_fail() -> None:
    result = {"window": [0.0, 0.0], "samples": [], "tests": [], "examples": [], "unfinished": 0, "interrupted": True,
              "processor": 0.0, "wall": 0.0}  # fmt: skip
    cycle = cycles.figure(1, [result])
    assert cycle.pages.apdex is None
    assert "NA" in cycles.text(cycles.CyclePlan("x"), [cycle])


# ----------------------------------------------------------------------------------------------------- the visitor


def test_a_connection_is_kept_and_a_closed_one_replaced() -> None:
    def respond(asked: Asked) -> bytes:
        if asked.number == 2:
            raise Close(ok())  # without having said so
        return ok()

    with scripted(respond) as server:
        visitor = Http(target.parse(server.url), timeout=5)
        for _ in range(6):
            assert visitor.get("/").text == "Hello"
        visitor.close()
    assert [asked.connection for asked in server.asked] == [0, 0, 0, 1, 1, 1]


def test_an_answer_that_ends_its_connection_is_read_to_its_end() -> None:
    body = b"x" * 3_000_000  # more than is read at once
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    with scripted(lambda _: head + body) as server:
        visitor = Http(target.parse(server.url), timeout=20)
        for _ in range(2):
            assert visitor.get("/").body == body
        visitor.close()


def test_a_post_is_not_sent_twice() -> None:
    def respond(asked: Asked) -> bytes:
        if asked.number == 1:
            raise Close
        return ok()

    with scripted(respond) as server:
        visitor = Http(target.parse(server.url), timeout=5)
        visitor.get("/")
        with pytest.raises(RequestFailure) as caught:
            visitor.post("/pay", data={"amount": "1"})
        visitor.close()
    assert caught.value.kind == "closed_early"
    assert [asked.line for asked in server.asked] == ["GET / HTTP/1.1", "POST /pay HTTP/1.1"]
    assert server.asked[1].body == b"amount=1"


def test_redirects_are_requests_of_one_page() -> None:
    def respond(asked: Asked) -> bytes:
        return ok(status="302 Found", extra="Location: /end?x#y\r\n") if asked.path == "/start" else ok()

    seen: list[Sample] = []
    with scripted(respond) as server:
        visitor = Http(target.parse(server.url), timeout=5, record=seen.append)
        page = visitor.post("/start", json={"a": 1})
        visitor.close()
    assert page.url.endswith("/end?x")
    assert [asked.line for asked in server.asked] == ["POST /start HTTP/1.1", "GET /end?x HTTP/1.1"]
    assert [(each.kind, each.name) for each in seen] == [
        ("request", "POST /start"),
        ("request", "GET /end"),
        ("page", "POST /start"),
    ]


def test_redirects_elsewhere_and_without_end_are_failures() -> None:
    def respond(asked: Asked) -> bytes:
        where = "http://8.8.8.8/" if asked.path == "/away" else "/round"
        return ok(status="302 Found", extra=f"Location: {where}\r\n")

    with scripted(respond) as server:
        visitor = Http(target.parse(server.url), timeout=5)
        with pytest.raises(RequestFailure, match="another server"):
            visitor.get("/away")
        with pytest.raises(RequestFailure, match="10 redirects"):
            visitor.get("/round")
        assert visitor.get("/round", redirects=False).status == 302
        visitor.close()


def _raise(error: Exception) -> bytes:
    raise error


@pytest.mark.parametrize(
    ("kind", "respond"),
    [
        ("status", lambda _: ok(status="404 Not Found")),
        ("closed_early", lambda _: _raise(Close(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nHel"))),
        ("closed_early", lambda _: _raise(Close())),
        (
            "closed_early",
            lambda _: _raise(Close(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n")),
        ),
        ("reset", lambda _: _raise(Reset())),
        ("malformed", lambda _: _raise(Close(b"SMTP ready\r\n\r\n"))),
        ("malformed", lambda _: _raise(Close(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"\r\n"))),
        ("timeout", lambda _: _raise(Stall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nHel"))),
        ("timeout", lambda _: _raise(Stall())),
    ],
)
def test_each_failure_has_its_name(kind: str, respond: Callable[[Asked], bytes]) -> None:
    seen: list[Sample] = []
    with scripted(respond) as server:
        visitor = Http(target.parse(server.url), timeout=0.5, record=seen.append)
        with pytest.raises(RequestFailure) as caught:
            visitor.get("/")
        visitor.close()
    assert caught.value.kind == kind
    assert seen[-1].error == kind


@pytest.mark.parametrize("case", RESPONSES, ids=[case["name"].replace(" ", "-") for case in RESPONSES])
def test_what_breaks_a_rule_of_http_is_a_failure_that_names_it(case: dict[str, Any]) -> None:
    pieces = [piece if isinstance(piece, str) else piece[0] * piece[1] for piece in case["said"]]
    said = "".join(pieces).encode("latin-1")
    with scripted(lambda _: _raise(Close(said) if case.get("ends") else Stall(said))) as server:
        visitor = Http(target.parse(server.url), timeout=5)
        with pytest.raises(RequestFailure) as caught:
            visitor.request(case.get("method", "GET"), "/")
        visitor.close()
    if case["fault"] == "Truncated":
        assert caught.value.kind == "closed_early"
    else:
        assert caught.value.kind == "malformed"
        assert case["fault"] in str(caught.value)
    assert len(server.asked) == 1


def test_an_answer_to_nothing_is_not_taken_for_the_next_one() -> None:
    """A server that gives up waiting says so before it closes (408); the next request is not answered by that."""

    def respond(asked: Asked) -> bytes:
        return ok() + (ok(b"late", status="408 Request Timeout") if asked.number == 1 else b"")

    with scripted(respond) as server:
        visitor = Http(target.parse(server.url), timeout=5)
        failures = []
        for _ in range(5):
            try:
                assert visitor.get("/").text == "Hello"
            except RequestFailure as failure:
                failures.append(str(failure))
        visitor.close()
    # With the response that it came behind, or before the next request, as the network will have it.
    assert len(failures) == 1
    assert "Unasked" in failures[0]


def test_interim_responses_are_passed_over_and_fields_kept_as_they_came() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    chunked = (
        "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Name: J\xf6rg\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with scripted(
        lambda _: early + chunked.encode("latin-1") + b"3\r\nHel\r\n2\r\nlo\r\n0\r\nSum: 1\r\n\r\n"
    ) as server:
        visitor = Http(target.parse(server.url), timeout=5)
        for _ in range(2):
            page = visitor.get("/")
            assert (page.status, page.text) == (200, "Hello")
            assert page.headers.get_all("set-cookie") == ["a=1", "b=2"]
            assert page.headers["x-name"] == "J\xf6rg"
            assert "link" not in page.headers
        visitor.close()
    assert dict(server.asked[1].fields)["Cookie"] == "a=1; b=2"
    assert {asked.connection for asked in server.asked} == {0}


def test_a_server_that_trickles_is_found_out() -> None:
    """Each read is quick, and the answer is none for all that."""
    stop = threading.Event()

    def trickle(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not stop.wait(0.05):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=trickle, args=(listener,), daemon=True).start()
        visitor = Http(target.parse(f"127.0.0.1:{listener.getsockname()[1]}"), timeout=0.5)
        began = time.monotonic()
        with pytest.raises(RequestFailure) as caught:
            visitor.get("/")
        stop.set()
        visitor.close()
    assert caught.value.kind == "timeout"
    assert time.monotonic() - began < 5


def test_a_line_cannot_be_smuggled_into_a_request(http: Http) -> None:
    with pytest.raises(ValueError, match="header"):
        http.get("/", headers={"X": "a\r\nEvil: 1"})


def test_statuses_that_are_fine_can_be_named(http: Http) -> None:
    assert http.get("/", ok=200).status == 200
    with pytest.raises(RequestFailure):
        http.get("/", ok=(204, 304))
