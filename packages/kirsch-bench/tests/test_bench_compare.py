"""``kirsch bench compare``: what may be called different, and what cannot be compared at all."""

from __future__ import annotations

import copy
import json
import math
import random
from typing import TYPE_CHECKING, Any

import pytest

from benching import bench, ok, scripted
from kirsch_bench import compare
from kirsch_bench.errors import UsageError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

LOAD = {"connections": 10, "rate": None, "duration": 10.0, "count": None, "version": "1.1", "seed": 0}


def report(
    speed: float = 1.0, *, seed: int = 1, windows: int = 20, noise: float = 0.02, failed: int = 0, **load: Any
) -> dict[str, Any]:
    """A report of a run that is ``speed`` times as fast as the slowest."""
    chance = random.Random(seed)

    def shaky(value: float) -> float:
        return value * math.exp(chance.gauss(0, noise))

    rate, median = 10_000 * speed, 0.001 / speed
    series = [
        {"at": at / 2, "seconds": 0.5, "warmup": at < 2, "answered": int(shaky(rate) / 2), "failed": 0, "dropped": 0,
         "late": 0, "received": 1000, "p50": shaky(median), "p99": shaky(5 * median), "max": 20 * median}
        for at in range(windows + 2)
    ]  # fmt: skip
    measured = [each for each in series if not each["warmup"]]
    answered = sum(each["answered"] for each in measured)
    percentiles = {"50": median, "75": 1.5 * median, "90": 2 * median, "95": 3 * median, "99": 5 * median,
                   "99.9": 9 * median, "99.99": 15 * median}  # fmt: skip
    return {
        "schema": "kirsch-bench-1",
        "target": "http://127.0.0.1:8000/",
        "load": {**LOAD, **load},
        "checks": {"status": [[200, 399]]},
        "requests": [
            {"method": "GET", "path": "/", "fields": [["Host", f"127.0.0.1:{8000 + seed}"], ["Accept", "*/*"]]}
        ],
        "environment": {"kirsch": "0.1.0", "python": "CPython 3.13.0", "system": "Linux", "cpu": {"model": "One"}},
        "result": {
            "started": 1_795_000_000.0 + seed,
            "rate": answered / (windows / 2) if windows else rate,
            "answered": answered or 1,
            "requests": (answered or 1) + failed,
            "failed": failed,
            "dropped": 0,
            "latency": {"count": answered, "percentiles": percentiles, "mean": median, "max": 20 * median},
            "server": {"user": 1.0, "system": 1.0, "per_request": 20e-6 / speed, "processes": 2},
            "series": series,
            "generator": {"troubles": [], "bound": False},
            "interrupted": False,
            "unreachable": False,
        },
    }


def written(folder: Path, *documents: Any) -> list[str]:
    paths = []
    for document in documents:
        path = folder / f"{len(list(folder.iterdir()))}.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        paths.append(str(path))
    return paths


def command(folder: Path, first: Any, second: Any, *options: str) -> subprocess.CompletedProcess[str]:
    sides = [
        ",".join(written(folder, *side)) if isinstance(side, list) else written(folder, side)[0]
        for side in (first, second)
    ]
    return bench("compare", *options, *sides)


def runs(*documents: dict[str, Any]) -> list[compare.Run]:
    return [compare.Run(f"{number}.json", document) for number, document in enumerate(documents)]


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {line.split("  ")[1].strip(): line for line in done.stdout.splitlines() if line.startswith("  ")}


# ------------------------------------------------------------------------------------------------ what may be called so


def test_a_faster_server_is_called_better(tmp_path: Path) -> None:
    done = command(tmp_path, report(1.0), report(1.2, seed=2))
    assert done.returncode == 0, done.stderr
    found = rows(done)
    assert "B is better" in found["rate"]
    assert "B is better" in found["p50"]
    assert "B is better" in found["p99"]
    assert "not tested" in found["p99.9"]
    assert "20.0 us" in found["server's processor time"]
    assert "16.7 us" in found["server's processor time"]
    assert "0.000%" in found["errors"]
    assert "By 6 windows of each run: that tells these two runs apart" in done.stdout


def test_a_server_is_not_called_different_from_itself() -> None:
    """Of 200 pairs of runs of one server, at most 5 in 100 have any metric that is called different."""
    first = random.randrange(1 << 30)
    print("seed", first)
    called = 0
    for number in range(200):
        compared = compare.compare(runs(report(seed=first + 2 * number)), runs(report(seed=first + 2 * number + 1)))
        assert any(row.p is not None for row in compared.rows)
        called += any(row.different for row in compared.rows)
    assert called <= 20  # 5 in 100 are 10; twice as many come about once in a thousand times


def test_several_runs_tell_servers_apart_with_processor_time_too(tmp_path: Path) -> None:
    def shaken(speed: float, seed: int) -> dict[str, Any]:
        # A bias that a process keeps for its lifetime: no window of one run shows it.
        return report(speed * math.exp(random.Random(seed).gauss(0, 0.01)), seed=seed)

    before = [shaken(1.0, seed) for seed in range(5)]
    after = [shaken(0.8, seed + 10) for seed in range(5)]
    done = command(tmp_path, before, after)
    assert done.returncode == 0, done.stderr
    found = rows(done)
    assert "5 pairs of runs" in done.stdout
    for name in ("rate", "p50", "p90", "p99", "p99.9", "mean", "server's processor time"):
        assert "B is worse" in found[name], name


def test_errors_are_compared_by_their_counts(tmp_path: Path) -> None:
    few = rows(command(tmp_path, report(failed=2), report(failed=3, seed=2)))["errors"]
    assert "not told apart" in few
    many = rows(command(tmp_path, report(failed=2), report(failed=300, seed=2)))["errors"]
    assert "B is worse" in many
    fewer = rows(command(tmp_path, report(failed=300), report(failed=0, seed=2)))["errors"]
    assert "B is better" in fewer


def test_runs_that_are_too_short_or_too_few_tell_nothing(tmp_path: Path) -> None:
    short = command(tmp_path, report(windows=2), report(2.0, seed=2, windows=2))
    assert short.returncode == 0
    assert "Too short to tell anything apart" in short.stdout
    assert "B is" not in short.stdout
    two = command(tmp_path, [report(), report(seed=3)], [report(2.0), report(2.0, seed=4)])
    assert "2 runs of each side are too few" in two.stdout
    assert "B is" not in two.stdout


def test_what_speaks_against_the_comparison_is_told(tmp_path: Path) -> None:
    other = report(seed=2)
    other["result"]["generator"]["troubles"] = ["used 97% of a processor"]
    other["environment"]["cpu"] = {"model": "Another"}
    other["environment"]["kirsch"] = "0.2.0"
    done = command(tmp_path, report(), other)
    assert done.returncode == 0
    assert "B: the generator used 97% of a processor." in done.stdout
    assert "The processor was One for A and Another for B." in done.stdout
    assert "The generator's version was 0.1.0 for A and 0.2.0 for B." in done.stdout


# ------------------------------------------------------------------------------------------------------------------- CI


@pytest.mark.parametrize(
    ("speed", "options", "status", "told"),
    [
        (0.8, ["--fail-if-slower", "5%"], 1, "rate is "),
        (0.8, ["--fail-if-slower", "30%"], 0, ""),
        (1.2, ["--fail-if-slower", "5%"], 0, ""),
        (0.8, ["--fail-if-slower", "p99:10%"], 1, "p99 is "),
        (0.8, ["--fail-if-slower", "0.9", "--fail-if-slower", "p50:0.05"], 1, "p50 is "),
        (1.0, ["--fail-if-slower", "errors:0.1%"], 0, ""),
    ],
)
def test_ci_fails_where_the_second_side_is_slower(
    speed: float, options: list[str], status: int, told: str, tmp_path: Path
) -> None:
    done = command(tmp_path, report(), report(speed, seed=2), *options)
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stderr.startswith(f"kirsch bench compare: {told}") == bool(told)


def test_ci_does_not_fail_for_what_chance_explains(tmp_path: Path) -> None:
    done = command(tmp_path, report(noise=0.3), report(0.95, seed=3, noise=0.3), "--fail-if-slower", "1%")
    assert done.returncode == 0, done.stdout
    assert "not told apart" in rows(done)["rate"]
    assert " -" in rows(done)["rate"]  # it is slower, by more than 1 %, and that proves nothing


def test_ci_looks_at_latencies_where_the_rate_was_asked_for(tmp_path: Path) -> None:
    first, second = report(rate=1000.0), report(0.5, seed=2, rate=1000.0)
    for each in second["result"]["series"]:
        each["answered"] *= 2  # the same rate
    done = command(tmp_path, first, second, "--fail-if-slower", "5%")
    assert done.returncode == 1
    assert "p50 is " in done.stderr


def test_ci_is_told_what_cannot_be_tested(tmp_path: Path) -> None:
    done = command(tmp_path, report(), report(0.5, seed=2), "--fail-if-slower", "processor:5%")
    assert done.returncode == 2
    assert "name 3 runs of each side" in done.stderr
    without = report(seed=2)
    without["result"]["server"] = None
    done = command(tmp_path, report(), without, "--fail-if-slower", "processor:5%")
    assert done.returncode == 2
    assert "do not both have server's processor time" in done.stderr


def test_more_errors_fail_too(tmp_path: Path) -> None:
    done = command(tmp_path, report(), report(failed=3000, seed=2), "--fail-if-slower", "errors:1%")
    assert done.returncode == 1
    assert "errors went up by 2." in done.stderr


def test_the_comparison_is_data_too(tmp_path: Path) -> None:
    done = command(tmp_path, report(), report(0.8, seed=2), "--json", "-", "--fail-if-slower", "5%")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["schema"] == "kirsch-bench-compare-1"
    assert (document["by"], document["pairs"]) == ("windows", 6)
    rate = next(each for each in document["metrics"] if each["metric"] == "rate")
    assert (rate["different"], rate["better"]) == (True, "a")
    assert rate["low"] < rate["ratio"] < rate["high"] < 1
    assert rate["ratio"] == pytest.approx(0.8, abs=0.03)
    assert len(document["slower"]) == 1
    assert "not told apart" in done.stderr or "B is worse" in done.stderr  # the text gives way to standard error


# ---------------------------------------------------------------------------------------------- what cannot be compared


def changed(path: Sequence[str | int], value: Any) -> dict[str, Any]:
    document = report(seed=2)
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        (["load", "connections"], 20, "connections is 10 and 20"),
        (["load", "duration"], None, "duration is 10.0 and nothing"),
        (["requests", 0, "path"], "/other", 'requests 1 path is "/" and "/other"'),
        (["requests", 0, "fields"], [["Accept", "text/html"]], 'is "*/*" and "text/html"'),
        (["checks"], {"status": [[200, 200]]}, "checks status 1 2 is 399 and 200"),
    ],
)
def test_different_plans_are_not_compared(path: list[str | int], value: Any, what: str, tmp_path: Path) -> None:
    done = command(tmp_path, report(), changed(path, value))
    assert (done.returncode, done.stdout) == (2, "")
    assert "are of different plans" in done.stderr
    assert what in done.stderr


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ("{", "is no report of kirsch bench --json"),
        ("\0\xff", "is no report of kirsch bench --json"),
        ("[1]", "cannot be compared: no schema"),
        ({"result": {}}, "cannot be compared: no schema"),
        (
            changed(["schema"], "kirsch-bench-2"),
            "is 'kirsch-bench-2', and 'kirsch-bench-1' is what this version compares",
        ),
        (changed(["schema"], "kirsch-bench-cycles-1"), "for load tests in Python and surveys there is no comparison"),
        (changed(["result"], KeyError), "is broken: KeyError: 'result'"),
        (changed(["result", "latency"], KeyError), "is broken: KeyError: 'latency'"),
        (changed(["result", "rate"], "fast"), "is broken: ValueError: rate is 'fast'"),
        (changed(["result", "series", 0, "p50"], -1), "is broken: ValueError: p50 is -1"),
        (changed(["result", "series"], [5]), "is broken: TypeError"),
        (changed(["result", "unreachable"], True), "holds no answers: the server was not there"),
        (changed(["result", "answered"], 0), "holds no answers"),
    ],
)
def test_a_broken_file_is_refused_by_name(document: Any, what: str, tmp_path: Path) -> None:
    done = command(tmp_path, report(), document)
    assert (done.returncode, done.stdout) == (2, "")
    assert what in done.stderr
    assert "1.json" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ([], "name two reports"),
        (["a.json"], "name two reports"),
        (["nowhere.json", "nothere.json"], "cannot read nowhere.json: No such file or directory"),
        (["--fail-if-slower", "p98:5%", "a", "b"], "'p98:5%' is no limit; write 5% or METRIC:5%"),
        (["--fail-if-slower", "much", "a", "b"], "'much' is no limit"),
        ([",", ","], "a side has no report"),
        (["--what", "a", "b"], "unrecognized arguments: --what"),
    ],
)
def test_a_command_line_that_is_wrong_is_told(args: list[str], what: str) -> None:
    done = bench("compare", *args)
    assert done.returncode == 2
    assert what in done.stderr


def test_sides_of_different_sizes_cannot_be_paired() -> None:
    with pytest.raises(UsageError, match="2 runs cannot be paired with 1"):
        compare.compare(runs(report(), report()), runs(report()))


def test_help_is_there() -> None:
    done = bench("compare", "--help")
    assert done.returncode == 0
    assert "--fail-if-slower" in done.stdout
    assert "kirsch bench compare" in bench("--help").stdout


# ------------------------------------------------------------------------------------------------------------ for real


@pytest.mark.slow
def test_reports_of_real_runs_are_compared(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for path in paths:
        # A server of its own each time: another port is no other plan.
        with scripted(lambda _: ok()) as server:
            done = bench("-q", "-c", "2", "-z", "1s", "--warmup", "0.2s", "--json", path, server.url)
        assert done.returncode == 0, done.stderr
        document = json.loads((tmp_path / path).read_text())
        # The scripted server is this very process.
        assert document["result"]["server"]["processes"] >= 1
        assert document["result"]["server"]["per_request"] > 0
        assert "of processor time a request" in done.stdout
    done = bench("compare", *paths)
    assert done.returncode == 0, done.stderr
    assert "server's processor time" in done.stdout
    other = copy.deepcopy(json.loads((tmp_path / "b.json").read_text()))
    other["load"]["connections"] = 3
    (tmp_path / "b.json").write_text(json.dumps(other))
    assert bench("compare", *paths).returncode == 2


def test_replays_against_two_servers_are_compared(tmp_path: Path) -> None:
    entries = [
        {
            "startedDateTime": f"2026-10-10T10:00:00.{number}Z",
            "request": {
                "method": "GET",
                "url": "https://shop.example/",
                "headers": [{"name": "Origin", "value": "https://shop.example"}],
            },
        }
        for number in range(10)
    ]
    har = tmp_path / "shop.har"
    har.write_text(json.dumps({"log": {"entries": entries}}))
    for name in ("a.json", "b.json"):
        with scripted(lambda _: ok()) as server:
            assert bench("--replay", str(har), "--json", str(tmp_path / name), server.url).returncode == 0
    done = bench("compare", "a.json", "b.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
