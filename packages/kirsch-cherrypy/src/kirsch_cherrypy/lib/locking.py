"""Waiting for locks with a limit of time, under the names that stores of sessions import."""

from __future__ import annotations

import datetime
from typing import Any


class LockTimeout(Exception):
    """A lock was not released in time."""


class LockChecker:
    """Raises :class:`LockTimeout` from :meth:`expired` once ``timeout`` has passed; None means never.

    Args:
        session_id: for the message.
        timeout: a timedelta, or seconds.
    """

    def __init__(self, session_id: Any, timeout: Any) -> None:
        if timeout is not None and not isinstance(timeout, datetime.timedelta):
            timeout = datetime.timedelta(seconds=timeout)
        self.session_id = session_id
        self._end = timeout and datetime.datetime.now(datetime.timezone.utc) + timeout

    def expired(self) -> bool:
        """False, while there is time."""
        if self._end and datetime.datetime.now(datetime.timezone.utc) >= self._end:
            raise LockTimeout(f"the lock of session {self.session_id} was not released in time")
        return False
