"""How many workers there should be (``--min-workers``, ``--max-workers``) by what they do: up quickly, down slowly.

Requests that wait for a thread are too few workers, whatever else is to be seen. Where none can be seen waiting (one
thread reads no further while it computes, greenlets never wait for a thread), the busy threads and the processor time
tell: an interpreter is full when it has a processor to itself.
"""

from __future__ import annotations

CHECK_SECONDS = 1.0

_FULL = 0.8
# One worker less must leave the others below this, and for so long.
_ROOMY = 0.5
_DOWN_AFTER_SECONDS = 30.0


class Load:
    """What the workers do together at one moment.

    ``workers`` serve; ``busy`` requests are in the application, ``queued`` wait for a thread; ``threads`` is how many
    calls a worker may have at a time, 0 where nothing limits them; ``processors`` is the processor time that the
    workers used, as a number of processors.
    """

    __slots__ = ("busy", "processors", "queued", "threads", "workers")

    def __init__(self, *, workers: int, busy: int, queued: int, threads: int, processors: float) -> None:
        self.workers = workers
        self.busy = busy
        self.queued = queued
        self.threads = threads
        self.processors = processors

    def share(self, workers: int) -> float:
        """How full so many workers would be with it; 1 is full."""
        by_threads = (self.busy + self.queued) / (self.threads * workers) if self.threads else 0.0
        return max(by_threads, self.processors / workers)


class ScalingPolicy:
    """Remembers since when there have been more workers than needed."""

    def __init__(self) -> None:
        self._roomy_since: float | None = None

    def wanted(self, now: float, current: int, least: int, most: int, load: Load) -> int:
        """The number of workers from now on. ``current`` is the number wanted so far; until so many serve, none is
        added: they are on their way."""
        bounded = min(max(current, least), most)
        if bounded != current:
            self._roomy_since = None
            return bounded
        if load.workers < 1 or load.workers < current:
            return current
        if load.queued > 0 or load.share(current) >= _FULL:
            self._roomy_since = None
            # As many more as have their hands full with what waits, but not more than twice as many as there were.
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
