"""The distributions that kirsch_cherrypy needs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "kirsch_cherrypy"


def test_package_needs_kirsch_web_alone() -> None:
    """Modules that are imported inside of functions, such as kirsch and cheroot, are choices."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.partition(".")[0]
                known = top in {*sys.stdlib_module_names, "kirsch_web", "kirsch_cherrypy"}
                assert known or (path.name, name) == ("entry.py", "kirsch.commands"), f"{path} imports {name}"


def test_kirsch_web_does_not_load_the_package() -> None:
    code = "import sys, kirsch_web, kirsch_web.testing; print('kirsch_cherrypy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
