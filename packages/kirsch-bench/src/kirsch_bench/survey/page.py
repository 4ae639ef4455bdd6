"""A survey as one page of HTML that needs nothing else."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from kirsch_bench import page as bench_page
from kirsch_bench import plots
from kirsch_bench.native import Histogram
from kirsch_bench.plots import Bar, Line
from kirsch_bench.show import plural, show_seconds
from kirsch_bench.survey import historical, tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kirsch_bench.survey.records import Scenario
    from kirsch_bench.survey.results import Cell, Results, Scene, Sweep
    from kirsch_bench.survey.tables import Table

_LINES_MAX = 16
"""In one plot; more cannot be told apart, and the table has them."""

_STYLE = """<style>
body { max-width: 68rem; }
h3 { font-size: .95rem; margin: 1.5rem 0 .3rem; }
p.note { color: var(--faint); font-size: .85rem; margin: .3rem 0 1rem; }
nav a { margin-right: .9rem; white-space: nowrap; } a { color: var(--s0); }
label input { font: inherit; width: 6rem; margin: 0 .3rem; } td.words { min-width: 16rem; }
</style>"""

_METHOD = """
Servers take turns: in each round each server is started afresh, in an order that is shuffled anew, and measured once in
each scenario. A figure is the geometric mean over the rounds. ± is half of its 95 % interval; it contains what made all
servers faster or slower together, so two figures may overlap and yet be told apart: they are compared round by round.
Two are called different where Student's t of the rounds' ratios says so, such that of all such calls in a table at most
5 in 100 are chance (Benjamini and Hochberg), and where it is one per cent at least. A rank of 2–4 says that one is
better beyond doubt and that the others cannot be told apart. Processor time is user and system time of all of a
server's processes, for each request. ≥ marks rates above 80 % of the null server's, a bare loop
that answers without looking.
"""

_SHARE_INPUT = """<p>If one worker of your application, together with its server, answers
<label><input id="share-rate" type="number" min="1" step="any" value="500" inputmode="decimal">
requests a second</label>, the server is this share of what it does:</p>"""

_SHARE_HEAD = "<tr><th scope='col'></th><th scope='col'>share</th></tr>"

_SHARE_SCRIPT = """
(() => {
  const input = document.getElementById("share-rate");
  const show = () => {
    const rate = Number(input.value);
    for (const cell of document.querySelectorAll("[data-cost]")) {
      const share = rate * Number(cell.dataset.cost);
      cell.textContent = !(rate > 0) ? "–" : share >= 1 ? "all" : (100 * share).toFixed(share >= 0.0995 ? 0 : 1) + "%";
    }
  };
  input.addEventListener("input", show);
  show();
})();
"""


def write(results: Results, document: dict[str, Any]) -> str:
    """Return the page; ``document`` are the data that it carries."""
    sections = [
        ("overview", "At a glance", _tables([tables.overview(results)])),
        *(
            (f"scenario-{scene.scenario.name}", scene.scenario.title, _scene(results, scene))
            for scene in results.scenes
            if scene.cells and not scene.scenario.series
        ),
        *((f"sweep-{sweep.base}", tables.sweep_title(sweep), _sweep(results, sweep)) for sweep in results.sweeps),
        ("costs", "What one more costs", _tables([tables.costs(results)], titled=False)),
        ("needs", "What it needs", _tables([tables.needs(results)], titled=False)),
        ("answers", "What it answers with", _tables([tables.answers(results)], titled=False)),
        ("share", "What it matters to your application", _share(results)),
        ("historical", "Then and now", _historical(results)),
        ("errors", "Requests that failed", _tables([tables.errors(results)], titled=False)),
        ("failures", "Rounds without figures", _tables([tables.failures(results)], titled=False)),
        ("absent", "What could not run", _tables([tables.absent(results)], titled=False)),
        ("method", "How to read this", [f"<p>{escape(_METHOD.strip())}</p>"]),
    ]
    filled = [(name, title, parts) for name, title, parts in sections if parts]
    parts = [
        _STYLE,
        *(f'<p class="warning">{escape(warning)}</p>' for warning in results.warnings),
        "<nav aria-label='Sections'>",
        *(f'<a href="#{escape(name)}">{escape(title)}</a>' for name, title, _ in filled),
        "</nav>",
    ]
    for name, title, section in filled:
        parts += [f'<section aria-labelledby="{escape(name)}"><h2 id="{escape(name)}">{escape(title)}</h2>']
        parts += [*section, "</section>"]
    header = results.header
    measured = len(results.styles)
    what = (
        f"{header.about} {plural(measured, 'server')}, {plural(len(header.scenarios), 'scenario')}, "
        f"{plural(results.rounds, 'round')} of {show_seconds(header.seconds)} after {show_seconds(header.warmup)} to "
        f"warm up, seed {header.seed}"
    )
    return bench_page.document_page(header.title, what.strip(), parts, document)


def _tables(found: Iterable[Table | None], *, titled: bool = True) -> list[str]:
    parts = []
    for each in found:
        if each is not None:
            parts += [f"<h3>{escape(each.title)}</h3>"] if titled else []
            parts += [bench_page.table(each.rows, left=each.left, words=each.words)] if each.rows else []
            parts += [f'<p class="note">{escape(each.note)}</p>'] if each.note else []
    return parts


def _scene(results: Results, scene: Scene) -> list[str]:
    parts = [f'<p class="note">{escape(_request_text(scene.scenario))}</p>']
    if not scene.is_open:
        parts += _rate_bars(results, scene)
    parts += _processor_bars(results, scene)
    spectrum = _spectrum(results, scene)
    parts += [bench_page.plot(spectrum)] if spectrum else []
    return parts + _tables([tables.scene(scene)], titled=False)


def _request_text(scenario: Scenario) -> str:
    return f"kirsch bench {scenario.load} {scenario.path}; application: {scenario.application}"


def _rate_bars(results: Results, scene: Scene) -> list[str]:
    rows = [
        Bar(
            cell.label,
            cell.rate.value,
            f"{'≥ ' if cell.bound else ''}{cell.rate.value:,.0f}{_rank_text(cell.rate_rank)}",
            cell.rate.interval,
            results.styles[cell.key],
        )
        for cell in scene.measured
        if cell.rate
    ]
    limit = (scene.ceiling.value, "null server") if scene.ceiling else None
    highest = max([_top(bar) for bar in rows] + ([limit[0]] if limit and _near(limit[0], rows) else []), default=0.0)
    axis = plots.linear(highest, "requests a second; more is better", lambda value: f"{value:,.0f}")
    return (
        [bench_page.plot(plots.bars(f"Requests a second: {scene.scenario.title}", rows, axis, limit=limit))]
        if rows
        else []
    )


def _near(limit: float, rows: Sequence[Bar]) -> bool:
    """Return whether a limit is shown: far beyond all bars it would only make these short."""
    return limit < 2 * max((bar.value for bar in rows), default=0.0)


def _top(bar: Bar) -> float:
    """Return the end of the bar's whisker; a very long one is cut off."""
    return min(bar.interval[1], 1.5 * bar.value) if bar.interval else bar.value


def _processor_bars(results: Results, scene: Scene) -> list[str]:
    cells = [cell for cell in scene.measured if cell.processor]
    cells.sort(key=lambda cell: cell.processor.value if cell.processor else 0.0)
    rows = [
        Bar(
            cell.label,
            cell.processor.value * 1e6,
            f"{cell.processor.value * 1e6:,.1f} us{_rank_text(cell.processor_rank)}",
            tuple_of(cell.processor.interval, 1e6),
            results.styles[cell.key],
            part=cell.processor.value * 1e6 * cell.user,
        )
        for cell in cells
        if cell.processor
    ]
    if not rows:
        return []
    axis = plots.linear(
        max(map(_top, rows)), "us of processor time for a request: the program's, and faint the system's", _number
    )
    return [bench_page.plot(plots.bars(f"Processor time for a request: {scene.scenario.title}", rows, axis))]


def _number(value: float) -> str:
    return f"{value:,.10g}"


def tuple_of(interval: tuple[float, float] | None, times: float) -> tuple[float, float] | None:
    """Return the interval in another unit."""
    return None if interval is None else (interval[0] * times, interval[1] * times)


def _rank_text(rank: Any) -> str:
    return f" ({rank.text})" if rank else ""


def _spectrum(results: Results, scene: Scene) -> str:
    """Latencies by the share of requests that took at most so long: all rounds together."""
    lines = []
    for cell in scene.measured[:_LINES_MAX]:
        histogram = Histogram()
        for each in cell.rounds:
            if each.histogram:
                histogram.merge(Histogram(each.histogram))
        if len(histogram):
            lines.append(Line(cell.label, bench_page.spectrum_points(histogram), results.styles[cell.key]))
    if not lines:
        return ""
    values = [value for line in lines for _, value in line.points if value is not None]
    x = plots.quantiles(max(at for line in lines for at, _ in line.points))
    y = plots.logarithmic(min(values), max(values), "latency", bench_page.tick)
    return plots.draw(
        f"Latency by the share of requests that took at most so long: {scene.scenario.title}", x, y, lines
    )


def _sweep(results: Results, sweep: Sweep) -> list[str]:
    requested = sweep.scenes[0].scenario
    parts = [f'<p class="note">{escape(_request_text(requested))}</p>']
    x = _x_axis([scene.scenario.x for scene in sweep.scenes], sweep.units)
    named = f"{sweep.title}: " if sweep.title else ""
    for title, pick in (("Processor time for a request, in us", _processor), ("Requests a second", _rate)):
        lines = _along(results, sweep.scenes, pick)
        highest = max((value or 0.0 for line in lines for _, value in line.points), default=0.0)
        if highest:
            y = plots.linear(highest, "us" if pick is _processor else "a second", _number)
            parts.append(bench_page.plot(plots.draw(f"{named}{title}, by {sweep.units}", x, y, lines)))
    return parts + _tables(tables.sweep(sweep, results.labels))


def _x_axis(xs: Sequence[float], name: str) -> plots.Axis:
    """A tick at each place; logarithmic, where the last would leave the others no room."""
    low, high = min(xs), max(xs)
    if low > 0 and high / low > 50:
        return plots.Axis(
            low, high, tuple((x, f"{x:,.0f}" if x == int(x) else f"{x:g}") for x in xs), name, logarithmic=True
        )
    low = 0.0 if low < high / 4 else low
    return plots.Axis(
        low, high if high > low else low + 1, tuple((x, f"{x:,.0f}" if x == int(x) else f"{x:g}") for x in xs), name
    )


def _processor(cell: Cell) -> tuple[float, tuple[float, float] | None] | None:
    if cell.processor is None:
        return None
    return cell.processor.value * 1e6, tuple_of(cell.processor.interval, 1e6)


def _rate(cell: Cell) -> tuple[float, tuple[float, float] | None] | None:
    return None if cell.rate is None else (cell.rate.value, cell.rate.interval)


def _along(results: Results, scenes: Sequence[Scene], pick: Any) -> list[Line]:
    lines = []
    keys = list(dict.fromkeys(cell.key for scene in scenes for cell in scene.measured))
    for key in keys[:_LINES_MAX]:
        points: list[tuple[float, float | None]] = []
        intervals: list[tuple[float, float] | None] = []
        for scene in scenes:
            picked = next((pick(cell) for cell in scene.measured if cell.key == key), None)
            points.append((scene.scenario.x, picked[0] if picked else None))
            intervals.append(picked[1] if picked else None)
        lines.append(Line(results.labels[key], points, results.styles[key], intervals))
    return lines


def _share(results: Results) -> list[str]:
    found = tables.share_cells(results)
    table = tables.share(results)
    if found is None or table is None:
        return []
    rows = "".join(
        f"<tr><td>{escape(cell.label)}</td><td data-cost='{cell.processor.value!r}'></td></tr>"
        for cell in found[1]
        if cell.processor
    )
    return [
        _SHARE_INPUT,
        f"<div class='scroll' aria-live='polite'><table>{_SHARE_HEAD}{rows}</table></div>",
        *_tables([table]),
        f"<script>{_SHARE_SCRIPT}</script>",
    ]


def _historical(results: Results) -> list[str]:
    return _tables(historical.tables(results)) if results.header.historical is not None else []
