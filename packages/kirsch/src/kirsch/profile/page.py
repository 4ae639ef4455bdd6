"""The frame and style of self-contained HTML pages, for the profiler's viewer and for reports."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1c2024; --faint: #60676f; --line: #e4e7eb; --card: #f6f7f9;
  --bad: #c0262d; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --text: #e6e9ec; --faint: #98a1ab; --line: #2b3138;
  --card: #1c2126; --bad: #ff7b72; } }
body { margin: 2rem auto; padding: 0 1rem; max-width: 70rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p.what { color: var(--faint); margin: .2rem 0 1rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; }
.tile { background: var(--card); border-radius: .5rem; padding: .6rem 1rem; min-width: 7rem; }
.tile b { display: block; font-size: 1.3rem; font-weight: 600; } .tile span { color: var(--faint); font-size: .85rem; }
.scroll, .plotted { overflow-x: auto; }
.narrow { display: none; }
@media (max-width: 66rem) { .wide { display: none; } .narrow { display: block; } }
.plotted { margin: .5rem 0; } svg.plot { min-width: 36rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child, .left, .words { text-align: left; } td.words { white-space: normal; }
th { color: var(--faint); font-weight: 500; }
.scroll td:first-child, .scroll th:first-child { position: sticky; left: 0; background: var(--page); }
.warning { border-left: 3px solid var(--s1); padding-left: .75rem; } .bad { color: var(--bad); }
@media (max-width: 30rem) { th, td { padding-right: .4rem; font-size: .85rem; } }
pre { background: var(--card); padding: .75rem; border-radius: .5rem; overflow-x: auto; font-size: .8rem; }
"""


def frame(title: str, what: str, parts: Sequence[str], *, style: str = "") -> str:
    """Return an HTML page of ``parts``, which are HTML. ``title`` and ``what``, the line below it, are text.
    ``style`` is additional CSS."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}{style}</style></head><body>",
            f'<h1>{escape(title)}</h1><p class="what">{escape(what)}</p>',
            *parts,
            "</body></html>\n",
        ]
    )
