"""The number of workers (``--min-workers``, ``--max-workers``) for a load: it rises fast and falls slowly. Requests
that wait for a thread always mean too few workers. Some workers never have such requests: a single thread does not read
more requests while it computes, and greenlets do not wait for a thread. So the number of busy threads and the CPU time
count too: a worker that uses one CPU is full.
"""

from __future__ import annotations

CHECK_SECONDS = 1.0

_FULL = 0.8
# A worker is removed if the load of the others would stay below this fraction for this many seconds.
_ROOMY = 0.5
_DOWN_AFTER_SECONDS = 30.0


class Load:
    """The load of all workers together at one moment. ``workers`` is the number of serving workers, ``busy`` of
    requests in the application, ``queued`` of requests that wait for a thread. ``threads`` is the limit of concurrent
    calls in a worker, 0 if there is none. ``processors`` is the CPU time used per elapsed time.
    """

    __slots__ = ("busy", "processors", "queued", "threads", "workers")

    def __init__(self, *, workers: int, busy: int, queued: int, threads: int, processors: float) -> None:
        self.workers = workers
        self.busy = busy
        self.queued = queued
        self.threads = threads
        self.processors = processors

    def share(self, workers: int) -> float:
        """Return the fraction of ``workers`` workers that this load would occupy; 1 means all of them."""
        by_threads = (self.busy + self.queued) / (self.threads * workers) if self.threads else 0.0
        return max(by_threads, self.processors / workers)


class ScalingPolicy:
    """Decides the number of workers; remembers since when there are more than needed."""

    def __init__(self) -> None:
        self._roomy_since: float | None = None

    def wanted(self, now: float, current: int, least: int, most: int, load: Load) -> int:
        """Return the number of workers that is wanted now; ``current`` is the number wanted so far. While fewer are
        serving, none is added, because the missing ones are starting."""
        bounded = min(max(current, least), most)
        if bounded != current:
            self._roomy_since = None
            return bounded
        if load.workers < 1 or load.workers < current:
            return current
        if load.queued > 0 or load.share(current) >= _FULL:
            self._roomy_since = None
            # Add as many workers as the waiting requests would occupy, but at most double the number of workers.
            step = -(-load.queued // load.threads) if load.threads else 1
            return min(current + min(max(step, 1), current), most)
        if current > least and load.share(current - 1) < _ROOMY:
            if self._roomy_since is None:
                self._roomy_since = now
            elif now - self._roomy_since >= _DOWN_AFTER_SECONDS:
                self._roomy_since = now
                return current - 1
        else:
            self._roomy_since = None
        return current
