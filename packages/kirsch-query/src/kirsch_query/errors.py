"""The exceptions of this package. Each names file and line, and shows the source with a caret below the error."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast


class Place:
    """The place of a syntax node: the file, and the line with its text."""

    __slots__ = ("column", "end_column", "filename", "line", "text")

    def __init__(self, filename: str, line: int, column: int, end_column: int, text: str) -> None:
        self.filename = filename
        self.line = line
        self.column = column
        self.end_column = end_column
        self.text = text

    @classmethod
    def of(cls, node: ast.AST, filename: str, lines: list[str]) -> Place:
        """Return the place of ``node`` in the source ``lines``. Its columns count characters, unlike those of
        ``ast``, which count bytes."""
        number = getattr(node, "lineno", 0)
        text = lines[number - 1].rstrip("\r\n") if 0 < number <= len(lines) else ""
        raw = text.encode("utf-8", "surrogatepass")
        start: int = getattr(node, "col_offset", 0)
        end: int = getattr(node, "end_col_offset", None) or start
        if getattr(node, "end_lineno", number) != number:
            end = len(raw)
        return cls(
            filename,
            number,
            len(raw[:start].decode("utf-8", "replace")),
            len(raw[:end].decode("utf-8", "replace")),
            text,
        )

    def shown(self) -> str:
        """Return the lines in the form of a traceback."""
        if not self.text.strip():
            return f'  File "{self.filename}", line {self.line}'
        code = self.text.lstrip()
        indent = len(self.text) - len(code)
        start = max(self.column - indent, 0)
        carets = "^" * max(min(self.end_column, len(self.text)) - self.column, 1)
        return f'  File "{self.filename}", line {self.line}\n    {code}\n    {" " * start}{carets}'


class QueryError(Exception):
    """The base class of this package's exceptions."""

    def __init__(self, problem: str, place: Place | None = None, hint: str = "") -> None:
        self.problem = problem
        self.place = place
        self.hint = hint
        parts = [problem]
        if place is not None:
            parts.append(place.shown())
        if hint:
            parts.append(f"  {hint}")
        super().__init__("\n".join(parts))


class SourceError(QueryError):
    """Raised if the source of a function cannot be found, or is not the source of the running function."""


class Refused(QueryError):
    """Raised if a query cannot be translated exactly. Nothing was sent to a database."""
