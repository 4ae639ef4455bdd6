"""Delays before another worker or zygote is started after a failure: none, unless failures are repeated. A child that
fails before it is ready will probably fail again, and its import may be expensive: the delay doubles. A child that was
ready can serve, and probably ended by a request or a memory limit: its successor waits at most a second, which only
prevents a busy loop of forks. This module reads no clock: ``now`` is CLOCK_MONOTONIC in seconds.
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
    """The consecutive failures of one kind of child (the workers of one index, the zygotes).

    The first failure causes no delay. After the following ones the next attempt waits 0.5 s, 1 s, 2 s and so on, up to
    30 s, or up to 1 s if the child was ready. ``not_before`` is the time of the next attempt.
    """

    def __init__(self) -> None:
        self.not_before = 0.0
        self._failures = 0
        self._wait = 0.0
        self._failed_at = 0.0

    def failed(self, now: float, *, at_least: float = 0.0, ready_at: Iterable[float] = ()) -> float:
        """Record that a child failed before it was ready; return the seconds until the next attempt, ``at_least`` this
        many. ``ready_at`` are the times at which the serving children became ready. A child that became ready after the
        previous failure, and has served for some seconds, ends the series. A child that became ready earlier does not:
        it still serves because its successors fail.
        """
        if any(self._failed_at <= ready <= now - _SETTLED_SECONDS for ready in ready_at):
            self.reset()
        return self._delay(now, at_least, _MOST)

    def ended(self, now: float, ready_at: float) -> float:
        """Record that a child exited that had been ready since ``ready_at``; return the seconds until the next
        attempt: 0 if the child lived longer than the longest delay."""
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
        """Forget the failures, because their cause may have been removed."""
        self._failures, self._wait, self.not_before = 0, 0.0, 0.0
