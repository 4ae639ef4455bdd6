"""Watching files whose change starts a reload: ``--reload`` for development, ``--touch-reload`` for operations.

On Linux the supervisor watches source files itself (``inotify.py``; ``reload_triggers.py`` chooses). On other systems,
the library watchfiles does so in a child process (this module is also the child's program). The same applies if
WATCHFILES_FORCE_POLLING is set, for file systems that report no changes. The library starts threads, which the
supervisor must not have when it forks, and takes as long to import as the rest of Kirsch.
"""

from __future__ import annotations

import os
import sys

from kirsch.reports import short_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# Changes are reported after this pause without another change, or after this time at most, in milliseconds: an editor
# writes one file in several steps, and a checkout of another branch writes many files.
_PAUSE = 50
_PATIENCE = 500

LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages"})
"""Directories whose files are not edited by hand. Names that begin with a dot are left out as well."""

_MISSING = "--reload needs the package watchfiles on this system; run `pip install 'kirsch[reload]'`"

_WILD = frozenset("*?[")


class WatchError(Exception):
    """Raised if files cannot be watched; the text is the reason in one line, and how to correct it."""


class Selection:
    """The files to watch: ``*.py`` below ``directories``, and the files that match ``patterns``. A pattern is the
    absolute path of a file or of a directory (all files below it), or a path with ``*`` and ``?``. Files in
    ``ignored`` are excluded, because the server writes them."""

    def __init__(self, directories: Iterable[str], patterns: Iterable[str], ignored: Iterable[str] = ()) -> None:
        self.directories = list(directories)
        self.patterns = list(patterns)
        self._ignored = frozenset(ignored)

    def wants(self, path: str) -> bool:
        if path in self._ignored:
            return False
        return _matches(path, self.patterns) or (path.endswith(".py") and _is_source(path, self.directories))

    def tops(self) -> list[str]:
        """Return the top directories to watch."""
        return [*self.directories, *_directories_of(self.patterns, self.directories)]

    def descends(self, path: str) -> bool:
        """Return whether to watch the directory ``path``, an entry of a watched directory, too."""
        if path in self.patterns or any(_is_in(pattern, path) for pattern in self.patterns):
            return True
        if _is_hidden(os.path.basename(path)):
            return False
        places = [*self.directories, *(_fixed_part(pattern) for pattern in self.patterns)]
        return any(_is_source(path, [place]) for place in places if os.path.isdir(place))


class WatchfilesWatcher:
    """A child process that watches source files and reports changes. For --reload.

    It watches ``*.py`` below ``directories``: by default the entries of ``sys.path`` except the standard library and
    installed packages. So ``sys.path`` must be the application's (--chdir, --pythonpath). It also watches ``extra``
    (--reload-extra-file: a file, a directory with all files below it, or a pattern with ``*`` and ``?``). The child
    exits with its parent. It takes a moment to start; it finds earlier changes by the times of files, but does not find
    removed files.

    Raises WatchError if watchfiles is not installed or the child cannot be started.
    """

    def __init__(self, extra: Iterable[str] = (), directories: Iterable[str] | None = None) -> None:
        import json
        import socket
        from importlib.util import find_spec

        if find_spec("watchfiles") is None:
            raise WatchError(_MISSING)
        patterns = [os.path.abspath(pattern) for pattern in extra]
        watched = source_directories(sys.path) if directories is None else list(directories)
        self._watched = watched
        task = {"directories": watched, "patterns": patterns, "supervisor": os.getpid(), "since": _file_time()}
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        self._owner_pid = os.getpid()
        # The child gets this process's sys.path. -c instead of -m, which would search the current directory first.
        program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main({json.dumps(task)!r})"
        try:
            self.pid = _spawn([sys.executable, "-c", program], theirs.fileno())
        except OSError as error:
            self._socket.close()
            raise WatchError(f"--reload: cannot start {sys.executable}: {error.strerror}") from error
        finally:
            theirs.close()

    def describe(self) -> str:
        tops = ", ".join(short_path(top) for top in self._watched)
        return f"reloading when a file changes: the package watchfiles watches {tops}"

    def due(self) -> float:
        return float("inf")

    def take(self, _now: float) -> list[str]:
        """Return an empty list: :meth:`read` returns the changes of this watcher."""
        return []

    def fileno(self) -> int:
        """Return a descriptor that is readable after a change, or when the child has exited."""
        return self._socket.fileno()

    def read(self) -> list[str]:
        """Return the changed paths, sorted; empty if there are none. Never blocks. Raises WatchError if the child
        cannot watch any more. The caller reports that and calls :meth:`close`.
        """
        import json

        changed: set[str] = set()
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                return sorted(changed)
            except ConnectionError:
                data = b""
            if not data:
                raise WatchError("--reload: the process that watches files has exited; restart to watch again")
            message: dict[str, Any] = json.loads(data)
            if "error" in message:
                raise WatchError(f"--reload: {message['error']}")
            changed.update(message["changed"])

    def close(self) -> None:
        """Kill the child and reap it. May be called again. In a forked child, only close the descriptor."""
        self._socket.close()
        pid, self.pid = self.pid, 0
        if pid and self._owner_pid == os.getpid():
            import signal

            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass  # it has exited, and has been reaped


class Touches:
    """The files of --touch-reload, checked with stat(2): touching, replacing or creating one starts a reload. Removing
    one does not.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._seen = {path: _file_state(path) for path in map(os.path.abspath, paths)}

    def changed(self) -> list[str]:
        """Return the paths that were touched since the last call. Costs one stat(2) for each path; called once a
        second."""
        touched = []
        for path, before in self._seen.items():
            now = _file_state(path)
            self._seen[path] = now
            if now is not None and now != before:
                touched.append(path)
        return touched


def source_directories(path: Iterable[str]) -> list[str]:
    """Return the entries of ``path`` (``sys.path``) that contain the user's own modules: directories except those of
    the standard library, installed packages and commands. No entry is inside another."""
    import sysconfig

    where = sysconfig.get_paths()
    # The directory of the command kirsch is on sys.path, like that of every script.
    places = [where[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    places.append(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")))
    installed = [os.path.realpath(place) for place in places]
    found: list[str] = []
    for entry in sorted(os.path.abspath(entry or ".") for entry in path):
        real = os.path.realpath(entry)
        is_installed = LEFT_OUT.intersection(real.split(os.sep)) or any(_is_in(real, place) for place in installed)
        if os.path.isdir(entry) and not is_installed and not any(_is_in(entry, known) for known in found):
            found.append(entry)
    return found


def main(task_text: str) -> None:
    """Run the child process: report changes on descriptor 0 until the other end is closed."""
    import json
    import socket

    task = json.loads(task_text)
    supervisor = socket.socket(fileno=0)

    def send(message: dict[str, Any]) -> None:
        try:
            supervisor.send(json.dumps(message).encode())
        except ConnectionError:
            os._exit(0)  # the supervisor has exited

    try:
        from kirsch.supervisor import titles

        titles.other("watcher", f"of pid {task['supervisor']}")
        _end_with(supervisor)
        _report_changes(task["directories"], task["patterns"], task["since"], send)
    except ImportError as error:
        send({"error": f"{_MISSING.removeprefix('--reload ')} ({error})"})
    except Exception as error:  # noqa: BLE001 - whatever the library raises, the supervisor reports it in a line
        hint = "raise fs.inotify.max_user_watches, or set WATCHFILES_FORCE_POLLING=1"
        send({"error": f"files cannot be watched: {' '.join(str(error).split())}; {hint}"})


def _report_changes(directories: list[str], patterns: list[str], since: int, send: Any) -> None:
    import watchfiles

    roots = [*directories, *_directories_of(patterns, directories)]

    def is_wanted(_change: object, path: str) -> bool:
        return _matches(path, patterns) or (path.endswith(".py") and _is_source(path, directories))

    def send_paths(paths: Iterable[str]) -> None:
        paths = sorted(paths)
        for path in paths:
            remove_bytecode(path)
        # A checkout of another branch changes thousands of files; the first ones suffice, and the size of a message is
        # limited.
        if paths:
            send({"changed": paths[:10]})

    class Beginning:
        """The ``stop_event`` for watchfiles, which calls ``is_set()`` as soon as it watches. That call searches for
        earlier changes, so that no change is missed in between."""

        has_looked = False

        def is_set(self) -> bool:
            if not self.has_looked:
                self.has_looked = True
                send_paths(path for path in _changed_since(since, roots) if is_wanted(None, path))
            return False

    for changes in watchfiles.watch(
        *roots, watch_filter=is_wanted, debounce=_PATIENCE, step=_PAUSE, raise_interrupt=False,
        ignore_permission_denied=True, stop_event=Beginning(),
    ):  # fmt: skip
        send_paths({path for _, path in changes})


def _file_time() -> int:
    """Return the current time of the clock for files, in nanoseconds and with its coarse resolution, for comparison
    with the times of files. So it does not matter whether that clock is right."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("kirsch-now")
    else:
        import tempfile

        fd, path = tempfile.mkstemp(prefix="kirsch-now-")
        os.unlink(path)
    try:
        return os.fstat(fd).st_mtime_ns
    finally:
        os.close(fd)


def _changed_since(since: int, roots: Iterable[str]) -> Iterable[str]:
    """Yield the files below ``roots`` that were written or moved there after ``since``. A moved file keeps the time
    of its content, but not that of its inode (``st_ctime_ns``)."""
    for root in roots:
        for directory, directories, names in os.walk(root):
            directories[:] = [name for name in directories if not name.startswith(".") and name not in LEFT_OUT]
            for name in names:
                path = os.path.join(directory, name)
                try:
                    status = os.stat(path)
                except OSError:
                    continue  # a dangling link, or a file that was removed again
                if max(status.st_mtime_ns, status.st_ctime_ns) > since:
                    yield path


def _fixed_part(pattern: str) -> str:
    """Return the first part of a pattern, up to the last directory before a wildcard."""
    while _WILD.intersection(pattern):
        pattern = os.path.dirname(pattern)
    return pattern


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name in LEFT_OUT


def _directories_of(patterns: Iterable[str], watched: Iterable[str]) -> list[str]:
    """Return the directories that may contain matches: the longest part of each pattern that is an existing
    directory without wildcards."""
    found: list[str] = []
    for pattern in patterns:
        directory = pattern
        while _WILD.intersection(directory) or not os.path.isdir(directory):
            directory = os.path.dirname(directory)
        if not any(_is_in(directory, known) for known in (*watched, *found)):
            found.append(directory)
    return found


def _matches(path: str, patterns: Iterable[str]) -> bool:
    from fnmatch import fnmatchcase

    return any(
        path == pattern or fnmatchcase(path, pattern) or (_is_source(path, [pattern]) and os.path.isdir(pattern))
        for pattern in patterns
    )


def _is_source(path: str, directories: Iterable[str]) -> bool:
    for directory in directories:
        if _is_in(path, directory):
            parts = os.path.relpath(path, directory).split(os.sep)
            if not any(_is_hidden(part) for part in parts):
                return True
    return False


def remove_bytecode(path: str) -> None:
    """Remove the compiled file of a source. Python would use it if the source has the same size and was changed in
    the same second (PEP 3147), as after a quick edit, which would then have no effect."""
    from importlib.util import cache_from_source

    if path.endswith(".py"):
        try:
            os.unlink(cache_from_source(path))
        except (OSError, NotImplementedError):
            pass  # there is none, or this user may not remove it


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


def _file_state(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_dev, status.st_ino


def _spawn(command: list[str], channel: int) -> int:
    """Start ``command`` with ``channel`` as its standard input. It is spawned, so it inherits no listening sockets.

    It gets its own process group, because Ctrl-C in the terminal is for the supervisor, with which it exits.
    """
    from kirsch.process.spawn import spawn

    return spawn(command, {0: channel}, own_group=True)


def _end_with(supervisor: Any) -> None:
    """Start a thread that exits this process when the supervisor has exited or closed its end."""
    import threading

    def wait() -> None:
        supervisor.recv(1)
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
