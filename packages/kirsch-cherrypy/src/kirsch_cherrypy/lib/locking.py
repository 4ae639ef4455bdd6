"""Lock timeouts, under the names that session stores import."""

from __future__ import annotations

import datetime
from typing import Any


class LockTimeout(Exception):
    """A lock was not released in time."""


class LockChecker:
    """A deadline for a lock, after which :meth:`expired` raises :class:`LockTimeout`.

    Args:
        session_id: the session ID, for the message.
        timeout: a timedelta or seconds, or None for no deadline.
    """

    def __init__(self, session_id: Any, timeout: Any) -> None:
        if timeout is not None and not isinstance(timeout, datetime.timedelta):
            timeout = datetime.timedelta(seconds=timeout)
        self.session_id = session_id
        self._end = timeout and datetime.datetime.now(datetime.timezone.utc) + timeout

    def expired(self) -> bool:
        """Return False before the deadline, and raise LockTimeout after it."""
        if self._end and datetime.datetime.now(datetime.timezone.utc) >= self._end:
            raise LockTimeout(f"the lock of session {self.session_id} was not released in time")
        return False
