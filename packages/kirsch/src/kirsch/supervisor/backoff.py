"""When to start another worker or zygote after one has failed: at once, unless they fail repeatedly.

Nothing here reads a clock: ``now`` is CLOCK_MONOTONIC in seconds.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

YOUNG_SECONDS = 5.0
"""A worker that exits sooner than this after it became ready has failed."""

_FIRST = 0.5
_MOST = 30.0


class Backoff:
    """Consecutive failures of the same kind of child (the workers of one index, the zygotes).

    The first failure causes no delay. After the following ones the next attempt waits 0.5 s, 1 s, 2 s and so on, up to
    30 s. ``not_before`` is the time of the next attempt.
    """

    def __init__(self) -> None:
        self.not_before = 0.0
        self._failures = 0
        self._wait = 0.0
        self._failed_at = 0.0

    def failed(self, now: float, *, at_least: float = 0.0, ready_at: Iterable[float] = ()) -> float:
        """Record a failure; return how many seconds the next attempt waits, which is ``at_least`` this many.

        ``ready_at`` are the times at which the children that serve became ready. A child that became ready after the
        previous failure, and has served for ``YOUNG_SECONDS``, ends the series. A child that was ready before does not:
        it serves because its successors fail.
        """
        if any(self._failed_at <= ready <= now - YOUNG_SECONDS for ready in ready_at):
            self.reset()
        wait = max(_FIRST, 2 * self._wait) if self._failures else 0.0
        self._wait = min(max(wait, at_least), _MOST)
        self._failures += 1
        self._failed_at = now
        self.not_before = now + self._wait
        return self._wait

    def reset(self) -> None:
        """Forget the failures: their cause may have been fixed."""
        self._failures, self._wait, self.not_before = 0, 0.0, 0.0
