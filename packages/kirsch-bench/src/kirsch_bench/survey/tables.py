"""The tables of a survey, which text and page share: rows of words."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kirsch_bench.show import plural, show_bytes, show_columns, show_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kirsch_bench.survey.results import Cell, Key, Results, Scene, Sweep
    from kirsch_bench.survey.statistics import Figure, Rank

RATES = (10, 50, 100, 200, 500, 1000, 2000, 5000)
"""Rates of an application by itself, in requests a second of one worker, for which the server's share is shown."""

ABSENT = "–"

_WIDTH = 120
"""Of what is said below a table on a terminal."""


@dataclass(frozen=True)
class Table:
    """``rows`` begin with the head, or are none at all; ``left`` are columns of names, ``words`` those of text that
    may be long."""

    title: str
    rows: Sequence[Sequence[str]]
    note: str = ""
    left: tuple[int, ...] = (0,)
    words: tuple[int, ...] = ()

    def text(self) -> str:
        """For a terminal."""
        parts = [self.title]
        if self.rows:
            parts.append(show_columns(self.rows, left=(*self.left, *self.words), indent="  "))
        parts += [wrap(self.note)] if self.note else []
        return "\n".join(parts)


def wrap(text: str, *, hanging: bool = False) -> str:
    """Lines for a terminal, with a margin; ``hanging``: a wider one from the second on."""
    return textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="    " if hanging else "  ")


def overview(results: Results) -> Table | None:
    """Processor time for each request as a multiple of the least; None for less than two servers."""
    scenes = [scene for scene in results.scenes if not scene.scenario.series and scene.measured]
    keys = list(dict.fromkeys(cell.key for scene in scenes for cell in scene.measured))
    if not scenes or len(keys) < 2:
        return None
    multiples: dict[tuple[object, str], float] = {}
    ranks: dict[tuple[object, str], Rank[tuple[str, str]] | None] = {}
    for scene in scenes:
        costs = {cell.key: cell.processor.value for cell in scene.measured if cell.processor and cell.processor_rank}
        least = min(costs.values(), default=0.0)
        for cell in scene.measured:
            if cell.key in costs:
                multiples[cell.key, scene.scenario.name] = costs[cell.key] / least
                ranks[cell.key, scene.scenario.name] = cell.processor_rank

    def overall(key: object) -> float:
        values = [multiples[key, scene.scenario.name] for scene in scenes if (key, scene.scenario.name) in multiples]
        if not values:
            return math.inf
        return math.exp(math.fsum(map(math.log, values)) / len(values))

    def cell_text(key: object, name: str) -> str:
        rank = ranks.get((key, name))
        return f"{multiples[key, name]:.2f} ({rank.text})" if rank else ABSENT

    rows = [["", *(scene.scenario.name for scene in scenes)]]
    rows += [
        [results.labels[key], *(cell_text(key, scene.scenario.name) for scene in scenes)]
        for key in sorted(keys, key=overall)
    ]
    return Table(
        "Processor time for a request, as a multiple of the least (and ranks)",
        rows,
        note="Ranks such as 2–4: one is better beyond doubt, and the others up to the fourth cannot be told apart.",
    )


def scene(of: Scene) -> Table:
    """All of one scenario."""
    rows = [
        [
            "", "requests/s", "±", "rank", "processor/request", "±", "rank", "user", "server CPU",
            "p50", "p90", "p99", "p99.9", "max", "failed",
        ]
    ]  # fmt: skip
    rows += [_row(cell, is_open=of.is_open) for cell in of.cells]
    note = []
    if any(cell.front for cell in of.cells):
        # Beside the sum of both.
        rows[0][7:7] = ["front", "application"]
        for row, cell in zip(rows[1:], of.cells, strict=True):
            row[7:7] = _front_and_application(cell)
        note.append("Of the processor time, what the web server in front took, and the rest.")
    if of.ceiling is not None:
        note.append(f"The null server answered {of.ceiling.value:,.0f} a second.")
    if any(cell.bound for cell in of.measured) and not of.is_open:
        note.append("≥: the generator may have been the limit.")
    return Table(of.scenario.title, rows, note=" ".join(note))


def _row(cell: Cell, *, is_open: bool) -> list[str]:
    if cell.rate is None:
        return [cell.label, *[ABSENT] * 13, _rounds(cell)]
    bound = "≥ " if cell.bound and not is_open else ""
    return [
        cell.label,
        f"{bound}{cell.rate.value:,.0f}" if cell.rate.value >= 100 else f"{bound}{cell.rate.value:,.1f}",
        spread(cell.rate),
        cell.rate_rank.text if cell.rate_rank else ABSENT,
        _seconds(cell.processor),
        spread(cell.processor),
        cell.processor_rank.text if cell.processor_rank else ABSENT,
        f"{cell.user:.0%}" if cell.processor else ABSENT,
        used(cell),
        *(
            show_seconds(cell.latency[name].value) if name in cell.latency else ABSENT
            for name in ("50", "90", "99", "99.9", "max")
        ),
        ", ".join(
            [_share(cell.failed_share) if cell.failed_share else "0", *([_rounds(cell)] if cell.failures else [])]
        ),
    ]


def _front_and_application(cell: Cell) -> list[str]:
    if cell.front is None or cell.processor is None:
        return [ABSENT, _seconds(cell.processor)]
    return [show_seconds(cell.front.value), show_seconds(max(0.0, cell.processor.value - cell.front.value))]


def _seconds(figure: Figure | None) -> str:
    return show_seconds(figure.value) if figure is not None else ABSENT


def _rounds(cell: Cell) -> str:
    return plural(sum(cell.failures.values()), "round") + " without figures"


def _share(share: float) -> str:
    return f"{share:.2%}" if share < 0.1 else f"{share:.0%}"


def used(cell: Cell) -> str:
    """How much of a processor the server used; more than 100 % is more than one processor."""
    return f"{cell.used.value:.0%}" if cell.used is not None else ABSENT


def spread(figure: Figure | None) -> str:
    """Half the interval's width, as a share."""
    relative = figure.relative if figure is not None else None
    if relative is None:
        return ABSENT
    return f"{100 * relative:.1f} %" if relative < 0.1 else f"{100 * relative:.0f} %" if relative < 10 else "> 1000 %"


def sweep_title(of: Sweep) -> str:
    """Return the heading of a sweep."""
    return f"{of.title}, by {of.unit}" if of.title else f"By {of.unit}"


def sweep(of: Sweep, labels: Mapping[Key, str]) -> list[Table]:
    """Processor time, rates and the server's use of processors along a series."""
    scenes = of.scenes
    keys = list(dict.fromkeys(cell.key for each in scenes for cell in each.measured))
    cells = {(cell.key, each.scenario.name): cell for each in scenes for cell in each.measured}
    head = ["", *(each.scenario.number for each in scenes)]

    def along(title: str, show: Callable[[Cell], str]) -> Table:
        rows = [head]
        for key in keys:
            found = [cells.get((key, each.scenario.name)) for each in scenes]
            rows.append([labels[key], *(show(cell) if cell else ABSENT for cell in found)])
        return Table(f"{of.title}{': ' if of.title else ''}{title}, by {of.units}", rows)

    return [
        along(
            "Processor time for a request",
            lambda each: show_seconds(each.processor.value) if each.processor else ABSENT,
        ),
        along("Requests a second", lambda cell: f"{cell.rate.value:,.0f}" if cell.rate else ABSENT),
        along("Server CPU", used),
    ]


def costs(results: Results) -> Table | None:
    """Return the table of the cost of one more header field, or one more KiB."""
    if not results.costs:
        return None
    many = len({cost.sweep.base for cost in results.costs}) > len({cost.sweep.series for cost in results.costs})
    rows = [["", "for each", "costs", "from", "to", "and without any"]]
    for cost in results.costs:
        low, high = cost.each.interval or (None, None)
        rows.append(
            [
                cost.label,
                cost.sweep.unit + (f", {cost.sweep.title}" if many else ""),
                signed_seconds(cost.each.value),
                ABSENT if low is None else signed_seconds(low),
                ABSENT if high is None else signed_seconds(high),
                signed_seconds(cost.none),
            ]
        )
    return Table(
        "What one more costs", rows, note="Processor time: the slope of a line through all sizes.", left=(0, 1)
    )


def signed_seconds(seconds: float) -> str:
    """Slopes may be below nothing, and are nanoseconds."""
    sign = "-" if seconds < 0 else ""
    seconds = abs(seconds)
    return f"{sign}{seconds * 1e9:.0f} ns" if seconds < 0.9995e-6 else sign + show_seconds(seconds)


def needs(results: Results) -> Table | None:
    """Memory, threads, start-up, and what it uses without requests."""
    if not results.needs:
        return None
    rows = [["", "memory", "at most", "processes", "threads", "start", "first answer", "idle"]]
    rows += [
        [
            each.label,
            show_bytes(each.memory) if each.memory else ABSENT,
            show_bytes(each.memory_most) if each.memory_most else ABSENT,
            str(each.processes or ABSENT),
            str(each.threads or ABSENT),
            _seconds(each.startup),
            _seconds(each.first_request),
            f"{each.idle.value:.2%}" if each.idle is not None else ABSENT,
        ]
        for each in results.needs
    ]
    return Table(
        "What it needs",
        rows,
        note="Memory: the median over all scenarios, shared pages counted by their share. Idle: of one processor.",
    )


def answers(results: Results) -> Table | None:
    """Return the table of each server's answer and of how the server was started."""
    if not results.answers:
        return None
    rows = [["", "status", "head", "body", "fields", "started with"]]
    rows += [
        [
            each.label,
            str(each.status),
            f"{each.head:,} B",
            f"{each.body:,} B",
            ", ".join(each.fields) or ABSENT,
            each.options or ABSENT,
        ]
        for each in results.answers
    ]
    return Table(
        "What it answers with: a server that sends less has less to do", rows, left=(0,), words=(4, 5),
        note=f"To: {results.answers[0].scenario}.",
    )  # fmt: skip


def share_cells(results: Results) -> tuple[Scene, list[Cell]] | None:
    """The servers whose share of an application's time is shown, and its scenario: the first that is of no series,
    else the first."""
    for each in sorted(results.scenes, key=lambda each: bool(each.scenario.series)):
        cells = [cell for cell in each.measured if cell.processor is not None]
        if cells:
            return each, cells
    return None


def share(results: Results, rates: Iterable[float] = RATES) -> Table | None:
    """How much of a worker's time is the server's, if the whole answers so many requests a second."""
    found = share_cells(results)
    if found is None:
        return None
    of, cells = found
    rates = tuple(rates)
    rows = [["your application answers", *(f"{rate:,}/s" for rate in rates)]]
    rows += [
        [cell.label, *(show_share(rate * cell.processor.value) for rate in rates if cell.processor)] for cell in cells
    ]
    return Table(
        "The server's share of a busy worker's time",
        rows,
        note=f"By what a request costs in: {of.scenario.title}. Where it is little, choose by something else.",
    )


def show_share(share: float) -> str:
    """More than all cannot be."""
    return "all" if share >= 1 else f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}"


def absent(results: Results) -> Table | None:
    """Return the table of the servers that could not run."""
    if not results.absent:
        return None
    return Table("What could not run", [["", "why"], *map(list, results.absent)], words=(1,))


def failures(results: Results) -> Table | None:
    """Rounds without figures."""
    if not results.failures:
        return None
    rows = [["", "scenario", "rounds", "what happened"]]
    rows += [[label, title, str(count), why] for label, title, why, count in results.failures]
    return Table("Rounds without figures", rows, left=(0, 1), words=(3,))


def errors(results: Results) -> Table | None:
    """Requests that failed, by kind."""
    rows = [["", "scenario", "requests", "failed", "how"]]
    rows += [
        [
            cell.label,
            scene.scenario.title,
            f"{cell.requests:,}",
            f"{cell.failed:,}",
            ", ".join(f"{count:,} × {name}" for name, count in sorted(cell.errors.items(), key=lambda pair: -pair[1])),
        ]
        for scene in results.scenes
        for cell in scene.measured
        if cell.failed
    ]
    return Table("Requests that failed", rows, left=(0, 1), words=(4,)) if len(rows) > 1 else None
