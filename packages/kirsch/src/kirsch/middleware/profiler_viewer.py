"""The page of :mod:`kirsch.middleware.profiler`: the runs, and the functions and the call tree of each. ``PATH`` lists
the runs, the newest first, or sorted by ``?sort=time``, ``path`` or ``method``. ``PATH/NAME.prof`` shows one run, with
functions sorted by ``?sort=total``, ``own``, ``calls`` or ``name``, and in its tree the calls from ``?threshold=``
microseconds on.
"""

from __future__ import annotations

import os
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote

from kirsch.profile import page, stats, tree
from kirsch.profile.files import AGGREGATE_NAME, NAME
from kirsch.profile.show import plural, show_bytes

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from kirsch.profile.stats import Stats

_FUNCTIONS_MOST = 200
_LINES_MOST = 2000

# Escaping prevents that the path of a request becomes a script; this policy is a second protection.
_HEADERS = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
]

_RUNS: dict[str, Callable[[re.Match[str]], Any]] = {
    "when": lambda run: _negated(run["time"]),
    "time": lambda run: -int(run["us"]),
    "path": lambda run: run["path"],
    "method": lambda run: run["method"],
}

_FUNCTIONS: dict[str, Callable[[tuple[Any, Any]], Any]] = {
    "total": lambda item: -item[1][3],
    "own": lambda item: -item[1][2],
    "calls": lambda item: -item[1][1],
    "name": lambda item: (tree.short(item[0][0]), item[0][1], item[0][2]),
}


def respond(environ: dict[str, Any], start_response: Any, folder: str) -> list[bytes]:
    """Respond to a request at or below the viewer's path. ``folder`` contains the runs."""
    if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        return _send(
            start_response, "405 Method Not Allowed", "Only GET and HEAD are allowed here", [("Allow", "GET, HEAD")]
        )
    path: str = environ["PATH_INFO"]
    name = path.rpartition("/")[2]
    query = {key: values[-1] for key, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
    is_run = NAME.fullmatch(name) or AGGREGATE_NAME.fullmatch(name)
    home = quote(environ.get("SCRIPT_NAME", "") + (path.rpartition("/")[0] if is_run else path.rstrip("/")))
    if is_run:
        try:
            return _send(start_response, "200 OK", _run(os.path.join(folder, name), home, query))
        except stats.UnreadableError as error:
            return _send(start_response, "404 Not Found", _page("No such run", str(error), home, []))
    return _send(start_response, "200 OK", _list(folder, home, query))


def _send(start_response: Any, status: str, text: str, headers: list[tuple[str, str]] | None = None) -> list[bytes]:
    body = text.encode("utf-8", "backslashreplace")
    start_response(status, [*_HEADERS, *(headers or []), ("Content-Length", str(len(body)))])
    return [body]


def _page(title: str, what: str, home: str, parts: list[str]) -> str:
    back = [f'<p><a href="{escape(home)}">all runs</a></p>'] if home else []
    return page.frame(title, what, [*back, *parts])


def _list(folder: str, home: str, query: dict[str, str]) -> str:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        names = []
    except OSError as error:
        return _page("Profiles", f"{folder}: {error.strerror}", "", [])
    runs = [run for name in names if (run := NAME.fullmatch(name))]
    together = sorted(name for name in names if AGGREGATE_NAME.fullmatch(name))
    sort = query.get("sort", "when")
    runs.sort(key=_RUNS.get(sort, _RUNS["when"]))
    parts = []
    if together:
        parts.append("<h2>All requests together, by process</h2>")
        parts += [_table([["file", "size"], *([_link(home, name), _size(folder, name)] for name in together)])]
    if runs:
        head = [
            _sorting(home, title, key, sort)
            for title, key in (("when (UTC)", "when"), ("method", "method"), ("path", "path"), ("ms", "time"))
        ]
        rows = [
            [
                _link(home, run[0], f"{run['time'][:8]} {run['time'][9:11]}:{run['time'][11:13]}:{run['time'][13:]}"),
                escape(run["method"]),
                escape(run["path"] or "/"),
                f"{int(run['us']) / 1000:,.3f}",
            ]
            for run in runs
        ]
        parts += ["<h2>Requests</h2>", _table([head, *rows])]
    what = plural(len(runs) + len(together), "profile") + f" in {folder}"
    return _page("Profiles", what if runs or together else f"{what}: send a request first", "", parts)


def _run(path: str, home: str, query: dict[str, str]) -> str:
    functions, about, calls = stats.read(path)
    name = os.path.basename(path)
    sort = query.get("sort", "total")
    threshold = int(query["threshold"]) if query.get("threshold", "").isdecimal() else 100
    here = f"{home}/{quote(name)}"
    parts = []
    if calls:
        lines = list(tree.lines(calls, threshold * 1000))
        more = [f"... and {len(lines) - _LINES_MOST:,} more"] if len(lines) > _LINES_MOST else []
        shown = "\n".join([*tree.HEAD, *lines[:_LINES_MOST], *more])
        others = " ".join(f'<a href="{escape(here)}?threshold={each}">{each}</a>' for each in (0, 10, 100, 1000, 10000))
        parts += [
            "<h2>Calls</h2>",
            f"<p class='what'>that took {threshold:,} us or longer; others: {others}</p>",
            f"<pre>{escape(shown)}</pre>",
        ]
    parts += ["<h2>Functions</h2>", _functions(functions, here, sort)]
    return _page(_title(about, name), _what(about), home, parts)


def _functions(functions: Stats, here: str, sort: str) -> str:
    head = [
        _sorting(here, title, key, sort)
        for title, key in (("function", "name"), ("calls", "calls"), ("own ms", "own"), ("total ms", "total"))
    ]
    rows = []
    for (file, line, name), (primitive, calls, own, total, _) in sorted(
        functions.items(), key=_FUNCTIONS.get(sort, _FUNCTIONS["total"])
    )[:_FUNCTIONS_MOST]:
        where = f"{tree.short(file)}:{line}({name})" if line else name
        shown = f"{calls:,}" if calls == primitive else f"{calls:,}/{primitive:,}"
        rows.append([escape(where), shown, f"{own * 1e3:,.3f}", f"{total * 1e3:,.3f}"])
    more = len(functions) - len(rows)
    rest = f"<p class='what'>and {plural(more, 'function')} more: pstats shows all</p>" if more > 0 else ""
    return _table([head, *rows]) + rest


def _title(about: dict[str, Any], name: str) -> str:
    return f"{about['method']} {about['path'] or '/'}" if "method" in about else name


def _what(about: dict[str, Any]) -> str:
    if "requests" in about:
        return f"{plural(about['requests'], 'request')}, {about['nanoseconds'] / 1e6:,.1f} ms in all"
    if "nanoseconds" not in about:
        return "a profile of another program"
    raised = f", raised {about['raised']}" if about["raised"] else ""
    return f"{about['nanoseconds'] / 1e6:,.3f} ms in the application{raised}"


def _table(rows: list[list[str]]) -> str:
    """Return an HTML table of cells that are HTML; the first row is the header."""
    head, *body = rows
    lines = ["<tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in body]
    return "<div class='scroll'><table>" + "\n".join(lines) + "</table></div>"


def _link(home: str, name: str, text: str = "") -> str:
    return f'<a href="{escape(home)}/{quote(name)}">{escape(text or name)}</a>'


def _sorting(here: str, title: str, key: str, sort: str) -> str:
    return f"<b>{escape(title)}</b>" if key == sort else f'<a href="{escape(here)}?sort={key}">{escape(title)}</a>'


def _size(folder: str, name: str) -> str:
    try:
        return show_bytes(os.path.getsize(os.path.join(folder, name)))
    except OSError:
        return "gone"


def _negated(time: str) -> int:
    return -int(time.replace("T", "").replace(".", ""))
