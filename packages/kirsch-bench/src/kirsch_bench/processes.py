"""A server process: started in a new session, watched through ``/proc``, ended with all its children. Its usage is the
sum over its session and its descendants (proc(5)): processes that ended count through those that waited for them.
``/proc/pid/stat`` rounds the time of each process down to ticks of mostly 10 ms, which would hide most of what a
hundred processes use in a second; each process's processor clock (clock_getcpuclockid(3)) has nanoseconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_END_SECONDS = 3.0
"""The seconds that a server gets to end itself and its own processes, before it is killed."""

_TAIL = 16384
"""Bytes of its last words that are kept."""

_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@contextlib.contextmanager
def held() -> Iterator[None]:
    """A context manager that delays Ctrl-C and similar signals until its end, so that no process is left behind
    while one is being started or ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, lambda received, _: caught.append(received))
    try:
        yield
    finally:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)
    if caught:
        raise KeyboardInterrupt


@dataclass(frozen=True)
class Usage:
    """The CPU time in seconds and the context switches of all processes of a server so far."""

    at: float
    """time.time()."""
    user: float
    system: float
    voluntary: int = 0
    involuntary: int = 0
    front: float = 0.0
    """Of ``user`` and ``system``, what the programs in front of the application have used."""


@dataclass(frozen=True)
class Memory:
    """The memory of all processes in bytes; ``pss`` is 0 if the system does not report it."""

    rss: int
    pss: int
    threads: int
    processes: int


@dataclass
class _Stat:
    pid: int
    parent: int
    session: int
    user: float
    """Seconds."""
    system: float
    threads: int
    resident: int
    name: str = ""


class Server:
    """One server process, from its start on."""

    def __init__(
        self, command: Sequence[str], *, directory: str, environment: Mapping[str, str], front: Sequence[str] = ()
    ) -> None:
        """``front`` are names of programs whose usage is counted separately. Raises OSError if there is no such
        program."""
        self._front = frozenset(front)
        self.started = time.time()
        self._monotonic = time.monotonic()
        self._is_over = False
        self._process = subprocess.Popen(  # noqa: S603 - whatever the survey names
            list(command),
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self._tail = _Tail(self._process.stdout)

    @property
    def age(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self._monotonic

    @property
    def ending(self) -> str:
        """How the server ended, in a few words; empty while it or any of its children is alive."""
        status = self._process.poll()
        if status is None or any(map(_lives, self.pids())):
            return ""
        if status >= 0:
            return f"it ended with exit status {status}"
        try:
            return f"it died of {signal.Signals(-status).name}"
        except ValueError:
            return f"it died of signal {-status}"

    @property
    def last_words(self) -> str:
        """Return the last line of the server's output."""
        self._tail.settle()
        return self._tail.last_line()

    def usage(self) -> Usage:
        """Return the usage so far."""
        return self.usage_of(self.pids())

    def usage_of(self, pids: Sequence[int]) -> Usage:
        """Return the usage of some of the server's processes so far."""
        return usage_of(pids, self._front)

    def pids(self) -> list[int]:
        """Return the pids of the server's processes."""
        return [stat.pid for stat in _family(self.pid)]

    def memory(self) -> Memory:
        """Return the current memory usage."""
        stats = _family(self.pid)
        return Memory(
            rss=sum(stat.resident for stat in stats) * _PAGE,
            pss=sum(_pss(stat.pid) for stat in stats),
            threads=sum(stat.threads for stat in stats),
            processes=len(stats),
        )

    def end(self) -> None:
        """Terminate the server and its children, by force if needed; return when all have ended. May be called
        again."""
        if self._is_over:
            return
        self._is_over = True
        family = set(self.pids())
        try:
            self._ask_to_end(family)
        finally:
            # Also if the caller's deadline has passed meanwhile.
            family |= set(self.pids())
            _signal(self.pid, {pid for pid in family if _lives(pid)}, signal.SIGKILL)
            self._process.wait()
            self._tail.close()

    def _ask_to_end(self, family: set[int]) -> None:
        # Only the leader: it may have to end its workers in order.
        self._process.terminate()
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None and not any(map(_lives, family)):
                return
            time.sleep(0.01)


_SCAN_SECONDS = 1.0
"""How often a watch looks for new processes; looking through all of a machine's is not for free."""


class Watched(Protocol):
    """The interface of processes that a watch samples."""

    def pids(self) -> list[int]:
        """Return the pids of the processes."""

    def usage(self) -> Usage:
        """Return their usage so far."""

    def usage_of(self, pids: Sequence[int]) -> Usage:
        """Return the usage of some of them so far."""


class Watch:
    """Samples the usage of a server in a thread, so that the usage between two moments can be computed later. Usage is
    interpolated between samples, which is wrong where a load begins or ends: ``aim`` schedules samples for these
    moments.
    """

    def __init__(self, server: Watched, every: float = 0.25) -> None:
        self.samples: list[Usage] = []
        self.pids: list[int] = []
        """Of the last time that new ones were looked for."""
        self._server = server
        self._every = every
        self._aims: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def aim(self, *moments: float) -> None:
        """Schedule a sample at each of ``moments`` (time.time()), instead of those scheduled before."""
        self._aims = sorted(moment for moment in moments if moment > time.time())

    def __enter__(self) -> Watch:
        self.pids = self._server.pids()
        self.samples.append(self._server.usage_of(self.pids))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.samples.append(self._server.usage())

    def _run(self) -> None:
        scanned = -_SCAN_SECONDS
        while not self._over.wait(self._pause()):
            if time.monotonic() - scanned >= _SCAN_SECONDS:
                scanned = time.monotonic()
                self.pids = self._server.pids()
            self.samples.append(self._server.usage_of(self.pids))

    def _pause(self) -> float:
        now = time.time()
        ahead = next((moment for moment in self._aims if moment > now), now + self._every)
        return min(self._every, ahead - now)

    def between(self, start: float, end: float) -> Usage:
        """Return the usage from ``start`` to ``end`` (time.time()). If the server has died, the system has lost its
        usage: then return the usage until the last sample."""
        samples = [self.samples[0]]
        for sample in self.samples[1:]:
            if sample.user + sample.system >= samples[-1].user + samples[-1].system:
                samples.append(sample)
        first, last = _at(samples, start), _at(samples, end)
        return Usage(
            at=end - start,
            user=last.user - first.user,
            system=last.system - first.system,
            voluntary=max(0, last.voluntary - first.voluntary),
            involuntary=max(0, last.involuntary - first.involuntary),
            front=max(0.0, last.front - first.front),
        )


def _at(samples: Sequence[Usage], moment: float) -> Usage:
    """Return the usage at a moment, interpolated between two samples."""
    before = max((each for each in samples if each.at <= moment), key=lambda each: each.at, default=samples[0])
    after = min((each for each in samples if each.at > moment), key=lambda each: each.at, default=samples[-1])
    if after.at <= before.at:
        return before
    share = min(1.0, max(0.0, (moment - before.at) / (after.at - before.at)))

    def mix(name: str) -> float:
        low, high = getattr(before, name), getattr(after, name)
        return float(low + (high - low) * share)

    return Usage(moment, mix("user"), mix("system"), round(mix("voluntary")), round(mix("involuntary")), mix("front"))


class _Tail:
    """Reads the output of a server, so that it never blocks, and keeps the end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._kept = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self._stream.fileno(), 65536):
                self._kept = (self._kept + data)[-_TAIL:]

    def settle(self) -> None:
        """Wait until the output of an ended process has been read completely."""
        self._thread.join(0.5)

    def last_line(self) -> str:
        """Return the last line that contains a word."""
        lines = [line.strip() for line in self._kept.decode(errors="replace").splitlines()]
        lines = [line for line in lines if sum(map(str.isalnum, line)) > 2]
        return "".join(c if c.isprintable() else " " for c in lines[-1])[:300] if lines else ""

    def close(self) -> None:
        self._thread.join(0.5)
        if not self._thread.is_alive():
            self._stream.close()


# -------------------------------------------------------------------------------------------------------------- /proc


def usage_of(pids: Sequence[int], front: frozenset[str] = frozenset()) -> Usage:
    """Return the usage of processes so far, and apart from it that of the programs ``front``."""
    stats = [stat for stat in map(_stat, pids) if stat is not None]
    switches = [_switches(stat.pid) for stat in stats]
    return Usage(
        at=time.time(),
        user=sum(stat.user for stat in stats),
        system=sum(stat.system for stat in stats),
        voluntary=sum(each[0] for each in switches),
        involuntary=sum(each[1] for each in switches),
        front=sum(stat.user + stat.system for stat in stats if stat.name in front),
    )


def family(roots: frozenset[int]) -> list[int]:
    """Return the pids of living processes and their descendants."""
    stats = _all_processes()
    return [stat.pid for stat in _with_descendants({pid for pid in roots if pid in stats}, stats)]


def _family(pid: int) -> list[_Stat]:
    """Return the living processes of a session and their descendants."""
    stats = _all_processes()
    return _with_descendants({number for number, stat in stats.items() if stat.session == pid}, stats)


def _all_processes() -> dict[int, _Stat]:
    try:
        numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return {}
    return {stat.pid: stat for stat in map(_stat, numbers) if stat is not None}


def _with_descendants(found: set[int], stats: Mapping[int, _Stat]) -> list[_Stat]:
    grown = True
    while grown:
        more = {number for number, stat in stats.items() if stat.parent in found and number not in found}
        found |= more
        grown = bool(more)
    return [stats[number] for number in sorted(found)]


def _stat(pid: int) -> _Stat | None:
    """Parse /proc/pid/stat (proc(5)), in which the name may contain blanks and parentheses."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, rest = file.read().rpartition(b")")
    except OSError:
        return None
    fields, name = rest.split(), head.partition(b"(")[2].decode(errors="replace")
    user, system = int(fields[11]) / _TICK, int(fields[12]) / _TICK
    if fields[0] in (b"Z", b"X"):
        # The CPU time of a dead process is not added to its parent's before the parent has waited for it.
        return _Stat(pid, int(fields[1]), int(fields[3]), user, system, 0, 0, name)
    exact = _processor_clock(pid)
    if exact is not None:
        share = user / (user + system) if user + system else 0.5
        user, system = exact * share, exact * (1 - share)
    return _Stat(
        pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        user=user + int(fields[13]) / _TICK,
        system=system + int(fields[14]) / _TICK,
        threads=int(fields[17]),
        resident=int(fields[21]),
        name=name,
    )


_CLOCK_OF_PROCESS = 2
"""CPUCLOCK_SCHED: the processor time of all threads, also of those that have ended."""


def _processor_clock(pid: int) -> float | None:
    """Return the CPU time of a process in seconds, without its children; None if the system has no such clock. As in
    glibc, the number of the clock is made from the complement of the pid and the kind."""
    try:
        return time.clock_gettime((~pid << 3) | _CLOCK_OF_PROCESS)
    except (OSError, AttributeError):
        return None


def _switches(pid: int) -> tuple[int, int]:
    voluntary = involuntary = 0
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return 0, 0
    for task in tasks:
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/task/{task}/status", "rb") as file:
            for line in file:
                if line.startswith(b"voluntary_ctxt_switches:"):
                    voluntary += int(line.split()[1])
                elif line.startswith(b"nonvoluntary_ctxt_switches:"):
                    involuntary += int(line.split()[1])
    return voluntary, involuntary


def _pss(pid: int) -> int:
    """Return the proportional memory (PSS) of a process in bytes."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _lives(pid: int) -> bool:
    """Return whether the process exists and is no zombie."""
    stat = _stat(pid)
    return stat is not None and stat.threads > 0


def _signal(leader: int, pids: set[int], number: signal.Signals) -> None:
    if pids:
        # Signal the group too, for processes that were started just now.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, number)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
