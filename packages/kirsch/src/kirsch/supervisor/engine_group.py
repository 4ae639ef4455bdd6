"""The engine group: shared data by which a new connection goes to the worker with the fewest connections.

The rule and the layout of the records are native (``crates/engine/src/group.rs``). The supervisor provides a record in
each slot of the scoreboard, and an eventfd(2) for each of the first slots, with which one worker wakes another. Workers
inherit all of them.

A worker does not participate if its slot has no eventfd, because there are far more workers than the settings allowed
at the start. Then it accepts the connections that the kernel gives it. The same applies to all workers on a system
without eventfd(2), and with ``--reuse-port``, where each worker has its own sockets.
"""

from __future__ import annotations

import os

from kirsch import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kirsch.config.schema import Settings
    from kirsch.monitor.scoreboard import Scoreboard

    # The shared memory, the distance between two records in bytes, the index of the worker's record, and the eventfds.
    GroupArguments = tuple[memoryview, int, int, list[int]]

# The number of eventfds beyond two for each worker index (a worker and its successor), for stopping workers.
_SPARE = 4


class EngineGroup:
    """The eventfds of the workers. ``fds`` are those of the previous image (USR2)."""

    def __init__(self, board: Scoreboard, fds: Iterable[int] = ()) -> None:
        self._board = board
        self._fds = list(fds)
        self.set_inheritable(False)

    def make_room(self, chosen: Settings, wanted: int) -> None:
        """Create eventfds for the largest number of workers. Running workers do not get the new ones."""
        if not hasattr(_native, "eventfd"):
            return
        count = min(2 * max(chosen.workers, chosen.max_workers, wanted) + _SPARE, self._board.slots)
        while len(self._fds) < count:
            try:
                self._fds.append(_native.eventfd())
            except OSError:
                return  # out of descriptors: further workers do not participate

    def hand_over(self, index: int) -> GroupArguments | None:
        """In the worker of slot ``index``: return the argument ``group`` of the native server, which takes over the
        descriptors. None if the worker does not participate."""
        if index >= len(self._fds):
            self.close()
            return None
        memory, stride = self._board.group_records(len(self._fds))
        fds, self._fds = self._fds, []
        return memory, stride, index, fds

    def close(self) -> None:
        """Close the eventfds, in a process that does not participate."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def export(self) -> Any:
        """Return JSON data for the next image of this program. The descriptors survive an exec from now on."""
        self.set_inheritable(True)
        return self._fds

    def set_inheritable(self, inheritable: bool) -> None:
        for fd in self._fds:
            os.set_inheritable(fd, inheritable)
