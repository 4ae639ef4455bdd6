"""The activity of all workers, sampled from the scoreboard, for the autoscaler."""

from __future__ import annotations

from kirsch.supervisor.scaling_policy import Load
from kirsch.supervisor.system import processor_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kirsch.supervisor.worker_plan import Worker


class Activity:
    """The activity of the workers. ``busy`` counts requests in the application, ``queued`` requests that wait for a
    thread. ``idle_since`` is the time of the last sample with a request, or the time when the last worker became
    ready."""

    def __init__(self, now: float) -> None:
        self.busy = 0
        self.queued = 0
        self.idle_since = now
        self._requests: dict[int, int] = {}
        self._processors: dict[int, float] = {}
        self._sampled_at = now

    def sample(self, now: float, workers: Iterable[Worker]) -> None:
        """Sample ``workers``, which must all be ready."""
        requests = {}
        self.busy = self.queued = suspended = 0
        for worker in workers:
            self.idle_since = max(self.idle_since, worker.ready_at)
            if worker.slot is not None:
                values = worker.slot.values
                self.busy += values["running"]
                self.queued += values["queued"]
                suspended += values["suspended"]
                requests[worker.pid] = values["requests"]
        if self.busy or self.queued or suspended or requests != self._requests:
            self.idle_since = now
        self._requests = requests

    def load(self, now: float, workers: list[Worker], threads: int) -> Load:
        """Return the load at the last :meth:`sample`, for workers with ``threads`` threads each."""
        elapsed, self._sampled_at = max(now - self._sampled_at, 0.001), now
        before, self._processors = self._processors, {each.pid: processor_seconds(each.pid) for each in workers}
        used = sum(max(total - before[pid], 0.0) for pid, total in self._processors.items() if pid in before)
        return Load(
            workers=len(workers), busy=self.busy, queued=self.queued, threads=threads, processors=used / elapsed
        )
