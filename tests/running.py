"""A server under test as a real process: started, watched through its output, stopped, and examined afterwards."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import kirsch
from proc import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

START_SECONDS = 30.0
"""Start-up takes well under a second; the rest is for a loaded machine and a large application."""

STOP_SECONDS = 10.0

COMMAND_VARIABLE = "KIRSCH_TEST_SERVER_COMMAND"

_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)

STARTED = re.compile(r"^on (?P<addresses>\S.*)$", re.MULTILINE)
_ANY_ADDRESS = re.compile(r"(?P<addresses>http://[^\s/]+:[0-9]+)")
_PANIC = re.compile(r"panicked at")
# The package that runs, and an installed copy of it. A name alone does not tell: a clone may be called kirsch.
_PACKAGE = rf"(?:{re.escape(os.path.dirname(kirsch.__file__))}|[^\"]*/(?:site|dist)-packages/kirsch)"
# With a comma, as a traceback has it: a dump of all stacks (faulthandler) has none, and shows our frames rightly.
_OWN_FRAME = re.compile(rf'File "{_PACKAGE}/[^"]*\.py", line [0-9]+, in')


def own_frame(text: str) -> str | None:
    """The first line of a traceback in ``text`` that is in Kirsch's own code; None where there is none."""
    frame = _OWN_FRAME.search(text)
    return frame and frame.group()


class Transcript:
    """All text that a process writes to one pipe, read by a thread of its own so that the process never blocks."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._text = ""
        self._ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        with self._changed:
            return self._text

    def wait_for(self, pattern: str | re.Pattern[str], timeout: float, after: int = 0) -> re.Match[str]:
        """The first match of ``pattern`` from offset ``after`` on, once it is there.

        Raises AssertionError with all the text where ``timeout`` seconds pass or the process ends before.
        """
        compiled = re.compile(pattern, re.MULTILINE) if isinstance(pattern, str) else pattern
        deadline = time.monotonic() + timeout
        with self._changed:
            while (match := compiled.search(self._text, after)) is None:
                remaining = deadline - time.monotonic()
                if self._ended or remaining <= 0:
                    why = "the output ended" if self._ended else f"{timeout} s passed"
                    raise AssertionError(f"{why} before {compiled.pattern!r} was written; all there is:\n{self._text}")
                self._changed.wait(remaining)
            return match

    def wait_for_end(self, timeout: float) -> bool:
        """Wait until every process that holds the pipe has ended; False where ``timeout`` seconds were not enough."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        with self._pipe:
            while data := os.read(self._pipe.fileno(), 65536):
                self._append(decoder.decode(data))
        self._append(decoder.decode(b"", final=True), ended=True)

    def _append(self, text: str, ended: bool = False) -> None:
        with self._changed:
            self._text += text
            self._ended = ended
            self._changed.notify_all()


class Running:
    """A server that has said that it listens.

    ``host`` and ``port`` are those of its first TCP address, ``url`` is ``http://host:port`` without a slash at the
    end, ``addresses`` everything that it said it listens on. ``pid`` is the process that was started: the supervisor,
    or with ``--workers 0`` the one that serves.
    """

    def __init__(self, target: str, process: subprocess.Popen[bytes], started: re.Pattern[str]) -> None:
        if process.stdout is None or process.stderr is None:
            raise ValueError("the process must be started with pipes")
        self.target = target
        self.process = process
        self.pid = process.pid
        self._stdout = Transcript(process.stdout)
        self._stderr = Transcript(process.stderr)
        self._group_killed = False
        self._told_to_stop = False
        try:
            match = self._stderr.wait_for(started, START_SECONDS)
        except AssertionError:
            self._kill_group()
            status = process.wait()
            self._stderr.wait_for_end(STOP_SECONDS)
            raise AssertionError(f"{target} did not start (exit status {status}):\n{self.stderr}") from None
        self.addresses = tuple(match["addresses"].split(", "))
        self.url = next(address for address in self.addresses if address.startswith(("http://", "https://")))
        parts = urlsplit(self.url)
        if parts.hostname is None or parts.port is None:
            raise AssertionError(f"no host and port in {self.url!r}")
        self.host = parts.hostname
        self.port = parts.port

    @property
    def stderr(self) -> str:
        """All that the server has written to standard error so far."""
        return self._stderr.text

    @property
    def stdout(self) -> str:
        """All that the server has written to standard output so far."""
        return self._stdout.text

    def wait_for(self, pattern: str | re.Pattern[str], timeout: float = 30.0, after: int = 0) -> re.Match[str]:
        """Wait until standard error holds a match of ``pattern`` from offset ``after`` on, and return it."""
        return self._stderr.wait_for(pattern, timeout, after)

    def wait_for_output(self, pattern: str | re.Pattern[str], timeout: float = 30.0, after: int = 0) -> re.Match[str]:
        """The same of standard output, where ``--access-logfile -`` writes."""
        return self._stdout.wait_for(pattern, timeout, after)

    @property
    def server_pid(self) -> int:
        """The one process that serves: the only worker, or with ``--workers 0`` the process that was started."""
        pids = self.worker_pids() or [self.pid]
        assert len(pids) == 1, f"several processes serve: {pids}"
        return pids[0]

    def worker_pids(self) -> list[int]:
        """The processes that serve, or are about to end: of the supervisor's family, the oldest first."""
        # The kernel's list may lack one while another comes or goes (proc(5)).
        before = None
        while before != (pids := [pid for pid in descendants(self.pid) if title(pid).startswith("kirsch: worker")]):
            before = pids
        return pids

    def zygote_pid(self) -> int:
        """The process that workers are forked from, once there is one and none of before."""
        found: list[int] = []

        def is_one() -> bool:
            found[:] = [pid for pid in children(self.pid) if title(pid).startswith("kirsch: zygote")]
            return len(found) == 1

        wait_until(is_one, "there is one zygote")
        return found[0]

    def wait_for_workers(self, count: int, without: Iterable[int] = (), timeout: float = 30.0) -> list[int]:
        """Wait until there are exactly ``count`` workers and none of ``without`` is among them; return their pids."""
        deadline = time.monotonic() + timeout
        while True:
            pids = self.worker_pids()
            if len(pids) == count and not set(pids) & set(without):
                return pids
            assert time.monotonic() < deadline, (
                f"there are the workers {pids} after {timeout} s, and {count} without {list(without)} were expected:\n"
                f"{self.stderr}"
            )
            time.sleep(0.01)

    def send(self, number: int) -> None:
        """Send a signal to the process that was started."""
        self._told_to_stop |= number in _STOPPING
        self.process.send_signal(number)

    def said_at(self, number: int, outcome: str) -> str:
        """Send a signal, wait until standard error holds ``outcome``, and return what was said meanwhile."""
        seen = len(self.stderr)
        self.send(number)
        self.wait_for(outcome, after=seen, timeout=20)
        return self.stderr[seen:]

    def page(self, path: str = "/") -> str:
        """The body of a response that is no error, on a connection of its own."""
        with urllib.request.urlopen(self.url + path, timeout=20) as response:
            body: bytes = response.read()
        return body.decode()

    def stop(self, signal: int = signal.SIGTERM, timeout: float = STOP_SECONDS) -> int:
        """Send ``signal``, wait for the end, and return the exit status (-N: ended by signal N).

        Afterwards ``stderr`` and ``stdout`` are complete. Raises AssertionError where ``timeout`` seconds were not
        enough; the process is then left as it is, for the caller to try a stronger signal.
        """
        if self.process.poll() is None:
            self.process.send_signal(signal)
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.target} did not end within {timeout} s of signal {signal}:\n{self.stderr}"
            ) from None
        self._stderr.wait_for_end(timeout)
        self._stdout.wait_for_end(timeout)
        return status

    def finish(self) -> list[str]:
        """End whatever of the server still runs, and return what was wrong with it, one sentence each."""
        complaints = []
        # A test that has asked for the end, or has seen it (process.wait), expects it. Any other end is a fault.
        seen = self._told_to_stop or self.process.returncode is not None
        if not seen and self.process.poll() is not None:
            complaints.append(f"it ended by itself with exit status {self.process.returncode}")
        if self.process.returncode is None:
            try:
                self.stop(timeout=STOP_SECONDS)
            except AssertionError:
                complaints.append(f"it did not end within {STOP_SECONDS} s of TERM")
                self._kill_group()
        status = self.process.wait()
        if not self._stderr.wait_for_end(STOP_SECONDS if not complaints else 1.0):
            # Some process still holds the pipe, so the group exists and its number cannot have been given away.
            complaints.append("it left processes behind")
            self._kill_group()
            self._stderr.wait_for_end(STOP_SECONDS)
        self._stdout.wait_for_end(STOP_SECONDS)
        if -status in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP):
            complaints.append(f"it crashed with signal {-status}")
        if _PANIC.search(self.stderr):
            complaints.append("it panicked")
        if frame := own_frame(self.stderr):
            complaints.append(f"its log has a traceback through our own code: {frame}")
        return complaints

    def _kill_group(self) -> None:
        if not self._group_killed:
            self._group_killed = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """The children of a process, the oldest first; none where it has ended."""
    try:
        return sorted(int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """Children and theirs, the oldest first: one that a zygote has forked is the supervisor's child a little later."""
    found = set(pids := children(pid))
    for child in pids:
        found.update(descendants(child))
    return sorted(found)


def title(pid: int) -> str:
    """Returns the title that ``ps`` shows of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


class Serve(Protocol):
    """The fixture ``serve``."""

    def __call__(
        self,
        target: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> Running:
        """Serve ``target`` on a free port of 127.0.0.1 with further command-line ``args``.

        ``env`` is laid over this process's environment, of which the server gets all but its own settings
        (``KIRSCH_*``). Raises AssertionError with the server's words where it does not start.
        """
        ...


def start(
    target: str,
    args: Sequence[str],
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> Running:
    """Starts a server as ``serve`` does, without its tear-down: the caller must call :meth:`Running.finish`."""
    command, started = _command(target, args)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KIRSCH_")}
    # A crash in native code then leaves the Python stack in the log.
    environment["PYTHONFAULTHANDLER"] = "1"
    environment.update(env or {})
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=Path(cwd) if cwd is not None else None,
        start_new_session=True,
    )
    return Running(target, process, started)


def foreign_server() -> bool:
    """Return whether another server stands in for Kirsch (see ``conftest.py``)."""
    return COMMAND_VARIABLE in os.environ


def _command(target: str, args: Sequence[str]) -> tuple[list[str], re.Pattern[str]]:
    template = os.environ.get(COMMAND_VARIABLE)
    if template is None:
        return [sys.executable, "-m", "kirsch", target, "--bind", "127.0.0.1:0", *args], STARTED
    words: list[str] = []
    for word in shlex.split(template):
        words += args if word == "{args}" else [word.format(python=sys.executable, target=target)]
    return words, _ANY_ADDRESS
