"""The zygote pool: the supervisor's side of the zygotes of ``--preload``, the current one and its successor."""

from __future__ import annotations

import signal
import time
from functools import partial

from kirsch.supervisor import control, worker_process, zygote_process
from kirsch.supervisor.backoff import Backoff
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
        """The interface of the supervisor for the zygote pool."""

        def fork(self, main: Callable[[], int], *channels: Channel) -> int: ...
        def zygote_ready(self, zygote: Zygote) -> None: ...
        def zygote_failed(self, zygote: Zygote, code: int, *, is_trial: bool) -> None: ...


class Zygote:
    """One zygote process, as the supervisor sees it."""

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
    """``current`` forks the workers of the current generation. ``coming`` is importing the application, and then
    becomes ``current``. ``trial`` forks the first worker of a reload's trial. Other zygotes are exiting."""

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
        """Fork a zygote. Later, :meth:`ZygoteOwner.zygote_ready` or ``zygote_failed`` is called. Raises OSError."""
        timeout = context.chosen.startup_timeout
        ours, theirs = control.pair()
        zygote = Zygote(ours, time.monotonic() + timeout if timeout else NEVER, timeout)
        try:
            zygote.pid = self._owner.fork(partial(zygote_process.main, context, theirs), ours)
        except OSError:
            ours.close()
            theirs.close()
            raise
        theirs.close()  # not in a finally clause, which the child would run too
        if is_trial:
            self.trial = zygote
        else:
            self.coming = zygote
        self._loop.add_reader(ours.fileno(), partial(self._on_message, zygote))

    def is_due(self, now: float) -> bool:
        """Return whether there is no zygote, and the backoff allows starting one."""
        return self.current is None and self.coming is None and now >= self._backoff.not_before

    def start_failed(self) -> float:
        """Record that a zygote failed before it was ready; return the seconds until the next attempt."""
        return self._backoff.failed(time.monotonic(), at_least=0.5, ready_at=[self._ready_at])

    def begin_trial(self) -> None:
        """Make the trial's zygote, if there is one, the current one: a reload has made its generation current."""
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
        """Kill a zygote. It serves no request, and its exit functions run in its workers, so nothing is lost.
        SIGKILL, because it may be stopped, or stuck in an import."""
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
        """Kill zygotes that have missed their deadline. Return the next time to call this, and the zygotes that have
        just missed it."""
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
        """Handle the exit of process ``pid`` with ``code``; False if it is no zygote."""
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
            self._backoff.ended(time.monotonic(), zygote.ready_at)
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
