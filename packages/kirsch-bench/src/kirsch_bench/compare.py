"""Comparison of two results of the same plan, with a statement about which differences are significant. **What is
compared.** The reports of ``kirsch bench --json``. A side is one run, or several, whose first is paired with the other
side's first, and so on. Two plans are the same if they ask the same requests in the same way for the same time; where
the server is, and the seed, may differ.

**What may be called different** follows :mod:`kirsch_bench.survey.statistics`: Student's t on the logarithms of the
pairs' ratios, as many of the metrics called different as keep chance to 5 in 100 of the calls, and 1 % at least.

With three runs on each side, the pairs are runs, and the statement is about the servers. With one, the run is cut into
at most ``WINDOWS`` windows of equal length, the pairs are windows, and the statement is about these runs alone: two
runs of one server may differ by more than the windows of one run do, since where memory happens to lie stays the same
within a run. The report says which of the two it is.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kirsch_bench.errors import UsageError
from kirsch_bench.survey import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SCHEMA = "kirsch-bench-1"

RUNS_MIN = statistics.ROUNDS_MIN

WINDOWS = 8
"""Few enough that one window hardly depends on the one before."""

_PLAN_FREE = frozenset({"seed"})
"""Of the load: what two results of the same plan may differ in."""

_OF_SERVER = frozenset({"host", "origin", "referer"})
"""Of a request: the fields that name the server."""


@dataclass(frozen=True)
class Run:
    """One report, read and checked."""

    path: str
    document: dict[str, Any]

    @property
    def result(self) -> dict[str, Any]:
        """Return the measured figures of the run."""
        found: dict[str, Any] = self.document["result"]
        return found

    @property
    def plan(self) -> dict[str, Any]:
        """The plan of the load, without the address of the server."""
        load = {name: value for name, value in self.document["load"].items() if name not in _PLAN_FREE}
        return {
            "load": load,
            "checks": self.document["checks"],
            "requests": [
                {**each, "fields": [field for field in each.get("fields", ()) if field[0].lower() not in _OF_SERVER]}
                for each in self.document["requests"]
            ],
        }


@dataclass(frozen=True)
class Metric:
    """A metric of the comparison."""

    name: str
    value: Callable[[dict[str, Any]], float | None]
    """Of a result; None: it has none."""
    higher_is_better: bool = False
    window: Callable[[dict[str, Any]], float | None] | None = None
    """Of one interval of the time series, where that has it."""
    unit: str = "seconds"


@dataclass(frozen=True)
class Row:
    """A metric on both sides. ``ratio`` is second to first, with its interval."""

    metric: Metric
    first: float | None
    second: float | None
    ratio: statistics.Figure | None = None
    p: float | None = None
    """How likely a ratio as far from 1 is if the two are the same; None: not tested."""
    different: bool = False

    @property
    def slower_by(self) -> float:
        """The share by which the second side is worse: negative if it is better, 0 if unknown."""
        if self.ratio is None:
            return 0.0
        return 1 - self.ratio.value if self.metric.higher_is_better else self.ratio.value - 1

    def as_json(self) -> dict[str, Any]:
        """Return the row for ``--json``."""
        low, high = (self.ratio.interval if self.ratio else None) or (None, None)
        return {
            "metric": self.metric.name,
            "a": self.first,
            "b": self.second,
            "ratio": self.ratio.value if self.ratio else None,
            "low": low,
            "high": high,
            "p": self.p,
            "different": self.different,
            "better": ("a" if self.slower_by > 0 else "b") if self.different else None,
        }


@dataclass(frozen=True)
class Compared:
    """The result of a comparison: all rows, and the basis of the statement."""

    first: tuple[Run, ...]
    second: tuple[Run, ...]
    rows: tuple[Row, ...]
    by_runs: bool
    """True if runs were compared, false if windows of one pair of runs were."""
    pairs: int
    warnings: tuple[str, ...] = field(default=())

    @property
    def is_open(self) -> bool:
        """Return whether requests were sent at a fixed rate: then the rate shows nothing of a server that keeps up."""
        return self.first[0].document["load"].get("rate") is not None

    def row(self, name: str) -> Row:
        """Return the row of a metric. Raises KeyError."""
        for each in self.rows:
            if each.metric.name == name:
                return each
        raise KeyError(name)


def _percentile(name: str) -> Callable[[dict[str, Any]], float | None]:
    return lambda result: (result["latency"].get("percentiles") or {}).get(name)


def _errors(result: dict[str, Any]) -> float | None:
    return (result["failed"] + result["dropped"]) / result["requests"] if result["requests"] else None


def _interval_rate(interval: dict[str, Any]) -> float | None:
    return interval["answered"] / interval["seconds"] if interval["seconds"] else None


METRICS = (
    Metric("rate", lambda result: result["rate"], higher_is_better=True, window=_interval_rate, unit="rate"),
    Metric("p50", _percentile("50"), window=lambda interval: interval["p50"]),
    Metric("p90", _percentile("90")),
    Metric("p99", _percentile("99"), window=lambda interval: interval["p99"]),
    Metric("p99.9", _percentile("99.9")),
    Metric("max", lambda result: result["latency"].get("max")),
    Metric("mean", lambda result: result["latency"].get("mean")),
    Metric("processor", lambda result: (result.get("server") or {}).get("per_request")),
    Metric("errors", _errors, unit="share"),
)


# ------------------------------------------------------------------------------------------------------------- reading


def read(path: str) -> Run:
    """Read a report. Raises UsageError for another kind of file, another version, or a run without measurements."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no report of kirsch bench --json: {error}") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        known = f'its "schema" is {schema!r}, and {SCHEMA!r} is what this version compares' if schema else "no schema"
        hint = "; for load tests in Python and surveys there is no comparison" if schema else ""
        raise UsageError(f"{path} cannot be compared: {known}{hint}")
    run = Run(path, document)
    try:
        _check(run)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise UsageError(f"{path} is broken: {type(error).__name__}: {error}; measure it again") from None
    if run.result["unreachable"] or not run.result["answered"]:
        raise UsageError(f"{path} holds no answers: the server was not there")
    return run


def _check(run: Run) -> None:
    """Access all values that the comparison needs. Raises KeyError or TypeError if one is missing or wrong."""
    plan, series = run.plan, run.result["series"]
    if not all(isinstance(each, dict) for each in (plan["load"], *series)):
        raise TypeError("load or series of another type")
    for metric in METRICS:
        values: list[Any] = [metric.value(run.result)]
        values += [metric.window(each) for each in run.result["series"]] if metric.window else []
        for each in values:
            if each is not None and not (isinstance(each, (int, float)) and math.isfinite(each) and each >= 0):
                raise ValueError(f"{metric.name} is {each!r}")
    for interval in run.result["series"]:
        bool(interval["warmup"])
    dict(run.document["environment"])


def require_same_plan(first: Sequence[Run], second: Sequence[Run]) -> None:
    """Check that both sides have the same plan. Raises UsageError, which names the first difference."""
    if len(first) != len(second):
        raise UsageError(f"{len(first)} runs cannot be paired with {len(second)}: name as many on each side")
    expected = first[0].plan
    for run in (*first[1:], *second):
        found = _difference(expected, run.plan, "")
        if found:
            what, one, other = found
            raise UsageError(
                f"{first[0].path} and {run.path} are of different plans: {what} is {_shown(one)} and {_shown(other)}"
            )


def _difference(one: Any, other: Any, path: str) -> tuple[str, Any, Any] | None:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            if found := _difference(one.get(key), other.get(key), f"{path} {key}".strip()):
                return found
        return None
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (each, another) in enumerate(zip(one, other, strict=True), 1):
            if found := _difference(each, another, f"{path} {index}".strip()):
                return found
        return None
    return None if one == other else (path.removeprefix("load "), one, other)


def _shown(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ------------------------------------------------------------------------------------------------------------ comparing


def compare(first: Sequence[Run], second: Sequence[Run]) -> Compared:
    """Compare runs of the same plan, paired in order. Raises UsageError if the plans differ."""
    require_same_plan(first, second)
    by_runs = len(first) >= RUNS_MIN
    pairs = 0
    tested: dict[str, statistics.Comparison] = {}
    found: dict[str, tuple[float | None, float | None, statistics.Figure | None]] = {}
    for metric in METRICS:
        values = [_values(metric, runs) for runs in (first, second)]
        if by_runs:
            samples = values
        else:
            samples = [_windows(metric, runs[0].result) if len(runs) == 1 else {} for runs in (first, second)]
        compared = statistics.compare(samples[0], samples[1])
        if compared is not None and compared.p is not None:
            tested[metric.name] = compared
            pairs = max(pairs, compared.rounds)
        of_runs = statistics.ratio(values[1], values[0])
        ratio = statistics.ratio(samples[1], samples[0]) if compared is not None else None
        if of_runs is not None and not by_runs:
            # The value is that of the runs; its interval is that of the windows, centred on it.
            ratio = _centred(of_runs.value, ratio)
        found[metric.name] = (_mean(metric, first), _mean(metric, second), of_runs if by_runs else ratio)
    errors = _errors_tested(first, second)
    if errors is not None:
        tested["errors"] = errors
    different = statistics.different(tested)
    rows = tuple(
        Row(
            metric,
            *found[metric.name],
            p=tested[metric.name].p if metric.name in tested else None,
            different=metric.name in different,
        )
        for metric in METRICS
    )
    return Compared(tuple(first), tuple(second), rows, by_runs, pairs, tuple(_warnings(first, second)))


def _values(metric: Metric, runs: Sequence[Run]) -> dict[int, float]:
    """Return the values by run, if positive: ratios are compared."""
    return {
        number: value
        for number, run in enumerate(runs)
        if (value := metric.value(run.result)) is not None and value > 0
    }


def _mean(metric: Metric, runs: Sequence[Run]) -> float | None:
    """Return the geometric mean, as in a survey; for errors the arithmetic mean, because they may be 0."""
    values = [value for run in runs if (value := metric.value(run.result)) is not None]
    if not values:
        return None
    return statistics.figure(values).value if min(values) > 0 else math.fsum(values) / len(values)


def _windows(metric: Metric, result: dict[str, Any]) -> dict[int, float]:
    """Split a run into windows of equal length; return the geometric mean of each."""
    if metric.window is None:
        return {}
    series = [each for each in result["series"] if not each["warmup"]]
    whole = [each for each in series if each["seconds"] >= 0.9 * series[0]["seconds"]]
    size = math.ceil(len(whole) / WINDOWS)
    found = {}
    for number in range(len(whole) // size if size else 0):
        values = [metric.window(each) for each in whole[number * size : (number + 1) * size]]
        kept = [value for value in values if value is not None and value > 0]
        if len(kept) == len(values):
            found[number] = statistics.figure(kept).value
    return found


def _centred(value: float, ratio: statistics.Figure | None) -> statistics.Figure:
    interval = None
    if ratio is not None and ratio.interval is not None:
        interval = (ratio.interval[0] / ratio.value * value, ratio.interval[1] / ratio.value * value)
    return statistics.Figure(value, interval, ratio.rounds if ratio is not None else 1)


def _errors_tested(first: Sequence[Run], second: Sequence[Run]) -> statistics.Comparison | None:
    """Compare the shares of failed requests: all requests of a side together, by the normal approximation."""
    counts = [
        (
            sum(run.result["failed"] + run.result["dropped"] for run in runs),
            sum(run.result["requests"] for run in runs),
        )
        for runs in (first, second)
    ]
    (failed, asked), (failed_too, asked_too) = counts
    share = (failed + failed_too) / (asked + asked_too)
    if not 0 < share < 1:
        return None
    error = math.sqrt(share * (1 - share) * (1 / asked + 1 / asked_too))
    distance = failed_too / asked_too - failed / asked
    # Add one failure to each side, so that there is a ratio even without failures.
    ratio = ((failed + 1) / asked) / ((failed_too + 1) / asked_too)
    return statistics.Comparison(ratio, math.erfc(abs(distance) / error / math.sqrt(2)), len(first))


def _warnings(first: Sequence[Run], second: Sequence[Run]) -> list[str]:
    """Return the reasons to doubt the comparison, a sentence each."""
    found = []
    for runs, side in ((first, "A"), (second, "B")):
        for run in runs:
            name = side if len(runs) == 1 else f"{side}, {run.path}"
            generator = run.result.get("generator") or {}
            found += [f"{name}: the generator {trouble}." for trouble in generator.get("troubles") or ()]
            if run.result.get("interrupted"):
                found.append(f"{name}: the run was interrupted.")
    one, other = first[0].document["environment"], second[0].document["environment"]
    for name, pick in _ENVIRONMENT.items():
        if pick(one) != pick(other):
            found.append(f"{name} was {pick(one) or 'unknown'} for A and {pick(other) or 'unknown'} for B.")
    return found


_ENVIRONMENT: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "The processor": lambda environment: (environment.get("cpu") or {}).get("model"),
    "The number of processors": lambda environment: (environment.get("cpu") or {}).get("usable"),
    "The system": lambda environment: environment.get("system"),
    "The generator's version": lambda environment: environment.get("kirsch"),
    "The generator's Python": lambda environment: environment.get("python"),
}
