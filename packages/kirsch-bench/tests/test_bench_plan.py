"""How a measurement is divided among processes, and how their results become one."""

from __future__ import annotations

import math
import random
import statistics
from itertools import pairwise
from typing import Any

import pytest

from kirsch_bench import summary
from kirsch_bench._native import Histogram
from kirsch_bench.plan import Load, shares
from kirsch_bench.results import Interval, Times, merge
from kirsch_bench.show import show_bytes, show_seconds
from kirsch_bench.target import Target

TARGET = Target("127.0.0.1", 8000, "/", "127.0.0.1:8000", ips=("127.0.0.1",), url="http://127.0.0.1:8000/")


def load(**options: Any) -> Load:
    return Load(target=TARGET, requests=({"path": "/"},), **options)


@pytest.mark.parametrize(("whole", "parts"), [(10, 3), (3, 3), (120000 - 30000, 4), (7, 1), (1, 2)])
def test_shares_add_up_and_differ_by_one_at_most(whole: int, parts: int) -> None:
    found = shares(whole, parts)
    assert sum(found) == whole
    assert len(found) == parts
    assert max(found) - min(found) <= 1


def test_processes_share_connections_and_counts_exactly() -> None:
    plans = load(connections=41, count=89999, duration=None, warmup_requests=30001, processes=4).plans()
    assert sum(plan["model"]["closed"]["connections"] for plan in plans) == 41
    assert sum(plan["count"] for plan in plans) == 89999
    assert sum(plan["warmup"]["requests"] for plan in plans) == 30001
    assert len({plan["seed"] for plan in plans}) == 4


def test_constant_arrivals_of_several_processes_are_constant_together() -> None:
    plans = load(rate=30.0, processes=3).plans()
    arrivals = sorted(
        plan["model"]["open"]["phase"] / plan["model"]["open"]["rate"] + number / plan["model"]["open"]["rate"]
        for plan in plans
        for number in range(10)
    )
    gaps = [after - before for before, after in pairwise(arrivals)]
    assert all(math.isclose(gap, 1 / 30, rel_tol=1e-9) for gap in gaps)


def test_no_process_is_started_for_nothing() -> None:
    assert len(load(connections=2, processes=8).plans()) == 2
    assert len(load(connections=9, count=3, duration=None, processes=8).plans()) == 3
    assert len(load(rate=10.0, connections=0, processes=3).plans()) == 3


def times(values: list[float]) -> dict[str, Any]:
    histogram = Histogram()
    for value in values:
        histogram.record(int(value * 1e9))
    return {
        "count": len(values),
        "min": min(values, default=None),
        "mean": statistics.fmean(values) if values else None,
        "sd": statistics.pstdev(values) if values else None,
        "max": max(values, default=None),
        "histogram": histogram.encode(),
    }


def test_times_of_processes_merge_into_those_of_all() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    parts = [[dice.expovariate(100) + 1e-4 for _ in range(count)] for count in (3000, 1, 0, 5000)]
    everything = sorted(value for part in parts for value in part)
    merged = Times.merged(times(part) for part in parts)
    assert merged.count == len(everything)
    assert merged.min == everything[0]
    assert merged.max == everything[-1]
    assert math.isclose(merged.mean, statistics.fmean(everything), rel_tol=1e-9)
    assert math.isclose(merged.sd, statistics.pstdev(everything), rel_tol=1e-9)
    for percent in (50, 90, 99, 99.9):
        exact = everything[math.ceil(len(everything) * percent / 100) - 1]
        assert math.isclose(merged.percentile(percent), exact, rel_tol=2e-3), percent


def test_no_times_at_all_are_zero_and_nothing_fails() -> None:
    empty = Times.merged([times([])])
    assert (empty.count, empty.percentile(99), empty.as_json()) == (0, 0.0, {"count": 0})


def interval(at: float, answered: int, **options: Any) -> dict[str, Any]:
    plain = {"at": at, "seconds": 1.0, "warmup": False, "answered": answered, "failed": 0, "dropped": 0, "late": 0}
    return {**plain, "received": 100, "p50": None, "p99": None, "max": None, "latency": None, **options}


def part(**options: Any) -> dict[str, Any]:
    """Return the report of a process, with the keys that matter here."""
    nothing = times([])
    plain: dict[str, Any] = {
        "ended": "complete", "started": 1000.0, "finished": 1012.0, "window": {"from": 2.0, "seconds": 10.0},
        "answered": 100, "rate": 10.0, "requests": 100, "ok": 100, "failed": 0, "dropped": 0, "unfinished": 0,
        "late": 0, "late_by_generator": 0, "resent": 0, "discarded": {"requests": 5, "failed": 0},
        "connections": {"opened": 4, "failed": 0, "closed_idle": 0}, "errors": [], "statuses": {"200": 100},
        "bytes": {"received": 10, "sent": 10, "heads": 5, "bodies": 5}, "latency": nothing, "service": nothing,
        "first_byte": nothing, "failed_latency": nothing, "connect": nothing, "lag": nothing,
        "series": [interval(0, 50)], "processor": {"used": 1.0, "starved": 0.1, "idle": 8.9},
        "samples": [{"request": 0, "status": 200, "head": "", "length": 5, "sha256": "aa"}],
    }  # fmt: skip
    return {**plain, **options}


def error(count: int, at: float, example: str) -> dict[str, Any]:
    return {"class": "reset", "detail": "", "count": count, "at": at, "request": 0, "example": example}


def test_the_window_of_all_is_from_the_first_to_the_last() -> None:
    late = part(started=1001.0, window={"from": 2.0, "seconds": 12.0}, answered=180)
    result = merge([part(), late], load(count=200, duration=None, processes=2))
    assert (result.window_from, result.seconds, result.answered) == (2.0, 13.0, 280)
    assert result.rate == pytest.approx(280 / 13)
    assert result.discarded == {"requests": 10, "failed": 0}


def test_errors_of_one_kind_come_together_with_the_earliest_example() -> None:
    parts = [part(errors=[error(3, 5.0, "later")], failed=3), part(errors=[error(4, 1.0, "first")], failed=4)]
    result = merge(parts, load(processes=2))
    assert [(each["count"], each["example"]) for each in result.errors] == [(7, "first")]
    assert not result.went_well


def test_intervals_are_put_over_each_other() -> None:
    parts = [part(series=[interval(0, 50), interval(1, 60)]), part(series=[interval(0, 30)])]
    assert [each.answered for each in merge(parts, load(processes=2)).series] == [80, 60]


def test_processes_that_got_different_first_answers_are_told() -> None:
    other = part(samples=[{"request": 0, "status": 200, "head": "", "length": 5, "sha256": "bb"}])
    checks = {"sha256": "first"}
    assert not merge([part(), other], load(checks=checks, processes=2)).went_well
    assert merge([part(), other], load(checks={"sha256": None}, processes=2)).went_well


def test_what_was_the_generators_limit_is_told() -> None:
    busy = part(processor={"used": 9.6, "starved": None, "idle": 0.4})
    assert any("used 96% of a processor" in warning for warning in summary.warnings(merge([busy], load())))
    kept_waiting = part(processor={"used": 2.0, "starved": 2.0, "idle": 6.0})
    assert any("20% of the time" in warning for warning in summary.warnings(merge([kept_waiting], load())))
    late = part(late=20, late_by_generator=20)
    assert any("came late to 20.0%" in warning for warning in summary.warnings(merge([late], load(rate=10.0))))
    assert not any("generator" in warning for warning in summary.warnings(merge([part()], load())))


def test_what_the_open_model_did_not_reach_is_told() -> None:
    result = merge([part(dropped=7, requests=107)], load(rate=20.0))
    warnings = " ".join(summary.warnings(result))
    assert "7 requests found no connection" in warnings
    assert "10 a second of the 20 asked for" in warnings
    assert not result.went_well


def series(rates: list[float]) -> list[Interval]:
    return [Interval(float(at), 1.0, False, int(rate), 0, 0, 0, 0, None) for at, rate in enumerate(rates)]


def test_a_rate_that_drifts_is_told_from_one_that_is_noisy() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    steady = series([1000 + dice.gauss(0, 1) for _ in range(50)])
    assert summary.rate_drift(steady) is None
    drift = summary.rate_drift(series([1000 + 10 * at + dice.gauss(0, 5) for at in range(50)]))
    assert drift is not None
    assert drift == pytest.approx(0.32, abs=0.05)
    assert summary.rate_drift(series([1, 2, 3])) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0000123, "12.3 us"), (0.00123, "1.23 ms"), (0.0999, "99.9 ms"), (0.123456, "123 ms"), (1.5, "1.50 s"),
     (0, "0.00 us"), (123.0, "123 s"), (0.9999, "1.00 s"), (math.inf, "endless")],
)  # fmt: skip
def test_times_are_shown_with_three_digits(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text


def test_sizes_are_shown_with_three_digits() -> None:
    assert [show_bytes(count) for count in (0, 999, 1536, 10 * 1024**2)] == ["0 B", "999 B", "1.5 KiB", "10 MiB"]
