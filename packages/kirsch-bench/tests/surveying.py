"""Surveys that were never run: seeded records for tests of what is made of them."""

from __future__ import annotations

import math
import random
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from kirsch_bench.native import Histogram
from kirsch_bench.survey.records import Header, Round, Scenario, Subject

if TYPE_CHECKING:
    from collections.abc import Sequence

CPYTHON, PYPY = "CPython 3.13.0", "PyPy 7.3.17 (3.10)"

# Processor seconds of a request, of each header field more, and of each KiB.
COSTS: dict[str, tuple[float, float, float]] = {
    "kirsch": (10e-6, 0.05e-6, 0.3e-6),
    "bjoern": (16e-6, 0.6e-6, 0.9e-6),
    "granian": (25e-6, 0.7e-6, 0.8e-6),
    "gevent": (150e-6, 4e-6, 0.8e-6),
    "gunicorn": (230e-6, 9e-6, 0.9e-6),
    "cheroot": (260e-6, 11e-6, 1.2e-6),
}

SUBJECTS = (
    Subject("null", "", "null"),
    *(
        Subject(name, CPYTHON, name, {name: "1.0"}, "1 worker, no log" if name != "cheroot" else "10 threads, no log")
        for name in COSTS
    ),
    Subject("gevent", PYPY, "gevent"),
    Subject("cyclone", "", "cyclone", absent="its last release is for Python 2 only"),
)

SCENARIOS = (
    Scenario("hello", "A small page on connections that stay", "-c 64", "hello"),
    Scenario("close", "A connection for each, a browser's fields", "-c 64 --keep-alive off --profile chrome", "hello"),
    Scenario("steady", "1,000 a second, Poisson", "--rate 1000", "hello"),
    *(Scenario(f"fields-{x}", f"{x} more fields", "-c 64", "hello", "headers", x) for x in (0, 10, 20, 30)),
    *(Scenario(f"kib-{x}", f"{x} KiB", "-c 64", "sizer", "size", x, f"/{x}") for x in (1, 10, 100)),
    *(Scenario(f"users-{x}", f"{x} connections", f"-c {x}", "hello", "connections", x) for x in (10, 20, 50)),
)

ENVIRONMENT: dict[str, Any] = {
    "kirsch": "0.1.0",
    "python": "CPython 3.13.0",
    "system": "Linux 6.1 x86_64",
    "cpu": {"model": "A processor", "count": 2, "usable": 2},
    "load_average": [0.1, 0.1, 0.1],
    "processors": {"server": [0], "generator": [1], "remark": ""},
}


def header(**changes: Any) -> Header:
    """Of a survey with everything in it."""
    values: dict[str, Any] = {
        "title": "Python servers",
        "about": "All that are alive.",
        "seed": 1,
        "rounds": 5,
        "seconds": 3.0,
        "warmup": 1.0,
        "subjects": SUBJECTS,
        "scenarios": SCENARIOS,
        "environment": ENVIRONMENT,
    }
    return Header(**{**values, **changes})


def rounds(of: Header, seed: int = 1, *, noise: float = 0.02) -> list[Round]:
    """Return simulated rounds of each server in each scenario: its cost, its own noise, and a machine that drifts."""
    chance = random.Random(seed)
    found = []
    for number in range(of.rounds):
        drift = math.exp(chance.gauss(0, 0.1))
        for scenario in of.scenarios:
            found += [
                measured(subject, scenario, number, drift * math.exp(chance.gauss(0, noise)))
                for subject in of.subjects
                if not subject.absent
            ]
    return found


def measured(subject: Subject, scenario: Scenario, number: int, slow: float = 1.0, **changes: Any) -> Round:
    """One round, in which all takes ``slow`` times as long."""
    base, header_cost, kib = COSTS.get(subject.server, (4e-6, 0.0, 0.2e-6))
    cost = base + (header_cost * scenario.x if scenario.series == "headers" else 0.0)
    cost += kib * scenario.x if scenario.series == "size" else 0.0
    cost *= slow / 2 if subject.python.startswith("PyPy") else slow
    cost += 12e-6 if scenario.name == "close" else 0.0
    rate = 1000.0 if "--rate" in scenario.load else min(0.95 / cost, 60_000 / slow)
    requests = int(rate * 3)
    median = 64 / rate if "--rate" not in scenario.load else 5 * cost
    values: dict[str, Any] = {
        "server": subject.server,
        "python": subject.python,
        "scenario": scenario.name,
        "round": number,
        "started": 1_795_000_000.0 + number,
        "rate": rate,
        "requests": requests,
        "latency": {"mean": median * 1.1, "sd": median / 3, "50": median, "75": 1.2 * median, "90": 1.5 * median,
                    "95": 1.8 * median, "99": 2.5 * median, "99.9": 5 * median, "max": 20 * median},
        "histogram": histogram(median, number),
        "user": 0.6 * cost * requests,
        "system": 0.4 * cost * requests,
        "processor": min(1.0, cost * rate),
        "rss": 30 << 20,
        "pss": int((20 + 500_000 * base) * (1 << 20)),
        "threads": 10 if subject.server == "cheroot" else 1,
        "processes": 1,
        "startup": 0.05 + 1000 * base,
        "first_request": 0.001,
        "idle": 0.001 if number == 0 else None,
        "response": {"status": 200, "head": 120, "body": 12, "fields": [["Date", "now"], ["Server", subject.server]]},
        "generator": {"used": 0.5, "bound": False, "troubles": []},
        "machine": {"busy": 0.5, "steal": 0.0},
    }  # fmt: skip
    return Round(**{**values, **changes})


def histogram(median: float, seed: int) -> str:
    """Of times that are skewed, as latencies are."""
    chance = random.Random(seed)
    found = Histogram()
    for _ in range(300):
        found.record(max(1, int(1e9 * median * chance.lognormvariate(0, 0.4))))
    return found.encode()


def without(found: Sequence[Round], server: str) -> list[Round]:
    """All but one server's."""
    return [each for each in found if each.server != server]


class Report(HTMLParser):
    """A report as a browser sees it: what it refers to, its names, headings, tables, plots, and the data in it.

    Raises AssertionError where elements are not closed in the order in which they were opened.
    """

    _VOID = frozenset({"meta", "input", "rect", "line", "path", "circle"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.ids: list[str] = []
        self.plots: list[str] = []
        self.headings: list[str] = []
        self.warnings: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.scripts: dict[str, str] = {}
        self._open: list[str] = []
        self._into: list[str] | None = None
        self._script = ""
        self.feed(text)
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data")]
        if named.get("id"):
            self.ids.append(named["id"] or "")
        if tag not in self._VOID:
            self._open.append(tag)
        if tag == "svg":
            assert named.get("role") == "img"
            self.plots.append(named.get("aria-label") or "")
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._begin(self.tables[-1][-1])
        elif tag in ("h1", "h2", "h3"):
            self._begin(self.headings)
        elif tag == "p" and named.get("class") == "warning":
            self._begin(self.warnings)
        elif tag == "script":
            self._script = named.get("id") or "program"
            self.scripts[self._script] = ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self._VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> of nothing"
        assert self._open.pop() == tag, f"</{tag}> where another is open"
        if tag in ("td", "th", "h1", "h2", "h3", "p"):
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts[self._script] += data
        elif self._into is not None:
            self._into[-1] += data

    def _begin(self, texts: list[str]) -> None:
        texts.append("")
        self._into = texts
