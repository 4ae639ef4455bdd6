"""``kirsch top``: in a terminal, as plain text, and its messages when there is nothing to show."""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from typing import TYPE_CHECKING

import pytest

from family import Family
from kirsch.commands import top
from kirsch.monitor.scoreboard import Layout
from proc import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MiB = 1 << 20
COMMAND = [sys.executable, "-c", "import sys; from kirsch.commands.top import main; sys.exit(main(sys.argv[1:]))"]

_ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


@pytest.fixture
def family() -> Iterator[Family]:
    with Family() as family:
        yield family


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )


def once(*args: str) -> str:
    done = run(*args, "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    return done.stdout


def complaint(*args: str) -> str:
    """The one line that it leaves with."""
    done = run(*args)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("kirsch top: ")
    return line


class Terminal:
    """A terminal with ``kirsch top`` in it, and as much of a screen as it writes to."""

    def __init__(self, *args: str, columns: int = 80, lines: int = 24) -> None:
        self.columns, self.lines = columns, lines
        self.output = ""
        self._screen: list[str] = []
        self._ended = False
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            # A failure must not go on as a second pytest.
            try:
                os.environ["PYTHONIOENCODING"] = "utf-8"
                os.environ["COLUMNS"] = "40"  # as some shells export it; the terminal knows better
                os.execv(COMMAND[0], [*COMMAND, *args])
            finally:
                os._exit(127)
        self.resize(columns, lines)
        self._before = termios.tcgetattr(self._fd)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, columns: int, lines: int) -> None:
        """The kernel tells the program with SIGWINCH."""
        self.columns, self.lines = columns, lines
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def _read(self) -> None:
        try:
            while data := os.read(self._fd, 65536):
                self.output += data.decode("utf-8", "replace")
        except OSError:
            pass  # EIO: that is how a terminal ends

    @property
    def screen(self) -> list[str]:
        """The last picture that was drawn as a whole: lines without their styles."""
        pictures = self.output.split("\x1b[H")[1:]
        whole = [picture for picture in pictures if "\x1b[J" in picture]
        return [_ESCAPE.sub("", line) for line in whole[-1].split("\x1b[J")[0].split("\r\n")] if whole else []

    def shows(self, pattern: str) -> bool:
        return any(re.search(pattern, line) for line in self.screen)

    def await_text(self, pattern: str) -> None:
        with contextlib.suppress(AssertionError):
            wait_until(lambda: self.shows(pattern), "")
        assert self.shows(pattern), "\n".join([*self.screen, repr(self.output[-500:])])

    def end(self) -> int:
        """Wait for the end; returns the exit status. The terminal must be as it was."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended = True
        after = termios.tcgetattr(self._fd)
        assert after[3] == self._before[3], "it left the terminal without echo or lines"
        assert after[6] == self._before[6]
        # Its last output may not have been read yet.
        left = lambda: self.output.rstrip().endswith("\x1b[?1049l") or "\x1b[?1049h" not in self.output  # noqa: E731
        wait_until(left, "it has left the other screen")
        return status

    def close(self) -> None:
        if not self._ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self._reader.join(5)
        os.close(self._fd)


@pytest.fixture
def terminal(family: Family) -> Iterator[Terminal]:
    terminal = Terminal(family.url, "--interval", "0.1")
    yield terminal
    terminal.close()


def test_once_is_plain_text(family: Family) -> None:
    worker = family.do(
        "claim", requests=60, running=2, threads=4, threads_most=16, status_2xx=57, status_5xx=3, memory=30 * MiB
    )
    family.do("claim", reason="crash: killed by signal 9", silence=60)
    family.do("replaced", "crash", "worker 12 was killed by signal 9")
    family.do(
        "slow",
        worker,
        pid=family.pid,
        number=3,
        id="7f3a",
        method="GET",
        path="/report",
        began=0,
        took=None,
        began_monotonic=time.monotonic() - 90,
        state="running",
        thread="kirsch-1",
        stack=["  File app.py, line 3, in app", "    wait()\x1b[2J"],
    )
    text = once(family.url)
    assert "shop.wsgi:app" in text
    assert "60 in all   2xx 57  5xx 3" in text
    assert "2 of 16" in text
    assert "replaced   crash 1" in text
    assert re.search(rf"{family.pid} serving .* 60 .* 2/16 .* 30 MiB", text)
    assert re.search(r"stuck .*crash: killed by signal 9", text)
    assert f"running: GET /report (id 7f3a, pid {family.pid}, kirsch-1)" in text
    assert "wait()?[2J" in text, "what a request brings along must not move the cursor"


def test_quantile_is_shown_as_a_bound(family: Family) -> None:
    """Ten requests took 2.51 s each. An interpolation in their bucket, from 2.5 s to 5 s, would say 4.9 s."""
    bucket = Layout.of_native().bounds.index(5.0)
    worker = family.do("claim")
    wait_until(lambda: len(family.status()["history"]["requests_per_second"]) >= 1, "it has sampled once")
    family.do("add", worker, requests=10, service_time_sum=25_100_000_000, **{f"service_time_{bucket}": 10})
    (line,) = (line for line in once(family.url).splitlines() if line.startswith("service time"))
    assert re.split(r" {2,}", line) == ["service time", "≤2.6 s", "≤2.6 s", "≤2.6 s", "2.5 s"]
    latency = family.status()["recent"]["latency"]["service_time"]
    assert 2.51 <= latency["p50"] <= latency["p99"] <= 2.61


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (0.0001, "≤100 us"), (0.0025, "≤2.5 ms"), (0.25, "≤250 ms"), (2.51, "≤2.6 s"), (2.5, "≤2.5 s"),
     (0.1234, "≤130 ms"), (30.0, "≤30.0 s"), (95.2, "≤96 s")],
)  # fmt: skip
def test_a_bound_is_never_rounded_down(seconds: float | None, shown: str) -> None:
    assert top._at_most(seconds, unicode=True) == shown
    assert top._at_most(seconds, unicode=False) == shown.replace("≤", "<=")


def test_without_a_terminal_it_is_once(family: Family) -> None:
    assert run(family.url).stdout.startswith(" shop.wsgi:app")


@pytest.mark.slow
def test_addresses_as_people_write_them(family: Family, tmp_path: Path) -> None:
    bare = family.url.removeprefix("http://")
    for address in (bare, bare.removeprefix("127.0.0.1"), f"{family.url}/", f"{family.url}/metrics"):
        assert "shop.wsgi:app" in once(address)
    with Family(f"unix:{tmp_path}/m.sock") as other:
        assert f"pid {other.pid}" in once(other.url)


@pytest.mark.slow
def test_without_address_the_supervisors_scoreboard_is_read(family: Family, tmp_path: Path) -> None:
    family.do("claim", requests=60)
    file = tmp_path / "pid"
    file.write_text(f"{family.pid}\n")
    for args in ([str(family.pid)], ["--pid-file", str(file)]):
        text = once(*args)
        assert "60 in all" in text
        assert f"pid {family.pid}" in text


def test_without_arguments_the_supervisors_are_listed(family: Family) -> None:
    with Family() as other:
        line = complaint("--once")
    assert f"{family.pid} (shop.wsgi:app)" in line
    assert f"{other.pid} (shop.wsgi:app)" in line


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["127.0.0.1:1"],
            r"no server answers at 127.0.0.1:1 \(Connection refused\); start the server with --metrics-bind",
        ),
        (["unix:/nowhere.sock"], r"no server answers at unix:/nowhere.sock \(No such file or directory\)"),
        (["https://127.0.0.1:1"], "neither http://HOST:PORT nor unix:PATH"),
        (["127.0.0.1:nothing"], "no address"),
        (["4194304"], "there is no process 4194304"),
        (["--pid-file", "/nowhere.pid"], "cannot read /nowhere.pid: No such file or directory"),
        (["--pid-file", "/proc/self/status"], "/proc/self/status holds no pid"),
        (["--pid-file", "/nowhere.pid", "127.0.0.1:1"], "ADDRESS or --pid-file, not both"),
    ],
)
def test_unreachable_address_is_reported(args: list[str], words: str) -> None:
    assert re.search(words, complaint(*args))


def test_process_that_is_no_supervisor_is_refused() -> None:
    assert "is no supervisor of Kirsch" in complaint(str(os.getpid()))


def test_address_of_another_server_is_refused() -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[1]")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        assert "has no such report; is this the --metrics-bind?" in complaint(f"127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            with listener.accept()[0] as peer:
                peer.sendall(b"220 mail\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        assert "does not speak HTTP" in complaint(f"127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--interval", "x"], "argument --interval: 'x' is not a number of seconds"),
        (["--interval", "0"], "argument --interval: must be from 0.1 to 3600 seconds"),
        (["a", "b"], "unrecognized arguments: b"),
        (["--nonsense"], "there is no flag --nonsense"),
    ],
)
def test_wrong_command_line_is_refused(args: list[str], complaint: str) -> None:
    done = run(*args)
    assert done.returncode == 2
    assert done.stderr == f"kirsch top: {complaint}; kirsch top --help tells more\n"


def test_terminal_view_updates_and_fits_the_size(family: Family, terminal: Terminal) -> None:
    terminal.await_text("no worker runs")
    worker = family.do("claim", requests=5, threads_most=16)
    terminal.await_text(r"5 in all")
    family.do("add", worker, requests=70)
    terminal.await_text(r"75 in all")
    for _ in range(7):
        family.do("claim", reason="a long story " * 10)
    terminal.await_text(r"(PID +STATE)")
    assert len(terminal.screen) <= 24
    assert max(map(len, terminal.screen)) <= 80, terminal.screen
    assert not any("BECAUSE" in line for line in terminal.screen)
    terminal.resize(200, 15)
    terminal.await_text("BECAUSE")
    assert len(terminal.screen) <= 15
    terminal.resize(30, 5)
    wait_until(lambda: len(terminal.screen) == 5, "five lines are left")
    assert max(map(len, terminal.screen)) <= 30
    terminal.press(b"q")
    assert terminal.end() == 0


@pytest.mark.parametrize("how", ["Ctrl-C", "TERM", "HUP"])
def test_terminal_is_restored_at_every_exit(terminal: Terminal, how: str) -> None:
    terminal.await_text("no worker runs")
    if how == "Ctrl-C":
        terminal.press(b"\x1a\x03")  # a Ctrl-Z before does nothing
    else:
        os.kill(terminal.pid, getattr(signal, f"SIG{how}"))
    assert terminal.end() == 0


def test_server_that_stops_is_reported_and_last_view_stays(family: Family, terminal: Terminal) -> None:
    family.do("claim", requests=5)
    terminal.await_text("5 in all")
    os.kill(family.child, signal.SIGTERM)
    terminal.await_text("no server answers at")
    assert terminal.shows("5 in all")
    terminal.press(b"q")
    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (7, "7"), (1.25, "1.2"), (1234, "1234"), (12345, "12.3k"), (4_500_000, "4.5M"), (2e9, "2.0G")],
)
def test_numbers(number: float, text: str) -> None:
    assert top.short(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.00085, "850 us"),
        (0.0015, "1.5 ms"),
        (0.25, "250 ms"),
        (2.5, "2.5 s"),
        (200, "3 min"),
        (7500, "2h05m"),
        (273600, "3d04h"),
    ],
)
def test_spans(seconds: float | None, text: str) -> None:
    assert top.span(seconds) == text
