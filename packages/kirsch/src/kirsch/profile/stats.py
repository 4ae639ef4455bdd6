"""Reading and writing call trees as ``.prof`` files, which pstats, snakeviz and similar tools read.

pstats reads one marshalled object: a mapping from functions, ``(file, line, name)``, to ``(primitive calls, calls, own
time, total time, callers)``, in seconds. A second object follows, which pstats ignores: the request and its tree, as
plain data. Marshalled data may be read only if every possible writer is trusted (documentation of ``marshal``): keep
such files in a folder that only the server can write.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kirsch.profile.tracer import Function, Node

    Name = tuple[str, int, str]
    Row = tuple[int, int, float, float, dict[Name, tuple[int, int, float, float]]]
    Stats = dict[Name, Row]

# The format of the second object. The viewer shows no tree for another version.
_FORMAT = "kirsch-profile-1"


class UnreadableError(Exception):
    """Raised if a file does not exist or is no profile; the text is one line."""


def of(root: Node) -> Stats:
    """Convert the tree below ``root`` to the format of pstats."""
    stats: dict[Name, list[Any]] = {}
    functions: dict[Any, Function] = {}

    def named(node: Node) -> Name:
        function = functions.get(node.key)
        if function is None:
            function = functions[node.key] = node.function()
        return function.file, function.line, function.name

    def visit(node: Node, caller: Name | None) -> None:
        name = named(node)
        row = stats.setdefault(name, [0, 0, 0, 0, {}])
        primitive = node.calls - _folded_into(node)
        for index, value in enumerate((primitive, node.calls, node.own, node.total)):
            row[index] += value
        if caller is not None:
            edge = row[4].setdefault(caller, [0, 0, 0, 0])
            for index, value in enumerate((primitive, primitive, node.own, node.total)):
                edge[index] += value
        for again, count in node.folded.items():
            edge = stats.setdefault(named(again), [0, 0, 0, 0, {}])[4].setdefault(name, [0, 0, 0, 0])
            edge[1] += count
        for callee in node.callees():
            visit(callee, name)

    for node in root.callees():
        visit(node, None)
    return {
        name: (
            primitive,
            calls,
            own / 1e9,
            total / 1e9,
            {caller: (a, b, c / 1e9, d / 1e9) for caller, (a, b, c, d) in callers.items()},
        )
        for name, (primitive, calls, own, total, callers) in stats.items()
    }


def _folded_into(node: Node) -> int:
    """Return how many calls of a node were recursive, made from below the node itself."""
    waiting = [node]
    count = 0
    while waiting:
        each = waiting.pop()
        count += each.folded.get(node, 0)
        waiting += each.callees()
    return count


def add(stats: Stats, more: Stats) -> None:
    """Add the calls and times of ``more`` to ``stats``."""
    for name, (primitive, calls, own, total, callers) in more.items():
        row = stats.get(name)
        if row is None:
            stats[name] = primitive, calls, own, total, dict(callers)
            continue
        edges = row[4]
        for caller, edge in callers.items():
            before = edges.get(caller)
            edges[caller] = edge if before is None else _sum(before, edge)
        stats[name] = (row[0] + primitive, row[1] + calls, row[2] + own, row[3] + total, edges)


def _sum(one: tuple[int, int, float, float], other: tuple[int, int, float, float]) -> tuple[int, int, float, float]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


def plain(root: Node) -> list[dict[str, Any]]:
    """Return the tree below ``root`` as plain data, with times in nanoseconds."""
    return [_plain(node) for node in root.callees()]


def _plain(node: Node) -> dict[str, Any]:
    function = node.function()
    return {
        "file": function.file,
        "line": function.line,
        "name": function.qualified,
        "calls": node.calls,
        "own": node.own,
        "total": node.total,
        "recursive": _folded_into(node),
        "calling": [_plain(each) for each in node.callees()],
    }


def marshalled(stats: Stats, about: dict[str, Any], tree: Iterable[dict[str, Any]] = ()) -> bytes:
    """Return the content of a ``.prof`` file."""
    return marshal.dumps(stats) + marshal.dumps({"format": _FORMAT, "about": about, "tree": list(tree)})


def write(path: str, stats: Stats, about: dict[str, Any], tree: Iterable[dict[str, Any]] = ()) -> None:
    """Write a ``.prof`` file atomically. Raises OSError."""
    data = marshalled(stats, about, tree)
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read(path: str) -> tuple[Stats, dict[str, Any], list[dict[str, Any]]]:
    """Return the functions, the data about the request, and its tree (empty if there is none). Raises
    UnreadableError."""
    try:
        with open(path, "rb") as file:
            stats = marshal.load(file)  # noqa: S302  # see the module
            try:
                more = marshal.load(file)  # noqa: S302
            except EOFError:
                more = {}
    except OSError as error:
        raise UnreadableError(f"{os.path.basename(path)}: {error.strerror}") from None
    except (EOFError, ValueError, TypeError):
        raise UnreadableError(f"{os.path.basename(path)} holds no profile") from None
    if not isinstance(stats, dict) or not isinstance(more, dict):
        raise UnreadableError(f"{os.path.basename(path)} holds no profile")
    known = more.get("format") == _FORMAT
    return stats, more["about"] if known else {}, more["tree"] if known else []
