"""A load test in cycles of more and more users, with FunkLoad's figures.

    CUs      concurrent users of the cycle
    STPS     successful tests per second
    SPPS     successful pages per second; maxSPPS its best second
    RPS      requests per second; maxRPS its best second
    Apdex    (satisfied + tolerating / 2) / all, where a page that takes at most T satisfies, one of at most 4 T is
             tolerated, and one that failed or took longer frustrates (https://www.apdex.org, Application Performance
             Index, technical specification 1.1)

A page is what a test asks for with the redirects on the way, a request is each of these. Times are seconds. Each
figure is of what ended within the cycle's window (:mod:`kirsch_bench.users`).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kirsch_bench import load_processes
from kirsch_bench.errors import Failure
from kirsch_bench.show import show_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

APDEX_T = 1.5
"""FunkLoad's threshold."""

_RATINGS = ((0.94, "excellent"), (0.85, "good"), (0.70, "fair"), (0.50, "poor"), (0.0, "unacceptable"))

_GENERATOR_BUSY = 0.8
"""Share of a processor that a process of virtual users takes, from which on it measures itself too: its threads wait
for each other."""


@dataclass(frozen=True)
class CyclePlan:
    """The plan of each cycle; times in seconds."""

    test: str
    url: str = ""
    own: bool = False
    seconds: float = 10.0
    startup_delay: float = 0.01
    settle: float = 1.0
    sleep: tuple[float, float] = (0.0, 0.0)
    processes: int = 1
    apdex: float = APDEX_T
    seed: int = 0
    timeout: float = 30.0

    def jobs(self, users: int) -> list[dict[str, Any]]:
        """Return the job of each process. User ``i`` starts after ``i`` times the delay, in any process."""
        processes = min(self.processes, users)
        return [
            {
                "kind": "users",
                "test": self.test,
                "url": self.url,
                "own": self.own,
                "all": users,
                "users": list(range(index, users, processes)),
                "startup_delay": self.startup_delay,
                "window_from": users * self.startup_delay + self.settle,
                "seconds": self.seconds,
                "sleep": list(self.sleep),
                "seed": self.seed,
            }
            for index in range(processes)
        ]

    def seconds_max(self, users: int) -> float:
        """Return the seconds after which a cycle must have ended, including users that finish their test."""
        return users * self.startup_delay + self.settle + self.seconds + self.timeout + 30.0


@dataclass
class ResponseStatistics:
    """Statistics of pages or requests: counts, times and Apdex."""

    total: int = 0
    success: int = 0
    error: int = 0
    per_second: float = 0.0
    per_second_max: float = 0.0
    apdex: float | None = None
    rating: str = ""
    min: float | None = None
    avg: float | None = None
    max: float | None = None
    p10: float | None = None
    med: float | None = None
    p90: float | None = None
    p95: float | None = None


@dataclass
class Cycle:
    """The figures of one cycle."""

    users: int
    seconds: float
    tests: int
    tests_success: int
    tests_error: int
    stps: float
    pages: ResponseStatistics
    requests: ResponseStatistics
    by_page: dict[str, ResponseStatistics]
    errors: list[dict[str, Any]]
    processor: float  # CPUs that the generator used on average, of ``processes`` possible
    processes: int
    troubles: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def failed(self) -> bool:
        """Return whether there was any error."""
        return bool(self.tests_error or self.pages.error or self.errors or self.troubles)

    def as_json(self) -> dict[str, Any]:
        """Return all figures as plain data."""
        return asdict(self)


def run(
    plan: CyclePlan, cycles: Iterable[int], *, progress: Callable[[int, dict[str, Any]], None] | None = None
) -> list[Cycle]:
    """Run each cycle and return their figures; an interruption ends the series after what it interrupted.

    ``progress`` is called with the number of users and the sums of what the processes say. Raises Failure where no
    process could measure anything.
    """
    done: list[Cycle] = []
    for users in cycles:

        def tell(words: Sequence[dict[str, Any]], users: int = users) -> None:
            if progress is not None:
                sums = {key: sum(word[key] for word in words) for key in ("users", "tests", "samples", "failed")}
                progress(users, {**sums, "elapsed": max(word["elapsed"] for word in words)})

        ran = load_processes.run(plan.jobs(users), seconds_max=plan.seconds_max(users), progress=tell)
        results = [outcome.result for outcome in ran.outcomes if outcome.result is not None]
        troubles = [outcome.trouble for outcome in ran.outcomes if outcome.trouble]
        if not results:
            if ran.interrupted:
                break
            raise Failure(troubles[0])
        done.append(figure(users, results, apdex=plan.apdex, troubles=troubles, interrupted=ran.interrupted))
        if ran.interrupted:
            break
    return done


class _Measured(NamedTuple):
    """A sample as reported by a process."""

    kind: str
    name: str
    start: float
    seconds: float
    error: str


def figure(
    users: int,
    results: Sequence[dict[str, Any]],
    *,
    apdex: float = APDEX_T,
    troubles: Sequence[str] = (),
    interrupted: bool = False,
) -> Cycle:
    """Return the figures of a cycle from the results of its processes."""
    start, seconds = results[0]["window"][0], max(result["window"][1] for result in results)
    samples = [_Measured(*sample) for result in results for sample in result["samples"]]
    outcomes = Counter(outcome for result in results for _, _, outcome in result["tests"])
    pages = [sample for sample in samples if sample.kind == "page"]
    requests = [sample for sample in samples if sample.kind == "request"]
    unfinished = sum(result["unfinished"] for result in results)
    return Cycle(
        users=users,
        seconds=seconds,
        tests=outcomes["success"] + outcomes["failure"] + outcomes["error"],
        tests_success=outcomes["success"],
        tests_error=outcomes["failure"] + outcomes["error"],
        stps=outcomes["success"] / seconds if seconds else 0.0,
        pages=_figures(pages, start, seconds, apdex, only_success=True),
        requests=_figures(requests, start, seconds, apdex, only_success=False),
        by_page={
            name: _figures([page for page in pages if page.name == name], start, seconds, apdex, only_success=True)
            for name in dict.fromkeys(page.name for page in pages)
        },
        errors=_errors(results),
        processor=sum(result["processor"] / result["wall"] for result in results if result["wall"]),
        processes=len(results),
        troubles=[*troubles, *([f"{unfinished} users did not end in time"] if unfinished else [])],
        interrupted=interrupted or any(result["interrupted"] for result in results),
    )


def rate_apdex(score: float | None) -> str:
    """Return the Apdex rating for a score."""
    if score is None:
        return "no sample"
    return next(word for least, word in _RATINGS if round(score, 2) >= least)


def _figures(
    samples: Sequence[_Measured], start: float, seconds: float, apdex: float, *, only_success: bool
) -> ResponseStatistics:
    """Return the statistics of samples. ``only_success``: the rates count only successes, as in SPPS but not in RPS."""
    if not samples:
        return ResponseStatistics(rating=rate_apdex(None))
    success = [sample for sample in samples if not sample.error]
    counted = success if only_success else samples
    whole = int(seconds)
    seen = Counter(int(sample.start + sample.seconds - start) for sample in counted)
    times = sorted(sample.seconds for sample in samples)
    satisfied = sum(sample.seconds <= apdex for sample in success)
    tolerating = sum(apdex < sample.seconds <= 4 * apdex for sample in success)
    score = (satisfied + tolerating / 2) / len(samples)
    rate = len(counted) / seconds if seconds else 0.0
    return ResponseStatistics(
        total=len(samples),
        success=len(success),
        error=len(samples) - len(success),
        per_second=rate,
        # Omit an incomplete last second, which could easily be the maximum.
        per_second_max=float(max((seen[second] for second in range(whole)), default=rate)),
        apdex=score,
        rating=rate_apdex(score),
        min=times[0],
        avg=math.fsum(times) / len(times),
        max=times[-1],
        p10=percentile(times, 10),
        med=percentile(times, 50),
        p90=percentile(times, 90),
        p95=percentile(times, 95),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the smallest value that ``percent`` per cent of the values do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _errors(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the errors of all processes, equal ones merged, the most frequent first."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for result in results:
        for example in result["examples"]:
            key = example["class"], example["where"]
            if key in merged:
                merged[key]["count"] += example["count"]
            else:
                merged[key] = dict(example)
    return sorted(merged.values(), key=lambda example: -example["count"])


_COLUMNS = (
    "Apdex",
    "Rating",
    "{rate}",
    "max{rate}",
    "TOTAL",
    "SUCCESS",
    "ERROR",
    "MIN",
    "AVG",
    "MAX",
    "P10",
    "MED",
    "P90",
    "P95",
)


def text(plan: CyclePlan, cycles: Sequence[Cycle]) -> str:
    """Return the report for a terminal: FunkLoad's tables, then what went wrong."""
    parts = [f"{plan.test}: {plan.seconds:g} s for each cycle; times in seconds; Apdex with T = {plan.apdex:g} s"]
    parts += [f"{title}\n{show_columns(rows)}" for title, rows in tables(cycles)]
    if wrong := errors(cycles):
        parts.append("\n".join(["Errors", *(f"  {each}" for each in wrong)]))
    if warning := warnings(cycles):
        parts.append(f"Warning: {warning}")
    return "\n\n".join(parts)


def tables(cycles: Sequence[Cycle]) -> list[tuple[str, list[Sequence[str]]]]:
    """Return FunkLoad's tables, as pairs of a title and rows with a header."""
    found: list[tuple[str, list[Sequence[str]]]] = [
        ("Tests", [("CUs", "STPS", "TOTAL", "SUCCESS", "ERROR"), *map(_test_row, cycles)]),
        ("Pages", [_header("SPPS"), *([str(cycle.users), *_row(cycle.pages)] for cycle in cycles)]),
        ("Requests", [_header("RPS"), *([str(cycle.users), *_row(cycle.requests)] for cycle in cycles)]),
    ]
    names = list(dict.fromkeys(name for cycle in cycles for name in cycle.by_page))
    if len(names) > 1:
        for name in names:
            seen = [[str(cycle.users), *_row(cycle.by_page[name])] for cycle in cycles if name in cycle.by_page]
            found.append((f"Page: {name}", [_header("SPPS"), *seen]))
    return found


def errors(cycles: Sequence[Cycle]) -> list[str]:
    """Return one line for each error."""
    lines = [
        f"{cycle.users} users: {each['count']} × {each['class']}{' at ' + each['where'] if each['where'] else ''}: "
        f"{each['example']}"
        for cycle in cycles
        for each in cycle.errors
    ]
    return lines + [f"{cycle.users} users: {trouble}" for cycle in cycles for trouble in cycle.troubles]


def warnings(cycles: Sequence[Cycle]) -> str:
    """Return the reasons to doubt the figures; empty if there are none."""
    busy = [cycle for cycle in cycles if cycle.processor > _GENERATOR_BUSY * cycle.processes]
    if not busy:
        return ""
    return (
        f"With {', '.join(str(cycle.users) for cycle in busy)} users the load test itself was at its limit; what is "
        "slow there may be Python here. Try more --processes, or `kirsch bench URL`, which is native."
    )


def _header(rate: str) -> tuple[str, ...]:
    return ("CUs", *(column.format(rate=rate) for column in _COLUMNS))


def _test_row(cycle: Cycle) -> list[str]:
    return [
        str(cycle.users),
        f"{cycle.stps:.3f}",
        str(cycle.tests),
        str(cycle.tests_success),
        _share(cycle.tests_error, cycle.tests),
    ]


def _row(statistics: ResponseStatistics) -> list[str]:
    times = (
        statistics.min,
        statistics.avg,
        statistics.max,
        statistics.p10,
        statistics.med,
        statistics.p90,
        statistics.p95,
    )
    return [
        "NA" if statistics.apdex is None else f"{statistics.apdex:.3f}",
        statistics.rating,
        f"{statistics.per_second:.3f}",
        f"{statistics.per_second_max:.3f}",
        str(statistics.total),
        str(statistics.success),
        _share(statistics.error, statistics.total),
        *("NA" if seconds is None else f"{seconds:.4f}" for seconds in times),
    ]


def _share(errors: int, total: int) -> str:
    return f"{errors / total:.2%}" if total else "0.00%"
