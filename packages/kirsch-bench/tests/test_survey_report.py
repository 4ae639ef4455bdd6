"""Reports of a survey: the text, the page, the JSON, and the warnings."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import surveying
from kirsch_bench import plots
from kirsch_bench.native import Histogram
from kirsch_bench.survey import records, report, results, tables
from surveying import CPYTHON, SCENARIOS, SUBJECTS, Report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kirsch_bench.survey.records import Header, Round

HELLO = "A small page on connections that stay"


@pytest.fixture(scope="module")
def header() -> Header:
    return surveying.header()


@pytest.fixture(scope="module")
def rounds(header: Header) -> list[Round]:
    return surveying.rounds(header)


@pytest.fixture(scope="module")
def written(header: Header, rounds: list[Round], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("survey") / "made" / "anew"
    paths = report.write(header, rounds, folder)
    assert [path.name for path in paths] == ["survey.txt", "survey.html", "survey.json"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in paths)
    return folder


@pytest.fixture(scope="module")
def page(written: Path) -> Report:
    return Report((written / "survey.html").read_text())


def cells(text: str, title: str) -> dict[str, list[str]]:
    """A table of the text by its first column; cells are two blanks apart."""
    block = next(block for block in text.split("\n\n") if block.startswith(title))
    lines = [re.split(r" {2,}", line.strip()) for line in block.splitlines()[2:]]
    return {line[0]: line[1:] for line in lines if len(line) > 1}


def small(subjects: Sequence[str] = ("kirsch", "gunicorn"), **changes: Any) -> Header:
    """A survey of one scenario."""
    chosen = tuple(each for each in SUBJECTS if each.server in ("null", *subjects))
    return surveying.header(subjects=chosen, scenarios=SCENARIOS[:1], **changes)


# ---------------------------------------------------------------------------------------------------------------- text


def test_a_scenario_is_a_table_with_the_best_first(header: Header, rounds: list[Round]) -> None:
    table = cells(report.text(header, rounds), HELLO)
    assert list(table)[-1] == "cheroot"
    assert {"kirsch", "bjoern"} == set(list(table)[:2])
    gunicorn = table["gunicorn"]
    # The rate and its rank, processor time and its rank, the share that is the program's own, latencies, failures.
    assert 3_000 < float(gunicorn[0].replace(",", "")) < 5_000
    assert gunicorn[2] == "6"
    assert 200 < float(gunicorn[3].removesuffix(" us")) < 270
    assert gunicorn[5:7] == ["6", "60%"]
    assert gunicorn[-1] == "0"
    # The generator was the limit of both, so only their cost ranks them.
    assert table["kirsch"][0].startswith("≥ ")
    assert table["kirsch"][2] == table["bjoern"][2] == "1–2"
    assert (table["kirsch"][5], table["bjoern"][5]) == ("1", "2")


def test_interpreters_of_one_server_are_rows_of_their_own(header: Header, rounds: list[Round]) -> None:
    table = cells(report.text(header, rounds), HELLO)
    assert "gevent, CPython 3.13.0" in table
    assert "gevent, PyPy 7.3.17 (3.10)" in table
    assert "null" not in table


def test_what_one_more_costs_is_told(header: Header, rounds: list[Round]) -> None:
    found = {
        (each.key[0], each.sweep.series): each
        for each in results.summarize(header, rounds).costs
        if each.key[1] == CPYTHON
    }
    for server, (base, field, kib) in surveying.COSTS.items():
        for series, true in (("headers", field), ("size", kib)):
            cost = found[server, series]
            assert cost.each.interval is not None
            assert cost.each.value == pytest.approx(true, rel=0.3)
            assert cost.none == pytest.approx(base, rel=0.3)
    block = next(each for each in report.text(header, rounds).split("\n\n") if each.startswith("What one more costs"))
    assert re.search(r"bjoern +header field +6\d\d ns", block)
    assert re.search(r"cheroot +KiB +1\.\d\d us", block)


def test_two_series_over_the_same_number_stay_apart() -> None:
    pages = {"soon": 1000.0, "later": 10.0}
    scenarios = tuple(
        records.Scenario(f"{page}-{x}", f"{page}, {x} connections", f"-c {x}", "hello", "connections", x)
        for page in pages
        for x in (5, 20)
    )
    header = surveying.header(subjects=SUBJECTS[1:2], scenarios=scenarios)
    rounds = [
        dataclasses.replace(each, rate=pages[each.scenario.partition("-")[0]]) for each in surveying.rounds(header)
    ]
    text = report.text(header, rounds)
    for page, rate in (("soon", "1,000"), ("later", "10")):
        assert cells(text, f"{page}: Requests a second, by connections") == {"kirsch": [rate, rate]}


def test_needs_fairness_and_absence_are_told(header: Header, rounds: list[Round]) -> None:
    text = report.text(header, rounds)
    assert cells(text, "What it needs")["cheroot"] == ["150 MiB", "150 MiB", "1", "10", "310 ms", "1.00 ms", "0.10%"]
    answers = cells(text, "What it answers with")
    assert answers["kirsch"] == ["200", "120 B", "12 B", "Date, Server", "1 worker, no log"]
    assert answers["cheroot"][-1] == "10 threads, no log"
    assert cells(text, "What could not run") == {"cyclone": ["its last release is for Python 2 only"]}


def test_the_share_of_an_application_is_told() -> None:
    """fijal's rule: a server that could answer 2,000 a second by itself is a quarter of what 500 a second cost."""
    header = small()
    rounds = [
        dataclasses.replace(each, user=each.requests / 2000, system=0.0) if each.server == "gunicorn" else each
        for each in surveying.rounds(header)
    ]
    shares = cells(report.text(header, rounds), "The server's share")
    at = [f"{rate:,}/s" for rate in tables.RATES]
    assert dict(zip(at, shares["gunicorn"], strict=True))["500/s"] == "25%"
    assert dict(zip(at, shares["gunicorn"], strict=True))["5,000/s"] == "all"


# ------------------------------------------------------------------------------------------------------------ warnings


def test_a_survey_without_blemish_has_no_warnings() -> None:
    header = small(("gunicorn", "cheroot"))
    assert "Warnings" not in report.text(header, surveying.rounds(header))


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"machine": {"busy": 0.5, "steal": 0.07}}, "the hypervisor took more than 2% of the processors' time"),
        ({"generator": {"used": 0.95, "bound": False}}, "The generator may be the limit"),
        ({"generator": {"used": 0.5, "ceiling": 5000.0}}, "The generator may be the limit"),
        ({"generator": {"troubles": ["was kept waiting for a processor for 9% of the time"]}}, "kept waiting"),
        (
            {"failed": 500, "errors": {"timeout": 500}},
            "Where more than 1 % of the requests failed there is no rank. hello: gunicorn",
        ),
    ],
)
def test_what_speaks_against_the_figures_is_told(changes: dict[str, Any], warning: str) -> None:
    header = small(("gunicorn", "cheroot"))
    rounds = [
        dataclasses.replace(each, **changes) if each.server == "gunicorn" else each for each in surveying.rounds(header)
    ]
    text = report.text(header, rounds)
    assert warning in " ".join(text[text.index("Warnings") :].split())


@pytest.mark.parametrize(
    ("steals", "told"),
    [
        ([0.0204], "In 1 round of 15 the hypervisor took more than 2% of {}: 2.04%."),
        ([0.021, 0.0201], "In 2 rounds of 15 the hypervisor took more than 2% of {}: up to 2.1%."),
        ([0.02], ""),
    ],
)
def test_a_warning_shows_a_share_beyond_the_limit_that_it_names(steals: list[float], told: str) -> None:
    """Rounded to whole per cent, 2.04 % would be "more than 2%, at most 2%"."""
    header = small(("gunicorn", "cheroot"))
    rounds = surveying.rounds(header)
    for index, steal in enumerate(steals):
        rounds[index] = dataclasses.replace(rounds[index], machine={"busy": 0.5, "steal": steal})
    text = " ".join(report.text(header, rounds).split())
    assert told.format("the processors' time for other machines") in text
    assert ("hypervisor" in text) == bool(told)


def test_a_server_that_failed_hardly_more_than_the_limit_shows_more() -> None:
    header = small(("gunicorn", "cheroot"))
    rounds = [
        dataclasses.replace(each, failed=int(each.requests * 0.0104), errors={"status": int(each.requests * 0.0104)})
        if each.server == "gunicorn"
        else each
        for each in surveying.rounds(header)
    ]
    text = " ".join(report.text(header, rounds).split())
    assert "Where more than 1 % of the requests failed there is no rank. hello: gunicorn 1.04%." in text


def test_the_mark_of_the_generator_and_the_figures_beside_it_agree() -> None:
    """In most rounds the server is at 81 % of the null server, in the others far below it: the figures that are shown
    come to 74 %, so there is no mark. The other way round there is one."""
    header = small(("gunicorn", "cheroot"))

    def surveyed(shares: Sequence[float]) -> results.Cell:
        rounds = [
            dataclasses.replace(
                each,
                rate=10_000 * shares[each.round],
                generator={"used": 0.5, "bound": shares[each.round] > 0.8, "troubles": [], "ceiling": 10_000.0},
            )
            if each.server == "gunicorn"
            else dataclasses.replace(each, rate=10_000.0)
            if each.server == "null"
            else each
            for each in surveying.rounds(header)
        ]
        (scene,) = results.summarize(header, rounds).scenes
        cell = next(each for each in scene.measured if each.key[0] == "gunicorn")
        assert cell.rate is not None
        assert scene.ceiling is not None
        assert (cell.rate.value > 0.8 * scene.ceiling.value) == bool(cell.bound)
        return cell

    assert surveyed([0.81, 0.81, 0.81, 0.65, 0.65]).bound == ""
    assert surveyed([0.79, 0.79, 0.79, 0.95, 0.95]).bound == "85% of the null server"
    assert surveyed([0.801] * 5).bound == "80.1% of the null server"


def test_the_processors_that_a_server_used_are_told() -> None:
    header = small(("gunicorn", "cheroot"))
    rounds = [
        dataclasses.replace(each, processor=1.5 + 0.02 * each.round) if each.server == "gunicorn" else each
        for each in surveying.rounds(header)
    ]
    text = report.text(header, rounds)
    heads = [line for line in text.splitlines() if "server CPU" in line]
    assert len(heads) == 1
    assert cells(text, HELLO)["gunicorn"][7] == "154%"
    (scene,) = report.document(results.summarize(header, rounds), rounds)["scenarios"]
    assert next(each for each in scene["servers"] if each["server"] == "gunicorn")["server_cpu"]["value"] == (
        pytest.approx(1.54)
    )


def test_few_rounds_and_no_null_server_are_warned_about() -> None:
    header = small(rounds=2)
    rounds = surveying.without(surveying.rounds(header), "null")
    text = report.text(header, rounds)
    assert "Only 2 rounds of some" in text
    assert "No null server was measured" in text
    assert cells(text, HELLO)["gunicorn"][2] == "1–2"


def test_answers_of_different_lengths_are_warned_about() -> None:
    header = small()
    rounds = [
        dataclasses.replace(each, response={"status": 200, "head": 99, "body": 13}) if each.server == "kirsch" else each
        for each in surveying.rounds(header)
    ]
    assert "differ in length. hello: 12 bytes from gunicorn; 13 bytes from kirsch." in report.text(header, rounds)


def test_equals_that_were_called_different_are_counted() -> None:
    twins = tuple(records.Subject(f"gunicorn.{each}", CPYTHON, "gunicorn", same_as="gunicorn") for each in (1, 2, 3))
    header = surveying.header(subjects=twins, scenarios=SCENARIOS[:1])
    fair = report.text(header, surveying.rounds(header))
    assert "in 0 of 6 comparisons a server was called different from itself" in fair
    rounds = [
        dataclasses.replace(each, rate=each.rate / 2) if each.server == "gunicorn.3" else each
        for each in surveying.rounds(header)
    ]
    assert "in 2 of 6 comparisons" in report.text(header, rounds)


# ------------------------------------------------------------------------------------------------------------ failures


def test_a_server_that_loses_requests_has_no_rank() -> None:
    """Closing what comes too fast is how flup was fast."""
    header = small(("kirsch", "gunicorn", "cheroot"))
    rounds = [
        dataclasses.replace(each, rate=10 * each.rate, failed=int(0.4 * each.requests), errors={"reset": 4000})
        if each.server == "cheroot"
        else each
        for each in surveying.rounds(header)
    ]
    text = report.text(header, rounds)
    table = cells(text, HELLO)
    assert list(table)[-1] == "cheroot"
    assert table["cheroot"][2] == "–"
    assert table["cheroot"][-1] == "29%"
    assert "20,000 × reset" in text


def test_failures_while_warming_up_are_told_and_cost_no_rank() -> None:
    header = small()
    rounds = [
        dataclasses.replace(each, failed=900, errors={results.WARMING_UP: 900}) if each.server == "gunicorn" else each
        for each in surveying.rounds(header)
    ]
    text = report.text(header, rounds)
    assert cells(text, HELLO)["gunicorn"][2] == "2"
    assert cells(text, HELLO)["gunicorn"][-1] == "0"
    assert "4,500 × while warming up" in text


def test_wrong_answers_are_counted_once() -> None:
    header = small()
    rounds = [
        dataclasses.replace(each, failed=each.requests // 4, errors={"status": each.requests // 4})
        if each.server == "gunicorn"
        else each
        for each in surveying.rounds(header)
    ]
    assert cells(report.text(header, rounds), HELLO)["gunicorn"][-1] == "25%"


def test_rounds_without_figures_are_told_and_the_others_count() -> None:
    header = small()
    rounds = [
        records.Round("gunicorn", CPYTHON, "hello", each.round, each.started, failure="it ended with status 3")
        if each.server == "gunicorn" and each.round < 2
        else each
        for each in surveying.rounds(header)
    ]
    text = report.text(header, rounds)
    assert cells(text, "Rounds without figures") == {"gunicorn": [HELLO, "2", "it ended with status 3"]}
    assert cells(text, HELLO)["gunicorn"][-1] == "0, 2 rounds without figures"
    assert "Only 3 rounds of some" in text


def test_rounds_that_failed_in_the_same_way_are_one_row() -> None:
    header = small()
    why = "it answers 403; its last words: "
    failures = [f"{why}12:01 end", f"{why}12:02 end", f"not tried again: {why}12:02 end", "it did not start", "", ""]
    rounds = [
        dataclasses.replace(each, failure=failures[each.round]) if each.server == "gunicorn" else each
        for each in surveying.rounds(header)
    ]
    table = next(block for block in report.text(header, rounds).split("\n\n") if block.startswith("Rounds without"))
    assert [re.split(r" {2,}", line.strip())[2:] for line in table.splitlines()[2:]] == [
        ["3", "it answers 403; its last words: 12:01 end"],
        ["1", "it did not start"],
    ]


@pytest.mark.parametrize("kept", [0, 1, 2, 7])
def test_an_unfinished_survey_can_be_read(kept: int, header: Header, rounds: list[Round], tmp_path: Path) -> None:
    some = rounds[:kept]
    assert header.title in report.text(header, some)
    report.write(header, some, tmp_path)
    Report((tmp_path / "survey.html").read_text())
    assert len(json.loads((tmp_path / "survey.json").read_text())["rounds"]) == kept


def test_a_survey_in_which_all_failed_can_be_read(header: Header, tmp_path: Path) -> None:
    failed = [
        records.Round(each.server, each.python, "hello", 0, 0.0, failure="no <b>luck</b> & nothing else")
        for each in SUBJECTS
        if not each.absent
    ]
    assert "no <b>luck</b> & nothing else" in report.text(header, failed)
    report.write(header, failed, tmp_path)
    page = Report((tmp_path / "survey.html").read_text())
    assert any("no <b>luck</b> & nothing else" in row for table in page.tables for row in table)


def test_a_round_measured_twice_counts_once() -> None:
    header = small()
    rounds = surveying.rounds(header)
    again = [dataclasses.replace(each, rate=1.0) for each in rounds]
    assert report.text(header, [*again, *rounds]) == report.text(header, rounds)


# ---------------------------------------------------------------------------------------------------------------- page


@pytest.mark.slow
def test_the_page_needs_nothing_else(written: Path, page: Report) -> None:
    text = (written / "survey.html").read_text()
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert all(reference.startswith("#") for reference in page.references)
    assert "url(" not in text
    assert "@import" not in text
    assert 'name="viewport"' in text
    assert "prefers-color-scheme: dark" in text


def test_every_section_is_reached_from_the_top(page: Report) -> None:
    assert len(set(page.ids)) == len(page.ids)
    assert page.references
    assert {reference[1:] for reference in page.references} <= set(page.ids)


def test_what_the_page_shows(page: Report) -> None:
    assert page.headings[0] == "Python servers"
    for heading in (
        "At a glance", HELLO, "By header field", "By KiB", "By connection", "What one more costs", "What it needs",
        "What it answers with", "What it matters to your application", "What could not run", "How to read this",
        "Where",
    ):  # fmt: skip
        assert heading in page.headings
    assert len(page.plots) == len(set(page.plots))
    for plot in (
        f"Requests a second: {HELLO}",
        f"Processor time for a request: {HELLO}",
        f"Latency by the share of requests that took at most so long: {HELLO}",
        "Processor time for a request, in us, by header fields",
        "Requests a second, by connections",
    ):
        assert plot in page.plots
    # At a given rate all that keep up are the same.
    assert "Requests a second: 1,000 a second, Poisson" not in page.plots


@pytest.mark.slow
def test_page_and_text_have_the_same_tables(header: Header, rounds: list[Round], page: Report) -> None:
    found = results.summarize(header, rounds)
    for table in (tables.overview(found), tables.scene(found.scenes[0]), tables.costs(found), tables.needs(found)):
        assert table is not None
        assert [list(row) for row in table.rows] in page.tables
        assert table.text() in report.text(header, rounds)


def test_warnings_stand_at_the_top_of_the_page(page: Report, header: Header, rounds: list[Round]) -> None:
    assert page.warnings == list(results.summarize(header, rounds).warnings)
    assert any(warning.startswith("The generator may be the limit") for warning in page.warnings)


BROWSER = """
// As much of a browser as the page asks for.
const source = require("fs").readFileSync(0, "utf8");
const cells = [...source.matchAll(/data-cost='([^']+)'/g)].map(([, cost]) => ({ dataset: { cost }, textContent: "" }));
const input = { value: "500", addEventListener(_event, then) { this.then = then; } };
globalThis.document = { getElementById: (id) => id === "share-rate" ? input : null, querySelectorAll: () => cells };
new Function(source.match(/<script>([^]*?)<\\/script>/)[1])();
const shown = [];
for (const rate of [null, "5000", "0", ""]) {
  if (rate !== null) { input.value = rate; input.then(); }
  shown.push(cells.map((cell) => cell.textContent));
}
console.log(JSON.stringify(shown));
"""


def test_the_page_reckons_with_the_readers_rate(written: Path, header: Header, rounds: list[Round]) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    done = subprocess.run(
        [node, "-e", BROWSER], input=(written / "survey.html").read_text(), text=True, capture_output=True, check=True
    )
    at_500, at_5000, at_0, at_nothing = json.loads(done.stdout)
    shares = cells(report.text(header, rounds), "The server's share")
    assert at_500 == [row[tables.RATES.index(500)] for row in shares.values()]
    assert at_5000 == [row[tables.RATES.index(5000)] for row in shares.values()]
    assert set(at_0) == set(at_nothing) == {"–"}


# ---------------------------------------------------------------------------------------------------------------- data


def test_json_holds_everything(written: Path, page: Report, header: Header, rounds: list[Round]) -> None:
    data = json.loads((written / "survey.json").read_text())
    assert data["schema"] == "kirsch-survey-1"
    assert [records.from_json(each) for each in data["rounds"]] == rounds
    survey = records.from_json({"kind": "header", "environment": data["environment"], **data["survey"]})
    assert survey == header
    hello = data["scenarios"][0]
    gunicorn = next(each for each in hello["servers"] if each["server"] == "gunicorn")
    assert gunicorn["rate"]["low"] < gunicorn["rate"]["value"] < gunicorn["rate"]["high"]
    assert gunicorn["rate"]["rounds"] == 5
    assert gunicorn["processor_rank"] == {"best": 6, "last": 6, "same": []}
    assert len(Histogram(gunicorn["histogram"])) == 5 * 300
    assert hello["ceiling"]["value"] > gunicorn["rate"]["value"]
    assert data["absent"] == {"cyclone": "its last release is for Python 2 only"}
    # The page has all but the single rounds.
    del data["rounds"]
    assert json.loads(page.scripts["data"]) == data


def test_what_is_there_is_replaced_as_a_whole(tmp_path: Path) -> None:
    header = small()
    (tmp_path / "survey.txt").write_text("of before")
    report.write(header, surveying.rounds(header), tmp_path)
    assert (tmp_path / "survey.txt").read_text() == report.text(header, surveying.rounds(header)) + "\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["survey.html", "survey.json", "survey.txt"]


# --------------------------------------------------------------------------------------------------------------- plots


def test_many_lines_have_styles_of_their_own_and_a_legend_that_fits() -> None:
    lines = [plots.Line(f"server number {each}", [(0.0, 1.0), (1.0, each + 1.0)]) for each in range(20)]
    axis = plots.linear(1, "x", str)
    drawing = plots.draw("Many", axis, plots.linear(20, "y", str), lines)
    used = re.findall(r'polyline class="([^"]+)"', drawing)
    assert len(set(used)) == 20
    height = float(re.search(r'viewBox="0 0 \d+ (\d+)"', drawing)[1])  # type: ignore[index]
    tops = [float(top) for top in re.findall(r'<text class="name" x="\d+" y="(\d+)"', drawing)]
    assert len(tops) == 20
    assert max(tops) <= height


def test_bars_stay_within_their_plot() -> None:
    bars = [plots.Bar("a", 10.0, "ten", (5.0, 99.0)), plots.Bar("b" * 60, 0.0, "none")]
    drawing = plots.bars("Bars", bars, plots.linear(10, "x", str), limit=(500.0, "far away"))
    Report(drawing)
    assert "far away" not in drawing
    right = max(float(x) for x in re.findall(r"H([\d.]+)M", drawing))
    assert right <= plots.WIDTH
