"""The thresholds of ``--fail-if``: conditions that make a run fail, at its end or as soon as they are true.

``p99 > 50ms`` is evaluated on the result. ``p99 > 50ms abort`` is also evaluated on the figures so far, several times a
second, and ends the run. ``abort after 10s`` does so only after 10 seconds of measuring, because the first requests of
a run are not representative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kirsch.config.values import parse_duration
from kirsch_bench.conditions import COUNTS, LATENCIES, Condition, Figures, Reader
from kirsch_bench.native import Histogram

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIGURES = LATENCIES | COUNTS | {"errors"}


@dataclass(frozen=True)
class Threshold:
    """One ``--fail-if``. ``abort_after`` is in seconds of measured time; None: it is only evaluated at the end."""

    condition: Condition
    abort_after: float | None = None

    @property
    def judges_errors(self) -> bool:
        """True if it limits the number or share of errors."""
        return self.condition.figure in ("errors", "failed", "dropped")


def parse(text: str) -> Threshold:
    """Parse one threshold. Raises UsageError."""
    reader = Reader(text, "--fail-if")
    condition = reader.condition(_FIGURES, ("<", "<=", ">", ">="))
    abort_after = None
    if reader.take(r"abort\b"):
        abort_after = 0.0
        if reader.take(r"after\b"):
            duration = reader.take(r"\S+")
            try:
                abort_after = parse_duration(duration[0].lower() if duration else "")
            except ValueError:
                reader.fail("expected a time such as 10s", None if duration is None else duration.start())
    reader.end("abort, abort after 10s, or the end")
    return Threshold(condition, abort_after)


@dataclass(frozen=True)
class Judged:
    """A threshold and its figure at the end of a run. ``is_crossed``: the run failed because of it."""

    threshold: Threshold
    value: float
    is_crossed: bool
    aborted_at: float | None = None
    """Seconds of the measured time after which the threshold ended the run; None: it did not."""

    @property
    def text(self) -> str:
        """Return the value, and when the threshold ended the run if it did."""
        condition = self.threshold.condition
        aborted = "" if self.aborted_at is None else f"; it ended the run after {self.aborted_at:.1f} s"
        return f"{condition.name} is {condition.show(self.value)}{aborted}"

    def as_json(self) -> dict[str, Any]:
        """Return plain data. An infinite value, of a latency without measurements, becomes None."""
        condition = self.threshold.condition
        return {
            "condition": condition.text,
            "figure": condition.name,
            "limit": condition.limit,
            "value": self.value if math.isfinite(self.value) else None,
            "crossed": self.is_crossed,
            "abort_after": self.threshold.abort_after,
            "aborted_at": self.aborted_at,
        }


def judge(thresholds: Sequence[Threshold], result: Figures, aborted: Aborted | None) -> list[Judged]:
    """Evaluate each threshold. The one that ended the run is crossed, with its value at that moment."""
    judged = []
    for threshold in thresholds:
        if aborted is not None and aborted.threshold is threshold:
            judged.append(Judged(threshold, aborted.value, is_crossed=True, aborted_at=aborted.at))
        else:
            value = threshold.condition.value(result)
            judged.append(Judged(threshold, value, threshold.condition.holds(result)))
    return judged


@dataclass(frozen=True)
class Aborted:
    """The threshold that ended a run, its value, and the seconds of the measured time."""

    threshold: Threshold
    value: float
    at: float


@dataclass
class _LatenciesSoFar:
    histogram: Histogram = field(default_factory=Histogram)
    max: float = 0.0

    @property
    def count(self) -> int:
        return len(self.histogram)

    @property
    def mean(self) -> float:
        return (self.histogram.mean or 0.0) / 1e9

    def percentile(self, percent: float) -> float:
        return (self.histogram.quantile(percent / 100) or 0) / 1e9


@dataclass
class FiguresSoFar:
    """The figures of the measured part of a run so far, of all processes."""

    latency: _LatenciesSoFar = field(default_factory=_LatenciesSoFar)
    answered: int = 0
    failed: int = 0
    dropped: int = 0
    seconds: dict[int, float] = field(default_factory=dict)
    """The measured time of each process."""

    def add(self, process: int, word: dict[str, Any]) -> None:
        """Add the progress report of a process since its last report (``Progress`` in
        ``crates/load/src/result.rs``)."""
        latest = word["latest"]
        if latest["warmup"]:
            return
        if latest["latency"]:
            self.latency.histogram.merge(Histogram(latest["latency"]))
            self.latency.max = max(self.latency.max, latest["max"])
        self.answered += latest["answered"]
        self.failed += latest["failed"]
        self.dropped += latest["dropped"]
        self.seconds[process] = self.seconds.get(process, 0.0) + latest["seconds"]

    @property
    def elapsed(self) -> float:
        """The measured time so far, in seconds."""
        return max(self.seconds.values(), default=0.0)

    @property
    def rate(self) -> float:
        """Responses per second."""
        return self.answered / self.elapsed if self.elapsed else 0.0

    @property
    def error_share(self) -> float:
        """The share of ended requests that failed or were dropped."""
        ended = self.latency.count + self.failed + self.dropped
        return (self.failed + self.dropped) / ended if ended else 0.0

    @property
    def is_empty(self) -> bool:
        """True if no request has ended yet."""
        return not (self.latency.count or self.failed or self.dropped)


class ThresholdWatch:
    """Evaluates thresholds during a run, and decides when one ends it."""

    def __init__(self, thresholds: Sequence[Threshold]) -> None:
        self._aborting = [threshold for threshold in thresholds if threshold.abort_after is not None]
        self._figures = FiguresSoFar()
        self.aborted: Aborted | None = None

    def hear(self, process: int, word: dict[str, Any]) -> bool:
        """Add a progress report of a process. Return True if the run has to end."""
        if not self._aborting:
            return False
        self._figures.add(process, word)
        at = self._figures.elapsed
        for threshold in self._aborting if self.aborted is None else ():
            if (threshold.abort_after or 0.0) > at or (self._figures.is_empty and threshold.condition.figure != "rate"):
                continue
            if at > 0 and threshold.condition.holds(self._figures):
                self.aborted = Aborted(threshold, threshold.condition.value(self._figures), at)
        return self.aborted is not None
