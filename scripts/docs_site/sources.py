"""The pages of the site: which file of the repository each one is made of, and its text as Python-Markdown reads it."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"

OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "BENCHMARKING.md": "project/benchmarking.md",
    "tests/corpus/README.md": "project/corpus.md",
    "packages/kirsch-bench/README.md": "packages/bench.md",
    "packages/kirsch-web/README.md": "web/index.md",
    "packages/kirsch-web/docs": "web",
    "packages/kirsch-query/README.md": "query/index.md",
    "packages/kirsch-query/docs": "query",
    "packages/kirsch-cherrypy/README.md": "web/cherrypy.md",
}
"""Pages and folders of pages that are not below docs, and their places on the site."""

EXAMPLES = "examples.md"
"""The page that shows the files of the folder examples."""

CONVERT = "convert.md"
"""The page with the form that turns command lines into Kirsch's."""

BENCHMARKS = "benchmarks.md"
"""The page with plots of the surveys."""

GENERATED = (EXAMPLES, CONVERT, BENCHMARKS)
"""The pages that are made of data when the site is built."""

MAKERS = {
    ROOT / "scripts" / "docs_site" / "migration.py": CONVERT,
    ROOT / "scripts" / "docs_site" / "benchmarks.py": BENCHMARKS,
}
"""The modules that make pages of data, by which pages of the repository refer to these."""

_FENCE = re.compile(r"^( *)(```|~~~)")
_ITEM = re.compile(r"^( *)([*-]|\d+\.) ")
_LINK = re.compile(r"(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


@cache
def places() -> dict[Path, str]:
    """Return the place on the site of each page, by its path in the repository."""
    found = {path: path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))}
    for source, place in OUTSIDE.items():
        path = ROOT / source
        if path.is_dir():
            found |= {each: f"{place}/{each.relative_to(path).as_posix()}" for each in sorted(path.rglob("*.md"))}
        else:
            found[path] = place
    return found


def attachments() -> dict[Path, str]:
    """Return the files that pages link to and that the site has beside them, with their places."""
    kept = (".txt", ".css", ".js", ".svg", ".png")
    return {path: path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*")) if path.suffix in kept}


def page(path: Path) -> str:
    """Return the text of a page for the site, in the Markdown that Python-Markdown reads."""
    return for_python_markdown(relink(path.read_text(encoding="utf-8"), path))


def relink(text: str, path: Path) -> str:
    """Return ``text``, a page of the repository, with its links made to lead to pages of the site.

    A link to a file that the site does not have becomes its own text, with the file's path as a tooltip.
    """

    def replace(match: re.Match[str]) -> str:
        image, shown, link = match.groups()
        if re.match(r"[a-z][a-z+.-]*:|#", link):
            return match[0]
        file, _, anchor = link.partition("#")
        target = Path(os.path.normpath(path.parent / file))
        known = _place(target)
        if not known:
            return f'<span title="{target.relative_to(ROOT).as_posix()} in the repository">{shown}</span>'
        relative = os.path.relpath(known, PurePosixPath(places()[path]).parent)
        if target.parent == ROOT / "examples":
            anchor = target.stem
        return f"{image}[{shown}]({relative}{anchor and '#' + anchor})"

    return _outside_of_code(text, lambda lines: _LINK.sub(replace, lines))


def _place(target: Path) -> str:
    if target in MAKERS:
        return MAKERS[target]
    if target == ROOT / "examples" or (target.parent == ROOT / "examples" and target.suffix == ".py"):
        return EXAMPLES
    return {**places(), **attachments()}.get(target) or places().get(target / "README.md", "")


def for_python_markdown(text: str) -> str:
    """Return ``text``, in GitHub's Markdown, with what Python-Markdown needs besides.

    That is a blank line before a list, and four spaces for a list in a list.
    """
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        if opened := _FENCE.match(line):
            fence = "" if fence == opened[2] else fence or opened[2]
        item = None if fence else _ITEM.match(line)
        before = lines[-1] if lines else ""
        if item and not item[1] and before.strip() and not before.startswith((" ", "<!--")) and not _ITEM.match(before):
            lines.append("")
        if not fence and not opened and re.match(r" {2,3}(?=[*-] )", line):
            line = "    " + line.lstrip()
        lines.append(line)
    return "\n".join(lines)


def _outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """Return ``text`` with ``change`` applied to what is not in a block of code; code in a line is changed too."""
    parts = re.split(r"(^ *(?:```|~~~).*?^ *(?:```|~~~)[ \t]*$)", text, flags=re.M | re.S)
    return "".join(part if index % 2 else change(part) for index, part in enumerate(parts))
