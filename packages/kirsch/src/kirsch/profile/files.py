"""The names of the files in a folder of profiles, for :mod:`kirsch.middleware.profiler` and its viewer."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kirsch.profile.wsgi import Run

NAME = re.compile(
    r"(?P<time>\d{8}T\d{6}\.\d{6})-(?P<method>[A-Z]{1,12})-(?P<path>[\w.~+-]*)-(?P<us>\d+)us-\d+-\d+\.prof", re.ASCII
)
"""The file of one request: its time (UTC), its method and path, its microseconds, the process, a number."""

AGGREGATE_NAME = re.compile(r"all-\d+\.prof", re.ASCII)
"""The file of all requests of a process."""


def file_name(run: Run, number: int) -> str:
    """Return the file name for a request; ``number`` counts the files of this process. Names sort by time."""
    seconds = int(run.started)
    when = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
    method = re.sub(r"[^A-Z]", "", run.method.upper())[:12] or "X"
    path = re.sub(r"[^A-Za-z0-9._~+-]+", "_", run.path).strip("_.")[:80]
    micros = int((run.started - seconds) * 1e6)
    return f"{when}.{micros:06d}-{method}-{path}-{run.nanoseconds // 1000}us-{os.getpid()}-{number}.prof"


def aggregate_name(process: int) -> str:
    """Return the name of the file for all requests of the process with the pid ``process``."""
    return f"all-{process}.prof"
