"""ApacheBench's report: read from the ab of 2006 to that of today, written as it writes it, and swept over clients."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import kirsch_bench
from benching import bench, ok, scripted
from kirsch_bench import ab, target
from kirsch_bench.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benching import Asked

# As ab 2.0 of 2009 printed it (of picows, in the survey by its author); the line of the time across all requests is
# the same since 2000.
FOUNDING = """\
Server Software:
Server Hostname:        0.0.0.0
Server Port:            8000

Document Path:          /
Document Length:        13 bytes

Concurrency Level:      100
Time taken for tests:   2.863 seconds
Complete requests:      10000
Failed requests:        0
Write errors:           0
Total transferred:      780078 bytes
HTML transferred:       130013 bytes
Requests per second:    3492.37 [#/sec] (mean)
Time per request:       28.634 [ms] (mean)
Time per request:       0.286 [ms] (mean, across all concurrent requests)
Transfer rate:          266.05 [Kbytes/sec] received

Connection Times (ms)
              min  mean[+/-sd] median   max
Connect:        0    4   3.5      3      33
Processing:    12   25   5.7     24      86
Waiting:        7   23   5.4     23      86
Total:         23   28   5.7     26      87

Percentage of the requests served within a certain time (ms)
  50%     26
 100%     87 (longest request)
"""


def session() -> ab.ABSession:
    return ab.ABSession(target.parse("127.0.0.1:8000"))


def test_a_report_of_the_founding_years_is_read() -> None:
    run = session()
    run.parse(FOUNDING)
    assert run.complete_requests == "10000"
    assert run.failed_requests == "0"
    assert run.requests_per_second == "3492.37"
    assert run.time_per_request_concurrent == "0.286"  # and not 28.634, which is for each client
    assert run.transfer_rate == "266.05"


@pytest.mark.parametrize("pattern", [pattern for _, _, pattern in ab.ABSession.parse_patterns])
def test_a_line_that_is_missing_is_none_and_no_crash(pattern: str) -> None:
    attributes = {pattern: attribute for attribute, _, pattern in ab.ABSession.parse_patterns}
    run = session()
    run.parse("\n".join(line for line in FOUNDING.split("\n") if not re.search(pattern, line)))
    missing = attributes.pop(pattern)
    assert getattr(run, missing) is None
    assert all(getattr(run, attribute) is not None for attribute in attributes.values())


def test_a_sweep_has_a_row_for_each_number_of_clients_and_their_average() -> None:
    class Canned(ab.ABSession):
        def run(self) -> None:
            self.parse(FOUNDING.replace("3492.37", f"{self.concurrency}.5"))

    rows = ab.thread_report(Canned(target.parse("127.0.0.1:8000")), (10, 20, 30))
    assert rows[0] == ["threads", "Completed", "Failed", "req/sec", "msec/req", "KB/sec"]
    assert [row[0] for row in rows[1:]] == [10, 20, 30, "Average"]
    assert rows[-1][1:] == ["10000.0", "0.0", "20.500", "0.286", "266.050"]
    assert ab.report_text(rows).split("\n")[0] == "threads | Completed | Failed | req/sec | msec/req |  KB/sec |"
    assert ab.report_text(rows).split("\n")[-1] == "Average |   10000.0 |    0.0 |  20.500 |    0.286 | 266.050 |"


def test_a_run_that_came_to_nothing_leaves_holes_in_the_table() -> None:
    class Broken(ab.ABSession):
        def run(self) -> None:
            self.parse(FOUNDING if self.concurrency == 10 else "apr_socket_recv: Connection reset by peer (104)")

    rows = ab.thread_report(Broken(target.parse("127.0.0.1:8000")), (10, 20))
    assert rows[2] == [20, None, None, None, None, None]
    assert rows[-1][1] == "10000.0"
    assert "None" in ab.report_text(rows)


def shape(report: str) -> list[str]:
    """A report without its figures, and without the lines that not every run has."""
    start = report.index("Server Software")
    lines = [re.sub(r"\d+(\.\d+)?", "0", line).rstrip() for line in report[start:].rstrip().split("\n")]
    return [re.sub(r" +", " ", line) for line in lines]


def test_our_block_has_the_form_of_abs(program: Callable[[str], str]) -> None:
    with scripted() as server:
        theirs = subprocess.run(
            [program("ab"), "-q", "-n", "300", "-c", "3", server.url],
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip
        done = bench(
            "-n", "300", "-c", "3", "--keep-alive", "off", "--headers", "ab", "--http", "1.0", "--ab", server.url
        )
    assert done.returncode == 0, done.stderr
    assert shape(done.stdout) == shape(theirs)
    for name in ("Server Software", "Document Length", "Complete requests", "Total transferred", "HTML transferred"):
        of = re.compile(rf"^{name}: .*$", re.MULTILINE)
        assert of.findall(done.stdout) == of.findall(theirs), name
    # ABSession parses the output as another program would.
    run = session()
    run.parse(done.stdout)
    assert run.complete_requests == "300"
    assert run.failed_requests == "0"


def test_failures_are_in_the_block() -> None:
    with scripted(lambda asked: ok(b"Hello" if asked.number % 2 else b"Hello there")) as server:
        done = bench("-n", "20", "-c", "1", "--ab", server.url)
    assert done.returncode == 1
    assert re.search(
        r"^Failed requests:        10\n   \(Connect: 0, Receive: 0, Length: 10, Exceptions: 0\)$",
        done.stdout,
        re.MULTILINE,
    )


@pytest.mark.parametrize("generator", ["ab", "kirsch"])
def test_one_command_prints_the_sweep(generator: str, program: Callable[[str], str]) -> None:
    if generator == "ab":
        program("ab")
    with scripted() as server:
        done = bench("--thread-report", "2,4", "-n", "60", "--generator", generator, server.url)
        agents = {dict(asked.fields)["User-Agent"] for asked in server.asked}
        hosts = {dict(asked.fields)["Host"] for asked in server.asked}
    assert done.returncode == 0, done.stderr
    heading, *lines = done.stdout.rstrip().split("\n")
    assert heading == "Client Thread Report (60 requests, 5 byte response body):"
    assert [line.split("|")[0].strip() for line in lines] == ["threads", "2", "4", "Average"]
    assert [line.split("|")[1].strip() for line in lines] == ["Completed", "60", "60", "60.0"]
    assert agents == {"ApacheBench/2.3"}
    assert hosts == {f"127.0.0.1:{server.port}"}


# ------------------------------------------------------------------------- as the script of 2006 has it

SCRIPT = """\
import threading
from kirsch_bench import ab
from kirsch_bench.ab import ABSession, print_report, thread_report
import kirsch

if __name__ == '__main__':

    def simple_app(environ, start_response):
        \"\"\"Simplest possible application object\"\"\"
        status = '200 OK'
        response_headers = [('Content-type','text/plain'),
                            ('Content-Length','19')]
        start_response(status, response_headers)
        return [b'My Own Hello World!']

    s = kirsch.Server(simple_app, bind="localhost:0")
    s.listen()
    ab.PORT = s.addresses[0][1]
    threading.Thread(target=s.start).start()
    try:
        print_report(thread_report(concurrency=(10, 20)))
    finally:
        s.stop()
"""


def test_the_script_of_the_founding_years_runs_as_it_is(tmp_path: Path) -> None:
    """But for ``cherrypy.wsgiserver`` and the blanks in its bytes, which are of Python 2, and its port."""
    script = tmp_path / "bare.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines()]
    assert rows[0] == ["threads", "Completed", "Failed", "req/sec", "msec/req", "KB/sec", ""]
    assert [row[:3] for row in rows[1:]] == [
        ["10", "3000", "0"],
        ["20", "3000", "0"],
        ["Average", "3000.0", "0.0"],
    ]


@pytest.mark.parametrize("command", ["", None])
def test_a_session_takes_a_path_a_number_of_requests_and_of_clients(
    command: str | None, monkeypatch: pytest.MonkeyPatch, program: Callable[[str], str]
) -> None:
    if command is None:
        program("ab")
    with scripted() as server:
        monkeypatch.setattr(ab, "PORT", server.port)
        run = kirsch_bench.ABSession("/", 100, 5, command=command)
        run.run()
        assert {asked.path for asked in server.asked} == {"/"}
        run.path, run.requests = "/other", 20
        run.run()
        assert [asked.path for asked in server.asked].count("/other") == 20
    assert run.complete_requests == "20"
    assert run.failed_requests == "0"
    assert run.requests_per_second is not None
    assert run.document_length == 5


def test_the_arguments_of_a_session_need_no_server() -> None:
    args = kirsch_bench.ABSession("/", 100, 5).args()
    assert args.startswith("-k -n 100 -c 5 ")
    assert args.endswith(":8080/")


@pytest.mark.slow
def test_a_session_without_a_server_says_who_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening
        monkeypatch.setattr(ab, "PORT", taken.getsockname()[1])
        with pytest.raises(Failure, match=str(ab.PORT)):
            kirsch_bench.ABSession("/", 100, 5, command="").run()


@pytest.mark.slow
def test_a_thread_report_without_a_list_takes_the_default() -> None:
    with scripted() as server:
        done = bench(
            "-q", "--generator", "kirsch", "-n", "400", "--server-threads", "10", "--thread-report", server.url
        )
    assert done.returncode == 0, done.stderr
    heading, *lines = done.stdout.rstrip().split("\n")
    assert heading == "Client Thread Report (400 requests, 5 byte response body, 10 server threads):"
    assert [line.split("|")[0].strip() for line in lines] == ["threads", "25", "50", "100", "200", "400", "Average"]
    with scripted() as server:
        done = bench("-q", "--generator", "kirsch", "-n", "400", server.url, "--thread-report")
    assert done.returncode == 0, done.stderr


def test_a_list_that_is_none_is_refused() -> None:
    done = bench("--thread-report", "10,x", "http://127.0.0.1:1/")
    assert done.returncode == 2
    assert "'10,x' is no list of numbers" in done.stderr
    done = bench("--thread-report", "http://127.0.0.1:1/", "http://127.0.0.1:1/")
    assert done.returncode == 2
    assert "is no list of numbers" in done.stderr


def sizer(asked: Asked) -> bytes:
    return ok(b"x" * int(asked.path.rpartition("=")[2].rpartition("/")[2] or 12))


@pytest.mark.parametrize("path", ["sizer", "sizer?page=1", "sizes/{size}"])
def test_sizes_are_swept_from_ten_bytes_on(path: str) -> None:
    with scripted(sizer) as server:
        done = bench("-q", "--generator", "kirsch", "-n", "50", "--size-report", f"{server.url}{path}")
    assert done.returncode == 0, done.stderr
    heading, *lines = done.stdout.rstrip().split("\n")
    assert heading == "Size Report (50 requests, 50 client threads):"
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    assert [row[0] for row in rows] == ["bytes", "10", "100", "1000", "10000", "100000", "1000000"]
    assert all(row[1:3] == ["50", "0"] for row in rows[1:])


def test_a_page_that_does_not_heed_its_size_is_told() -> None:
    with scripted() as server:
        done = bench("--generator", "kirsch", "-n", "50", "--size-report", "5,10", server.url)
    assert done.returncode == 1
    assert "10 bytes: " in done.stderr
    assert "the body has 5 bytes" in done.stderr
    assert "some bodies have another length than asked for" in done.stderr
