"""Formatting of figures for people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kirsch.profile.show import plural as plural
from kirsch.profile.show import show_bytes as show_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def show_seconds(seconds: float) -> str:
    """Format seconds with three digits and a unit: ``1.23 ms``."""
    if math.isinf(seconds):
        return "endless"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size * 0.9995 or unit == "us":
            value = seconds / size
            digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
            return f"{value:.{digits}f} {unit}"
    raise AssertionError("unreachable: the last unit returns")


def show_share_beyond(share: float, limit: float) -> str:
    """Format a share above ``limit`` with enough digits to show that: ``2.1%`` instead of ``2%`` for 0.0207, if the
    limit is shown as 2%."""
    for digits in range(9):
        text = f"{share:.{digits}%}"
        if share <= limit or float(text.removesuffix("%")) > 100 * limit * (1 + 1e-12):
            return text
    return f"{share:.9%}"


def show_columns(rows: Sequence[Sequence[str]], *, left: Collection[int] = (), indent: str = "") -> str:
    """Return lines with aligned columns: right-aligned, except the columns ``left``."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)
