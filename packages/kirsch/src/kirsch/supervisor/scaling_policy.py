"""The number of workers (``--min-workers``, ``--max-workers``) by their load: fast up, slow down.

Requests that wait for a thread always mean too few workers. Some workers never show such requests: one thread reads no
further while it computes, and greenlets do not wait for a thread. For those the busy threads and the processor time
decide: a worker is full when it uses one processor.
"""

from __future__ import annotations

CHECK_SECONDS = 1.0

_FULL = 0.8
# A worker is removed if the load of the others stays below this share for this long.
_ROOMY = 0.5
_DOWN_AFTER_SECONDS = 30.0


class Load:
    """The load of all workers together at one moment.

    ``workers`` serve. ``busy`` requests are in the application, ``queued`` ones wait for a thread. ``threads`` is the
    limit of concurrent calls in a worker, 0 if there is none. ``processors`` is the processor time that the workers
    used, as a number of processors.
    """

    __slots__ = ("busy", "processors", "queued", "threads", "workers")

    def __init__(self, *, workers: int, busy: int, queued: int, threads: int, processors: float) -> None:
        self.workers = workers
        self.busy = busy
        self.queued = queued
        self.threads = threads
        self.processors = processors

    def share(self, workers: int) -> float:
        """Return the share of ``workers`` workers that this load would occupy; 1 is all of them."""
        by_threads = (self.busy + self.queued) / (self.threads * workers) if self.threads else 0.0
        return max(by_threads, self.processors / workers)


class ScalingPolicy:
    """Remembers since when there are more workers than needed."""

    def __init__(self) -> None:
        self._roomy_since: float | None = None

    def wanted(self, now: float, current: int, least: int, most: int, load: Load) -> int:
        """Return the number of workers that is wanted now. ``current`` is the number wanted so far. While fewer serve,
        none is added, because the missing ones are starting."""
        bounded = min(max(current, least), most)
        if bounded != current:
            self._roomy_since = None
            return bounded
        if load.workers < 1 or load.workers < current:
            return current
        if load.queued > 0 or load.share(current) >= _FULL:
            self._roomy_since = None
            # Add the workers that the waiting requests would occupy, but at most double the number of workers.
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
