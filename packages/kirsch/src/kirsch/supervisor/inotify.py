"""A watcher of source files with inotify(7), which needs no other package, process or thread. For --reload on Linux. An
inotify watch reports events for the entries of one directory, so each directory has a watch. A directory is first
watched and then read, so that a file created in between is found twice rather than missed. The same is done for
directories that are created later. inotify does not report that a top directory was replaced: it may have been removed
and created again, or be reached by a symbolic link that has changed. That is checked once a second. Symbolic links to
directories below a top directory are not followed.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from kirsch import _native
from kirsch.reports import short_path
from kirsch.supervisor.watching import LEFT_OUT, Selection, WatchError, remove_bytecode
from kirsch.supervisor.worker_plan import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Constants of inotify(7).
_CREATE, _MOVED_TO, _MOVED_FROM, _DELETE = 0x100, 0x80, 0x40, 0x200
_DELETE_SELF, _MOVE_SELF, _UNMOUNT, _OVERFLOW, _IGNORED, _ISDIR = 0x400, 0x800, 0x2000, 0x4000, 0x8000, 0x40000000

# Changes are reported after this pause without another change, or after this many seconds at most: an editor writes one
# file in several steps, and a checkout of another branch writes many files.
_PAUSE_SECONDS = 0.05
_PATIENCE_SECONDS = 0.5

_LOOK_SECONDS = 1.0

# The limit of paths in a report.
_REPORTED_MAX = 10


class InotifyWatcher:
    """Watches the files of a :class:`Selection`. Raises WatchError if the system does not allow it.

    ``now`` is CLOCK_MONOTONIC, as everywhere in the supervisor.
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._tops: dict[str, tuple[int, int] | None] = {}
        self._changed: dict[str, None] = {}
        self._changed_first = self._changed_last = NEVER
        self._look_at = 0.0
        try:
            self._native = _native.Inotify()
        except OSError as error:
            raise _refusal(error, "") from None
        try:
            self.files = sum(len(self._add_top(top)) for top in selection.tops())
        except BaseException:
            self.close()
            raise

    @property
    def directories(self) -> int:
        return len(self._paths)

    def describe(self) -> str:
        files, directories = self.files, self.directories
        tops = ", ".join(short_path(top) for top in self._tops)
        return (
            f"reloading when a file changes: watching {files} file{'s' * (files != 1)} in {directories} "
            f"director{'y' if directories == 1 else 'ies'} at {tops}"
        )

    def fileno(self) -> int:
        return self._native.fileno()

    def due(self) -> float:
        """Return the time at which :meth:`take` must be called."""
        return min(self._look_at, self._changed_last + _PAUSE_SECONDS, self._changed_first + _PATIENCE_SECONDS)

    def read(self) -> list[str]:
        """Read the pending events. Return nothing: :meth:`take` returns the changes when they are due. Raises
        WatchError."""
        try:
            events = self._native.read()
        except OSError as error:
            raise WatchError(f"--reload: files cannot be watched any more: {error.strerror}") from None
        for watch, what, name in events:
            self._on_event(watch, what, name)
        return []

    def take(self, now: float) -> list[str]:
        """Return the changed paths, if no further changes are expected soon. Raises WatchError."""
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            for top, identity in list(self._tops.items()):
                if _identity(top) != identity or (identity is not None and top not in self._watches):
                    self._note(self._renew_top(top))
        if now < min(self._changed_last + _PAUSE_SECONDS, self._changed_first + _PATIENCE_SECONDS):
            return []
        changed = sorted(self._changed)
        self._changed.clear()
        self._changed_first = self._changed_last = NEVER
        return changed

    def close(self) -> None:
        """Close the descriptor. May be called again, and in a forked child."""
        self._native.close()

    def _on_event(self, watch: int, what: int, name: str) -> None:
        if what & _OVERFLOW:
            # Events were lost: any file may have changed, so report all.
            for top in list(self._tops):
                self._renew_top(top)
            self._note(self._tops)
            return
        directory = self._paths.get(watch)
        if directory is None:
            return
        if what & (_IGNORED | _UNMOUNT | _DELETE_SELF | _MOVE_SELF):
            if what & _IGNORED:
                self._forget(watch)
            elif directory in self._tops:
                self._drop(directory)
            return
        path = os.path.join(directory, name)
        if what & _ISDIR:
            if what & (_CREATE | _MOVED_TO):
                if self._selection.descends(path):
                    self._note(self._add(path))
            elif what & (_MOVED_FROM | _DELETE) and self._drop(path) and what & _MOVED_FROM:
                self._note([path])
        elif self._selection.wants(path) and not (what & _CREATE and _is_being_written(path)):
            self._note([path])

    def _note(self, paths: Iterable[str]) -> None:
        now = time.monotonic()
        for path in paths:
            remove_bytecode(path)
            if len(self._changed) < _REPORTED_MAX:
                self._changed[path] = None
            self._changed_last = now
            self._changed_first = min(self._changed_first, now)

    def _add_top(self, top: str) -> list[str]:
        self._tops[top] = _identity(top)
        return self._add(top)

    def _renew_top(self, top: str) -> list[str]:
        """Watch a top directory that was replaced; return its files."""
        self._drop(top)
        return self._add_top(top)

    def _add(self, path: str) -> list[str]:
        """Watch a directory and its subdirectories; return the selected files in them."""
        found: list[str] = []
        left = [path]
        while left:
            directory = left.pop()
            try:
                watch = self._native.add(directory)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
                    continue  # it has been removed again, or this user may not read it
                raise _refusal(error, directory) from None
            self._paths[watch] = directory
            self._watches[directory] = watch
            for entry in _entries(directory):
                if entry.is_dir(follow_symlinks=False):
                    if self._selection.descends(entry.path):
                        left.append(entry.path)
                elif self._selection.wants(entry.path):
                    found.append(entry.path)
        return found

    def _drop(self, path: str) -> bool:
        """Stop watching a directory and its subdirectories; return whether it was watched."""
        below = path.rstrip(os.sep) + os.sep
        gone = [each for each in self._watches if each == path or each.startswith(below)]
        for each in gone:
            watch = self._watches[each]
            self._forget(watch)
            try:
                self._native.remove(watch)
            except OSError:
                pass  # the watch no longer exists
        return bool(gone)

    def _forget(self, watch: int) -> None:
        path = self._paths.pop(watch, None)
        if path is not None and self._watches.get(path) == watch:
            del self._watches[path]


def _entries(directory: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            yield from entries
    except OSError:
        pass  # it has been removed again


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_being_written(path: str) -> bool:
    """Return whether a later event will report the end of writing to a new file. For a link there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return True  # it has been removed again, which is another event
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _refusal(error: OSError, path: str) -> WatchError:
    limit = "max_user_watches" if error.errno == errno.ENOSPC else "max_user_instances"
    place = f" {path}" if path else ""
    if error.errno in (errno.ENOSPC, errno.EMFILE):
        left_out = ", ".join(sorted(LEFT_OUT))
        return WatchError(
            f"--reload: cannot watch{place}: the user's limit is reached; raise it with `sysctl fs.inotify.{limit}=N` "
            f"or start in a directory with less in it ({left_out} and names with a dot first are left out)"
        )
    return WatchError(f"--reload: cannot watch{place}: {error.strerror}")
