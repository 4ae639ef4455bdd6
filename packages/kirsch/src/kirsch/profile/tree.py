"""A call tree as lines of text: the calls that took a threshold or longer, below their callers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ORDERS = {
    "order": None,
    "total": lambda call: -call["total"],
    "own": lambda call: -call["own"],
    "calls": lambda call: -call["calls"],
}
"""The orders of the calls below one call; ``order``: as they first came."""

HEAD = (f"{'ms':>10} {'own ms':>10} {'calls':>7}", "")


def lines(calls: Iterable[dict[str, Any]], threshold: int, sort: str = "order", depth: int = 0) -> Iterator[str]:
    """Yield a line for each of ``calls`` (from :func:`kirsch.profile.stats.plain`), and for each call below it, that
    took ``threshold`` nanoseconds or longer."""
    # Without recursion, because applications nest deeply.
    waiting = [(call, depth) for call in reversed(_sorted(calls, sort))]
    while waiting:
        call, level = waiting.pop()
        if call["total"] < threshold:
            continue
        yield line(call["total"], call["own"], call["calls"], level, named(call) + _remark(call))
        waiting += [(each, level + 1) for each in reversed(_sorted(call["calling"], sort))]


def line(total: int, own: int | None, calls: int | None, depth: int, text: str) -> str:
    """Return one line. Times are nanoseconds."""
    shown_own = "" if own is None else f"{own / 1e6:.3f}"
    shown_calls = "" if calls is None else f"{calls:,}"
    return f"{total / 1e6:10.3f} {shown_own:>10} {shown_calls:>7}  {'  ' * depth}{text}"


def named(call: dict[str, Any]) -> str:
    """Return ``file.py:12(function)``, with the path relative to the current directory or the package directory."""
    return f"{short(call['file'])}:{call['line']}({call['name']})" if call["line"] else str(call["name"])


def short(path: str) -> str:
    """Shorten a path for people."""
    here = os.getcwd() + os.sep
    if path.startswith(here):
        return path[len(here) :]
    for marker in (f"site-packages{os.sep}", f"dist-packages{os.sep}"):
        if marker in path:
            return path.rpartition(marker)[2]
    return os.sep.join(path.split(os.sep)[-2:])


def longest(calls: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the call that took longest; None if there are none."""
    return max(calls, key=lambda call: int(call["total"]), default=None)


def _sorted(calls: Iterable[dict[str, Any]], sort: str) -> Sequence[dict[str, Any]]:
    key: Any = ORDERS[sort]
    return list(calls) if key is None else sorted(calls, key=key)


def _remark(call: dict[str, Any]) -> str:
    return f"  ({call['recursive']:,} of the calls by itself)" if call["recursive"] else ""
