"""The report of a survey: as text, as a page of HTML that needs nothing else, and as JSON.

``survey.json`` holds everything (:func:`document`); docs/survey/README.md describes it key by key.
"""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

from kirsch_bench.native import Histogram
from kirsch_bench.show import plural, show_seconds
from kirsch_bench.survey import historical, page, tables
from kirsch_bench.survey.records import as_json
from kirsch_bench.survey.results import Results, summarize

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kirsch_bench.survey.records import Header, Round
    from kirsch_bench.survey.results import Cell, Scene
    from kirsch_bench.survey.statistics import Figure, Rank
    from kirsch_bench.survey.tables import Table

SCHEMA = "kirsch-survey-1"

NAMES = ("survey.txt", "survey.html", "survey.json")


def text(header: Header, rounds: Sequence[Round]) -> str:
    """For a terminal, without a newline at its end."""
    return _text(summarize(header, rounds))


def write(header: Header, rounds: Sequence[Round], directory: Path) -> list[Path]:
    """Write text, page and JSON into a directory, which is made if need be. Raises OSError."""
    found = summarize(header, rounds)
    data = document(found, rounds)
    directory.mkdir(parents=True, exist_ok=True)
    contents = (
        _text(found) + "\n",
        # The page holds the figures; single rounds with their histograms would make it several times as long.
        page.write(found, {key: value for key, value in data.items() if key != "rounds"}),
        json.dumps(data, indent=1, ensure_ascii=False) + "\n",
    )
    paths = []
    for name, content in zip(NAMES, contents, strict=True):
        path = directory / name
        unfinished = path.with_name(f".{name}.unfinished")
        unfinished.write_text(content, encoding="utf-8", errors="backslashreplace")
        paths.append(unfinished.replace(path))
    return paths


def document(found: Results, rounds: Sequence[Round]) -> dict[str, Any]:
    """All that there is, as plain data."""
    header = as_json(found.header)
    del header["kind"]
    return {
        "schema": SCHEMA,
        "title": found.header.title,
        "environment": header.pop("environment"),
        "survey": header,
        "scenarios": [_scene(each) for each in found.scenes],
        "costs": [
            {
                "series": each.sweep.series,
                "base": each.sweep.base,
                **_key(each.key),
                "each": _figure(each.each),
                "none": each.none,
            }
            for each in found.costs
        ],
        "needs": [
            {
                **_key(each.key),
                "memory": each.memory,
                "memory_most": each.memory_most,
                "threads": each.threads,
                "processes": each.processes,
                **{name: _figure(getattr(each, name)) for name in ("startup", "first_request", "idle")},
            }
            for each in found.needs
        ],
        "warnings": list(found.warnings),
        "absent": dict(found.absent),
        "failures": [
            {"label": label, "scenario": scenario, "why": why, "rounds": count}
            for label, scenario, why, count in found.failures
        ],
        "rounds": [as_json(each) for each in rounds],
    }


def _scene(scene: Scene) -> dict[str, Any]:
    return {
        "name": scene.scenario.name,
        "ceiling": _figure(scene.ceiling),
        "servers": [_cell(cell) for cell in scene.cells],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    histogram = Histogram()
    for each in cell.rounds:
        if each.histogram:
            histogram.merge(Histogram(each.histogram))
    return {
        **_key(cell.key),
        "label": cell.label,
        "rate": _figure(cell.rate),
        "rate_rank": _rank(cell.rate_rank),
        "processor": _figure(cell.processor),
        "processor_rank": _rank(cell.processor_rank),
        "user": cell.user,
        "server_cpu": _figure(cell.used),
        "latency": {name: _figure(each) for name, each in cell.latency.items()},
        "histogram": histogram.encode() if len(histogram) else None,
        "requests": cell.requests,
        "failed": cell.failed,
        "errors": cell.errors,
        "bound": cell.bound,
        "failures": cell.failures,
    }


def _key(key: tuple[str, str]) -> dict[str, str]:
    return {"server": key[0], "python": key[1]}


def _figure(figure: Figure | None) -> dict[str, Any] | None:
    if figure is None:
        return None
    low, high = figure.interval or (None, None)
    return {"value": figure.value, "low": low, "high": high, "rounds": figure.rounds}


def _rank(rank: Rank[tuple[str, str]] | None) -> dict[str, Any] | None:
    if rank is None:
        return None
    return {"best": rank.best, "last": rank.last, "same": [_key(each) for each in rank.same]}


def _text(found: Results) -> str:
    header = found.header
    blocks = [_title(found)]
    blocks += _blocks([tables.overview(found)])
    blocks += _blocks(tables.scene(scene) for scene in found.scenes if scene.cells and not scene.scenario.series)
    for sweep in found.sweeps:
        blocks += _blocks(tables.sweep(sweep, found.labels))
    blocks += _blocks([tables.costs(found), tables.needs(found), tables.answers(found), tables.share(found)])
    blocks += _blocks([tables.errors(found), tables.failures(found), tables.absent(found)])
    if header.historical is not None:
        blocks += _blocks(historical.tables(found))
    if found.warnings:
        blocks.append("\n".join(["Warnings", *(tables.wrap(warning, hanging=True) for warning in found.warnings)]))
    return "\n\n".join(blocks)


def _title(found: Results) -> str:
    header = found.header
    lines = [header.title, *([header.about] if header.about else [])]
    began = min((each.started for scene in found.scenes for cell in scene.measured for each in cell.rounds), default=0)
    when = datetime.datetime.fromtimestamp(began, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC") if began else ""
    lines.append(
        f"{plural(found.rounds, 'round')} of {show_seconds(header.seconds)} after {show_seconds(header.warmup)} to "
        f"warm up, seed {header.seed}" + (f", begun {when}" if when else ", nothing measured yet")
    )
    return "\n".join(lines)


def _blocks(found: Iterable[Table | None]) -> list[str]:
    return [each.text() for each in found if each is not None]
