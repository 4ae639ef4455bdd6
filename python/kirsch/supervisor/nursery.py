"""The zygotes of ``--preload``, as the supervisor sees them: the one that forks workers, and the one to follow it."""

from __future__ import annotations

import signal
import time
from functools import partial

from kirsch.supervisor import control, zygote
from kirsch.supervisor import worker as workers
from kirsch.supervisor.backoff import delay
from kirsch.supervisor.crew import DUMP_SECONDS, NEVER
from kirsch.supervisor.system import kill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from kirsch.supervisor.control import Channel, Message
    from kirsch.supervisor.waiting import Waiting
    from kirsch.supervisor.worker import Outfit

    class Host(Protocol):
        """The supervisor, as far as a nursery needs it."""

        def fork(self, main: Callable[[], int], *channels: Channel) -> int: ...
        def zygote_ready(self, nest: Nest) -> None: ...
        def zygote_failed(self, nest: Nest, code: int) -> None: ...


class Nest:
    """One zygote. ``why`` somebody asked for it; ``reason`` is the word for which workers become stale when it is
    ready, empty where none does."""

    def __init__(self, channel: Channel, deadline: float, why: str, reason: str) -> None:
        self.channel = channel
        self.pid = 0
        self.deadline = deadline
        self.why = why
        self.reason = reason
        self.name = ""
        self.threads: list[str] = []
        self.failure: Message | None = None


class Nursery:
    """``current`` forks workers; ``coming`` still imports the application. Others are on their way out."""

    def __init__(self, waiting: Waiting, host: Host) -> None:
        self._waiting = waiting
        self._host = host
        self.current: Nest | None = None
        self.coming: Nest | None = None
        self._kept: list[Nest] = []
        self._leaving: list[Nest] = []
        self._deaths = 0
        self._not_before = 0.0

    def all(self) -> list[Nest]:
        return [nest for nest in (self.current, self.coming, *self._kept, *self._leaving) if nest is not None]

    def make(self, outfit: Outfit, why: str, reason: str) -> None:
        """Fork a zygote. It tells :meth:`Host.zygote_ready` or ``zygote_failed`` what became of it. Raises OSError."""
        if self.coming is not None:
            reason = reason or self.coming.reason
            self.dismiss(self.coming)
        timeout = outfit.chosen.startup_timeout
        ours, theirs = control.pair()
        nest = Nest(ours, time.monotonic() + timeout if timeout else NEVER, why, reason)
        try:
            nest.pid = self._host.fork(partial(zygote.main, outfit, theirs), ours)
        except OSError:
            ours.close()
            theirs.close()
            raise
        theirs.close()  # not in a finally clause, through which the child comes too
        self.coming = nest
        self._waiting.attend(ours.fileno(), partial(self._on_message, nest))

    def is_due(self, now: float) -> bool:
        """Whether there is none, and one may be made."""
        return self.current is None and self.coming is None and now >= self._not_before

    def died(self) -> float:
        """Note that the one that was needed has died; returns the seconds until the next may be made."""
        self._deaths += 1
        wait = delay(self._deaths)
        self._not_before = time.monotonic() + wait
        return wait

    def promote(self) -> Nest | None:
        """The coming one forks workers from now on. Returns the one before, which is kept: see :meth:`go_back`."""
        before, self.current, self.coming = self.current, self.coming, None
        self._deaths = 0
        if before is not None:
            self._kept.append(before)
        return before

    def retire(self) -> None:
        """No workers come from a zygote any more; the one that they came from is kept."""
        if self.current is not None:
            self._kept.append(self.current)
            self.current = None

    def go_back(self, before: Nest | None) -> None:
        """What came after ``before`` is no good."""
        for nest in (self.coming, self.current):
            if nest is not None and nest is not before:
                self.dismiss(nest)
        if before in self._kept:
            self._kept.remove(before)
            self.current = before

    def let_go(self) -> None:
        """The one in use is good: whoever was kept in case may go."""
        for nest in self._kept.copy():
            self.dismiss(nest)

    def dismiss_all(self) -> None:
        for nest in self.all():
            self.dismiss(nest)

    def dismiss(self, nest: Nest) -> None:
        """It goes at once: it serves nobody, and no exit functions are due, which its workers have run. It may also be
        stopped, or stuck in an import."""
        if nest in self._leaving:
            return
        if nest is self.current:
            self.current = None
        if nest is self.coming:
            self.coming = None
        if nest in self._kept:
            self._kept.remove(nest)
        self._waiting.forget(nest.channel)
        kill(nest.pid, signal.SIGKILL)
        nest.deadline = NEVER
        self._leaving.append(nest)

    def check_time(self, now: float) -> tuple[float, list[Nest]]:
        """Kill who has not imported the application in time. Returns when to look again, and who is late now."""
        late = []
        for nest in self.all():
            if now < nest.deadline:
                continue
            if nest.failure is None:
                late.append(nest)
                nest.failure = {}
                kill(nest.pid, workers.DUMP_SIGNAL)
                nest.deadline = now + DUMP_SECONDS
            else:
                nest.deadline = NEVER
                kill(nest.pid, signal.SIGKILL)
        due = [nest.deadline for nest in self.all()]
        return min([*due, self._not_before if self._not_before > now else NEVER]), late

    def ended(self, pid: int, code: int) -> bool:
        """The process ``pid`` has ended with ``code``; False where it was no zygote."""
        nest = next((nest for nest in self.all() if nest.pid == pid), None)
        if nest is None:
            return False
        self._on_message(nest)
        self._waiting.forget(nest.channel)
        for place in (self._leaving, self._kept):
            if nest in place:
                place.remove(nest)
                return True
        if nest is self.current:
            self.current = None
        if nest is self.coming:
            self.coming = None
        self._host.zygote_failed(nest, code)
        return True

    def _on_message(self, nest: Nest) -> None:
        while message := nest.channel.receive():
            if message["message"] == "failed":
                nest.failure = message
            elif message["message"] == "ready" and nest is self.coming:
                nest.deadline = NEVER
                nest.name = str(message["name"])
                nest.threads = [str(name) for name in message["threads"]]
                self._host.zygote_ready(nest)
        if message is None:
            self._waiting.forget(nest.channel)
