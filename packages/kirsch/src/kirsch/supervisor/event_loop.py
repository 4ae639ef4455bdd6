"""The supervisor's event loop, in which it waits for descriptors and for timers of CLOCK_MONOTONIC. Changes of the
system clock have no effect. The loop detects a suspension of the machine.
"""

from __future__ import annotations

import selectors
import time

from kirsch.supervisor.worker_plan import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch.supervisor.control import Channel

# A wait that ends this many seconds late shows that the machine was suspended or the process stopped. The workers
# probably were too, so that this time does not count against their deadlines.
_HELD_UP_SECONDS = 2.0


class EventLoop:
    """An event loop. ``awake_since`` is the end of the last suspension that it detected; 0 if there was none."""

    def __init__(self) -> None:
        self.awake_since = 0.0
        self._selector = selectors.DefaultSelector()

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        """Register ``callback``, which is called when ``fd`` is readable."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def remove_reader(self, fd: int) -> None:
        """Stop watching ``fd``. May be called again, unless the descriptor has been reused."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def close_channel(self, channel: Channel) -> None:
        """Stop watching a channel and close it. May be called again."""
        if channel.fileno() >= 0:
            self.remove_reader(channel.fileno())
            channel.close()

    def run_once(self, due: float, first: int) -> None:
        """Wait until ``due`` (NEVER: no time limit) or until a descriptor is readable, and call the callbacks.

        The callback of ``first`` is called first, because it may explain the other events.
        """
        began = time.monotonic()
        seconds = None if due == NEVER else max(due - began, 0.0)
        events = self._selector.select(seconds)
        if seconds is not None and time.monotonic() - began > seconds + _HELD_UP_SECONDS:
            self.awake_since = time.monotonic()
        for key, _ in sorted(events, key=lambda event: event[0].fd != first):
            # An earlier callback may have closed the descriptor of a later event.
            if self._selector.get_map().get(key.fd) is key:
                key.data()

    def close(self) -> None:
        self._selector.close()
