"""The report as one self-contained HTML page: figures, plots, tables, and all the data."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from kirsch.profile import page as base
from kirsch_bench import plots, summary
from kirsch_bench.plots import Line
from kirsch_bench.results import PERCENTILES
from kirsch_bench.show import show_seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kirsch_bench.native import Histogram
    from kirsch_bench.results import Result, Times
    from kirsch_bench.slo import Found

_SPECTRUM_STEPS = 20


def write(result: Result, document: dict[str, Any], search: Found | None = None) -> str:
    """Return the page of a result; ``search`` is the search of ``--slo`` that found it."""
    load = result.load
    failed = result.failed + result.dropped
    tiles = [
        ("requests a second", f"{result.rate:,.0f}"),
        ("requests", f"{result.requests:,}"),
        ("failed", f"{failed:,}"),
        *((f"p{percent:g}", show_seconds(result.latency.percentile(percent))) for percent in (50.0, 99.0, 99.9)),
        ("longest", show_seconds(result.latency.max)),
    ]
    parts = [*_warnings(result), '<div class="tiles">', *(_tile(name, value) for name, value in tiles), "</div>"]
    if search is not None:
        parts += _search(search)
    if result.latency.count:
        parts += ["<h2>How long it took</h2>", plot(_spectrum(result)), latency_table(result)]
    if result.series:
        parts += ["<h2>While it ran</h2>", plot(_rates(result)), plot(_latencies(result))]
    for title, rows in (("Stages", summary.stage_rows(result)), ("Hosts", summary.host_rows(result))):
        if len(rows) > 1:
            parts += [f"<h2>{title}</h2>", wide_table(rows)]
    parts += _left_out(result)
    parts += _thresholds(result)
    parts += _errors(result)
    seconds = f"{result.seconds:.2f} s measured, begun {_when(result.started)}"
    return document_page(f"{load.target.url}", f"{summary.describe(load)}; {seconds}", parts, document)


def document_page(title: str, what: str, parts: Sequence[str], document: dict[str, Any]) -> str:
    """Return a page with ``parts``, followed by the environment and the data."""
    environment = [
        (name, value if isinstance(value, str) else json.dumps(value))
        for name, value in document["environment"].items()
    ]
    rows = [f"<tr><td>{escape(name)}</td><td class='words'>{escape(value)}</td></tr>" for name, value in environment]
    # In a script element only `</` and `<!--` are special (HTML, section 4.12.1.3).
    data = json.dumps(document, ensure_ascii=False).replace("<", "\\u003c")
    return frame(
        title,
        what,
        [
            *parts,
            f"<h2>Where</h2><div class='scroll'><table>{''.join(rows)}</table></div>",
            "<p class='what'>All figures are in this page too, as JSON: the script with the id <code>data</code>.</p>",
            f'<script type="application/json" id="data">{data}</script>',
        ],
    )


def frame(title: str, what: str, parts: Sequence[str]) -> str:
    """Return a page with ``parts`` only."""
    return base.frame(title, what, parts, style=plots.STYLE)


def table(rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,), words: Collection[int] = ()) -> str:
    """Return a table of text whose first row is the header. ``left`` are left-aligned columns, ``words`` are columns
    whose text may wrap."""
    styles = ["words" if column in words else "left" if column in left else "" for column in range(len(rows[0]))]
    given = [f" class='{style}'" if style else "" for style in styles]
    head, *body = rows
    lines = ["".join(f"<th scope='col'{style}>{escape(cell)}</th>" for cell, style in zip(head, given, strict=True))]
    lines += [
        "".join(f"<td{style}>{escape(cell)}</td>" for cell, style in zip(row, given, strict=True)) for row in body
    ]
    return "<div class='scroll'><table>" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "</table></div>"


def wide_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table of many columns; in a narrow window it is transposed."""
    turned = [list(column) for column in zip(*rows, strict=True)]
    return f"<div class='wide'>{table(rows)}</div><div class='narrow'>{table(turned)}</div>"


def plot(drawing: str) -> str:
    """A drawing. A narrow window scrolls it, since scaled down it could not be read; a keyboard scrolls what has the
    focus."""
    return f'<div class="plotted" tabindex="0">{drawing}</div>' if drawing else ""


def latency_table(result: Result) -> str:
    """Return a table with the percentiles of all kinds of times."""
    rows = [["", *(f"p{percent:g}" for percent in PERCENTILES), "max", "mean", "sd", "count"]]
    for name in ("latency", "service", "first_byte", "connect", "failed_latency"):
        times: Times = getattr(result, name)
        if times.count:
            rows.append(
                [
                    name.replace("_", " "),
                    *(show_seconds(times.percentile(percent)) for percent in PERCENTILES),
                    *map(show_seconds, (times.max, times.mean, times.sd)),
                    f"{times.count:,}",
                ]
            )
    return wide_table(rows)


def _tile(name: str, value: str) -> str:
    return f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'


def _warnings(result: Result) -> list[str]:
    return [f'<p class="warning">{escape(warning)}</p>' for warning in summary.warnings(result)]


def _spectrum(result: Result) -> str:
    shown = [("latency", result.latency)]
    if result.rate_asked is not None:
        shown.append(("service time", result.service))
    lines = [Line(name, spectrum_points(times.histogram)) for name, times in shown if times.count]
    highest = max(value for line in lines for _, value in line.points if value is not None)
    lowest = min(value for line in lines for _, value in line.points if value is not None)
    x = plots.quantiles(max(at for line in lines for at, _ in line.points))
    y = plots.logarithmic(max(lowest, 1e-6), max(highest, 2e-6), "latency", tick)
    return plots.draw("Latency by the share of requests that took at most so long", x, y, lines)


def spectrum_points(histogram: Histogram) -> list[tuple[float, float | None]]:
    """Return points (1 / (1 - share), seconds). For share 1, the last request is put at one in all."""
    points: list[tuple[float, float | None]] = []
    count = len(histogram)
    for value, _, share in histogram.spectrum(_SPECTRUM_STEPS):
        at = min(1 / (1 - share), count) if share < 1 else float(max(count, 1))
        points.append((at, max(value / 1e9, 1e-6)))
    return points


def _rates(result: Result) -> str:
    series = result.series
    ends = series[-1].at + series[-1].seconds
    highest = max(each.rate for each in series)
    rate = Line(
        "answered a second", [(each.at + each.seconds / 2, each.rate) for each in series if _whole(each, series)]
    )
    bad = [
        (each.at, each.at + each.seconds, (each.failed + each.dropped) / each.seconds)
        for each in series
        if each.seconds and each.failed + each.dropped
    ]
    lines = [rate]
    curve = result.load.curve
    if curve is not None and (result.load.stages or result.load.replay):
        asked = [(each.at + each.seconds / 2, curve.mean(each.at, each.seconds)) for each in series]
        lines.append(Line("asked for", [(at, value) for at, value in asked if at < curve.seconds]))
        highest = max(highest, *(value for _, value in asked))
    highest = max([highest, *(height for *_, height in bad)])
    return plots.draw(
        "Requests answered a second, over time",
        plots.linear(ends, "seconds", lambda value: f"{value:g}", to_tick=False),
        plots.linear(highest, "a second", lambda value: f"{value:,.0f}" if highest >= 10 else f"{value:g}"),
        lines,
        band=(0.0, result.window_from) if result.window_from > 0 else None,
        bars=bad,
        bars_name="failed or dropped",
    )


def _latencies(result: Result) -> str:
    series = [each for each in result.series if each.latency is not None]
    if not series:
        return ""
    middle = [each.at + each.seconds / 2 for each in series]
    lines = [
        Line(name, list(zip(middle, (each.percentile(percent) for each in series), strict=True)))
        for name, percent in (("p50", 50.0), ("p99", 99.0), ("longest", 100.0))
    ]
    values = [value for line in lines for _, value in line.points if value is not None]
    last = result.series[-1]
    return plots.draw(
        "Latency over time",
        plots.linear(last.at + last.seconds, "seconds", lambda value: f"{value:g}", to_tick=False),
        plots.logarithmic(max(min(values), 1e-6), max(*values, 2e-6), "latency", tick),
        lines,
        band=(0.0, result.window_from) if result.window_from > 0 else None,
    )


def _whole(interval: Any, series: Sequence[Any]) -> bool:
    """Return whether an interval has half the length of the first: a shorter one at the end would look like a drop."""
    return bool(interval.seconds >= 0.5 * series[0].seconds)


def _errors(result: Result) -> list[str]:
    if not (result.errors or result.troubles):
        return []
    rows = [["what", "count", "first at", "example"]]
    rows += [
        [f"{each['class']} {each['detail']}".strip(), f"{each['count']:,}", f"{each['at']:.2f} s", each["example"]]
        for each in result.errors
    ]
    return [
        "<h2 class='bad'>What went wrong</h2>",
        table(rows),
        *(f"<p>{escape(each)}</p>" for each in result.troubles),
    ]


def _left_out(result: Result) -> list[str]:
    replay = result.load.replay
    if replay is None or not replay.left_out:
        return []
    rows = [["requests of the record", "count"], *([reason, f"{count:,}"] for reason, count in replay.left_out)]
    return ["<h2>Left out</h2>", table(rows)]


def _thresholds(result: Result) -> list[str]:
    if not result.thresholds:
        return []
    rows = [["condition", "", "figure"]]
    rows += [
        [each.threshold.condition.text, "crossed" if each.is_crossed else "ok", each.text] for each in result.thresholds
    ]
    return ["<h2>Thresholds</h2>", table(rows, left=(0, 1, 2))]


def _search(found: Found) -> list[str]:
    rows = [["requests a second", "p50", "p99", "longest", "answered a second", "", ""]]
    for step in found.steps:
        latency = step.result.latency
        times = [show_seconds(each) for each in (latency.percentile(50), latency.percentile(99), latency.max)]
        verdict = {True: "holds", False: "broken", None: "says nothing"}[step.kept]
        rows.append([f"{step.rate:,.1f}", *times, f"{step.result.rate:,.1f}", verdict, ", ".join(step.wrong)])
    return ["<h2>The search</h2>", table(rows)]


def tick(seconds: float) -> str:
    """Format a power of ten seconds for an axis."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size * 0.999:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e6:g} us"


def _when(started: float) -> str:
    import datetime

    return datetime.datetime.fromtimestamp(started, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
