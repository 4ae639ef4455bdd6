"""The one place where the supervisor waits: for descriptors, and for moments of CLOCK_MONOTONIC.

A clock that is set does not matter here, and what a machine slept through is noticed.
"""

from __future__ import annotations

import selectors
import time

from kirsch.supervisor.worker_plan import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch.supervisor.control import Channel

# The loop was held up for so long beyond what it meant to wait: the machine slept, or somebody stopped us. The workers
# were probably stopped too, so what they have not done meanwhile is not held against them.
_HELD_UP_SECONDS = 2.0


class EventLoop:
    """``awake_since`` is when the loop was last held up for long; 0 while it never was."""

    def __init__(self) -> None:
        self.awake_since = 0.0
        self._selector = selectors.DefaultSelector()

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` when ``fd`` is readable."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def remove_reader(self, fd: int) -> None:
        """Attend to it no more. May be called again, as long as nobody else has got the number."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def close_channel(self, channel: Channel) -> None:
        """Close a channel. May be called again."""
        if channel.fileno() >= 0:
            self.remove_reader(channel.fileno())
            channel.close()

    def run_once(self, due: float, first: int) -> None:
        """Wait until ``due`` (NEVER: without end) or until something is readable, and have that attended to.

        What is readable at ``first`` comes first: it may explain what else there is.
        """
        began = time.monotonic()
        seconds = None if due == NEVER else max(due - began, 0.0)
        events = self._selector.select(seconds)
        if seconds is not None and time.monotonic() - began > seconds + _HELD_UP_SECONDS:
            self.awake_since = time.monotonic()
        for key, _ in sorted(events, key=lambda event: event[0].fd != first):
            # What an event before it has closed is no event any more.
            if self._selector.get_map().get(key.fd) is key:
                key.data()

    def close(self) -> None:
        self._selector.close()
