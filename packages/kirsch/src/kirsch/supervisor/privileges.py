"""The user, groups, umask and environment of the workers.

The supervisor keeps its privileges: it must bind port 80 again at a reload or an upgrade, open logs in directories of
root, and remove its pid file. It runs no code of the application and reads nothing from a client. The processes that do
so (workers, the zygote) call :func:`drop` before they import the application. Workers may run as root, with a warning
(:func:`root_warning`). Refusing that, as mod_wsgi does, would break containers in which every process is root, but only
in a user namespace. Without a warning, as in other servers, an attacker who exploits the application would have root's
rights unnoticed. ``--user root`` states the intention.
"""

from __future__ import annotations

import errno
import os

from kirsch import bootstrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# The kernel takes (uid_t) -1 and (gid_t) -1 for "unchanged".
_HIGHEST = (1 << 32) - 2


class Identity:
    """The user that a worker becomes: checked numbers, with the user's name and home directory if the system knows
    them."""

    __slots__ = ("gid", "groups", "home", "name", "uid")

    def __init__(self, uid: int, gid: int, groups: tuple[int, ...], name: str, home: str) -> None:
        self.uid = uid
        self.gid = gid
        self.groups = groups
        self.name = name
        self.home = home

    @property
    def owner(self) -> tuple[int, int]:
        """The pair (uid, gid), as ``sockets.listen`` expects it."""
        return self.uid, self.gid


def identity(user: str, group: str) -> Identity | None:
    """Return the identity for --user and --group (names or numbers; empty: not given), or None to remain the current
    user. It includes the user's supplementary groups (initgroups(3)), so that access by group to a certificate or a
    socket suffices. Called in the supervisor, at the start and at a reload. Raises ValueError if the user or group does
    not exist, if a number that belongs to no user is given without a group, or if this process is not root and cannot
    become another user.
    """
    if not user and not group:
        return None
    uid, gid, name, home = _user(user) if user else (os.geteuid(), os.getegid(), "", "")
    if group:
        gid = _group(group)
    elif gid < 0:
        raise ValueError(f"--user {user}: no user has this number, so its group is not known; add --group")
    if os.geteuid() != 0:
        if (uid, gid) == (os.geteuid(), os.getegid()):
            return None
        flags = " ".join(f"{flag} {value}" for flag, value in (("--user", user), ("--group", group)) if value)
        raise ValueError(
            f"{flags}: only root may become another user, and this is {_name(os.geteuid())}; start as root, or without"
        )
    groups = tuple(os.getgrouplist(name, gid)) if name else (gid,)
    return Identity(uid, gid, groups, name, home)


def drop(identity: Identity) -> None:
    """Become ``identity`` irrevocably; set HOME, USER and LOGNAME, like ``User=`` of systemd. Called in the child,
    before the application is loaded. Raises OSError if the kernel refuses, or if that user cannot read the Python
    installation.
    """
    try:
        os.setgroups(identity.groups)
        # Set the real, effective and saved ids, so that the process cannot get its privileges back.
        os.setresgid(identity.gid, identity.gid, identity.gid)
        os.setresuid(identity.uid, identity.uid, identity.uid)
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot become user {identity.uid}, group {identity.gid}: {error.strerror}; "
            "CAP_SETUID and CAP_SETGID are needed, and numbers that this container knows",
        ) from error
    library = os.path.dirname(os.__file__)
    if not os.access(library, os.R_OK | os.X_OK):
        # Otherwise the first import of the application would fail, with a message about a wrong module.
        raise OSError(
            errno.EACCES,
            f"user {identity.name or identity.uid} cannot read {library}, where Python is; "
            "install it elsewhere than in a user's home directory, or give that user access",
        )
    if identity.name:
        os.environ.update(HOME=identity.home, USER=identity.name, LOGNAME=identity.name)


def root_warning(identity: Identity | None) -> str:
    """Return a warning if workers would run as root without --user; else an empty string."""
    if identity is not None or os.geteuid() != 0:
        return ""
    return "the application runs as root: give --user and --group, or --user root if that is meant"


def set_umask(umask: int | None) -> None:
    """Set --umask, in the supervisor before it binds and opens files; children inherit it. None changes nothing."""
    if umask is not None:
        os.umask(umask)


def become(identity: Identity | None, environment: Iterable[tuple[str, str]]) -> None:
    """Switch to the user and the environment of the application. Raises StartupError."""
    if identity is not None:
        try:
            drop(identity)
        except OSError as error:
            raise bootstrap.StartupError(bootstrap.EXIT_FAILED, bootstrap.reason(error)) from None
    set_environment(environment)


def set_environment(pairs: Iterable[tuple[str, str]]) -> None:
    """Set the variables of --env, in the child, after :func:`drop` and before the application is loaded. The
    supervisor's environment does not change, so that a reload can remove a variable."""
    os.environ.update(pairs)


def give(identity: Identity, path: str) -> None:
    """Make sure that ``identity`` can append to the log ``path`` and reopen it: create the file if it does not exist,
    and make ``identity`` its owner. Called in the supervisor before it opens logs, and at USR1 before it signals
    workers. The owner of an existing file is changed only if root alone can have created it. Otherwise another user may
    have put a link to a foreign file there, and would become its owner. Raises OSError.
    """
    if path in ("", "-"):
        return
    path = os.path.abspath(path)
    try:
        _create_for(identity, path)
    except FileExistsError:
        if _is_roots_alone(os.path.dirname(path)):
            _hand_over(identity, path)
    except OSError as error:
        raise OSError(error.errno, f"cannot write {path}: {error.strerror}") from error


def _user(text: str) -> tuple[int, int, str, str]:
    """Return (uid, gid or -1, name, home) for a user's name or number. Raises ValueError."""
    import pwd

    try:
        entry = pwd.getpwuid(_number(text, "--user")) if text.isdigit() else pwd.getpwnam(text)
    except KeyError:
        if text.isdigit():
            return int(text), -1, "", ""
        raise ValueError(f"--user: there is no user {text!r}; `getent passwd` lists those there are") from None
    return entry.pw_uid, entry.pw_gid, entry.pw_name, entry.pw_dir


def _group(text: str) -> int:
    import grp

    if text.isdigit():
        return _number(text, "--group")
    try:
        return grp.getgrnam(text).gr_gid
    except KeyError:
        raise ValueError(f"--group: there is no group {text!r}; `getent group` lists those there are") from None


def _number(text: str, flag: str) -> int:
    if not text.isascii() or int(text) > _HIGHEST:
        raise ValueError(f"{flag}: {text} is more than a number of a user or a group can be")
    return int(text)


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _create_for(identity: Identity, path: str) -> None:
    """Create a file for ``identity``. It is certainly new, because O_EXCL follows no link."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.fchown(fd, identity.uid, identity.gid)
    finally:
        os.close(fd)


def _is_roots_alone(folder: str) -> bool:
    status = os.stat(folder)
    return status.st_uid == 0 and not status.st_mode & 0o022


def _hand_over(identity: Identity, path: str) -> None:
    """Change the owner of a regular file that root owns and that has one link; do nothing for other files."""
    import stat

    try:
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # a link, or not writable: the next process that opens it reports the error
    try:
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == 0:
            os.fchown(fd, identity.uid, identity.gid)
    finally:
        os.close(fd)
