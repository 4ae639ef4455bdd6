"""What a worker notices while it serves, in a thread of its own: its supervisor's words, its limits, its memory.

The thread is a real one under gevent too, and whatever it calls may be called from any thread. Once a second it says
``beat`` on the scoreboard. That takes the interpreter, so a beat that does not come is the proof that no thread of the
worker gets it any more (``--deadlock-timeout``).
"""

from __future__ import annotations

import os
import time
from select import POLLIN
from select import poll as Poll

from kirsch.drivers import start_thread
from kirsch.supervisor.showing import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.scoreboard import Slot
    from kirsch.server import Server, Signals
    from kirsch.supervisor.control import Channel, Message

BEAT_SECONDS = 1.0

# To weigh a process the kernel walks through all of its pages. That may take so much of a processor at most.
_WEIGH_SHARE = 0.01
_WEIGH_SECONDS = 1.0
# Where no limit depends on it, somebody may still look at it.
_WEIGH_IDLY_SECONDS = 10.0


class Attendant:
    """``limit_fd`` becomes readable when the engine has begun ``--max-requests`` requests; -1: there is no limit."""

    def __init__(
        self, channel: Channel, slot: Slot, server: Server, signals: Signals, *, max_memory: int, limit_fd: int
    ) -> None:
        self._channel = channel
        self._slot = slot
        self._server = server
        self._signals = signals
        self._max_memory = max_memory
        self._limit_fd = limit_fd
        self._leaving = False
        self._told = False
        self._weigh_at = 0.0

    def start(self) -> None:
        start_thread("kirsch-control", self._run)

    def tell(self, reason: str, why: str) -> None:
        """Say that this worker ends, though its supervisor has not told it to. From any thread."""
        self._told = True
        self._channel.send("stopping", reason=reason, why=why)

    def _run(self) -> None:
        poll = Poll()
        poll.register(self._channel.fileno(), POLLIN)
        if self._limit_fd >= 0:
            poll.register(self._limit_fd, POLLIN)
        while True:
            self._slot.beat()
            show(self._slot, self._server)
            self._weigh()
            if self._server.is_stopping and not self._told:
                if self._server.is_stuck:
                    self.tell("stuck", "a request is stuck")
                else:
                    self.tell("other", "the application has stopped the server")
            for fd, _events in poll.poll(BEAT_SECONDS * 1000):
                if fd == self._limit_fd:
                    poll.unregister(fd)
                    self.leave("max-requests", "it has begun as many requests as it may")
                elif not self._listen():
                    poll.unregister(fd)

    def _listen(self) -> bool:
        """Hear what the supervisor has said; False where it is gone."""
        while message := self._channel.receive():
            self._obey(message)
        if message is not None:
            return True
        # Nobody would start another worker, hold the sockets, or end this one: leave the port to whoever comes next.
        self._signals.end("the supervisor has gone", self._server.graceful_timeout)
        return False

    def _obey(self, message: Message) -> None:
        if message["message"] == "stop":
            self._told = True
            self._signals.end(message["why"], message["graceful_timeout"], message["idle_timeout"])
            self._channel.send("left")
        elif message["message"] == "drain":
            self._server.drain()

    def leave(self, reason: str, text: str) -> None:
        """Ask for a successor, once; until that is there, go on. From any thread."""
        if not self._leaving:
            self._leaving = True
            self._channel.send("leaving", reason=reason, text=text)

    def _weigh(self) -> None:
        began = time.monotonic()
        if began < self._weigh_at:
            return
        memory = own_memory()
        took = time.monotonic() - began
        least = _WEIGH_SECONDS if self._max_memory else _WEIGH_IDLY_SECONDS
        self._weigh_at = began + max(least - BEAT_SECONDS / 2, took / _WEIGH_SHARE)
        self._slot.memory = memory
        if 0 < self._max_memory < memory:
            self.leave("max-memory", f"it has {memory >> 20} MiB to itself, and may have {self._max_memory >> 20}")


def own_memory() -> int:
    """The memory that nobody else shares (USS), in bytes: what would be free again without this process.

    0 where the system does not tell.
    """
    try:
        fd = os.open("/proc/self/smaps_rollup", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        rollup = os.read(fd, 8192)
    except OSError:
        return 0
    finally:
        os.close(fd)
    return sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith(b"Private_")) * 1024
