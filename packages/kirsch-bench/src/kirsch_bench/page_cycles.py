"""The report of a load test in cycles, as one page of HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from kirsch_bench import cycles as load_cycles
from kirsch_bench import plots
from kirsch_bench.page import document_page, plot, wide_table
from kirsch_bench.plots import Line
from kirsch_bench.show import show_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch_bench.cycles import Cycle, CyclePlan


def write(plan: CyclePlan, cycles: Sequence[Cycle], document: dict[str, Any]) -> str:
    """Return the page: rates and times over users, then FunkLoad's tables."""
    parts = [f'<p class="warning">{escape(warning)}</p>' for warning in [load_cycles.warnings(cycles)] if warning]
    if len(cycles) > 1:
        parts += ["<h2>Over users</h2>", plot(_rates(cycles)), plot(_times(cycles))]
    for title, rows in load_cycles.tables(cycles):
        parts += [f"<h2>{escape(title)}</h2>", wide_table(rows)]
    wrong = load_cycles.errors(cycles)
    if wrong:
        parts += ["<h2 class='bad'>What went wrong</h2>", *(f"<p>{escape(each)}</p>" for each in wrong)]
    what = f"{document['url']}; {plan.seconds:g} s for each cycle; Apdex with T = {plan.apdex:g} s; times in seconds"
    return document_page(document["test"], what, parts, document)


def _users_axis(cycles: Sequence[Cycle]) -> plots.Axis:
    users = sorted({cycle.users for cycle in cycles})
    low, high = float(users[0]), float(users[-1] if users[-1] > users[0] else users[0] + 1)
    return plots.Axis(low, high, tuple((float(count), str(count)) for count in users), "users")


def _rates(cycles: Sequence[Cycle]) -> str:
    ordered = sorted(cycles, key=lambda cycle: cycle.users)
    lines = [
        Line("successful pages a second", [(float(cycle.users), cycle.pages.per_second) for cycle in ordered]),
        Line("successful tests a second", [(float(cycle.users), cycle.stps) for cycle in ordered]),
    ]
    highest = max(value or 0.0 for line in lines for _, value in line.points)
    y = plots.linear(highest, "a second", lambda value: f"{value:,g}")
    return plots.draw("Pages and tests a second, over users", _users_axis(cycles), y, lines)


def _times(cycles: Sequence[Cycle]) -> str:
    ordered = sorted(cycles, key=lambda cycle: cycle.users)
    lines = [
        Line("median page", [(float(cycle.users), cycle.pages.med) for cycle in ordered]),
        Line("p95", [(float(cycle.users), cycle.pages.p95) for cycle in ordered]),
        Line("longest", [(float(cycle.users), cycle.pages.max) for cycle in ordered]),
    ]
    values = [value for line in lines for _, value in line.points if value]
    if not values:
        return ""
    y = plots.logarithmic(max(min(values), 1e-6), max(values), "seconds", show_seconds)
    return plots.draw("How long pages took, over users", _users_axis(cycles), y, lines)
