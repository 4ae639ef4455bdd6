"""Sessions in memory and in files. A session is locked while a handler runs, as CherryPy's programs expect.

A lock without a timeout is awaited without polling. Files are replaced atomically, so a crash leaves none half-written.
"""

from __future__ import annotations

import abc
import contextlib
import datetime
import os
import pickle
import re
import secrets
import threading
import time
from collections import UserDict
from typing import Any

from kirsch_cherrypy import _globals
from kirsch_cherrypy._cperror import HTTPError
from kirsch_cherrypy._local import serving
from kirsch_cherrypy.lib import httputil, is_iterator
from kirsch_cherrypy.lib.locking import LockChecker
from kirsch_cherrypy.process.wspbus import bus

_ID = re.compile(r"[0-9a-f]{40}").fullmatch


class Session(UserDict[str, Any], abc.ABC):
    """A dictionary that persists between requests. It is loaded when it is first used."""

    # Options of the tool.
    timeout: float = 60
    clean_freq: float = 5
    debug = False
    # The state of the session in this request.
    _id: Any = None
    originalid: Any = None
    id_observers: Any = None
    loaded = locked = missing = regenerated = False
    # The cleaning thread, shared by the class.
    clean_thread: Any = None

    def __init__(self, id: Any = None, **kwargs: Any) -> None:
        self.id_observers = []
        self._data: dict[str, Any] = {}
        for name, value in kwargs.items():
            setattr(self, name, value)
        self.originalid = self.id = id
        # Do not accept an ID that this server has not created: an attacker may have chosen it.
        if id is None or not (_ID(id) and self._exists()):
            self.missing, self._id = id is not None, None
            self._regenerate()

    @classmethod
    def setup(cls, **kwargs: Any) -> None:
        """Connect to the store. This is called once, with the options of the tool."""

    @property
    def id(self) -> Any:
        """The session ID, which the client's cookie contains."""
        return self._id

    @id.setter
    def id(self, value: Any) -> None:
        self._id = value
        if value is not None:
            for observer in self.id_observers:
                observer(value)

    def regenerate(self) -> None:
        """Replace the session ID, and keep the data. Programs call this when a user logs in."""
        self.regenerated = True
        self._regenerate()

    def _regenerate(self) -> None:
        if self.id is not None:
            if not self.loaded and self._exists():
                self.load()
            self.delete()
        was_locked = self.locked
        if was_locked:
            self.release_lock()
        self._id = self.generate_id()
        while self._exists():
            self._id = self.generate_id()
        self.id = self._id
        if was_locked:
            self.acquire_lock()

    def generate_id(self) -> str:
        """Return a random ID of 160 bits in hexadecimal."""
        return secrets.token_hex(20)

    def now(self) -> datetime.datetime:
        """Return the current time, to compare with expiration times. A store may override the time zone."""
        return datetime.datetime.now()

    def clean_up(self) -> None:
        """Delete expired sessions."""

    def save(self) -> None:
        """Save the data if they were loaded, and release the lock."""
        try:
            if self.loaded:
                self._save(self.now() + datetime.timedelta(seconds=self.timeout * 60))
        finally:
            if self.locked:
                self.release_lock()

    def load(self) -> None:
        """Load the data from the store. They are empty if the session does not exist or has expired."""
        kept = self._load()
        self._data = {} if kept is None or kept[1] < self.now() else kept[0]
        self.loaded = True
        cls = type(self)
        if self.clean_freq and not cls.clean_thread:
            # One thread per class cleans up all its sessions. clean_freq is in minutes.
            from kirsch_cherrypy.process.plugins import Monitor

            cls.clean_thread = Monitor(bus, self.clean_up, self.clean_freq * 60, name="Session cleanup")
            cls.clean_thread.subscribe()
            cls.clean_thread.start()

    def delete(self) -> None:
        """Delete the session from the store."""
        self._delete()

    # Subclasses implement these.

    @abc.abstractmethod
    def _exists(self) -> bool:
        """Return whether the store has the session ID."""

    @abc.abstractmethod
    def _load(self) -> Any:
        """Return the stored data and their expiration time, or None if there are none."""

    @abc.abstractmethod
    def _save(self, expiration_time: Any) -> None:
        """Store the data until ``expiration_time``."""

    @abc.abstractmethod
    def _delete(self) -> None:
        """Delete the stored data of the session ID."""

    # A store that needs no lock keeps these.

    def acquire_lock(self, path: Any = None) -> None:
        """Acquire the lock of the session, so that no other request uses it."""
        self.locked = True

    def release_lock(self, path: Any = None) -> None:
        """Release the lock of the session."""
        self.locked = False

    # Compare sessions by identity, not by their data.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def data(self) -> dict[str, Any]:  # type: ignore[override]
        """The data as a dictionary, loaded on first access."""
        if not self.loaded:
            self.load()
        return self._data


class RamSession(Session):
    """Sessions in the memory of this process. Several worker processes do not share them."""

    cache: dict[str, Any] = {}  # noqa: RUF012 - shared in the process
    locks: dict[str, Any] = {}  # noqa: RUF012

    def clean_up(self) -> None:
        for key, (_, expires) in list(self.cache.items()):
            if expires <= self.now():
                self.cache.pop(key, None)
        # Delete the locks whose session is gone, unless a request holds them.
        for key, lock in list(self.locks.items()):
            if key not in self.cache and lock.acquire(blocking=False):
                self.locks.pop(key, None)
                lock.release()

    def _exists(self) -> bool:
        return self.id in self.cache

    def _load(self) -> Any:
        return self.cache.get(self.id)

    def _save(self, expiration_time: Any) -> None:
        self.cache[self.id] = self._data, expiration_time

    def _delete(self) -> None:
        self.cache.pop(self.id, None)

    def acquire_lock(self, path: Any = None) -> None:
        while not self.locked:
            lock = self.locks.setdefault(self.id, threading.RLock())
            lock.acquire()
            self.locked = self.locks.get(self.id) is lock  # clean_up may have deleted the lock meanwhile
            if not self.locked:
                lock.release()

    def release_lock(self, path: Any = None) -> None:
        self.locks[self.id].release()
        self.locked = False

    def __len__(self) -> int:
        return len(self.cache)


class FileSession(Session):
    """Sessions in files, one per session, in ``storage_path``. All processes of a machine can share them.

    The files are pickles. Only this user may write to the directory: others could run code in this process with them.
    """

    storage_path: Any = None
    SESSION_PREFIX = "session-"
    pickle_protocol = pickle.HIGHEST_PROTOCOL
    LOCK_SUFFIX = ".lock"
    lock_timeout: Any = None
    lock: Any = None
    """The locked file. A subclass may store a lock of zc.lockfile here."""

    def __init__(self, id: Any = None, **kwargs: Any) -> None:
        kwargs["storage_path"] = os.path.abspath(kwargs["storage_path"])
        super().__init__(id, **kwargs)

    def _get_file_path(self) -> str:
        if not _ID(self.id or ""):
            raise HTTPError(400, "Invalid session id in cookie.")
        return f"{self.storage_path}{os.sep}{self.SESSION_PREFIX}{self.id}"

    def _exists(self) -> bool:
        return os.path.exists(self._get_file_path())

    def _load(self, path: Any = None) -> Any:
        try:
            with open(path or self._get_file_path(), "rb") as file:
                return pickle.load(file)  # noqa: S301 - this program wrote the file
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    def _save(self, expiration_time: Any) -> None:
        path = self._get_file_path()
        temporary = f"{path}.{secrets.token_hex(4)}.lock"  # a suffix that clean_up and listings skip
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            pickle.dump((self._data, expiration_time), file, self.pickle_protocol)
        os.replace(temporary, path)

    def _delete(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._get_file_path())

    def acquire_lock(self, path: Any = None) -> None:
        """Lock the session's lock file, and wait for that. The system releases the lock if the process dies."""
        import fcntl

        name = (path or self._get_file_path()) + self.LOCK_SUFFIX
        while not self.locked:
            file = open(name, "ab")  # noqa: SIM115 - release_lock closes it
            try:
                checker = LockChecker(self.id, self.lock_timeout)
                wait = 0 if self.lock_timeout is None else fcntl.LOCK_NB  # a timeout requires polling
                while not checker.expired():
                    with contextlib.suppress(BlockingIOError):
                        fcntl.flock(file, fcntl.LOCK_EX | wait)
                        break
                    time.sleep(0.01)
                # The previous holder has removed the file. Lock again if the path now is another file, or none.
                with contextlib.suppress(FileNotFoundError):
                    self.locked = os.stat(name).st_ino == os.fstat(file.fileno()).st_ino
            finally:
                if self.locked:
                    self.lock = file
                else:
                    file.close()

    def release_lock(self, path: Any = None) -> None:
        """Remove the lock file, and release the lock."""
        lock, self.lock = self.lock, None
        if lock is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(getattr(lock, "_path", None) or lock.name)
            lock.close()
        self.locked = False

    def _kept(self) -> list[str]:
        """Return the files of all sessions."""
        return [
            os.path.join(self.storage_path, name)
            for name in os.listdir(self.storage_path)
            if name.startswith(self.SESSION_PREFIX) and not name.endswith(self.LOCK_SUFFIX)
        ]

    def clean_up(self) -> None:
        """Remove the files of expired sessions."""
        for path in self._kept():
            contents = self._load(path)
            if contents is not None and contents[1] < self.now():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)

    def __len__(self) -> int:
        return len(self._kept())


def save() -> None:
    """Save the session before the response is sent; with a streamed response, at the end of the request."""
    session = getattr(serving, "session", None)
    request = serving.request
    if session is None or hasattr(request, "_sessionsaved"):  # the program may have saved it and set this attribute
        return
    request._sessionsaved = True
    response = serving.response
    if response.stream:
        request.hooks.attach("on_end_request", session.save)
    else:
        if is_iterator(response.body):
            response.collapse_body()  # a generator may still change the session
        session.save()


def close() -> None:
    """Release the lock at the end of the request."""
    session = getattr(serving, "session", None)
    if session is not None and getattr(session, "locked", False):
        session.release_lock()


vars(save)["failsafe"] = vars(close)["failsafe"] = True


def init(
    storage_type: str | None = None, name: str = "session_id", timeout: float = 60, clean_freq: float = 5,
    persistent: bool = True, storage_class: Any = None, path: str | None = None, path_header: str | None = None,
    domain: str | None = None, secure: bool = False, httponly: bool = False, samesite: str | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """Create or load the session of the request, and set its cookie in the response.

    Args:
        storage_type: ``Ram`` or ``File``.
        name: the name of the cookie.
        timeout: the minutes after which a session without requests expires.
        clean_freq: the minutes between removals of expired sessions.
        persistent: whether browsers keep the cookie when they are closed.
        storage_class: the session class, instead of ``storage_type``.
        path: the path of the cookie.
        path_header: the name of a request field that contains the path of the cookie.
        domain: the domain of the cookie.
        secure: whether the cookie is sent over TLS only.
        httponly: whether scripts cannot read the cookie.
        samesite: ``Lax``, ``Strict`` or ``None``. CherryPy does not have this option.
        **kwargs: attributes of the session class, such as ``storage_path``.
    """
    request = serving.request
    if getattr(serving, "session", None) is not None:
        return  # the tool is on under two names, or the handler called init()
    if storage_class is None:
        storage_class = {"ram": RamSession, "file": FileSession}.get((storage_type or "ram").lower())
        if storage_class is None:
            raise ValueError(
                f"tools.sessions.storage_type is ram or file, not {storage_type!r}: another store is a subclass of "
                "sessions.Session with _exists, _load, _save and _delete, and tools.sessions.storage_class"
            )
    if storage_class not in _set_up:
        _set_up.add(storage_class)
        storage_class.setup(timeout=timeout, clean_freq=clean_freq, **kwargs)
    id = request.cookie[name].value if name in request.cookie else None
    serving.session = session = storage_class(id, timeout=timeout, clean_freq=clean_freq, **kwargs)
    response = serving.response

    def update_cookie(value: str) -> None:
        response.cookie[name] = value

    session.id_observers.append(update_cookie)
    _globals.has_sessions = True
    set_response_cookie(path, path_header, name, timeout if persistent else None, domain, secure, httponly, samesite)


_set_up: set[Any] = set()
"""The session classes whose ``setup`` was called."""


def set_response_cookie(
    path: str | None = None, path_header: str | None = None, name: str = "session_id", timeout: float | None = 60,
    domain: str | None = None, secure: bool = False, httponly: bool = False, samesite: str | None = None,
    persistent: bool = True,
) -> None:  # fmt: skip
    """Set the cookie of the current session; see :func:`init`."""
    serving.response.cookie[name] = serving.session.id
    lasts = int(timeout * 60) if timeout and persistent else None
    given = {
        "path": path or serving.request.headers.get(path_header or "") or "/", "domain": domain, "samesite": samesite,
        "secure": secure, "httponly": httponly, "max-age": lasts,
        "expires": lasts and httputil.HTTPDate(time.time() + lasts),
    }  # fmt: skip
    serving.response.cookie[name].update({attribute: value for attribute, value in given.items() if value})


def expire() -> None:
    """Set an expired session cookie, so that the client deletes its own."""
    cookie = serving.response.cookie[serving.request.config.get("tools.sessions.name", "session_id")]
    cookie["expires"] = httputil.HTTPDate(time.time() - 365 * 86400)
    cookie.pop("max-age", None)
