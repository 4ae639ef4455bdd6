"""Formatting of numbers for people."""

from __future__ import annotations


def show_bytes(count: float) -> str:
    """Format a number of bytes with three digits and a unit: ``1.23 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000 or unit == "GiB":
            return f"{count:.3g} {unit}" if count < 1000 else f"{count:.0f} {unit}"
        count /= 1024
    raise AssertionError("unreachable: the last unit returns")


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: ``1 request``, ``2,000 requests``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
