"""``--stages``: a rate that changes evenly, how it is divided among processes, and what the reports show of it."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from benching import Asked, assert_points, bench, measured, ok, scripted
from kirsch_bench import stages
from kirsch_bench.errors import UsageError
from kirsch_bench.stages import Curve, RateStage

if TYPE_CHECKING:
    from pathlib import Path


def test_stages_are_read() -> None:
    assert stages.parse("30s:100, 1m:500 ,0s:2.5k,500ms:0") == (
        RateStage(30, 100), RateStage(60, 500), RateStage(0, 2500), RateStage(0.5, 0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem", "caret"),
    [
        ("", "expected a time such as 30s", 0),
        ("30s", "expected a colon", 3),
        ("30s:fast", "expected a rate", 4),
        ("30s:100,soon:5", "expected a time such as 30s", 8),
        ("30s:100;1m:5", "expected a comma or the end", 7),
        ("30s:100,", "expected a time such as 30s", 8),
        ("30s:1e9", "expected a rate", 4),
        ("0s:100", "all stages together take no time", 0),
        ("30s:0,10s:0", "no stage has a rate", 0),
    ],
)
def test_mistake_in_stages_is_pointed_at(text: str, problem: str, caret: int) -> None:
    with pytest.raises(UsageError) as caught:
        stages.parse(text)
    assert_points(caught.value, "--stages", problem, text, caret)


def test_requests_asked_for_are_the_area_below_the_rate() -> None:
    curve = Curve(0.0, stages.parse("30s:100,60s:500,30s:0"))
    assert [curve.requests(at) for at in (0, 15, 30, 60, 90, 120, 500)] == pytest.approx(
        [0, 375, 1500, 7500, 19500, 27000, 27000]
    )
    assert curve.mean(30, 30) == pytest.approx(200)
    assert Curve(50.0).mean(3, 7) == pytest.approx(50)
    assert Curve(10.0, stages.parse("0s:100,1s:100")).requests(5) == pytest.approx(500)


@pytest.mark.parametrize("processes", [1, 3])
def test_rate_rises_and_falls_at_the_server(processes: int) -> None:
    with scripted() as server:
        document = measured("--stages", "1s:200,1s:0", "-p", str(processes), server.url)
    found = document["result"]
    assert found["requests"] == pytest.approx(200, abs=processes)
    assert found["ok"] == found["requests"]
    assert found["discarded"]["requests"] == 0
    assert document["load"]["stages"] == [{"seconds": 1.0, "rate": 200.0}, {"seconds": 1.0, "rate": 0.0}]
    up, down = found["stages"]
    assert (up["rate_from"], up["rate_to"], down["rate_to"]) == (0.0, 200.0, 0.0)
    assert up["asked"] == down["asked"] == pytest.approx(100)
    asked = [interval["asked"] for interval in found["series"] if interval["at"] < 2]
    assert max(asked) == pytest.approx(190, abs=20)
    assert sum(each["asked"] * each["seconds"] for each in found["series"]) == pytest.approx(200, rel=0.01)


def test_ramp_starts_at_the_rate_and_the_warmup_is_not_measured() -> None:
    with scripted() as server:
        found = measured("-R", "100", "--stages", "1s:300", "--warmup", "500ms", server.url)["result"]
    # 100 + 300 in a second is 200 on average: 75 in the first half and 125 in the second.
    assert found["discarded"]["requests"] == pytest.approx(75, abs=1)
    assert found["requests"] == pytest.approx(125, abs=1)


def test_requests_that_find_no_connection_are_counted_in_their_stage(tmp_path: Path) -> None:
    held = threading.Event()

    def respond(asked: Asked) -> bytes:
        # The server stops answering in the second stage.
        if asked.number >= 40:
            held.wait(30)
        return ok()

    page = tmp_path / "page.html"
    with scripted(respond) as server:
        done = bench(
            "-R", "40", "--stages", "1s:40,1s:200", "--max-connections", "1", "--timeout", "500ms", "--html", str(page),
            server.url,
        )  # fmt: skip
        held.set()
    assert done.returncode == 1, done.stderr
    table = done.stdout.partition("Stages\n")[2].split("\n")
    first, second = table[1].split(), table[2].split()
    assert first[:8] == ["0", "to", "1", "s", "40", "to", "40", "40.0"]
    assert second[:8] == ["1", "to", "2", "s", "40", "to", "200", "120.0"]
    assert int(second[10]) > 10, done.stdout
    assert "dropped" in done.stdout
    html = page.read_text(encoding="utf-8")
    assert "asked for" in html
    assert "<h2>Stages</h2>" in html


def test_latency_counts_from_when_a_request_was_due_in_a_ramp() -> None:
    begun = threading.Event()

    def respond(asked: Asked) -> bytes:
        if asked.number == 10:
            begun.wait(0.5)  # a stall: nothing sets it
        return ok()

    with scripted(respond) as server:
        found = measured("--stages", "1s:100", "--max-connections", "1", "-R", "100", server.url)["result"]
    # Half of the requests were due during the stall; they waited for a quarter of a second on average.
    assert found["latency"]["percentiles"]["75"] > 0.1
    assert found["service"]["percentiles"]["75"] < 0.1
    assert found["late"] > 30


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--stages", "1s:5", "-z", "1s"], "--stages and --duration do not go together"),
        (["--stages", "1s:5", "-n", "1"], "--stages and --requests do not go together"),
        (["--stages", "1s:5", "--slo", "p99<1s"], "--stages and --slo do not go together"),
        (["--stages", "1s:5", "--warmup", "1s"], "shorter than all stages"),
        (["--stages", "1s:5", "--warmup", "3"], "is a time"),
        (["--stages", "1s"], "expected a colon"),
    ],
)
def test_stages_that_contradict_other_flags_are_refused(flags: list[str], words: str) -> None:
    with scripted() as server:
        done = bench(*flags, server.url)
    assert done.returncode == 2
    assert words in done.stderr


def test_plans_of_processes_divide_each_stage() -> None:
    from test_bench_plan import load

    plans = load(rate=30.0, stages=stages.parse("1s:90"), processes=3).plans()
    models = [plan["model"]["open"] for plan in plans]
    assert [model["stages"] for model in models] == [[{"seconds": 1.0, "rate": 30.0}]] * 3
    assert all(after["phase"] - before["phase"] == pytest.approx(1 / 3) for before, after in pairwise(models))
