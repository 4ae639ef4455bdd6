"""The files whose change starts a reload (``--reload`` and ``--touch-reload``): the supervisor's side."""

from __future__ import annotations

import os
import sys
import time

from kirsch import _native, bootstrap
from kirsch.reports import ERROR, short_path
from kirsch.supervisor.scaling_policy import CHECK_SECONDS
from kirsch.supervisor.worker_plan import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kirsch.config.schema import Settings
    from kirsch.supervisor.event_loop import EventLoop
    from kirsch.supervisor.inotify import InotifyWatcher
    from kirsch.supervisor.service import Service
    from kirsch.supervisor.watching import Touches, WatchfilesWatcher


class ReloadTriggers:
    """Watches files, and calls ``reload(why)`` when one has changed."""

    def __init__(self, service: Service, loop: EventLoop, reload: Callable[[str], None]) -> None:
        self._service = service
        self._loop = loop
        self._reload = reload
        self._watch: WatchfilesWatcher | InotifyWatcher | None = None
        self._touches: Touches | None = None
        self._checked_at = time.monotonic()

    def start(self) -> None:
        """Start watching, if the settings require it. Raises StartupError."""
        chosen = self._service.chosen
        if not (chosen.reload or chosen.touch_reload):
            return
        from kirsch.supervisor import watching

        self._touches = watching.Touches(chosen.touch_reload) if chosen.touch_reload else None
        if not chosen.reload:
            return
        # The watcher needs the application's module path. Restore the supervisor's own path afterwards, because it must
        # not import an application module instead of one of its own with the same name.
        path = sys.path.copy()
        bootstrap.extend_path(chosen)
        try:
            self._watch = _watch_sources(chosen.reload_extra_files, _written_by_the_server(chosen))
        except watching.WatchError as error:
            raise bootstrap.StartupError(bootstrap.EXIT_FAILED, str(error)) from None
        finally:
            sys.path[:] = path
        self._loop.add_reader(self._watch.fileno(), self._on_change)

    def describe(self) -> str:
        """Return a description of the watched files in one line; empty if none is watched."""
        return "" if self._watch is None else self._watch.describe()

    def due(self) -> float:
        """Return the time at which :meth:`run_due` must be called."""
        if self._service.is_stopping:
            return NEVER
        touches_at = NEVER if self._touches is None else self._checked_at + CHECK_SECONDS
        return touches_at if self._watch is None else min(touches_at, self._watch.due())

    def run_due(self, now: float) -> None:
        if now < self.due():
            return
        if self._touches is not None and now >= self._checked_at + CHECK_SECONDS:
            self._checked_at = now
            if touched := self._touches.changed():
                self._reload(f"{touched[0]} was touched")
        self._with_watch(lambda watch: watch.take(now))

    def stop(self) -> None:
        """Stop watching; :meth:`start` may follow."""
        if self._watch is not None:
            self._loop.remove_reader(self._watch.fileno())
            self.close()

    def close(self) -> None:
        """Close the watcher. In a forked child, that does not affect the parent's watcher."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _on_change(self) -> None:
        self._with_watch(lambda watch: watch.read())

    def _with_watch(self, ask: Callable[[WatchfilesWatcher | InotifyWatcher], list[str]]) -> None:
        """Call ``ask`` with the watcher, and start a reload for the changes that it returns."""
        from kirsch.supervisor import watching

        if self._watch is None:
            return
        try:
            changed = ask(self._watch)
        except watching.WatchError as error:
            self._service.report(ERROR, str(error))
            self.stop()
        else:
            if changed:
                self._reload(f"{short_path(changed[0])} has changed")


def _written_by_the_server(chosen: Settings) -> list[str]:
    """Return the files that the server writes. Their changes must not start a reload."""
    paths = (chosen.access_logfile, chosen.error_logfile, chosen.pid_file)
    return [os.path.abspath(path) for path in paths if path not in ("", "-")]


def _watch_sources(extra: Iterable[str], ignored: Iterable[str]) -> WatchfilesWatcher | InotifyWatcher:
    """Watch the application's sources, with inotify if the system has it. Raises WatchError."""
    from kirsch.supervisor import watching

    if not hasattr(_native, "Inotify") or os.environ.get("WATCHFILES_FORCE_POLLING"):
        return watching.WatchfilesWatcher(extra)
    from kirsch.supervisor.inotify import InotifyWatcher

    patterns = [os.path.abspath(pattern) for pattern in extra]
    return InotifyWatcher(watching.Selection(watching.source_directories(sys.path), patterns, ignored))
