"""The processes that generate the load. They are started together, begin to send together, and are always ended.

Each is a fresh interpreter (``python -m kirsch_bench._worker``) on this machine, or ``kirsch bench worker`` on another
one (:mod:`kirsch_bench.remote`). It is sent one job and answers in lines of JSON::

    it     {"version": "0.1.0"}                   of kirsch-bench; on another host it must be ours
    us     {"kind": "plan", ...}                  the job
    it     {"ready": true}                        everything is loaded
    us     {"ping": 1}                            several times, to another host
    it     {"pong": 1, "monotonic": ..., "time": ...}   its clocks
    us     {"go": 1234.5}                         when all are ready: its time.monotonic() to begin at, common to all
    it     {"progress": {...}}                    a few times a second
    us     {"alive": true}                        every few seconds, to another host
    us     {"stop": true}                         to another host: report what there is so far
    it     {"result": {...}} or {"failed": "…"}   once; then it ends

SIGINT makes a process on this machine report what it has so far. Only this process sends it, because each load process
is a session of its own. If this process dies, a load process reads the end of its input and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kirsch_bench.errors import Failure
from kirsch_bench.native import VERSION
from kirsch_bench.remote import Clock, Host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Progress = Callable[[Sequence[dict[str, Any]]], object]
    Hear = Callable[[int, dict[str, Any]], bool]

_READY_SECONDS = 60.0
"""Importing takes a tenth of a second; the rest is for a loaded machine and a large test module."""

_STOP_SECONDS = 10.0
"""The time in which a process must report its result after SIGINT."""

_START_AHEAD_SECONDS = 0.05
"""The time in which all processes of this machine read the message before the load begins."""

_ALIVE_SECONDS = 2.0
"""The time between messages to another host, which ends its part if it hears nothing for ``SILENCE_SECONDS``: its
connection may be lost without an end."""

SILENCE_SECONDS = 20.0

_EXIT_SECONDS = 5.0
"""The time between the end of a process's output and its own."""

_PINGS = 10

_PING_SECONDS = 5.0
"""The time in which another host must answer a ping."""


@dataclass
class Outcome:
    """The result of one process, or why there is none. ``host`` and ``clock`` are set for another machine."""

    result: dict[str, Any] | None = None
    trouble: str = ""
    host: str = ""
    clock: Clock | None = None


@dataclass
class Run:
    """The outcomes of all processes, in the order of their jobs. ``interrupted``: a signal ended the run early;
    ``stopped``: ``hear`` did."""

    outcomes: list[Outcome]
    interrupted: bool = False
    stopped: bool = False


def run(
    jobs: Sequence[dict[str, Any]],
    *,
    seconds_max: float,
    progress: Progress | None = None,
    hear: Hear | None = None,
    hosts: Sequence[Host] = (),
) -> Run:
    """Run each job in a process of its own and return when all have ended.

    ``seconds_max`` limits the work after the start; a process that takes longer is asked for its partial result, and
    then killed. ``progress`` is called with the latest progress of each process. ``hear`` is called with each progress
    report and the index of its process; if it returns True, the run ends. With ``hosts`` the jobs run there in turn; if
    a host is not ready, Failure is raised before any load begins.
    """
    members: list[_Member] = []
    with _interrupts() as interrupted, selectors.DefaultSelector() as selector:
        try:
            # Start one process per host at a time: an ssh server drops connections if too many log in at once.
            at_once = len(hosts) or len(jobs)
            for first in range(0, len(jobs), at_once):
                for index, job in enumerate(jobs[first : first + at_once], first):
                    member = _Member(job, index, hosts[index % len(hosts)] if hosts else None)
                    members.append(member)
                    selector.register(member.output, selectors.EVENT_READ, member)
                _wait(members, selector, time.monotonic() + _READY_SECONDS, interrupted, until=lambda each: each.ready)
                for member in members:
                    if not (member.ready or member.over):
                        member.fail("it was not ready in time")
                    if hosts and member.outcome.trouble and not interrupted:
                        raise Failure(f"{member.outcome.host}: {member.outcome.trouble}")
            if interrupted:
                return Run([member.outcome for member in members], interrupted=True)
            _begin(members)
            stopped = _wait(
                members, selector, time.monotonic() + seconds_max, interrupted, progress=progress, hear=hear
            )
            _collect(members, selector)
        finally:
            for member in members:
                member.end()
        return Run([member.outcome for member in members], bool(interrupted), stopped)


def _begin(members: Sequence[_Member]) -> None:
    """Send all processes the time to begin, by their own clocks."""
    ahead = _START_AHEAD_SECONDS
    for member in members:
        if member.host is not None and not member.over:
            member.outcome.clock = _clock(member)
            # Leave enough time for the message to arrive everywhere.
            ahead = max(ahead, _START_AHEAD_SECONDS + 4 * member.outcome.clock.uncertainty)
    start = time.monotonic() + ahead
    for member in members:
        member.go(start)


def _clock(member: _Member) -> Clock:
    """Compare the clock of another host with ours; the fastest of several pings is the most accurate."""
    best: Clock | None = None
    for number in range(_PINGS):
        sent, now = time.monotonic(), time.time()
        member.say({"ping": number})
        with selectors.DefaultSelector() as selector:
            selector.register(member.output, selectors.EVENT_READ, member)
            while not member.over and (member.pong is None or member.pong["pong"] != number):
                if time.monotonic() - sent > _PING_SECONDS:
                    member.fail(f"it did not answer within {_PING_SECONDS:g} s")
                _listen(selector, 0.1)
        if member.over or member.pong is None:
            raise Failure(f"{member.outcome.host}: {member.outcome.trouble}")
        half = (time.monotonic() - sent) / 2
        clock = Clock(member.pong["monotonic"] - sent - half, member.pong["time"] - now - half, half)
        best = clock if best is None or clock.uncertainty < best.uncertainty else best
    assert best is not None
    return best


def _wait(
    members: Sequence[_Member],
    selector: selectors.BaseSelector,
    deadline: float,
    interrupted: Sequence[int],
    *,
    until: Callable[[_Member], bool] | None = None,
    progress: Progress | None = None,
    hear: Hear | None = None,
) -> bool:
    """Read messages until all members have ended (or ``until`` is true), the deadline passes, or a signal
    interrupts. Return True if ``hear`` ended the run."""
    while not all(member.over or (until is not None and until(member)) for member in members):
        if interrupted or time.monotonic() >= deadline:
            return False
        for member in members:
            member.keep_alive()
        heard = _listen(selector, 0.1)
        words = [member.progress for member in members if member.progress is not None]
        if heard and words and progress is not None:
            progress(words)
        for member in members:
            fresh, member.fresh = member.fresh, []
            if hear is not None and any(hear(member.index, word) for word in fresh):
                return True
    return False


def _listen(selector: selectors.BaseSelector, timeout: float) -> bool:
    ready = selector.select(timeout) if selector.get_map() else []
    for key, _ in ready:
        member: _Member = key.data
        if not member.listen():
            selector.unregister(key.fileobj)
    return bool(ready)


def _collect(members: Sequence[_Member], selector: selectors.BaseSelector) -> None:
    """Ask the running processes for their results, and wait for them."""
    for member in members:
        member.interrupt()
    deadline = time.monotonic() + _STOP_SECONDS
    while not all(member.over for member in members) and time.monotonic() < deadline:
        _listen(selector, 0.1)
    for member in members:
        if not member.over:
            member.fail(f"it did not end within {_STOP_SECONDS:g} s of being asked to")


class _Member:
    """One load process, and the messages exchanged with it."""

    def __init__(self, job: dict[str, Any], index: int, host: Host | None = None) -> None:
        command = [sys.executable, "-m", "kirsch_bench._worker"] if host is None else host.command
        # Keep the error output of a connection to explain its end.
        self._errors = None if host is None else tempfile.TemporaryFile()  # noqa: SIM115  # end() closes it
        try:
            self._process = subprocess.Popen(  # noqa: S603  # ourselves, or the caller's own command
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
            )
        except OSError as error:
            raise Failure(f"cannot start {command[0]} for the load: {error.strerror}") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self.output = self._process.stdout
        self.host = host
        self.outcome = Outcome(host="" if host is None else host.name)
        self.ready = False
        self.over = False
        self.index = index
        self.progress: dict[str, Any] | None = None
        self.fresh: list[dict[str, Any]] = []
        """The reports of progress that nobody has looked at."""
        self.pong: dict[str, Any] | None = None
        self._job = job
        self._begun = False
        self._alive_at = 0.0
        self._line = bytearray()

    def say(self, word: dict[str, Any]) -> None:
        if self.over:
            return
        try:
            self._input.write(json.dumps(word).encode() + b"\n")
            self._input.flush()
        except OSError:
            pass  # the process has ended, which the end of its output shows

    def listen(self) -> bool:
        """Read the output of the process; return False at its end."""
        data = os.read(self.output.fileno(), 1 << 20)
        if not data:
            if not self.over:
                self.fail(f"it ended ({_ending(self._process)}){self._last_words()}")
            return False
        *lines, rest = (self._line + data).split(b"\n")
        self._line = bytearray(rest)
        for line in lines:
            try:
                word = json.loads(line)
            except ValueError:
                # output of another program, such as shell startup files
                continue
            self._hear(word)
        return True

    def _hear(self, word: dict[str, Any]) -> None:
        if "result" in word:
            self.outcome.result = word["result"]
            self.over = True
        elif "failed" in word:
            self.fail(word["failed"])
        elif "progress" in word:
            self.progress = word["progress"]
            self.fresh.append(word["progress"])
        elif "pong" in word:
            self.pong = word
        elif "ready" in word:
            self.ready = True
        elif "version" in word:
            if word["version"] != VERSION:
                self.fail(f"it has kirsch-bench {word['version']}, and this is {VERSION}; install the same version")
            else:
                self.say(self._job)

    def fail(self, why: str) -> None:
        self.outcome.trouble = why
        self.over = True

    def go(self, start: float) -> None:
        """Send the time to begin, given by our clock."""
        clock = self.outcome.clock
        self.say({"go": start + (clock.monotonic if clock is not None else 0.0)})
        self._begun = True

    def keep_alive(self) -> None:
        """Tell another host periodically that this process is alive."""
        if self.host is not None and self._begun and time.monotonic() >= self._alive_at:
            self._alive_at = time.monotonic() + _ALIVE_SECONDS
            self.say({"alive": True})

    def interrupt(self) -> None:
        if self.over or self._process.poll() is not None:
            return
        if self.host is None:
            self._process.send_signal(signal.SIGINT)
        else:
            self.say({"stop": True})

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(0)
        lines = self._errors.read(1 << 20).decode("utf-8", "backslashreplace").split("\n")
        words = [line.strip() for line in lines if line.strip()]
        return f": {words[-1]}" if words else ""

    def end(self) -> None:
        """Reap the process; kill it if it does not exit."""
        with contextlib.suppress(OSError):
            self._input.close()
        try:
            self._process.wait(1.0 if self.over else 0.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.output.close()
        if self._errors is not None:
            self._errors.close()


def _ending(process: subprocess.Popen[bytes]) -> str:
    try:
        status = process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        return "without a word"
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"by signal {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """A context manager: returns a list to which SIGINT and SIGTERM are appended; a second signal ends this process."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def note(number: int, _frame: object) -> None:
        caught.append(number)
        signal.signal(number, before[number])

    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, note)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
