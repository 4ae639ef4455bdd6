"""A chart of a running load test for a terminal: responses per second and the 99th percentile of latency over time.

The columns are drawn by hand: a library for charts in a terminal would be the first dependency of this package, for two
rows of bars.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kirsch_bench.show import show_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROWS_MIN = 12
COLUMNS_MIN = 40
"""The size of a terminal below which there is no chart."""

_LABEL = 9  # columns of the labels on the left
_HEIGHT_MAX = 5
_SLOTS_MAX = 400
_SLOT_SECONDS = 0.25
_BLOCKS, _PLAIN = " ▁▂▃▄▅▆▇█", "    #####"


@dataclass
class _Slot:
    """The measurements of all processes in one time slot. ``seconds`` is the sum of their times."""

    answered: int = 0
    bad: int = 0
    seconds: float = 0.0
    p99: float | None = None
    """The worst of the reports'."""
    processes: set[int] = field(default_factory=set)
    """The processes that have reported: a lost one no longer counts."""

    @property
    def rate(self) -> float:
        """Responses per second, of all processes together."""
        return self.answered * len(self.processes) / self.seconds if self.seconds else 0.0

    def add(self, other: _Slot) -> None:
        self.answered += other.answered
        self.bad += other.bad
        self.seconds += other.seconds
        self.processes |= other.processes
        self.p99 = max((each for each in (self.p99, other.p99) if each is not None), default=None)


class Chart:
    """The reports of a run so far, drawn in as many columns as there are.

    ``planned`` is the duration of the run in seconds, if it is known: then the chart fills from left to right.
    ``asked`` returns the mean rate that is asked for, of ``seconds`` from a time on; None in the closed model.
    """

    def __init__(self, planned: float | None, asked: Callable[[float, float], float] | None = None) -> None:
        self._planned = planned
        self._asked = asked
        self._slots: list[_Slot] = []
        self._width = _SLOT_SECONDS

    def hear(self, process: int, word: dict[str, Any]) -> None:
        """Add the progress report of a process since its last report (``Progress`` in
        ``crates/load/src/result.rs``)."""
        latest = word["latest"]
        index = int(max(0.0, word["elapsed"] - latest["seconds"] / 2) / self._width)
        while index >= _SLOTS_MAX:
            self._halve()
            index //= 2
        while len(self._slots) <= index:
            self._slots.append(_Slot())
        bad = latest["failed"] + latest["dropped"]
        self._slots[index].add(_Slot(latest["answered"], bad, latest["seconds"], latest["p99"], {process}))

    def _halve(self) -> None:
        """Merge pairs of slots, which bounds the number of slots."""
        halved = []
        for first, second in zip(self._slots[::2], [*self._slots[1::2], _Slot()], strict=False):
            first.add(second)
            halved.append(first)
        self._slots, self._width = halved, self._width * 2

    def lines(self, columns: int, rows: int, *, plain: bool = False) -> list[str]:
        """Return the chart for a terminal of this size; nothing if it is too small. ``plain``: in ASCII."""
        if columns < COLUMNS_MIN or rows < ROWS_MIN or not self._slots:
            return []
        width = columns - _LABEL - 1
        height = min(_HEIGHT_MAX, (rows - 6) // 2)
        span = max(self._planned or 0.0, len(self._slots) * self._width)
        cells = self._cells(width, span)
        step = span / width
        asked = [self._asked(index * step, step) for index in range(width)] if self._asked else []
        blocks, axis, mark = (_PLAIN, "-", ".") if plain else (_BLOCKS, "─", "·")
        rates = [None if cell is None else cell.rate for cell in cells]
        top = _round_up(max([1.0, *asked, *(rate for rate in rates if rate is not None)]))
        lines = [f"{'':{_LABEL}}responses a second{f', {mark} as asked for' if asked else ''}"]
        shares = [None if rate is None else rate / top for rate in rates]
        marks = [rate / top for rate in asked]
        lines += _bars(shares, marks, height, (f"{top:,.0f}", "0"), blocks, mark)
        # A column in which requests failed or were dropped is marked below it.
        bad = "".join("x" if cell is not None and cell.bad else axis for cell in cells)
        lines.append(f"{'failed ' if 'x' in bad else '':>{_LABEL}}{bad}")
        times = [None if cell is None else cell.p99 for cell in cells]
        if known := [time for time in times if time]:
            low = 10.0 ** math.floor(math.log10(min(known)))
            high = max(10.0 ** math.ceil(math.log10(max(known))), low * 10)
            shares = [max(math.log(time / low) / math.log(high / low), 0.01) if time else None for time in times]
            lines.append(f"{'':{_LABEL}}p99 of latency, logarithmic")
            lines += _bars(shares, [], height, (show_seconds(high), show_seconds(low)), blocks, mark)
        end = f"{span:.0f} s"
        return [*lines, f"{'':{_LABEL}}0 s{end:>{width - 3}}"]

    def _cells(self, width: int, span: float) -> list[_Slot | None]:
        """Return the slot for each column; None if there are no data for its time."""
        cells: list[_Slot | None] = []
        for index in range(width):
            begin, end = index * span / width, (index + 1) * span / width
            first, last = math.ceil(begin / self._width - 0.5), math.ceil(end / self._width - 0.5)
            found = self._slots[first:last]
            if not found and last * self._width <= len(self._slots) * self._width:
                # The columns are narrower than the slots.
                found = self._slots[int((begin + end) / 2 / self._width) :][:1]
            cell = _Slot()
            for slot in found:
                cell.add(slot)
            cells.append(cell if cell.seconds else None)
        return cells


def _bars(
    shares: Sequence[float | None], marks: Sequence[float], height: int, ends: tuple[str, str], blocks: str, mark: str
) -> list[str]:
    """Return bars of shares from 0 to 1, with marks at other shares where the bars do not reach. ``ends`` are the
    labels of 1 and 0."""
    lines = []
    for row in range(height):
        below = (height - 1 - row) * 8
        cells = []
        for index, share in enumerate(shares):
            fill = 0 if share is None else max(0, min(8, math.ceil(share * height * 8 - 1e-9) - below))
            is_marked = bool(marks) and min(int(marks[index] * height), height - 1) == height - 1 - row
            cells.append(mark if is_marked and fill == 0 else blocks[fill])
        label = ends[0] if row == 0 else ends[1] if row == height - 1 else ""
        lines.append(f"{label:>{_LABEL - 1}} {''.join(cells)}")
    return lines


def _round_up(value: float) -> float:
    """Return the next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= value * (1 - 1e-9))
