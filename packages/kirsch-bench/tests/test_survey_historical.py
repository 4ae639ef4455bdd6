"""The old figures, as their documents have them, and how ours are put beside them."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import surveying
from kirsch_bench.errors import UsageError
from kirsch_bench.survey import historical, records, report, results, spec
from surveying import CPYTHON, PYPY, Report

if TYPE_CHECKING:
    from kirsch_bench.survey.records import Scenario, Subject
    from kirsch_bench.survey.tables import Table

SURVEYS = Path(__file__).resolve().parents[3] / "survey" / "founding"
OLD = SURVEYS / "historical"
NAMES = ("S0.1", "S0.2", "S0.5", "S1.2", "S2.4", "S3.4", "S4.1")

# As the documents print them.
CHERRYPY_BARE = """\
10 | 3000 | 0 | 2170.79 | 0.461 | 358.18 |
20 | 3000 | 0 | 2080.34 | 0.481 | 343.26 |
30 | 3000 | 0 | 1920.31 | 0.521 | 316.85 |
40 | 3000 | 0 | 2051.84 | 0.487 | 338.55 |
50 | 3000 | 0 | 2051.84 | 0.487 | 338.55 |
"""
CHERRYPY_FULL = """\
10 | 1000 | 0 | 536.86 | 1.863 | 85.36 |
20 | 1000 | 0 | 509.47 | 1.963 | 81.01 |
30 | 1000 | 0 | 499.28 | 2.003 | 79.39 |
40 | 1000 | 0 | 491.90 | 2.033 | 78.21 |
50 | 1000 | 0 | 504.32 | 1.983 | 80.19 |
Average | 1000.0 | 0.0 | 508.366 | 1.969 | 80.832 |
"""
INTERPRETERS = {
    "twisted.web": (2300, 8300, 3.61),
    "cyclone": (2400, 7400, 3.08),
    "tornado": (3200, 7600, 2.38),
    "gunicorn (sync)": (3700, 6900, 1.86),
    "gevent": (4100, 6400, 1.56),
    "eventlet": (3200, 6700, 2.09),
}
AB = {
    "picows": "3492.37 28.634 0.286 266.05 78 26 28 30 30 32 34 48 59 87",
    "fapws3 0.3": "1449.51 68.989 0.690 161.37 114 65 67 69 72 90 98 108 115 128",
    "Tornado 0.1": "541.46 184.687 1.847 88.83 168 175 180 187 192 202 227 265 322 375",
}


def load(name: str) -> dict[str, Any]:
    return historical.load(str(OLD / f"{name}.toml"))


def old(name: str, index: int = 0) -> list[list[str]]:
    rows: list[list[str]] = load(name)["table"][index]["rows"]
    return rows


def as_printed(rows: list[list[str]]) -> str:
    return "".join(" | ".join(row) + " |\n" for row in rows)


# ---------------------------------------------------------------------------------------------------------------- then


def test_every_row_of_the_seeds_has_its_table() -> None:
    assert {path.stem for path in OLD.iterdir()} == set(NAMES)
    for name in NAMES:
        data = load(name)
        assert data["name"] == name
        assert data["source"]
        assert data["rig"]
        for table in data["table"]:
            assert {len(row) for row in table["rows"]} == {len(table["columns"])}
            assert all(isinstance(cell, str) for row in table["rows"] for cell in row)


def test_cherrypys_tables() -> None:
    assert as_printed(old("S0.1")) == CHERRYPY_BARE
    assert as_printed(old("S0.2")) == CHERRYPY_FULL
    rates = [float(row[3]) for row in old("S0.1")]
    assert "0.885" in load("S0.1")["table"][0]["note"]
    assert min(rates) / max(rates) == pytest.approx(0.885, abs=5e-4)
    for row, full, bare in zip(old("S0.2", 1), old("S0.2"), old("S0.1"), strict=False):
        assert row == [full[0], full[3], bare[3], f"{float(full[3]) / float(bare[3]):.3f}"]


def test_picowss_table() -> None:
    assert {row[0]: " ".join(row[1:]) for row in old("S2.4")} == AB
    first, second, third = (float(row[1]) for row in old("S2.4"))
    note = load("S2.4")["table"][0]["note"]
    assert f"{first / second:.2f} times as many as fapws3" in note
    assert f"{first / third:.2f} times as many as Tornado" in note


def test_fijals_table() -> None:
    assert {row[0]: (int(row[1]), int(row[2]), float(row[3])) for row in old("S3.4")} == INTERPRETERS
    for row in old("S3.4"):
        assert float(row[3]) == pytest.approx(int(row[2]) / int(row[1]), abs=5e-3)
    assert set(load("S3.4")["now"]) == set(INTERPRETERS)


GOOD = """
title = "Old"
source = "A page"
rig = "A laptop"
shape = "ab"

[[table]]
title = "What was measured"
columns = ["server", "rate"]
rows = [["picows", "3492.37"]]
"""


@pytest.mark.parametrize(
    ("old_text", "new_text", "message"),
    [
        ('rig = "A laptop"', "", "rig is missing, or is not text"),
        ('"ab"', '"sweeps"', "shape is one of sweep, users, ab, interpreters, gateways; did you mean sweep?"),
        ('"picows", "3492.37"', '"picows"', "rows of as many texts as there are columns"),
        ('"3492.37"', "3492.37", "rows of as many texts as there are columns"),
        ('shape = "ab"', 'shape = "sweep"\nbare = "cheroot"', "server is missing"),
        ('shape = "ab"', 'shape = "interpreters"\nnow = 3', "now is a table of names"),
        ("[[table]]", "[[table", "old.toml:7: this is not TOML"),
    ],
)
def test_mistakes_in_a_file_of_old_tables_are_reported(
    old_text: str, new_text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "old.toml"
    path.write_text(GOOD)
    assert historical.load(str(path))["name"] == "old"
    assert old_text in GOOD
    path.write_text(GOOD.replace(old_text, new_text))
    with pytest.raises(UsageError) as raised:
        historical.load(str(path))
    assert message in str(raised.value)
    assert "old.toml" in str(raised.value)


def test_a_survey_names_its_old_tables_by_a_path_from_its_own_folder(tmp_path: Path) -> None:
    path = tmp_path / "survey.toml"
    text = '[survey]\nhistorical = "old.toml"\n[[scenario]]\nname = "hello"\n[[server]]\nadapter = "wsgiref"\n'
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        spec.read(str(path))
    assert str(raised.value) == f"{path}:2: historical: there is no file {tmp_path / 'old.toml'}"
    (tmp_path / "old.toml").write_text(GOOD)
    assert historical.load(spec.read(str(path)).historical)["title"] == "Old"


# ----------------------------------------------------------------------------------------------------------------- now


def ours(name: str, subjects: tuple[Subject, ...], scenarios: tuple[Scenario, ...], **changes: Any) -> list[Table]:
    """Our tables beside the old ones, with five rounds of each."""
    header = surveying.header(subjects=subjects, scenarios=scenarios, historical=load(name))
    rounds = [
        dataclasses.replace(each, **changes.get(each.server, {})) for each in surveying.rounds(header, noise=0.01)
    ]
    found = historical.tables(results.summarize(header, rounds))
    text = report.text(header, rounds)
    assert header.historical is not None
    assert header.historical["rig"].split(";")[0] in text.replace("\n  ", " ")
    assert all(table.text() in text for table in found)
    return found


def subject(name: str, python: str = CPYTHON) -> Subject:
    return records.Subject(name, python, name)


CLIENTS = tuple(
    records.Scenario(f"clients-{x}", f"ab, {x} connections", f"-c {x}", "hello", "connections", x)
    for x in (10, 20, 30, 40, 50)
)


def test_the_sweep_is_printed_in_abs_columns_with_its_average() -> None:
    cheroot = dataclasses.replace(subject("cheroot"), threads=10)
    found = ours("S0.1", (cheroot, subject("kirsch")), CLIENTS)
    assert [table.title for table in found[1:]] == [
        "Then: Client threads",
        "Now: kirsch: Client Thread Report (5 rounds of 3.00 s, 12 byte response body)",
        "Now: cheroot: Client Thread Report (5 rounds of 3.00 s, 12 byte response body, 10 server threads)",
    ]
    now = found[3]
    assert list(now.rows[0]) == ["threads", "Completed", "Failed", "req/sec", "msec/req", "KB/sec"]
    assert [row[0] for row in now.rows[1:]] == ["10", "20", "30", "40", "50", "Average"]
    for row in now.rows[1:-1]:
        assert float(row[4]) == pytest.approx(1000 / float(row[3]), abs=1e-3)
        assert float(row[5]) == pytest.approx(float(row[3]) * 132 / 1024, abs=1e-2)
        assert row[2] == "0"
    assert float(now.rows[-1][3]) == pytest.approx(sum(float(row[3]) for row in now.rows[1:-1]) / 5, abs=1e-3)
    assert now.note.startswith("The least of these rates is 0.9")


def test_sizes_are_reported_from_ten_bytes_on() -> None:
    sizes = tuple(
        records.Scenario(f"sizes-{x}", f"ab -k, {x} bytes", "--headers ab -c 50", "sizer", "bytes", x, f"/sizer/{x}B")
        for x in (10, 1000, 1_000_000)
    )
    found = ours("S0.5", (subject("kirsch"),), sizes)
    assert found[-1].title == "Now: kirsch: Size Report (5 rounds of 3.00 s, 50 client threads)"
    assert [row[0] for row in found[-1].rows] == ["bytes", "10", "1000", "1000000"], found[-1].text()
    assert found[-1].rows[0][1:] == ["Completed", "Failed", "req/sec", "msec/req", "KB/sec"]


def test_the_full_stack_is_compared_with_the_bare_server_round_by_round() -> None:
    slower = {"cherrypy": {"rate": 1000.0}, "cheroot": {"rate": 4000.0}}
    found = ours("S0.2", (subject("cherrypy"), subject("cheroot")), CLIENTS, **slower)
    assert list(found[-1].rows[0]) == ["threads", "full", "bare", "full/bare", "±"]
    assert list(found[-1].rows[1]) == ["10", "1,000", "4,000", "0.25", "0.0 %"]


def test_users_are_told_why_they_fail() -> None:
    later = records.Scenario("later-20", "0.1 s, 20 connections", "-c 20", "pages:Yielding", "connections", 20)
    serial = {"rate": 9.8, "requests": 49, "failed": 400, "errors": {"timeout": 400}}
    serial |= {"latency": {"50": 0.98, "max": 1.0}, "first_request": 0.102}
    green = {"rate": 195.0, "requests": 980, "latency": {"50": 0.102, "max": 0.13}, "first_request": 0.102}
    found = ours("S1.2", (subject("wsgiref"), subject("gevent")), (later,), wsgiref=serial, gevent=green)
    rows = {row[0]: list(row) for row in found[-1].rows[1:]}
    assert rows["wsgiref"][2:5] == ["20", "9.8", "89%"]
    assert rows["wsgiref"][-1] == "a queue: one at a time, 10 a second; fails by timeout"
    assert rows["gevent"][-1] == "no queue: 20 at a time"
    assert "makes no threads" in found[-1].note
    assert "10 a second at most" in found[-1].note


def test_abs_shownand_the_ratios_of_picowss_successor_and_ours() -> None:
    ab = records.Scenario("ab", "ab -c 100", "--headers ab --keep-alive off -c 100", "pages:hello_world")
    fixed = {
        "kirsch": {"rate": 9000.0},
        "bjoern": {"rate": 6000.0},
        "cheroot": {"rate": 2000.0},
    }
    found = ours("S2.4", tuple(map(subject, fixed)), (ab,), **fixed)
    shown, ratios = found[-2], found[-1]
    kirsch = next(row for row in shown.rows if row[0] == "kirsch")
    assert kirsch[1] == "9000.00"
    assert (kirsch[3], kirsch[4]) == ("11.111", "0.111")
    assert kirsch[6] == "132"
    assert list(ratios.rows[0]) == ["answers so many times as many as", "kirsch", "bjoern"]
    assert [list(row) for row in ratios.rows[1:]] == [
        ["kirsch", "–", "0.67 ± 0.0 %"],
        ["bjoern", "1.50 ± 0.0 %", "–"],
        ["cheroot", "4.50 ± 0.0 %", "3.00 ± 0.0 %"],
    ]


def test_interpreters_stand_beside_each_other_with_the_old_figures() -> None:
    chrome = records.Scenario("chrome", "Chrome's fields", "--headers chrome -c 40", "hello")
    subjects = (
        subject("gunicorn"),
        subject("gunicorn", PYPY),
        subject("gevent"),
        subject("gevent", PYPY),
        subject("kirsch"),
        records.Subject("cyclone", "", "cyclone", absent="for Python 2 only"),
    )
    # A server that had to take the system's interpreter changes no ratio.
    elsewhere = ours("S3.4", (*subjects, subject("cheroot", "CPython 3.11.2")), (chrome,))[-1]
    assert {row[0]: list(row) for row in elsewhere.rows}["gunicorn"][-2] != "–"
    found = ours("S3.4", subjects, (chrome,))
    now = found[-1]
    rows = {row[0]: list(row) for row in now.rows[1:]}
    assert rows["gunicorn"][1:4] == ["3700", "6900", "1.86"]
    assert float(rows["gunicorn"][-2]) == pytest.approx(2, abs=0.05)
    assert rows["gunicorn"][6] == "3"
    assert rows["gevent"][10] == "1"
    assert [at for at, name in enumerate(now.rows[0]) if name == "server CPU"] == [7, 11]
    assert rows["gevent"][11].endswith("%")  # S3.6: "none of the examples run above 120% CPU"
    assert rows["kirsch"][1:4] == ["–", "–", "–"]
    assert rows["kirsch"][-2] == "–"
    # Dead, and in the table all the same.
    assert rows["cyclone"][1:4] == ["2400", "7400", "3.08"]
    assert set(rows["cyclone"][4:]) == {"–"}


def test_gateways_are_told_with_what_they_lose() -> None:
    ab = records.Scenario("ab-10", "ab -c 10", "-c 10", "")
    losing = {"failed": 4000, "errors": {"reset": 4000}, "requests": 6000}
    found = ours("S4.1", (subject("flup"), subject("kirsch")), (ab,), flup=losing)
    rows = {row[0]: list(row) for row in found[-1].rows[1:]}
    assert rows["flup"][4] == "40.00%"
    assert rows["flup"][3] == "–"
    assert rows["kirsch"][3] == "1"


@pytest.mark.slow
def test_the_page_has_both(tmp_path: Path) -> None:
    header = surveying.header(historical=load("S3.4"))
    report.write(header, surveying.rounds(header), tmp_path)
    page = Report((tmp_path / "survey.html").read_text())
    assert "Then and now" in page.headings
    assert "S3.4: Servers under CPython and PyPy" in page.headings
    assert any(row == ["twisted.web", "2300", "8300", "3.61"] for table in page.tables for row in table)


# ------------------------------------------------------------------------------------------------------------- surveys


@pytest.mark.parametrize("path", sorted(SURVEYS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_surveys_can_be_read(path: Path) -> None:
    survey = spec.read(str(path))
    assert survey.servers
    assert survey.rounds >= results.ROUNDS_ENOUGH
    if survey.historical:
        assert historical.load(survey.historical)


def test_each_historical_table_has_a_survey() -> None:
    named = {Path(spec.read(str(path)).historical).stem for path in SURVEYS.parent.glob("*/*.toml")} - {""}
    assert named == set(NAMES)


@pytest.mark.parametrize(("name", "length"), [("simple_app", 19), ("hello_world", 13), ("Yielding", 10)])
def test_the_applications_answer_as_in_the_documents(name: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SURVEYS))
    pages = importlib.import_module("pages")

    begun: list[tuple[str, list[tuple[str, str]]]] = []
    body = b"".join(getattr(pages, name)({}, lambda status, fields: begun.append((status, fields))))
    assert len(body) == length
    assert begun[0][0] == "200 OK"
