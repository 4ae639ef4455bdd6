"""Delays before another worker or zygote is started after one has failed: none, unless they fail repeatedly.

A child that fails before it is ready will probably fail again, and its import may be expensive: the wait doubles. A
child that was ready can serve, and a request or a memory limit has ended it: its successor waits a second at most,
which only prevents a busy loop of forks.

Nothing here reads a clock: ``now`` is CLOCK_MONOTONIC in seconds.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_SETTLED_SECONDS = 5.0
"""A child that has been ready for this long ends a series of failed starts."""

_FIRST = 0.5
_MOST = 30.0
_MOST_AFTER_READY = 1.0


class Backoff:
    """Consecutive failures of the same kind of child (the workers of one index, the zygotes).

    The first failure causes no delay. After the following ones the next attempt waits 0.5 s, 1 s, 2 s and so on, up to
    30 s, or up to 1 s if the child was ready. ``not_before`` is the time of the next attempt.
    """

    def __init__(self) -> None:
        self.not_before = 0.0
        self._failures = 0
        self._wait = 0.0
        self._failed_at = 0.0

    def failed(self, now: float, *, at_least: float = 0.0, ready_at: Iterable[float] = ()) -> float:
        """Record that a child failed before it was ready; return how many seconds the next attempt waits, which is
        ``at_least`` this many.

        ``ready_at`` are the times at which the children that serve became ready. A child that became ready after the
        previous failure, and has served for some seconds, ends the series. A child that was ready before does not: it
        serves because its successors fail.
        """
        if any(self._failed_at <= ready <= now - _SETTLED_SECONDS for ready in ready_at):
            self.reset()
        return self._delay(now, at_least, _MOST)

    def ended(self, now: float, ready_at: float) -> float:
        """Record that a child exited that was ready since ``ready_at``; return how many seconds the next attempt
        waits: none if the child lived for longer than the longest wait."""
        if now >= ready_at + _MOST_AFTER_READY:
            self.reset()
            return 0.0
        return self._delay(now, 0.0, _MOST_AFTER_READY)

    def _delay(self, now: float, at_least: float, most: float) -> float:
        wait = max(_FIRST, 2 * self._wait) if self._failures else 0.0
        self._wait = min(max(wait, at_least), most)
        self._failures += 1
        self._failed_at = now
        self.not_before = now + self._wait
        return self._wait

    def reset(self) -> None:
        """Forget the failures: their cause may have been fixed."""
        self._failures, self._wait, self.not_before = 0, 0.0, 0.0
