"""The page of benchmarks: plots of the processor time of a request, with error bars, from docs/survey."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from docs_site.sources import DOCS, ROOT

sys.path[:0] = [str(ROOT / "packages" / name / "src") for name in ("kirsch", "kirsch-bench")]

HEAD = """\
# Benchmarks

What does a request cost on Kirsch, and what on others? Each plot shows the processor time of one request, of all
processes of the server together. A short bar is good. The whisker is the interval in which the true value lies with
95 % confidence: two bars whose whiskers overlap may be equal. Kirsch's bars are blue.

[Surveys](survey.md) describes how these figures were measured, and how to measure them on your machine. [The cost of a
request](project/benchmarking.md) has the figures of the bare server, and those that Kirsch is held to. Measure your own
application before you choose: where it takes milliseconds, the server does not matter.
"""

CHOSEN = (
    ("picows", "Servers for WSGI", 0, "A small page of 13 bytes; a connection for each request."),
    ("cpython-pypy", "CPython and PyPy", 1, "Servers on both interpreters."),
    (
        "frameworks",
        "Frameworks",
        4,
        "WSGI frameworks behind Kirsch with ten threads, ASGI frameworks on uvicorn; `bare` is without a framework.",
    ),
    (
        "gateways-fronts",
        "Behind web servers",
        1,
        "The web server's time is included. A name is the application's server, its protocol, and the web server.",
    ),
)
"""The surveys that are shown, each with its heading, how many scenarios are shown (0: all), and a sentence."""

_UNITS = {"ns": 0.001, "us": 1.0, "ms": 1000.0, "s": 1_000_000.0}
_ROW = re.compile(r"^  (\S.*?) {2,}(?:≥ )?[\d,.]+ +[\d.]+ % +[\d–]+ +([\d.,]+) (us|ms|ns|s) +([\d.]+) % +[\d–]+ ", re.M)


@dataclass(frozen=True)
class Cost:
    """The processor time of a request on one server, in microseconds, and the ends of its interval."""

    server: str
    micros: float
    low: float
    high: float


@dataclass(frozen=True)
class Survey:
    """A report: when and how it was measured, and for each scenario the costs of the servers, the least first."""

    measured: str
    scenarios: dict[str, list[Cost]]


def read(name: str) -> Survey:
    """Return the survey of this name from its report."""
    text = (DOCS / "survey" / name / "survey.txt").read_text(encoding="utf-8")
    found = {}
    for block in text.split("\n\n"):
        title, _, rows = block.partition("\n")
        if re.match(r" +requests/s .*processor/request", rows):
            costs = [_cost(*row) for row in _ROW.findall(rows)]
            found[title] = sorted(costs, key=lambda cost: cost.micros)
    return Survey(text.splitlines()[2], found)


def _cost(server: str, value: str, unit: str, percent: str) -> Cost:
    micros = float(value.replace(",", "")) * _UNITS[unit]
    share = float(percent) / 100
    return Cost(server, micros, micros * max(0.0, 1 - share), micros * (1 + share))


def page() -> str:
    """Return the page: for each chosen survey a section with its plots."""
    lines = [HEAD]
    for name, heading, count, sentence in CHOSEN:
        survey = read(name)
        lines += [f"## {heading}", "", sentence, ""]
        for title in list(survey.scenarios)[: count or None]:
            lines += [f"### {title[0].upper()}{title[1:]}", "", _plot(title, survey.scenarios[title]), ""]
        lines += [f"*{survey.measured}. [All figures](survey/{name}/survey.txt).*", ""]
    return "\n".join(lines)


def _plot(title: str, costs: list[Cost]) -> str:
    from kirsch_bench import plots

    # One interval that is many times the others would leave them no room: it is cut at the end of the axis.
    high = min(max(cost.high for cost in costs), 1.3 * max(cost.micros for cost in costs))
    axis = plots.linear(high, "processor time of a request", lambda value: f"{value:,.0f} µs")
    bars = [
        plots.Bar(
            cost.server,
            cost.micros,
            f"{cost.micros:,.3g} µs" if cost.micros < 1000 else f"{cost.micros:,.0f} µs",
            (cost.low, cost.high),
            0 if cost.server.startswith("kirsch") else 2,
        )
        for cost in costs
    ]
    drawn = plots.bars(title, bars, axis)
    return f"<figure>\n{drawn}\n</figure>"


def style() -> str:
    """Return the style sheet of the plots, with the colours of the site's two schemes."""
    from kirsch_bench import plots

    sheet = re.sub(r"^@media.*\n", "", plots.STYLE, flags=re.M)
    colours = [" ".join(f"--s{at}: {pair[scheme]};" for at, pair in enumerate(plots.COLOURS)) for scheme in (0, 1)]
    return (
        f"{sheet}\n[data-md-color-scheme] {{ {colours[0]} --faint: var(--md-default-fg-color--light); "
        "--text: var(--md-default-fg-color); --line: var(--md-default-fg-color--lightest); --bad: #c62828; }\n"
        f'[data-md-color-scheme="slate"] {{ {colours[1]} }}\n'
        ".md-typeset figure { width: 100%; margin: 0.5em 0; overflow-x: auto; }\n"
        "svg.plot { min-width: 34rem; }\n"
    )
