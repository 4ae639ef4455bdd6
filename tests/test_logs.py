"""Logs: access lines in files, on stdout and through logging; errors with the application's traceback and no other."""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kirsch

if TYPE_CHECKING:
    from running import Running, Serve

APP = """
def app(environ, start_response):
    if environ["PATH_INFO"] == "/boom":
        return explode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3")])
    return [b"fine"[:3]]

def explode():
    raise LookupError("the fuse is lit")
"""

Write = Callable[[str], str]

COMBINED = re.compile(
    r'127\.0\.0\.1 - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "GET (\S+) HTTP/1\.1" (\d{3}) (\d+|-) '
    r'"([^"]*)" "([^"]*)"'
)


def get(running: Running, path: str, **headers: str) -> int:
    return get_from(running.host, running.port, path, headers)


def get_from(host: str, port: int, path: str, headers: dict[str, str] | None = None) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", path, headers={"Connection": "close", **(headers or {})})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


# Access lines, written natively


def test_nothing_is_logged_by_default(serve: Serve, write_app: Write) -> None:
    running = serve(write_app(APP))
    assert get(running, "/") == 200
    assert running.stop() == 0
    assert running.stdout == ""
    assert running.stderr.count("\n") == 3


def test_combined_lines_go_to_a_file(serve: Serve, write_app: Write, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    running = serve(write_app(APP), "--access-logfile", str(log))
    get(running, "/a?b=c", Referer="http://from.example/", **{"User-Agent": "probe/1"})
    get(running, "/boom")
    assert running.stop() == 0
    first, second = log.read_text(encoding="utf-8").splitlines()
    match = COMBINED.fullmatch(first)
    assert match is not None, first
    assert match.groups() == ("/a?b=c", "200", "3", "http://from.example/", "probe/1")
    match = COMBINED.fullmatch(second)
    assert match is not None, second
    assert match[2] == "500"


def test_paths_need_not_be_utf_8(serve: Serve, write_app: Write, tmp_path: Path) -> None:
    """On Linux a name is bytes; Python has those that are no UTF-8 as surrogates (PEP 383)."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "file.txt").write_text("hi")
    server = serve(
        write_app(APP),
        f"--access-logfile={folder}/access.log",
        f"--error-logfile={folder}/error.log",
        f"--static=/files={folder}",
    )
    assert server.page("/files/file.txt") == "hi"
    assert get(server, "/boom") == 500
    assert server.stop() == 0
    assert len((folder / "access.log").read_text().splitlines()) == 2
    assert "Traceback" in (folder / "error.log").read_text()


def test_lines_go_to_stdout(serve: Serve, write_app: Write) -> None:
    running = serve(write_app(APP), "--access-logfile", "-")
    get(running, "/visible")
    running.wait_for_output(r'"GET /visible HTTP/1\.1" 200 ')
    assert running.stop() == 0
    assert running.stdout.count("\n") == 1


def test_json_lines_are_json(serve: Serve, write_app: Write) -> None:
    running = serve(write_app(APP), "--access-logfile", "-", "--access-logformat", "json")
    get(running, '/a"b', **{"User-Agent": 'quo"te\\'})
    running.wait_for_output(r"\n")
    record = json.loads(running.stdout)
    assert isinstance(record, dict)
    assert 200 in record.values()


def test_gunicorns_atoms_are_understood(serve: Serve, write_app: Write) -> None:
    atoms = '%(h)s %(m)s %(U)s %(s)s "%(r)s"'
    running = serve(write_app(APP), "--access-logfile", "-", "--access-logformat", atoms)
    get(running, "/atoms")
    running.wait_for_output(r'^127\.0\.0\.1 GET /atoms 200 "GET /atoms HTTP/1\.1"$')


def test_usr1_opens_both_logs_again(serve: Serve, write_app: Write, tmp_path: Path) -> None:
    access, errors = tmp_path / "access.log", tmp_path / "error.log"
    running = serve(write_app(APP), "--access-logfile", str(access), "--error-logfile", str(errors))

    def request_until_written(path: str) -> None:
        # A line may be written some time after its response, so that more requests are the only clock there is.
        for _ in range(1000):
            assert get(running, path) == 500
            if all(log.exists() and path in log.read_text(encoding="utf-8") for log in (access, errors)):
                return
        pytest.fail(f"{path} is not in both logs")

    request_until_written("/boom?before")
    for log in (access, errors):
        log.rename(log.with_suffix(".1"))
    os.kill(running.process.pid, signal.SIGUSR1)
    request_until_written("/boom?after")
    assert running.stop() == 0
    for log in (errors, errors.with_suffix(".1")):
        assert "LookupError: the fuse is lit" in log.read_text(encoding="utf-8")
    assert "LookupError" not in running.stderr


def test_a_log_that_cannot_be_opened_again_is_kept_and_told(serve: Serve, write_app: Write, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    access = folder / "access.log"
    running = serve(write_app(APP), "--access-logfile", str(access))
    folder.rename(tmp_path / "moved")
    os.kill(running.process.pid, signal.SIGUSR1)
    running.wait_for(r"\[ERROR\] .*be opened again.*No such file")
    assert get(running, "/still") == 200
    assert running.stop() == 0
    assert "/still" in (tmp_path / "moved" / "access.log").read_text(encoding="utf-8")


# Access lines through logging


def test_access_lines_through_logging_go_to_stdout_without_handlers(serve: Serve, write_app: Write) -> None:
    running = serve(write_app(APP), "--access-logger")
    get(running, "/handled")
    running.wait_for_output(r'^127\.0\.0\.1 .*"GET /handled HTTP/1\.1" 200 ')
    assert running.stop() == 0
    assert running.stdout.count("\n") == 1
    assert "/handled" not in running.stderr


def test_a_rotating_file_handler_gets_lines(serve: Serve, write_app: Write, tmp_path: Path) -> None:
    configured = f"""
import logging, logging.handlers

handler = logging.handlers.RotatingFileHandler({str(tmp_path / "access.log")!r}, maxBytes=150, backupCount=99)
logging.getLogger("kirsch.access").addHandler(handler)
{APP}"""
    running = serve(write_app(configured), "--access-logger")
    for number in range(10):
        get(running, f"/{number}")
    assert running.stop() == 0
    assert running.stdout == ""
    files = sorted(tmp_path.glob("access.log*"))
    assert len(files) >= 3  # it has rotated
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert sorted(re.findall(r'"GET /(\d) HTTP/1\.1" 200', text)) == [str(number) for number in range(10)]


def test_a_syslog_handler_gets_lines_and_atoms(serve: Serve, write_app: Write, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as syslog:
        syslog.bind(("127.0.0.1", 0))
        syslog.settimeout(10)
        configured = f"""
import logging, logging.handlers

handler = logging.handlers.SysLogHandler({syslog.getsockname()!r})
handler.setFormatter(logging.Formatter("%(message)s | %(kirsch)s"))
logging.getLogger("kirsch.access").addHandler(handler)
{APP}"""
        running = serve(write_app(configured), "--access-logger")
        get(running, "/syslog")
        datagram = syslog.recv(65536).decode()
    # Priority 14 is facility user, severity informational (RFC 5424, 6.2.1).
    assert re.match(r'<14>127\.0\.0\.1 .*"GET /syslog HTTP/1\.1" 200 ', datagram)
    atoms = datagram.partition(" | ")[2]
    assert "'m': 'GET'" in atoms
    assert "'s': '200'" in atoms


# Errors


def test_a_failing_application_is_reported_with_its_own_traceback(serve: Serve, write_app: Write) -> None:
    module = write_app(APP)
    running = serve(module)
    assert get(running, "/boom?x=1") == 500
    running.wait_for(r"^LookupError: the fuse is lit$")
    _, _, rest = running.stderr.partition(f"on {running.url}\n")
    first, trace = rest.split("\n", 1)
    stamp = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}\]"
    assert re.fullmatch(rf"{stamp} \[{running.server_pid}\] \[ERROR\] .*GET .*/boom.*", first), first
    assert trace.startswith("Traceback (most recent call last):\n")
    assert [Path(file).stem for file in re.findall(r'File "([^"]+)"', trace)] == [module, module]


def test_an_error_log_takes_the_place_of_stderr(serve: Serve, write_app: Write, tmp_path: Path) -> None:
    log = tmp_path / "error.log"
    running = serve(write_app(APP), "--error-logfile", str(log))
    get(running, "/boom")
    assert running.stop() == 0
    assert "LookupError: the fuse is lit\n" in log.read_text(encoding="utf-8")
    assert running.stderr.count("\n") == 3


def test_the_level_hides_what_is_below_it(serve: Serve, write_app: Write) -> None:
    running = serve(write_app(APP), "--log-level", "critical")
    assert get(running, "/boom") == 500
    assert running.stop() == 0
    assert running.stderr.count("\n") == 3


def test_errors_survive_an_application_that_disables_loggers(serve: Serve, write_app: Write) -> None:
    configuring = f"""
import logging.config

def configure():
    logging.config.dictConfig({{"version": 1, "root": {{"level": "CRITICAL"}}}})
{APP.replace("def app(environ, start_response):", "def app(environ, start_response):" + chr(10) + "    configure()")}"""
    running = serve(write_app(configuring))
    for _ in range(2):
        after = len(running.stderr)
        assert get(running, "/boom") == 500
        running.wait_for(r"^LookupError: the fuse is lit$", after=after)


def test_handlers_of_the_application_take_the_errors(serve: Serve, write_app: Write) -> None:
    handling = f"""
import logging, sys

handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(logging.Formatter("taken: %(name)s %(levelname)s"))
logging.getLogger("kirsch").addHandler(handler)
{APP}"""
    running = serve(write_app(handling), env={"PYTHONUNBUFFERED": "1"})
    get(running, "/boom")
    running.wait_for_output(r"^taken: kirsch ERROR$")
    assert running.stop() == 0
    assert "LookupError" not in running.stderr


def test_json_error_log_has_one_object_for_each_record(serve: Serve, write_app: Write, tmp_path: Path) -> None:
    log = tmp_path / "error.log"
    writing = APP.replace(
        "def app(",
        'def app(environ, start_response):\n    environ["wsgi.errors"].write("one \\x9b\\ntw")\n'
        '    print("o", file=environ["wsgi.errors"])\n    return served(environ, start_response)\n\ndef served(',
    )
    running = serve(write_app(writing), "--error-logfmt", "json", "--error-logfile", str(log))
    assert get(running, "/boom") == 500
    pid = running.server_pid
    assert running.stop() == 0
    text = log.read_text(encoding="utf-8")
    assert text.isascii()
    records = [json.loads(line) for line in text.splitlines()]
    for record in records:
        assert list(record) == ["time", "level", "pid", "worker", "message", "traceback"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", record["time"])
    one, two, raised = (record for record in records if record["level"] == "error")
    assert [one["message"], two["message"]] == ["one \x9b", "two"]
    assert (raised["pid"], raised["worker"]) == (pid, 1)
    assert "/boom" in raised["message"]
    assert raised["traceback"].endswith("LookupError: the fuse is lit")


def test_json_error_log_on_standard_error_has_the_start_too(write_app: Write) -> None:
    command = [sys.executable, "-m", "kirsch", "--error-logformat", "json", "--bind", "127.0.0.1:0"]
    with subprocess.Popen([*command, write_app(APP)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        lines += process.stderr.readlines()
    messages = [json.loads(line)["message"] for line in lines]
    assert messages[0].startswith("kirsch ")
    assert messages[2].startswith("on http://127.0.0.1:")
    failed = subprocess.run([*command, "nowhere:app"], capture_output=True, text=True, check=False)
    record = json.loads(failed.stderr.splitlines()[-1])
    assert record["level"] == "error"
    assert "nowhere" in record["message"]


# Before a fork

THREADS = """
from kirsch._native import LogWriter, flush_logs

log = LogWriter("/dev/null")
for _ in range(500):
    log.write(b"a line\\n", 0.0)
    assert flush_logs(60.0, settle=True)
    with open("/proc/self/stat", encoding="ascii") as status:
        print(status.read().rpartition(")")[2].split()[17])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's number of threads is read in /proc")
def test_the_kernel_counts_no_writing_thread_after_settling() -> None:
    """CPython warns of a fork by that number."""
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"1"}


# In a program that embeds the server


class Records(logging.Handler):
    """A handler that keeps records, and lets a test wait for the next one."""

    def __init__(self) -> None:
        super().__init__()
        self._records: list[logging.LogRecord] = []
        self._arrived = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._arrived:
            self._records.append(record)
            self._arrived.notify_all()

    def next(self) -> logging.LogRecord:
        with self._arrived:
            assert self._arrived.wait_for(lambda: self._records, timeout=10), "no record arrived"
            return self._records.pop(0)


@pytest.fixture
def root_records() -> Iterator[Records]:
    handler = Records()
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    assert (root.level, list(root.handlers)) == before  # the root logger belongs to the program


def tcp(server: kirsch.Server) -> tuple[str, int]:
    """Its first address."""
    address = server.addresses[0]
    assert isinstance(address, tuple)
    return address


def failing(environ: object, start_response: object) -> list[bytes]:
    raise LookupError("the fuse is lit")


def test_in_a_program_reports_propagate_from_logger_kirsch(root_records: Records) -> None:
    server = kirsch.Server(failing, bind="127.0.0.1:0")
    with server:
        thread = threading.Thread(target=server.start)
        thread.start()
        assert get_from(*tcp(server), "/in/a/program") == 500
        record = root_records.next()
    thread.join(10)
    assert (record.name, record.levelname) == ("kirsch", "ERROR")
    assert "/in/a/program" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)
    assert record.exc_info[2] is not None
    assert record.exc_info[2].tb_frame.f_code.co_name == "failing"


def test_in_a_program_access_lines_propagate_from_logger_kirsch_access(root_records: Records) -> None:
    server = kirsch.Server(failing, bind="127.0.0.1:0", access_logger=True, report=lambda *_: None)
    with server:
        thread = threading.Thread(target=server.start)
        thread.start()
        assert get_from(*tcp(server), "/seen") == 500
        record = root_records.next()
    thread.join(10)
    assert (record.name, record.levelname) == ("kirsch.access", "INFO")
    assert '"GET /seen HTTP/1.1" 500' in record.getMessage()
    assert record.kirsch["U"] == "/seen"  # type: ignore[attr-defined]


def test_in_a_program_a_callable_gets_access_lines() -> None:
    lines: list[tuple[str, dict[str, str]]] = []
    arrived = threading.Event()

    def keep(line: str, atoms: dict[str, str]) -> None:
        lines.append((line, atoms))
        arrived.set()

    server = kirsch.Server(failing, bind="127.0.0.1:0", access_logger=keep, report=lambda *_: None)
    with server:
        thread = threading.Thread(target=server.start)
        thread.start()
        get_from(*tcp(server), "/kept")
        assert arrived.wait(10)
    thread.join(10)
    assert [atoms["U"] for _, atoms in lines] == ["/kept"]
