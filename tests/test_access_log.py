"""The access log line by line: formats, atoms, what is escaped, what is logged of requests that fail, rotation."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from proc import wait_until
from raw import Peer, build_request, exchange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

    Log = Callable[..., tuple[Running, Callable[[], list[str]]]]

APP = """
    class User:
        def __str__(self):
            raise AssertionError("nothing of the application's runs while a line is written")

    def app(environ, start_response):
        path = environ["PATH_INFO"]
        environ["app.said"] = "it\\x1bs \\"me\\" \\u2603"
        environ["app.user"], environ["app.number"], environ["app.nothing"] = User(), 7.5, None
        if path == "/raises":
            raise LookupError("no")
        if path == "/midway":
            return midway(start_response)
        if path == "/stream":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return iter([b"one ", b"two"])
        if path == "/204":
            start_response("204 No Content", [])
            return []
        if path == "/endless":
            start_response("200 OK", [])
            return iter(lambda: b"x" * 65536, None)
        start_response("200 OK", [("Content-Type", "text/plain"), ("X-Quote", 'a "quoted" \\xe9'),
                                  ("Content-Length", "5")])
        return [b"Hello"]

    def midway(start_response):
        start_response("200 OK", [])
        yield b"12345"
        raise LookupError("no")
"""

TIME = r"\[\d\d/(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)/\d{4}:\d\d:\d\d:\d\d \+0000\]"


@pytest.fixture
def log(serve: Serve, write_app: Callable[[str], str], tmp_path: Path) -> Log:
    """Start a server that logs to a file in ``format``; the second value ends it and returns the lines."""

    def log(format_: str | None = None) -> tuple[Running, Callable[[], list[str]]]:
        path = tmp_path / "access.log"
        format_args = [] if format_ is None else ["--access-logformat", format_]
        site = serve(write_app(APP), "--access-logfile", str(path), *format_args)

        def lines() -> list[str]:
            assert site.stop() == 0
            return path.read_text(encoding="utf-8").splitlines()

        return site, lines

    return log


def ask(site: Running, request: bytes) -> None:
    exchange(site.host, site.port, request)


def test_combined_is_the_default(log: Log) -> None:
    site, lines = log()
    fields = {"Referer": "http://from.example/", "User-Agent": "probe/1.0 (x)"}
    ask(site, build_request("GET", "/a%20b?c=d", headers=fields))
    ask(site, build_request("POST", "/stream", body=b"x" * 10, version="HTTP/1.0"))
    ask(site, build_request("HEAD", "/"))
    first, second, third = lines()
    request = re.escape('"GET /a%20b?c=d HTTP/1.1" 200 5 "http://from.example/" "probe/1.0 (x)"')
    assert re.fullmatch(f"127\\.0\\.0\\.1 - - {TIME} {request}", first), first
    assert re.fullmatch(f'127\\.0\\.0\\.1 - - {TIME} "POST /stream HTTP/1\\.0" 200 7 "-" "-"', second), second
    assert re.fullmatch(f'127\\.0\\.0\\.1 - - {TIME} "HEAD / HTTP/1\\.1" 200 - "-" "-"', third), third


def test_json(log: Log) -> None:
    site, lines = log("json")
    credentials = base64.b64encode(b"aladdin:open sesame").decode()
    fields = [
        ("User-Agent", 'a "quoted"\t\xe9'),
        ("Referer", "r"),
        ("Authorization", f"Basic {credentials}"),
    ]
    ask(site, build_request("GET", "/path?a=b&c", headers=fields, host="example.com:1"))
    ask(site, build_request("GET", "/path\xff"))
    pid = site.server_pid
    first, second = (json.loads(line) for line in lines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first.pop("time"))
    assert 0 <= first.pop("duration_us") < 10_000_000
    assert first == {
        "remote_addr": "127.0.0.1",
        "remote_user": "aladdin",
        "method": "GET",
        "path": "/path",
        "query": "a=b&c",
        "protocol": "HTTP/1.1",
        "status": 200,
        "response_bytes": 5,
        "host": "example.com:1",
        "referer": "r",
        "user_agent": first["user_agent"],
        "pid": pid,
        "request_id": "1",
    }
    assert first["user_agent"].startswith('a "quoted"\t')
    assert second["remote_user"] is None
    assert second["path"].startswith("/path")


def test_every_atom(log: Log) -> None:
    atoms = list("hlutrmUqHsbBfaTLMDp")
    site, lines = log("|".join(f"%({atom})s" for atom in atoms))
    credentials = base64.b64encode(b"aladdin:open sesame").decode()
    fields = {"User-Agent": "agent", "Referer": "referer", "Authorization": f"basic {credentials}"}
    ask(site, build_request("GET", "/path?query", headers=fields))
    ask(site, build_request("GET", "/204"))
    pid = site.server_pid
    first, second = ([*line.split("|")] for line in lines())
    told = dict(zip(atoms, first, strict=True))
    assert re.fullmatch(TIME, told.pop("t"))
    for atom, pattern in {"T": r"\d+", "L": r"\d+\.\d{6}", "M": r"\d+", "D": r"\d+"}.items():
        assert re.fullmatch(pattern, told.pop(atom)), atom
    assert told == {
        "h": "127.0.0.1",
        "l": "-",
        "u": "aladdin",
        "r": "GET /path?query HTTP/1.1",
        "m": "GET",
        "U": "/path",
        "q": "query",
        "H": "HTTP/1.1",
        "s": "200",
        "b": "5",
        "B": "5",
        "f": "referer",
        "a": "agent",
        "p": f"<{pid}>",
    }
    told = dict(zip(atoms, second, strict=True))
    assert (told["s"], told["b"], told["B"], told["q"]) == ("204", "-", "0", "")
    assert (told["u"], told["f"], told["a"]) == ("-", "-", "-")


def test_fields_and_variables(log: Log) -> None:
    site, lines = log(
        "100%% %({x-mine}i)s %({X-MINE}i)s %({x-quote}o)s %({Content-Length}o)s %({content-type}o)s "
        "%({PATH_INFO}e)s %({app.said}e)s %({x-none}i)s %({x-none}o)s %({none}e)s!"
    )
    ask(site, build_request("GET", "/path", headers={"X-Mine": "mine"}))
    (line,) = lines()
    head, _, rest = line.partition(" text/plain ")
    assert head == '100% mine mine a \\"quoted\\" \\xe9 5'
    assert rest == '/path it\\x1bs \\"me\\" \\xe2\\x98\\x83 - - -!'


def test_variables_that_are_no_text(log: Log) -> None:
    site, lines = log(
        "%({app.user}e)s %({app.number}e)s %({app.nothing}e)s %({wsgi.multithread}e)s %({wsgi.version}e)s"
    )
    ask(site, build_request("GET", "/path"))
    assert lines() == ["<User> 7.5 None True <tuple>"]


def test_a_peer_cannot_write_lines_or_speak_to_terminals(log: Log) -> None:
    site, lines = log('"%(r)s" "%(a)s" "%(u)s" "%({cookie}i)s"')
    credentials = base64.b64encode(b'eve\r\n"\x1b[31m:x').decode()
    fields = {
        "User-Agent": 'quote" backslash\\ tab\t csi\x9b31m nel\x85 caf\xe9',
        "Authorization": f"Basic {credentials}",
        "Cookie": '"; rm -rf /',
    }
    ask(site, build_request("GET", '/"\\\x9b\xff?"', headers=fields))
    (line,) = lines()
    assert line.isascii()
    assert line == (
        r'"GET /\"\\\x9b\xff?\" HTTP/1.1" '
        r'"quote\" backslash\\ tab\t csi\x9b31m nel\x85 caf\xe9" '
        r'"eve\x0d\x0a\"\x1b[31m" '
        r'"\"; rm -rf /"'
    )


def test_a_peer_cannot_speak_to_terminals_in_json(log: Log, tmp_path: Path) -> None:
    """U+009B begins an escape sequence as ESC [ does, U+0085 ends lines, and U+202E turns them around."""
    site, _ = log("json")
    agent = "\x9b31m \x85 \u2028 \u202e".encode()
    with Peer.connect(site.host, site.port) as peer:
        peer.send(b"GET /\xc2\x9b31m HTTP/1.1\r\nHost: a\r\nUser-Agent: " + agent + b"\r\n\r\n")
        assert peer.read_response().status == 200
    assert site.stop() == 0
    written = (tmp_path / "access.log").read_text(encoding="utf-8")
    assert not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", written)
    told = json.loads(written)
    assert told["user_agent"] == agent.decode()
    assert told["path"] == "/\x9b31m"


@pytest.mark.parametrize(
    ("request_", "status", "line"),
    [
        (b"GET /host?is=missing HTTP/1.1\r\n\r\n", 400, "GET /host?is=missing HTTP/1.1"),
        (b"nonsense\r\n\r\n", 400, "-"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "-"),
        (b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", 505, "GET /"),
        (b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", 413, "PUT /a HTTP/1.1"),
        (b"GET /b HTTP/1.0\r\nX: " + b"x" * 9000 + b"\r\n\r\n", 431, "GET /b HTTP/1.0"),
        (b"GET /" + b"c" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414, "GET /" + "c" * 1023 + "..."),
        (b"GET /\x1b[31m HTTP/1.1\r\nHost: a\r\n\r\n", 400, "GET /..."),
        (b"POST /chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n!\r\n", 400, "POST /chunks HTTP/1.1"),
    ],
)
def test_refused_requests_are_logged(log: Log, request_: bytes, status: int, line: str) -> None:
    site, lines = log("%(h)s %(s)s %(r)s")
    with Peer.connect(site.host, site.port) as peer:
        peer.send(request_)
        assert peer.read_response().status == status
    assert lines() == [f"127.0.0.1 {status} {line}"]


def test_refused_requests_are_json_too(log: Log) -> None:
    site, lines = log("json")
    ask(site, b"GET /path?query HTTP/1.1\r\n\r\n")
    told = json.loads(lines()[0])
    assert (told["status"], told["remote_addr"]) == (400, "127.0.0.1")
    assert (told["method"], told["path"], told["query"], told["request_id"]) == ("GET", "/path", "query", None)


def test_head_that_takes_too_long_is_logged_with_its_request_line(
    serve: Serve, write_app: Callable[[str], str]
) -> None:
    options = ["--access-logfile", "-", "--access-logformat", "%(s)s %(r)s", "--header-timeout", "200ms"]
    site = serve(write_app(APP), *options)
    with Peer.connect(site.host, site.port) as peer:
        peer.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n")
        assert peer.read_response().status == 408
    site.wait_for_output("^408 GET /slow HTTP/1.1$")
    site.wait_for(
        r"\[INFO\] refused with 408: client 127\.0\.0\.1:\d+, GET /slow: The request took too long to arrive\.$"
    )


def test_json_lines_have_the_request_id(log: Log) -> None:
    site, lines = log("json")
    ask(site, build_request("GET", "/", headers={"X-Request-ID": "7f3a-b.c"}))
    ask(site, build_request("GET", "/"))
    ask(site, build_request("GET", "/", headers={"X-Request-ID": 'a"b'}))
    ask(site, build_request("GET", "/", headers={"X-Request-ID": "x" * 129}))
    # One that is no plain word is replaced by the number of the call, which reports of slow requests have too.
    assert [json.loads(line)["request_id"] for line in lines()] == ["7f3a-b.c", "2", "3", "4"]


def test_what_failed_is_logged_as_the_client_saw_it(log: Log) -> None:
    site, lines = log("%(s)s %(B)s %(r)s")
    ask(site, build_request("GET", "/raises"))
    ask(site, build_request("GET", "/midway"))
    told = lines()
    status, size, request = told[0].split(" ", 2)
    # A page of the server's own was sent, and its size is what counts the traffic.
    assert (status, request) == ("500", "GET /raises HTTP/1.1")
    assert int(size) > 0
    assert told[1] == "200 5 GET /midway HTTP/1.1"
    assert len(told) == 2


def test_a_client_that_left_is_logged(log: Log) -> None:
    site, lines = log("%(s)s %(r)s")
    peer = Peer.connect(site.host, site.port)
    peer.send(build_request("GET", "/endless"))
    peer.read_head()
    peer.abort()
    ask(site, build_request("GET", "/"))
    assert sorted(lines()) == ["200 GET / HTTP/1.1", "200 GET /endless HTTP/1.1"]


def test_pipelined_requests_are_logged_in_order(log: Log) -> None:
    site, lines = log("%(s)s %(U)s %({x-number}i)s")
    with Peer.connect(site.host, site.port) as peer:
        requests = [build_request("GET", f"/n{number}", headers={"X-Number": str(number)}) for number in range(500)]
        peer.send(b"".join(requests))
        for _ in requests:
            assert peer.read_response().status == 200
    assert lines() == [f"200 /n{number} {number}" for number in range(500)]


def test_lines_are_there_while_the_server_waits(log: Log, tmp_path: Path) -> None:
    """The last line of an idle server is written without waiting for the next request."""
    site, _ = log("%(s)s %(r)s")
    ask(site, build_request("GET", "/now"))
    path = tmp_path / "access.log"
    wait_until(lambda: path.read_text() == "200 GET /now HTTP/1.1\n", "the line is written")


def test_usr1_opens_the_file_again(log: Log, tmp_path: Path) -> None:
    site, lines = log("%(s)s %(U)s")
    path, old = tmp_path / "access.log", tmp_path / "access.log.1"
    ask(site, build_request("GET", "/before"))
    path.rename(old)
    ask(site, build_request("GET", "/still-the-old-file"))
    wait_until(lambda: "old-file" in old.read_text(), "the line is written")
    assert not path.exists()
    site.process.send_signal(signal.SIGUSR1)
    wait_until(path.exists, "the file is there again")
    ask(site, build_request("GET", "/after"))
    assert lines() == ["200 /after"]
    assert old.read_text() == "200 /before\n200 /still-the-old-file\n"


def test_a_file_is_appended_to(serve: Serve, write_app: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_text("what was there\n")
    site = serve(write_app(APP), "--access-logfile", str(path), "--access-logformat", "%(s)s")
    ask(site, build_request("GET", "/"))
    assert site.stop() == 0
    assert path.read_text() == "what was there\n200\n"


def test_a_dash_is_standard_output(serve: Serve, write_app: Callable[[str], str]) -> None:
    site = serve(write_app(APP), "--access-logfile", "-", "--access-logformat", "%(s)s %(U)s")
    ask(site, build_request("GET", "/one"))
    site.wait_for_output("^200 /one$")
    ask(site, build_request("GET", "/two"))
    assert site.stop() == 0
    assert site.stdout == "200 /one\n200 /two\n"


def test_it_is_off_by_default(serve: Serve, write_app: Callable[[str], str], tmp_path: Path) -> None:
    site = serve(write_app(APP), cwd=tmp_path)
    before = set(os.listdir(tmp_path))
    ask(site, build_request("GET", "/"))
    assert site.stop() == 0
    assert site.stdout == ""
    assert len(site.stderr.splitlines()) == 3
    assert {name for name in set(os.listdir(tmp_path)) - before if name != "__pycache__"} == set()


@pytest.mark.parametrize("format_", ["%(h)s %(Z)s", "%(h)s %({x}z)s", "%h", "%(h", "%(h)d", "100%"])
def test_an_unknown_atom_is_refused(write_app: Callable[[str], str], tmp_path: Path, format_: str) -> None:
    command = [sys.executable, "-m", "kirsch", write_app(APP), "--bind", "127.0.0.1:0"]
    ended = subprocess.run(
        [*command, "--access-logfile", str(tmp_path / "log"), "--access-logformat", format_],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    line = ended.stderr.splitlines()[-1]
    assert line.startswith("kirsch: ")
    assert "format" in line
    assert "%(" in line, "it shows what an atom looks like"
