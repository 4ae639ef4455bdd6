"""The progress on standard error: overwritten lines on a terminal, otherwise a plain line from time to time."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from kirsch_bench.show import show_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch_bench.chart import Chart

_FIRST_SECONDS = 1.0
_PLAIN_SECONDS = 5.0
_BAR = 20


class Display:
    """Shows lines of progress, and clears the last one."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet or self._stream is None
        self._terminal = not self._quiet and self._stream.isatty()
        self._shown = 0
        self._next_plain = time.monotonic() + _FIRST_SECONDS

    def show(self, line: str, chart: Chart | None = None) -> None:
        """Replace the last line by ``line``, on a terminal with a chart below it."""
        if self._quiet:
            return
        if self._terminal:
            size = _size(self._stream)
            below = chart.lines(*size, plain=not _has_blocks(self._stream)) if chart is not None else []
            lines = [line, *below]
            self._write(self._back() + "\n".join(each[: size.columns - 1] for each in lines))
            self._shown = len(lines)
        elif time.monotonic() >= self._next_plain:
            self._next_plain = time.monotonic() + _PLAIN_SECONDS
            self._write(f"{line}\n")

    def say(self, line: str) -> None:
        """Print ``line`` permanently."""
        if not self._quiet:
            self.clear()
            self._write(f"{line}\n")

    def clear(self) -> None:
        """Clear the shown lines."""
        if self._shown:
            self._write(self._back())
            self._shown = 0

    def _back(self) -> str:
        """Return the control sequence that clears the shown lines and puts the cursor at their start."""
        up = f"\x1b[{self._shown - 1}A" if self._shown > 1 else ""
        return f"\r{up}\x1b[J"

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._quiet = True  # the terminal is gone


def _size(stream: TextIO) -> os.terminal_size:
    """Return the size of the terminal of ``stream``: standard output may be a file."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return shutil.get_terminal_size()
    return size if size.columns and size.lines else shutil.get_terminal_size()


def _has_blocks(stream: TextIO) -> bool:
    try:
        "▁█─·".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def load_line(words: Sequence[dict[str, Any]], planned: float | None, prefix: str = "") -> str:
    """Return a line of the latest progress of all processes; ``planned`` is the duration in seconds, if known."""
    elapsed = max(word["elapsed"] for word in words)
    phases = {word["phase"] for word in words}
    phase = next(phase for phase in ("warmup", "measuring", "draining") if phase in phases)
    latest = [word["latest"] for word in words]
    rate = sum(each["answered"] / each["seconds"] for each in latest if each["seconds"])
    p99 = max((each["p99"] for each in latest if each["p99"] is not None), default=None)
    parts = [
        f"{prefix}{bar(elapsed / planned) if planned else ''} {elapsed:5.1f} s",
        {"warmup": "warming up", "measuring": "measuring", "draining": "last answers"}[phase],
        f"{rate:,.0f}/s",
    ]
    if p99 is not None:
        parts.append(f"p99 {show_seconds(p99)}")
    counts = {name: sum(word[name] for word in words) for name in ("failed", "dropped", "late")}
    parts += [f"{count:,} {name}" for name, count in counts.items() if count]
    return ", ".join(parts).strip()


def users_line(users: int, word: dict[str, Any]) -> str:
    """Return a line of progress of a cycle."""
    failed = f", {word['failed']:,} failed" if word["failed"] else ""
    return f"{users} users: {word['elapsed']:5.1f} s, {word['users']} there, {word['tests']:,} tests{failed}"


def bar(share: float) -> str:
    """Return a progress bar for a share."""
    full = round(max(0.0, min(share, 1.0)) * _BAR)
    return f"[{'#' * full}{' ' * (_BAR - full)}]"
