"""Request rates that change in stages: parsing of ``--stages 30s:100,1m:500,30s:0``, and the resulting rates."""

from __future__ import annotations

from dataclasses import dataclass

from kirsch.config.values import parse_duration
from kirsch_bench.conditions import Reader

_RATE_MAX = 1e7
_STAGES_MAX = 1000


@dataclass(frozen=True)
class RateStage:
    """A linear change of the rate within ``seconds`` to ``rate`` requests per second; a jump if ``seconds`` is 0."""

    seconds: float
    rate: float


def parse(text: str) -> tuple[RateStage, ...]:
    """Parse comma-separated stages. Raises UsageError."""
    reader = Reader(text, "--stages")
    stages = [_stage(reader)]
    while reader.take(","):
        stages.append(_stage(reader))
    reader.end("a comma or the end")
    if sum(stage.seconds for stage in stages) <= 0:
        reader.fail("all stages together take no time", 0)
    if len(stages) > _STAGES_MAX:
        reader.fail(f"there are {len(stages)} stages, and {_STAGES_MAX} are the most", 0)
    if not any(stage.rate for stage in stages):
        reader.fail("no stage has a rate, so no request would be sent", 0)
    return tuple(stages)


def _stage(reader: Reader) -> RateStage:
    duration = reader.take(r"[^:,\s]+")
    try:
        seconds = parse_duration(duration[0].lower() if duration else "")
    except ValueError:
        reader.fail("expected a time such as 30s or 2m, and a rate behind a colon", duration and duration.start())
    if not reader.take(":"):
        reader.fail("expected a colon and the rate at the end of the stage")
    rate = reader.take(r"(\d+(?:\.\d+)?)(k?)(?![\w.])")
    if rate is None or float(rate[1]) * (1000 if rate[2] else 1) > _RATE_MAX:
        reader.fail("expected a rate in requests a second, such as 100, 0.5 or 20k", rate and rate.start())
    return RateStage(seconds, float(rate[1]) * (1000 if rate[2] else 1))


@dataclass(frozen=True)
class Curve:
    """The rate over time: ``start`` requests per second, then the stages; the last rate remains."""

    start: float
    stages: tuple[RateStage, ...] = ()

    @property
    def seconds(self) -> float:
        """The duration of all stages."""
        return sum(stage.seconds for stage in self.stages)

    def spans(self) -> list[tuple[float, float, float, float]]:
        """Return (begin, end, first rate, last rate) of each stage that takes time."""
        found = []
        at, rate = 0.0, self.start
        for stage in self.stages:
            if stage.seconds:
                found.append((at, at + stage.seconds, rate, stage.rate))
            at, rate = at + stage.seconds, stage.rate
        return found

    def requests(self, until: float) -> float:
        """Return how many requests are due before ``until`` seconds: the area below the curve."""
        area = 0.0
        for begin, end, first, last in self.spans():
            passed = min(until, end) - begin
            if passed <= 0:
                return area
            area += passed * (first + (last - first) * passed / (end - begin) / 2)
        rest = until - self.seconds
        return area + max(0.0, rest) * (self.stages[-1].rate if self.stages else self.start)

    def mean(self, at: float, seconds: float) -> float:
        """Return the mean rate in the ``seconds`` after ``at``."""
        return (self.requests(at + seconds) - self.requests(at)) / seconds if seconds else 0.0

    def text(self) -> str:
        """Return the rates in words."""
        if not self.stages:
            return f"{self.start:,.6g} requests a second"
        steps = [
            f"to {stage.rate:,.6g} " + (f"in {stage.seconds:g} s" if stage.seconds else "at once")
            for stage in self.stages
        ]
        return f"from {self.start:,.6g} requests a second {', '.join(steps)}"
