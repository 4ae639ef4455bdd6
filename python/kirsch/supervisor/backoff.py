"""When to start another worker or zygote after one has failed: at once, unless they fail again and again.

Nothing here reads a clock: ``now`` is CLOCK_MONOTONIC in seconds.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

YOUNG_SECONDS = 5.0
"""A worker has served for a while when it has been ready for so many seconds. One that ends before has failed."""

_FIRST = 0.5
_MOST = 30.0


class Backoff:
    """The failures in succession of what stands in one place (the workers of one index, the zygotes).

    The first failure is free; the next try then waits 0.5 s, 1 s, 2 s and so on up to 30 s. ``not_before`` is the
    moment of the next try.
    """

    def __init__(self) -> None:
        self.not_before = 0.0
        self._failures = 0
        self._wait = 0.0
        self._failed_at = 0.0

    def failed(self, now: float, *, at_least: float = 0.0, ready_at: Iterable[float] = ()) -> float:
        """Note a failure, and return how many seconds the next try waits: ``at_least`` so many.

        ``ready_at`` tells since when those that serve in this place have been ready. One that has become ready after
        the failure before, and has served for a while since, ends the succession. One that was ready already proves
        nothing: it serves on because its successors fail.
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
        """Forget the failures: what they came from may have been mended."""
        self._failures, self._wait, self.not_before = 0, 0.0, 0.0
