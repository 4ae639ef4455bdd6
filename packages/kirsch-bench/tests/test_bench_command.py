"""``kirsch bench URL`` as its users meet it: what it asks, what it finds, what it tells, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benching import BENCH, Asked, Close, Reset, Stall, bench, measured, ok, scripted, watched
from kirsch_bench._native import Histogram
from kirsch_bench.profiles import PROFILES
from running import own_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Serve

QUICK = ("-z", "0.4s", "--warmup", "0.1s")

# ------------------------------------------------------------------------------------------------- the closed model


def test_a_server_is_measured_and_summed_up(serve: Serve, write_app: Callable[[str], str]) -> None:
    module = write_app(
        """
        def app(environ, start_response):
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [b"Hello"]
        """
    )
    done = bench(*QUICK, "-c", "4", serve(f"{module}:app").url)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        "closed model, 4 connections", "0.40 s measured after 0.1 s to warm up", "a second", "failed       0",
        "response     5 bytes", "4 opened", "generator", "p50", "p99.99", "latency", "first byte",
    ):  # fmt: skip
        assert words in done.stdout, words


@pytest.mark.parametrize("processes", [1, 3])
def test_a_count_is_kept_to_exactly(processes: int) -> None:
    with scripted() as server:
        found = measured("-n", "100", "--warmup", "30", "-c", "7", "-p", str(processes), server.url)["result"]
    assert (found["requests"], found["ok"], found["failed"]) == (100, 100, 0)
    assert found["discarded"] == {"requests": 30, "failed": 0}
    assert found["latency"]["count"] == 100
    assert len(server.asked) == 130
    assert len(found["generator"]["processes"]) == processes
    assert len(server.connections) <= 1 + 7  # and one that looked whether a server listens


def test_asynchammers_four_flags() -> None:
    with scripted() as server:
        host = f"localhost:{server.port}"
        document = measured("--workers=4", "--max=120", "--warmup=30", f"--host={host}")
    found = document["result"]
    assert found["requests"] == 90
    assert found["discarded"]["requests"] == 30
    assert len(server.asked) == 120
    assert document["load"]["connections"] == 40
    assert len(found["generator"]["processes"]) == 4
    # No keep-alive, and Chrome's header fields.
    assert len({asked.connection for asked in server.asked}) == 120
    assert {name.lower() for name, _ in server.asked[0].fields} >= {"sec-fetch-mode", "accept-language", "user-agent"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--max", "10", "--warmup", "10"], "leaves nothing to measure"),
        (["--workers", "2"], "--max is missing"),
        (["--max", "10", "--warmup", "1s"], "is a number of requests"),
        (["--max", "10", "-c", "3"], "say the same twice"),
    ],
)
def test_asynchammers_flags_that_cannot_be_meant(flags: list[str], words: str) -> None:
    done = bench(*flags, "--host", "localhost:1")
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize("name", list(PROFILES))
def test_a_profile_is_sent_as_it_is(name: str) -> None:
    with scripted() as server:
        measured("-n", "3", "-c", "1", "--headers", name, server.url)
    expected = tuple((field, value.format(host=f"127.0.0.1:{server.port}")) for field, value in PROFILES[name])
    assert server.asked[0].line == "GET / HTTP/1.1"
    assert server.asked[0].fields == expected


def test_fields_of_ones_own_replace_and_remove_those_of_the_profile() -> None:
    with scripted() as server:
        measured("-n", "1", "-c", "1", "-H", "accept: text/html", "-H", "User-Agent:", "-H", "X-Own: 1", server.url)
    assert [name for name, _ in server.asked[0].fields] == ["Host", "accept", "X-Own"]


@pytest.mark.parametrize(("keep_alive", "connections"), [("on", 1), ("off", 12), ("5", 3)])
def test_connections_are_kept_as_asked(keep_alive: str, connections: int) -> None:
    with scripted() as server:
        found = measured("-n", "12", "-c", "1", "--keep-alive", keep_alive, server.url)["result"]
    assert len({asked.connection for asked in server.asked}) == connections
    assert found["connections"]["opened"] >= connections
    assert found["failed"] == 0


def test_a_body_is_sent_like_curls(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\x00\xff" * 50000)
    with scripted() as server:
        measured("-n", "1", "-c", "1", "-d", "a=b", server.url)
        measured("-n", "1", "-c", "1", "-X", "PUT", "-d", f"@{tmp_path}/body", "-H", "Content-Type: x/y", server.url)
    first, second = server.asked
    assert (first.line, first.body) == ("POST / HTTP/1.1", b"a=b")
    assert dict(first.fields)["Content-Type"] == "application/x-www-form-urlencoded"
    assert (second.line, second.body) == ("PUT / HTTP/1.1", b"\x00\xff" * 50000)
    assert dict(second.fields)["Content-Type"] == "x/y"


def test_requests_of_a_file_are_asked_in_turn(tmp_path: Path) -> None:
    file = tmp_path / "requests"
    file.write_text(
        "# a comment\n/one\n\nDELETE /two\n"
        '{"method": "POST", "path": "/three", "body": "x", "headers": {"X-Own": "1"}}\n'
        '{"path": "/four", "status": 404}\n'
    )

    def respond(asked: Asked) -> bytes:
        return ok(status="404 Not Found" if asked.path == "/four" else "200 OK", body=asked.path.encode())

    with scripted(respond) as server:
        measured("-n", "8", "-c", "1", "--requests-file", str(file), server.url)
    assert [asked.line.rsplit(" ", 1)[0] for asked in server.asked[:4]] == [
        "GET /one", "DELETE /two", "POST /three", "GET /four",
    ]  # fmt: skip
    assert dict(server.asked[2].fields)["X-Own"] == "1"


def test_requests_of_a_file_are_drawn_by_weight(tmp_path: Path) -> None:
    (tmp_path / "requests").write_text('{"path": "/often", "weight": 9}\n/rarely\n')
    with scripted() as server:
        measured(
            "-n", "300", "-c", "1", "--requests-file", str(tmp_path / "requests"), "--draw", "--seed", "5", server.url
        )
    often = sum(asked.path == "/often" for asked in server.asked)
    assert 240 <= often <= 295


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("GET one", "line 1: 'one' is not a path"),
        ("{", "no JSON"),
        ('{"pfad": "/"}', "'pfad' is none of"),
        ('{"path": 1}', "'path' cannot be 1"),
        ('{"status": "2y"}', "is no list of statuses"),
        ('{"weight": 0}', "a weight is 1 or more"),
        ("# nothing", "has no request"),
    ],
)
def test_a_file_with_a_mistake_is_told_with_its_line(line: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "requests").write_text(line)
    with scripted() as server:
        done = bench("--requests-file", str(tmp_path / "requests"), server.url)
    assert done.returncode == 2
    assert words in done.stderr
    assert not server.asked


def test_a_unix_socket_is_measured(tmp_path: Path) -> None:
    path = str(tmp_path / "app.sock")
    with scripted(path=path) as server:
        assert measured("-n", "20", "-c", "2", f"unix:{path}:/page?q")["result"]["ok"] == 20
        assert measured("-n", "3", "-c", "1", "--unix-socket", path, "http://example.org/there")["result"]["ok"] == 3
    assert server.asked[0].path == "/page?q"
    assert dict(server.asked[-1].fields)["Host"] == "example.org"


# --------------------------------------------------------------------------------------------------- the open model


def test_a_rate_is_kept_whatever_the_server_does() -> None:
    with scripted() as server:
        found = measured("-R", "200", "-z", "1s", "--warmup", "0.2s", "-p", "2", server.url)["result"]
    assert found["requests"] == 200
    assert found["discarded"]["requests"] == 40
    assert len(server.asked) == 240


@pytest.mark.slow
def test_arrivals_go_ahead_on_a_connection_as_deep_as_was_said() -> None:
    """One connection and a server that answers after 50 ms: 20 a second at most, of 40, and none is dropped for it."""

    def respond(_: Asked) -> bytes:
        time.sleep(0.05)
        return ok()

    flags = ("-R", "40", "--pipeline", "64", "--max-connections", "1", "-n", "20", "--warmup", "0")
    with scripted(respond) as server:
        document = measured(*flags, server.url)
    found = document["result"]
    assert (found["ok"], found["dropped"], found["connections"]["opened"]) == (20, 0, 1)
    assert document["load"]["pipeline"] == 64
    # The last is due after 0.475 s and answered after 1 s, and was at the server meanwhile.
    assert found["latency"]["max"] > 0.45
    assert found["service"]["max"] > 0.45


@pytest.mark.slow
def test_a_stall_is_in_the_latency_of_those_who_would_have_come_meanwhile() -> None:
    """100 requests a second for 2 s, and one stall of 0.5 s: a quarter wait for it, half of these a quarter second."""

    def respond(asked: Asked) -> bytes:
        if asked.number == 100:
            time.sleep(0.5)
        return ok()

    with scripted(respond) as server:
        # One connection, so that the server is one that does one thing at a time.
        found = measured("-R", "100", "-z", "2s", "--warmup", "30", "--max-connections", "1", server.url)["result"]
    # Exactly a stall's share, in as far as this machine lets a test be on time.
    assert found["latency"]["percentiles"]["99"] > 0.4
    assert found["latency"]["percentiles"]["90"] > 0.15
    # The latencies from the moment of sending are smaller: they leave out the wait to be sent.
    assert found["service"]["percentiles"]["90"] < found["latency"]["percentiles"]["90"] / 2


def test_what_finds_no_connection_is_dropped_and_told() -> None:
    with scripted(lambda _: _raise(Stall())) as server:
        done = bench(
            "-R", "50", "-z", "0.5s", "--warmup", "0s", "--max-connections", "2", "--timeout", "0.3s", server.url
        )
    assert done.returncode == 1
    dropped = re.search(r"dropped +(\d+)", done.stdout)
    assert dropped is not None
    assert int(dropped[1]) > 5
    assert "found no connection" in done.stdout


# ----------------------------------------------------------------------------------------------------- what goes wrong


def _raise(error: Exception) -> bytes:
    raise error


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"


@pytest.mark.parametrize(
    ("error", "respond"),
    [
        ("reset", lambda _: _raise(Reset(HEAD))),
        ("closed_early", lambda _: _raise(Close(HEAD + b"Hel"))),
        (
            "closed_early",
            lambda _: _raise(Close(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n")),
        ),
        ("unanswered", lambda _: _raise(Close())),
        ("timeout", lambda _: _raise(Stall(HEAD + b"Hel"))),
        ("timeout", lambda _: _raise(Stall())),
        ("malformed", lambda _: _raise(Close(b"220 mail.example ESMTP\r\n"))),
        ("malformed", lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nHell"),
        ("malformed", lambda _: _raise(Close(b"HTTP/1.1 200 OK\r\n" + b"X-Endless: 1\r\n" * 100_000))),
        ("malformed", lambda _: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nHello\r\n"),
        ("status", lambda _: ok(status="503 Service Unavailable")),
        ("length", lambda asked: ok(b"Hello" if asked.number % 2 else b"Hello!")),
        ("hash", lambda asked: ok(b"Hello" if asked.number % 2 else b"Hallo")),
    ],
)
@pytest.mark.slow
def test_what_goes_wrong_is_reported_as_what_it_is(error: str, respond: Callable[[Asked], bytes]) -> None:
    timeout = "0.3s" if error == "timeout" else "20s"
    with scripted(respond) as server:
        done = bench("-n", "6", "-c", "1", "--timeout", timeout, "--json", "-", server.url)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)["result"]
    assert {each["class"] for each in found["errors"]} == {error}
    assert found["failed"] == sum(each["count"] for each in found["errors"])
    assert all(each["example"] for each in found["errors"])
    assert f"× {error}" in done.stderr  # the summary, as standard output has the report


@pytest.mark.slow
def test_pages_that_vary_are_fine_where_it_is_said() -> None:
    with scripted(lambda asked: ok(str(asked.number).encode())) as server:
        assert bench("-n", "20", "-c", "1", server.url).returncode == 1
        assert measured("-n", "20", "-c", "1", "--varying", server.url)["result"]["ok"] == 20
        assert measured("-n", "3", "-c", "1", "--length", "2", "--sha256", "any", server.url)["result"]["ok"] == 3


def test_statuses_can_be_expected() -> None:
    with scripted(lambda _: ok(status="404 Not Found")) as server:
        assert measured("-n", "3", "-c", "1", "--status", "200,404", server.url)["result"]["ok"] == 3
        assert measured("-n", "3", "-c", "1", "--status", "4xx", server.url)["result"]["ok"] == 3
        assert measured("-n", "3", "-c", "1", "--status", "400-403", server.url, status=1)["result"]["ok"] == 0


@pytest.mark.slow
def test_a_server_that_dies_midway_is_reported_and_not_waited_for() -> None:
    with scripted() as server:
        process = subprocess.Popen(
            [*BENCH, "-c", "4", "-z", "1h", "--warmup", "0s", "--json", "-", "-q", server.url],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_until(lambda: len(server.asked) > 50, process)
        server.die()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    found = json.loads(out)["result"]
    assert found["unreachable"]
    assert found["answered"] > 0
    assert "refused" in {each["class"] for each in found["errors"]}
    assert "as the server was gone" in err


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_keeps_what_was_measured(number: signal.Signals, tmp_path: Path) -> None:
    with scripted() as server:
        process = start(
            "-c", "2", "-p", "2", "-z", "1h", "--warmup", "0s", "--json", f"{tmp_path}/out.json", server.url
        )
        wait_until(lambda: len(server.asked) > 100, process)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "interrupted" in out
    found = json.loads((tmp_path / "out.json").read_text())["result"]
    assert found["interrupted"]
    assert found["answered"] > 50
    assert found["failed"] == 0
    assert own_frame(err) is None


def start(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*BENCH, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_process_of_the_load_that_is_killed_is_reported() -> None:
    with scripted() as server:
        process = start("-c", "2", "-p", "2", "-z", "1.5s", "--warmup", "0s", server.url)
        wait_until(lambda: len(server.asked) > 20, process)
        os.kill(children(process.pid)[0], signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "a process of the load: it ended (by signal SIGKILL)" in out
    assert "1 connection" in out or "2 connections" in out


def test_no_process_of_the_load_outlives_the_command() -> None:
    with scripted() as server:
        process = start("-c", "2", "-p", "2", "-z", "1h", "--warmup", "0s", server.url)
        wait_until(lambda: len(server.asked) > 20, process)
        workers = children(process.pid)
        process.kill()
        process.communicate(timeout=30)
        deadline = time.monotonic() + 20
        while any(_is_bench(pid) for pid in workers):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _is_bench(pid: int) -> bool:
    try:
        return b"kirsch_bench" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


# --------------------------------------------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "which server?"),
        (["--rate", "fast", "x"], "'fast' is not a rate"),
        (["-c", "0", "x"], "'0' is too little"),
        (["-z", "soon", "x"], "'soon' is not a duration"),
        (["--headers", "lynx", "x"], "'lynx' is not one of ab, curl, chrome, api, cookies"),
        (["--keep-alive", "maybe", "x"], "none of on, off and a number"),
        (["-H", "no colon", "x"], "is no header"),
        (["-H", "X: a\r\nEvil: 1", "x"], "has a character"),
        (["--status", "200,x", "x"], "is no list of statuses"),
        (["--frobnicate", "x"], "unrecognized arguments: --frobnicate"),
        (["--sha256", "abc", "x"], "64 hexadecimal digits"),
        (["--cycles", "1:x", "t.py"], "is no list of numbers"),
        (["--slo-precision", "0", "x"], "is no precision"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line_each(flags: list[str], words: str) -> None:
    done = bench(*flags)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().split("\n")) == 1
    assert done.stderr.startswith("kirsch bench: ")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-z", "1s", "-n", "5"], "--duration and --requests do not go together"),
        (["--arrivals", "poisson"], "--arrivals means nothing without --rate"),
        (["--think", "1s", "--rate", "5"], "--rate and --think do not go together"),
        (["--draw"], "--draw means nothing without --requests-file"),
        (["--slo", "p99<20"], "a latency has a unit"),
        (["--slo", "p99<1s", "-n", "5"], "--slo and --requests do not go together"),
        (["--max-rate", "5"], "--max-rate means nothing without --slo"),
        (["--sleep", "1"], "--sleep means nothing with a URL"),
        (["-d", "@/no/such/file"], "cannot read /no/such/file"),
    ],
)
def test_flags_that_contradict_each_other_are_told(flags: list[str], words: str) -> None:
    with scripted() as server:
        done = bench(*flags, server.url)
    assert done.returncode == 2
    assert words in done.stderr
    assert not server.asked


def test_the_help_names_every_flag() -> None:
    from kirsch_bench import flags

    text = bench("--help").stdout
    for names, _ in flags._FLAGS:
        assert any(name in text for name in names if name not in ("-h", "--help")) or "--help" in names, names


# ------------------------------------------------------------------------------------------------------------ reports


class Page(HTMLParser):
    """The external resources of a page, and the data in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.wants: list[str] = []
        self.plots: list[str] = []
        self.data = ""
        self._in_data = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.wants += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data")]
        if tag == "svg":
            self.plots.append(named.get("aria-label") or "")
        self._in_data = tag == "script" and named.get("id") == "data"

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data += data


def test_all_reports_say_the_same(tmp_path: Path) -> None:
    with scripted() as server:
        done = bench(
            "-n", "500", "-c", "3", "-p", "2", "--json", f"{tmp_path}/o.json", "--html", f"{tmp_path}/o.html",
            "--hdr", f"{tmp_path}/o.hlog", f"{server.url}?<script>",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "o.json").read_text())
    assert document["schema"] == "kirsch-bench-1"
    assert document["environment"]["cpu"]["count"] == os.cpu_count()
    assert len(Histogram(document["result"]["latency"]["histogram"])) == 500

    page = Page((tmp_path / "o.html").read_text())
    assert page.wants == []
    assert [plot.split(",")[0] for plot in page.plots] == [
        "Latency by the share of requests that took at most so long", "Requests answered a second", "Latency over time",
    ]  # fmt: skip
    assert json.loads(page.data) == document
    assert "url(" not in (tmp_path / "o.html").read_text()
    assert "prefers-color-scheme: dark" in (tmp_path / "o.html").read_text()

    log = (tmp_path / "o.hlog").read_text().splitlines()
    assert "#[Histogram log format version 1.3]" in log
    lines = [line.split(",") for line in log if not line.startswith(("#", '"'))]
    whole = Histogram()
    for *_, encoded in lines:
        whole.merge(Histogram(encoded))
    assert len(whole) == 500
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("o.json", "o.html", "o.hlog")} == {
        0o666 & ~umask()
    }


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_report_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    with scripted() as server:
        for path in (f"{tmp_path}/no/such/folder.json", str(tmp_path), "/proc/nothing.json"):
            done = bench("-n", "10", "--json", path, server.url)
            assert done.returncode == 2, path
            assert f"--json: cannot write {path}" in done.stderr
    assert not server.asked


def test_a_full_disc_is_told_and_the_rest_is_there(tmp_path: Path) -> None:
    with scripted() as server:
        done = bench("-n", "10", "-c", "1", "--json", "/dev/full", "--html", f"{tmp_path}/o.html", server.url)
    assert done.returncode == 1
    assert "cannot write /dev/full: No space left on device" in done.stderr
    assert "latency" in done.stdout
    assert "<svg" in (tmp_path / "o.html").read_text()


def test_standard_output_that_cannot_be_written_to_is_told() -> None:
    with scripted() as server, open("/dev/full", "w") as full:
        done = subprocess.run(
            [*BENCH, "-n", "10", "-c", "1", server.url],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert "cannot write to standard output: No space left on device" in done.stderr
    assert own_frame(done.stderr) is None


def test_an_old_report_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    report = tmp_path / "o.json"
    report.write_text("old")
    with scripted() as server:
        process = start("-c", "1", "-z", "1h", "--json", str(report), server.url)
        wait_until(lambda: len(server.asked) > 5, process)
        process.kill()
        process.communicate(timeout=30)
    assert report.read_text() == "old"
    assert list(tmp_path.iterdir()) == [report]


def test_progress_is_plain_lines_where_nobody_watches() -> None:
    with scripted() as server:
        done = bench("-c", "2", "-z", "1.6s", "--warmup", "0s", server.url)
    assert re.search(r"^\[#+ *\] +\d+\.\d s, measuring, [\d,]+/s, p99 ", done.stderr, re.MULTILINE)
    assert "\x1b" not in done.stderr
    assert "\r" not in done.stderr


def test_progress_goes_away_on_a_terminal() -> None:
    with scripted() as server:
        out, shown = watched("-c", "2", "-z", "1s", "--warmup", "0.5s", server.url)
    assert b"warming up" in shown
    assert b"measuring" in shown
    assert shown.endswith(b"\x1b[J")
    assert "latency" in out


def test_a_server_that_accepts_and_says_nothing_is_waited_for_no_longer_than_was_said() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        began = time.monotonic()
        done = bench("-n", "4", "-c", "2", "--timeout", "0.3s", f"127.0.0.1:{listener.getsockname()[1]}")
    assert done.returncode == 1
    assert "4 × timeout" in done.stdout
    assert time.monotonic() - began < 20


def test_the_command_starts_no_server_and_serving_loads_no_bench() -> None:
    # tests/test_layers.py says it of the server; here: of the command, that a mistake costs no native module.
    code = "import sys; from kirsch_bench import main; main(['--rate', 'x']); print(sorted(sys.modules))"
    done = subprocess.run([BENCH[0], "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert "kirsch.server" not in done.stdout
    assert "kirsch._native" not in done.stdout
