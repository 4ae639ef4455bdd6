"""The guides of ``kirsch help TOPIC``: pages of the documentation in the wheel, rendered as text for a terminal."""

from __future__ import annotations

import os
import re
import textwrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "guides")

_LINK = re.compile(r"!?\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_ITEM = re.compile(r"( *)([*-]|\d+\.) +")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def topics() -> dict[str, str]:
    """Return the titles of all guides by topic."""
    found = {}
    for name in sorted(os.listdir(FOLDER)):
        topic, extension = os.path.splitext(name)
        if extension == ".md":
            found[topic] = _read(topic).partition("\n")[0].lstrip("# ")
    return found


def guide(topic: str, words: list[str], *, width: int, bold: bool) -> str:
    """Return the guide of a topic in lines of at most ``width`` columns.

    With ``words``, return only the sections whose headings contain all of them, empty if there are none. ``bold`` makes
    headings bold on a terminal.
    """
    lines = list(_sections(_read(topic).splitlines(), words))
    return "\n".join(_Renderer(width, bold=bold).lines(lines)).strip("\n")


def _read(topic: str) -> str:
    with open(os.path.join(FOLDER, f"{topic}.md"), encoding="utf-8") as file:
        return re.sub(r"<!--.*?-->\n*", "", file.read(), flags=re.DOTALL)


def _sections(lines: list[str], words: list[str]) -> Iterator[str]:
    """Yield the lines of sections whose headings contain all ``words``, with their subsections."""
    level, fenced = 0, False
    for line in lines:
        fenced ^= line.lstrip().startswith("```")
        heading = None if fenced else re.match(r"(#+) ", line)
        if heading and (not level or len(heading[1]) <= level):
            level = len(heading[1]) if all(word.lower() in line.lower() for word in words) else 0
        if level:
            yield line


class _Renderer:
    """A renderer of Markdown as text. Code blocks keep their lines; other text is filled."""

    def __init__(self, width: int, *, bold: bool) -> None:
        self._width = width
        self._bold = bold

    def lines(self, source: list[str]) -> Iterator[str]:
        """Yield the lines of the text."""
        paragraph: list[str] = []
        columns: list[str] = []
        fenced = False
        for line in [*source, ""]:
            if line.lstrip().startswith("```"):
                yield from self._filled(paragraph)
                fenced = not fenced
            elif fenced:
                yield f"    {line}".rstrip()
            elif line.startswith("|"):
                cells = [self._inline(cell.strip()) for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
                if not columns:
                    columns = cells
                    if cells[0]:
                        yield from self._wrap(" | ".join(filter(None, cells)), "  ", "  ")
                elif not set("".join(cells)) <= set("-: "):
                    yield from self._row(columns, cells)
            else:
                columns = []
                if not line.strip() or line.startswith("#") or _ITEM.match(line):
                    yield from self._filled(paragraph)
                if line.startswith("#"):
                    yield from self._heading(line)
                elif line.strip():
                    paragraph.append(line)
                else:
                    yield ""

    def _heading(self, line: str) -> Iterator[str]:
        title = self._inline(line.lstrip("# "))
        yield f"{_BOLD}{title}{_PLAIN}" if self._bold else title
        if not self._bold:
            yield ("=" if line.startswith("# ") else "-") * len(title)

    def _row(self, columns: list[str], cells: list[str]) -> Iterator[str]:
        """Yield a row of a table: its first cell, and below it the others, with column names if there are many."""
        yield from self._wrap(cells[0] or "-", "  ", "    ")
        for column, cell in zip(columns[1:], cells[1:], strict=False):
            if cell:
                yield from self._wrap(f"{column}: {cell}" if len(columns) > 2 and column else cell, "      ", "      ")

    def _filled(self, paragraph: list[str]) -> Iterator[str]:
        if paragraph:
            item = _ITEM.match(paragraph[0])
            first, later = (item[0], " " * len(item[0])) if item else ("", "")
            text = self._inline(" ".join(line.strip() for line in paragraph)[len(item[0].lstrip()) if item else 0 :])
            yield from self._wrap(text, first, later)
            paragraph.clear()

    def _wrap(self, text: str, first: str, later: str) -> list[str]:
        return textwrap.wrap(
            text,
            self._width,
            initial_indent=first,
            subsequent_indent=later,
            break_on_hyphens=False,
            break_long_words=False,
        )

    @staticmethod
    def _inline(text: str) -> str:
        """Return a line without Markdown marks; a link to another guide becomes its topic."""
        code: list[str] = []

        def kept(match: re.Match[str]) -> str:
            code.append(match[1])
            return f"\0{len(code) - 1}\0"

        text = re.sub(r"`([^`]+)`", kept, _LINK.sub(_linked, text))
        text = re.sub(r"\*\*(.+?)\*\*|(?<![\w*])\*([^*\s][^*]*)\*", lambda match: match[1] or match[2], text)
        return re.sub(r"\0(\d+)\0", lambda match: code[int(match[1])], text).replace("\\|", "|")


def _linked(match: re.Match[str]) -> str:
    shown, link = match.groups()
    topic = TOPIC_OF_PAGE.get(link.partition("#")[0].rpartition("/")[2], "")
    return f"{shown} (kirsch help {topic})" if topic else shown


TOPIC_OF_PAGE = {
    **{name: name.removesuffix(".md") for name in sorted(os.listdir(FOLDER)) if name.endswith(".md")},
    # Renamed, because commands have the names static and quarantine.
    "static.md": "static-files",
    "quarantine.md": "quarantined-routes",
}
"""The topics of the guides by the names of their pages in docs."""
