"""The zygotes of ``--preload``, as the supervisor sees them: the one that forks workers, and the one to follow it."""

from __future__ import annotations

import signal
import time
from functools import partial

from kirsch.supervisor import control, zygote
from kirsch.supervisor import worker as workers
from kirsch.supervisor.backoff import YOUNG_SECONDS, Backoff
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
        def zygote_failed(self, nest: Nest, code: int, *, is_trial: bool) -> None: ...


class Nest:
    """One zygote."""

    def __init__(self, channel: Channel, deadline: float, timeout: float) -> None:
        self.channel = channel
        self.pid = 0
        self.deadline = deadline
        self.timeout = timeout
        self.name = ""
        self.ready_at = NEVER
        self.threads: list[str] = []
        self.failure: Message | None = None


class Nursery:
    """``current`` forks the workers of the current generation; ``coming`` still imports the application, to be that.
    ``trial`` forks the first worker of the generation that a reload tries. Others are on their way out."""

    def __init__(self, waiting: Waiting, host: Host) -> None:
        self._waiting = waiting
        self._host = host
        self.current: Nest | None = None
        self.coming: Nest | None = None
        self.trial: Nest | None = None
        self._leaving: list[Nest] = []
        self._backoff = Backoff()
        self._ready_at = NEVER

    def all(self) -> list[Nest]:
        return [nest for nest in (self.current, self.coming, self.trial, *self._leaving) if nest is not None]

    def make(self, outfit: Outfit, *, is_trial: bool = False) -> None:
        """Fork a zygote. It tells :meth:`Host.zygote_ready` or ``zygote_failed`` what became of it. Raises OSError."""
        timeout = outfit.chosen.startup_timeout
        ours, theirs = control.pair()
        nest = Nest(ours, time.monotonic() + timeout if timeout else NEVER, timeout)
        try:
            nest.pid = self._host.fork(partial(zygote.main, outfit, theirs), ours)
        except OSError:
            ours.close()
            theirs.close()
            raise
        theirs.close()  # not in a finally clause, through which the child comes too
        if is_trial:
            self.trial = nest
        else:
            self.coming = nest
        self._waiting.attend(ours.fileno(), partial(self._on_message, nest))

    def is_due(self, now: float) -> bool:
        """Whether there is none, and one may be made."""
        return self.current is None and self.coming is None and now >= self._backoff.not_before

    def failed(self) -> float:
        """Note that one did not get ready; returns the seconds until the next may be made."""
        return self._backoff.failed(time.monotonic(), at_least=0.5, ready_at=[self._ready_at])

    def begin_trial(self) -> None:
        """The generation that was tried is the current one now, and its zygote, if it has one, forks the workers."""
        for nest in (self.current, self.coming):
            if nest is not None:
                self.dismiss(nest)
        self.current, self.trial = self.trial, None
        self._backoff.reset()
        self._ready_at = NEVER if self.current is None else self.current.ready_at

    def drop_trial(self) -> None:
        if self.trial is not None:
            self.dismiss(self.trial)

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
        if nest is self.trial:
            self.trial = None
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
        not_before = self._backoff.not_before
        return min([*due, not_before if not_before > now else NEVER]), late

    def ended(self, pid: int, code: int) -> bool:
        """The process ``pid`` has ended with ``code``; False where it was no zygote."""
        nest = next((nest for nest in self.all() if nest.pid == pid), None)
        if nest is None:
            return False
        self._on_message(nest)
        self._waiting.forget(nest.channel)
        if nest in self._leaving:
            self._leaving.remove(nest)
            return True
        is_trial = nest is self.trial
        if nest is self.current:
            self.current = None
            now = time.monotonic()
            if now < nest.ready_at + YOUNG_SECONDS:
                self._backoff.failed(now, at_least=0.5)
        elif is_trial:
            self.trial = None
        elif nest is self.coming:
            self.coming = None
        self._host.zygote_failed(nest, code, is_trial=is_trial)
        return True

    def _on_message(self, nest: Nest) -> None:
        while message := nest.channel.receive():
            if message["message"] == "failed":
                nest.failure = message
            elif message["message"] == "ready" and nest in (self.coming, self.trial):
                nest.deadline = NEVER
                nest.ready_at = time.monotonic()
                nest.name = str(message["name"])
                nest.threads = [str(name) for name in message["threads"]]
                if nest is self.coming:
                    self.current, self.coming, self._ready_at = nest, None, nest.ready_at
                self._host.zygote_ready(nest)
        if message is None:
            self._waiting.forget(nest.channel)
