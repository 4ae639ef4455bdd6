"""The pid file: who the supervisor is, for scripts, and for a second supervisor that must not start beside it.

Whether its owner lives is told by a lock on the file, not by the number in it: after a reboot, and in each container
anew, that number is some other process's. The lock is fcntl(2)'s, which fits a supervisor: it ends with the process,
forked workers do not have it, and it survives an exec as long as the descriptor does.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Each time somebody else was quicker to replace a stale file; more often means that something is badly wrong.
_ATTEMPTS = 20


class PidFile:
    """The file at ``path``, made and locked by :meth:`write`. Harmless in forked children: it is not theirs."""

    def __init__(self, path: str) -> None:
        # Absolute, so that it is found again after a change of directory.
        self.path = os.path.abspath(path)
        self._fd = -1
        self._owner_pid = -1

    def write(self) -> None:
        """Claim the path and write our pid, at once or not at all. Replaces what a dead server has left.

        Raises OSError, whose strerror is one line: a live server holds it (with its pid, and how to stop it), the
        directory is missing or may not be written to, something else is there.
        """
        try:
            for _ in range(_ATTEMPTS):
                if self._create() or self._take_over():
                    return
        except OSError as error:
            raise OSError(error.errno, f"cannot write the pid file {self.path}: {self._trouble(error)}") from error
        raise OSError(errno.EAGAIN, f"cannot write the pid file {self.path}: others replace it all the time")

    def check(self) -> None:
        """Raise what :meth:`write` would, but nothing where a live server holds the file: it may be the one to replace.
        Nothing is written."""
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
        """Remove the file, if this is the process that wrote it and it is still the same. May be called again."""
        fd, self._fd = self._fd, -1
        if fd < 0 or self._owner_pid != os.getpid():
            return
        try:
            if _is_at(fd, self.path):
                os.unlink(self.path)
        except OSError:
            pass  # it is gone already, or the directory may not be written to any more
        os.close(fd)

    def export(self) -> dict[str, Any]:
        """What :meth:`inherit` needs in the next image of this process. The lock outlives the exec from here on;
        :meth:`stay` is for one that did not happen."""
        os.set_inheritable(self._fd, True)
        return {"path": self.path, "fd": self._fd, "owner": self._owner_pid}

    def stay(self) -> None:
        """Close the file at an exec again: the one that :meth:`export` was for has failed."""
        os.set_inheritable(self._fd, False)

    @classmethod
    def inherit(cls, state: dict[str, Any]) -> PidFile:
        """The file as the image before this one exported it."""
        pid_file = cls(state["path"])
        pid_file._fd = state["fd"]
        pid_file._owner_pid = state["owner"]
        pid_file.stay()
        return pid_file

    def _create(self) -> bool:
        """Where there is no file yet. False where there is one, perhaps since a moment ago."""
        if os.path.lexists(self.path):
            return False
        try:
            self._put_in_place(os.link)
        except FileExistsError:
            return False
        return True

    def _open_existing(self) -> int:
        """The pid file that is there. Raises OSError where it is something else."""
        found = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        if not stat.S_ISREG(os.fstat(found).st_mode) or _pid_in(found) < 0:
            os.close(found)
            raise OSError(errno.EEXIST, "something else is there; move it away, or choose another path")
        return found

    def _take_over(self) -> bool:
        """Replace the file of a dead server, with the lock on it. False where somebody else was quicker."""
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
        """Write a file beside the path, and ``move`` it there: whoever reads it finds all of the old or of the new."""
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
    """Whether we have the lock; it is never waited for."""
    import fcntl

    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
            return not _lives(_pid_in(fd))  # a file system without locks: the number has to do
        raise
    return True


def _alive(fd: int) -> str:
    pid = _pid_in(fd)
    who = f"the server with pid {pid}" if pid else "another server"
    stop = f"`kill {pid}`" if pid else "it"
    return f"{who} holds it and is alive; stop that first ({stop}), or choose another path"


def _pid_in(fd: int) -> int:
    """The number in the file; 0 where it is empty, -1 where it holds something else."""
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
        pass  # another user's
    return True


def _is_at(fd: int, path: str) -> bool:
    """Whether ``path`` still is the file that ``fd`` is."""
    ours = os.fstat(fd)
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
