"""Profiles of single requests, or of all together, as ``.prof`` files; and a page that shows them.

::

    from kirsch.middleware.profiler import make_app

    app = make_app(app, "/var/tmp/profiles")                            # a file for each request
    app = make_app(app, "/var/tmp/profiles", aggregate=True)            # one for all requests of a process
    app = make_app(app, "/var/tmp/profiles", viewer="/__profiles__")    # and a page at that path

The profile covers the call of the application, each step of its iterable, and its ``close()``; blocks are not
collected. :mod:`kirsch.profile.tracer` explains the measurement, its cost, and why cProfile is not used: concurrent
requests in threads or greenlets are profiled separately. If a file cannot be written, the request is not affected. The
error is reported in one line to ``wsgi.errors``, once until writing succeeds again.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from kirsch.profile import stats
from kirsch.profile.files import NAME, aggregate_name, file_name
from kirsch.profile.tracer import is_free
from kirsch.profile.wsgi import traced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kirsch.profile.stats import Stats
    from kirsch.profile.wsgi import Run, WsgiApplication

KEEP = 100
"""The number of files of requests that are kept; the oldest are removed."""

WRITE_SECONDS = 1.0
"""The minimum interval in which the file of all requests is written, while requests come; it is also written at
exit."""


def make_app(
    app: WsgiApplication,
    path: str | os.PathLike[str],
    aggregate: bool = False,
    *,
    keep: int = KEEP,
    viewer: str = "",
) -> Profiler:
    """Return an application that profiles the requests to ``app`` in files of the folder ``path``, which is created.
    Each request gets a file; the last ``keep`` files are kept. With ``aggregate`` each process gets one file of all its
    requests. ``viewer`` is a path, such as ``/__profiles__``, for a page that shows the profiles to every client, so
    use it only in development or with access control. Raises ValueError for a ``keep`` below 1, or a ``viewer`` that is
    no path.
    """
    return Profiler(app, os.fspath(path), aggregate=aggregate, keep=keep, viewer=viewer)


class Profiler:
    """The WSGI application that :func:`make_app` returns."""

    def __init__(self, app: WsgiApplication, path: str, *, aggregate: bool, keep: int, viewer: str) -> None:
        if keep < 1:
            raise ValueError(f"keep: {keep} is too small; the minimum is 1")
        if viewer and (not viewer.startswith("/") or viewer.endswith("/")):
            raise ValueError(f"viewer: {viewer!r} is no path such as '/__profiles__'")
        self._app = app
        self._folder = os.path.abspath(path)
        self._viewer = viewer
        self._keeper = _All(self._folder) if aggregate else _Each(self._folder, keep)
        self._lock = threading.Lock()
        self._complained = False
        self.unfollowed = 0
        """Requests that were served without a profile, because another profiler was active in their thread."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if self._viewer:
            path = environ.get("PATH_INFO", "")
            if path == self._viewer or path.startswith(self._viewer + "/"):
                from kirsch.middleware import profiler_viewer  # imported here, because the page is for development

                self._keep_safe(environ, self._keeper.flush)
                return profiler_viewer.respond(environ, start_response, self._folder)
        if not is_free():
            with self._lock:
                self.unfollowed += 1
            return self._app(environ, start_response)
        returned: Iterable[bytes] = traced(
            self._app, environ, start_response, lambda run: self._keep_safe(environ, lambda: self._keeper.keep(run))
        )
        return returned

    def flush(self) -> None:
        """Write unwritten data to the file of all requests. Raises OSError."""
        self._keeper.flush()

    def _keep_safe(self, environ: dict[str, Any], keep: Any) -> None:
        try:
            keep()
            self._complained = False
        except OSError as error:
            if not self._complained:
                self._complained = True
                reason = f"{error.strerror or error}: {error.filename or self._folder}"
                environ["wsgi.errors"].write(f"kirsch.middleware.profiler: a profile could not be written: {reason}\n")
                environ["wsgi.errors"].flush()


class _Each:
    """Writes a file for each request."""

    def __init__(self, folder: str, most: int) -> None:
        self._folder = folder
        self._most = most
        self._lock = threading.Lock()
        self._number = 0

    def keep(self, run: Run) -> None:
        root = run.tracer.root
        with self._lock:
            self._number += 1
            name = file_name(run, self._number)
        os.makedirs(self._folder, exist_ok=True)
        stats.write(os.path.join(self._folder, name), stats.of(root), _about(run), stats.plain(root))
        with self._lock:
            # The names begin with the time. Other processes may remove files too.
            names = sorted(name for name in os.listdir(self._folder) if NAME.fullmatch(name))
            for old in names[: -self._most]:
                try:
                    os.unlink(os.path.join(self._folder, old))
                except FileNotFoundError:
                    pass  # another process was faster

    def flush(self) -> None:
        """Do nothing: nothing is buffered here."""


class _All:
    """Writes one file for all requests of this process."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()  # protects the counts
        self._writing = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._stats: Stats = {}
        self._requests = 0
        self._written = 0
        self._nanoseconds = 0
        self._since = time.time()
        self._due = 0.0
        atexit.register(self._flush_at_exit)

    def keep(self, run: Run) -> None:
        more = stats.of(run.tracer.root)
        with self._lock:
            if self._process != os.getpid():
                self._reset()  # after a fork: the earlier counts belong to the parent
            stats.add(self._stats, more)
            self._requests += 1
            self._nanoseconds += run.nanoseconds
            is_due = time.monotonic() >= self._due
        if is_due and self._writing.acquire(blocking=False):
            try:
                self._write()
            finally:
                self._writing.release()

    def flush(self) -> None:
        with self._writing:
            if self._process == os.getpid() and self._written != self._requests:
                self._write()

    def _flush_at_exit(self) -> None:
        try:
            self.flush()
        except OSError:
            pass  # it was reported during a request, and cannot be reported at exit

    def _write(self) -> None:
        with self._lock:
            self._due = time.monotonic() + WRITE_SECONDS
            counted = {name: (*row[:4], dict(row[4])) for name, row in self._stats.items()}
            requests = self._requests
            about = {"requests": requests, "since": self._since, "nanoseconds": self._nanoseconds}
        os.makedirs(self._folder, exist_ok=True)
        stats.write(os.path.join(self._folder, aggregate_name(self._process)), counted, about)
        self._written = requests


def _about(run: Run) -> dict[str, Any]:
    return {
        "method": run.method,
        "path": run.path,
        "started": run.started,
        "nanoseconds": run.nanoseconds,
        "raised": run.raised,
    }
