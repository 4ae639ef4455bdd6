"""The zygotes of ``--preload``, as the supervisor sees them: the one that forks workers, and the one to follow it."""

from __future__ import annotations

import signal
import time
from functools import partial

from kirsch.supervisor import control, worker_process, zygote_process
from kirsch.supervisor.backoff import YOUNG_SECONDS, Backoff
from kirsch.supervisor.system import kill
from kirsch.supervisor.worker_plan import DUMP_SECONDS, NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from kirsch.supervisor.control import Channel, Message
    from kirsch.supervisor.event_loop import EventLoop
    from kirsch.supervisor.worker_process import SpawnContext

    class ZygoteOwner(Protocol):
        """The supervisor, as far as a zygotes needs it."""

        def fork(self, main: Callable[[], int], *channels: Channel) -> int: ...
        def zygote_ready(self, zygote: Zygote) -> None: ...
        def zygote_failed(self, zygote: Zygote, code: int, *, is_trial: bool) -> None: ...


class Zygote:
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


class ZygotePool:
    """``current`` forks the workers of the current generation; ``coming`` still imports the application, to be that.
    ``trial`` forks the first worker of the generation that a reload tries. Others are on their way out."""

    def __init__(self, loop: EventLoop, owner: ZygoteOwner) -> None:
        self._loop = loop
        self._owner = owner
        self.current: Zygote | None = None
        self.coming: Zygote | None = None
        self.trial: Zygote | None = None
        self._exiting: list[Zygote] = []
        self._backoff = Backoff()
        self._ready_at = NEVER

    def all(self) -> list[Zygote]:
        return [zygote for zygote in (self.current, self.coming, self.trial, *self._exiting) if zygote is not None]

    def start(self, context: SpawnContext, *, is_trial: bool = False) -> None:
        """Fork a zygote. It tells :meth:`ZygoteOwner.zygote_ready` or ``zygote_failed`` what became of it. Raises OSError."""
        timeout = context.chosen.startup_timeout
        ours, theirs = control.pair()
        zygote = Zygote(ours, time.monotonic() + timeout if timeout else NEVER, timeout)
        try:
            zygote.pid = self._owner.fork(partial(zygote_process.main, context, theirs), ours)
        except OSError:
            ours.close()
            theirs.close()
            raise
        theirs.close()  # not in a finally clause, through which the child comes too
        if is_trial:
            self.trial = zygote
        else:
            self.coming = zygote
        self._loop.add_reader(ours.fileno(), partial(self._on_message, zygote))

    def is_due(self, now: float) -> bool:
        """Whether there is none, and one may be made."""
        return self.current is None and self.coming is None and now >= self._backoff.not_before

    def start_failed(self) -> float:
        """Note that one did not get ready; returns the seconds until the next may be made."""
        return self._backoff.failed(time.monotonic(), at_least=0.5, ready_at=[self._ready_at])

    def begin_trial(self) -> None:
        """The generation that was tried is the current one now, and its zygote, if it has one, forks the workers."""
        for zygote in (self.current, self.coming):
            if zygote is not None:
                self.dismiss(zygote)
        self.current, self.trial = self.trial, None
        self._backoff.reset()
        self._ready_at = NEVER if self.current is None else self.current.ready_at

    def drop_trial(self) -> None:
        if self.trial is not None:
            self.dismiss(self.trial)

    def dismiss_all(self) -> None:
        for zygote in self.all():
            self.dismiss(zygote)

    def dismiss(self, zygote: Zygote) -> None:
        """It goes at once: it serves nobody, and no exit functions are due, which its workers have run. It may also be
        stopped, or stuck in an import."""
        if zygote in self._exiting:
            return
        if zygote is self.current:
            self.current = None
        if zygote is self.coming:
            self.coming = None
        if zygote is self.trial:
            self.trial = None
        self._loop.close_channel(zygote.channel)
        kill(zygote.pid, signal.SIGKILL)
        zygote.deadline = NEVER
        self._exiting.append(zygote)

    def check_time(self, now: float) -> tuple[float, list[Zygote]]:
        """Kill who has not imported the application in time. Returns when to look again, and who is late now."""
        late = []
        for zygote in self.all():
            if now < zygote.deadline:
                continue
            if zygote.failure is None:
                late.append(zygote)
                zygote.failure = {}
                kill(zygote.pid, worker_process.DUMP_SIGNAL)
                zygote.deadline = now + DUMP_SECONDS
            else:
                zygote.deadline = NEVER
                kill(zygote.pid, signal.SIGKILL)
        due = [zygote.deadline for zygote in self.all()]
        not_before = self._backoff.not_before
        return min([*due, not_before if not_before > now else NEVER]), late

    def on_exit(self, pid: int, code: int) -> bool:
        """The process ``pid`` has ended with ``code``; False where it was no zygote."""
        zygote = next((zygote for zygote in self.all() if zygote.pid == pid), None)
        if zygote is None:
            return False
        self._on_message(zygote)
        self._loop.close_channel(zygote.channel)
        if zygote in self._exiting:
            self._exiting.remove(zygote)
            return True
        is_trial = zygote is self.trial
        if zygote is self.current:
            self.current = None
            now = time.monotonic()
            if now < zygote.ready_at + YOUNG_SECONDS:
                self._backoff.failed(now, at_least=0.5)
        elif is_trial:
            self.trial = None
        elif zygote is self.coming:
            self.coming = None
        self._owner.zygote_failed(zygote, code, is_trial=is_trial)
        return True

    def _on_message(self, zygote: Zygote) -> None:
        while message := zygote.channel.receive():
            if message["message"] == "failed":
                zygote.failure = message
            elif message["message"] == "ready" and zygote in (self.coming, self.trial):
                zygote.deadline = NEVER
                zygote.ready_at = time.monotonic()
                zygote.name = str(message["name"])
                zygote.threads = [str(name) for name in message["threads"]]
                if zygote is self.coming:
                    self.current, self.coming, self._ready_at = zygote, None, zygote.ready_at
                self._owner.zygote_ready(zygote)
        if message is None:
            self._loop.close_channel(zygote.channel)
