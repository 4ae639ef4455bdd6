"""Plots as inline SVG. Colours come from the page's style, so that a plot fits a light and a dark page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH, HEIGHT = 760, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 30, 28, 44
_INNER_WIDTH = WIDTH - _LEFT - _RIGHT
_INNER_HEIGHT = HEIGHT - _TOP - _BOTTOM
_LETTER, _LEGEND, _BAR = 7, 18, 24

STYLE = """
svg.plot { width: 100%; height: auto; max-width: 60rem; font: 12px system-ui, sans-serif; }
svg.plot text { fill: var(--faint); }
svg.plot text.name { fill: var(--text); }
svg.plot .grid { stroke: var(--line); stroke-width: 1; }
svg.plot .axis { stroke: var(--faint); stroke-width: 1; }
svg.plot .band { fill: var(--line); opacity: .5; }
svg.plot polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg.plot .bad { fill: var(--bad); }
svg.plot .key { stroke-width: 3; }
svg.plot .rest { opacity: .5; }
svg.plot .whisker { stroke: var(--text); stroke-width: 1.5; }
svg.plot .limit { stroke: var(--faint); stroke-width: 1.5; stroke-dasharray: 5 4; }
svg.plot .d1 { stroke-dasharray: 6 3; } svg.plot .d2 { stroke-dasharray: 2 3; }
"""

COLOURS = (
    ("#2563c4", "#6ea8ff"),
    ("#b45309", "#f0a14a"),
    ("#8a8f98", "#7d8590"),
    ("#0f7b6c", "#3fc1ad"),
    ("#9333a8", "#d18ae6"),
    ("#7a8b00", "#b9cc3f"),
    ("#c0336a", "#ff86b3"),
    ("#5b4a3a", "#c9b49c"),
)
"""Of series in their order, on light and on dark; those beyond take them again, dashed."""


def _variables(position: int) -> str:
    return " ".join(f"--s{each}: {colours[position]};" for each, colours in enumerate(COLOURS))


STYLE += "\n".join(
    [
        f":root {{ {_variables(0)} }}",
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(1)} }} }}",
        *(
            f"svg.plot .s{each} {{ stroke: var(--s{each}); }} svg.plot .f{each} {{ fill: var(--s{each}); }}"
            for each in range(len(COLOURS))
        ),
    ]
)


@dataclass(frozen=True)
class Axis:
    """An axis from ``low`` to ``high``, inclusive; ``ticks`` are positions with their labels."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    name: str
    logarithmic: bool = False

    def position(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 to 1; values outside are clamped."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear(high: float, name: str, show: Callable[[float], str], *, to_tick: bool = True) -> Axis:
    """Return an axis from 0 with about five round ticks; ``to_tick``: it ends at the next tick."""
    high = high if high > 0 else 1.0
    step = _round_step(high / 5)
    if to_tick:
        high = math.ceil(high / step - 1e-9) * step
    ticks = tuple((index * step, show(index * step)) for index in range(math.floor(high / step + 1e-9) + 1))
    return Axis(0.0, high, ticks, name)


def logarithmic(low: float, high: float, name: str, show: Callable[[float], str]) -> Axis:
    """Return a logarithmic axis between powers of ten, at least one decade long."""
    first = math.floor(math.log10(low) + 1e-9)
    last = max(math.ceil(math.log10(high) - 1e-9), first + 1)
    ticks = tuple((10.0**power, show(10.0**power)) for power in range(first, last + 1))
    return Axis(10.0**first, 10.0**last, ticks, name, logarithmic=True)


def quantiles(last: float) -> Axis:
    """Return an axis of shares from 0 to beyond 99.999 %, as ``1 / (1 - share)``: each nine takes the same space, as
    in HdrHistogram's plots. ``last`` is the largest such value."""
    high = max(10.0, 10.0 ** math.ceil(math.log10(max(last, 10.0)) - 1e-9))
    names = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %", "99.99999 %"]
    powers = range(min(len(names), round(math.log10(high)) + 1))
    ticks = sorted([*((10.0**power, names[power]) for power in powers), (2.0, "50 %")])
    return Axis(1.0, high, tuple(ticks), "share of requests that took at most so long", logarithmic=True)


@dataclass(frozen=True)
class Line:
    """A named series of points in order; a gap where a value is None.

    ``style`` counts colours, so that a thing keeps its own in all plots of a page; None: by its place. ``intervals``,
    one for each point or none at all, are drawn around the points.
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    style: int | None = None
    intervals: Sequence[tuple[float, float] | None] = ()


@dataclass(frozen=True)
class Bar:
    """A bar. ``text`` is shown after it; the first ``part`` of ``value`` is drawn strong, the rest faint."""

    name: str
    value: float
    text: str
    interval: tuple[float, float] | None = None
    style: int = 0
    part: float | None = None


def draw(
    title: str,
    x: Axis,
    y: Axis,
    lines: Sequence[Line],
    *,
    band: tuple[float, float] | None = None,
    bars: Sequence[tuple[float, float, float]] = (),
    bars_name: str = "",
) -> str:
    """Return a plot of ``lines``. ``band`` shades a part of the x axis; ``bars`` are (from, to, height) of failures."""
    styles = [index if line.style is None else line.style for index, line in enumerate(lines)]
    entries = [(f"{_colour('s', style)}{_dashes(style)}", line.name) for style, line in zip(styles, lines, strict=True)]
    legend, height = _legend(entries + ([("bad", bars_name)] if bars else []), x.name)
    parts = _head(title, height)
    if band is not None:
        left, right = _x(x, band[0]), _x(x, band[1])
        parts.append(
            f'<rect class="band" x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" height="{_INNER_HEIGHT}"/>'
        )
        parts.append(f'<text x="{left + 4:.1f}" y="{_TOP + 14}">warm-up</text>')
    parts += _grid(x, y)
    for start, end, height in bars:
        top = _y(y, height)
        width = max(1.0, _x(x, end) - _x(x, start) - 1)
        parts.append(
            f'<rect class="bad" x="{_x(x, start):.1f}" y="{top:.1f}" width="{width:.1f}" '
            f'height="{_TOP + _INNER_HEIGHT - top:.1f}"/>'
        )
    for style, line in zip(styles, lines, strict=True):
        drawn = f"{_colour('s', style)}{_dashes(style)}"
        parts += [
            f'<polyline class="{drawn}" points="{points}"><title>{escape(line.name)}</title></polyline>'
            for points in _pieces(line, x, y)
        ]
        parts += _points(line, style, x, y)
    return "\n".join([*parts, *legend, "</svg>"])


def bars(title: str, bars: Sequence[Bar], x: Axis, *, limit: tuple[float, str] | None = None) -> str:
    """Return horizontal bars with their intervals as whiskers; ``limit`` is a line across all bars, with its label."""
    left = 14 + min(_LETTER * max((len(bar.name) for bar in bars), default=0), WIDTH // 3)
    right = 10 + _LETTER * max((len(bar.text) for bar in bars), default=0)
    inner = WIDTH - left - right
    bottom = 22 + _BAR * len(bars)
    parts = _head(title, bottom + 42)

    def position(value: float) -> float:
        return left + x.position(value) * inner

    for value, label in x.ticks:
        parts.append(
            f'<line class="grid" x1="{position(value):.1f}" x2="{position(value):.1f}" y1="18" y2="{bottom}"/>'
        )
        parts.append(f'<text x="{position(value):.1f}" y="{bottom + 16}" text-anchor="middle">{escape(label)}</text>')
    parts.append(f'<text x="{left + inner}" y="{bottom + 34}" text-anchor="end">{escape(x.name)}</text>')
    for index, bar in enumerate(bars):
        top = 22 + _BAR * index
        middle = top + _BAR / 2
        strong = bar.value if bar.part is None else min(bar.part, bar.value)
        parts.append(
            f'<text class="name" x="{left - 6}" y="{middle + 4:.0f}" text-anchor="end">{escape(bar.name)}</text>'
        )
        for start, end, kind in ((x.low, strong, ""), (strong, bar.value, " rest")):
            if end > start:
                parts.append(
                    f'<rect class="{_colour("f", bar.style)}{kind}" x="{position(start):.1f}" y="{top + 4}" '
                    f'width="{position(end) - position(start):.1f}" height="{_BAR - 8}"/>'
                )
        if bar.interval is not None:
            low, high = position(bar.interval[0]), position(bar.interval[1])
            parts.append(
                f'<path class="whisker" fill="none" d="M{low:.1f} {middle - 4}v8M{low:.1f} {middle}H{high:.1f}'
                f'M{high:.1f} {middle - 4}v8"/>'
            )
        parts.append(f'<text class="name" x="{left + inner + 8}" y="{middle + 4:.0f}">{escape(bar.text)}</text>')
    if limit is not None and limit[0] <= x.high:
        at = position(limit[0])
        parts.append(f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}" y1="14" y2="{bottom}"/>')
        parts.append(f'<text x="{at:.1f}" y="11" text-anchor="end">{escape(limit[1])}</text>')
    return "\n".join([*parts, "</svg>"])


def _head(title: str, height: float) -> list[str]:
    return [
        f'<svg class="plot" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]


def _colour(kind: str, style: int) -> str:
    return f"{kind}{style % len(COLOURS)}"


def _dashes(style: int) -> str:
    turn = style // len(COLOURS)
    return f" d{min(turn, 2)}" if turn else ""


def _points(line: Line, style: int, x: Axis, y: Axis) -> list[str]:
    """Return a whisker and a dot for each point of a line with intervals."""
    parts = []
    for (at, value), interval in zip(line.points, line.intervals, strict=False):
        if value is None:
            continue
        if interval is not None:
            low, high = _y(y, interval[0]), _y(y, interval[1])
            middle = f"{_x(x, at):.1f}"
            parts.append(
                f'<line class="{_colour("s", style)}" x1="{middle}" x2="{middle}" y1="{low:.1f}" y2="{high:.1f}"/>'
            )
        parts.append(f'<circle class="{_colour("f", style)}" cx="{_x(x, at):.1f}" cy="{_y(y, value):.1f}" r="3"/>')
    return parts


def _grid(x: Axis, y: Axis) -> list[str]:
    bottom = _TOP + _INNER_HEIGHT
    parts = []
    for value, label in y.ticks:
        position = _y(y, value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{position:.1f}" y2="{position:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{position + 4:.1f}" text-anchor="end">{escape(label)}</text>')
    for value, label in x.ticks:
        position = _x(x, value)
        parts.append(f'<line class="axis" x1="{position:.1f}" x2="{position:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(f'<text x="{position:.1f}" y="{bottom + 17}" text-anchor="middle">{escape(label)}</text>')
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 8}" text-anchor="end">{escape(x.name)}</text>')
    parts.append(f'<text x="{_LEFT - 66}" y="14">{escape(y.name)}</text>')
    return parts


def _legend(entries: Sequence[tuple[str, str]], beside: str) -> tuple[list[str], float]:
    """Return the elements of the legend, and the additional height. It is beside the axis's name if that leaves
    room, otherwise on separate lines."""
    widths = [34 + _LETTER * len(name) for _, name in entries]
    row = 0 if sum(widths) + _LETTER * len(beside) <= _INNER_WIDTH else 1
    parts = []
    left = float(_LEFT)
    for (style, name), width in zip(entries, widths, strict=True):
        if left > _LEFT and left + width > WIDTH:
            row, left = row + 1, float(_LEFT)
        top = HEIGHT - 17 + _LEGEND * row
        if style == "bad":
            parts.append(f'<rect class="bad" x="{left + 3:.0f}" y="{top}" width="10" height="10" rx="2"/>')
        else:
            parts.append(
                f'<line class="key {style}" x1="{left:.0f}" x2="{left + 16:.0f}" y1="{top + 5}" y2="{top + 5}"/>'
            )
        parts.append(f'<text class="name" x="{left + 20:.0f}" y="{top + 9}">{escape(name)}</text>')
        left += width
    return parts, HEIGHT + _LEGEND * row


def _pieces(line: Line, x: Axis, y: Axis) -> list[str]:
    pieces: list[list[str]] = [[]]
    for at, value in line.points:
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append(f"{_x(x, at):.1f},{_y(y, value):.1f}")
    return [" ".join(piece if len(piece) > 1 else piece * 2) for piece in pieces if piece]


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.position(value) * _INNER_WIDTH


def _y(axis: Axis, value: float) -> float:
    return _TOP + (1 - axis.position(value)) * _INNER_HEIGHT


def _round_step(least: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))
