"""Plots as inline SVG. Colours come from the page's style, so that one drawing is right on light and on dark."""

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

STYLE = """
svg.plot { width: 100%; height: auto; max-width: 60rem; font: 12px system-ui, sans-serif; }
svg.plot text { fill: var(--faint); }
svg.plot text.name { fill: var(--text); }
svg.plot .grid { stroke: var(--line); stroke-width: 1; }
svg.plot .axis { stroke: var(--faint); stroke-width: 1; }
svg.plot .band { fill: var(--line); opacity: .5; }
svg.plot polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg.plot .s0 { stroke: var(--s0); } svg.plot .f0 { fill: var(--s0); }
svg.plot .s1 { stroke: var(--s1); } svg.plot .f1 { fill: var(--s1); }
svg.plot .s2 { stroke: var(--s2); } svg.plot .f2 { fill: var(--s2); }
svg.plot .bad { fill: var(--bad); }
"""


@dataclass(frozen=True)
class Axis:
    """From ``low`` to ``high``, both of which are within it; ``ticks`` are places with their labels."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    name: str
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Where on the axis a value stands, from 0 to 1; outside values stand at the ends."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear(high: float, name: str, show: Callable[[float], str], *, to_tick: bool = True) -> Axis:
    """From 0, with about five round ticks; ``to_tick``: up to the next of them."""
    high = high if high > 0 else 1.0
    step = _round_step(high / 5)
    if to_tick:
        high = math.ceil(high / step - 1e-9) * step
    ticks = tuple((index * step, show(index * step)) for index in range(math.floor(high / step + 1e-9) + 1))
    return Axis(0.0, high, ticks, name)


def logarithmic(low: float, high: float, name: str, show: Callable[[float], str]) -> Axis:
    """From power of ten to power of ten, at least one apart."""
    first = math.floor(math.log10(low) + 1e-9)
    last = max(math.ceil(math.log10(high) - 1e-9), first + 1)
    ticks = tuple((10.0**power, show(10.0**power)) for power in range(first, last + 1))
    return Axis(10.0**first, 10.0**last, ticks, name, logarithmic=True)


def quantiles(last: float) -> Axis:
    """Of shares from 0 to beyond 99.999 %, as ``1 / (1 - share)``: each nine takes the same space, as in
    HdrHistogram's plots. ``last`` is the largest such value."""
    high = max(10.0, 10.0 ** math.ceil(math.log10(max(last, 10.0)) - 1e-9))
    names = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %", "99.99999 %"]
    powers = range(min(len(names), round(math.log10(high)) + 1))
    ticks = sorted([*((10.0**power, names[power]) for power in powers), (2.0, "50 %")])
    return Axis(1.0, high, tuple(ticks), "share of requests that took at most so long", logarithmic=True)


@dataclass(frozen=True)
class Line:
    """A named series of points in order; a gap where a value is None."""

    name: str
    points: Sequence[tuple[float, float | None]]


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
    """A plot of ``lines``; ``band`` shades a part of the x axis, ``bars`` are (from, to, height) of what went wrong."""
    parts = [
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
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
    for index, line in enumerate(lines):
        parts += [f'<polyline class="s{index}" points="{points}"/>' for points in _pieces(line, x, y)]
    parts += _legend(
        [(f"f{index}", line.name) for index, line in enumerate(lines)] + ([("bad", bars_name)] if bars else [])
    )
    return "\n".join([*parts, "</svg>"])


def _grid(x: Axis, y: Axis) -> list[str]:
    bottom = _TOP + _INNER_HEIGHT
    parts = []
    for value, label in y.ticks:
        place = _y(y, value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{place + 4:.1f}" text-anchor="end">{escape(label)}</text>')
    for value, label in x.ticks:
        place = _x(x, value)
        parts.append(f'<line class="axis" x1="{place:.1f}" x2="{place:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(f'<text x="{place:.1f}" y="{bottom + 17}" text-anchor="middle">{escape(label)}</text>')
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 8}" text-anchor="end">{escape(x.name)}</text>')
    parts.append(f'<text x="{_LEFT - 66}" y="14">{escape(y.name)}</text>')
    return parts


def _legend(entries: Sequence[tuple[str, str]]) -> list[str]:
    parts = []
    left = float(_LEFT)
    for style, name in entries:
        parts.append(f'<rect class="{style}" x="{left:.0f}" y="{HEIGHT - 17}" width="10" height="10" rx="2"/>')
        parts.append(f'<text class="name" x="{left + 14:.0f}" y="{HEIGHT - 8}">{escape(name)}</text>')
        left += 28 + 7 * len(name)
    return parts


def _pieces(line: Line, x: Axis, y: Axis) -> list[str]:
    pieces: list[list[str]] = [[]]
    for at, value in line.points:
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append(f"{_x(x, at):.1f},{_y(y, value):.1f}")
    return [" ".join(piece if len(piece) > 1 else piece * 2) for piece in pieces if piece]


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.place(value) * _INNER_WIDTH


def _y(axis: Axis, value: float) -> float:
    return _TOP + (1 - axis.place(value)) * _INNER_HEIGHT


def _round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))
