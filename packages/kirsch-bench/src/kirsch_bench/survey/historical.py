"""Tables of an earlier measurement, printed beside what servers of today do.

A survey's file names the file of its earlier tables (``historical = "historical/S0.1.toml"``). That file has ``title``,
``source`` and ``rig``, a ``[[table]]`` with ``title``, ``columns`` and ``rows`` for each table, and ``shape``: how the
results of the survey are put beside them, one of ``sweep``, ``users``, ``ab``, ``interpreters`` and ``gateways``. Some
shapes read further keys; ``survey/founding/historical`` in Kirsch's repository has an example of each.

Machines have become faster by more than servers have, so only ratios and shapes can be compared; rates are there to
show it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kirsch.config import setting, toml
from kirsch.suggest import did_you_mean
from kirsch_bench import ab
from kirsch_bench.errors import UsageError
from kirsch_bench.show import plural, show_bytes, show_seconds
from kirsch_bench.survey import statistics
from kirsch_bench.survey.results import by_round
from kirsch_bench.survey.tables import ABSENT, Table, spread, used

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kirsch_bench.survey.results import Cell, Key, Results, Scene

_AB_COLUMNS = [name for _, name, _ in ab.ABSession.parse_patterns]

_ONE_AT_A_TIME = 1.5
"""Requests at once, below which a server answers one after the other: what is beyond one is measuring."""


def load(path: str) -> dict[str, Any]:
    """Read the file of earlier tables, for ``Header.historical``; ``name`` in it is the file's. Raises UsageError."""
    try:
        _, data = toml.read_tables(path, path, "historical")
    except setting.UsageError as error:
        raise UsageError(str(error)) from None
    for key in ("title", "source", "rig"):
        if not isinstance(data.get(key), str):
            raise UsageError(f"{path}: {key} is missing, or is not text")
    if data.get("shape") not in _SHAPES:
        hint = did_you_mean(str(data.get("shape")), _SHAPES)
        raise UsageError(f"{path}: shape is one of {', '.join(_SHAPES)}{hint}")
    old_tables = data.get("table", [])
    if not isinstance(old_tables, list) or not all(map(_is_table, old_tables)):
        raise UsageError(f"{path}: a [[table]] has a title, columns, and rows of as many texts as there are columns")
    if data["shape"] == "interpreters" and not old_tables:
        raise UsageError(f"{path}: the shape interpreters needs a [[table]]")
    if "bare" in data and "server" not in data:
        raise UsageError(f"{path}: bare names the server to compare with another one: server is missing")
    if not isinstance(data.get("now", {}), dict):
        raise UsageError(f"{path}: now is a table of names: an old server's and that of its successor")
    return {"name": os.path.splitext(os.path.basename(path))[0], **data}


def _is_table(table: Any) -> bool:
    if not isinstance(table, dict) or not isinstance(table.get("title"), str):
        return False
    columns, rows = table.get("columns"), table.get("rows")
    if not isinstance(columns, list) or not isinstance(rows, list):
        return False
    return all(
        isinstance(row, list) and len(row) == len(columns) and all(isinstance(cell, str) for cell in row)
        for row in [columns, *rows]
    )


def tables(results: Results) -> list[Table]:
    """Return the earlier tables with their rig, and the new ones."""
    old = results.header.historical
    if old is None:
        return []
    source = f"{old['source']}. Rig: {old['rig']}."
    earlier = [
        Table(
            f"Then: {each['title']}",
            [each["columns"], *each["rows"]],
            note=each.get("note", ""),
            left=tuple(each.get("left", (0,))),
        )
        for each in old.get("table", ())
    ]
    heading = Table(f"{old['name']}: {old['title']}", (), note=source)
    new = _SHAPES[old["shape"]](results, old) if results.scenes else []
    return [heading, *earlier, *new]


# ------------------------------------------------------------------------------------------------------- sweeps of ab


def _sweep(results: Results, old: dict[str, Any]) -> list[Table]:
    """CherryPy's thread and size reports for each server, and how the full stack stands beside the bare server."""
    found: list[Table] = []
    for sweep in results.sweeps:
        if sweep.series == "connections":
            found += _thread_reports(results, sweep.scenes)
            if old.get("bare"):
                found += _full_and_bare(sweep.scenes, old["server"], old["bare"])
        elif sweep.series == "bytes":
            found += _size_reports(results, sweep.scenes)
    return found


def _thread_reports(results: Results, scenes: Sequence[Scene]) -> list[Table]:
    found = []
    for key in _keys(scenes):
        pairs = [(scene, cell) for scene in scenes for cell in scene.measured if cell.key == key]
        rows: list[list[object]] = [[scene.scenario.number, *_ab_row(cell)] for scene, cell in pairs]
        if len(rows) > 1:
            rows.append(ab.averages(rows))
        rates = [cell.rate.value for _, cell in pairs if cell.rate]
        length = next((each.response.get("body") for each in pairs[0][1].rounds if each.response), None)
        found.append(
            Table(
                _report_title(results, key, "Client Thread Report", f"{length} byte response body" if length else ""),
                [["threads", *_AB_COLUMNS], *([str(value) for value in row] for row in rows)],
                note=f"The least of these rates is {min(rates) / max(rates):.3f} of the most.",
            )
        )
    return found


def _size_reports(results: Results, scenes: Sequence[Scene]) -> list[Table]:
    found = []
    for key in _keys(scenes):
        rows = [
            [scene.scenario.number, *_ab_row(cell)] for scene in scenes for cell in scene.measured if cell.key == key
        ]
        title = _report_title(results, key, "Size Report", f"{_connections(scenes[0])} client threads")
        found.append(Table(title, [["bytes", *_AB_COLUMNS], *rows]))
    return found


def _report_title(results: Results, key: Key, report: str, about: str) -> str:
    """``Now: cheroot: Client Thread Report (5 rounds of 2.00 s, 14 byte response body, 10 server threads)``: CherryPy's
    heading, with what was measured in place of a number of requests."""
    threads = next((each.threads for each in results.header.subjects if (each.server, each.python) == key), 0)
    words = [
        f"{plural(results.rounds, 'round')} of {show_seconds(results.header.seconds)}",
        about,
        f"{threads} server threads" if threads else "",
    ]
    return f"Now: {results.labels[key]}: {report} ({', '.join(filter(None, words))})"


def _ab_row(cell: Cell) -> list[str]:
    """Return the row that ab would have printed, over all rounds."""
    rate = cell.rate.value if cell.rate else 0.0
    return [
        str(cell.requests),
        str(cell.failed),
        f"{rate:.2f}",
        f"{1000 / rate:.3f}",
        f"{rate * _answer_bytes(cell) / 1024:.2f}",
    ]


def _answer_bytes(cell: Cell) -> int:
    sample = next((each.response for each in cell.rounds if each.response), {})
    return int(sample.get("head") or 0) + int(sample.get("body") or 0)


def _full_and_bare(scenes: Sequence[Scene], full: str, bare: str) -> list[Table]:
    rows = [["threads", "full", "bare", "full/bare", "±"]]
    for scene in scenes:
        cells = {cell.key[0]: cell for cell in scene.measured}
        if full in cells and bare in cells:
            ratio = _ratio(cells[full], cells[bare])
            rows.append([scene.scenario.number, _rate(cells[full]), _rate(cells[bare]), *_ratio_cells(ratio)])
    title = f"Now: {full}, the full stack, beside {bare}, its bare server, requests a second"
    return [Table(title, rows)] if len(rows) > 1 else []


# ---------------------------------------------------------------------------------------------------------------- users


def _users(results: Results, old: dict[str, Any]) -> list[Table]:
    """Return the tables of virtual users: a server that answers one request after the other is a queue."""
    rows = [["server", "scenario", "users", "a second", "failed", "p50", "max", "server CPU", "why"]]
    for scene in results.scenes:
        rows += [
            [
                cell.label,
                scene.scenario.title,
                scene.scenario.number if scene.scenario.series == "connections" else ABSENT,
                _rate(cell),
                f"{cell.failed_share:.0%}",
                _seconds(cell, "50"),
                _seconds(cell, "max"),
                used(cell),
                _why(cell, scene.scenario.x),
            ]
            for cell in scene.measured
        ]
    return [Table("Now", rows, note=old.get("cause", ""), left=(0, 1), words=(8,))]


def _why(cell: Cell, users: float) -> str:
    """How many the server answers at a time: its rate by the time that one request takes by itself (Little's law).
    Where that is one, each user waits for all users before it. The first request was by itself, but may
    have waited for the application to be loaded; half of the others took no more than the median."""
    alone = min((each.first_request for each in cell.rounds if each.first_request > 0), default=0.0)
    if cell.rate is None or not alone or "50" not in cell.latency:
        return ABSENT
    alone = min(alone, cell.latency["50"].value)
    at_once = cell.rate.value * alone
    if at_once < _ONE_AT_A_TIME and users > 1:
        cause = f"a queue: one at a time, {cell.rate.value:,.0f} a second"
    else:
        cause = f"no queue: {at_once:.0f} at a time" if users > 1 else "one user"
    kinds = sorted(cell.errors, key=lambda kind: -cell.errors[kind]) if cell.failed else []
    return "; ".join([cause, *([f"fails by {', '.join(kinds)}"] if kinds else [])])


# ------------------------------------------------------------------------------------------------------------------- ab


def _ab(results: Results, old: dict[str, Any]) -> list[Table]:
    """ab's figures of all servers, and how many times as many the first of them answers."""
    found = []
    percents = ("50", "75", "90", "95", "99", "max")
    for scene in results.scenes:
        if not scene.measured or scene.scenario.series:
            continue
        connections = _connections(scene)
        head = ["server", "req/s", "±", "ms", "ms, all", "KB/s", "bytes", "failed", "server CPU"]
        rows = [[*head, *map(_percent, percents)]]
        for cell in scene.measured:
            rate = cell.rate.value if cell.rate else 0.0
            rows.append(
                [
                    cell.label,
                    f"{rate:.2f}",
                    spread(cell.rate),
                    f"{1000 * connections / rate:.3f}",
                    f"{1000 / rate:.3f}",
                    f"{rate * _answer_bytes(cell) / 1024:.2f}",
                    str(_answer_bytes(cell)),
                    str(cell.failed),
                    used(cell),
                    *(
                        f"{cell.latency[name].value * 1000:.1f}" if name in cell.latency else ABSENT
                        for name in percents
                    ),
                ]
            )
        found.append(Table(f"Now: {scene.scenario.title}; times in ms", rows))
        found += _multiples(scene, old)
    return found


def _percent(name: str) -> str:
    return "100%" if name == "max" else f"{name}%"


def _multiples(scene: Scene, old: dict[str, Any]) -> list[Table]:
    """How many times as many requests Kirsch, and the successor of the first server, answer as the others."""
    wanted = [old.get("now", {}).get(old.get("first", ""), ""), "kirsch"]
    firsts = [cell for cell in scene.measured if cell.key[0] in wanted]
    if not firsts or len(scene.measured) < 2:
        return []
    rows = [["answers so many times as many as", *(cell.label for cell in firsts)]]
    rows += [
        [other.label, *(ABSENT if cell is other else " ± ".join(_ratio_cells(_ratio(cell, other))) for cell in firsts)]
        for other in scene.measured
    ]
    return [Table("Now: ratios, paired by round", rows)]


def _connections(scene: Scene) -> int:
    words = scene.scenario.load.split()
    for flag in ("-c", "--connections", "--concurrency"):
        if flag in words[:-1]:
            return int(words[words.index(flag) + 1])
    return 1


# --------------------------------------------------------------------------------------------------------- interpreters


def _interpreters(results: Results, old: dict[str, Any]) -> list[Table]:
    """Return the earlier rates in the same rows as the new ones, with ranks for each interpreter."""
    earlier = {row[0]: row[1:] for row in old["table"][0]["rows"]}
    successors = {now: name for name, now in old.get("now", {}).items()}
    found = []
    for scene in results.scenes:
        if not scene.measured or scene.scenario.series or scene.is_open:
            continue
        pythons = sorted({cell.key[1] for cell in scene.measured if cell.key[1]})
        first, second = _most_used(scene, "CPython"), _most_used(scene, "PyPy")
        ranks = {python: _ranks(scene, python) for python in pythons}
        cells = {cell.key: cell for cell in scene.measured}
        head = ["server", "then CPython", "then PyPy", "then ratio"]
        head += [word for python in pythons for word in (f"{python}", "±", "rank", "server CPU")]
        rows = [[*head, *(["PyPy/CPython", "±"] if first and second else [])]]
        for server in dict.fromkeys(cell.key[0] for cell in scene.cells):
            row = [server, *earlier.get(successors.get(server, ""), [ABSENT] * 3)]
            for python in pythons:
                cell = cells.get((server, python))
                rank = ranks[python].get((server, python), ABSENT)
                row += [_rate(cell), spread(cell.rate), rank, used(cell)] if cell else [ABSENT] * 4
            if first and second:
                row += _ratio_cells(_ratio(cells.get((server, second)), cells.get((server, first))))
            rows.append(row)
        measured = {cell.key[0] for cell in scene.cells}
        blanks = [ABSENT] * (len(rows[0]) - 4)
        rows += [[now, *earlier[name], *blanks] for now, name in successors.items() if now not in measured]
        note = "Those without figures of today: see what could not run."
        found.append(Table(f"Then and now: {scene.scenario.title}, requests a second", rows, note=note))
    return found


def _most_used(scene: Scene, implementation: str) -> str:
    """The interpreter of that kind which most servers ran under: one that a web server cannot enter runs under the
    system's."""
    found = [cell.key[1] for cell in scene.measured if cell.key[1].startswith(implementation)]
    return max(found, key=found.count, default="")


def _ranks(scene: Scene, python: str) -> dict[Key, str]:
    """Among the servers of one interpreter."""
    rates = {
        cell.key: by_round(cell.rounds, lambda each: each.rate)
        for cell in scene.measured
        if cell.key[1] == python and cell.rate_rank
    }
    return {rank.key: rank.text for rank in statistics.ranks(rates, higher_is_better=True)}


# ------------------------------------------------------------------------------------------------------------- gateways


def _gateways(results: Results, _old: dict[str, Any]) -> list[Table]:
    """Each way with each number of processes in front of it: what it does, loses, needs."""
    memory = {each.key: each for each in results.needs}
    found = []
    for scene in results.scenes:
        if not scene.cells:
            continue
        rows = [["gateway", "req/s", "±", "rank", "errors", "p50", "p99", "server CPU", "memory", "first answer"]]
        for cell in scene.measured:
            need = memory.get(cell.key)
            rows.append(
                [
                    cell.label,
                    _rate(cell),
                    spread(cell.rate),
                    cell.rate_rank.text if cell.rate_rank else ABSENT,
                    f"{cell.failed_share:.2%}",
                    _seconds(cell, "50"),
                    _seconds(cell, "99"),
                    used(cell),
                    show_bytes(need.memory) if need and need.memory else ABSENT,
                    show_seconds(need.first_request.value) if need and need.first_request else ABSENT,
                ]
            )
        found.append(Table(f"Now: {scene.scenario.title}", rows))
    return found


# --------------------------------------------------------------------------------------------------------------- common


def _keys(scenes: Iterable[Scene]) -> list[Key]:
    return list(dict.fromkeys(cell.key for scene in scenes for cell in scene.measured))


def _rate(cell: Cell) -> str:
    return (
        f"{cell.rate.value:,.0f}"
        if cell.rate and cell.rate.value >= 100
        else f"{cell.rate.value:.1f}"
        if cell.rate
        else ABSENT
    )


def _seconds(cell: Cell, name: str) -> str:
    return show_seconds(cell.latency[name].value) if name in cell.latency else ABSENT


def _ratio(first: Cell | None, second: Cell | None) -> statistics.Figure | None:
    """Of their rates, round by round."""
    if first is None or second is None:
        return None
    return statistics.ratio(
        by_round(first.rounds, lambda each: each.rate), by_round(second.rounds, lambda each: each.rate)
    )


def _ratio_cells(ratio: statistics.Figure | None) -> list[str]:
    return [ABSENT, ABSENT] if ratio is None else [f"{ratio.value:.2f}", spread(ratio)]


_SHAPES: dict[str, Callable[[Results, dict[str, Any]], list[Table]]] = {
    "sweep": _sweep,
    "users": _users,
    "ab": _ab,
    "interpreters": _interpreters,
    "gateways": _gateways,
}
