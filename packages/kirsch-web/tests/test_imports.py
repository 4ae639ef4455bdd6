"""What importing kirsch_web loads, and in which order its files can be read."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "kirsch_web"


def loaded_with(path: Path) -> set[str]:
    """The files of the package that are loaded with a file: not those that functions import, or type checkers."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("kirsch_web"):
            name = node.module.partition(".")[2]
            names = [name] if name else [each.name for each in node.names]
            found.update(each for each in names if (SOURCE / f"{each}.py").exists())
    return found


def test_no_files_load_each_other_in_a_circle() -> None:
    files = {path.stem: loaded_with(path) for path in SOURCE.glob("*.py") if path.stem != "__init__"}
    order = list(TopologicalSorter(files).static_order())  # CycleError names the files of a circle
    assert set(order) == set(files)


def test_importing_the_package_loads_only_what_most_applications_use() -> None:
    code = "import sys; before = set(sys.modules); import kirsch_web; print(*sorted(set(sys.modules) - before))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    )
    late = {
        "sessions",
        "protect",
        "files",
        "sse",
        "multipart",
        "openapi",
        "explain",
        "testing",
        "stages",
        "compress",
        "threaded",
        "asgi",
        "websocket",
    }
    assert not {f"kirsch_web.{name}" for name in late} & loaded
    assert not {"inspect", "dataclasses", "json", "logging", "asyncio", "http", "email"} & loaded


def test_the_package_needs_no_other_distribution() -> None:
    for path in SOURCE.glob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.partition(".")[0]
                known = top in sys.stdlib_module_names or top == "kirsch_web"
                assert known or (path.stem, top) == ("commands", "kirsch"), f"{path.name} imports {name}"


# What answers a request: publishing, signatures, dispatchers, the pipeline, bodies. The rest are tools, ASGI,
# middleware, and what people use: explain, OpenAPI, the test client.
BESIDE = {
    "sessions", "protect", "compress", "media", "files", "sse", "asgi", "websocket", "internal_redirect", "explain",
    "openapi", "testing", "threaded", "commands", "__main__", "stages",
}  # fmt: skip


def lines_of_code(path: Path) -> int:
    """The lines that have code: blank lines, comments and docstrings are not counted."""
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


def test_the_core_stays_below_five_thousand_lines_of_code() -> None:
    names = {path.stem for path in SOURCE.glob("*.py")}
    assert names >= BESIDE
    assert sum(lines_of_code(SOURCE / f"{name}.py") for name in names - BESIDE) <= 5000
