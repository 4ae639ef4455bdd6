"""The modules that importing kirsch_web loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
SOURCE = PACKAGE / "src" / "kirsch_web"


def test_importing_the_package_loads_only_what_most_applications_use() -> None:
    code = "import sys; before = set(sys.modules); import kirsch_web; print(*sorted(set(sys.modules) - before))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    )
    late = {
        "sessions",
        "protect",
        "cors",
        "files",
        "sse",
        "templates",
        "models",
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


def lines_of(part: str) -> int:
    """The lines of code of a part, as bench/size.py counts them for the README."""
    lines = subprocess.run(
        [sys.executable, PACKAGE / "bench" / "size.py"], check=True, capture_output=True, text=True
    ).stdout
    return next(int(line.split()[-2]) for line in lines.splitlines() if line.startswith(f"{part} "))


def test_the_core_stays_below_4900_lines_of_code() -> None:
    assert 3000 < lines_of("core") <= 4900


def test_the_package_for_cherrypy_does_not_grow() -> None:
    assert 2500 < lines_of("kirsch-cherrypy") <= 4010
