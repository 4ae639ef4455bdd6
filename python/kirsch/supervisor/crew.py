"""The workers: which there are, and what is to be done about them next.

There are as many *seats* as workers are wanted. On each sits one worker that is to stay, and for a while beside it
those that it replaces: they are *stale*, and told to stop as soon as it is ready. So whatever calls for a replacement
(a reload, a limit, an upgrade) marks workers as stale and leaves the rest to :func:`plan`.
"""

from __future__ import annotations

from kirsch.supervisor.backoff import Backoff
from kirsch.supervisor.control import Channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kirsch.scoreboard import Scoreboard, Slot

STARTING, READY, STOPPING = "starting", "ready", "stopping"

NEVER = float("inf")

DUMP_SECONDS = 0.5
"""Who does not do what it should is told to write its stacks, and gets so long for that before it is killed."""

# So many workers that were told to stop may be left, for requests or idle connections that they still have, until one
# more is replaced; or as many as there are seats.
_LINGERING = 4

# What of a worker an upgrade hands over.
_HANDED_OVER = (
    "seat", "generation", "pid", "state", "started", "ready_at", "expires", "stale", "stale_since", "deadline",
    "killed", "dismissed", "left", "why",
)  # fmt: skip


class Worker:
    """One worker process, from before its fork until it has been waited for. Times are seconds of CLOCK_MONOTONIC.

    ``pid`` is 0 until it is known. ``stale`` is the word for why it is to be replaced, empty while it is not.
    ``deadline`` is when the state that it is in must be over.
    """

    def __init__(
        self, seat: int, slot: Slot | None, channel: Channel, generation: int, now: float, deadline: float
    ) -> None:
        self.seat = seat
        self.slot = slot
        self.channel = channel
        self.generation = generation
        self.started = now
        self.pid = 0
        self.state = STARTING
        self.ready_at = NEVER
        self.expires = NEVER  # --max-lifetime
        self.stale = ""
        self.stale_since = NEVER
        self.deadline = deadline
        self.killed = False
        self.dismissed = False  # it was told to stop before it was ready
        self.left = False  # it accepts no more
        self.why = ""  # the word for why it ends, where that is known beforehand
        self.name = ""  # the application's, once this worker is ready
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
        """What another image of this program has to know of it (JSON), beside its descriptor."""
        values: dict[str, Any] = {name: getattr(self, name) for name in _HANDED_OVER}
        values = {name: value for name, value in values.items() if value != NEVER}
        return {**values, "channel": self.channel.fileno(), "slot": -1 if self.slot is None else self.slot.index}

    @classmethod
    def adopt(cls, values: dict[str, Any], board: Scoreboard | None) -> Worker:
        """The worker as another image has exported it; without a ``board`` nobody knows what it does."""
        slot = None if board is None or values["slot"] < 0 else board.slot(values["slot"])
        channel = Channel.adopt(values["channel"])
        worker = cls(values["seat"], slot, channel, values["generation"], values["started"], NEVER)
        for name in _HANDED_OVER:
            if name in values:
                setattr(worker, name, values[name])
        worker.state = {each: each for each in (STARTING, READY, STOPPING)}[values["state"]]
        return worker

    def __str__(self) -> str:
        return f"worker {self.pid}" if self.pid else "a worker"


class Seat:
    """What is remembered of a worker's index beyond the workers that have it: when the next may be started, and why the
    last one ended."""

    def __init__(self) -> None:
        self.backoff = Backoff()
        self.reason = "start"


class Plan:
    """``start``: seats that a worker is missing on. ``replace``: a seat whose worker gets a successor now, or None.
    ``stop``: workers that are not needed any more."""

    def __init__(self) -> None:
        self.start: list[int] = []
        self.replace: int | None = None
        self.stop: list[Worker] = []


def plan(workers: Iterable[Worker], seats: int) -> Plan:
    """What is to be done so that a fresh worker sits on each seat, with one replacement at a time.

    Workers of a generation that a reload still tries are not for this: leave them away."""
    workers = list(workers)
    steps = Plan()
    waiting: list[Worker] = []
    replacing = False
    for seat in range(seats):
        here = [worker for worker in workers if worker.seat == seat and worker.is_serving]
        stale = [worker for worker in here if worker.stale]
        fresh = [worker for worker in here if not worker.stale]
        # One that was started for a reload and has been overtaken by the next is of no use to anybody.
        steps.stop += [worker for worker in stale if worker.state is STARTING]
        stale = [worker for worker in stale if worker.state is READY]
        if not fresh:
            if stale:
                waiting.append(min(stale, key=lambda worker: worker.stale_since))
            else:
                steps.start.append(seat)
        elif fresh[0].state is READY:
            steps.stop += stale
        elif stale:
            replacing = True
    lingering = sum(worker.state is STOPPING for worker in workers)
    if waiting and not replacing and lingering < max(_LINGERING, seats):
        steps.replace = min(waiting, key=lambda worker: worker.stale_since).seat
    steps.stop += [worker for worker in workers if worker.seat >= seats and worker.is_serving]
    return steps
