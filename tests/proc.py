"""Reads the kernel's view of a process: memory, processor time, open files. For tests of what a server uses."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_TICKS = os.sysconf("SC_CLK_TCK")


def rss(pid: int) -> int:
    """Resident memory of process ``pid`` in bytes, counted page by page (``VmRSS`` alone may lag behind)."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    found = re.search(r"^Rss: +([0-9]+) kB$", rollup, re.MULTILINE)
    assert found is not None, rollup
    return int(found[1]) * 1024


def uss(pid: int) -> int:
    """Memory that is process ``pid``'s alone, in bytes: what would come back if it ended."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    private = re.findall(r"^Private_(?:Clean|Dirty): +([0-9]+) kB$", rollup, re.MULTILINE)
    return sum(map(int, private)) * 1024


def cpu_seconds(pid: int) -> float:
    """Processor time that process ``pid`` has used, in seconds, in user and in kernel mode together."""
    # The second field is the command in parentheses and may hold anything; utime and stime are the 14th and 15th.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def cpu_share(pid: int, seconds: float) -> float:
    """The share of one processor that process ``pid`` uses during the next ``seconds``."""
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - began)


def open_files(pid: int) -> int:
    """Open descriptors of process ``pid``."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def descriptors(pid: int) -> dict[str, str]:
    """The open descriptors of process ``pid``: their numbers, and the path or name (socket:[5]) that each refers to."""
    found = {}
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found[each.name] = os.readlink(each)
    return found


def listening(pid: int) -> set[str]:
    """The sockets of process ``pid`` that listen on TCP, by the names that :func:`descriptors` has."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}.intersection(descriptors(pid).values())


def files_without_name(pid: int) -> int:
    """Open files of process ``pid`` that have been unlinked, as those are that spooled bodies are kept in."""
    # The scoreboard is such a file too, in memory, and up to CPython 3.12 mmap keeps a descriptor of it.
    names = descriptors(pid).values()
    return sum(name.endswith(" (deleted)") and not name.startswith("/memfd:") for name in names)


def raise_descriptor_limit(wanted: int) -> bool:
    """Let this process open ``wanted`` files; False where its hard limit forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        return False
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return True


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
    """Look at ``condition`` every few milliseconds until it holds: for what no descriptor announces.

    Raises AssertionError with ``what`` when it does not within ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"within {timeout} s it did not come about that {what}"
        time.sleep(0.005)


def settled(measure: Callable[[], int], tolerance: int, rounds: int = 10, timeout: float = 30.0) -> int:
    """The value of ``measure`` once it has stayed within ``tolerance`` for ``rounds`` looks, 50 ms apart.

    Raises AssertionError when it still moves after ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    values = [measure()]
    while len(values) < rounds or max(values[-rounds:]) - min(values[-rounds:]) > tolerance:
        assert time.monotonic() < deadline, f"still moving after {timeout} s: {values[-rounds:]}"
        time.sleep(0.05)
        values.append(measure())
    return values[-1]
