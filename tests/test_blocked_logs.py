"""Logs that do not accept lines: pipes and FIFOs without a reader, stopped terminals, full disks.

The server goes on serving, ends in time, and says afterwards how many lines it has dropped.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from proc import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from running import Running, Serve

    Write = Callable[[str], str]

APP = """
    import logging, os, sys

    def app(environ, start_response):
        path, number = environ["PATH_INFO"], environ["QUERY_STRING"]
        if path == "/raises":
            raise LookupError("the fuse is lit " + "x" * 2000)
        if path == "/errors":
            environ["wsgi.errors"].write(f"line {number} " + "y" * 2000 + "\\n")
        if path == "/prints":
            print("z" * 200_000, flush=True)
        if path == "/buffers":
            sys.stdout.write("z" * 100)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"served"]
"""

# A pipe takes 64 KiB and the queue a mebibyte: this is more than both, with 2 KB for each.
ENOUGH = 800

# The server has a second for its requests, and some for what else it does at its end; the rest is for a busy machine.
TERM_SECONDS = 20.0


class Blocked:
    """A server with standard error, or standard output too, on pipes that are not read from the moment it listens."""

    def __init__(self, target: str, *args: str, stdout: bool = False, stderr: int | None = None) -> None:
        command = [sys.executable, "-m", "kirsch", target, "--bind", "127.0.0.1:0", "--graceful-timeout", "1s", *args]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout else subprocess.DEVNULL,
            stderr=subprocess.PIPE if stderr is None else stderr,
            start_new_session=True,
        )
        self.errors = -1
        if self.process.stderr is not None:
            self.errors = self.process.stderr.fileno()
            self._learn_address()

    def _learn_address(self) -> None:
        text = b""
        while (match := re.search(rb"on (http://[^\s\"]+)", text)) is None:
            assert select.select([self.errors], [], [], 30)[0], text
            data = os.read(self.errors, 65536)
            assert data, text
            text += data
        self.url = match[1].decode()
        self.text = text

    def get(self, path: str) -> int:
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as response:
                response.read()
                status: int = response.status
                return status
        except urllib.error.HTTPError as error:
            return error.code

    def get_many(self, path: str, count: int) -> set[int]:
        with ThreadPoolExecutor(8) as pool:
            return set(pool.map(lambda number: self.get(f"{path}?{number}"), range(count)))

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TERM_SECONDS)

    def rest(self, fd: int) -> bytes:
        """Returns all that is written to ``fd`` until every process has closed it."""
        parts = []
        while data := os.read(fd, 65536):
            parts.append(data)
        return b"".join(parts)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def block() -> Iterator[Callable[..., Blocked]]:
    started: list[Blocked] = []

    def block(target: str, *args: str, **more: bool | int) -> Blocked:
        started.append(Blocked(target, *args, **more))  # type: ignore[arg-type]
        return started[-1]

    yield block
    for each in started:
        each.close()


PROCESSES = pytest.mark.parametrize(
    "processes", [("-w", "0"), ("-w", "2"), ("-w", "1", "--preload"), ("-w", "1", "--threads", "1")], ids="-".join
)


@PROCESSES
@pytest.mark.parametrize(("path", "status"), [("/raises", 500), ("/errors", 200)])
@pytest.mark.slow
def test_server_serves_and_stops_while_standard_error_is_not_read(
    block: Callable[..., Blocked], write_app: Write, processes: tuple[str, ...], path: str, status: int
) -> None:
    site = block(write_app(APP), *processes)
    assert site.get_many(path, ENOUGH) == {status}
    assert site.get("/") == 200
    assert site.terminate() == 0


@pytest.mark.parametrize("form", ["text", "json"])
def test_dropped_errors_are_counted_when_reading_resumes(
    block: Callable[..., Blocked], write_app: Write, form: str
) -> None:
    site = block(write_app(APP), "-w", "1", "--error-logformat", form)
    assert site.get_many("/errors", ENOUGH) == {200}
    lines: list[str] = []

    def read() -> None:
        lines.extend(site.rest(site.errors).decode().splitlines())

    reader = threading.Thread(target=read)
    reader.start()
    # Once there is room, further lines are written, and their writer tells of those that were not.
    wait_until(lambda: site.get("/errors?last") == 200 and bool(_queue_is_empty(site.errors)), "all was read", 60)
    assert site.terminate() == 0
    reader.join()
    if form == "json":
        lines = [json.loads(line)["message"] for line in lines]
    told = [line for line in lines if "dropped" in line]
    counts = [
        re.search(r"(\d+) log lines were dropped: standard error did not accept them for [\d.]+ s", each)
        for each in told
    ]
    assert counts, lines[-5:]
    assert all(counts)
    written = [line for line in lines if line.startswith("line ")]
    assert all(re.fullmatch(r"line \w+ y{2000}", line) for line in written), "lines are whole"
    first = [line for line in written if not line.startswith("line last")]
    # Lines of /errors?last may be among the dropped ones too.
    assert len(first) + sum(int(each[1]) for each in counts if each) >= ENOUGH


def _queue_is_empty(fd: int) -> bool:
    """Return whether nothing waits in the pipe."""
    import array
    import termios

    waiting = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, waiting)
    return waiting[0] == 0


@pytest.mark.slow
def test_access_lines_are_dropped_when_standard_output_is_not_read(
    block: Callable[..., Blocked], write_app: Write
) -> None:
    agent = "%({user-agent}i)s" * 200
    site = block(
        write_app(APP), "-w", "1", "--access-logfile", "-", "--access-logformat", f"%(q)s {agent}", stdout=True
    )
    assert site.get_many("/", ENOUGH) == {200}
    errors = b""
    while (
        match := re.search(rb"access log: (\d+) log lines? w\w+ dropped: standard output: it has accepted none", errors)
    ) is None:
        assert select.select([site.errors], [], [], 30)[0], errors
        errors += os.read(site.errors, 65536)
    assert int(match[1]) > 0
    assert site.process.stdout is not None
    output: list[bytes] = []
    fd = site.process.stdout.fileno()
    reader = threading.Thread(target=lambda: output.append(site.rest(fd)))
    reader.start()
    recovered = rb"access log: (\d+) log lines? w\w+ dropped: standard output did not accept them for"
    while re.search(recovered, errors) is None:
        assert select.select([site.errors], [], [], 30)[0], errors
        errors += os.read(site.errors, 65536)
    assert site.terminate() == 0
    errors += site.rest(site.errors)
    reader.join()
    lines = output[0].decode().splitlines()
    assert len({len(line.partition(" ")[2]) for line in lines}) == 1, "lines are whole"
    dropped = sum(map(int, re.findall(rb"access log: (\d+) log line", errors)))
    assert len(lines) + dropped == ENOUGH


@pytest.mark.slow
def test_dropped_lines_are_a_metric(block: Callable[..., Blocked], write_app: Write) -> None:
    site = block(write_app(APP), "-w", "1", "--metrics-bind", "127.0.0.1:0")
    text = site.text
    while (match := re.search(rb"metrics on (http://\S+)", text)) is None:
        assert select.select([site.errors], [], [], 30)[0], text
        text += os.read(site.errors, 65536)
    assert site.get_many("/errors", ENOUGH) == {200}

    def count() -> int:
        with urllib.request.urlopen(match[1].decode().rstrip("/") + "/metrics", timeout=30) as response:
            page = response.read().decode()
        found = re.search(r"^kirsch_log_lines_dropped_total (\d+)$", page, re.MULTILINE)
        assert found is not None, page
        return int(found[1])

    wait_until(lambda: count() > 0, "dropped lines are counted", 30)
    top = [sys.executable, "-m", "kirsch", "top", "--once", match[1].decode()]
    shown = subprocess.run(top, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True).stdout
    assert re.search(r"^dropped +\d\S* log lines", shown, re.MULTILINE), shown
    assert site.terminate() == 0


@pytest.mark.slow
def test_dropped_lines_of_the_supervisor_are_a_metric_and_outlive_an_upgrade(serve: Serve, write_app: Write) -> None:
    running = serve(write_app(APP), "-w", "1", "--error-logfile", "/dev/full", "--metrics-bind", "127.0.0.1:0")
    metrics = running.wait_for(r"metrics on (\S+)")[1]

    def dropped() -> int:
        with urllib.request.urlopen(f"{metrics}/metrics", timeout=30) as response:
            page = response.read().decode()
        found = re.search(r"^kirsch_log_lines_dropped_total (\d+)$", page, re.MULTILINE)
        assert found is not None, page
        return int(found[1])

    before = dropped()
    # Only the supervisor reports this signal.
    running.send(signal.SIGTTIN)
    wait_until(lambda: dropped() > before, "the lines of the supervisor are counted")
    running.wait_for_workers(2)
    first = running.worker_pids()
    before = dropped()
    running.send(signal.SIGUSR2)
    running.wait_for_workers(2, without=first, timeout=30)
    wait_until(lambda: dropped() > before, "the lines of both images are counted", 30)
    assert running.stop() == 0


@pytest.mark.slow
def test_supervisor_reloads_while_standard_error_is_not_read(
    block: Callable[..., Blocked], write_app: Write, tmp_path: Path
) -> None:
    module = write_app(APP)
    site = block(module, "-w", "1")
    assert site.get_many("/errors", ENOUGH) == {200}
    source = tmp_path / "apps" / f"{module}.py"
    source.write_text(source.read_text().replace("200 OK", "201 Created"))
    for number in (signal.SIGPWR, signal.SIGUSR1, signal.SIGHUP):
        site.process.send_signal(number)
    wait_until(lambda: site.get("/") == 201, "the new code serves", 60)
    assert site.terminate() == 0


def test_fifo_without_a_reader_takes_lines_for_one_that_comes(serve: Serve, write_app: Write, tmp_path: Path) -> None:
    fifo = tmp_path / "access"
    os.mkfifo(fifo)
    running = serve(write_app(APP), "--access-logfile", str(fifo), "--access-logformat", "%(s)s %(U)s")
    assert running.page("/early") == "served"
    with open(fifo, encoding="utf-8") as reader:
        assert reader.readline() == "200 /early\n"
        assert running.page("/late") == "served"
        assert reader.readline() == "200 /late\n"
    assert running.stop() == 0


def test_server_serves_and_ends_while_its_terminal_is_stopped(block: Callable[..., Blocked], write_app: Write) -> None:
    ours, theirs = pty.openpty()
    site = block(write_app(APP), "-w", "1", stderr=theirs)
    os.close(theirs)
    site.errors = ours
    try:
        site._learn_address()
        assert site.get_many("/errors", ENOUGH) == {200}
        assert site.terminate() == 0
    finally:
        os.close(ours)


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize("path", ["/prints", "/buffers"])
@pytest.mark.slow
def test_server_stops_when_output_of_the_application_is_not_read(
    block: Callable[..., Blocked], write_app: Write, workers: str, path: str
) -> None:
    site = block(write_app(APP), "-w", workers, stdout=True)
    assert site.process.stdout is not None
    stdout = site.process.stdout.fileno()
    if path == "/buffers":
        assert site.get(path) == 200
        # The test fills the pipe, so that what was printed cannot be flushed at the exit.
        other = os.open(f"/proc/{site.process.pid}/fd/1", os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(other, b"." * 4096)
        os.close(other)
    else:
        with contextlib.suppress(OSError), ThreadPoolExecutor(2) as pool:
            asked = pool.submit(site.get, path)
            wait_until(lambda: not _queue_is_empty(stdout), "it has printed", 30)
            assert site.get("/") == 200
            site.terminate()
            asked.exception()
    site.terminate()


@pytest.mark.slow
def test_slow_handlers_of_the_access_logger_delay_no_request(block: Callable[..., Blocked], write_app: Write) -> None:
    site = block(write_app(APP), "-w", "1", "--access-logger", stdout=True)
    assert site.get_many("/" + "x" * 500, ENOUGH) == {200}
    assert site.get("/") == 200
    assert site.terminate() == 0


# Full disks


class SmallDisk:
    """A file system of 64 KiB."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        with open(self._filler, "ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"." * 512)

    def free(self) -> None:
        self._filler.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "kirsch-test", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a disk that is full needs the right to mount one: {mounted.stderr.strip()}")
    yield SmallDisk(path)
    subprocess.run(["umount", "-l", str(path)], check=True)


def get_many(running: Running, path: str, numbers: range) -> None:
    for number in numbers:
        with (
            contextlib.suppress(urllib.error.HTTPError),
            urllib.request.urlopen(f"{running.url}{path}?{number}", timeout=30),
        ):
            pass


@pytest.mark.parametrize("workers", ["0", "2"])
def test_full_disk_is_told_once_and_logging_resumes(
    serve: Serve, write_app: Write, small_disk: SmallDisk, workers: str
) -> None:
    log = small_disk.path / "access.log"
    form = "%(q)s " + "%(U)s" * 20
    running = serve(write_app(APP), "-w", workers, "--access-logfile", str(log), "--access-logformat", form)
    get_many(running, "/some/path", range(10))
    wait_until(lambda: log.read_text().count("\n") == 10, "lines are written while there is room")
    small_disk.fill()
    began = time.monotonic()
    # tmpfs gives whole pages, so that some lines more find room in the last one.
    get_many(running, "/some/path", range(10, 210))
    running.wait_for(r"\[WARNING\] access log: \d+ log lines? w\w+ dropped: .*/access\.log: No space left on device")
    get_many(running, "/some/path", range(210, 310))
    told = running.stderr.count("No space left on device")
    processes = max(1, int(workers))
    assert told <= processes * (1 + (time.monotonic() - began) // 10), running.stderr
    small_disk.free()

    def asks_and_finds() -> bool:
        get_many(running, "/resumed", range(1))
        return "/resumed" in log.read_text()

    wait_until(asks_and_finds, "logging resumes", 30)
    recovered = r"access log: \d+ log lines? w\w+ dropped: .*/access\.log did not accept them for .* s \(No space left"
    running.wait_for(recovered, timeout=30)
    assert running.stop() == 0
    lines = [line for line in log.read_text().splitlines() if "/some" in line]
    numbers = [re.fullmatch(r"(\d+) (/some/path){20}", line) for line in lines]
    assert all(numbers), "lines are whole"
    dropped = sum(map(int, re.findall(r"access log: (\d+) log line", running.stderr)))
    if workers == "0":
        assert len(lines) + dropped == 310
    found = [int(number[1]) for number in numbers if number]
    assert set(range(10)) <= set(found)
    if workers == "0":  # those of two workers may pass each other
        assert found == sorted(found), "lines are in order"


def test_error_log_on_a_full_disk_resumes(serve: Serve, write_app: Write, small_disk: SmallDisk) -> None:
    log = small_disk.path / "error.log"
    running = serve(write_app(APP), "--error-logfile", str(log))
    get_many(running, "/errors", range(1))
    small_disk.fill()
    get_many(running, "/errors", range(1, 50))
    get_many(running, "/raises", range(10))
    assert running.page() == "served"
    small_disk.free()

    def asks_and_finds() -> bool:
        urllib.request.urlopen(f"{running.url}/errors?resumed", timeout=30).close()
        return "line resumed" in log.read_text()

    wait_until(asks_and_finds, "logging resumes", 30)
    wait_until(
        lambda: (
            re.search(
                r"\[WARNING\] \d+ log lines were dropped: .*/error\.log did not accept them for [\d.]+ s \(No space",
                log.read_text(),
            )
            is not None
        ),
        "the number of missing lines is logged",
    )
    assert running.stop() == 0
