"""The processes that make the load. They are started together, begin to send together, and always end.

Each is a fresh interpreter (``python -m kirsch_bench._worker``) that is sent one job and answers in lines of JSON::

    us     {"kind": "plan", ...}                  the job
    it     {"ready": true}                        everything is loaded
    us     {"go": 1234.5}                         when all are ready: time.monotonic() to begin at, common to all
    it     {"progress": {...}}                    a few times a second
    it     {"result": {...}} or {"failed": "…"}   once; then it ends

SIGINT makes a process report what it has so far. Only this process sends it, because each load process is a session of
its own. If this process dies, a load process reads the end of its input and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kirsch_bench.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Progress = Callable[[Sequence[dict[str, Any]]], object]
    Hear = Callable[[int, dict[str, Any]], bool]

_READY_SECONDS = 60.0
"""Importing takes a tenth of a second; the rest is for a loaded machine and a large test module."""

_STOP_SECONDS = 10.0
"""The time in which a process must report its result after SIGINT."""

_START_AHEAD_SECONDS = 0.05
"""The time in which all processes read the message before the load begins."""


@dataclass
class Outcome:
    """The outcome of one process: its result, or why there is none."""

    result: dict[str, Any] | None = None
    trouble: str = ""


@dataclass
class Run:
    """The outcomes of all processes, in the order of their jobs. ``interrupted``: a signal ended the run early;
    ``stopped``: ``hear`` did."""

    outcomes: list[Outcome]
    interrupted: bool = False
    stopped: bool = False


def run(
    jobs: Sequence[dict[str, Any]], *, seconds_max: float, progress: Progress | None = None, hear: Hear | None = None
) -> Run:
    """Run each job in a process of its own and return when all have ended.

    ``seconds_max`` bounds the work from the start on; a process that takes longer has to report what it has, and is
    then killed. ``progress`` is called with the latest word of each that has spoken. ``hear`` is called with each
    word and the index of its process, and ends the run if it returns True.
    """
    members: list[_Member] = []
    with _interrupts() as interrupted, selectors.DefaultSelector() as selector:
        try:
            for index, job in enumerate(jobs):
                member = _Member(job, index)
                members.append(member)
                selector.register(member.output, selectors.EVENT_READ, member)
            _wait(members, selector, time.monotonic() + _READY_SECONDS, interrupted, until=lambda each: each.ready)
            for member in members:
                if not (member.ready or member.over):
                    member.fail("it was not ready in time")
            start = time.monotonic() + _START_AHEAD_SECONDS
            for member in members:
                member.say({"go": start})
            stopped = _wait(members, selector, start + seconds_max, interrupted, progress=progress, hear=hear)
            _collect(members, selector)
        finally:
            for member in members:
                member.end()
        return Run([member.outcome for member in members], bool(interrupted), stopped)


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
    """Listen until each member is over (or ``until`` of it), the deadline passes, or a signal interrupts it. Returns
    True if ``hear`` ended it."""
    while not all(member.over or (until is not None and until(member)) for member in members):
        if interrupted or time.monotonic() >= deadline:
            return False
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
    """Make the processes that are still running report their results."""
    for member in members:
        member.interrupt()
    deadline = time.monotonic() + _STOP_SECONDS
    while not all(member.over for member in members) and time.monotonic() < deadline:
        _listen(selector, 0.1)
    for member in members:
        if not member.over:
            member.fail(f"it did not end within {_STOP_SECONDS:g} s of being asked to")


class _Member:
    """One process and the messages between it and this one."""

    def __init__(self, job: dict[str, Any], index: int) -> None:
        try:
            self._process = subprocess.Popen(  # ourselves
                [sys.executable, "-m", "kirsch_bench._worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise Failure(f"cannot start a process for the load: {error.strerror}") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self.output = self._process.stdout
        self.outcome = Outcome()
        self.ready = False
        self.over = False
        self.index = index
        self.progress: dict[str, Any] | None = None
        self.fresh: list[dict[str, Any]] = []
        """The reports of progress that nobody has looked at."""
        self._line = bytearray()
        self.say(job)

    def say(self, word: dict[str, Any]) -> None:
        if self.over:
            return
        try:
            self._input.write(json.dumps(word).encode() + b"\n")
            self._input.flush()
        except OSError:
            pass  # it has ended, which the end of its output shows

    def listen(self) -> bool:
        """Read its output; False at the end of it."""
        data = os.read(self.output.fileno(), 1 << 20)
        if not data:
            if not self.over:
                self.fail(f"it ended ({_ending(self._process)})")
            return False
        *lines, rest = (self._line + data).split(b"\n")
        self._line = bytearray(rest)
        for line in lines:
            self._hear(json.loads(line))
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
        elif "ready" in word:
            self.ready = True

    def fail(self, why: str) -> None:
        self.outcome.trouble = why
        self.over = True

    def interrupt(self) -> None:
        if not self.over and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """Reap the process. One that does not end is killed."""
        with contextlib.suppress(OSError):
            self._input.close()
        try:
            self._process.wait(1.0 if self.over else 0.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.output.close()


def _ending(process: subprocess.Popen[bytes]) -> str:
    try:
        status = process.wait(1.0)
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
    """A list that SIGINT and SIGTERM append to meanwhile; a second one of either ends us as usual."""
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
