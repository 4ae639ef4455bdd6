"""``--fail-if``: which conditions there are, when they end a run, and what the reports and the exit status say."""

from __future__ import annotations

import json
import math
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from benching import assert_points, bench, measured, ok, scripted
from kirsch_bench import thresholds
from kirsch_bench._native import Histogram
from kirsch_bench.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from benching import Asked

QUICK = ("-z", "0.4s", "--warmup", "0.1s", "-c", "2")


def figures(**changes: Any) -> Any:
    """As much of a result as conditions look at."""
    latency = SimpleNamespace(count=1000, mean=0.01, max=0.2, percentile=lambda percent: 0.0001 * percent)
    return SimpleNamespace(
        **{"latency": latency, "error_share": 0.002, "failed": 2, "dropped": 0, "rate": 500.0, **changes}
    )


@pytest.mark.parametrize(
    ("text", "crossed"),
    [
        ("p99 > 9ms", True), ("p99>10ms", False), ("p99.9 >= 9.99ms", True), ("p50 < 5.1 ms", True),
        ("max > 0.1s", True), ("mean > 10000us", False), ("mean >= 10000µs", True), ("errors > 0.1%", True),
        ("err > 0.002", False), ("failed > 1", True), ("dropped > 0", False), ("rate < 501", True),
        ("rate <= 499.5", False), ("P99 > 9MS ABORT AFTER 10S", True),
    ],
)  # fmt: skip
def test_condition_is_judged_by_its_figure(text: str, crossed: bool) -> None:
    [judged] = thresholds.judge([thresholds.parse(text)], figures(), None)
    assert judged.is_crossed is crossed, judged


@pytest.mark.parametrize(
    ("text", "problem", "caret"),
    [
        ("", "expected p99, ", 0),
        ("p100 > 1s", "expected p99, dropped, errors, failed, max, mean or rate", 0),
        ("fast", "expected p99, ", 0),
        ("p99 = 50ms", "expected < or <= or > or >=", 4),
        ("p99 > fast", "expected a number", 6),
        ("p99 > 50", "a latency has a unit: us, ms or s", 8),
        ("p99 > 50 parsecs", "a latency has a unit: us, ms or s", 9),
        ("errors > 1ms", "errors are a share, such as 0.1%", 10),
        ("p99 > 50ms or max > 1s", "expected abort, abort after 10s, or the end", 11),
        ("p99 > 50ms abort after", "expected a time such as 10s", 22),
        ("p99 > 50ms abort after soon", "expected a time such as 10s", 23),
        ("rate < 5 a second", "expected abort, abort after 10s, or the end", 9),
    ],
)
def test_mistake_in_a_condition_is_pointed_at(text: str, problem: str, caret: int) -> None:
    with pytest.raises(UsageError) as caught:
        thresholds.parse(text)
    assert_points(caught.value, "--fail-if", problem, text, caret)


def test_latency_without_any_answer_crosses_its_threshold() -> None:
    nothing = figures(latency=SimpleNamespace(count=0), error_share=1.0, failed=9)
    [judged] = thresholds.judge([thresholds.parse("p99 > 1s")], nothing, None)
    assert judged.is_crossed
    assert judged.value == math.inf
    assert judged.as_json()["value"] is None
    assert judged.text == "p99 is endless"


def report(*latencies: float, failed: int = 0, seconds: float = 0.25, warmup: bool = False) -> dict[str, Any]:
    """A report of progress, as the native generator gives it."""
    histogram = Histogram()
    for each in latencies:
        histogram.record(int(each * 1e9))
    return {
        "latest": {
            "warmup": warmup, "seconds": seconds, "answered": len(latencies), "failed": failed, "dropped": 0,
            "max": max(latencies, default=None), "latency": histogram.encode() if latencies else None,
        }
    }  # fmt: skip


def test_run_is_ended_after_the_delay_and_not_before() -> None:
    watch = thresholds.ThresholdWatch([thresholds.parse("p50 > 10ms abort after 1s"), thresholds.parse("max > 1ms")])
    assert [watch.hear(0, report(0.02)) for _ in range(3)] == [False] * 3
    assert watch.hear(0, report(0.02))
    assert watch.aborted is not None
    assert (watch.aborted.at, watch.aborted.threshold.condition.text) == (1.0, "p50 > 10ms")
    assert watch.aborted.value == pytest.approx(0.02, rel=0.002)


def test_reports_of_all_processes_count_together_and_those_of_the_warmup_do_not() -> None:
    watch = thresholds.ThresholdWatch([thresholds.parse("p50 > 10ms abort")])
    assert not watch.hear(0, report(5.0, 5.0, warmup=True))
    assert not watch.hear(0, report(0.001, 0.001, 0.001))
    assert not watch.hear(1, report(0.02, 0.02))
    assert watch.hear(1, report(0.02, 0.02))


def test_run_without_any_answer_is_not_ended_by_a_latency() -> None:
    watch = thresholds.ThresholdWatch(
        [thresholds.parse("p99 > 1ms abort"), thresholds.parse("rate < 1 abort after 1s")]
    )
    assert not watch.hear(0, report(seconds=0.5))
    assert watch.hear(0, report(seconds=0.5))
    assert watch.aborted is not None
    assert watch.aborted.threshold.condition.text == "rate < 1"


def test_exit_status_is_4_and_every_report_has_the_figure(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    with scripted() as server:
        done = bench(*QUICK, "--fail-if", "p50 > 1us", "--fail-if", "errors > 0%", "--html", str(page), server.url)
        document = measured(*QUICK, "--fail-if", "p50 > 1us", "--fail-if", "errors > 0%", server.url, status=4)
    assert done.returncode == 4, done.stdout + done.stderr
    lines = done.stdout.partition("Thresholds\n")[2].split("\n")
    assert lines[0].split()[:4] == ["CROSSED", "p50", ">", "1us"]
    assert lines[1].split() == ["ok", "errors", ">", "0%", "errors", "is", "0.000%"]
    first, second = document["result"]["thresholds"]
    assert (first["condition"], first["figure"], first["crossed"], first["limit"]) == ("p50 > 1us", "p50", True, 1e-6)
    assert first["value"] > 1e-6
    assert (second["value"], second["crossed"], second["aborted_at"]) == (0, False, None)
    assert "<h2>Thresholds</h2>" in page.read_text(encoding="utf-8")


def test_run_is_ended_early_by_a_condition_with_abort() -> None:
    with scripted() as server:
        document = measured(
            "-z", "60s", "--warmup", "0s", "-R", "100", "--fail-if", "max > 1us abort after 0.5s", server.url, status=4
        )
    found = document["result"]
    assert 0.5 <= found["window"]["seconds"] < 30
    assert not found["interrupted"]
    [judged] = found["thresholds"]
    assert judged["crossed"]
    assert judged["aborted_at"] >= 0.5


def failing(every: int) -> Any:
    return lambda asked: ok(status="500 Internal Server Error") if asked.number % every == 0 else ok()


def test_errors_below_a_threshold_of_errors_are_no_failure() -> None:
    with scripted(failing(20)) as server:
        many = bench("-n", "200", "-c", "1", "--fail-if", "errors > 1%", server.url)
        few = bench("-n", "200", "-c", "1", "--fail-if", "errors > 10%", server.url)
        other = bench("-n", "200", "-c", "1", "--fail-if", "max > 60s", server.url)
    assert (many.returncode, few.returncode, other.returncode) == (4, 0, 1), many.stdout


def test_mistake_in_a_condition_is_said_before_anything_is_sent() -> None:
    asked = threading.Event()

    def respond(_: Asked) -> bytes:
        asked.set()
        return ok()

    with scripted(respond) as server:
        done = bench(*QUICK, "--fail-if", "p99 > 50", server.url)
        both = bench("--slo", "p99<1s", "--fail-if", "p99 > 1s", server.url)
    assert done.returncode == both.returncode == 2
    assert done.stderr == "kirsch bench: --fail-if: a latency has a unit: us, ms or s\n  p99 > 50\n          ^\n"
    assert "do not go together" in both.stderr
    assert not asked.is_set()


def test_compare_reads_reports_with_thresholds(tmp_path: Path) -> None:
    with scripted() as server:
        for name in ("a.json", "b.json"):
            bench(*QUICK, "--fail-if", "p50 > 1us", "--json", str(tmp_path / name), server.url)
    done = bench("compare", "a.json", "b.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "a.json").read_text())["result"]["thresholds"]
