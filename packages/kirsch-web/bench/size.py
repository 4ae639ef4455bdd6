"""Count the lines of code of kirsch-web and kirsch-cherrypy: neither blank nor only a comment or a docstring.

    python bench/size.py           # by part
    python bench/size.py --files   # by file

An expression over four lines is four lines. Other counters, such as cloc, differ by a few in a hundred.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "kirsch_web"
CHERRYPY = SOURCE.parents[2] / "kirsch-cherrypy" / "src" / "kirsch_cherrypy"

PARTS = {
    "tools, services": {"sessions", "protect", "cors", "conditions", "compress", "media", "files", "sse", "templates",
        "lifecycle", "mounts", "models", "rates", "stores"},
    "ASGI": {"asgi", "asgi_request", "websocket"},
    "web.redirector": {"internal_redirect"},
    "explain, OpenAPI, test client": {
        "explain", "openapi", "openapi_page", "testing", "threaded", "commands", "__main__", "stages",
    },
}  # fmt: skip
"""The files beside the core; all others of the folder answer requests."""


def lines_of_code(path: Path) -> int:
    """The lines that have code."""
    text = path.read_text("utf-8")
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in nothing:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - documented)


def part_of(path: Path) -> str:
    """The part of the package that a file belongs to."""
    if CHERRYPY in path.parents:
        return "kirsch migrate" if path.parent.name == "migrate" else "kirsch-cherrypy"
    return next((part for part, names in PARTS.items() if path.stem in names), "core")


def by_part() -> dict[str, dict[str, tuple[int, int]]]:
    """Lines of code and all lines of each file, by part."""
    found: dict[str, dict[str, tuple[int, int]]] = {"core": {}, **{part: {} for part in PARTS}}
    for folder in (SOURCE, CHERRYPY):
        for path in sorted(folder.rglob("*.py")):
            lines = lines_of_code(path), len(path.read_text("utf-8").splitlines())
            found.setdefault(part_of(path), {})[str(path.relative_to(folder))] = lines
    return found


def main() -> None:
    found = by_part()
    print(f"{'':42} {'code':>6} {'all':>6}")
    for part, files in found.items():
        if "--files" in sys.argv:
            for name, (code, lines) in sorted(files.items(), key=lambda each: -each[1][0]):
                print(f"  {name:40} {code:6} {lines:6}")
        print(f"{part:42} {sum(each[0] for each in files.values()):6} {sum(each[1] for each in files.values()):6}")
    everything = [each for files in found.values() for each in files.values()]
    print(f"{'all':42} {sum(each[0] for each in everything):6} {sum(each[1] for each in everything):6}")


if __name__ == "__main__":
    main()
