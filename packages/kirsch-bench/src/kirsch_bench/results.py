"""The results of a measurement, of all processes together.

Each process reports JSON, whose keys are described at the beginning of ``crates/load/src/result.rs``. Counts are
added up; of times the figures are exact (the standard deviation is pooled) and the histograms merged; intervals of the
time series are put over each other by when they began.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kirsch_bench.native import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kirsch_bench.plan import Load
    from kirsch_bench.thresholds import Judged

PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99)
"""The percentiles that reports show."""

_NANOSECONDS = 1e9

BUSY = 0.9
"""Share of its window for which a generator's thread had the processor, from which on it measures itself
(reference: fijal's survey of 2013 found its own generator's ceiling, and took it for the servers')."""

_STARVED = 0.05
"""Share of its window for which it could have run and others did."""

_LATE = 0.01
"""Share of arrivals that it came late to."""


@dataclass
class Times:
    """Statistics of times in seconds. All are 0 if there are none."""

    count: int = 0
    min: float = 0.0
    mean: float = 0.0
    sd: float = 0.0
    max: float = 0.0
    histogram: Histogram = field(default_factory=Histogram)

    @classmethod
    def merged(cls, parts: Iterable[dict[str, Any]]) -> Times:
        """Merge the times of several processes."""
        filled = [part for part in parts if part["count"]]
        if not filled:
            return cls()
        count = sum(part["count"] for part in filled)
        mean = math.fsum(part["mean"] * part["count"] for part in filled) / count
        # The mean of the squares' distances: within each part, and of each part's mean from the common one.
        variance = math.fsum(part["count"] * (part["sd"] ** 2 + (part["mean"] - mean) ** 2) for part in filled) / count
        histogram = Histogram()
        for part in filled:
            histogram.merge(Histogram(part["histogram"]))
        return cls(
            count=count,
            min=min(part["min"] for part in filled),
            mean=mean,
            sd=math.sqrt(variance),
            max=max(part["max"] for part in filled),
            histogram=histogram,
        )

    def percentile(self, percent: float) -> float:
        """Return the time that ``percent`` per cent do not exceed, within 0.1 %; at most the longest time."""
        if not self.count:
            return 0.0
        return min(_seconds(self.histogram, percent), self.max)

    def beyond(self, percent: float) -> int:
        """Return how many times are above a percentile, and so determine its accuracy."""
        return int(self.count * (100 - percent) / 100)

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as plain data, with percentiles."""
        if not self.count:
            return {"count": 0}
        return {
            "count": self.count,
            "min": self.min,
            "mean": self.mean,
            "sd": self.sd,
            "max": self.max,
            "percentiles": {f"{percent:g}": self.percentile(percent) for percent in PERCENTILES},
            "histogram": self.histogram.encode(),
        }


@dataclass
class Interval:
    """An interval of the run, by the ends of responses; ``at`` is in seconds from its start. Latencies are None
    without successful responses."""

    at: float
    seconds: float
    warmup: bool
    answered: int
    failed: int
    dropped: int
    late: int
    received: int
    latency: Histogram | None

    @property
    def rate(self) -> float:
        """Responses per second."""
        return self.answered / self.seconds if self.seconds else 0.0

    def percentile(self, percent: float) -> float | None:
        """Of latency, in seconds."""
        return None if self.latency is None else _seconds(self.latency, percent)

    def as_json(self) -> dict[str, Any]:
        """Without the histogram, of which the percentiles stay."""
        return {
            "at": self.at,
            "seconds": self.seconds,
            "warmup": self.warmup,
            "answered": self.answered,
            "failed": self.failed,
            "dropped": self.dropped,
            "late": self.late,
            "received": self.received,
            "p50": self.percentile(50),
            "p99": self.percentile(99),
            "max": self.percentile(100),
        }


@dataclass
class StageResult:
    """A stage of the rate, and the responses that ended in it. Times are seconds from the start."""

    begin: float
    end: float
    rate_from: float
    rate_to: float
    asked: float
    """The mean rate that the stage asked for, in requests a second."""
    answered: float
    """The mean rate of responses."""
    failed: int
    dropped: int
    late: int
    latency: Histogram

    @classmethod
    def of(
        cls, intervals: Sequence[Interval], times: tuple[float, float], rates: tuple[float, float], requests: float
    ) -> StageResult:
        """Return the sums of the intervals of a stage that asks for so many requests."""
        latency = Histogram()
        for each in intervals:
            if each.latency is not None:
                latency.merge(each.latency)
        seconds = times[1] - times[0]
        covered = math.fsum(each.seconds for each in intervals)
        return cls(
            *times,
            *rates,
            asked=requests / seconds if seconds else 0.0,
            answered=sum(each.answered for each in intervals) / covered if covered else 0.0,
            failed=sum(each.failed for each in intervals),
            dropped=sum(each.dropped for each in intervals),
            late=sum(each.late for each in intervals),
            latency=latency,
        )

    def percentile(self, percent: float) -> float | None:
        """Of latency, in seconds; None: there is none."""
        return _seconds(self.latency, percent) if len(self.latency) else None

    def as_json(self) -> dict[str, Any]:
        """With percentiles in place of the histogram."""
        plain = {name: value for name, value in vars(self).items() if name != "latency"}
        return {**plain, "p50": self.percentile(50), "p99": self.percentile(99), "max": self.percentile(100)}


@dataclass
class HostResult:
    """The result of one of several hosts. ``started`` is by our clock, in seconds since 1970."""

    name: str
    processes: int
    requests: int
    failed: int
    answered: float
    latency: Times
    started: float
    clock_ahead: float
    clock_uncertainty: float

    def as_json(self) -> dict[str, Any]:
        """All of it, as plain data."""
        return {**vars(self), "latency": self.latency.as_json()}


@dataclass
class Result:
    """The whole result. The fields are those of a process's JSON; fields that the command adds are last."""

    started: float
    window_from: float
    seconds: float
    answered: int
    requests: int
    ok: int
    failed: int
    dropped: int
    unfinished: int
    late: int
    late_by_generator: int
    resent: int
    discarded: dict[str, int]
    connections: dict[str, int]
    errors: list[dict[str, Any]]
    statuses: dict[str, int]
    bytes: dict[str, int]
    latency: Times
    service: Times
    first_byte: Times
    failed_latency: Times
    connect: Times
    lag: Times
    series: list[Interval]
    samples: list[dict[str, Any]]
    processors: list[dict[str, float]]
    """For each process: ``used``, ``starved`` and ``idle`` as shares of its window."""
    load: Load
    server: dict[str, float] | None = None
    """Processor time of the server's processes during the measured requests: ``user`` and ``system`` in seconds,
    ``per_request``, and ``processes``. None where that is not known: see ``server_cost.py``."""
    interrupted: bool = False
    unreachable: bool = False
    troubles: list[str] = field(default_factory=list)
    """The errors of processes that gave no result."""
    hosts: list[HostResult] = field(default_factory=list)
    """The parts of other hosts that made the load, without those that were lost."""
    thresholds: list[Judged] = field(default_factory=list)
    """The verdicts on the conditions of ``--fail-if``."""

    @property
    def rate(self) -> float:
        """Responses per second."""
        return self.answered / self.seconds if self.seconds else 0.0

    @property
    def rate_asked(self) -> float | None:
        """The mean rate that the open model requests within the measured window."""
        curve = self.load.curve
        return None if curve is None else curve.mean(self.window_from, self.seconds)

    def stages(self) -> list[StageResult]:
        """Return the merged intervals of each stage; an interval belongs to the stage that contains its middle."""
        curve = self.load.curve
        if curve is None:
            return []
        ended = max((each.at + each.seconds for each in self.series), default=0.0)
        return [
            StageResult.of(
                [each for each in self.series if begin <= each.at + each.seconds / 2 < end],
                (begin, min(end, ended)),
                (first, last),
                curve.requests(min(end, ended)) - curve.requests(begin),
            )
            for begin, end, first, last in curve.spans()
            if begin < ended
        ]

    @property
    def error_share(self) -> float:
        """The share of measured requests that failed or were dropped."""
        return (self.failed + self.dropped) / self.requests if self.requests else 0.0

    @property
    def went_well(self) -> bool:
        """Return whether all requests, including the warm-up, were sent and answered as expected."""
        return not (self.failed or self.dropped or self.discarded["failed"] or self.troubles or self.unreachable)

    @property
    def generator_bound(self) -> bool:
        """Return whether the generator may have limited the result."""
        return self._used > BUSY or self._came_late > _LATE

    @property
    def generator_troubles(self) -> list[str]:
        """Return how the generator may have limited the result, a few words each. Short delays by the scheduler make
        a figure less precise but do not limit it."""
        found = []
        starved = max((each["starved"] for each in self.processors), default=0.0)
        if self._used > BUSY:
            found.append(f"used {self._used:.0%} of a processor")
        if starved > _STARVED:
            found.append(f"was kept waiting for a processor for {starved:.0%} of the time")
        if self._came_late > _LATE:
            found.append(f"came late to {self._came_late:.1%} of the arrivals")
        return found

    @property
    def _used(self) -> float:
        return max((each["used"] for each in self.processors), default=0.0)

    @property
    def _came_late(self) -> float:
        return self.late_by_generator / self.requests if self.requests and self.rate_asked is not None else 0.0

    def as_json(self) -> dict[str, Any]:
        """All of it, as plain data."""
        curve = self.load.curve
        return {
            "started": self.started,
            "window": {"from": self.window_from, "seconds": self.seconds},
            "rate": self.rate,
            "answered": self.answered,
            "requests": self.requests,
            "ok": self.ok,
            "failed": self.failed,
            "dropped": self.dropped,
            "unfinished": self.unfinished,
            "late": self.late,
            "late_by_generator": self.late_by_generator,
            "resent": self.resent,
            "discarded": self.discarded,
            "connections": self.connections,
            "errors": self.errors,
            "statuses": self.statuses,
            "bytes": self.bytes,
            **{
                name: getattr(self, name).as_json()
                for name in ("latency", "service", "first_byte", "failed_latency", "connect", "lag")
            },
            "series": [
                {**interval.as_json(), "asked": curve and curve.mean(interval.at, interval.seconds)}
                for interval in self.series
            ],
            "stages": [stage.as_json() for stage in self.stages()],
            "samples": self.samples,
            "generator": {
                "processes": self.processors,
                "troubles": self.generator_troubles,
                "bound": self.generator_bound,
            },
            "server": self.server,
            "interrupted": self.interrupted,
            "unreachable": self.unreachable,
            "troubles": self.troubles,
            "hosts": [host.as_json() for host in self.hosts],
            "thresholds": [judged.as_json() for judged in self.thresholds],
        }


def merge(parts: Sequence[dict[str, Any]], load: Load, *, troubles: Sequence[str] = ()) -> Result:
    """Merge the results of the processes, at least one."""
    start = min(part["started"] for part in parts)
    window_from = min(part["started"] - start + part["window"]["from"] for part in parts)
    window_to = max(part["started"] - start + part["window"]["from"] + part["window"]["seconds"] for part in parts)

    def total(*path: str) -> int:
        values: list[Any] = list(parts)
        for key in path:
            values = [value[key] for value in values]
        return sum(values)

    counts = ("answered", "requests", "ok", "failed", "dropped", "unfinished", "late", "late_by_generator", "resent")
    times = ("latency", "service", "first_byte", "failed_latency", "connect", "lag")
    merged: dict[str, Any] = {name: total(name) for name in counts}
    merged |= {name: Times.merged(part[name] for part in parts) for name in times}
    return Result(
        started=start,
        window_from=window_from,
        seconds=window_to - window_from,
        discarded={name: total("discarded", name) for name in ("requests", "failed")},
        connections={name: total("connections", name) for name in ("opened", "failed", "closed_idle")},
        errors=_errors(parts),
        statuses=_statuses(parts),
        bytes={name: total("bytes", name) for name in ("received", "sent", "heads", "bodies")},
        series=_series(parts),
        samples=parts[0]["samples"],
        processors=[_processor(part) for part in parts],
        load=load,
        interrupted=any(part["ended"] in ("interrupted", "stopped") for part in parts),
        unreachable=any(part["ended"] == "unreachable" for part in parts),
        hosts=_hosts(parts),
        troubles=[*troubles, *_different_firsts(parts, load)],
        **merged,
    )


def _different_firsts(parts: Sequence[dict[str, Any]], load: Load) -> list[str]:
    """Compare the first responses of all processes, each of which has only compared with its own first one."""
    found = []
    for part in parts[1:]:
        for sample in part["samples"]:
            request = load.requests[sample["request"]]
            expected = request.get("checks") or load.checks
            first = next((each for each in parts[0]["samples"] if each["request"] == sample["request"]), sample)
            if expected.get("sha256") == "first" and sample["sha256"] != first["sha256"]:
                found.append(
                    f"{request.get('method', 'GET')} {request['path']}: two processes got different first answers"
                )
    return list(dict.fromkeys(found))


def _hosts(parts: Sequence[dict[str, Any]]) -> list[HostResult]:
    found: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        if "host" in part:
            found.setdefault(part["host"]["name"], []).append(part)
    return [
        HostResult(
            name=name,
            processes=len(own),
            requests=sum(part["requests"] for part in own),
            failed=sum(part["failed"] + part["dropped"] for part in own),
            answered=math.fsum(
                part["answered"] / part["window"]["seconds"] for part in own if part["window"]["seconds"]
            ),
            latency=Times.merged(part["latency"] for part in own),
            started=min(part["started"] for part in own),
            clock_ahead=own[0]["host"]["clock_ahead"],
            clock_uncertainty=max(part["host"]["clock_uncertainty"] for part in own),
        )
        for name, own in found.items()
    ]


def _seconds(histogram: Histogram, percent: float) -> float:
    return (histogram.quantile(percent / 100) or 0) / _NANOSECONDS


def _errors(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge equal errors, with the earliest example, the most frequent first."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for part in parts:
        for error in part["errors"]:
            key = error["class"], error["detail"]
            if key not in merged:
                merged[key] = dict(error)
                continue
            known = merged[key]
            count = known["count"] + error["count"]
            if error["at"] < known["at"]:
                known.update(error)
            known["count"] = count
    return sorted(merged.values(), key=lambda error: -error["count"])


def _statuses(parts: Iterable[dict[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for part in parts:
        for status, count in part["statuses"].items():
            counts[status] = counts.get(status, 0) + count
    return dict(sorted(counts.items()))


def _series(parts: Sequence[dict[str, Any]]) -> list[Interval]:
    merged: list[Interval] = []
    for index in range(max(len(part["series"]) for part in parts)):
        pieces = [part["series"][index] for part in parts if index < len(part["series"])]
        latency: Histogram | None = None
        for piece in pieces:
            if piece["latency"]:
                latency = latency or Histogram()
                latency.merge(Histogram(piece["latency"]))
        merged.append(
            Interval(
                at=pieces[0]["at"],
                seconds=max(piece["seconds"] for piece in pieces),
                warmup=any(piece["warmup"] for piece in pieces),
                latency=latency,
                **{
                    name: sum(piece[name] for piece in pieces)
                    for name in ("answered", "failed", "dropped", "late", "received")
                },
            )
        )
    return merged


def _processor(part: dict[str, Any]) -> dict[str, float]:
    window = part["window"]["seconds"] or math.inf
    return {name: (part["processor"][name] or 0.0) / window for name in ("used", "starved", "idle")}
