"""Histograms of times, in the form of the engine: quantile bounds, and differences of two histograms."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Histogram:
    """A histogram: the count of times up to each bound (seconds) and above the last bound, and the sum of all times
    in seconds."""

    def __init__(self, bounds: Sequence[float], counts: Sequence[int], total: float) -> None:
        self.bounds = bounds
        self.counts = counts
        self.sum = total

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        found, total = [], 0
        for count in self.counts:
            total += count
            found.append(total)
        return found

    def at_most(self, share: float) -> float | None:
        """Return an upper bound of the quantile ``share``; None if nothing was measured or there is no bound.

        The result is the smaller of two bounds. One is the upper bound of the quantile's bucket. The other follows from
        the sum of all times: each time is at least the lower bound of its bucket, and those above the quantile are at
        least the quantile. An interpolated value would look more precise, but it is no bound.
        """
        if not self.count:
            return None
        rank = min(max(math.ceil(share * self.count), 1), self.count)
        lowers = (0.0, *self.bounds)
        place, up_to_here = next((place, total) for place, total in enumerate(self.cumulative()) if total >= rank)
        before = rank - 1 - (up_to_here - self.counts[place])  # smaller times in the same bucket
        counted = [count * lower for count, lower in zip(self.counts, lowers, strict=True)]
        others = math.fsum([*counted[:place], *counted[place + 1 :], before * lowers[place]])
        by_sum = (self.sum - others) / (self.counts[place] - before)
        # Sum and counts are not read at the same moment, so this bound can be below the bucket; then ignore it.
        bounds = [by_sum] if by_sum >= lowers[place] else []
        bounds += self.bounds[place : place + 1]
        return min(bounds, default=None)

    def since(self, earlier: Histogram) -> Histogram:
        """Return the histogram of the times that were added since ``earlier``."""
        counts = tuple(max(now - then, 0) for now, then in zip(self.counts, earlier.counts, strict=True))
        return Histogram(self.bounds, counts, max(self.sum - earlier.sum, 0.0))
