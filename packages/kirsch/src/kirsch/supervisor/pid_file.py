"""The pid file: the pid of the supervisor, for scripts, and a lock that prevents a second supervisor from starting. The
lock shows whether the owner of the file is alive. The pid in the file does not: after a reboot, or in another
container, another process may have it. It is a lock of fcntl(2), which ends with the process, is not inherited by
forked workers, and survives an exec while the descriptor is open.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# An attempt fails if another process replaces a stale file first. This many failures show another problem.
_ATTEMPTS = 20


class PidFile:
    """The file at ``path``, created and locked by :meth:`write`. Forked children do not own it and cannot remove it."""

    def __init__(self, path: str) -> None:
        # Absolute, so that it is valid after a change of directory.
        self.path = os.path.abspath(path)
        self._fd = -1
        self._owner_pid = -1

    def write(self) -> None:
        """Claim the path and write the pid of this process, atomically. Replaces the file of a server that has exited.

        Raises OSError with a one-line strerror if a live server holds the file (with its pid, and how to stop it), the
        directory does not exist or is not writable, or another kind of file is at the path.
        """
        try:
            for _ in range(_ATTEMPTS):
                if self._create() or self._take_over():
                    return
        except OSError as error:
            raise OSError(error.errno, f"cannot write the pid file {self.path}: {self._trouble(error)}") from error
        raise OSError(errno.EAGAIN, f"cannot write the pid file {self.path}: other processes keep replacing it")

    def check(self) -> None:
        """Raise what :meth:`write` would raise, without writing. A live server that holds the file is no error: this
        process may be its successor."""
        folder = os.path.dirname(self.path)
        try:
            if not os.path.isdir(folder):
                raise FileNotFoundError(errno.ENOENT, "")
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "")
            if os.path.lexists(self.path):
                os.close(self._open_existing())
        except OSError as error:
            raise OSError(error.errno, f"cannot write the pid file {self.path}: {self._trouble(error)}") from error

    def remove(self) -> None:
        """Remove the file, if this process wrote it and no other process has replaced it. May be called again."""
        fd, self._fd = self._fd, -1
        if fd < 0 or self._owner_pid != os.getpid():
            return
        try:
            if _is_at(fd, self.path):
                os.unlink(self.path)
        except OSError:
            pass  # it has been removed already, or the directory is no longer writable
        os.close(fd)

    def export(self) -> dict[str, Any]:
        """Return JSON data for :meth:`inherit` in the next image of this process. The lock survives an exec from now
        on; :meth:`stay` undoes that."""
        os.set_inheritable(self._fd, True)
        return {"path": self.path, "fd": self._fd, "owner": self._owner_pid}

    def stay(self) -> None:
        """Make the descriptor close-on-exec again, after a failed exec."""
        os.set_inheritable(self._fd, False)

    @classmethod
    def inherit(cls, state: dict[str, Any]) -> PidFile:
        """Return the pid file that the previous image has exported."""
        pid_file = cls(state["path"])
        pid_file._fd = state["fd"]
        pid_file._owner_pid = state["owner"]
        pid_file.stay()
        return pid_file

    def _create(self) -> bool:
        """Create the file; return False if it exists by now."""
        if os.path.lexists(self.path):
            return False
        try:
            self._put_in_place(os.link)
        except FileExistsError:
            return False
        return True

    def _open_existing(self) -> int:
        """Open the existing pid file. Raises OSError if it is another kind of file."""
        found = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        if not stat.S_ISREG(os.fstat(found).st_mode) or _pid_in(found) < 0:
            os.close(found)
            raise OSError(errno.EEXIST, "something else is there; move it away, or choose another path")
        return found

    def _take_over(self) -> bool:
        """Replace the file of a server that has exited, while holding its lock. False if another process was faster."""
        try:
            found = self._open_existing()
        except FileNotFoundError:
            return False
        try:
            if not _lock(found):
                raise OSError(errno.EEXIST, _alive(found))
            if not _is_at(found, self.path):
                return False
            self._put_in_place(os.rename)
            return True
        finally:
            os.close(found)

    def _put_in_place(self, move: Callable[[str, str], None]) -> None:
        """Write a file beside the path, and ``move`` it to the path, so that a reader always sees complete content."""
        beside = f"{self.path}.{os.getpid()}"
        fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            _lock(fd)
            os.write(fd, f"{os.getpid()}\n".encode())
            move(beside, self.path)
        except BaseException:
            os.close(fd)
            raise
        finally:
            if os.path.lexists(beside):
                os.unlink(beside)
        self._fd = fd
        self._owner_pid = os.getpid()

    def _trouble(self, error: OSError) -> str:
        folder = os.path.dirname(self.path)
        if error.errno == errno.ENOENT:
            return f"there is no directory {folder}; create it first"
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return f"this user may not write in {folder}"
        if error.errno == errno.EISDIR:
            return "that is a directory; name a file in it"
        if error.errno == errno.ELOOP:
            return "that is a symbolic link; name the file itself"
        return error.strerror or str(error)


def _lock(fd: int) -> bool:
    """Try to lock the file, without waiting; return whether this process has the lock."""
    import fcntl

    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
            return not _lives(_pid_in(fd))  # a file system without locks: check the pid instead
        raise
    return True


def _alive(fd: int) -> str:
    pid = _pid_in(fd)
    who = f"the server with pid {pid}" if pid else "another server"
    stop = f"`kill {pid}`" if pid else "it"
    return f"{who} holds it and is alive; stop that first ({stop}), or choose another path"


def _pid_in(fd: int) -> int:
    """Return the number in the file; 0 if the file is empty, -1 if it contains other text."""
    text = os.pread(fd, 32, 0).strip()
    return (int(text) if text.isdigit() else -1) if text else 0


def _lives(pid: int) -> bool:
    if pid <= 0 or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it exists, and belongs to another user
    return True


def _is_at(fd: int, path: str) -> bool:
    """Return whether ``path`` is still the file of ``fd``."""
    ours = os.fstat(fd)
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
