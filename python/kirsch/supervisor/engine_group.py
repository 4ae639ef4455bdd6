"""The engine group of all workers: what they share so that a new connection goes to the worker that has the fewest.

The rule, and what the records hold, is native (``crates/engine/src/group.rs``). Here is what only a supervisor can
give: a record in each slot of the scoreboard, and for each of the first slots an eventfd(2), by which a worker wakes
another. Workers inherit all of them.

A worker whose slot has none, because there are far more workers than the settings said when the supervisor began,
accepts what the kernel gives it and is not compared with others; and so do all workers where the system has no such
descriptors, or where each has sockets of its own (``--reuse-port``).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kirsch.scoreboard import Scoreboard
    from kirsch.settings import Settings

    # The memory, bytes from one record to the next, the worker's own record, and the eventfds.
    GroupArguments = tuple[memoryview, int, int, list[int]]

# Beside a worker on each seat there may be its successor, and a few that are about to end.
_SPARE = 4


class EngineGroup:
    """``fds`` are eventfds of the image before this one (USR2)."""

    def __init__(self, board: Scoreboard, fds: Iterable[int] = ()) -> None:
        self._board = board
        self._fds = list(fds)
        self.set_inheritable(False)

    def make_room(self, chosen: Settings, wanted: int) -> None:
        """Let as many workers take part as there may be. Workers that are there already do not get to know more of
        them."""
        if not hasattr(os, "eventfd"):
            return
        count = min(2 * max(chosen.workers, chosen.max_workers, wanted) + _SPARE, self._board.slots)
        while len(self._fds) < count:
            try:
                self._fds.append(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
            except OSError:
                return  # out of descriptors: serving goes on without

    def hand_over(self, index: int) -> GroupArguments | None:
        """In the worker of this slot: the native server's argument ``group``, which takes the descriptors over. None
        where the worker takes no part."""
        if index >= len(self._fds):
            self.close()
            return None
        memory, stride = self._board.group_records(len(self._fds))
        fds, self._fds = self._fds, []
        return memory, stride, index, fds

    def close(self) -> None:
        """In a process that takes no part."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def export(self) -> Any:
        """What the next image of this program has to know (JSON). From here on the descriptors outlive an exec."""
        self.set_inheritable(True)
        return self._fds

    def set_inheritable(self, inheritable: bool) -> None:
        for fd in self._fds:
            os.set_inheritable(fd, inheritable)
