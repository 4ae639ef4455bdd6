"""The worker plan: the records of the worker processes, and the decision which to start, replace and stop next. Each
wanted worker has an *index*, from 0. The workers that it replaces have the same index, and are *stale*: the supervisor
stops them as soon as their successor is ready. A reload, a limit or an upgrade therefore only marks workers as stale;
:func:`plan` decides the rest.
"""

from __future__ import annotations

from kirsch.supervisor.backoff import Backoff
from kirsch.supervisor.control import Channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kirsch.monitor.scoreboard import Scoreboard, Slot

STARTING, READY, STOPPING = "starting", "ready", "stopping"

NEVER = float("inf")

SERVES_ITSELF = "; its stack is above. A module that is served must not start a server when it is imported"
"""The usual reason for an import that does not end: ``app.run()`` without ``if __name__ == "__main__":``."""

DUMP_SECONDS = 0.5
"""The seconds in which a child that missed a deadline has to write its stacks before the supervisor kills it."""

# No further worker is replaced while this many workers (or the wanted number, if that is more) are still stopping,
# because of their requests or idle connections.
_STOPPING_MAX = 4

# The attributes of a worker that are passed on in an upgrade.
_HANDED_OVER = (
    "index", "generation", "pid", "state", "started", "ready_at", "expires", "stale", "stale_since", "deadline",
    "killed", "dismissed", "left", "why",
)  # fmt: skip


class Worker:
    """One worker process, from before its fork until it is reaped. Times are seconds of CLOCK_MONOTONIC. ``pid`` is 0
    until the supervisor knows it. ``stale`` is the reason why the worker is being replaced, else empty. ``deadline`` is
    the time at which the current state must have ended.
    """

    def __init__(
        self, index: int, slot: Slot | None, channel: Channel, generation: int, now: float, deadline: float
    ) -> None:
        self.index = index
        self.slot = slot
        self.channel = channel
        self.generation = generation
        self.started = now
        self.pid = 0
        self.state = STARTING
        self.ready_at = NEVER
        self.expires = NEVER  # the end of --max-lifetime
        self.stale = ""
        self.stale_since = NEVER
        self.deadline = deadline
        self.killed = False
        self.dismissed = False  # the supervisor stopped it before it was ready
        self.left = False  # it accepts no more connections
        self.why = ""  # the reason for its exit, if known beforehand
        self.name = ""  # the application's name, known when this worker is ready
        self.failure: dict[str, Any] | None = None  # its message ``failed``
        self.processor_time = 0.0

    @property
    def is_serving(self) -> bool:
        return self.state is not STOPPING

    def mark_stale(self, reason: str, now: float) -> None:
        if self.is_serving and not self.stale:
            self.stale = reason
            self.stale_since = now

    def export(self) -> dict[str, Any]:
        """Return JSON data about the worker for the next image of this program. The descriptor of its channel
        survives the exec."""
        values: dict[str, Any] = {name: getattr(self, name) for name in _HANDED_OVER}
        values = {name: value for name, value in values.items() if value != NEVER}
        slot = -1 if self.slot is None else self.slot.index
        return {**values, "channel": self.channel.fileno(), "slot": slot}

    @classmethod
    def adopt(cls, values: dict[str, Any], board: Scoreboard | None) -> Worker:
        """Return the worker that the previous image has exported. Without a ``board`` its counters are unknown."""
        slot = None if board is None or values["slot"] < 0 else board.slot(values["slot"])
        channel = Channel.adopt(values["channel"])
        worker = cls(values["index"], slot, channel, values["generation"], values["started"], NEVER)
        for name in _HANDED_OVER:
            if name in values:
                setattr(worker, name, values[name])
        worker.state = {each: each for each in (STARTING, READY, STOPPING)}[values["state"]]
        return worker

    def __str__(self) -> str:
        return f"worker {self.pid}" if self.pid else "a worker"


class IndexState:
    """The state of a worker index, which outlives its workers: the earliest time of the next start, and the reason
    why the last worker ended."""

    def __init__(self) -> None:
        self.backoff = Backoff()
        self.reason = "start"


class Plan:
    """The next steps. ``start``: the indexes without a worker. ``replace``: the index whose worker gets a successor
    now, or None. ``stop``: the workers that are not needed."""

    def __init__(self) -> None:
        self.start: list[int] = []
        self.replace: int | None = None
        self.stop: list[Worker] = []


def plan(workers: Iterable[Worker], count: int) -> Plan:
    """Decide which workers to start, replace and stop, so that each index below ``count`` has one fresh worker.

    One worker is replaced at a time. The caller omits the workers of a trial.
    """
    workers = list(workers)
    steps = Plan()
    waiting: list[Worker] = []
    replacing = False
    for index in range(count):
        here = [worker for worker in workers if worker.index == index and worker.is_serving]
        stale = [worker for worker in here if worker.stale]
        fresh = [worker for worker in here if not worker.stale]
        # A starting worker of one reload is not needed after the next reload has begun.
        steps.stop += [worker for worker in stale if worker.state is STARTING]
        stale = [worker for worker in stale if worker.state is READY]
        if not fresh:
            if stale:
                waiting.append(min(stale, key=lambda worker: worker.stale_since))
            else:
                steps.start.append(index)
        elif fresh[0].state is READY:
            steps.stop += stale
        elif stale:
            replacing = True
    stopping = sum(worker.state is STOPPING for worker in workers)
    if waiting and not replacing and stopping < max(_STOPPING_MAX, count):
        steps.replace = min(waiting, key=lambda worker: worker.stale_since).index
    steps.stop += [worker for worker in workers if worker.index >= count and worker.is_serving]
    return steps
