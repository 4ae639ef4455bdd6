"""A wall clock that is set while the server runs: a day ahead, and two days back.

A library that is loaded before the C library answers for CLOCK_REALTIME with an offset that the test changes; the
clock of the machine stays as it is.
"""

from __future__ import annotations

import email.utils
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

from proc import wait_until
from supervised import APP, in_background

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

    Write = Callable[[str], str]

_SOURCE = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
    int fd = open(getenv("WALL_CLOCK_OFFSET"), O_RDONLY | O_CLOEXEC);
    offset = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec time;
    int result = clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return result;
}

time_t time(time_t *copy) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (copy) *copy = now.tv_sec;
    return now.tv_sec;
}
"""

DAY = 86400


class Clock:
    """What ``environment`` is given to sees this clock."""

    def __init__(self, folder: Path, compiler: str) -> None:
        self._offset = folder / "offset"
        self.set(0)
        source, library = folder / "clock.c", folder / "clock.so"
        source.write_text(_SOURCE)
        subprocess.run([compiler, "-shared", "-fPIC", "-O", "-o", library, source], check=True, timeout=60)
        self.environment = {"LD_PRELOAD": str(library), "WALL_CLOCK_OFFSET": str(self._offset)}

    def set(self, seconds: int) -> None:
        """So many seconds ahead of the right time."""
        with open(self._offset, "r+b" if self._offset.exists() else "wb") as file:
            file.write(seconds.to_bytes(8, sys.byteorder, signed=True))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("a C compiler on Linux is needed to have another clock")
    return Clock(tmp_path, compiler)


def date(site: Running) -> float:
    """The server's clock: how far it is ahead, in seconds."""
    with urllib.request.urlopen(site.url, timeout=20) as response:
        found = response.headers["Date"]
    return email.utils.parsedate_to_datetime(found).timestamp() - time.time()


@pytest.mark.slow
def test_setting_the_clock_changes_nothing(serve: Serve, write_app: Write, clock: Clock) -> None:
    site = serve(
        write_app(APP), "-w2", "--deadlock-timeout=3s", "--max-lifetime=1h", "--inactivity-timeout=1h",
        "--timeout=10s", "--startup-timeout=10s", "--graceful-timeout=10s", env=clock.environment,
    )  # fmt: skip
    workers = site.wait_for_workers(2)
    before = site.stderr
    for offset in (DAY, -DAY, 0):
        waits = site.stderr.count("waits")
        answer = in_background(site, "/wait?0.5")
        wait_until(lambda waits=waits: site.stderr.count("waits") > waits, "a request is under way")  # type: ignore[misc]
        clock.set(offset)
        wait_until(lambda offset=offset: abs(date(site) - offset) < 10, f"the Date is {offset} s ahead")  # type: ignore[misc]
        assert int(answer()) in workers
        # Longer than workers may be silent.
        until = time.monotonic() + 3.5
        wait_until(lambda until=until: time.monotonic() > until, "a late process would have been killed by now")  # type: ignore[misc]
        assert site.worker_pids() == workers
    assert site.stderr.replace("waits\n", "") == before, "no process has reported anything"
    for number in (signal.SIGHUP, signal.SIGUSR2):
        clock.set(DAY)
        site.said_at(number, f"{number.name}: done, 2 workers")
        clock.set(-DAY)
        workers = site.wait_for_workers(2, without=workers)
        assert int(site.page()) in workers
    os.kill(workers[0], signal.SIGKILL)
    site.wait_for("was killed by SIGKILL; another is started")
    clock.set(0)
    site.wait_for_workers(2, without=workers[:1])
    assert site.stop() == 0
